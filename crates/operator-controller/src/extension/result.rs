//! The result of one pass over a ClusterExtension, as a value. The status is derived from it, and from nothing else.
//!
//! What a condition shows is a field of [`PassResult`]. A pass can end before it knows the value: then it is `Unchanged`, and the stored
//! condition stays. [`PassResult::unread`] is no input of the status; it decides when the next pass is.

use olm_bundle::CertProvider;
pub use olm_install::plan::Notice;
use olm_install::resolution::{BundleFacts, DeprecationUpdate, PassError, RevisionStates, UpgradeUpdate};
use olm_rollout::status::Obstacle;

/// The last step that the pass reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// The spec is invalid; nothing was read.
    Invalid(PassError),
    /// No bundle was chosen, or the plan for the chosen one could not be made or executed.
    Failed(PassError),
    /// The newest revision holds the target bundle.
    Applied {
        target: BundleFacts,
        /// The issuer of the extension's webhook certificates, once it is chosen.
        issuer: Option<CertProvider>,
    },
    /// The user paused the extension; nothing was changed.
    Paused,
    /// The extension is being deleted; its revisions are torn down.
    Uninstalling {
        /// The revisions that remain, and the obstacle.
        message: String,
        /// What keeps the revision from going that is being torn down.
        obstacle: Option<Obstacle>,
    },
}

/// The value from which status is derived.
#[derive(Debug, Clone, PartialEq)]
pub struct PassResult {
    /// Revisions after the pass.
    pub revisions: RevisionStates,
    pub deprecations: DeprecationUpdate,
    pub upgrade: UpgradeUpdate,
    /// The last step.
    pub progress: Progress,
    /// Whether a catalog that is served could not be read, so that its older content, or none, was used, or an installed bundle, so that its
    /// settings do not count yet. Nothing changes when they can be read again.
    pub unread: bool,
}

impl PassResult {
    /// The result of a pass that knows nothing besides its progress: what else conditions show stays as stored.
    #[must_use]
    pub fn unchanged(revisions: RevisionStates, progress: Progress) -> Self {
        let (deprecations, upgrade) = (DeprecationUpdate::Unchanged, UpgradeUpdate::UNCHANGED);
        Self { revisions, deprecations, upgrade, progress, unread: false }
    }
}

/// The input of events beside the status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    pub notices: Vec<Notice>,
    /// The bundle that was installed before the present one, if there was any. The stored status may not have it: for
    /// a moment of an upgrade the old revision is archived and the new one has not succeeded.
    pub previous: Option<BundleFacts>,
}
