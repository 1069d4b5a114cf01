//! How far one pass over a ClusterExtension got, as a value. The status is derived from it, and from nothing else.

use olm_api::{Condition, condition};

use super::deprecation::Learnt;

/// The bundle of a revision, as its annotations tell it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BundleFacts {
    /// Bundle name, for example `demo.v1.0.0`.
    pub name: String,
    /// Package name.
    pub package: String,
    /// Version as reported, for example `1.0.0` or `1.0.0+2`.
    pub version: String,
    /// Release: `None` when unknown, empty when explicitly empty.
    pub release: Option<String>,
    /// Image reference as the catalog gives it.
    pub reference: String,
}

impl BundleFacts {
    /// Whether both are the same bundle; the image does not count (decision 24).
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.version == other.version && self.release == other.release
    }
}

/// What the extension controller knows of one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionFacts {
    /// Name of the ClusterObjectSet.
    pub name: String,
    /// Revision number.
    pub number: i64,
    /// Its bundle.
    pub bundle: BundleFacts,
    /// Its conditions as stored.
    pub conditions: Vec<Condition>,
}

impl RevisionFacts {
    /// The condition of this type, if the revision has it.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        condition::find(&self.conditions, type_)
    }
}

/// Revisions that are neither archived nor being deleted, split by what they mean for the extension.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RevisionStates {
    /// The highest-numbered revision that has succeeded.
    pub installed: Option<RevisionFacts>,
    /// All others, ascending by number.
    pub rolling: Vec<RevisionFacts>,
}

impl RevisionStates {
    /// Splits revisions (any order). Rule: resolution §3.4, the highest-numbered succeeded one is installed.
    #[must_use]
    pub fn split(mut revisions: Vec<RevisionFacts>) -> Self {
        revisions.sort_by_key(|revision| revision.number);
        let mut states = Self::default();
        for revision in revisions {
            if condition::is_true(&revision.conditions, condition::SUCCEEDED) {
                states.installed = Some(revision);
            } else {
                states.rolling.push(revision);
            }
        }
        states
    }

    /// The newest revision of all.
    #[must_use]
    pub fn newest(&self) -> Option<&RevisionFacts> {
        match (self.rolling.last(), &self.installed) {
            (Some(rolling), Some(installed)) if installed.number > rolling.number => Some(installed),
            (Some(rolling), _) => Some(rolling),
            (None, installed) => installed.as_ref(),
        }
    }
}

/// What kind of failure stopped a pass; it decides the condition and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// May pass by itself (network, apiserver, a catalog that is not served yet): retry with backoff.
    Transient,
    /// Only a change of the extension, the catalogs or the cluster helps: wait for it, with a slow retry.
    NeedsChange,
    /// As `NeedsChange`, and the reference calls it terminal: `Progressing=False/Blocked`.
    Blocked,
    /// The inline configuration does not fit the bundle: `Progressing=False/InvalidConfiguration`.
    InvalidConfiguration,
}

/// A pass that stopped: the condition text and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Text for the `Progressing` condition.
    pub message: String,
    /// What follows from it.
    pub class: Class,
}

impl Failure {
    /// A failure of this class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { message: message.into(), class }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use olm_api::ConditionStatus;

    fn revision(number: i64, succeeded: bool) -> RevisionFacts {
        let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        let conditions = succeeded
            .then(|| Condition::new(condition::SUCCEEDED, ConditionStatus::True, "Succeeded", "", None, now))
            .into_iter()
            .collect();
        RevisionFacts { name: format!("x-{number}"), number, bundle: BundleFacts::default(), conditions }
    }

    #[test]
    fn the_highest_succeeded_revision_is_installed() {
        for (given, installed, rolling, newest) in [
            (vec![], None, vec![], None),
            (vec![(1, false)], None, vec![1], Some(1)),
            (vec![(2, false), (1, true)], Some(1), vec![2], Some(2)),
            (vec![(1, true), (2, true)], Some(2), vec![], Some(2)),
            (vec![(1, false), (2, true)], Some(2), vec![1], Some(2)),
        ] {
            let states = RevisionStates::split(given.iter().map(|(n, s)| revision(*n, *s)).collect());
            assert_eq!(states.installed.as_ref().map(|r| r.number), installed, "{given:?}");
            assert_eq!(states.rolling.iter().map(|r| r.number).collect::<Vec<_>>(), rolling, "{given:?}");
            assert_eq!(states.newest().map(|r| r.number), newest, "{given:?}");
        }
    }
}
