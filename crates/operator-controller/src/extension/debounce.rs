//! Changes of a status that can wait: during a rollout, messages about single steps are overtaken within moments.
//!
//! A change of any condition's status or reason, of the installed bundle or of the revisions is written immediately. Only during a
//! rollout these are [held back](crate::debounce) and written if they still hold then:
//!
//! - messages, and the conditions of its revisions;
//! - whether it is available: objects that the new revision has just changed are not ready for a moment;
//! - that nothing is installed, and so not deprecated, because the predecessor is archived: a moment later the new revision reports
//!   that it has succeeded (revisions §10: the predecessor is archived first).
//!
//! So an install and an upgrade are two writes of the status each, instead of one for each step of each object. Of an uninstall the first
//! report is written immediately, and everything after it can wait.

use std::time::Duration;

use olm_api::condition::{self, Debounce};
use olm_api::{ClusterExtensionStatus, reason};

/// How long later reports of an uninstall may be held back: most are over by then.
pub(super) const UNINSTALL: Duration = Duration::from_secs(10);

/// Whether the write of `after` over `before` can wait.
pub(super) fn can_wait(
    before: &ClusterExtensionStatus,
    after: &ClusterExtensionStatus,
    is_uninstalling: bool,
) -> bool {
    before != after && (is_uninstalling && is_rolling_out(before) || is_detail(before, after))
}

fn is_rolling_out(status: &ClusterExtensionStatus) -> bool {
    condition::find(&status.conditions, condition::PROGRESSING)
        .is_some_and(|found| found.status.as_str() == "True" && found.reason == reason::ROLLING_OUT)
}

/// Whether the two differ in no more than the details of a rollout that lasts.
fn is_detail(before: &ClusterExtensionStatus, after: &ClusterExtensionStatus) -> bool {
    // the predecessor is archived, and the newest revision is still the same
    let handed_over = before.install.is_some()
        && after.install.is_none()
        && after.active_revisions.len() < before.active_revisions.len()
        && newest(before).is_some()
        && newest(before) == newest(after);
    let waits = |type_: &str| match condition::spec(condition::EXTENSION, type_).map(|spec| spec.debounce) {
        Some(Debounce::WhileRollingOut) => true,
        Some(Debounce::WhileSucceeding) => handed_over,
        Some(Debounce::Never) | None => false,
    };
    let stands = |status: &ClusterExtensionStatus| -> Vec<_> {
        let all = status.conditions.iter().filter(|condition| !waits(&condition.type_));
        all.map(|c| (c.type_.clone(), c.status.as_str().to_owned(), c.reason.clone(), c.observed_generation))
            .collect()
    };
    let revisions = |status: &ClusterExtensionStatus| -> Vec<String> {
        status.active_revisions.iter().map(|revision| revision.name.clone()).collect()
    };
    is_rolling_out(before)
        && is_rolling_out(after)
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
    fn debounce_holds_back_messages_of_a_rollout() {
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
    fn debounce_writes_the_first_report_of_an_uninstall() {
        let (first, mut next) = (rolling("waiting for a-1, a-2", ""), rolling("waiting for a-2", ""));
        next.active_revisions.clear();
        let mut installed = first.clone();
        installed.conditions[0] =
            condition(condition::PROGRESSING, ConditionStatus::True, reason::SUCCEEDED, "done");
        assert!(!can_wait(&installed, &first, true));
        assert!(can_wait(&first, &next, true) && !can_wait(&first, &next, false));
        assert!(!can_wait(&next, &next, true), "nothing to write");
    }

    #[test]
    fn debounce_holds_back_moments_of_an_upgrade() {
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
                condition(condition::BUNDLE_DEPRECATED, True, reason::DEPRECATED, "old"),
                condition(condition::DEPRECATED, True, reason::DEPRECATED, "old"),
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
            after.conditions[3] = condition(condition::DEPRECATED, False, reason::NOT_DEPRECATED, "");
            after.conditions.pop();
        };
        type Change<'a> = &'a dyn Fn(&mut ClusterExtensionStatus);
        #[rustfmt::skip]
        let cases: [(&str, Change, bool); 8] = [
            ("not available for a moment",
                &|after| { after.conditions[4] = condition(condition::AVAILABLE, False, reason::PROBE_FAILURE, "0 of 1"); }, true),
            ("the predecessor is archived", &|after| (absent(after), after.active_revisions.remove(0)).0, true),
            ("nothing is installed any more, though both are there", &|after| absent(after), false),
            ("the newest is gone", &|after| { absent(after); after.active_revisions.pop(); }, false),
            ("all are gone", &|after| { absent(after); after.active_revisions.clear(); }, false),
            ("another is installed", &|after| after.install = installed("2.0.0"), false),
            ("a revision is new", &|after| after.active_revisions.push(revision("a-3")), false),
            ("not deprecated any more",
                &|after| { after.conditions[2] = condition(condition::BUNDLE_DEPRECATED, False, reason::NOT_DEPRECATED, ""); }, false),
        ];
        for (case, change, want) in cases {
            let mut after = upgrade.clone();
            change(&mut after);
            assert_eq!(is_detail(&upgrade, &after), want, "{case}");
        }
    }
}
