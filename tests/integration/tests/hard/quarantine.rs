//! A bundle that ends the process: after its second death it is not read again, neither by the process that has died nor by a replica
//! with a cache of its own, which learns it from the status. Another bundle, or the annotation `requested-at`, lifts it.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::{ClusterExtension, annotations, condition};
use olm_integration::extension::{current, installed_version, status_and_message};
use olm_integration::package::entries;
use olm_integration::quarantine::kill_twice_while_reading;
use olm_kit::{Package as Content, Wait};
use serde_json::json;

use crate::kills::webhook;
use crate::package::{LIMIT, Package};
use crate::proxy::GROUPS;
use crate::runs::Case;
use crate::site::Site;

/// Creates an extension of the package, or requests another version.
async fn want(package: &Package, name: &str, version: &str) -> Result<()> {
    let extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": package.name, "source": {"sourceType": "Catalog", "catalog": {
            "packageName": package.name, "version": version, "selector": {"matchLabels": {"test": package.name}}}}},
    });
    package.extensions.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&extension)).await?;
    Ok(())
}

/// Waits until the extension is quarantined for its present generation, because of this.
async fn until_quarantined(package: &Package, name: &str, why: &str) -> Result<()> {
    let quarantined = |extension: &ClusterExtension| {
        status_and_message(extension, condition::QUARANTINED)
            .is_ok_and(|(status, message)| status == "True" && message.contains(why))
    };
    let wait = Wait::new(&package.extensions, name).within(LIMIT);
    wait.until(&format!("Quarantined: …{why}…"), quarantined).await.map(|_| ())
}

async fn until_installed(package: &Package, name: &str, version: &str) -> Result<()> {
    let installed = |extension: &ClusterExtension| {
        installed_version(extension) == Some(version) && current(extension, condition::QUARANTINED).is_none()
    };
    let wait = Wait::new(&package.extensions, name).within(LIMIT);
    wait.until(&format!("{version} is installed"), installed).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_quarantined_bundle_stays_unread_until_lifted() -> Result<()> {
    let mut case = Case::once("controller killed twice while it reads a bundle");
    let (mut site, proxy) = Site::behind_proxy().await?;
    let package = Package::new(&site, "quarantine").await?;
    let bundle = |version: &str| package.bundle(version).webhook(webhook(&package));
    let image = package.push(&site.registry, "1.0.0", &bundle("1.0.0")).await?;
    let newer = package.push(&site.registry, "1.1.0", &bundle("1.1.0")).await?;
    let content = Content::new(&package.name).channel("stable", entries(["1.0.0", "1.1.0"]));
    let content = content.bundle("1.0.0", &image).bundle("1.1.0", &newer);
    package.serve_packages(&site.registry, &[content]).await?;
    let (_, digest) = image.split_once('@').context("no digest")?;
    let why = format!("the process ended 2 times without a shutdown while it read the bundle {digest}");
    let other = format!("{}-other", package.name);

    // a bundle is read until it is rendered, which needs the list of API groups
    proxy.hold(&[GROUPS]);
    want(&package, &package.name, "1.0.0").await?;
    let attempts = site.controller()?.cache().join("bundles").join("attempts");
    let killed =
        kill_twice_while_reading(site.controller()?, &attempts.join(digest.replacen(':', "-", 1))).await;
    killed.map_err(|error| site.explain(error))?;
    until_quarantined(&package, &package.name, &why).await?;
    // what is recorded on disk holds for another extension, too
    want(&package, &other, "1.0.0").await?;
    until_quarantined(&package, &other, &why).await?;

    // the bundle could be read safely now, but a replica that has never read it does not
    proxy.release(GROUPS);
    ensure!(site.controller()?.stop(), "the controller does not stop in order");
    site.start_controller().await?;
    for name in [&package.name, &other] {
        // the same bundle, and another generation, for which only the replica answers
        want(&package, name, "<1.1.0").await?;
        until_quarantined(&package, name, &why).await.map_err(|error| site.explain(error))?;
    }

    let since = Instant::now();
    want(&package, &other, "1.1.0").await?;
    until_installed(&package, &other, "1.1.0").await.map_err(|error| site.explain(error))?;
    package.extensions.delete(&other, &DeleteParams::default()).await?;
    Wait::new(&package.extensions, &other).within(LIMIT).to_be_gone().await?;
    until_quarantined(&package, &package.name, &why).await?;
    let requested = json!({"metadata": {"annotations": {annotations::REQUESTED_AT: "now"}}});
    package.extensions.patch(&package.name, &PatchParams::default(), &Patch::Merge(requested)).await?;
    until_installed(&package, &package.name, "1.0.0").await.map_err(|error| site.explain(error))?;
    case.converged(since);
    Ok(())
}
