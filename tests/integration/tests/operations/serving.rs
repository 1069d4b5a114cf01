//! Self-issued serving certificates: one for all replicas, persistent over restarts, rotated while clients call, and the only one
//! that a client with its CA trusts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_certificates::PublishedCa;
use olm_certificates::material::authorities;
use olm_kit::{
    BundleImage, Ca, Cluster, Entry, Options, Process, Program, SYSTEM_NAMESPACE, Stack, Wait, eventually,
};
use olm_runtime::Shutdown;
use olm_runtime::tls::{CaPool, TlsSettings};
use serde_json::json;

use crate::world::{LIMIT, World};

const NAME: &str = "catalogd-serving-cert";
/// Before each request of a client that never stops: handshakes of unoptimized programs would take both processors otherwise.
const PAUSE: Duration = Duration::from_millis(20);

/// Without certificate files.
fn self_issued(program: Program, name: &str) -> Program {
    program.without("--tls-cert").without("--tls-key").flag("--tls-self-issued", name)
}

async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    cluster.install_olm().await?;
    Ok(cluster)
}

async fn objects(cluster: &Cluster) -> Result<(Api<Secret>, Api<ConfigMap>)> {
    let client = cluster.client().await?;
    Ok((Api::namespaced(client.clone(), SYSTEM_NAMESPACE), Api::namespaced(client, SYSTEM_NAMESPACE)))
}

/// A client that trusts this PEM text and nothing else.
fn client(pem: &str) -> Result<reqwest::Client> {
    olm_runtime::tls::install_provider();
    let trusted = authorities(pem)
        .iter()
        .map(|one| reqwest::Certificate::from_pem(one.pem.as_bytes()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(reqwest::Client::builder()
        .tls_certs_only(trusted)
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()?)
}

async fn answers(client: &reqwest::Client, process: &Process) -> Result<()> {
    for (url, want) in [(process.content_url(), 404), (process.metrics_url(), 404)] {
        let answer = client.get(format!("{url}/none")).send().await.with_context(|| url.clone())?;
        ensure!(answer.status() == want, "{url}: {}", answer.status());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_is_shared_by_replicas_and_kept() -> Result<()> {
    let cluster = cluster().await?;
    let (secrets, maps) = objects(&cluster).await?;
    // an empty ConfigMap, as manifests may create it, is taken
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE}});
    cluster.apply(&empty.to_string()).await?;
    let program = || Program::catalogd(&cluster).map(|program| self_issued(program, NAME));
    let (first, second, third) = (program()?.start(), program()?.start(), program()?.start());
    let (mut first, second, third) = tokio::try_join!(first, second, third)?;

    let published = maps.get(NAME).await?.data.context("no data")?["ca.crt"].clone();
    assert_eq!(authorities(&published).len(), 1, "three replicas end with one CA: {published}");
    let trusting = client(&published)?;
    for process in [&first, &second, &third] {
        answers(&trusting, process).await?;
    }
    let distrusting = Ca::shared()?.http_client()?;
    let refused = distrusting.get(first.content_url()).send().await.unwrap_err();
    assert!(refused.is_connect(), "who trusts another CA does not get through: {refused}");

    let before = secrets.get(NAME).await?;
    assert_eq!(before.type_.as_deref(), Some("kubernetes.io/tls"));
    first.restart().await?;
    answers(&trusting, &first).await?;
    let after = secrets.get(NAME).await?;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version, "a restart writes nothing");

    // deleted: one of them issues another, and the certificate that they serve with until then stays trusted
    secrets.delete(NAME, &DeleteParams::default()).await?;
    let again = Wait::new(&secrets, NAME)
        .until("is another one", |secret| secret.metadata.uid != before.metadata.uid)
        .await?;
    let certificate = String::from_utf8(again.data.context("no data")?["tls.crt"].0.clone())?;
    eventually("every replica serves with the new one", LIMIT, || async {
        let published = maps.get(NAME).await?.data.context("no data")?["ca.crt"].clone();
        ensure!(authorities(&published).len() == 2, "the former CA is still trusted: {published}");
        let newest = authorities(&published).into_iter().filter(|one| !before_has(&before, &one.pem));
        let newest = client(&newest.map(|one| one.pem).collect::<String>())?;
        for process in [&first, &second, &third] {
            answers(&newest, process).await?;
        }
        Ok(())
    })
    .await?;
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"));
    Ok(())
}

fn before_has(secret: &Secret, pem: &str) -> bool {
    let data = secret.data.as_ref().and_then(|data| data.get("ca.crt"));
    data.is_some_and(|ca| String::from_utf8_lossy(&ca.0).contains(pem.trim()))
}

/// Certificates that live for half a minute are rotated all the time, each in the middle of its life: neither a process nor a client
/// that stops for some seconds meets its end. Clients that follow the ConfigMap notice nothing.
#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_rotation_fails_no_request() -> Result<()> {
    let cluster = cluster().await?;
    let (secrets, _) = objects(&cluster).await?;
    let short = |program: Program| self_issued(program, NAME).flag("--tls-self-issued-validity", "30s");
    let (first, second) =
        (short(Program::catalogd(&cluster)?).start(), short(Program::catalogd(&cluster)?).start());
    let (first, second) = tokio::try_join!(first, second)?;
    let stop = Shutdown::new();
    let published = PublishedCa::new(SYSTEM_NAMESPACE, NAME);
    tokio::spawn(Arc::clone(&published).watch(cluster.client().await?, stop.clone()));
    eventually("the CA is seen", LIMIT, || async { Ok(published.certificates().map(drop)?) }).await?;

    let (done, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut callers = tokio::task::JoinSet::new();
    for url in [first.content_url(), second.content_url(), first.metrics_url(), second.metrics_url()] {
        let (published, done, requests) = (Arc::clone(&published), Arc::clone(&done), Arc::clone(&requests));
        callers.spawn(async move {
            let settings = TlsSettings::parse("intermediate", &[], &[], "TLSv1.2")?;
            while !done.load(Ordering::Relaxed) {
                tokio::time::sleep(PAUSE).await;
                // a client for each request, as operator-controller does it: every request shakes hands
                let pool = CaPool::given(published.certificates()?, None)?;
                let client = reqwest::Client::builder()
                    .tls_backend_preconfigured(pool.client_config(&settings)?)
                    .no_proxy()
                    .timeout(LIMIT)
                    .build()?;
                client.get(format!("{url}/none")).send().await?;
                requests.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    let mut served = std::collections::BTreeSet::new();
    Wait::new(&secrets, NAME)
        .within(2 * LIMIT)
        .until("was rotated three times", |secret| {
            served.extend(secret.data.as_ref().and_then(|data| data.get("tls.crt")).map(|pem| pem.0.clone()));
            served.len() >= 4
        })
        .await?;
    done.store(true, Ordering::Relaxed);
    while let Some(caller) = callers.join_next().await {
        caller?.context("a request failed")?;
    }
    let requests = requests.load(Ordering::Relaxed);
    eprintln!("{requests} requests over {} certificates, none failed", served.len());
    assert!(requests > 100, "{requests}");
    stop.cancel();
    Ok(())
}

/// The ConfigMap decides: with another CA in it catalogd is not trusted, and the fix needs no restart.
#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_is_trusted_through_the_published_ca_only() -> Result<()> {
    let stack = Stack::start_with(&Options::default(), |program| {
        let catalogd = program.name() == "catalogd";
        let program = self_issued(program, if catalogd { NAME } else { "operator-controller-serving-cert" });
        if catalogd {
            return program;
        }
        program
            .without("--catalogd-cas-dir")
            .flag("--catalogd-ca-config-map", "trusted-by-operator-controller")
            .flag("--tls-self-issued-names", "127.0.0.1")
    })
    .await?;
    let stack: &'static Stack = Box::leak(Box::new(stack));
    let (_, maps) = objects(&stack.cluster).await?;
    let trust = |pem: String| {
        let maps = maps.clone();
        async move {
            let name = "trusted-by-operator-controller";
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"ca.crt": pem}});
            maps.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&map)).await?;
            anyhow::Ok(())
        }
    };
    let world = World::on(stack, "trust").await?;
    world.serve([("1.0.0", BundleImage::new(&world.name, "1.0.0").crds([]))], [Entry::new("1.0.0")]).await?;

    world.want(json!({})).await?;
    let message =
        world.progressing("Retrying", "ConfigMap olmv1-system/trusted-by-operator-controller").await?;
    assert!(message.contains("ConfigMap olmv1-system/trusted-by-operator-controller"), "{message}");

    trust(Ca::shared()?.pem()).await?;
    eventually("catalogd is not believed", LIMIT, || async {
        world.again().await?;
        let message = world.progressing("Retrying", "").await?;
        ensure!(message.contains("invalid peer certificate"), "{message}");
        Ok(())
    })
    .await?;

    let right = maps.get(NAME).await?.data.context("no data")?["ca.crt"].clone();
    trust(right).await?;
    world.installed("1.0.0").await?;

    let own = maps.get("operator-controller-serving-cert").await?.data.context("no data")?["ca.crt"].clone();
    let answer =
        client(&own)?.get(format!("{}/metrics", stack.operator_controller.metrics_url())).send().await?;
    assert_eq!(answer.status(), 401, "metrics are served with its own certificate");
    Ok(())
}

/// A Secret of another writer is not replaced.
#[tokio::test]
async fn serving_certificate_rejects_a_foreign_secret() -> Result<()> {
    let cluster = cluster().await?;
    let (secrets, _) = objects(&cluster).await?;
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE},
        "stringData": {"tls.crt": "theirs"}});
    cluster.apply(&foreign.to_string()).await?;
    let mut process = self_issued(Program::catalogd(&cluster)?, NAME).launch()?;
    assert!(process.child().wait(Duration::from_secs(30)), "it ends");
    let log = process.log_text();
    let why =
        "Secret olmv1-system/catalogd-serving-cert exists and was not written by this program; delete it";
    assert!(log.contains(why), "{log}");
    let kept = secrets.get(NAME).await?.data.context("no data")?;
    assert_eq!(kept["tls.crt"].0, b"theirs");
    Ok(())
}
