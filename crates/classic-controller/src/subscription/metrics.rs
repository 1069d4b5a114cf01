//! Metrics of Subscriptions and of the resolutions of their namespaces.
//!
//! Rule: classic-apis §11.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use olm_api::classic::{Subscription, observe};
use olm_runtime::metrics::{Metrics, Summary, encode_row};
use olm_runtime::watched;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::cluster::Cluster;

/// Approval, channel, installed CSV, name and package: the labels of a series.
type Values = [String; 5];

/// What passes record.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// Values and number of passes, by `namespace/name`.
    syncs: Arc<Mutex<BTreeMap<String, (Values, u64)>>>,
    succeeded: Summary,
    failed: Summary,
}

impl Recorded {
    /// Counts a pass over a Subscription. With other values it has another series, which begins again.
    pub(super) fn sync(&self, subscription: &Subscription) {
        let spec = &subscription.spec;
        let status = subscription.status.as_ref();
        let values = [
            spec.install_plan_approval.clone(),
            spec.channel.clone(),
            status.map(|status| status.installed_csv.clone()).unwrap_or_default(),
            subscription.metadata.name.clone().unwrap_or_default(),
            spec.package.clone(),
        ];
        let mut syncs = self.syncs.lock();
        let (known, count) = syncs.entry(watched::key(&subscription.metadata)).or_default();
        if *known != values {
            (*known, *count) = (values, 0);
        }
        *count += 1;
    }

    pub(super) fn resolved(&self, duration: Duration, has_succeeded: bool) {
        if has_succeeded { &self.succeeded } else { &self.failed }.observe(duration);
    }
}

#[derive(Debug)]
struct SubscriptionMetrics {
    cluster: Arc<Cluster>,
    recorded: Recorded,
}

/// Shows them among the metrics of the process.
pub(crate) fn register(metrics: &Metrics, cluster: &Arc<Cluster>) -> Recorded {
    let recorded = Recorded::default();
    let cluster = Arc::clone(cluster);
    metrics.register_collector(SubscriptionMetrics { cluster, recorded: recorded.clone() });
    recorded
}

impl Collector for SubscriptionMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let present = self.cluster.subscriptions.read();
        let out = encode_row(&mut encoder, &observe::SUBSCRIPTION_COUNT)?;
        ConstGauge::new(i64::try_from(present.rows().len()).unwrap_or(i64::MAX)).encode(out)?;
        // Subscriptions of several namespaces may have the same values
        let mut series: BTreeMap<Values, u64> = BTreeMap::new();
        let mut syncs = self.recorded.syncs.lock();
        syncs.retain(|key, _| present.rows().contains_key(key));
        drop(present);
        for (values, count) in syncs.values() {
            *series.entry(values.clone()).or_default() += count;
        }
        drop(syncs);
        let mut out = encode_row(&mut encoder, &observe::SUBSCRIPTION_SYNCS)?;
        for (values, count) in series {
            let names = observe::SUBSCRIPTION_SYNCS.labels.iter().copied();
            let labels: Vec<(&str, &str)> = names.zip(values.iter().map(String::as_str)).collect();
            ConstCounter::new(count).encode(out.encode_family(&labels)?)?;
        }
        let mut out = encode_row(&mut encoder, &observe::RESOLUTION_DURATION)?;
        self.recorded.failed.encode(&mut out, &[("outcome", "failed")])?;
        self.recorded.succeeded.encode(&mut out, &[("outcome", "succeeded")])
    }
}

#[cfg(test)]
mod tests {
    use olm_runtime::watched::Object;
    use serde_json::json;

    use super::*;

    fn subscription(namespace: &str, installed: &str) -> Subscription {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": "s"},
            "spec": {"name": "p", "channel": "stable", "source": "c", "sourceNamespace": "olm"},
            "status": {"installedCSV": installed, "lastUpdated": "2024-01-01T00:00:00Z"},
        }))
        .unwrap()
    }

    #[test]
    fn subscription_series_end_with_their_values() {
        let (metrics, cluster) = (Metrics::new(), Cluster::new());
        let recorded = register(&metrics, &cluster);
        let series = || {
            let text = metrics.classic();
            let lines = text.lines().filter(|line| line.starts_with("subscription_sync_total{"));
            let of = |line: &str| line.split_once("installed=").unwrap().1.to_owned();
            lines.map(of).collect::<Vec<_>>()
        };
        for (namespace, installed) in [("a", ""), ("a", ""), ("b", ""), ("a", "p.v1")] {
            let subscription = subscription(namespace, installed);
            cluster
                .subscriptions
                .insert(watched::key(&subscription.metadata), Object::new(subscription.clone()));
            recorded.sync(&subscription);
        }
        let of = |installed: &str, count| format!(r#""{installed}",name="s",package="p"}} {count}"#);
        assert_eq!(series(), [of("", 1), of("p.v1", 1)], "a series for each value");
        recorded.sync(&subscription("b", "p.v1"));
        assert_eq!(series(), [of("p.v1", 2)], "two Subscriptions with the same values");
        cluster.subscriptions.remove(&"a/s".to_owned());
        assert_eq!(series(), [of("p.v1", 1)], "one is gone");
    }

    #[test]
    fn subscription_metrics_are_those_of_the_table() {
        let metrics = Metrics::new();
        let recorded = register(&metrics, &Cluster::new());
        recorded.resolved(Duration::from_secs(2), true);
        for text in [metrics.classic(), metrics.open_metrics()] {
            for line in [
                "# TYPE olm_resolution_duration_seconds summary",
                "olm_resolution_duration_seconds{outcome=\"succeeded\",quantile=\"0.99\"} 2.0",
                "olm_resolution_duration_seconds_sum{outcome=\"succeeded\"} 2.0",
                "olm_resolution_duration_seconds_count{outcome=\"succeeded\"} 1",
                "olm_resolution_duration_seconds_count{outcome=\"failed\"} 0",
                "subscription_count 0",
            ] {
                assert!(text.lines().any(|it| it == line), "{line}: {text}");
            }
        }
    }
}
