//! From a ClusterExtension, its revisions and the ClusterCatalogs to a question for the resolver, and from its answer to the
//! wanted bundle.
//!
//! Plain functions, shared by operator-controller, which acts on the answer, and kubectl-olm, which explains it: there is no
//! second way to resolve. They read no cluster and write no status. Rules: operator-controller §3.4, §4.

mod failure;
pub mod revision;
mod wanted;
mod wish;

pub use failure::{Cause, Class, Failure};
pub use revision::{BundleFacts, RevisionFacts, RevisionStates};
pub use wanted::{Learnt, Resolved, Wanted, refused, wanted};
pub use wish::{Wish, validate};
