//! CRD upgrade safety with a real apiserver: objects that exist, versions that they are stored in, CRDs that go.

use anyhow::{Context as _, Result};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use olm_api::annotations;
use olm_kit::{Crd, Entry, Wait};
use serde_json::{Value, json};

use crate::world::{LIMIT, World};

/// The Gadgets of a test, in one version.
fn gadgets(world: &World, client: kube::Client, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(&group(world), version, "Gadget");
    Api::namespaced_with(client, &world.name, &ApiResource::from_gvk_with_plural(&kind, "gadgets"))
}

fn group(world: &World) -> String {
    format!("{}.example.com", world.name)
}

fn gadget(world: &World, name: &str, version: &str, spec: &Value) -> Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": format!("{}/{version}", group(world)), "kind": "Gadget", "metadata": {"name": name}, "spec": spec,
    }))?)
}

fn crd_api(client: kube::Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions"))
}

/// 1.0.0 with the CRD `old`, installed; 1.1.0 with `new`, not asked for yet.
async fn two_versions(world: &World, old: Option<Crd>, new: Option<Crd>) -> Result<()> {
    let bundles = [("1.0.0", world.bundle("1.0.0").crds(old)), ("1.1.0", world.bundle("1.1.0").crds(new))];
    world.serve_chain(bundles).await?;
    world.install("1.0.0").await?;
    Ok(())
}

async fn enforce(world: &World, enforcement: &str) -> Result<()> {
    let patch =
        json!({"spec": {"install": {"preflight": {"crdUpgradeSafety": {"enforcement": enforcement}}}}});
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn crd_removal_waits_until_its_objects_are_gone() -> Result<()> {
    let world = World::new("drops").await?;
    let crd = Crd::new("Gadget", &group(&world));
    let name = crd.name();
    two_versions(&world, Some(crd), None).await?;
    let client = world.stack.cluster.client().await?;
    let objects = gadgets(&world, client.clone(), "v1");
    for name in ["a", "b"] {
        objects.create(&PostParams::default(), &gadget(&world, name, "v1", &json!({"size": 1}))?).await?;
    }

    world.want(json!({"version": "1.1.0"})).await?;
    let text = world.progressing("Retrying", "the new version drops it").await?;
    let about = format!("error for resolved bundle \"{}.v1.1.0\" with version \"1.1.0\": ", world.name);
    let why =
        format!("validating upgrade for CRD {name:?}: the new version drops it while 2 objects of it exist");
    assert!(text.starts_with(&about) && text.contains(&why), "{text}");
    assert!(text.contains("crdUpgradeSafety.enforcement to None"), "{text}");
    assert_eq!(world.revisions().await?.len(), 1, "nothing was written");

    for name in ["a", "b"] {
        objects.delete(name, &kube::api::DeleteParams::default()).await?;
    }
    world.again().await?;
    world.installed("1.1.0").await?;
    Wait::new(&crd_api(client), &name).within(LIMIT).to_be_gone().await?;
    Ok(())
}

/// All CRDs of a version are judged, whatever their number; one that the cluster does not have passes.
#[tokio::test]
async fn crd_safety_checks_each_crd_and_accepts_new_ones() -> Result<()> {
    let world = World::new("every").await?;
    let kind = |n: usize| Crd::new(&format!("Gadget{n}"), &group(&world));
    // more than are fetched at a time
    let all = || (0..10).map(kind);
    let narrow = kind(9).field("size", json!({"type": "integer", "maximum": 5}));
    let bundles = [
        ("1.0.0", world.bundle("1.0.0").crds(all())),
        ("1.1.0", world.bundle("1.1.0").crds(all().take(9).chain([narrow, kind(10)]))),
        ("1.2.0", world.bundle("1.2.0").crds(all().chain([kind(10)]))),
    ];
    let entries =
        [Entry::new("1.0.0"), Entry::new("1.1.0").replaces("1.0.0"), Entry::new("1.2.0").replaces("1.0.0")];
    world.serve(bundles, entries).await?;
    world.install("1.0.0").await?;

    world.want(json!({"version": "1.1.0"})).await?;
    let text = world.progressing("Retrying", "validating upgrade for CRD ").await?;
    assert!(text.contains(&format!("validating upgrade for CRD {:?}: ", kind(9).name())), "{text}");
    assert_eq!(text.matches("validating upgrade for CRD ").count(), 1, "{text}");
    assert_eq!(world.revisions().await?.len(), 1, "nothing was written");

    world.install("1.2.0").await?;
    Wait::new(&crd_api(world.stack.cluster.client().await?), &kind(10).name())
        .within(LIMIT)
        .to_exist()
        .await?;
    Ok(())
}

#[tokio::test]
async fn crd_enforcement_none_removes_a_crd_with_its_objects() -> Result<()> {
    let world = World::new("drops-none").await?;
    let crd = Crd::new("Gadget", &group(&world));
    let name = crd.name();
    two_versions(&world, Some(crd), None).await?;
    let client = world.stack.cluster.client().await?;
    let objects = gadgets(&world, client.clone(), "v1");
    objects.create(&PostParams::default(), &gadget(&world, "a", "v1", &json!({}))?).await?;

    enforce(&world, "None").await?;
    world.install("1.1.0").await?;
    Wait::new(&crd_api(client), &name).within(LIMIT).to_be_gone().await?;
    Ok(())
}

#[tokio::test]
async fn crd_version_with_stored_objects_is_never_dropped() -> Result<()> {
    let world = World::new("stored").await?;
    let both = Crd::new("Gadget", &group(&world)).version("v1alpha1", true, true).version("v1", true, false);
    let only = Crd::new("Gadget", &group(&world)).version("v1", true, true);
    let name = only.name();
    two_versions(&world, Some(both), Some(only)).await?;
    let client = world.stack.cluster.client().await?;

    world.want(json!({"version": "1.1.0"})).await?;
    let text = world.progressing("Retrying", "storedVersionRemoval").await?;
    let why = format!(
        "validating upgrade for CRD {name:?}: storedVersionRemoval: stored versions removed : [v1alpha1]"
    );
    assert!(text.contains(&why), "{text}");

    // without the check the apiserver itself rejects the removal, and the rollout reports it
    enforce(&world, "None").await?;
    let text = world
        .until("the apiserver's error is reported", |extension| {
            let status = serde_json::to_string(&extension.status).unwrap_or_default();
            status.contains("storedVersions")
        })
        .await?;
    assert_eq!(text.status.and_then(|s| s.install).map(|i| i.bundle.version).as_deref(), Some("1.0.0"));
    let live = crd_api(client).get(&name).await?;
    assert_eq!(live.data["spec"]["versions"][0]["name"], "v1alpha1");
    Ok(())
}

/// rule: decision 12
#[tokio::test]
async fn crd_change_is_accepted_for_one_bundle_by_annotation() -> Result<()> {
    let world = World::new("accepted").await?;
    let both = Crd::new("Gadget", &group(&world)).version("v1alpha1", true, false).version("v1", true, true);
    let only = Crd::new("Gadget", &group(&world)).version("v1", true, true);
    let name = only.name();
    two_versions(&world, Some(both), Some(only)).await?;
    world.want(json!({"version": "1.1.0"})).await?;
    let text = world.progressing("Retrying", "servedVersionRemoval").await?;
    let key = annotations::ACCEPT_CRD_CHANGE;
    let (_, waiver) =
        text.split_once(&format!(" the annotation {key}=")).context("no annotation is named")?;
    let waiver = waiver.lines().next().unwrap_or_default();
    let accept = async |value: String| {
        let patch = json!({"metadata": {"annotations": {(key): value}}});
        world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(patch)).await
    };

    accept("yes".to_owned()).await?;
    world.progressing("Retrying", "is not of the form <bundle name>@sha256:").await?;
    accept(format!("{waiver} {name}/storedVersionRemoval")).await?;
    world.progressing("Retrying", "servedVersionRemoval").await?;
    assert!(world.events("CRDChangeAccepted").await?.is_empty());

    accept(format!("{waiver} {name}/servedVersionRemoval")).await?;
    world.installed("1.1.0").await?;
    world.until_event("CRDChangeAccepted").await?;
    Ok(())
}

#[tokio::test]
async fn crd_safety_names_objects_that_the_new_schema_breaks() -> Result<()> {
    let world = World::new("existing").await?;
    // objects come back in the new storage version, and nothing converts them: the comparison of schemas alone sees two
    // versions that are not served together
    let old = Crd::new("Gadget", &group(&world)).field("size", json!({"type": "integer"}));
    let new = Crd::new("Gadget", &group(&world)).field("size", json!({"type": "integer", "maximum": 5}));
    let name = new.name();
    two_versions(&world, Some(old), Some(new)).await?;
    let objects = gadgets(&world, world.stack.cluster.client().await?, "v1");
    for (name, size) in [("small", 1), ("large", 9)] {
        objects.create(&PostParams::default(), &gadget(&world, name, "v1", &json!({"size": size}))?).await?;
    }

    world.want(json!({"version": "1.1.0"})).await?;
    let text = world.progressing("Retrying", "validating existing objects of CRD ").await?;
    let broken = format!(
        "validating existing objects of CRD {name:?}: 1 of 2 do not fit the new schema: {}/large: spec.size: value is greater than the maximum of 5",
        world.name
    );
    assert!(text.contains("maximum constraint added when there was none previously : 5"), "{text}");
    assert!(text.contains(&broken), "{text}");
    Ok(())
}

#[tokio::test]
async fn crd_enforcement_warn_reports_findings_and_continues() -> Result<()> {
    let world = World::new("warn").await?;
    let old = Crd::new("Gadget", &group(&world));
    let new = Crd::new("Gadget", &group(&world)).field("size", json!({"type": "integer", "maximum": 5}));
    two_versions(&world, Some(old), Some(new)).await?;
    let objects = gadgets(&world, world.stack.cluster.client().await?, "v1");
    objects.create(&PostParams::default(), &gadget(&world, "large", "v1", &json!({"size": 9}))?).await?;

    enforce(&world, "Warn").await?;
    world.install("1.1.0").await?;
    let events = world.events("CRDUpgradeSafety").await?;
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.iter().any(|note| note.contains("v1: ^.spec.size: maximum: ")), "{events:?}");
    assert!(events.iter().any(|note| note.contains("1 of 1 do not fit")), "{events:?}");
    Ok(())
}

#[tokio::test]
async fn crd_that_blocks_a_first_install_is_noticed_when_gone() -> Result<()> {
    let world = World::new("in-the-way").await?;
    let client = world.stack.cluster.client().await?;
    let (theirs, ours) =
        (Crd::new("Gadget", &group(&world)), Crd::new("Gadget", &group(&world)).without_field("size"));
    let name = theirs.name();
    let crds = crd_api(client);
    crds.create(&PostParams::default(), &serde_json::from_value(theirs.manifest())?).await?;
    Wait::new(&crds, &name).within(LIMIT).to_exist().await?;
    world.serve([("1.0.0", world.bundle("1.0.0").crds([ours]))], [Entry::new("1.0.0")]).await?;
    world.want(json!({})).await?;
    let text = world.progressing("Retrying", "removed field : v1.^.spec.size").await?;
    assert!(text.contains("removed field : v1.^.spec.size"), "{text}");

    // no new request: the change itself is noticed
    crds.delete(&name, &kube::api::DeleteParams::default()).await?;
    world.installed("1.0.0").await?;
    Ok(())
}
