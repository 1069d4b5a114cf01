//! The time of the next pass: deadline and backoff, as plain arithmetic. The caller brings the clock.
//!
//! Rule: revisions §9.4 and §9.5. An error that only the user can fix is retried ever more slowly, up to
//! [`MAX_RETRY_DELAY`]; the change that fixes it is watched for.

use std::time::Duration;

/// First retry after an error.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Slowest retry after many errors.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// How often an unfinished teardown is checked, beside the events of its objects.
pub const TEARDOWN_INTERVAL: Duration = Duration::from_secs(5);

/// The delay after the `failures`-th error in a row (from 1): doubles each time.
pub fn backoff(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1).min(31)).unwrap_or(u32::MAX);
    MIN_RETRY_DELAY.saturating_mul(factor).min(MAX_RETRY_DELAY)
}

/// How a revision stands towards its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    None,
    /// It is ahead, so far.
    Ahead(Duration),
    Passed {
        /// The time allowed, minutes.
        minutes: u32,
    },
}

/// How far the deadline is: so many times `minute`. `age` is the time since the revision was created; `inactive` when it
/// succeeded once, is archived or being deleted.
pub fn deadline(minutes: Option<i64>, minute: Duration, age: Duration, inactive: bool) -> Deadline {
    let Some(minutes) =
        minutes.and_then(|minutes| u32::try_from(minutes).ok()).filter(|&minutes| minutes > 0)
    else {
        return Deadline::None;
    };
    if inactive {
        return Deadline::None;
    }
    match minute.saturating_mul(minutes).checked_sub(age) {
        Some(left) if !left.is_zero() => Deadline::Ahead(left),
        _ => Deadline::Passed { minutes },
    }
}

impl Deadline {
    /// The time until a deadline that is ahead.
    pub fn left(self) -> Option<Duration> {
        if let Self::Ahead(left) = self { Some(left) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_backoff_doubles_up_to_the_limit() {
        for (failures, millis) in
            [(0, 100), (1, 100), (2, 200), (5, 1600), (10, 51_200), (11, 60_000), (u32::MAX, 60_000)]
        {
            assert_eq!(backoff(failures), Duration::from_millis(millis), "{failures}");
        }
    }

    #[test]
    fn schedule_deadlines() {
        let secs = Duration::from_secs;
        for (minutes, age, inactive, want) in [
            (None, 10, false, Deadline::None),
            (Some(0), 10, false, Deadline::None),
            (Some(-1), 10, false, Deadline::None),
            (Some(10), 10, true, Deadline::None),
            (Some(10), 590, false, Deadline::Ahead(secs(10))),
            (Some(10), 600, false, Deadline::Passed { minutes: 10 }),
            (Some(10), 6000, false, Deadline::Passed { minutes: 10 }),
        ] {
            assert_eq!(deadline(minutes, secs(60), secs(age), inactive), want);
        }
        assert_eq!(Deadline::Ahead(secs(10)).left(), Some(secs(10)));
        assert_eq!(Deadline::Passed { minutes: 10 }.left(), None);
        assert_eq!(Deadline::None.left(), None);
    }
}
