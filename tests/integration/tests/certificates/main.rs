//! Webhook certificates on a real control plane: who issues them, and what the built-in issuer does.
//!
//! kwok runs no containers, so no webhook is ever served or called here: that the chains hold is shown by TLS handshakes in
//! the unit tests of `olm_certificates`. Every webhook has rules for a group of its own test only, or the
//! apiserver would refuse what it cannot ask about.

mod built_in;
mod provider;
mod site;
#[path = "../extension/world.rs"]
#[expect(dead_code, reason = "shared with the tests of extensions")]
mod world;
