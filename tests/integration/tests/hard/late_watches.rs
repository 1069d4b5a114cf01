//! The watch of one kind is late, so that caches contradict each other: nothing is deleted that should stay.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_kit::{Request, Wait};
use serde_json::json;

use crate::package::{LIMIT, Package};
use crate::proxy::Proxy;
use crate::runs::Case;
use crate::site::{Site, lines};

const EXTENSIONS: &str = "clusterextensions";
const REVISIONS: &str = "clusterobjectsets";

/// A site behind a proxy, and a package whose version 1.0.0 is served.
async fn behind_proxy(prefix: &str) -> Result<(Site, Proxy, Package)> {
    let (site, proxy) = Site::behind_proxy().await?;
    let package = Package::new(&site, prefix).await?;
    package.serve(&site.registry, [("1.0.0", package.bundle("1.0.0"))]).await?;
    Ok((site, proxy, package))
}

/// The garbage collector takes the owner off the revision, then `orphan` off the extension. The controller sees the second before the
/// first: it must not tear down what the user orphaned.
#[tokio::test]
async fn fault_late_revision_watch_deletes_no_orphaned_revision() -> Result<()> {
    let mut case = Case::once("revision watch late while its extension is orphaned");
    let (site, proxy, package) = behind_proxy("orphaned").await?;
    package.install("1.0.0").await?;
    let (maps, revision) = (package.maps(), format!("{}-1", package.name));
    let uid = maps.get(&package.config()).await?.uid();
    package.until_revisions_are_collected().await?;

    proxy.hold(&[EXTENSIONS, REVISIONS]);
    package.extensions.delete(&package.name, &DeleteParams::orphan()).await?;
    let collected =
        |found: &ClusterExtension| !found.finalizers().iter().any(|finalizer| finalizer == "orphan");
    Wait::new(&package.extensions, &package.name).within(LIMIT).until("is orphaned", collected).await?;
    ensure!(package.sets.get(&revision).await?.owner_references().is_empty(), "an owner is left");
    proxy.release(EXTENSIONS);
    let since = Instant::now();
    package.gone().await.map_err(|error| site.explain(error))?;
    proxy.release(REVISIONS);

    // the objects stay, and the revision stays in force
    ensure!(maps.get(&package.config()).await?.uid() == uid, "the ConfigMap is another one");
    package.heals("1.0.0").await?;
    ensure!(package.sets.get(&revision).await?.metadata.deletion_timestamp.is_none());
    case.converged(since);
    Ok(())
}

/// The extension must not go before a revision that its cache lacks: then the objects would be left without a controller.
#[tokio::test]
async fn fault_late_revision_watch_hides_no_revision_from_uninstall() -> Result<()> {
    let mut case = Case::once("revision watch late while its extension is deleted");
    let (site, proxy, package) = behind_proxy("hidden").await?;
    let mark = site.mark()?;
    proxy.hold(&[REVISIONS]);
    package.want("1.0.0").await?;
    let revision = format!("{}-1", package.name);
    Wait::new(&package.sets, &revision).within(LIMIT).to_exist().await?;
    let keep = json!({"metadata": {"annotations": {annotations::DELETION_POLICY: annotations::DELETION_POLICY_KEEP}}});
    package.extensions.patch(&package.name, &PatchParams::default(), &Patch::Merge(keep)).await?;
    package.delete().await?;
    let deleted = |found: &ClusterObjectSet| found.metadata.deletion_timestamp.is_some();
    Wait::new(&package.sets, &revision).within(LIMIT).until("is being deleted", deleted).await?;
    let waits = package.extensions.get_opt(&package.name).await?;
    ensure!(waits.is_some_and(|waits| !waits.finalizers().is_empty()), "the extension is gone before it");
    proxy.release(REVISIONS);
    let since = Instant::now();
    package.gone().await.map_err(|error| site.explain(error))?;
    case.converged(since);

    // a request is recorded after its answer: the last one may come later than the extension's end
    olm_kit::eventually("the finalizers go after the revision", LIMIT, || async {
        let requests = site.about(&package.name, mark)?;
        let is = |request: &Request, verb, resource| request.verb == verb && request.resource == resource;
        let deletion = requests.iter().position(|it| is(it, "delete", REVISIONS) && it.name == revision);
        let deletion =
            deletion.with_context(|| format!("left to the garbage collector: {}", lines(&requests)))?;
        let last_write = requests.iter().rposition(|it| is(it, "patch", EXTENSIONS));
        ensure!(Some(deletion) < last_write, "the finalizers went first: {}", lines(&requests));
        Ok(())
    })
    .await
}

/// `keep` is set, and a revision is deleted before the controller sees that: it asks the apiserver.
#[tokio::test]
async fn fault_late_extension_watch_keeps_the_objects() -> Result<()> {
    let mut case = Case::once("extension watch late while a revision is deleted");
    let (_site, proxy, package) = behind_proxy("kept").await?;
    package.install("1.0.0").await?;
    let (maps, revision) = (package.maps(), format!("{}-1", package.name));
    let uid = maps.get(&package.config()).await?.uid();

    proxy.hold(&[EXTENSIONS]);
    let keep = json!({"metadata": {"annotations": {annotations::DELETION_POLICY: annotations::DELETION_POLICY_KEEP}}});
    package.extensions.patch(&package.name, &PatchParams::default(), &Patch::Merge(keep)).await?;
    let before = package.sets.get(&revision).await?.uid();
    package.sets.delete(&revision, &DeleteParams::default()).await?;
    let since = Instant::now();
    let gone = |found: Option<&ClusterObjectSet>| found.and_then(|found| found.uid()) != before;
    olm_kit::eventually("the revision is gone", LIMIT, || async {
        let found = package.sets.get_opt(&revision).await?;
        ensure!(gone(found.as_ref()), "it is there");
        Ok(())
    })
    .await?;
    let kept = maps.get_opt(&package.config()).await?.context("the ConfigMap was deleted")?;
    ensure!((kept.uid(), kept.metadata.deletion_timestamp.is_none()) == (uid, true), "it was deleted");
    proxy.release(EXTENSIONS);
    case.converged(since);
    Ok(())
}
