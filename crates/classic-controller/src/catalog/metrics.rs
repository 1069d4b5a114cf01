//! Metrics of CatalogSources, made from the cache when they are scraped.
//!
//! Rule: classic-apis §11.

use std::fmt;
use std::sync::Arc;

use kube::ResourceExt as _;
use olm_api::classic::observe;
use olm_runtime::metrics::{Metrics, encode_row};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Catalogs;
use crate::cluster::Cluster;

struct CatalogMetrics {
    cluster: Arc<Cluster>,
    catalogs: Arc<Catalogs>,
}

impl fmt::Debug for CatalogMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogMetrics").finish_non_exhaustive()
    }
}

/// Shows them among the metrics of the process.
pub(crate) fn register(metrics: &Metrics, cluster: &Arc<Cluster>, catalogs: &Arc<Catalogs>) {
    let (cluster, catalogs) = (Arc::clone(cluster), Arc::clone(catalogs));
    metrics.register_collector(CatalogMetrics { cluster, catalogs });
}

impl Collector for CatalogMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sources = self.cluster.catalogs.all();
        let out = encode_row(&mut encoder, &observe::CATALOG_SOURCE_COUNT)?;
        ConstGauge::new(i64::try_from(sources.len()).unwrap_or(i64::MAX)).encode(out)?;
        let rows = sources.iter().map(|source| {
            let (name, namespace) = (source.name_any(), source.namespace().unwrap_or_default());
            let (is_ready, snapshots) = self.catalogs.reads(&format!("{namespace}/{name}"));
            (name, namespace, is_ready, snapshots)
        });
        let rows: Vec<(String, String, bool, u64)> = rows.collect();
        let mut out = encode_row(&mut encoder, &observe::CATALOG_SOURCE_READY)?;
        for (name, namespace, is_ready, _) in &rows {
            let labels = [("name", name.as_str()), ("namespace", namespace)];
            ConstGauge::new(i64::from(*is_ready)).encode(out.encode_family(&labels)?)?;
        }
        let mut out = encode_row(&mut encoder, &observe::CATALOG_SOURCE_SNAPSHOTS)?;
        for (name, namespace, _, snapshots) in rows.iter().filter(|(.., snapshots)| *snapshots > 0) {
            let labels = [("name", name.as_str()), ("namespace", namespace)];
            ConstCounter::new(*snapshots).encode(out.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
