//! Serving certificates that this program issues itself, without cert-manager.
//!
//! [`material`] makes and checks certificates, [`plan`] decides the next step in a certificate's life, [`secret`] converts
//! them from and to a Secret: all pure, shared by the issuer for webhooks of bundles and by the processes' own certificates,
//! which [`SelfIssued`] keeps. [`PublishedCa`] is the other side: what a client of such a process trusts.

pub mod material;
pub mod plan;
mod published;
pub mod secret;
mod self_issued;
#[cfg(test)]
mod testing;

pub use published::PublishedCa;
pub use self_issued::{CA_KEY, CertificateSpec, SelfIssued, SelfIssuedError};
