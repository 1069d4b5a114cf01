//! From a ClusterExtension, its revisions and the ClusterCatalogs to a question for the resolver, and from its answer to the
//! target bundle.
//!
//! Plain functions, shared by operator-controller, which installs the target, and kubectl-olm, which explains it. They read no
//! cluster and write no status. Rules: operator-controller §3.4, §4.

mod error;
mod request;
pub mod revision;
mod target;

pub use error::{Cause, Class, PassError};
pub use request::{ExtensionRequest, validate};
pub use revision::{BundleFacts, RevisionFacts, RevisionStates};
pub use target::{DeprecationUpdate, Resolved, Settings, Target, UpgradeUpdate, refused, resolve};
