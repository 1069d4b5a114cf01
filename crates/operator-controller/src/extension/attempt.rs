//! How far one pass over a ClusterExtension got, as a value. The status is derived from it, and from nothing else.

use olm_client::resolution::{BundleFacts, Failure, Learnt, RevisionStates};

/// How far the pass got.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// The spec itself is wrong; nothing was looked up.
    Invalid(Failure),
    /// The revisions could not be read, so nothing is known about what is installed.
    RevisionsUnreadable(Failure),
    /// No bundle was chosen, or the chosen one could not be delivered to a revision.
    Failed(Failure),
    /// The newest revision holds what is wanted.
    Applied {
        /// The wanted bundle.
        wanted: BundleFacts,
    },
    /// The user paused the extension; nothing was changed.
    Paused,
    /// The extension is being deleted; its revisions are torn down.
    Uninstalling {
        /// What is still there, in words.
        message: String,
    },
}

/// The value from which status is derived.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Revisions after the pass.
    pub revisions: RevisionStates,
    /// What this pass learnt of the package's deprecations.
    pub deprecations: Learnt,
    /// How far it got.
    pub progress: Progress,
}
