//! A steady cluster gets no writes, a changed object is restored without a wait, and a paused extension is left alone.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::condition;
use olm_kit::{Entry, Wait};
use serde_json::json;

use crate::world::{LIMIT, World, current};

#[tokio::test]
async fn drift_restores_a_deleted_object_and_keeps_foreign_labels() -> Result<()> {
    let world = World::new("heal").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    world.install_any("1.0.0").await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.stack.cluster.client().await?, &world.name);
    let name = format!("{}-config", world.name);
    let uid = maps.get(&name).await?.metadata.uid;
    maps.delete(&name, &DeleteParams::default()).await?;
    let wait = Wait::new(&maps, &name).within(Duration::from_secs(20));
    wait.until("is made again", |map: &ConfigMap| map.metadata.uid != uid).await?;

    let foreign =
        json!({"metadata": {"labels": {"mine": "yes"}}, "data": {"version": "edited", "mine": "too"}});
    maps.patch(&name, &PatchParams::default(), &Patch::Merge(&foreign)).await?;
    let healed = Wait::new(&maps, &name)
        .within(LIMIT)
        .until("our field is put back", |map: &ConfigMap| {
            map.data.as_ref().and_then(|data| data.get("version")).map(String::as_str) == Some("1.0.0")
        })
        .await?;
    assert_eq!(healed.metadata.labels.unwrap_or_default().get("mine").map(String::as_str), Some("yes"));
    assert_eq!(healed.data.unwrap_or_default().get("mine").map(String::as_str), Some("too"));
    Ok(())
}

#[tokio::test]
async fn pause_leaves_an_extension_unchanged_until_resumed() -> Result<()> {
    let world = World::new("paused").await?;
    world.serve_chain([("1.0.0", world.bundle("1.0.0")), ("1.1.0", world.bundle("1.1.0"))]).await?;
    world.install("1.0.0").await?;
    let pause = |value: serde_json::Value| json!({"metadata": {"annotations": {"olm.operatorframework.io/paused": value}}});
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(pause(json!("true")))).await?;
    world.want(json!({"version": "1.1.0"})).await?;
    world
        .until("is reported as paused for the new generation", |extension| {
            current(extension, condition::READY).is_some_and(|found| found.reason == "Paused")
        })
        .await?;
    assert_eq!(world.revisions().await?.len(), 1);
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(pause(json!(null)))).await?;
    world.installed("1.1.0").await?;
    Ok(())
}
