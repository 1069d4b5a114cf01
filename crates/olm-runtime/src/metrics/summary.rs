//! Summaries: quantiles of what was observed in the last ten minutes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::MetricEncoder;
use prometheus_client::metrics::gauge::ConstGauge;

/// How long an observation counts for the quantiles.
const WINDOW: Duration = Duration::from_secs(600);
/// Observations that count for the quantiles, at most.
const MAX_OBSERVED: usize = 1024;
/// The quantiles that are shown, as the label has them.
const QUANTILES: [(f64, &str); 3] = [(0.9, "0.9"), (0.95, "0.95"), (0.99, "0.99")];

/// Durations: their sum and number since the process began, and the quantiles 0.9, 0.95 and 0.99 of the last ten minutes, of at most
/// 1,024 observations. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Summary(Arc<Mutex<Observed>>);

#[derive(Debug, Default)]
struct Observed {
    seconds: f64,
    count: u64,
    recent: VecDeque<(Instant, f64)>,
}

impl Summary {
    pub fn observe(&self, duration: Duration) {
        self.observe_at(duration, Instant::now());
    }

    fn observe_at(&self, duration: Duration, now: Instant) {
        let mut observed = self.0.lock();
        observed.seconds += duration.as_secs_f64();
        observed.count += 1;
        observed.recent.push_back((now, duration.as_secs_f64()));
        if observed.recent.len() > MAX_OBSERVED {
            observed.recent.pop_front();
        }
    }

    /// Seconds for each quantile, the sum and the number. Without a recent observation a quantile is NaN.
    fn values(&self, now: Instant) -> ([f64; QUANTILES.len()], f64, u64) {
        let mut observed = self.0.lock();
        observed.recent.retain(|(at, _)| now.duration_since(*at) < WINDOW);
        let mut sorted: Vec<f64> = observed.recent.iter().map(|(_, seconds)| *seconds).collect();
        sorted.sort_by(f64::total_cmp);
        let quantile = |(share, _): (f64, &str)| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
        };
        (QUANTILES.map(quantile), observed.seconds, observed.count)
    }

    /// Writes the samples with these labels; `encoder` has the row.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn encode(&self, encoder: &mut MetricEncoder<'_>, labels: &[(&str, &str)]) -> fmt::Result {
        use prometheus_client::encoding::EncodeMetric as _;
        let (quantiles, seconds, count) = self.values(Instant::now());
        for ((_, quantile), value) in QUANTILES.iter().zip(quantiles) {
            let labels = [labels, &[("quantile", quantile)]].concat();
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_family(&labels)?;
        family.encode_histogram::<[(&str, &str); 0]>(seconds, count, &[], None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_counts_recent_observations() {
        let (summary, start) = (Summary::default(), Instant::now());
        let (quantiles, _, count) = summary.values(start);
        assert!(quantiles.iter().all(|it| it.is_nan()) && count == 0);
        for tenth in 1..=100_u32 {
            summary.observe_at(Duration::from_millis(u64::from(tenth) * 100), start);
        }
        assert_eq!(summary.values(start), ([9.0, 9.5, 9.9], 505.0, 100));
        let later = start + WINDOW;
        summary.observe_at(Duration::from_secs(1), later);
        assert_eq!(summary.values(later), ([1.0, 1.0, 1.0], 506.0, 101));
        for _ in 0..MAX_OBSERVED {
            summary.observe_at(Duration::from_secs(2), later);
        }
        assert_eq!(summary.0.lock().recent.len(), MAX_OBSERVED);
    }
}
