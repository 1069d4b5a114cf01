//! Objects that another program writes too: each is written ever more slowly.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use olm_runtime::backoff;
use parking_lot::Mutex;

/// How long after its last write an object counts as undisputed.
const UNDISPUTED_AFTER: Duration = Duration::from_secs(600);
/// From so many writes in a row on, another program is taken to write the object too.
const MAX_WRITES: u32 = 6;

/// The objects that were written lately, by title: how often in a row, and when.
#[derive(Debug, Default)]
pub(crate) struct Disputes(Mutex<HashMap<String, (u32, Instant)>>);

impl Disputes {
    /// How long to wait before the object is written again; `None` if it may be written now.
    pub(crate) fn wait(&self, title: &str) -> Option<Duration> {
        let all = self.0.lock();
        let (count, at) = all.get(title).filter(|(count, _)| *count >= MAX_WRITES)?;
        // 5 ms doubled for each write before
        let wait = backoff::delay(count.saturating_add(4)).saturating_sub(at.elapsed());
        (!wait.is_zero()).then_some(wait)
    }

    /// Records a write that the apiserver has accepted: one that failed changed nothing that another program could change back.
    pub(crate) fn written(&self, title: &str) {
        let mut all = self.0.lock();
        let now = Instant::now();
        all.retain(|_, (_, at)| now.duration_since(*at) < UNDISPUTED_AFTER.max(backoff::CAP));
        let (count, at) = all.entry(title.to_owned()).or_insert((0, now));
        *count = count.saturating_add(1);
        *at = now;
    }

    /// Records that the object is as it should be.
    pub(crate) fn settled(&self, title: &str) {
        let mut all = self.0.lock();
        if all.get(title).is_some_and(|(_, at)| at.elapsed() >= UNDISPUTED_AFTER) {
            all.remove(title);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disputes_slow_down_writes() {
        let disputes = Disputes::default();
        for _ in 0..MAX_WRITES {
            assert_eq!(disputes.wait("a"), None);
            disputes.written("a");
        }
        assert!(disputes.wait("a").is_some_and(|wait| wait > Duration::from_secs(1)));
        assert_eq!(disputes.wait("b"), None);
        disputes.settled("a");
        assert!(disputes.wait("a").is_some(), "one check between two writes settles nothing");
    }
}
