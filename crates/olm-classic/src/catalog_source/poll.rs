//! When the image of a catalog is polled.
//!
//! Rule: classic-apis §2.1 and §2.5.

use std::time::Duration;

use olm_api::classic::CatalogSource;
use olm_api::k8s_openapi::jiff::{SignedDuration, Timestamp};
use olm_core::go::GoDuration;

use super::{Backing, validate};

/// The interval in the place of one that cannot be read, and the longest time to the next check.
pub const FALLBACK_INTERVAL: Duration = Duration::from_secs(900);

/// The shortest time between two polls: each is a request to the registry and a write of the status.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// How far the clocks of two machines may be apart.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// Parts of the time to the next check that chance adds at most: a tenth.
const JITTER: u32 = 10;

/// An interval that cannot be read, in the words of reason InvalidIntervalError.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "error parsing spec.updateStrategy.registryPoll.interval. Using the default value of 15m0s instead. Error: time: \
     {problem}"
)]
pub struct IntervalError {
    pub problem: String,
}

/// The polls of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polling {
    pub interval: Duration,
    /// The interval of the spec cannot be read.
    pub error: Option<IntervalError>,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// The tag is resolved; the time is noted whatever comes of it.
    Now,
    /// The catalog is checked again after this time.
    After(Duration),
}

impl Polling {
    /// `None`: the catalog is not polled, because it has no image or no interval. An interval of 0 is none, and a shorter one than a second
    /// is a second.
    pub fn from_source(source: &CatalogSource) -> Option<Self> {
        let Ok(Backing::Image(_)) = validate(&source.spec) else { return None };
        let text = &source.spec.update_strategy.as_ref()?.registry_poll.as_ref()?.interval;
        if text.is_empty() {
            return None;
        }
        match text.parse::<GoDuration>() {
            Ok(GoDuration(Duration::ZERO)) => {
                let problem =
                    format!("interval {text:?} is zero; write it like 30m0s, or leave registryPoll out");
                Some(Self { interval: FALLBACK_INTERVAL, error: Some(IntervalError { problem }) })
            }
            Ok(interval) => Some(Self { interval: interval.0.max(MIN_INTERVAL), error: None }),
            Err(error) => {
                let error = IntervalError { problem: error.to_string() };
                Some(Self { interval: FALLBACK_INTERVAL, error: Some(error) })
            }
        }
    }

    /// Whether it is time for a poll. `chance` is from 0 to 1 and spreads the checks of many catalogs.
    pub fn poll(&self, source: &CatalogSource, now: Timestamp, chance: f64) -> Poll {
        let last = source.status.as_ref().and_then(|status| status.latest_image_registry_poll.as_ref());
        let last = last.or(source.metadata.creation_timestamp.as_ref());
        let Some(last) = last else { return Poll::Now };
        if last.0.duration_since(now) > CLOCK_SKEW {
            // the clock was set back: the wait could be as long as it was wrong
            return Poll::Now;
        }
        let interval = SignedDuration::try_from(self.interval).unwrap_or(SignedDuration::MAX);
        let left = interval.saturating_sub(now.duration_since(last.0));
        let Ok(left) = Duration::try_from(left) else { return Poll::Now };
        if left.is_zero() {
            return Poll::Now;
        }
        let left = left.min(FALLBACK_INTERVAL);
        let chance = if chance.is_finite() { chance.clamp(0.0, 1.0) } else { 0.0 };
        Poll::After(left + (left / JITTER).mul_f64(chance))
    }
}
