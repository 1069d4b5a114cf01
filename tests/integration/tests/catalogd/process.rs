//! The program itself: its error messages when it cannot start, its probes and metrics, the replacement of a serving
//! certificate, and the shutdown while a client is still reading.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, PostParams};
use olm_api::{ClusterCatalog, condition};
use olm_kit::{Ca, CatalogImage, Cluster, Program, Registry, RunDir, Wait, eventually};
use serde_json::json;
use tokio::sync::{Mutex, OnceCell};

const LIMIT: Duration = Duration::from_secs(60);

/// Held by a test whose process writes to catalogs of [`world`]: every process leads.
static TURN: Mutex<()> = Mutex::const_new(());

/// One control plane and one registry.
async fn world() -> Result<(&'static Cluster, &'static Registry)> {
    static WORLD: OnceCell<(Cluster, Registry)> = OnceCell::const_new();
    let started = WORLD.get_or_try_init(|| async {
        let cluster = Cluster::start().await?;
        cluster.install_crds().await?;
        anyhow::Ok((cluster, Registry::start().await?))
    });
    let (cluster, registry) = started.await?;
    Ok((cluster, registry))
}

/// Creates a catalog and waits until the only process serves it.
async fn served(cluster: &Cluster, registry: &Registry, name: &str, image: &CatalogImage) -> Result<()> {
    let pushed = registry.push(name, "1", &image.image()).await?;
    let api: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    crate::create(&api, name, json!({ "ref": pushed.by_tag() })).await?;
    Wait::new(&api, name).within(LIMIT).for_condition(condition::SERVING, "True").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[rustfmt::skip]
async fn settings_that_are_invalid_end_with_an_error_message() -> Result<()> {
    let (cluster, _) = world().await?;
    for (name, program, words) in [
        ("half a pair", Program::catalogd(cluster)?.without("--tls-key"), "Error: tls-cert and tls-key flags must be used together"),
        ("metrics without a pair", Program::catalogd(cluster)?.without("--tls-key").without("--tls-cert"),
            "Error: catalog content is served over TLS only; give tls-cert and tls-key"),
        ("no such pair", Program::catalogd(cluster)?.flag("--tls-cert", "/no/such.crt"),
            "Error: failed to initialize certificate watcher: "),
        ("pull secret", Program::catalogd(cluster)?.flag("--global-pull-secret", "a/b/c"),
            "Error: value of global-pull-secret should be of the format <namespace>/<name>"),
        ("gate", Program::catalogd(cluster)?.flag("--feature-gates", "Nonsense=true"), "Nonsense"),
        ("profile", Program::catalogd(cluster)?.flag("--tls-profile", "x"), "Error: unknown TLS profile: \"x\""),
    ] {
        let mut process = program.launch()?;
        let wait = tokio::task::spawn_blocking(move || {
            let ended = process.child().wait(LIMIT);
            (ended, process.child().exited().and_then(|status| status.code()), process.log_text())
        });
        let (ended, code, log) = wait.await?;
        assert!(ended && code == Some(1) && log.contains(words), "{name}: {code:?} {log}");
    }
    let output = Command::new(olm_kit::built("catalogd")?).arg("version").output()?;
    let text = String::from_utf8(output.stdout)?;
    let inner: String = serde_json::from_str(text.trim())?;
    assert!(output.status.success() && inner.starts_with("version: "), "{text}");
    for fact in ["commit: ", "date: ", "state: "] {
        assert!(inner.contains(fact), "{inner}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_metrics_have_the_reference_names() -> Result<()> {
    let (cluster, _) = world().await?;
    let _turn = TURN.lock().await;
    // its own, because it is killed
    let mut registry = Registry::start().await?;
    let catalogd = Program::catalogd(cluster)?.start().await?;
    served(cluster, &registry, "measured", &CatalogImage::from_text("schema: olm.package\nname: m\n"))
        .await?;
    let http = Ca::shared()?.http_client()?;
    let content = format!("{}/catalogs/measured/api/v1/all", catalogd.content_url());
    assert_eq!(http.get(&content).send().await?.status(), 200);
    let handled = "catalogd-http-server: handled request host=127.0.0.1 username=\"-\" method=GET uri=";
    // written when the answer has ended, which the client may see first
    let line = eventually("the request is logged", LIMIT, || async {
        let log = catalogd.log_text();
        log.lines().find(|line| line.contains(handled)).map(str::to_owned).context("no access log")
    })
    .await?;
    assert!(line.contains(&content) && line.contains("protocol=HTTP/2.0 status=200 size="), "{line}");
    for (path, code) in [
        ("/healthz", 200),
        ("/healthz/healthz", 200),
        ("/readyz", 200),
        ("/readyz/catalog-server", 200),
        ("/nothing", 404),
    ] {
        let answer = http.get(format!("{}{path}", catalogd.health_url())).send().await?;
        assert_eq!(answer.status(), code, "{path}");
    }

    let metrics = format!("{}/metrics", catalogd.metrics_url());
    assert_eq!(http.get(&metrics).send().await?.status(), 401, "nobody");
    assert_eq!(http.get(&metrics).bearer_auth("nonsense").send().await?.status(), 401, "a wrong token");
    let client = cluster.client().await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
    let account = json!({ "metadata": { "name": "scraper" } });
    accounts.create(&PostParams::default(), &serde_json::from_value(account)?).await?;
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let token = accounts.create_token_request("scraper", &PostParams::default(), &request).await?;
    let token = token.status.and_then(|status| status.token).context("no token")?;
    let status = http.get(&metrics).bearer_auth(&token).send().await?.status();
    assert_eq!(status, 403, "a user without the right");
    cluster
        .apply(
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: scraper}, \
             rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}\n---\n\
             {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: scraper}, \
             roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}, \
             subjects: [{kind: ServiceAccount, name: scraper, namespace: default}]}",
        )
        .await?;
    // A denied review is cached for half a minute.
    let text = eventually("metrics are shown", LIMIT, || async {
        let answer = http.get(&metrics).bearer_auth(&token).send().await?;
        ensure!(answer.status() == 200, "{}", answer.status());
        Ok(answer.text().await?)
    })
    .await?;
    for line in [
        "catalogd_http_request_duration_seconds_bucket{le=\"0.1\",code=\"200\"}",
        "catalogd_http_request_duration_seconds_bucket{le=\"10.0\",code=\"200\"}",
        "controller_runtime_reconcile_total{controller=\"catalogd-clustercatalog-controller\",result=\"success\"}",
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_terminal_reconcile_errors_total",
        "controller_runtime_reconcile_time_seconds",
        "controller_runtime_active_workers",
        "controller_runtime_max_concurrent_reconciles",
        "rest_client_requests_total",
        "certwatcher_read_certificate_total",
        "process_cpu_seconds_total",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let catalogs: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    let unpacked = catalogs.get("measured").await?.status.and_then(|status| status.last_unpacked);
    let unpacked = unpacked.context("not unpacked")?.0.as_second();
    // {"name":"m","schema":"olm.package"} and the end of the line
    for line in [
        "catalogd_content_bytes{catalog=\"measured\"} 36".to_owned(),
        "catalogd_content_objects{catalog=\"measured\"} 1".to_owned(),
        format!("catalogd_content_unpacked_timestamp_seconds{{catalog=\"measured\"}} {unpacked}"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let bytes = text.lines().filter(|line| line.starts_with("catalogd_content_bytes{")).count();
    let served = format!("catalogd_served_catalogs {bytes}");
    assert!(bytes > 0 && text.lines().any(|line| line == served), "{served} is not in\n{text}");

    // A replica with an empty disk is not ready before it serves the content that the status names.
    drop(catalogd);
    registry.child()?.kill();
    let mut other = Program::catalogd(cluster)?.launch()?;
    let probe = format!("{}/readyz/catalog-server", other.health_url());
    eventually("readiness waits for the content", LIMIT, || async {
        let answer = http.get(&probe).send().await?;
        ensure!(answer.status() == 500, "{}", answer.status());
        ensure!(other.log_text().contains("catalogs not yet served: measured"), "{}", other.log_text());
        Ok(())
    })
    .await?;
    registry.start_again().await?;
    other.wait_ready().await?;
    let content = format!("{}/catalogs/measured/api/v1/all", other.content_url());
    assert_eq!(http.get(&content).send().await?.status(), 200);
    // Its registry ends with this test: no other process could become ready.
    catalogs.delete("measured", &DeleteParams::default()).await?;
    Wait::new(&catalogs, "measured").within(LIMIT).to_be_gone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_is_replaced_without_restart() -> Result<()> {
    // its own, beside which the other tests run: it waits for most of its time
    let cluster = Cluster::start().await?;
    cluster.install_crds().await?;
    let own = RunDir::new("pair")?;
    let (old, new) =
        (Ca::create(&own.path().join("old"), "old")?, Ca::create(&own.path().join("new"), "new")?);
    let (first, second) = (old.server("a", &[])?, new.server("b", &[])?);
    let (certificate, key) = (own.path().join("tls.crt"), own.path().join("tls.key"));
    std::fs::copy(&first.certificate, &certificate)?;
    std::fs::copy(&first.key, &key)?;
    let text = |path: &std::path::Path| path.display().to_string();
    let catalogd = Program::catalogd(&cluster)?
        .flag("--tls-cert", &text(&certificate))
        .flag("--tls-key", &text(&key))
        .start()
        .await?;
    let url = format!("{}/catalogs/nothing/api/v1/all", catalogd.content_url());
    // A client of its own for each request, so that each is a handshake.
    let get = async |ca: &Ca, url: &str| anyhow::Ok(ca.http_client()?.get(url).send().await?.status());
    assert_eq!(get(&old, &url).await?, 404);
    assert!(get(&new, &url).await.is_err());

    // Half a change is none: the pair does not fit, the old one is shown on.
    std::fs::copy(&second.key, &key)?;
    eventually("the bad pair is noticed", LIMIT, || async {
        let log = catalogd.log_text();
        ensure!(log.contains("WARN") || log.contains("ERROR"), "{log}");
        Ok(())
    })
    .await?;
    assert_eq!(get(&old, &url).await?, 404);
    std::fs::copy(&second.certificate, &certificate)?;
    eventually("the new certificate is shown", LIMIT, || async { get(&new, &url).await }).await?;
    assert!(get(&old, &url).await.is_err());
    let metrics = format!("{}/metrics", catalogd.metrics_url());
    assert_eq!(get(&new, &metrics).await?, 401, "the same pair serves metrics");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_finishes_running_downloads_and_exits_with_0() -> Result<()> {
    let (cluster, registry) = world().await?;
    let _turn = TURN.lock().await;
    let mut catalogd = Program::catalogd(cluster)?.start().await?;
    // More than all socket buffers hold.
    let pad = "x".repeat(1000);
    let bundles: String = (0..24_000)
        .map(|n| format!("{{\"name\":\"b{n}\",\"pad\":\"{pad}\",\"schema\":\"olm.bundle\"}}\n"))
        .collect();
    served(cluster, registry, "large", &CatalogImage::new().file("c.json", &bundles)).await?;
    let http = Ca::shared()?.http_client()?;
    let url = format!("{}/catalogs/large/api/v1/all", catalogd.content_url());
    let mut answer = http.get(&url).send().await?;
    let length = answer.content_length().context("no length")?;
    let mut got = answer.chunk().await?.context("no bytes")?.len() as u64;

    let stopping = tokio::task::spawn_blocking(move || (catalogd.stop(), catalogd));
    eventually("no new connection is taken", LIMIT, || async {
        ensure!(http.get(&url).send().await.is_err(), "still taken");
        Ok(())
    })
    .await?;
    assert!(!stopping.is_finished(), "the process waits for the download");
    while let Some(chunk) = answer.chunk().await? {
        got += chunk.len() as u64;
    }
    assert_eq!(got, length);
    let (success, catalogd) = stopping.await?;
    assert!(success, "exit code: {}", catalogd.log_text());
    // The next process removes the finalizer, so that no later test pulls so much.
    let api: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    api.delete("large", &DeleteParams::default()).await?;
    Ok(())
}
