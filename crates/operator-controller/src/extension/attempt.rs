//! How far one pass over a ClusterExtension got, as a value. The status is derived from it, and from nothing else.

use olm_bundle::CertProvider;
use olm_install::resolution::{BundleFacts, Failure, Learnt, RevisionStates};

/// How far the pass got.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// The spec itself is wrong; nothing was looked up.
    Invalid(Failure),
    /// No bundle was chosen, or the chosen one could not be delivered to a revision.
    Failed(Failure),
    /// The newest revision holds what is wanted.
    Applied {
        /// The wanted bundle.
        wanted: BundleFacts,
        /// Who issues the extension's webhook certificates, once that is chosen.
        issuer: Option<CertProvider>,
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
    /// Whether a catalog that is served could not be read, so that its older content stood in for it, or nothing. Its status will not
    /// change when it can be read again.
    pub unread: bool,
}

/// What events need beside the status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Story {
    /// What happened in the pass.
    pub notes: Vec<Note>,
    /// The bundle that was installed before the present one, if there was any. The stored status may not know it any more: for
    /// a moment of an upgrade the old revision is archived and the new one has not succeeded.
    pub previous: Option<BundleFacts>,
}

/// Something that happened in a pass and that a user would ask about, though no condition keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Whether it needs attention.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: &'static str,
    /// The sentence.
    pub text: String,
}

impl Note {
    /// Something that went as it should.
    pub fn normal(reason: &'static str, text: impl Into<String>) -> Self {
        Self { warning: false, reason, text: text.into() }
    }

    /// Something that needs attention.
    pub fn warning(reason: &'static str, text: impl Into<String>) -> Self {
        Self { warning: true, reason, text: text.into() }
    }
}
