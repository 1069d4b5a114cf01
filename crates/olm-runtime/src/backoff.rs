//! The wait before an object is reconciled again: 5 ms, doubled for each failure in a row, at most 45 s to a minute; after a pass that
//! panicked: 1 s, doubled, at most 10 s; while it is not finished and no event comes: 45 s to a minute; and before a watch is begun
//! again: half a second, doubled, at most five seconds. What asks a registry waits for up to 1,000 s.
//!
//! Rule for objects: operator-controller §3.1, whose waits go up to 1,000 s: an object that failed while the apiserver refused would
//! be left alone for a quarter of an hour after it answers again. For watches the client's own default goes up to 30 s and stays there for two minutes:
//! an apiserver that comes back refuses for some seconds (rights are not loaded, caches are not filled), and the controller would be
//! blind for a minute after it.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use tokio::time::Instant;

/// The wait after the first failure.
pub const BASE: Duration = Duration::from_millis(5);
/// The longest wait after a failure.
pub const CAP: Duration = Duration::from_secs(1000);

/// The wait of an object after this many earlier failures.
pub fn of_object(earlier_failures: u32) -> Duration {
    delay(earlier_failures).min(unfinished(UNFINISHED))
}

/// The wait after this many earlier failures, up to [`CAP`].
pub fn delay(earlier_failures: u32) -> Duration {
    // 5 ms << 18 is above the cap already
    BASE.saturating_mul(1 << earlier_failures.min(18)).min(CAP)
}

const PANIC_BASE: Duration = Duration::from_secs(1);
const PANIC_CAP: Duration = Duration::from_secs(10);

/// The wait after a pass that panicked, and this many earlier failures.
pub fn after_panic(earlier_failures: u32) -> Duration {
    PANIC_BASE.saturating_mul(1 << earlier_failures.min(4)).min(PANIC_CAP)
}

/// The longest wait for an event of an object that is not finished.
pub const UNFINISHED: Duration = Duration::from_secs(60);

/// The wait for an event of an object that is not finished: `longest`, shortened by chance so that objects do not stay together.
pub fn unfinished(longest: Duration) -> Duration {
    longest.mul_f64(1.0 - rand::random::<f64>() / 4.0)
}

/// The wait before a watch is begun again for the first time.
const WATCH_BASE: Duration = Duration::from_millis(500);
/// The longest.
const WATCH_CAP: Duration = Duration::from_secs(5);
/// A watch that has run for so long begins from the first wait again.
pub(crate) const WATCH_GOOD: Duration = Duration::from_secs(30);

/// The waits of one watch; give it to `WatchStreamExt::backoff`.
pub fn of_watch() -> WatchBackoff {
    WatchBackoff::default()
}

/// Half a second, doubled up to five, each shortened by up to a half by chance so that watches that broke together are not begun together.
#[derive(Debug, Default)]
pub struct WatchBackoff {
    earlier: u32,
    last: Option<Instant>,
}

impl WatchBackoff {
    /// The waits since the last watch that has run for a while.
    pub(crate) fn earlier(&self) -> u32 {
        self.earlier
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.last.is_some_and(|last| last.elapsed() >= WATCH_GOOD) {
            self.earlier = 0;
        }
        self.last = Some(Instant::now());
        let wait = WATCH_BASE.saturating_mul(1 << self.earlier.min(4)).min(WATCH_CAP);
        self.earlier = self.earlier.saturating_add(1);
        Some(wait.mul_f64(0.5 + rand::random::<f64>() / 2.0))
    }
}

impl Backoff for WatchBackoff {
    /// Nothing: the client calls it for each event, and a watch that begins is an event before its first request is answered. Time alone
    /// shows that a watch works.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_cap() {
        let waits: Vec<u128> = (0..20).map(|earlier| delay(earlier).as_millis()).collect();
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[17], 655_360);
        assert_eq!(waits[18..], [1_000_000, 1_000_000]);
        assert_eq!(delay(u32::MAX), CAP);
    }

    #[test]
    fn backoff_of_objects_is_at_most_a_minute() {
        assert_eq!([of_object(0), of_object(1)], [5, 10].map(Duration::from_millis));
        assert!((14..40).all(|earlier| (UNFINISHED / 2..=UNFINISHED).contains(&of_object(earlier))));
    }

    #[test]
    fn backoff_after_panics_is_seconds() {
        let waits: Vec<u64> = (0..6).map(|earlier| after_panic(earlier).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        assert_eq!(after_panic(u32::MAX), PANIC_CAP);
    }

    #[test]
    fn backoff_of_unfinished_objects_is_random_up_to_a_minute() {
        let waits: std::collections::BTreeSet<Duration> = (0..20).map(|_| unfinished(UNFINISHED)).collect();
        assert!(waits.len() > 1 && waits.iter().all(|wait| *wait <= UNFINISHED && *wait > UNFINISHED / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn backoff_of_watches_grows_until_one_has_run() {
        let mut waits = of_watch();
        let most = [500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000].map(Duration::from_millis);
        for most in most {
            waits.reset();
            let wait = waits.next().unwrap();
            assert!((most / 2..=most).contains(&wait), "{wait:?} of {most:?}");
            tokio::time::advance(wait).await;
        }
        tokio::time::advance(WATCH_GOOD).await;
        assert!(waits.next().unwrap() <= WATCH_BASE);
        let later = WatchBackoff { earlier: u32::MAX, last: None }.next();
        assert!(later.unwrap() <= WATCH_CAP, "the count does not overflow");
    }
}
