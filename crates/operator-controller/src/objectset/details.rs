//! Which news of a rollout can wait: the words about an object that is not ready are overtaken by the next one's.
//!
//! What a condition says at all (status, reason of the progress, generation) is written at once; a changed reason or message of
//! `Available=False` while the rollout goes on is held back for a moment and written if it still counts then.

use std::time::{Duration, Instant};

use olm_api::condition::{self, Condition, ConditionStatus};
use olm_api::{ClusterObjectSetStatus, reason};

/// How long a detail may be held back.
pub(super) const HELD: Duration = Duration::from_secs(2);

/// How long the write of `after` over `before` is to wait; `None` when it is due. `held` says since when one waits.
pub(super) fn hold(
    held: &mut Option<Instant>,
    before: Option<&ClusterObjectSetStatus>,
    after: &ClusterObjectSetStatus,
    now: Instant,
) -> Option<Duration> {
    if !before.is_some_and(|before| is_detail(before, after)) {
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
    fn a_detail_is_written_in_the_end() {
        let say =
            |text: &str| status(reason::ROLLING_OUT, (ConditionStatus::False, reason::PROBE_FAILURE, text));
        let (start, mut held) = (Instant::now(), None);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(hold(&mut held, None, &say("a"), start), None);
        assert_eq!(hold(&mut held, Some(&say("a")), &say("b"), start), Some(HELD));
        assert_eq!(hold(&mut held, Some(&say("a")), &say("c"), at(1)), Some(HELD - Duration::from_secs(1)));
        assert_eq!(hold(&mut held, Some(&say("a")), &say("c"), at(2)), None);
        assert_eq!(hold(&mut held, Some(&say("a")), &say("c"), at(3)), Some(HELD));
    }
}
