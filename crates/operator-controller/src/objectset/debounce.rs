//! Changes of a status that can wait: the message about an object that is not ready is overtaken by the next one's, and what a
//! predecessor reports of objects that its successor rolls out ends with the predecessor.
//!
//! Status, reason of the progress and generation are written immediately; a changed reason or message of `Available=False` during
//! the rollout is [held back](crate::debounce) and written if it still holds then. So is the availability of a revision that has
//! succeeded while a newer one rolls out.

use olm_api::condition::{self, Condition, ConditionStatus};
use olm_api::{ClusterObjectSetStatus, reason};

/// Whether the write of `after` over `before` can wait. `succession`: a newer revision rolls out.
pub(super) fn can_wait(
    before: &ClusterObjectSetStatus,
    after: &ClusterObjectSetStatus,
    succession: bool,
) -> bool {
    is_detail(before, after) || succession && is_availability(before, after)
}

fn is_detail(before: &ClusterObjectSetStatus, after: &ClusterObjectSetStatus) -> bool {
    let rolling = |status: &ClusterObjectSetStatus| {
        condition::find(&status.conditions, condition::PROGRESSING)
            .is_some_and(|found| found.status == ConditionStatus::True && found.reason == reason::ROLLING_OUT)
    };
    let stands = |condition: &Condition| {
        let available = condition.type_ == condition::AVAILABLE && condition.status == ConditionStatus::False;
        let reason = (!available).then(|| condition.reason.clone());
        (condition.type_.clone(), condition.status, reason, condition.observed_generation)
    };
    rolling(before)
        && rolling(after)
        && before.observed_phases == after.observed_phases
        && before.conditions.iter().map(stands).eq(after.conditions.iter().map(stands))
}

/// Do the two differ in no more than whether the objects of a revision that has succeeded are available?
fn is_availability(before: &ClusterObjectSetStatus, after: &ClusterObjectSetStatus) -> bool {
    let steady = |status: &ClusterObjectSetStatus| {
        condition::find(&status.conditions, condition::PROGRESSING).is_some_and(|found| {
            found.status == ConditionStatus::True
                && (found.reason == reason::ROLLING_OUT || found.reason == reason::SUCCEEDED)
        })
    };
    let stands = |condition: &Condition| {
        let words = condition.type_ == condition::AVAILABLE || condition.type_ == condition::PROGRESSING;
        let rest = (!words).then(|| (condition.status, condition.reason.clone()));
        (condition.type_.clone(), rest, condition.observed_generation)
    };
    condition::is_true(&before.conditions, condition::SUCCEEDED)
        && steady(before)
        && steady(after)
        && before.observed_phases == after.observed_phases
        && before.conditions.iter().map(stands).eq(after.conditions.iter().map(stands))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn status(progress: &str, available: (ConditionStatus, &str, &str)) -> ClusterObjectSetStatus {
        let made = |type_: &str, status, reason: &str, message: &str| {
            Condition::new(type_, status, reason, message, Some(1), Timestamp::UNIX_EPOCH)
        };
        ClusterObjectSetStatus {
            conditions: vec![
                made(condition::PROGRESSING, ConditionStatus::True, progress, "going"),
                made(condition::AVAILABLE, available.0, available.1, available.2),
            ],
            ..ClusterObjectSetStatus::default()
        }
    }

    #[test]
    fn debounce_holds_back_reasons_of_unavailability() {
        use ConditionStatus::{False, True, Unknown};
        let before = status(reason::ROLLING_OUT, (False, reason::ROLLING_OUT, "going"));
        for (case, after, want) in [
            ("other words", status(reason::ROLLING_OUT, (False, reason::PROBE_FAILURE, "0 of 1")), true),
            ("available", status(reason::ROLLING_OUT, (True, reason::PROBES_SUCCEEDED, "")), false),
            ("not known", status(reason::ROLLING_OUT, (Unknown, reason::ROLLING_OUT, "")), false),
            ("done", status(reason::SUCCEEDED, (False, reason::PROBE_FAILURE, "")), false),
            ("retrying", status(reason::RETRYING, (False, reason::PROBE_FAILURE, "")), false),
        ] {
            assert_eq!(is_detail(&before, &after), want, "{case}");
        }
        assert!(!is_detail(&status(reason::RETRYING, (False, "A", "")), &before));
        let mut more = before.clone();
        more.conditions.pop();
        assert!(!is_detail(&more, &before), "a condition is new");
    }

    #[test]
    fn debounce_holds_back_availability_of_a_predecessor() {
        use ConditionStatus::{False, True};
        let with = |status: ClusterObjectSetStatus, succeeded| {
            let mut status = status;
            let made = |type_: &str, status, reason: &str| {
                Condition::new(type_, status, reason, "", Some(1), Timestamp::UNIX_EPOCH)
            };
            status.conditions.push(made(condition::SUCCEEDED, succeeded, reason::SUCCEEDED));
            status
        };
        let before = with(status(reason::SUCCEEDED, (True, reason::PROBES_SUCCEEDED, "")), True);
        let after = with(status(reason::ROLLING_OUT, (False, reason::PROBE_FAILURE, "0 of 1")), True);
        let hold = can_wait;
        assert!(hold(&before, &after, true) && hold(&after, &before, true));
        assert!(!hold(&before, &after, false), "it has no successor");
        let failed = with(status(reason::RETRYING, (False, reason::PROBE_FAILURE, "0 of 1")), True);
        assert!(!hold(&before, &failed, true) && !hold(&failed, &before, true));
        let archived = with(status(reason::ARCHIVED, (False, reason::ARCHIVED, "")), True);
        assert!(!hold(&before, &archived, true), "it is archived");
        let young = with(status(reason::SUCCEEDED, (True, reason::PROBES_SUCCEEDED, "")), False);
        assert!(!hold(&young, &before, true), "that it has succeeded is written");
    }
}
