//! docs/metrics.md, docs/events.md, the Grafana dashboard and the Prometheus alerts: made from the tables of `olm_api::observe`, and
//! from the panels and alerts below, whose expressions may ask for metrics of these tables only.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use olm_api::condition::{self, ConditionSpec};
use olm_api::observe::{self, Component, Event, Kind, METRICS};
use serde_json::{Value, json};

use crate::{promql, yaml};

/// Metrics that Prometheus itself makes.
const PROMETHEUS: &[&str] = &["up"];

struct Alert {
    name: &'static str,
    expression: &'static str,
    /// How long it must hold.
    holds: &'static str,
    severity: &'static str,
    summary: &'static str,
    /// What it means and what helps.
    description: &'static str,
}

const ALERTS: &[Alert] = &[
    Alert {
        name: "OLMExtensionNotReady",
        expression: r#"max by (name, reason) (olm_cluster_extension_condition{condition="Ready",status="False",reason!~"Paused|RollingOut"}) == 1"#,
        holds: "15m",
        severity: "warning",
        summary: "ClusterExtension {{ $labels.name }} is not ready ({{ $labels.reason }})",
        description: "What is wanted is not installed, not available or not wanted any more by its catalogs. `kubectl describe clusterextension {{ $labels.name }}` says why and what helps; `kubectl olm explain {{ $labels.name }}` explains the choice.",
    },
    Alert {
        name: "OLMExtensionUnavailable",
        expression: r#"max by (name) (olm_cluster_extension_condition{condition="Ready",status="False",reason="Unavailable"}) == 1"#,
        holds: "5m",
        severity: "critical",
        summary: "What ClusterExtension {{ $labels.name }} installed is not available",
        description: "The probes of an installed bundle fail. The message of its Ready condition names the object.",
    },
    Alert {
        name: "OLMExtensionRolloutStuck",
        expression: r#"max by (name) (olm_cluster_extension_condition{condition="Progressing",status="False",reason!="Paused"}) == 1"#,
        holds: "5m",
        severity: "warning",
        summary: "The rollout of ClusterExtension {{ $labels.name }} does not go on",
        description: "It is blocked, or its deadline has passed. Nothing happens before something is changed; the condition's message says what.",
    },
    Alert {
        name: "OLMExtensionDeprecated",
        expression: r#"max by (name) (olm_cluster_extension_condition{condition="Deprecated",status="True"}) == 1"#,
        holds: "1h",
        severity: "info",
        summary: "ClusterExtension {{ $labels.name }} uses something deprecated",
        description: "Its package, channel or bundle is deprecated by its author; the condition's message says what to use instead.",
    },
    Alert {
        name: "OLMCatalogNotServing",
        expression: r#"max by (name) (olm_cluster_catalog_condition{condition="Serving",status="False",reason!="UserSpecifiedUnavailable"}) == 1"#,
        holds: "10m",
        severity: "warning",
        summary: "ClusterCatalog {{ $labels.name }} is not served",
        description: "Its image could not be pulled or unpacked so far. Installed extensions go on; new ones that need it wait.",
    },
    Alert {
        name: "OLMCatalogNotUpdated",
        expression: r#"max by (name) (olm_cluster_catalog_condition{condition="Progressing",status="True",reason="Retrying"}) == 1"#,
        holds: "1h",
        severity: "warning",
        summary: "ClusterCatalog {{ $labels.name }} could not be updated for an hour",
        description: "Its registry cannot be asked, or its new content cannot be read; the old content is served meanwhile.",
    },
    Alert {
        name: "OLMNoLeader",
        expression: "max by (name) (leader_election_master_status) == 0",
        holds: "2m",
        severity: "critical",
        summary: "Nobody holds the lease {{ $labels.name }}",
        description: "All replicas wait and none works. Look at their logs: most likely they cannot reach the apiserver or may not write the Lease.",
    },
    Alert {
        name: "OLMReconcileErrors",
        expression: "sum by (controller) (rate(controller_runtime_reconcile_errors_total[15m])) > 0.1",
        holds: "30m",
        severity: "warning",
        summary: "Controller {{ $labels.controller }} fails again and again",
        description: "More than one pass in ten seconds failed for half an hour. The objects' conditions and the log say why.",
    },
    Alert {
        name: "OLMReconcilePanics",
        expression: "sum by (controller) (increase(controller_runtime_reconcile_panics_total[15m])) > 0",
        holds: "0m",
        severity: "critical",
        summary: "Controller {{ $labels.controller }} panicked",
        description: "A defect of this project. The log has the backtrace; please report it.",
    },
    Alert {
        name: "OLMWorkQueueStuck",
        expression: "max by (controller) (workqueue_longest_running_processor_seconds) > 600",
        holds: "5m",
        severity: "warning",
        summary: "A pass of controller {{ $labels.controller }} runs for more than ten minutes",
        description: "A registry or the apiserver answers very slowly, or a pass hangs.",
    },
    Alert {
        name: "OLMCatalogContentSlow",
        expression: "histogram_quantile(0.99, sum by (le) (rate(catalogd_http_request_duration_seconds_bucket[10m]))) > 4",
        holds: "15m",
        severity: "warning",
        summary: "One in a hundred requests for catalog content takes more than four seconds",
        description: "catalogd has too little processor time, or clients read slowly.",
    },
    Alert {
        name: "OLMServingCertificateEnds",
        expression: "min by (job, instance) (olm_serving_certificate_expiry_timestamp_seconds) - time() < 7 * 86400",
        holds: "1h",
        severity: "warning",
        summary: "The serving certificate of {{ $labels.job }} ends within a week",
        description: "It should have been rotated. Look at who issues it: cert-manager, the service CA or the process itself (docs/serving-certificates.md).",
    },
    Alert {
        name: "OLMServingCertificateUnreadable",
        expression: "sum by (job, instance) (increase(certwatcher_read_certificate_errors_total[1h])) > 0",
        holds: "0m",
        severity: "warning",
        summary: "{{ $labels.job }} could not take a new serving certificate",
        description: "The former one stays in use. The log says what is wrong with the new one.",
    },
    Alert {
        name: "OLMWebhookCertificateEnds",
        expression: "min by (extension, secret) (olm_webhook_certificate_expiry_timestamp_seconds) - time() < 7 * 86400",
        holds: "1h",
        severity: "critical",
        summary: "A webhook certificate of ClusterExtension {{ $labels.extension }} ends within a week",
        description: "The built-in issuer should have rotated it. Events of the extension say what stands in its way; when the certificate ends, the apiserver refuses what the webhook is asked about.",
    },
    Alert {
        name: "OLMBlocksClusterUpgrade",
        expression: "max by (extension, bundle) (olm_extension_blocks_cluster_upgrade) == 1",
        holds: "1h",
        severity: "info",
        summary: "ClusterExtension {{ $labels.extension }} stands in the way of the next version of the cluster",
        description: "Its installed bundle declares not to run on it. Upgrade or remove the extension; `kubectl olm upgrade-check` lists all.",
    },
    Alert {
        name: "OLMApiserverErrors",
        expression: r#"sum by (job, code) (rate(rest_client_requests_total{code=~"5..|<error>"}[10m])) > 0.5"#,
        holds: "15m",
        severity: "warning",
        summary: "{{ $labels.job }} gets errors ({{ $labels.code }}) from the apiserver",
        description: "Every two seconds or more often a request failed for a quarter of an hour.",
    },
];

/// A panel of the dashboard.
struct Panel {
    title: &'static str,
    kind: &'static str,
    unit: &'static str,
    /// Expressions with their legends.
    targets: &'static [(&'static str, &'static str)],
}

const PANELS: &[Panel] = &[
    Panel {
        title: "Extensions by readiness",
        kind: "timeseries",
        unit: "short",
        targets: &[(
            r#"count by (reason) (olm_cluster_extension_condition{condition="Ready"})"#,
            "{{reason}}",
        )],
    },
    Panel {
        title: "Extensions that are not ready",
        kind: "table",
        unit: "short",
        targets: &[(r#"olm_cluster_extension_condition{condition="Ready",status!="True"} == 1"#, "{{name}}")],
    },
    Panel {
        title: "Installed bundles",
        kind: "table",
        unit: "short",
        targets: &[("olm_cluster_extension_info == 1", "{{name}}")],
    },
    Panel {
        title: "Catalogs",
        kind: "table",
        unit: "short",
        targets: &[("olm_cluster_catalog_condition == 1", "{{name}}")],
    },
    Panel {
        title: "Revisions",
        kind: "timeseries",
        unit: "short",
        targets: &[("sum by (lifecycle_state) (olm_cluster_object_sets)", "{{lifecycle_state}}")],
    },
    Panel {
        title: "Events",
        kind: "timeseries",
        unit: "short",
        targets: &[("sum by (reason) (increase(olm_events_total[5m]))", "{{reason}}")],
    },
    Panel {
        title: "Passes per second",
        kind: "timeseries",
        unit: "ops",
        targets: &[(
            "sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))",
            "{{controller}} {{result}}",
        )],
    },
    Panel {
        title: "Time of a pass",
        kind: "timeseries",
        unit: "s",
        targets: &[
            (
                "histogram_quantile(0.5, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[5m])))",
                "{{controller}} median",
            ),
            (
                "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[5m])))",
                "{{controller}} 99 %",
            ),
        ],
    },
    Panel {
        title: "Waiting for a pass",
        kind: "timeseries",
        unit: "short",
        targets: &[("max by (controller) (workqueue_depth)", "{{controller}}")],
    },
    Panel {
        title: "Requests to the apiserver",
        kind: "timeseries",
        unit: "reqps",
        targets: &[(
            "sum by (job, method, code) (rate(rest_client_requests_total[5m]))",
            "{{job}} {{method}} {{code}}",
        )],
    },
    Panel {
        title: "Requests for catalog content",
        kind: "timeseries",
        unit: "reqps",
        targets: &[("sum by (code) (rate(catalogd_http_request_duration_seconds_count[5m]))", "{{code}}")],
    },
    Panel {
        title: "Time of an answer with catalog content",
        kind: "timeseries",
        unit: "s",
        targets: &[(
            "histogram_quantile(0.99, sum by (le) (rate(catalogd_http_request_duration_seconds_bucket[5m])))",
            "99 %",
        )],
    },
    Panel {
        title: "Size of served catalogs",
        kind: "timeseries",
        unit: "bytes",
        targets: &[("max by (catalog) (catalogd_content_bytes)", "{{catalog}}")],
    },
    Panel {
        title: "Leaders",
        kind: "timeseries",
        unit: "short",
        targets: &[("leader_election_master_status", "{{name}} {{instance}}")],
    },
    Panel {
        title: "Days until serving certificates end",
        kind: "timeseries",
        unit: "d",
        targets: &[
            (
                "(min by (job, instance) (olm_serving_certificate_expiry_timestamp_seconds) - time()) / 86400",
                "{{job}} {{instance}}",
            ),
            (
                "(min by (extension, secret) (olm_webhook_certificate_expiry_timestamp_seconds) - time()) / 86400",
                "{{extension}} {{secret}}",
            ),
        ],
    },
    Panel {
        title: "Memory",
        kind: "timeseries",
        unit: "bytes",
        targets: &[(r#"process_resident_memory_bytes{job=~"$job"}"#, "{{job}} {{instance}}")],
    },
    Panel {
        title: "Processor",
        kind: "timeseries",
        unit: "percentunit",
        targets: &[(r#"rate(process_cpu_seconds_total{job=~"$job"}[5m])"#, "{{job}} {{instance}}")],
    },
];

/// The four files.
pub(crate) fn files() -> Result<Vec<(PathBuf, String)>> {
    let panels = PANELS
        .iter()
        .flat_map(|panel| panel.targets.iter().map(|(expression, _)| (panel.title, *expression)));
    let alerts = ALERTS.iter().map(|alert| (alert.name, alert.expression));
    for (title, expression) in panels.chain(alerts) {
        if let Some(unknown) = unknown(expression) {
            bail!("{title} asks for {unknown}, which is not in the table of api/src/observe.rs");
        }
    }
    Ok(vec![
        ("docs/metrics.md".into(), metrics()),
        ("docs/events.md".into(), events()),
        ("docs/conditions.md".into(), conditions()),
        ("manifests/monitoring/dashboard.json".into(), format!("{:#}\n", dashboard())),
        ("manifests/monitoring/prometheus-rule.yaml".into(), rules()?),
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
    PROMETHEUS.contains(&name) || METRICS.iter().any(of)
}

const HEAD: &str = "<!-- Generated from api/src/observe.rs by `make generate`. Do not edit. -->\n";

fn metrics() -> String {
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
        let _ = write!(out, "\n{title}\n\n| metric | kind | labels | what it says |\n|---|---|---|---|\n");
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
    for alert in ALERTS {
        let description = alert.description.replace("{{ $labels.name }}", "<name>");
        let _ = writeln!(out, "| `{}` | {} | {} | {description} |", alert.name, alert.severity, alert.holds);
    }
    out
}

fn events() -> String {
    let mut out = format!(
        "{HEAD}# Events\n\n\
         What a user would ask about is told as an event of the object, so that `kubectl describe` and `kubectl events --for` show \
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

fn rules() -> Result<String> {
    let rules: Vec<Value> = ALERTS
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
    let head = "# Generated from hack/xtask/src/monitoring.rs by `make generate`. Do not edit.\n";
    Ok(format!("{head}{}", yaml::block(&rule)?))
}

fn dashboard() -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let panels: Vec<Value> = PANELS
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
    let pick = |name: &str, kind: &str, query: &str| json!({"name": name, "type": kind, "query": query});
    let mut job = pick("job", "query", "label_values(process_start_time_seconds, job)");
    if let Some(job) = job.as_object_mut() {
        job.insert("datasource".to_owned(), source.clone());
        job.insert("includeAll".to_owned(), true.into());
        job.insert("multi".to_owned(), true.into());
    }
    json!({
        "title": "OLM", "uid": "olm-overview", "tags": ["olm"], "schemaVersion": 39, "version": 1, "editable": true,
        "time": {"from": "now-6h", "to": "now"}, "refresh": "1m",
        "templating": {"list": [pick("datasource", "datasource", "prometheus"), job]},
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
        for alert in ALERTS {
            assert!(alert.description.ends_with('.') && !alert.summary.ends_with('.'), "{}", alert.name);
            assert!(["info", "warning", "critical"].contains(&alert.severity), "{}", alert.name);
            let labels = alert.summary.split("$labels.").skip(1);
            for label in labels.filter_map(|rest| rest.split_once(' ')).map(|(label, _)| label) {
                assert!(alert.expression.contains(label), "{}: {label} is lost by aggregation", alert.name);
            }
        }
    }
}
