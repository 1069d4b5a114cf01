//! A foreign finalizer holds a managed object: the uninstall waits, names the object, polls rarely, and ends when it is released.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use olm_api::condition;
use serde_json::{Value, json};

use crate::package::Package;
use crate::runs::Case;
use crate::site::{Site, lines};
use olm_integration::extension::status_and_message;

const HELD: &str = "example.com/hold";

fn finalizers(list: Value) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"finalizers": list}}))
}

/// An uninstall that waits asks for at most so many things in ten seconds: it looks every five, at what cannot be watched more
/// often at first.
async fn rests(site: &Site, package: &Package, most: usize) -> Result<()> {
    let mark = site.mark()?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let all = site.about(&package.name, mark)?;
    ensure!(all.len() <= most, "{}", lines(&all));
    let writes = all.iter().filter(|request| request.writes()).count();
    ensure!(writes <= 2, "{}", lines(&all));
    Ok(())
}

#[tokio::test]
async fn fault_finalizer_on_an_object_is_named_and_waited_for() -> Result<()> {
    let mut case = Case::once("finalizer holds an object of the extension");
    let site = Site::shared().await?;
    let package = Package::new(site, "held").await?;
    package.serve(&site.registry, [("1.0.0", package.bundle("1.0.0"))]).await?;
    package.install("1.0.0").await?;
    let (maps, name) = (package.maps(), package.config());
    maps.patch(&name, &PatchParams::default(), &finalizers(json!([HELD]))).await?;
    package.delete().await?;
    let waiting = package.progressing_names(HELD).await?;
    let (_, message) = status_and_message(&waiting, condition::PROGRESSING)?;
    ensure!(message.contains(&name), "{message}");
    rests(site, &package, 8).await?;
    maps.patch(&name, &PatchParams::default(), &finalizers(Value::Null)).await?;
    let since = Instant::now();
    package.gone().await?;
    case.converged(since);
    ensure!(maps.get_opt(&name).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn fault_finalizer_on_a_resource_is_counted_and_waited_for() -> Result<()> {
    let mut case = Case::once("finalizer holds a custom resource");
    let site = Site::shared().await?;
    let package = Package::new(site, "resource").await?;
    package.serve(&site.registry, [("1.0.0", package.bundle("1.0.0").crds([package.crd()]))]).await?;
    package.install("1.0.0").await?;
    let group = format!("{}.example.com", package.name);
    let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": {"name": "mine", "namespace": package.name, "finalizers": [HELD]}, "spec": {"size": 1}});
    site.cluster.apply(&widget.to_string()).await?;
    package.delete().await?;
    package
        .progressing_names(&format!("waiting for custom resources to go: 1 {}", package.crd().name()))
        .await?;
    // the operator, which would take the finalizer off, still runs
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(package.client.clone(), &package.name);
    ensure!(deployments.get_opt(&format!("{}-ctrl", package.name)).await?.is_some());
    // eight looks or nine, each of which asks for the CRD and for its resources, and what is recorded late
    rests(site, &package, 9 * 2 + 3).await?;
    let kind = GroupVersionKind::gvk(&group, "v1", "Widget");
    let widgets: Api<DynamicObject> = Api::namespaced_with(
        package.client.clone(),
        &package.name,
        &ApiResource::from_gvk_with_plural(&kind, "widgets"),
    );
    widgets.patch("mine", &PatchParams::default(), &finalizers(Value::Null)).await?;
    let since = Instant::now();
    package.gone().await?;
    case.converged(since);
    Ok(())
}

/// An upgrade drops an object that a finalizer holds: the new version is installed, and the old revision waits alone.
#[tokio::test]
async fn fault_finalizer_on_a_dropped_object_blocks_no_upgrade() -> Result<()> {
    let mut case = Case::once("finalizer holds an object that an upgrade drops");
    let site = Site::shared().await?;
    let package = Package::new(site, "dropped").await?;
    let extra =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old"}, "data": {"a": "b"}});
    let old = package.bundle("1.0.0").extra(extra);
    package.serve(&site.registry, [("1.0.0", old), ("1.1.0", package.bundle("1.1.0"))]).await?;
    package.install("1.0.0").await?;
    package.maps().patch("old", &PatchParams::default(), &finalizers(json!([HELD]))).await?;
    package.install("1.1.0").await?;
    let set = format!("{}-1", package.name);
    let names_holder = |found: &olm_api::ClusterObjectSet| {
        let conditions = found.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        condition::find(conditions, condition::PROGRESSING).is_some_and(|found| found.message.contains(HELD))
    };
    olm_kit::Wait::new(&package.sets, &set).until("names what holds it", names_holder).await?;
    rests(site, &package, 8).await?;
    package.maps().patch("old", &PatchParams::default(), &finalizers(Value::Null)).await?;
    let since = Instant::now();
    let archived =
        |found: &olm_api::ClusterObjectSet| found.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
    olm_kit::Wait::new(&package.sets, &set).until("is archived", archived).await?;
    case.converged(since);
    Ok(())
}
