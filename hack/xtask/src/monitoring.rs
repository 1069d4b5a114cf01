//! docs/metrics.md, docs/events.md, the Grafana dashboard and the Prometheus alerts: made from the tables of `olm_api::observe`, and
//! from the panels and alerts of `monitoring.toml`, whose expressions may ask for metrics of these tables only.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use olm_api::condition::{self, ConditionSpec};
use olm_api::observe::{self, Component, Event, Kind, METRICS};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{promql, yaml};

/// Alerts and panels, with the expressions that they ask Prometheus for.
const DATA: &str = include_str!("monitoring.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Monitoring {
    #[serde(rename = "alert")]
    alerts: Vec<Alert>,
    #[serde(rename = "panel")]
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Alert {
    name: String,
    expression: String,
    /// How long it must hold.
    #[serde(rename = "for")]
    holds: String,
    severity: String,
    summary: String,
    /// What it means and what helps.
    description: String,
}

/// A panel of the dashboard.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    kind: String,
    unit: String,
    /// Expressions with their legends.
    targets: Vec<(String, String)>,
}

/// The five files.
pub(crate) fn files() -> Result<Vec<(PathBuf, String)>> {
    let Monitoring { alerts, panels } = toml::from_str(DATA).context("hack/xtask/src/monitoring.toml")?;
    let asked = panels.iter().flat_map(|panel| panel.targets.iter().map(|(it, _)| (&panel.title, it)));
    for (title, expression) in asked.chain(alerts.iter().map(|alert| (&alert.name, &alert.expression))) {
        if let Some(unknown) = unknown(expression) {
            bail!("{title} asks for {unknown}, which is not in the table of api/src/observe.rs");
        }
    }
    Ok(vec![
        ("docs/metrics.md".into(), metrics(&alerts)),
        ("docs/events.md".into(), events()),
        ("docs/conditions.md".into(), conditions()),
        ("manifests/monitoring/dashboard.json".into(), format!("{:#}\n", dashboard(&panels))),
        ("manifests/monitoring/prometheus-rule.yaml".into(), rules(&alerts)?),
    ])
}

/// The first metric of the expression that no program exposes.
fn unknown(expression: &str) -> Option<String> {
    promql::metrics(expression).into_iter().find(|name| !is_shown(name))
}

fn is_shown(name: &str) -> bool {
    let of = |metric: &observe::Metric| match metric.kind {
        Kind::Counter | Kind::Gauge => metric.name == name,
        Kind::Histogram => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|end| name.strip_suffix(end).is_some_and(|base| base == metric.name)),
    };
    // Prometheus itself makes it
    name == "up" || METRICS.iter().any(of)
}

const HEAD: &str = "<!-- Generated from api/src/observe.rs by `make generate`. Do not edit. -->\n";

fn metrics(alerts: &[Alert]) -> String {
    let mut out = format!(
        "{HEAD}# Metrics\n\n\
         Served under `/metrics` over TLS, for tokens whose user may `get` that path (401 without one or with a wrong one, 403 without \
         the permission); text format 0.0.4, or OpenMetrics if `Accept` asks for it. catalogd: `:7443`, operator-controller: `:8443`; \
         see `--metrics-bind-address`.\n\n\
         A dashboard for Grafana and alerts for Prometheus are in `manifests/monitoring/`.\n"
    );
    for (from, title) in [
        (
            Component::OperatorController,
            "## operator-controller\n\nOnly the leader shows those that begin with `olm_cluster_`.",
        ),
        (Component::Catalogd, "## catalogd"),
        (Component::ClusterOperator, "## cluster-operator"),
        (
            Component::Every,
            "## Every process\n\nThe names are those of controller-runtime, its work queue and client, and of Prometheus clients.",
        ),
    ] {
        let _ = write!(out, "\n{title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n");
        for metric in METRICS.iter().filter(|metric| metric.from == from) {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} |",
                metric.name,
                metric.kind.name(),
                labels.join(", "),
                metric.help
            );
        }
    }
    out.push_str(
        "\n## Alerts\n\n| alert | severity | holds | what it means and what helps |\n|---|---|---|---|\n",
    );
    for alert in alerts {
        let description = alert.description.replace("{{ $labels.name }}", "<name>");
        let _ = writeln!(out, "| `{}` | {} | {} | {description} |", alert.name, alert.severity, alert.holds);
    }
    out
}

fn events() -> String {
    let mut out = format!(
        "{HEAD}# Events\n\n\
         What a user would ask about is reported as an event of the object, so that `kubectl describe` and `kubectl events --for` show \
         it. Objects here are cluster-scoped: their events lie in the namespace `default`. The same event about the same object is \
         sent at most once in ten minutes. `olm_events_total` counts them.\n"
    );
    let kinds = observe::EVENTS.iter().map(|event| event.about);
    let mut kinds: Vec<&str> = kinds.collect();
    kinds.dedup();
    for kind in kinds {
        let _ = write!(out, "\n## {kind}\n\n| reason | type | when |\n|---|---|---|\n");
        for Event { reason, warning, meaning, .. } in
            observe::EVENTS.iter().filter(|event| event.about == kind)
        {
            let type_ = if *warning { "Warning" } else { "Normal" };
            let _ = writeln!(out, "| `{reason}` | {type_} | {meaning} |");
        }
    }
    out
}

fn conditions() -> String {
    let mut out = "<!-- Generated from api/src/condition.rs by `make generate`. Do not edit. -->\n\
         # Conditions\n\n\
         What `status.conditions` of each kind can hold. Reasons and their remedies: [troubleshooting](troubleshooting.md). \
         The metric is [`olm_cluster_extension_condition` or `olm_cluster_catalog_condition`](metrics.md).\n"
        .to_owned();
    for kind in [condition::EXTENSION, condition::CATALOG, condition::OBJECT_SET] {
        let _ = write!(out, "\n## {kind}\n\n| type | meaning | metric | event |\n|---|---|---|---|\n");
        for ConditionSpec { type_, meaning, in_metrics, event, .. } in condition::of_kind(kind) {
            let metric = if *in_metrics { "yes" } else { "no" };
            let event = event.map_or("-".to_owned(), |reason| format!("`{reason}`"));
            let _ = writeln!(out, "| `{type_}` | {meaning} | {metric} | {event} |");
        }
    }
    out
}

fn rules(alerts: &[Alert]) -> Result<String> {
    let rules: Vec<Value> = alerts
        .iter()
        .map(|alert| {
            json!({
                "alert": alert.name,
                "expr": alert.expression,
                "for": alert.holds,
                "labels": {"severity": alert.severity},
                "annotations": {"summary": alert.summary, "description": alert.description},
            })
        })
        .collect();
    let rule = json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "olm", "namespace": "olmv1-system", "labels": {"app.kubernetes.io/part-of": "olm"}},
        "spec": {"groups": [{"name": "olm", "rules": rules}]},
    });
    let head = "# Generated from hack/xtask/src/monitoring.toml by `make generate`. Do not edit.\n";
    Ok(format!("{head}{}", yaml::block(&rule)?))
}

fn dashboard(panels: &[Panel]) -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let panels: Vec<Value> = panels
        .iter()
        .enumerate()
        .map(|(index, panel)| {
            let table = panel.kind == "table";
            let targets: Vec<Value> = panel
                .targets
                .iter()
                .zip(["A", "B", "C"])
                .map(|((expression, legend), id)| {
                    json!({
                        "refId": id, "datasource": source, "expr": expression, "legendFormat": legend,
                        "instant": table, "format": if table { "table" } else { "time_series" },
                    })
                })
                .collect();
            json!({
                "id": index + 1, "title": panel.title, "type": panel.kind, "datasource": source, "targets": targets,
                "gridPos": {"h": 8, "w": 12, "x": index % 2 * 12, "y": index / 2 * 8},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
            })
        })
        .collect();
    let variables = json!([
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        {"name": "job", "type": "query", "query": "label_values(process_start_time_seconds, job)", "datasource": source,
         "includeAll": true, "multi": true},
    ]);
    json!({
        "title": "OLM", "uid": "olm-overview", "tags": ["olm"], "schemaVersion": 39, "version": 1, "editable": true,
        "time": {"from": "now-6h", "to": "now"}, "refresh": "1m",
        "templating": {"list": variables},
        "panels": panels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitoring_finds_names_of_no_metric() {
        assert_eq!(unknown("rate(workqueue_adds_total[5m])"), None);
        assert_eq!(unknown("workqueue_work_duration_seconds_bucket"), None);
        assert_eq!(unknown("up == 0"), None);
        for name in ["workqueue_work_duration_seconds", "workqueue_adds", "olm_nothing_total"] {
            assert_eq!(unknown(&format!("sum({name})")).as_deref(), Some(name));
        }
    }

    #[test]
    fn monitoring_alerts_have_a_description_and_severity() {
        for alert in toml::from_str::<Monitoring>(DATA).unwrap().alerts {
            assert!(alert.description.ends_with('.') && !alert.summary.ends_with('.'), "{}", alert.name);
            assert!(["info", "warning", "critical"].contains(&alert.severity.as_str()), "{}", alert.name);
            let labels = alert.summary.split("$labels.").skip(1);
            for label in labels.filter_map(|rest| rest.split_once(' ')).map(|(label, _)| label) {
                assert!(alert.expression.contains(label), "{}: {label} is lost by aggregation", alert.name);
            }
        }
    }
}
