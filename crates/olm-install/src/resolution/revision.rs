//! The revisions of an extension: their bundles and states.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterObjectSet, Condition, annotations, condition};

/// The bundle of a revision, as recorded in its annotations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BundleFacts {
    /// Bundle name, for example `demo.v1.0.0`.
    pub name: String,
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

#[derive(Debug, Clone, PartialEq)]
pub struct RevisionFacts {
    /// Name of the ClusterObjectSet.
    pub name: String,
    pub number: i64,
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

/// Revisions that are neither archived nor being deleted, by their state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RevisionStates {
    /// The highest-numbered revision that has succeeded.
    pub installed: Option<RevisionFacts>,
    /// All others, ascending by number.
    pub rolling: Vec<RevisionFacts>,
    /// The newest archived revision that has succeeded, while its successor has not: for a moment of an upgrade nothing else shows what
    /// is upgraded.
    pub replaced: Option<RevisionFacts>,
    /// The newest revision that is being deleted, while none is active: a user deleted it.
    pub deleted: Option<RevisionFacts>,
}

impl RevisionStates {
    /// Splits revisions (any order). Rule: operator-controller §3.4, the highest-numbered succeeded one is installed.
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

    /// The newest rolling revision, if it is newer than the installed one.
    #[must_use]
    pub fn successor(&self) -> Option<&RevisionFacts> {
        let number = self.installed.as_ref().map_or(i64::MIN, |installed| installed.number);
        self.rolling.last().filter(|rolling| rolling.number > number)
    }

    /// What an upgrade starts from.
    #[must_use]
    pub fn upgraded(&self) -> Option<&RevisionFacts> {
        self.installed.as_ref().or(self.replaced.as_ref())
    }

    /// The newest revision of all.
    #[must_use]
    pub fn newest(&self) -> Option<&RevisionFacts> {
        self.successor().or(self.installed.as_ref())
    }
}

/// Facts of a ClusterObjectSet.
#[must_use]
pub fn facts(revision: &ClusterObjectSet) -> RevisionFacts {
    RevisionFacts {
        name: revision.metadata.name.clone().unwrap_or_default(),
        number: revision.spec.revision,
        bundle: bundle(revision.metadata.annotations.as_ref()),
        conditions: revision.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default(),
    }
}

/// Whether the revision still counts: neither archived nor being deleted.
#[must_use]
pub fn is_active(revision: &ClusterObjectSet) -> bool {
    revision.spec.lifecycle_state == LifecycleState::Active && revision.metadata.deletion_timestamp.is_none()
}

/// Whether the extension with this UID owns the revision (GC orphaning and foreign objects with our label do not count).
#[must_use]
pub fn is_owned_by(revision: &ClusterObjectSet, uid: &str) -> bool {
    revision.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// The revision with the highest number, in any state: the one that a plan keeps, updates or follows.
#[must_use]
pub fn newest<R: Borrow<ClusterObjectSet>>(revisions: &[R]) -> Option<&R> {
    revisions.iter().max_by_key(|set| Borrow::<ClusterObjectSet>::borrow(*set).spec.revision)
}

/// Whether the revision is, or was, installed.
#[must_use]
pub fn has_succeeded(set: &ClusterObjectSet) -> bool {
    set.status.as_ref().is_some_and(|status| condition::is_true(&status.conditions, condition::SUCCEEDED))
}

/// Numbers and states of all revisions of an extension.
#[must_use]
pub fn history(revisions: &[Arc<ClusterObjectSet>]) -> Vec<olm_rollout::RevisionFacts> {
    let facts = revisions.iter().map(|set| olm_rollout::RevisionFacts {
        name: set.metadata.name.clone().unwrap_or_default(),
        number: set.spec.revision,
        archived: set.spec.lifecycle_state == LifecycleState::Archived,
        succeeded: has_succeeded(set),
    });
    facts.collect()
}

/// Installed and rolling revisions among all revisions of one extension.
#[must_use]
pub fn states<'a>(revisions: impl IntoIterator<Item = &'a ClusterObjectSet>) -> RevisionStates {
    let (active, others): (Vec<_>, Vec<_>) = revisions.into_iter().partition(|revision| is_active(revision));
    let mut states = RevisionStates::split(active.into_iter().map(facts).collect());
    if states.installed.is_none() && !states.rolling.is_empty() {
        let stays = |set: &&ClusterObjectSet| set.metadata.deletion_timestamp.is_none() && has_succeeded(set);
        let newest = others.iter().copied().filter(stays).max_by_key(|set| set.spec.revision);
        states.replaced = newest.map(facts);
    }
    if states.newest().is_none() {
        let deleted = others.into_iter().filter(|set| set.metadata.deletion_timestamp.is_some());
        states.deleted = deleted.max_by_key(|set| set.spec.revision).map(facts);
    }
    states
}

fn bundle(found: Option<&BTreeMap<String, String>>) -> BundleFacts {
    let text = |key: &str| found.and_then(|all| all.get(key)).cloned();
    BundleFacts {
        name: text(annotations::BUNDLE_NAME).unwrap_or_default(),
        package: text(annotations::PACKAGE_NAME).unwrap_or_default(),
        version: text(annotations::BUNDLE_VERSION).unwrap_or_default(),
        release: text(annotations::BUNDLE_RELEASE),
        reference: text(annotations::BUNDLE_REFERENCE).unwrap_or_default(),
    }
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

    /// Else the upgrade would be a first install for a moment, and skip what the catalog's edges ask for.
    #[test]
    fn revision_states_have_what_upgrades_replace_and_deletes() {
        let set = |number: i64, state: &str, succeeded: bool| -> ClusterObjectSet {
            let status = if succeeded { "True" } else { "False" };
            let (state, deleted) = match state {
                "Deleted" => ("Active", Some("2030-01-01T00:00:00Z")),
                state => (state, None),
            };
            serde_json::from_value(serde_json::json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
                "metadata": {"name": format!("x-{number}"), "deletionTimestamp": deleted},
                "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
                "status": {"conditions": [{"type": "Succeeded", "status": status, "reason": "Succeeded", "message": "",
                    "lastTransitionTime": "2030-01-01T00:00:00Z"}]},
            }))
            .unwrap()
        };
        for (sets, installed, upgraded, deleted) in [
            (vec![set(1, "Archived", true), set(2, "Active", false)], None, Some(1), None),
            (
                vec![set(1, "Archived", true), set(2, "Archived", true), set(3, "Active", false)],
                None,
                Some(2),
                None,
            ),
            (vec![set(1, "Archived", false), set(2, "Active", false)], None, None, None),
            (vec![set(1, "Archived", true), set(2, "Active", true)], Some(2), Some(2), None),
            (vec![set(1, "Archived", true)], None, None, None),
            (vec![set(1, "Archived", false)], None, None, None),
            (vec![set(1, "Archived", true), set(2, "Deleted", true)], None, None, Some(2)),
            (vec![set(1, "Deleted", true)], None, None, Some(1)),
            (vec![set(1, "Deleted", true), set(2, "Active", false)], None, None, None),
        ] {
            let states = states(&sets);
            assert_eq!(states.installed.as_ref().map(|it| it.number), installed);
            assert_eq!(states.upgraded().map(|it| it.number), upgraded);
            assert_eq!(states.deleted.as_ref().map(|it| it.number), deleted);
        }
    }

    #[test]
    fn revision_states_have_the_highest_succeeded_installed() {
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
