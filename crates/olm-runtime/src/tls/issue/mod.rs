//! Serving certificates that we issue ourselves, without cert-manager or anybody else.
//!
//! [`material`] makes and checks certificates, [`plan`] decides what is next in a certificate's life, [`secret`] says how it lies
//! in a Secret: all pure, shared by the issuer for webhooks of bundles and by the processes' own certificates, which
//! [`SelfIssued`] keeps. [`PublishedCa`] is the other side: what a client trusts who calls such a process.

pub mod material;
pub mod plan;
mod published;
pub mod secret;
mod self_issued;
#[cfg(test)]
mod testing;

pub use published::PublishedCa;
pub use self_issued::{CA_KEY, SelfIssued, SelfIssuedError, Wish};
