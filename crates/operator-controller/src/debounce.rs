//! Holding back a status write whose content is about to be overtaken. Whether a change can wait is the controller's rule.

use std::time::{Duration, Instant};

/// How long a status may be held back.
pub(crate) const STATUS_DEBOUNCE: Duration = Duration::from_secs(2);

/// Since when the status of one object is held back.
#[derive(Debug, Default)]
pub(crate) struct Debounce(Option<Instant>);

impl Debounce {
    /// How long the write is to wait, `limit` at most since it could first wait; `None` when it is due.
    pub(crate) fn hold(&mut self, can_wait: bool, limit: Duration, now: Instant) -> Option<Duration> {
        let since = self.0.take().unwrap_or(now);
        let left = limit.saturating_sub(now.duration_since(since));
        let held = can_wait && !left.is_zero();
        self.0 = held.then_some(since);
        held.then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debounce_ends_after_its_time_or_with_an_urgent_change() {
        let (mut debounce, start) = (Debounce::default(), Instant::now());
        for (second, can_wait, left) in [
            (0, false, None),
            (0, true, Some(2)),
            (1, true, Some(1)),
            (2, true, None),
            (3, true, Some(2)),
            (4, false, None),
            (4, true, Some(2)),
        ] {
            let now = start + Duration::from_secs(second);
            assert_eq!(
                debounce.hold(can_wait, STATUS_DEBOUNCE, now),
                left.map(Duration::from_secs),
                "{second}"
            );
        }
    }
}
