//! The time that requests take, under the reference's name and buckets (rule: catalogd §10).

use olm_api::observe::metric_named;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

const BUCKETS: [f64; 19] =
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6, 4.0, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

/// Metrics of the content server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    durations: Family<Code, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)) }
    }
}

impl Metrics {
    /// Makes them part of what the process reports.
    pub fn register(&self, metrics: &olm_runtime::metrics::Metrics) {
        let row = const { metric_named("catalogd_http_request_duration_seconds") };
        metrics.register(row, self.durations.clone());
    }

    /// Notes one request, measured to the end of its body.
    pub fn observe(&self, code: u16, seconds: f64) {
        self.durations.get_or_create(&Code { code }).observe(seconds);
    }
}
