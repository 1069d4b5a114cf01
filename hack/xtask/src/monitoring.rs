//! docs/metrics.md, docs/events.md and the Prometheus alerts: made from the tables of `olm_api::observe`, and from the alerts of
//! `monitoring.toml`. The Grafana dashboard is a file of its own, which is checked. [`query`] has the rules for the queries of both.

mod dashboard;
mod query;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use olm_api::classic;
use olm_api::condition::{self, ConditionSpec};
use olm_api::observe::{self, Component, Event, METRICS};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::yaml;
use query::Scope;

/// Alerts, with the expressions that Prometheus evaluates.
const DATA: &str = include_str!("monitoring.toml");
const DASHBOARD: &str = "manifests/monitoring/dashboard.json";
/// The page with a heading for each alert. The link check reports a heading that is missing, because docs/metrics.md links to it.
const RUNBOOK: &str = "troubleshooting.md";
/// The folder of that page for a reader of an alert.
const RUNBOOK_BASE: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Monitoring {
    #[serde(rename = "alert")]
    alerts: Vec<Alert>,
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

impl Alert {
    /// The page and heading, from the folder docs.
    fn runbook(&self) -> String {
        format!("{RUNBOOK}#{}", self.name.to_lowercase())
    }
}

/// The generated files.
pub(crate) fn files() -> Result<Vec<(PathBuf, String)>> {
    let Monitoring { alerts } = toml::from_str(DATA).context("hack/xtask/src/monitoring.toml")?;
    for alert in &alerts {
        query::check(&alert.expression, Scope::Alert).with_context(|| alert.name.clone())?;
    }
    Ok(vec![
        ("docs/metrics.md".into(), metrics(&alerts)),
        ("docs/events.md".into(), events()),
        ("docs/conditions.md".into(), conditions()),
        ("manifests/monitoring/prometheus-rule.yaml".into(), rules(&alerts)?),
    ])
}

/// Fails if the dashboard asks for what no program exposes, or would not work in another Grafana.
pub(crate) fn check(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join(DASHBOARD)).context(DASHBOARD)?;
    dashboard::check(&text).context(DASHBOARD)
}

const HEAD: &str = "<!-- Generated from api/src/observe.rs by `make generate`. Do not edit. -->\n";

fn metrics(alerts: &[Alert]) -> String {
    let mut out = format!(
        "{HEAD}# Metrics\n\n\
         Served under `/metrics` over TLS, for tokens whose user may `get` that path (401 without one or with a wrong one, 403 without \
         the permission); text format 0.0.4, or OpenMetrics if `Accept` asks for it. catalogd: `:7443`, operator-controller: `:8443`; \
         see `--metrics-bind-address`.\n\n\
         [Operations](operations.md#metrics-alerts-events) explains how to scrape them, and lists the service levels.\n"
    );
    for (from, title) in [
        (
            Component::OperatorController,
            "## operator-controller\n\nOnly the leader shows those that begin with `olm_cluster_`.",
        ),
        (Component::Catalogd, "## catalogd"),
        (Component::ClusterOperator, "## cluster-operator"),
        (
            Component::ClassicController,
            "## classic-controller\n\nThe names are those of OLM Classic. An object that is gone has no series.",
        ),
        (
            Component::Every,
            "## Every process\n\nThe names are those of controller-runtime, its work queue and client, and of Prometheus clients.",
        ),
    ] {
        let _ = write!(out, "\n{title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n");
        let all = METRICS.iter().chain(classic::observe::METRICS);
        for metric in all.filter(|metric| metric.from == from) {
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
        "\n## Alerts\n\nThe annotation `runbook_url` of each alert is the link in its row.\n\n\
         | alert | severity | holds for | meaning |\n|---|---|---|---|\n",
    );
    for alert in alerts {
        let description = alert.description.replace("{{ $labels.name }}", "<name>");
        let description = description.replace("{{ $labels.exported_namespace }}", "<namespace>");
        let Alert { name, severity, holds, .. } = alert;
        let _ = writeln!(out, "| [`{name}`]({}) | {severity} | {holds} | {description} |", alert.runbook());
    }
    out
}

fn events() -> String {
    let mut out = format!(
        "{HEAD}# Events\n\n\
         What a user would ask about is reported as an event of the object, so that `kubectl describe` and `kubectl events --for` show \
         it. Events of objects without a namespace lie in the namespace `default`. The same event about the same object is \
         sent at most once in ten minutes; an object gets 50 events of a controller in a row, then one a minute. \
         `olm_events_total` counts them.\n"
    );
    let all = || observe::EVENTS.iter().chain(classic::observe::EVENTS);
    let mut kinds: Vec<&str> = all().map(|event| event.about).collect();
    kinds.dedup();
    for kind in kinds {
        let _ = write!(out, "\n## {kind}\n\n| reason | type | when |\n|---|---|---|\n");
        for Event { reason, warning, meaning, .. } in all().filter(|event| event.about == kind) {
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
                "annotations": {
                    "summary": alert.summary,
                    "description": alert.description,
                    "runbook_url": format!("{RUNBOOK_BASE}/{}", alert.runbook()),
                },
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

#[cfg(test)]
mod tests {
    use super::*;

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
