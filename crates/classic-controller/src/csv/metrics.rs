//! Metrics of ClusterServiceVersions, made from the cache when they are scraped. Copies have none.
//!
//! Rule: classic-apis §11.

use std::sync::Arc;

use kube::ResourceExt as _;
use olm_api::classic::observe;
use olm_classic::operator_group::is_copy;
use olm_runtime::metrics::{Metrics, encode_row};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;

use super::edits::Edits;
use crate::cluster::Cluster;

#[derive(Debug)]
struct CsvMetrics {
    cluster: Arc<Cluster>,
    upgrades: Counter,
    edits: Edits,
}

/// Shows them among the metrics of the process; returns the counter of replaced CSVs.
pub(crate) fn register(metrics: &Metrics, cluster: &Arc<Cluster>, edits: &Edits) -> Counter {
    let upgrades = Counter::default();
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
        ConstCounter::new(self.upgrades.get()).encode(out)?;
        // some copies lack the label by which they are left out of the cache
        let originals: Vec<_> = csvs.iter().filter(|csv| !is_copy(csv)).collect();
        let mut out = encode_row(&mut encoder, &observe::CSV_SUCCEEDED)?;
        for csv in &originals {
            let phase = csv.status.as_ref().map_or("", |status| status.phase.as_str());
            let (name, namespace) = (csv.name_any(), csv.namespace().unwrap_or_default());
            let labels = [("name", name.as_str()), ("namespace", &namespace), ("version", &csv.spec.version)];
            ConstGauge::new(i64::from(phase == "Succeeded")).encode(out.encode_family(&labels)?)?;
        }
        let mut out = encode_row(&mut encoder, &observe::CSV_ABNORMAL)?;
        for csv in &originals {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Csvs, FINALIZER};
    use super::*;
    use crate::testing::{Apiserver, context, failure, put};

    fn csv(name: &str, replaces: &str, phase: &str) -> Value {
        let annotations =
            json!({"olm.operatorGroup": "g", "olm.operatorNamespace": "ns", "olm.targetNamespaces": "ns"});
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "generation": 1,
                "annotations": annotations, "finalizers": [FINALIZER]},
            "spec": {"displayName": name, "replaces": replaces,
                "install": {"strategy": "deployment", "spec": {"deployments": []}},
                "installModes": [{"type": "OwnNamespace", "supported": true}]},
            "status": {"phase": phase, "reason": "InstallSucceeded"},
        })
    }

    #[test]
    fn copies_without_their_label_have_no_metrics() {
        let (metrics, cluster) = (Metrics::new(), Cluster::new());
        for (name, reason) in [("a.v1", "ComponentUnhealthy"), ("b.v1", "Copied")] {
            let mut csv = csv(name, "", "Failed");
            csv["status"]["reason"] = json!(reason);
            put(&cluster.csvs, csv);
        }
        register(&metrics, &cluster, &Edits::default());
        let text = metrics.classic();
        assert!(text.contains(r#"name="a.v1""#) && !text.contains(r#"name="b.v1""#), "{text}");
    }

    #[tokio::test]
    async fn upgrade_is_counted_once_the_status_has_it() {
        for (code, count) in [(409, 0), (200, 1)] {
            let apiserver = Apiserver::new(move |_, _| match code {
                200 => (200, csv("a.v1", "", "Replacing")),
                _ => failure(code, "Conflict"),
            });
            let cluster = Cluster::new();
            let group = json!({
                "metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"targetNamespaces": ["ns"]},
                "status": {"namespaces": ["ns"], "lastUpdated": "2026-01-01T00:00:00Z"},
            });
            put(&cluster.groups, group);
            for csv in [csv("a.v1", "", "Succeeded"), csv("a.v2", "a.v1", "Pending")] {
                put(&cluster.csvs, csv);
            }
            let csvs = Csvs::new(context("csv", &apiserver, &cluster));
            let replaced = cluster.csvs.find("ns/a.v1").unwrap();
            assert_eq!(csvs.reconcile(replaced).await.is_ok(), code == 200, "{code}");
            assert_eq!(csvs.upgrades.get(), count, "{:#?}", apiserver.requests());
        }
    }
}
