//! Metrics: the conditions, which extensions stand in the way, and how often the status was written. Rule: decisions 17 and 19.

use std::sync::Arc;

use olm_api::ConditionStatus;
use olm_api::observe::metric_named;
use olm_api::openshift::ClusterOperatorStatus;
use olm_core::openshift::Report;
use olm_runtime::metrics::{Metrics, encode_row};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::owner::Elsewhere;

/// The latest decision, for the metrics endpoint. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusMetrics {
    last: Arc<Mutex<Last>>,
    writes: Counter,
}

#[derive(Debug, Clone, Default)]
struct Last {
    status: Option<ClusterOperatorStatus>,
    report: Option<Report>,
    elsewhere: Option<Elsewhere>,
}

impl StatusMetrics {
    /// Adds them to the metrics of the process.
    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.register_collector(self.clone());
        let row = const { metric_named("olm_cluster_operator_status_writes_total") };
        metrics.register(row, self.writes.clone());
    }

    pub(crate) fn decided(
        &self,
        status: &ClusterOperatorStatus,
        report: Option<&Report>,
        elsewhere: Option<&Elsewhere>,
    ) {
        *self.last.lock() =
            Last { status: Some(status.clone()), report: report.cloned(), elsewhere: elsewhere.cloned() };
    }

    pub(crate) fn written(&self) {
        self.writes.inc();
    }

    /// Removes the values: the state of the cluster is unknown.
    pub(crate) fn clear(&self) {
        *self.last.lock() = Last::default();
    }
}

/// 1 for True, 0 for False; Unknown has no value.
fn value(status: ConditionStatus) -> Option<i64> {
    match status {
        ConditionStatus::True => Some(1),
        ConditionStatus::False => Some(0),
        ConditionStatus::Unknown => None,
    }
}

impl Collector for StatusMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let last = self.last.lock().clone();
        let mut out = encode_row(&mut encoder, const { metric_named("olm_cluster_operator_condition") })?;
        for condition in last.status.iter().flat_map(|status| &status.conditions) {
            let labels = [("condition", condition.type_.as_str()), ("reason", &condition.reason)];
            if let Some(value) = value(condition.status) {
                ConstGauge::new(value).encode(out.encode_family(&labels)?)?;
            }
        }
        let mut out =
            encode_row(&mut encoder, const { metric_named("olm_extension_blocks_cluster_upgrade") })?;
        for (report, blocks) in last.report.iter().flat_map(|it| [(it, true), (it, false)]) {
            let with_limit = if blocks { &report.blocking } else { &report.fitting };
            let with_limit =
                with_limit.iter().map(|one| (one.owner.name(), &one.bundle, one.limit.stream.to_string()));
            let unreadable = report.unreadable.iter().filter(|_| blocks);
            let unreadable = unreadable.map(|one| (one.owner.name(), &one.bundle, "unreadable".to_owned()));
            for (extension, bundle, limit) in with_limit.chain(unreadable) {
                let labels =
                    [("extension", extension), ("bundle", bundle), ("max_openshift_version", &limit)];
                ConstGauge::new(i64::from(blocks)).encode(out.encode_family(&labels)?)?;
            }
        }
        let mut out =
            encode_row(&mut encoder, const { metric_named("olm_cluster_operator_managed_elsewhere") })?;
        if let Some(elsewhere) = &last.elsewhere {
            let manager = match elsewhere {
                Elsewhere::Manager(manager) => manager.as_str(),
                Elsewhere::Asked => "",
            };
            ConstGauge::new(1_i64).encode(out.encode_family(&[("manager", manager)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use olm_core::openshift::{Bundle, Owner, Stream, judge};

    use super::*;

    #[test]
    fn metrics_show_blocking_bundles_with_their_limit() {
        let status_metrics = StatusMetrics::default();
        let metrics = Metrics::new();
        status_metrics.register(&metrics);
        let bundle = |name: &str, value: &str| Bundle {
            owner: Owner::Extension(format!("e-{name}")),
            name: name.to_owned(),
            properties: Some(format!(r#"[{{"type":"olm.maxOpenShiftVersion","value":{value}}}]"#)),
        };
        let current = Stream::new(4, 18);
        let bundles = [bundle("a", "\"4.18\""), bundle("b", "\"4.20\""), bundle("c", "true")];
        let report = judge(current, current.next(), &bundles);
        let elsewhere = Elsewhere::Manager("other".to_owned());
        status_metrics.decided(&ClusterOperatorStatus::default(), Some(&report), Some(&elsewhere));
        status_metrics.written();
        let text = metrics.classic();
        for line in [
            r#"olm_extension_blocks_cluster_upgrade{extension="e-a",bundle="a",max_openshift_version="4.18"} 1"#,
            r#"olm_extension_blocks_cluster_upgrade{extension="e-b",bundle="b",max_openshift_version="4.20"} 0"#,
            r#"olm_extension_blocks_cluster_upgrade{extension="e-c",bundle="c",max_openshift_version="unreadable"} 1"#,
            r#"olm_cluster_operator_managed_elsewhere{manager="other"} 1"#,
            "olm_cluster_operator_status_writes_total 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        status_metrics.clear();
        assert!(!metrics.classic().contains("extension=\"e-a\""));
    }
}
