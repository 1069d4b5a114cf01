//! Serving certificates that OLM issues itself, without cert-manager.
//!
//! [`material`] makes and checks certificates, [`plan`] decides the next step in a certificate's life, [`secret`] converts
//! them from and to a Secret: all pure. [`Executor`] carries the plan out. It serves two owners: the programs, each of which keeps its
//! own certificate ([`SelfIssued`], [`MetricsServer`]), and the controller that issues for webhooks of extensions. [`PublishedCa`] is the other
//! side: what a client of a program trusts.
//!
//! What it deliberately does not know: extensions, bundles, which webhooks need a certificate.

mod disputes;
mod executor;
pub mod material;
mod metrics;
pub mod plan;
mod published;
pub mod secret;
mod self_issued;
mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use executor::{CertificateSpec, Executor, ExecutorError, Ownership, SecretOwner, delete_secret};
pub use metrics::{MetricsServer, MetricsServerError};
pub use published::PublishedCa;
pub use self_issued::{SelfIssued, SelfIssuedError};
pub use source::Source;
