//! Two extensions that want the same CRD, and a bundle that brings a CRD together with a resource of it.

use std::time::Instant;

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use olm_api::condition;
use olm_kit::{Crd, Wait, eventually, unique};
use serde_json::json;

use crate::package::{LIMIT, Package};
use crate::runs::Case;
use crate::site::{Site, is_bookkeeping, lines};
use olm_integration::extension::status_and_message;

#[tokio::test]
async fn fault_crd_of_two_extensions_makes_the_second_wait() -> Result<()> {
    let mut case = Case::once("two extensions want one CRD");
    let site = Site::shared().await?;
    let (first, second) = (Package::new(site, "first").await?, Package::new(site, "second").await?);
    let shared = Crd::new("Widget", &format!("{}.example.com", unique("shared")));
    for package in [&first, &second] {
        package.serve(&site.registry, [("1.0.0", package.bundle("1.0.0").crds([shared.clone()]))]).await?;
    }
    first.install("1.0.0").await?;
    let crds: Api<CustomResourceDefinition> = Api::all(first.client.clone());
    let before = crds.get(&shared.name()).await?;
    second.want("1.0.0").await?;
    let refused = second.progressing_names(&shared.name()).await?;
    ensure!(
        status_and_message(&refused, condition::INSTALLED)?.0 == "False"
            && status_and_message(&refused, condition::READY)?.0 == "False"
    );
    let mark = site.mark()?;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    for package in [&first, &second] {
        let mut all = site.about(&package.name, mark)?;
        all.retain(|request| !is_bookkeeping(request));
        // the status that was waited for may be recorded a little later
        ensure!(all.len() <= 1, "a collision is waited for, not asked about:\n{}", lines(&all));
    }
    let after = crds.get(&shared.name()).await?;
    ensure!(before.resource_version() == after.resource_version(), "the CRD was touched");
    first.heals("1.0.0").await?;

    // the second is deleted without effect on the first, comes back, and is installed when the first is deleted
    second.delete().await?;
    second.gone().await?;
    ensure!(crds.get(&shared.name()).await?.uid() == before.uid());
    second.want("1.0.0").await?;
    second.progressing_names(&shared.name()).await?;
    first.delete().await?;
    let since = Instant::now();
    first.gone().await?;
    second.installed("1.0.0").await?;
    case.converged(since);
    ensure!(crds.get(&shared.name()).await?.uid() != before.uid());
    Ok(())
}

/// A bundle may ship few kinds beside its CRDs; `PrometheusRule` is one whose CRD it may bring itself.
#[tokio::test]
async fn fault_crd_and_its_resource_are_installed_and_removed() -> Result<()> {
    let mut case = Case::once("CRD and a resource of it in one bundle");
    let site = Site::shared().await?;
    let package = Package::new(site, "both").await?;
    let crd = Crd::new("PrometheusRule", "monitoring.coreos.com");
    let rule = |size: u8| json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "rule"}, "spec": {"size": size}});
    let bundle = |version: &str, size: u8| package.bundle(version).crds([crd.clone()]).extra(rule(size));
    package.serve(&site.registry, [("1.0.0", bundle("1.0.0", 1)), ("1.1.0", bundle("1.1.0", 2))]).await?;
    let kind = GroupVersionKind::gvk("monitoring.coreos.com", "v1", "PrometheusRule");
    let resource = ApiResource::from_gvk_with_plural(&kind, "prometheusrules");
    let rules: Api<DynamicObject> = Api::namespaced_with(package.client.clone(), &package.name, &resource);
    let crds: Api<CustomResourceDefinition> = Api::all(package.client.clone());
    let since = Instant::now();
    for _ in 0..2 {
        package.install("1.0.0").await?;
        ensure!(rules.get("rule").await?.data["spec"]["size"] == 1);
        package.install("1.1.0").await?;
        ensure!(rules.get("rule").await?.data["spec"]["size"] == 2);
        package.delete().await?;
        package.gone().await?;
        Wait::new(&crds, &crd.name()).within(LIMIT).to_be_gone().await?;
        // the server of the API may notice the deletion later than this test
        eventually("the API is gone, too", LIMIT, || async {
            ensure!(rules.list(&ListParams::default()).await.is_err(), "it is served");
            Ok(())
        })
        .await?;
    }
    case.converged(since);
    Ok(())
}
