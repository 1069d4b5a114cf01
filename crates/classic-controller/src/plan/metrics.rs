//! Metrics of InstallPlans, made from the cache when they are scraped.
//!
//! Rule: classic-apis §11.

use std::fmt;
use std::sync::Arc;

use olm_api::classic::observe;
use olm_runtime::metrics::{Metrics, encode_row};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::cluster::Cluster;

#[derive(Debug)]
struct PlanMetrics {
    cluster: Arc<Cluster>,
    warnings: Counter,
}

/// Shows them among the metrics of the process; returns the counter of steps about which the apiserver warned.
pub(crate) fn register(metrics: &Metrics, cluster: &Arc<Cluster>) -> Counter {
    let warnings = Counter::default();
    metrics.register_collector(PlanMetrics { cluster: Arc::clone(cluster), warnings: warnings.clone() });
    warnings
}

impl Collector for PlanMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let count = self.cluster.plans.read().rows().len();
        let out = encode_row(&mut encoder, &observe::INSTALL_PLAN_COUNT)?;
        ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(out)?;
        let out = encode_row(&mut encoder, &observe::INSTALL_PLAN_WARNINGS)?;
        ConstCounter::new(self.warnings.get()).encode(out)
    }
}
