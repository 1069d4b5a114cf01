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
    let profiles = format!("127.0.0.1:{}", olm_kit::free_port()?);
    let stack = Stack::start_with(&Options::default(), |program| match program.name() {
        "catalogd" => program.flag("--leader-elect", "true").flag("--pprof-bind-address", &profiles),
        _ => program.flag("--leader-elect", "true"),
    })
    .await?;
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
            "rules": [{"nonResourceURLs": ["/metrics", "/debug/pprof/*"], "verbs": ["get"]}]}),
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
    report_reads_metrics_and_profiles(&stack, &format!("https://{profiles}"), &scraper).await
}

/// `kubectl olm report`: what one address serves is not missed at the other, and what none serves is named.
async fn report_reads_metrics_and_profiles(stack: &Stack, profiles: &str, token: &str) -> Result<()> {
    let home = tempfile::tempdir()?;
    let token_file = home.path().join("token");
    std::fs::write(&token_file, token)?;
    let metrics = stack.catalogd.metrics_url();
    let report = |name: &'static str, urls: Vec<String>| {
        let mut command = std::process::Command::new(olm_kit::built("kubectl-olm")?);
        command.env("KUBECONFIG", stack.cluster.kubeconfig()).arg("report");
        command.arg("--output").arg(home.path().join(name));
        command.arg("--metrics-token-file").arg(&token_file);
        command.arg("--metrics-cas-dir").arg(Ca::shared()?.dir());
        command.args(urls.iter().flat_map(|url| ["--metrics-url", url]));
        anyhow::Ok(tokio::task::spawn_blocking(move || command.output()))
    };
    let output = report("both", vec![metrics.clone(), profiles.to_owned()])?.await??;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let of = |url: &str, file: &str| {
        let host = url.trim_start_matches("https://").replace(':', "_");
        std::fs::read(home.path().join("both/metrics").join(host).join(file))
            .with_context(|| format!("{url} {file}"))
    };
    ensure!(of(&metrics, "metrics.txt")?.starts_with(b"# HELP "), "no metrics");
    ensure!(!of(profiles, "heap.txt")?.is_empty(), "no memory");
    ensure!(of(profiles, "profile.pb.gz")?.starts_with(&[0x1f, 0x8b]), "no profile in gzip");
    let summary = std::fs::read_to_string(home.path().join("both/summary.txt"))?;
    for part in ["/metrics:", "/debug/pprof/heap:", "/debug/pprof/profile"] {
        let missed = summary.split_once("\nNot read\n").map_or("", |(_, missed)| missed);
        ensure!(!missed.lines().any(|line| line.trim().starts_with(part)), "{part}: {summary}");
    }

    let output = report("one", vec![metrics])?.await??;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary = std::fs::read_to_string(home.path().join("one/summary.txt"))?;
    let missed = "/debug/pprof/heap: no --metrics-url serves it; a program does at its --pprof-bind-address";
    ensure!(summary.contains(missed), "{summary}");
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
        let is_shown = text.contains(&format!("# TYPE {} ", metric.name));
        assert!(optional || is_shown, "{process} does not show {}", metric.name);
    }
    Ok(())
}

/// One sample: its labels are those of the table.
fn series(process: &str, line: &str) -> Result<()> {
    let name = line.split(['{', ' ']).next().unwrap_or_default();
    let base = |end: &str| name.strip_suffix(end).unwrap_or(name);
    let metric = METRICS.iter().find(|metric| match metric.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|end| base(end) == metric.name),
        Kind::Summary => ["", "_sum", "_count"].iter().any(|end| base(end) == metric.name),
        Kind::Counter | Kind::Gauge => metric.name == name,
    });
    let metric = metric.with_context(|| format!("{process}: {line}"))?;
    let inside =
        line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(inside, _)| inside);
    let mut labels: Vec<&str> = inside
        .split("\",")
        .filter_map(|label| label.split_once("=\"").map(|(name, _)| name))
        .filter(|label| !["le", "quantile"].contains(label))
        .collect();
    labels.sort_unstable();
    assert_eq!(labels, metric.labels, "{process}: {line}");
    Ok(())
}
