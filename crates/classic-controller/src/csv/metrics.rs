//! Metrics of ClusterServiceVersions, made from the cache when they are scraped. Copies have none.
//!
//! Rule: classic-apis §11.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::ResourceExt as _;
use olm_api::classic::observe;
use olm_runtime::metrics::{Metrics, encode_row};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::edits::Edits;
use crate::cluster::Cluster;

/// Counts replaced CSVs. Clones share the number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Upgrades(Arc<AtomicU64>);

impl Upgrades {
    pub(super) fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct CsvMetrics {
    cluster: Arc<Cluster>,
    upgrades: Upgrades,
    edits: Edits,
}

/// Shows them among the metrics of the process.
pub(crate) fn register(metrics: &Metrics, cluster: &Arc<Cluster>, edits: &Edits) -> Upgrades {
    let upgrades = Upgrades::default();
    metrics.register_collector(CsvMetrics {
        cluster: Arc::clone(cluster),
        upgrades: upgrades.clone(),
        edits: edits.clone(),
    });
    upgrades
}

impl Collector for CsvMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let csvs = self.cluster.csvs.all();
        let out = encode_row(&mut encoder, &observe::CSV_COUNT)?;
        ConstGauge::new(i64::try_from(csvs.len()).unwrap_or(i64::MAX)).encode(out)?;
        let out = encode_row(&mut encoder, &observe::CSV_UPGRADE_COUNT)?;
        ConstCounter::new(self.upgrades.0.load(Ordering::Relaxed)).encode(out)?;
        let mut out = encode_row(&mut encoder, &observe::CSV_SUCCEEDED)?;
        for csv in &csvs {
            let phase = csv.status.as_ref().map_or("", |status| status.phase.as_str());
            let (name, namespace) = (csv.name_any(), csv.namespace().unwrap_or_default());
            let labels = [("name", name.as_str()), ("namespace", &namespace), ("version", &csv.spec.version)];
            ConstGauge::new(i64::from(phase == "Succeeded")).encode(out.encode_family(&labels)?)?;
        }
        let mut out = encode_row(&mut encoder, &observe::CSV_ABNORMAL)?;
        for csv in &csvs {
            let Some(status) = csv.status.as_ref().filter(|status| status.phase != "Succeeded") else {
                continue;
            };
            let (name, namespace) = (csv.name_any(), csv.namespace().unwrap_or_default());
            let labels = [
                ("name", name.as_str()),
                ("namespace", &namespace),
                ("phase", &status.phase),
                ("reason", &status.reason),
                ("version", &csv.spec.version),
            ];
            ConstGauge::new(1_i64).encode(out.encode_family(&labels)?)?;
        }
        let mut out = encode_row(&mut encoder, &observe::CSV_EDITED_DEPLOYMENTS)?;
        for (key, count) in self.edits.counts() {
            let Some((namespace, name)) = key.split_once('/') else { continue };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(out.encode_family(&[("name", name), ("namespace", namespace)])?)?;
        }
        Ok(())
    }
}
