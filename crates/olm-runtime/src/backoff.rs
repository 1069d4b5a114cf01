//! How long to wait before an object is tried again: 5 ms, doubled for each failure in a row, at most 1,000 s.
//!
//! Rule: operator-controller §3.1.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The wait after the first failure.
pub const BASE: Duration = Duration::from_millis(5);
/// The longest wait.
pub const CAP: Duration = Duration::from_secs(1000);

/// The wait after this many earlier failures.
pub fn delay(earlier_failures: u32) -> Duration {
    // 5 ms << 18 is above the cap already
    BASE.saturating_mul(1 << earlier_failures.min(18)).min(CAP)
}

/// Counts failures in a row for each object. One entry for an object that fails, none for the others: memory is bounded by the
/// objects there are, if [`Backoff::forget`] is called on success and when the object is gone.
#[derive(Debug, Default)]
pub struct Backoff<K> {
    failures: Mutex<HashMap<K, u32>>,
}

impl<K: Eq + Hash> Backoff<K> {
    /// Nothing has failed yet.
    pub fn new() -> Self {
        Self { failures: Mutex::new(HashMap::new()) }
    }

    /// Notes a failure and says how long to wait.
    pub fn failed(&self, key: K) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key).or_insert(0);
        let wait = delay(*count);
        *count = count.saturating_add(1);
        wait
    }

    /// Notes a success, or that the object is gone.
    pub fn forget(&self, key: &K) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_cap() {
        let backoff = Backoff::new();
        let waits: Vec<u128> = (0..20).map(|_| backoff.failed("a").as_millis()).collect();
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[17], 655_360);
        assert_eq!(waits[18..], [1_000_000, 1_000_000]);
        assert_eq!(backoff.failed("b").as_millis(), 5, "objects do not share their count");
        backoff.forget(&"a");
        assert_eq!(backoff.failed("a").as_millis(), 5);
        assert_eq!(delay(u32::MAX), CAP);
    }
}
