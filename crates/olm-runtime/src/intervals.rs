//! Fixed intervals of the processes that a test would have to sleep through.
//!
//! Users cannot set them: only `--test-intervals`, a hidden flag of every process, changes the defaults, and only tests use it.

use std::str::FromStr;
use std::time::Duration;

use crate::backoff;
use crate::duration::GoDuration;

/// The intervals; the default is that of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// One minute of a field that counts minutes (`pollIntervalMinutes`, `progressDeadlineMinutes`).
    pub minute: Duration,
    /// The time over which corrections of one object are counted.
    pub correction_window: Duration,
    /// The time between two evictions of what no extension needs from the caches.
    pub eviction: Duration,
    /// The time between two readings of the cluster's version and APIs.
    pub cluster: Duration,
    /// The longest wait for an event of an object that is not finished; the flag does not set it.
    pub unfinished: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        let cluster = 5 * minute;
        Self { minute, correction_window: minute, eviction: minute, cluster, unfinished: backoff::UNFINISHED }
    }
}

/// A value of `--test-intervals` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IntervalError(String);

impl FromStr for Intervals {
    type Err = IntervalError;

    /// Reads `<name>=<duration>,…`; what is not named keeps its default.
    fn from_str(text: &str) -> Result<Self, IntervalError> {
        let mut intervals = Self::default();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| {
                IntervalError(format!("invalid interval {item:?}; write it like minute=2s"))
            })?;
            let interval = match name {
                "minute" => &mut intervals.minute,
                "correction-window" => &mut intervals.correction_window,
                "eviction" => &mut intervals.eviction,
                "cluster" => &mut intervals.cluster,
                _ => {
                    let text = "available: minute, correction-window, eviction, cluster";
                    return Err(IntervalError(format!("unknown interval {name:?}; {text}")));
                }
            };
            *interval = value.parse::<GoDuration>().map_err(|error| IntervalError(error.to_string()))?.0;
            // a process would never rest
            if interval.is_zero() {
                return Err(IntervalError(format!("interval {name:?} must be longer than 0")));
            }
        }
        Ok(intervals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_default_to_those_of_the_product() {
        let usual = Intervals::default();
        assert_eq!(usual.minute, Duration::from_secs(60));
        let second = Duration::from_secs(1);
        for (text, want) in [
            ("", Ok(usual)),
            ("minute=1s", Ok(Intervals { minute: second, ..usual })),
            (
                "correction-window=1s,eviction=1s",
                Ok(Intervals { correction_window: second, eviction: second, ..usual }),
            ),
            ("minute", Err("invalid interval \"minute\"; write it like minute=2s")),
            (
                "hour=1s",
                Err("unknown interval \"hour\"; available: minute, correction-window, eviction, cluster"),
            ),
            ("minute=0s", Err("interval \"minute\" must be longer than 0")),
            ("minute=x", Err("invalid duration \"x\"; write it like 12h or 1m30s")),
        ] {
            assert_eq!(
                text.parse::<Intervals>(),
                want.map_err(|text| IntervalError(text.to_owned())),
                "{text:?}"
            );
        }
    }
}
