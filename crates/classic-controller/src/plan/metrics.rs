//! Metrics of InstallPlans, made from the cache when they are scraped.
//!
//! Rule: classic-apis §11.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use olm_api::classic::observe;
use olm_runtime::metrics::{Metrics, encode_row};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::cluster::Cluster;

/// Counts steps about which the apiserver warned. Clones share the number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings(Arc<AtomicU64>);

impl Warnings {
    pub(super) fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct PlanMetrics {
    cluster: Arc<Cluster>,
    warnings: Warnings,
}

/// Shows them among the metrics of the process.
pub(crate) fn register(metrics: &Metrics, cluster: &Arc<Cluster>) -> Warnings {
    let warnings = Warnings::default();
    metrics.register_collector(PlanMetrics { cluster: Arc::clone(cluster), warnings: warnings.clone() });
    warnings
}

impl Collector for PlanMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let count = self.cluster.plans.read().rows().len();
        let out = encode_row(&mut encoder, &observe::INSTALL_PLAN_COUNT)?;
        ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(out)?;
        let out = encode_row(&mut encoder, &observe::INSTALL_PLAN_WARNINGS)?;
        ConstCounter::new(self.warnings.0.load(Ordering::Relaxed)).encode(out)
    }
}
