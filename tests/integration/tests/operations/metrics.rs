//! `/metrics` of every process: the apiserver decides about access.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use olm_api::observe::{Component, Kind, METRICS};
use olm_kit::{Ca, Options, Stack, eventually};
use serde_json::json;

use crate::world::LIMIT;

#[tokio::test(flavor = "multi_thread")]
async fn metrics_require_authorization_by_the_apiserver() -> Result<()> {
    let stack =
        Stack::start_with(&Options::default(), |program| program.flag("--leader-elect", "true")).await?;
    eventually("both lead", LIMIT, || async {
        for process in [&stack.catalogd, &stack.operator_controller] {
            ensure!(process.log_text().contains("became leader"), "{}", process.name());
        }
        Ok(())
    })
    .await?;
    let namespace = stack.cluster.namespace("scrape").await?;
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "unbound", "namespace": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "scraper", "namespace": namespace}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": namespace},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
            "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": namespace}]}),
    ] {
        stack.cluster.apply(&object.to_string()).await?;
    }
    stack.cluster.until_may_get(&format!("system:serviceaccount:{namespace}:scraper"), "/metrics").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(stack.cluster.client().await?, &namespace);
    let token = |name: &'static str| {
        let accounts = accounts.clone();
        async move {
            let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
            let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
            answer.status.and_then(|status| status.token).context("no token")
        }
    };
    let (unauthorized, scraper) = (token("unbound").await?, token("scraper").await?);
    let client = Ca::shared()?.http_client()?;
    let denied = format!("Authorization denied for user system:serviceaccount:{namespace}:unbound\n");
    for process in [&stack.catalogd, &stack.operator_controller] {
        for (case, token, status, body) in [
            ("no token", None, 401, "Unauthorized\n"),
            ("no such token", Some("made-up"), 401, "Unauthorized\n"),
            ("a token that may not", Some(unauthorized.as_str()), 403, denied.as_str()),
            ("a token that may", Some(scraper.as_str()), 200, ""),
        ] {
            let mut request = client.get(format!("{}/metrics", process.metrics_url()));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let answer = request.send().await?;
            assert_eq!(answer.status(), status, "{} {case}", process.name());
            let text = answer.text().await?;
            if status == 200 {
                assert!(text.contains("\ncontroller_runtime_reconcile_total{"), "{}: {text}", process.name());
                described(process.name(), &text)?;
            } else {
                assert_eq!(text, body, "{} {case}", process.name());
            }
        }
    }
    Ok(())
}

/// The metrics that a process serves are those that the table of docs, dashboard and alerts has for it.
fn described(process: &str, text: &str) -> Result<()> {
    let shown = |from: Component| from == Component::Every || from.name() == process;
    let expected = || METRICS.iter().filter(|metric| shown(metric.from));
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) => {
                let metric = expected().find(|metric| metric.name == name);
                let metric =
                    metric.with_context(|| format!("{process} shows {name}, which is in no table"))?;
                let want = if what == "HELP" { metric.help } else { metric.kind.name() };
                assert_eq!(rest, want, "{process}: {line}");
            }
            _ => series(process, line)?,
        }
    }
    for metric in expected() {
        let events = ["olm_events_total", "olm_webhook_certificate_expiry_timestamp_seconds"];
        let optional = events.contains(&metric.name) || metric.name.starts_with("catalogd_http");
        assert!(
            optional || text.contains(&format!("# TYPE {} ", metric.name)),
            "{process} does not show {}",
            metric.name
        );
    }
    Ok(())
}

/// One sample: its labels are those of the table.
fn series(process: &str, line: &str) -> Result<()> {
    let name = line.split(['{', ' ']).next().unwrap_or_default();
    let base = |end: &str| name.strip_suffix(end).unwrap_or(name);
    let metric = METRICS.iter().find(|metric| match metric.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|end| base(end) == metric.name),
        Kind::Counter | Kind::Gauge => metric.name == name,
    });
    let metric = metric.with_context(|| format!("{process}: {line}"))?;
    let inside =
        line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(inside, _)| inside);
    let mut labels: Vec<&str> = inside
        .split("\",")
        .filter_map(|label| label.split_once("=\"").map(|(name, _)| name))
        .filter(|label| *label != "le")
        .collect();
    labels.sort_unstable();
    assert_eq!(labels, metric.labels, "{process}: {line}");
    Ok(())
}
