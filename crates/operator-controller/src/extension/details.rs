//! Which news of a rollout can wait: while it goes on, what is said of its single steps is overtaken within moments.
//!
//! A change of any condition's status or reason, of the installed bundle or of the revisions is written at once. Only of a
//! rollout that goes on these are held back for [`HELD`] and written if they still count then:
//!
//! - its words, and what its revisions say meanwhile;
//! - whether it is available: objects that the new revision has just changed are not ready for a moment;
//! - that nothing is installed because the predecessor is archived: the new revision says a moment later that it has succeeded
//!   (revisions §10: the predecessor is archived first).
//!
//! So an install and an upgrade are two writes of the status each, instead of one for each step of each object.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use olm_api::{ClusterExtensionStatus, condition, reason};
use parking_lot::Mutex;

/// How long a detail may be held back.
pub const HELD: Duration = Duration::from_secs(2);

/// Since when details of which extension (by UID) are held back.
#[derive(Debug, Default)]
pub struct Details(Mutex<HashMap<String, Instant>>);

impl Details {
    /// How long the write of `after` over `before` is to wait; `None` when it is due, or there is nothing to write.
    pub fn hold(
        &self,
        uid: &str,
        before: Option<&ClusterExtensionStatus>,
        after: &ClusterExtensionStatus,
        now: Instant,
    ) -> Option<Duration> {
        let mut held = self.0.lock();
        let only_detail = before.is_some_and(|before| before != after && is_detail(before, after));
        if !only_detail {
            held.remove(uid);
            return None;
        }
        let since = *held.entry(uid.to_owned()).or_insert(now);
        let left = HELD.saturating_sub(now.duration_since(since));
        if left.is_zero() {
            held.remove(uid);
            return None;
        }
        Some(left)
    }

    /// The extension is gone.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

/// Whether the two differ in no more than what is said of a rollout that went on before and goes on now.
fn is_detail(before: &ClusterExtensionStatus, after: &ClusterExtensionStatus) -> bool {
    let rolling = |status: &ClusterExtensionStatus| {
        condition::find(&status.conditions, condition::PROGRESSING)
            .is_some_and(|found| found.status.as_str() == "True" && found.reason == reason::ROLLING_OUT)
    };
    // the predecessor is archived, and the newest revision is still the same
    let handed_over = before.install.is_some()
        && after.install.is_none()
        && after.active_revisions.len() < before.active_revisions.len()
        && newest(before).is_some()
        && newest(before) == newest(after);
    let waits = |type_: &str| {
        type_ == condition::AVAILABLE
            || handed_over && matches!(type_, condition::INSTALLED | condition::BUNDLE_DEPRECATED)
    };
    let stands = |status: &ClusterExtensionStatus| -> Vec<_> {
        let all = status.conditions.iter().filter(|condition| !waits(&condition.type_));
        all.map(|c| (c.type_.clone(), c.status.as_str().to_owned(), c.reason.clone(), c.observed_generation))
            .collect()
    };
    let revisions = |status: &ClusterExtensionStatus| -> Vec<String> {
        status.active_revisions.iter().map(|revision| revision.name.clone()).collect()
    };
    rolling(before)
        && rolling(after)
        && before.webhook_certificates == after.webhook_certificates
        && stands(before) == stands(after)
        && (handed_over || before.install == after.install && revisions(before) == revisions(after))
}

fn newest(status: &ClusterExtensionStatus) -> Option<&str> {
    status.active_revisions.last().map(|revision| revision.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;
    use olm_api::cluster_extension::{BundleMetadata, InstallStatus, RevisionStatus};
    use olm_api::{Condition, ConditionStatus};

    fn condition(type_: &str, status: ConditionStatus, reason: &str, message: &str) -> Condition {
        Condition::new(type_, status, reason, message, Some(1), Timestamp::UNIX_EPOCH)
    }

    fn rolling(message: &str, step: &str) -> ClusterExtensionStatus {
        use ConditionStatus::{False, True};
        ClusterExtensionStatus {
            conditions: vec![
                condition(condition::PROGRESSING, True, reason::ROLLING_OUT, message),
                condition(condition::INSTALLED, False, reason::ABSENT, "none"),
            ],
            active_revisions: vec![RevisionStatus {
                name: "a-1".to_owned(),
                conditions: vec![condition(condition::AVAILABLE, False, reason::PROBE_FAILURE, step)],
            }],
            ..ClusterExtensionStatus::default()
        }
    }

    #[test]
    fn only_the_words_of_a_rollout_wait() {
        use ConditionStatus::{False, True};
        let before = rolling("going", "0 of 3");
        let with = |change: &dyn Fn(&mut ClusterExtensionStatus)| {
            let mut after = before.clone();
            change(&mut after);
            is_detail(&before, &after)
        };
        assert!(is_detail(&before, &rolling("still going", "1 of 3")));
        assert!(with(&|after| after.active_revisions[0].conditions.clear()));
        assert!(!with(&|after| after.conditions[1].status = True));
        assert!(!with(&|after| after.conditions[1].reason = reason::FAILED.to_owned()));
        assert!(!with(&|after| after.conditions[0].reason = reason::RETRYING.to_owned()));
        assert!(!with(&|after| after.conditions[1].observed_generation = Some(2)));
        assert!(!with(&|after| drop(after.conditions.pop())));
        assert!(!with(&|after| after.active_revisions.clear()));
        assert!(!with(&|after| {
            let bundle = BundleMetadata { name: "b".to_owned(), version: "1.0.0".to_owned(), release: None };
            after.install = Some(InstallStatus { bundle });
        }));
        let mut done = before.clone();
        done.conditions[0] = condition(condition::PROGRESSING, True, reason::SUCCEEDED, "done");
        assert!(!is_detail(&done, &done) && !is_detail(&before, &done) && !is_detail(&done, &before));
        let mut blocked = before.clone();
        blocked.conditions[0] = condition(condition::PROGRESSING, False, reason::BLOCKED, "no");
        assert!(!is_detail(&before, &blocked));
    }

    #[test]
    fn the_moments_of_an_upgrade_wait_and_nothing_else_that_is_like_them() {
        use ConditionStatus::{False, True, Unknown};
        let installed = |version: &str| {
            let name = format!("b.v{version}");
            Some(InstallStatus {
                bundle: BundleMetadata { name, version: version.to_owned(), release: None },
            })
        };
        let revision = |name: &str| RevisionStatus { name: name.to_owned(), conditions: vec![] };
        let upgrade = ClusterExtensionStatus {
            conditions: vec![
                condition(condition::PROGRESSING, True, reason::ROLLING_OUT, "going"),
                condition(condition::INSTALLED, True, reason::SUCCEEDED, "installed"),
                condition(condition::BUNDLE_DEPRECATED, False, reason::NOT_DEPRECATED, ""),
                condition(condition::AVAILABLE, True, reason::PROBES_SUCCEEDED, ""),
            ],
            active_revisions: vec![revision("a-1"), revision("a-2")],
            install: installed("1.0.0"),
            ..ClusterExtensionStatus::default()
        };
        let absent = |after: &mut ClusterExtensionStatus| {
            after.install = None;
            after.conditions[1] = condition(condition::INSTALLED, False, reason::ABSENT, "none");
            after.conditions[2] = condition(condition::BUNDLE_DEPRECATED, Unknown, reason::ABSENT, "none");
            after.conditions.pop();
        };
        type Change<'a> = &'a dyn Fn(&mut ClusterExtensionStatus);
        let cases: [(&str, Change, bool); 8] = [
            (
                "not available for a moment",
                &|after| {
                    after.conditions[3] =
                        condition(condition::AVAILABLE, False, reason::PROBE_FAILURE, "0 of 1");
                },
                true,
            ),
            (
                "the predecessor is archived",
                &|after| (absent(after), after.active_revisions.remove(0)).0,
                true,
            ),
            ("nothing is installed any more, though both are there", &|after| absent(after), false),
            (
                "the newest is gone",
                &|after| {
                    absent(after);
                    after.active_revisions.pop();
                },
                false,
            ),
            (
                "all are gone",
                &|after| {
                    absent(after);
                    after.active_revisions.clear();
                },
                false,
            ),
            ("another is installed", &|after| after.install = installed("2.0.0"), false),
            ("a revision is new", &|after| after.active_revisions.push(revision("a-3")), false),
            (
                "deprecated meanwhile",
                &|after| {
                    after.conditions[2] =
                        condition(condition::BUNDLE_DEPRECATED, True, reason::DEPRECATED, "old");
                },
                false,
            ),
        ];
        for (case, change, want) in cases {
            let mut after = upgrade.clone();
            change(&mut after);
            assert_eq!(is_detail(&upgrade, &after), want, "{case}");
        }
    }

    #[test]
    fn a_detail_is_written_in_the_end() {
        let details = Details::default();
        let (before, start) = (rolling("going", "0 of 3"), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(details.hold("u", None, &before, start), None, "the first status is never held back");
        let step = rolling("going", "1 of 3");
        assert_eq!(details.hold("u", Some(&before), &step, start), Some(HELD));
        let next = rolling("going", "2 of 3");
        assert_eq!(details.hold("u", Some(&before), &next, at(1)), Some(HELD - Duration::from_secs(1)));
        assert_eq!(details.hold("u", Some(&before), &next, at(2)), None, "due");
        assert_eq!(details.hold("u", Some(&before), &next, at(3)), Some(HELD), "and counted anew");
        assert_eq!(details.hold("u", Some(&next), &next, at(3)), None, "nothing to write");
        assert_eq!(details.hold("u", Some(&before), &step, at(9)), Some(HELD));
    }
}
