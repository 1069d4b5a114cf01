//! Fixed intervals of the processes that a test would have to sleep through.
//!
//! Users cannot set them: only `--test-intervals`, a hidden flag of every process, changes the defaults, and only tests use it.

use std::str::FromStr;
use std::time::Duration;

use crate::duration::{DurationError, GoDuration};

/// The intervals; the default is that of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// One minute of a field that counts minutes (`pollIntervalMinutes`, `progressDeadlineMinutes`).
    pub minute: Duration,
    /// The time over which corrections of one object are counted.
    pub correction_window: Duration,
    /// The time between two evictions of what no extension needs from the caches.
    pub eviction: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self { minute, correction_window: minute, eviction: minute }
    }
}

/// A value of `--test-intervals` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    /// Not of the form `<name>=<duration>`.
    #[error("invalid interval {0:?}; write it like minute=2s")]
    Form(String),
    /// No such interval.
    #[error("unknown interval {0:?}; available: minute, correction-window, eviction")]
    Unknown(String),
    /// Not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// A process would never rest.
    #[error("interval {0:?} must be longer than 0")]
    Zero(String),
}

impl FromStr for Intervals {
    type Err = IntervalError;

    /// Reads `<name>=<duration>,…`; what is not named keeps its default.
    fn from_str(text: &str) -> Result<Self, IntervalError> {
        let mut intervals = Self::default();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| IntervalError::Form(item.to_owned()))?;
            let interval = match name {
                "minute" => &mut intervals.minute,
                "correction-window" => &mut intervals.correction_window,
                "eviction" => &mut intervals.eviction,
                _ => return Err(IntervalError::Unknown(name.to_owned())),
            };
            *interval = value.parse::<GoDuration>()?.0;
            if interval.is_zero() {
                return Err(IntervalError::Zero(name.to_owned()));
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
            ("minute", Err(IntervalError::Form("minute".to_owned()))),
            ("hour=1s", Err(IntervalError::Unknown("hour".to_owned()))),
            ("minute=0s", Err(IntervalError::Zero("minute".to_owned()))),
            ("minute=1", Err(DurationError::MissingUnit("1".to_owned()).into())),
        ] {
            assert_eq!(text.parse::<Intervals>(), want, "{text:?}");
        }
    }
}
