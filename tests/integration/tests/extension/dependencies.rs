//! Dependencies (decision 25): nothing is installed for them; what is missing is named with who provides it, and its coming
//! is enough.

use std::time::Duration;

use anyhow::Result;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use olm_api::annotations;
use olm_api::classic::ClusterServiceVersion;
use olm_kit::{Crd, Entry, Package};
use serde_json::{Value, json};

use crate::world::World;

fn crds(client: kube::Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions"))
}

/// Version 1.0.0 of the world's package with these properties in the catalog, beside the packages `others`.
async fn serve(world: &World, properties: &[(&str, Value)], others: Vec<Package>) -> Result<()> {
    let pushed = world.push("1.0.0", &world.bundle("1.0.0")).await?;
    let properties = properties.iter().map(|(kind, value)| json!({"type": kind, "value": value}));
    let package = Package::new(&world.name).channel("stable", [Entry::new("1.0.0")]);
    let package = package.bundle_with("1.0.0", &pushed, properties);
    world.serve_packages(&[vec![package], others].concat()).await
}

/// A package that no extension installs, whose bundle provides this API.
fn provider(name: &str, api: &Value) -> Package {
    let package = Package::new(name).channel("stable", [Entry::new("2.3.0")]);
    let provides = [json!({"type": "olm.gvk", "value": api})];
    package.bundle_with("2.3.0", "example.invalid/x@sha256:0", provides)
}

#[tokio::test]
async fn dependency_on_a_missing_api_names_provider_and_recovers() -> Result<()> {
    let world = World::new("needs-api").await?;
    let group = format!("{}.example.com", world.name);
    let api = json!({"group": group, "version": "v1", "kind": "Gadget"});
    let gadgets = format!("{}-gadgets", world.name);
    serve(&world, &[("olm.gvk.required", api.clone())], vec![provider(&gadgets, &api)]).await?;
    world.want(json!({})).await?;
    let text = world.progressing("Retrying", "has dependencies that are not met").await?;
    let want = format!(
        "validating bundle \"{0}.v1.0.0\": bundle \"{0}.v1.0.0\" has dependencies that are not met: API Gadget ({group}/v1), provided by {gadgets} 2.3.0 of catalog {0}",
        world.name
    );
    assert!(text.contains(&want), "{text}");
    assert_eq!(world.revisions().await?, [], "nothing was written");
    world.until_event("DependencyMissing").await?;
    for _ in 0..5 {
        world.again().await?;
    }

    // another API of the group is not the one
    let other = Crd::new("Widget", &group);
    world.stack.cluster.apply(&other.manifest().to_string()).await?;
    let crd = Crd::new("Gadget", &group);
    world.stack.cluster.apply(&crd.manifest().to_string()).await?;
    // far sooner than the slow retry: the new API woke the controller
    tokio::time::timeout(Duration::from_secs(60), world.installed("1.0.0")).await??;
    assert_eq!(world.events("DependencyMissing").await?.len(), 1);

    // what is installed is not refused later
    crds(world.stack.cluster.client().await?).delete(&crd.name(), &DeleteParams::default()).await?;
    world.want(json!({"channels": ["stable"]})).await?;
    world.installed("1.0.0").await?;
    Ok(())
}

#[tokio::test]
async fn dependency_is_met_once_the_package_is_installed() -> Result<()> {
    let (blue, red) = (World::new("blue").await?, World::new("red").await?);
    blue.serve([("1.2.0", blue.bundle("1.2.0"))], [Entry::new("1.2.0")]).await?;
    let all = json!({"all": {"constraints": [
        {"package": {"packageName": blue.name, "versionRange": ">=1.1.0"}},
        {"not": {"constraints": [{"gvk": {"group": "x.io", "version": "v1", "kind": "Green"}}]}},
    ]}});
    serve(&red, &[("olm.constraint", all)], Vec::new()).await?;
    red.want(json!({})).await?;
    let text = red.progressing("Retrying", "and not API Green (x.io/v1)").await?;
    let want = format!(
        "(package {0:?} in range \">=1.1.0\" and not API Green (x.io/v1)), provided by {0} 1.2.0 of catalog {0}",
        blue.name
    );
    assert!(text.contains(&want), "{text}");
    blue.install_any("1.2.0").await?;
    tokio::time::timeout(Duration::from_secs(60), red.installed("1.0.0")).await??;
    Ok(())
}

/// A package that a ClusterServiceVersion of OLM Classic has installed counts.
#[tokio::test]
async fn dependency_is_met_by_a_package_of_olm_classic() -> Result<()> {
    let world = World::new("needs-classic").await?;
    let cluster = &world.stack.cluster;
    cluster.install_classic().await?;
    let package = format!("{}-base", world.name);
    let recorded = json!({"properties": [{"type": "olm.package", "value": {"packageName": package, "version": "1.4.0"}}]});
    let csv = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("{package}.v1.4.0"), "namespace": "olm",
            "annotations": {"operatorframework.io/properties": recorded.to_string()}},
        "spec": {"displayName": "base", "install": {"strategy": "deployment", "spec": {"deployments": []}}}});
    cluster.apply(&csv.to_string()).await?;
    let needs = json!({"packageName": package, "versionRange": ">=1.3.0"});
    serve(&world, &[("olm.package.required", needs)], Vec::new()).await?;
    world.want(json!({})).await?;
    world.progressing("Retrying", "has dependencies that are not met").await?;

    let csvs: Api<ClusterServiceVersion> = Api::namespaced(cluster.client().await?, "olm");
    let status = json!({"status": {"phase": "Succeeded"}});
    csvs.patch_status(&format!("{package}.v1.4.0"), &PatchParams::default(), &Patch::Merge(status)).await?;
    // far sooner than the slow retry: the change woke the controller
    tokio::time::timeout(Duration::from_secs(60), world.installed("1.0.0")).await??;
    Ok(())
}

#[tokio::test]
async fn dependencies_unreadable_or_too_large_are_rejected() -> Result<()> {
    let world = World::new("needs-bad").await?;
    let message = "x".repeat(140_000);
    let large = json!({"failureMessage": message, "gvk": {"group": "", "version": "v1", "kind": "Pod"}});
    let constraints = [large, json!({"failureMessage": "m"})].map(|value| ("olm.constraint", value));
    serve(&world, &constraints, Vec::new()).await?;
    world.want(json!({})).await?;
    let text = world.progressing("Retrying", "olm.constraint").await?;
    assert!(text.contains("olm.constraint value is greater than max constraint size 131072 bytes"), "{text}");
    assert!(text.contains("parse olm.constraint: constraint is empty"), "{text}");

    let warned =
        json!({"failureMessage": "x".repeat(70_000), "gvk": {"group": "", "version": "v1", "kind": "Pod"}});
    serve(&world, &[("olm.constraint", warned)], Vec::new()).await?;
    world.installed("1.0.0").await?;
    let events = world.events("BundleWarning").await?;
    assert!(events.iter().any(|note| note.contains("larger than the documented 65536")), "{events:?}");
    Ok(())
}

/// The annotation of one extension wins over the flag.
#[tokio::test]
async fn dependency_check_of_one_extension_is_suspended() -> Result<()> {
    let world = World::new("needs-nothing").await?;
    let api = json!({"group": format!("{}.example.com", world.name), "version": "v1", "kind": "Gadget"});
    serve(&world, &[("olm.gvk.required", api)], Vec::new()).await?;
    world.want(json!({})).await?;
    world.progressing("Retrying", "has dependencies that are not met").await?;

    let annotate = async |check: &str| {
        let patch = json!({"metadata": {"annotations": {(annotations::DEPENDENCY_CHECK): check}}});
        world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(patch)).await
    };
    annotate("Refuse").await?;
    let refused =
        "has a dependency declared via property \"olm.gvk.required\" which is currently not supported";
    world.progressing("Retrying", refused).await?;
    annotate("Ignore").await?;
    world.installed("1.0.0").await?;
    world.until_event("DependencyCheckSkipped").await?;
    Ok(())
}
