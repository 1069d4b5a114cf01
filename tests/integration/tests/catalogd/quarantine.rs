//! An image that ends the process: after its second death it is not read again, neither by the process that has died nor by
//! replicas with caches of their own, which learn it from the status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::Api;
use olm_api::{ClusterCatalog, condition};
use olm_integration::quarantine::kill_twice_while_reading;
use olm_kit::{Cluster, Process, Program, Wait, eventually};
use serde_json::json;

use crate::support::{self, Body, Client, Pushed, Registry, Reply};
use crate::{create, merge, request};

/// More than the lease of a process that was killed.
const LIMIT: Duration = Duration::from_secs(90);
const LABEL: &str = "operators.operatorframework.io.index.configs.v1";
const NAMES: [&str; 2] = ["by-request", "by-digest"];

async fn until_logged(process: &Process, text: &str, times: usize) -> Result<()> {
    eventually(&format!("the log has {text:?}"), LIMIT, || async {
        let found = process.log_text().matches(text).count();
        ensure!(found >= times, "{found} times");
        Ok(())
    })
    .await
}

/// Waits until the condition is there or gone; its message.
async fn until_quarantined(api: &Api<ClusterCatalog>, name: &str, quarantined: bool) -> Result<String> {
    let conditions = |catalog: &ClusterCatalog| {
        catalog.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
    };
    let holds = |catalog: &ClusterCatalog| {
        let conditions = conditions(catalog);
        let served = condition::is_true(&conditions, condition::SERVING);
        let is_quarantined = condition::is_true(&conditions, condition::QUARANTINED);
        is_quarantined == quarantined && served != quarantined
    };
    let what = if quarantined { "is quarantined" } else { "is served" };
    let catalog = Wait::new(api, name).within(LIMIT).until(what, holds).await?;
    let conditions = conditions(&catalog);
    let found = condition::find(&conditions, condition::QUARANTINED);
    Ok(found.map(|found| found.message.clone()).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantine_holds_for_replicas_until_it_is_lifted() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install_crds().await?;
    cluster.install_olm().await?;
    let registry = Registry::start().await;
    let client = Client::new(&[&registry]);
    let push = |tag: &str| {
        let layer = support::layer(&[("configs/c.json", &format!("{{\"name\":\"{tag}\"}}"))]);
        let digest = registry.push("cat", Some(tag), &Pushed::new([layer.clone()]).label(LABEL, "/configs"));
        (digest.to_string(), layer)
    };
    let (digest, layer) = push("1");
    push("2");
    let kills = Arc::new(AtomicBool::new(true));
    let (blob, is_stalled) = (support::digest(&layer).to_string(), Arc::clone(&kills));
    registry.hook(move |request| {
        let stall = || Reply::body(Body::Stall { bytes: layer[..9].to_vec(), declared: layer.len() });
        (is_stalled.load(Ordering::SeqCst) && request.target.ends_with(&blob)).then(stall)
    });
    let configuration = client.path("registries.conf").display().to_string();
    let replica = || {
        let program = Program::catalogd(&cluster)?.env("CONTAINERS_REGISTRIES_CONF", &configuration);
        anyhow::Ok(program.flag("--leader-elect", "true").flag("--external-address", "catalogd.example.com"))
    };
    let api: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    for name in NAMES {
        create(&api, name, json!({ "ref": registry.reference("cat:1").to_string() })).await?;
    }

    // killed twice, each time in the middle of the image
    let mut first = replica()?.launch()?;
    let record = first.cache().join("attempts").join(&digest);
    kill_twice_while_reading(&mut first, &record).await?;
    for name in NAMES {
        let message = until_quarantined(&api, name, true).await?;
        let why = format!("catalogd ended 2 times without a shutdown while it read the image {digest}");
        ensure!(message.contains(&why), "{message}");
    }

    // the image could be read safely now, but no replica reads it
    kills.store(false, Ordering::SeqCst);
    registry.take_log();
    let rejection = "so the image is not read again";
    let mut second = replica()?.start().await?;
    first.stop();
    until_logged(&second, "became leader", 1).await?;
    until_logged(&second, rejection, NAMES.len()).await?;
    std::fs::remove_dir_all(first.cache()).context("removing the cache")?;
    first.relaunch()?;
    second.stop();
    until_logged(&first, rejection, NAMES.len()).await?;
    for name in NAMES {
        until_quarantined(&api, name, true).await?;
    }
    let asked = registry.take_log();
    ensure!(!asked.iter().any(|asked| asked.contains("/blobs/")), "{asked:?}");

    request(&api, NAMES[0], "now").await?;
    until_quarantined(&api, NAMES[0], false).await?;
    let other = registry.reference("cat:2").to_string();
    merge(&api, NAMES[1], json!({ "spec": { "source": { "image": { "ref": other } } } })).await?;
    until_quarantined(&api, NAMES[1], false).await?;
    Ok(())
}
