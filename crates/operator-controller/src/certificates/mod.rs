//! Serving certificates of webhooks: who issues them, and the built-in issuer.

pub mod provider;
