//! Which news of a rollout can wait: the words about an object that is not ready are overtaken by the next one's, and what a
//! predecessor says of objects that its successor rolls out ends with the predecessor.
//!
//! What a condition says at all (status, reason of the progress, generation) is written at once; a changed reason or message of
//! `Available=False` while the rollout goes on is held back for a moment and written if it still counts then. So is all that a
//! revision which has succeeded says of its availability while a newer one rolls out.

use std::time::{Duration, Instant};

use olm_api::condition::{self, Condition, ConditionStatus};
use olm_api::{ClusterObjectSetStatus, reason};

/// How long a detail may be held back.
pub(super) const HELD: Duration = Duration::from_secs(2);

/// How long the write of `after` over `before` is to wait; `None` when it is due. `held` says since when one waits, `succession`
/// that a newer revision rolls out.
pub(super) fn hold(
    held: &mut Option<Instant>,
    before: Option<&ClusterObjectSetStatus>,
    after: &ClusterObjectSetStatus,
    succession: bool,
    now: Instant,
) -> Option<Duration> {
    let waits = |before| is_detail(before, after) || succession && is_last_word(before, after);
    if !before.is_some_and(waits) {
        *held = None;
        return None;
    }
    let left = HELD.saturating_sub(now.duration_since(*held.get_or_insert(now)));
    if left.is_zero() {
        *held = None;
        return None;
    }
    Some(left)
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
fn is_last_word(before: &ClusterObjectSetStatus, after: &ClusterObjectSetStatus) -> bool {
    let calm = |status: &ClusterObjectSetStatus| {
        condition::find(&status.conditions, condition::PROGRESSING).is_some_and(|found| {
            found.status == ConditionStatus::True
                && (found.reason == reason::ROLLING_OUT || found.reason == reason::SUCCEEDED)
        })
    };
    let stands = |condition: &Condition| {
        let words = condition.type_ == condition::AVAILABLE || condition.type_ == condition::PROGRESSING;
        let said = (!words).then(|| (condition.status, condition.reason.clone()));
        (condition.type_.clone(), said, condition.observed_generation)
    };
    condition::is_true(&before.conditions, condition::SUCCEEDED)
        && calm(before)
        && calm(after)
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
    fn only_why_it_is_not_available_yet_waits() {
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
    fn only_a_predecessor_that_has_succeeded_keeps_its_availability_to_itself() {
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
        let now = Instant::now();
        let hold = |before: &ClusterObjectSetStatus, after: &ClusterObjectSetStatus, succession| {
            hold(&mut None, Some(before), after, succession, now).is_some()
        };
        assert!(hold(&before, &after, true) && hold(&after, &before, true));
        assert!(!hold(&before, &after, false), "nobody comes after it");
        let failed = with(status(reason::RETRYING, (False, reason::PROBE_FAILURE, "0 of 1")), True);
        assert!(!hold(&before, &failed, true) && !hold(&failed, &before, true));
        let archived = with(status(reason::ARCHIVED, (False, reason::ARCHIVED, "")), True);
        assert!(!hold(&before, &archived, true), "it is archived");
        let young = with(status(reason::SUCCEEDED, (True, reason::PROBES_SUCCEEDED, "")), False);
        assert!(!hold(&young, &before, true), "that it has succeeded is written");
    }

    #[test]
    fn a_detail_is_written_in_the_end() {
        let say =
            |text: &str| status(reason::ROLLING_OUT, (ConditionStatus::False, reason::PROBE_FAILURE, text));
        let (start, mut held) = (Instant::now(), None);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(hold(&mut held, None, &say("a"), false, start), None);
        assert_eq!(hold(&mut held, Some(&say("a")), &say("b"), false, start), Some(HELD));
        assert_eq!(
            hold(&mut held, Some(&say("a")), &say("c"), false, at(1)),
            Some(HELD - Duration::from_secs(1))
        );
        assert_eq!(hold(&mut held, Some(&say("a")), &say("c"), false, at(2)), None);
        assert_eq!(hold(&mut held, Some(&say("a")), &say("c"), false, at(3)), Some(HELD));
    }
}
