//! Rival controllers write to managed objects: one insists on a field, one deletes the object. Neither causes a hot loop, and
//! when they stop the object is restored. Others write while objects are deleted or released, so that each deletion may find another
//! state than the one that was judged.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use olm_api::annotations;
use olm_kit::{Wait, eventually};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::package::{LIMIT, Package, version_of};
use crate::runs::Case;
use crate::site::{CORRECTION_WINDOW, Site, lines};

/// How long opponents are watched.
const FIGHT: Duration = Duration::from_secs(CORRECTION_WINDOW.as_secs() / 2);

/// A controller that reacts to every change of the ConfigMap without a delay.
fn opponent(
    package: &Package,
    react: fn(Api<ConfigMap>, ConfigMap) -> futures::future::BoxFuture<'static, bool>,
) -> Opponent {
    let (maps, name) = (package.maps(), package.config());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    Opponent(tokio::spawn(async move {
        let mut blows = 0;
        let mut events = watcher(maps.clone(), config).default_backoff().applied_objects().boxed();
        while let Some(event) = events.next().await {
            // the watcher recovers by itself
            let Ok(map) = event else { continue };
            if map.metadata.deletion_timestamp.is_none() && react(maps.clone(), map).await {
                blows += 1;
            }
        }
        blows
    }))
}

struct Opponent(JoinHandle<u32>);

impl Drop for Opponent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A ConfigMap of every bundle here that no rival changes; it comes after the other one in its phase.
const BYSTANDER: &str = "zz-bystander";

/// Version 1.0.0 is installed, and 2.0.0, which has no [`BYSTANDER`], is served.
async fn installed(site: &Site, prefix: &str) -> Result<Package> {
    let package = Package::new(site, prefix).await?;
    let bystander =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": BYSTANDER}, "data": {"a": "b"}});
    let first = package.bundle("1.0.0").extra(bystander);
    package.serve(&site.registry, [("1.0.0", first), ("2.0.0", package.bundle("2.0.0"))]).await?;
    package.install("1.0.0").await?;
    Ok(package)
}

/// What our controllers wrote to the namespace's ConfigMap, and all that they asked for.
async fn fought(site: &Site, package: &Package) -> Result<(usize, usize)> {
    let mark = site.mark()?;
    tokio::time::sleep(FIGHT).await;
    let all = site.about(&package.name, mark)?;
    let writes = all.iter().filter(|r| r.writes() && r.resource == "configmaps" && r.code < 300).count();
    ensure!(all.len() <= 120, "{} requests in {FIGHT:?}:\n{}", all.len(), lines(&all));
    Ok((writes, all.len()))
}

#[tokio::test]
async fn fault_rival_that_changes_a_field_causes_no_hot_loop() -> Result<()> {
    let mut case = Case::once("another controller forces one of our fields, again and again");
    let site = Site::shared().await?;
    let package = installed(site, "insist").await?;
    let edited = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": package.config()}, "data": {"version": "theirs"}});
    package
        .maps()
        .patch(&package.config(), &PatchParams::apply("rival").force(), &Patch::Apply(&edited))
        .await?;
    let rival = opponent(&package, |maps, map| {
        Box::pin(async move {
            if version_of(&map) == Some("theirs") {
                return false;
            }
            let name = map.metadata.name.unwrap_or_default();
            let change = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"version": "theirs"}});
            maps.patch(&name, &PatchParams::apply("rival").force(), &Patch::Apply(&change)).await.is_ok()
        })
    });
    let (writes, requests) = fought(site, &package).await?;
    case.log(&format!("{writes} corrections, {requests} requests in {FIGHT:?}"));
    ensure!((2..=25).contains(&writes), "{writes} corrections");
    package.progressing_names("another client changes it again and again").await?;
    // the rest of the extension is kept meanwhile
    let maps = package.maps();
    let uid = maps.get(BYSTANDER).await?.metadata.uid;
    maps.delete(BYSTANDER, &DeleteParams::default()).await?;
    let restored = |map: &ConfigMap| map.metadata.uid != uid && map.data.is_some();
    Wait::new(&maps, BYSTANDER).within(FIGHT).until("is restored during the fight", restored).await?;
    let fought_for = maps.get(&package.config()).await?;
    ensure!(version_of(&fought_for) == Some("theirs"), "the fight ended before: {fought_for:?}");

    drop(rival);
    let since = Instant::now();
    package.config_has("1.0.0", LIMIT).await?;
    package.installed("1.0.0").await?;
    case.converged(since);
    Ok(())
}

#[tokio::test]
async fn fault_rival_that_deletes_an_object_causes_no_hot_loop() -> Result<()> {
    let mut case = Case::once("another controller deletes one of our objects, again and again");
    let site = Site::shared().await?;
    let package = installed(site, "delete").await?;
    let rival = opponent(&package, |maps, map| {
        Box::pin(async move {
            let name = map.metadata.name.unwrap_or_default();
            maps.delete(&name, &DeleteParams::default()).await.is_ok()
        })
    });
    let (writes, requests) = fought(site, &package).await?;
    case.log(&format!("made {writes} times, {requests} requests in {FIGHT:?}"));
    ensure!((2..=25).contains(&writes), "made {writes} times");
    package.progressing_names("another client changes it again and again").await?;

    drop(rival);
    let since = Instant::now();
    package.config_has("1.0.0", LIMIT).await?;
    package.installed("1.0.0").await?;
    case.converged(since);
    Ok(())
}

/// A field manager that forces the same values becomes a co-owner of the fields; there is no conflict.
#[tokio::test]
async fn fault_manager_that_forces_equal_values_is_no_rival() -> Result<()> {
    let mut case = Case::once("another field manager forces the same values and one of its own");
    let site = Site::shared().await?;
    let package = installed(site, "share").await?;
    let mark = site.mark()?;
    let change = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": package.config()}, "data": {"version": "1.0.0", "theirs": "yes"}});
    let since = Instant::now();
    for _ in 0..10 {
        package
            .maps()
            .patch(&package.config(), &PatchParams::apply("rival").force(), &Patch::Apply(&change))
            .await?;
    }
    let map = package.config_has("1.0.0", LIMIT).await?;
    ensure!(map.data.unwrap_or_default().get("theirs").map(String::as_str) == Some("yes"));
    package.installed("1.0.0").await?;
    package.heals("1.0.0").await?;
    // the new object may be visible before its creation is in the audit log
    let writes = eventually("the record has a write", LIMIT, || async {
        let mut writes = site.about(&package.name, mark)?;
        writes.retain(|r| r.writes() && r.resource == "configmaps");
        ensure!(!writes.is_empty(), "none");
        Ok(writes)
    })
    .await?;
    ensure!(writes.len() == 1, "only what was deleted is written:\n{}", lines(&writes));
    case.converged(since);
    Ok(())
}

/// Writes an annotation of the object every few milliseconds, also while it is being deleted, so that its resourceVersion changes.
fn annotator<K>(api: Api<K>, name: String) -> Opponent
where
    K: Clone + Debug + DeserializeOwned + Send + 'static,
{
    Opponent(tokio::spawn(async move {
        for count in 0_u32.. {
            let change = json!({"metadata": {"annotations": {"example.com/rival": count.to_string()}}});
            let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        0
    }))
}

/// How often a deletion or a release of an object was rejected because of another state, after checking that all requests since
/// `mark` are few.
fn conflicts(site: &Site, package: &Package, mark: usize) -> Result<usize> {
    let all = site.about(&package.name, mark)?;
    ensure!(all.len() <= 120, "{} requests:\n{}", all.len(), lines(&all));
    Ok(all.iter().filter(|request| request.writes() && request.code == 409).count())
}

/// The Deployment goes before the others, by a request of its own.
#[tokio::test]
async fn fault_rival_that_writes_during_uninstall_only_delays_it() -> Result<()> {
    let mut case = Case::once("another controller writes an object while it is uninstalled");
    let site = Site::shared().await?;
    let package = installed(site, "uninstall").await?;
    let deployments: Api<Deployment> = Api::namespaced(package.client.clone(), &package.name);
    let name = format!("{}-ctrl", package.name);
    deployments.get(&name).await.context("it is of the bundle")?;
    let _rival = annotator(deployments.clone(), name.clone());
    let (mark, since) = (site.mark()?, Instant::now());
    package.delete().await?;
    package.gone().await.map_err(|error| site.explain(error))?;
    case.log(&format!("{} conflicts", conflicts(site, &package, mark)?));
    ensure!(deployments.get_opt(&name).await?.is_none(), "it is left");
    ensure!(package.maps().get_opt(BYSTANDER).await?.is_none(), "the other objects are left");
    case.converged(since);
    Ok(())
}

/// What only the older version has is deleted when its revision is archived.
#[tokio::test]
async fn fault_rival_that_writes_during_archiving_only_delays_it() -> Result<()> {
    let mut case = Case::once("another controller writes an object that an upgrade deletes");
    let site = Site::shared().await?;
    let package = installed(site, "archive").await?;
    let _rival = annotator(package.maps(), BYSTANDER.to_owned());
    let (mark, since) = (site.mark()?, Instant::now());
    package.install("2.0.0").await?;
    Wait::new(&package.maps(), BYSTANDER).within(LIMIT).to_be_gone().await?;
    case.log(&format!("{} conflicts", conflicts(site, &package, mark)?));
    package.config_has("2.0.0", LIMIT).await?;
    case.converged(since);
    Ok(())
}

/// With the policy `keep` objects lose their owner and nothing else, whatever is written to them meanwhile.
#[tokio::test]
async fn fault_rival_that_writes_during_release_keeps_its_values() -> Result<()> {
    let mut case = Case::once("another controller writes an object that is kept");
    let site = Site::shared().await?;
    let package = installed(site, "release").await?;
    let (maps, uid) = (package.maps(), package.maps().get(BYSTANDER).await?.uid());
    let keep = json!({"metadata": {"annotations": {annotations::DELETION_POLICY: annotations::DELETION_POLICY_KEEP}}});
    package.extensions.patch(&package.name, &PatchParams::default(), &Patch::Merge(keep)).await?;
    let rival = annotator(maps.clone(), BYSTANDER.to_owned());
    let (mark, since) = (site.mark()?, Instant::now());
    package.delete().await?;
    package.gone().await.map_err(|error| site.explain(error))?;
    drop(rival);
    case.log(&format!("{} conflicts", conflicts(site, &package, mark)?));
    let kept = maps.get(BYSTANDER).await?;
    ensure!(kept.uid() == uid && kept.metadata.deletion_timestamp.is_none(), "it was deleted: {kept:?}");
    ensure!(kept.owner_references().is_empty(), "{kept:?}");
    ensure!(kept.annotations().contains_key("example.com/rival"), "{kept:?}");
    case.converged(since);
    Ok(())
}

/// While the uninstall waits for the operator, another controller replaces an object that is still to be deleted.
#[tokio::test]
async fn fault_rival_that_replaces_an_object_keeps_its_own() -> Result<()> {
    const HELD: &str = "example.com/hold";
    let mut case = Case::once("another controller replaces an object during an uninstall");
    let site = Site::shared().await?;
    let package = installed(site, "replace").await?;
    let deployments: Api<Deployment> = Api::namespaced(package.client.clone(), &package.name);
    let (maps, name, params) = (package.maps(), format!("{}-ctrl", package.name), PatchParams::default());
    let finalizers = |list: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    deployments.patch(&name, &params, &finalizers(&[HELD])).await?;
    let mark = site.mark()?;
    package.delete().await?;
    package.progressing_names(HELD).await?;
    maps.delete(BYSTANDER, &DeleteParams::default()).await?;
    Wait::new(&maps, BYSTANDER).within(LIMIT).to_be_gone().await?;
    let theirs = json!({"metadata": {"name": BYSTANDER}, "data": {"version": "theirs"}});
    let uid = maps.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?.uid();
    let since = Instant::now();
    deployments.patch(&name, &params, &finalizers(&[])).await?;
    package.gone().await.map_err(|error| site.explain(error))?;
    conflicts(site, &package, mark)?;
    let found = maps.get(BYSTANDER).await?;
    ensure!(found.uid() == uid && found.metadata.deletion_timestamp.is_none(), "it was deleted: {found:?}");
    case.converged(since);
    Ok(())
}
