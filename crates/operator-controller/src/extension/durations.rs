//! The time that resolution takes, as a metric.

use std::time::Duration;

use olm_api::observe;
use olm_runtime::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// From a package in memory to a catalog that answers late.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

const SUCCEEDED: &str = "succeeded";
const FAILED: &str = "failed";

/// [`observe::RESOLUTION_DURATION`]. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ResolutionDurations(Family<Labels, Histogram, fn() -> Histogram>);

impl ResolutionDurations {
    /// Makes them part of what the process reports.
    pub fn register(metrics: &Metrics) -> Self {
        let durations = Self(Family::new_with_constructor(|| Histogram::new(BUCKETS)));
        metrics.register(&observe::RESOLUTION_DURATION, durations.0.clone());
        // shown from the start
        for outcome in [SUCCEEDED, FAILED] {
            drop(durations.0.get_or_create(&Labels { outcome }));
        }
        durations
    }

    /// Counts one resolution.
    pub fn observe(&self, succeeded: bool, time: Duration) {
        let outcome = if succeeded { SUCCEEDED } else { FAILED };
        self.0.get_or_create(&Labels { outcome }).observe(time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolution_durations_are_counted_by_outcome() {
        let metrics = Metrics::new();
        let durations = ResolutionDurations::register(&metrics);
        durations.observe(true, Duration::from_millis(3));
        durations.observe(true, Duration::from_secs(2));
        durations.observe(false, Duration::from_millis(1));
        let text = metrics.classic();
        let name = observe::RESOLUTION_DURATION.name;
        for want in [
            format!("{name}_count{{outcome=\"succeeded\"}} 2\n"),
            format!("{name}_bucket{{le=\"0.005\",outcome=\"succeeded\"}} 1\n"),
            format!("{name}_count{{outcome=\"failed\"}} 1\n"),
        ] {
            assert!(text.contains(&want), "{want} in\n{text}");
        }
    }
}
