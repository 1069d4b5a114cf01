//! Decision 11: deletion takes everything along, in order, and orphaning leaves everything.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use kube::core::GroupVersionKind;
use olm_api::{ClusterExtension, annotations, condition};
use olm_kit::{Crd, Entry, Wait};
use serde_json::json;

use crate::world::{LIMIT, World, current};

async fn world(prefix: &str) -> Result<World> {
    let world = World::new(prefix).await?;
    let bundle = world.bundle("1.0.0").crds([Crd::new("Gadget", &format!("{}.example.com", world.name))]);
    world.serve([("1.0.0", bundle)], [Entry::new("1.0.0")]).await?;
    world.install_any("1.0.0").await?;
    Ok(world)
}

#[tokio::test]
async fn uninstall_leaves_nothing_behind() -> Result<()> {
    let world = world("gone").await?;
    let client = world.stack.cluster.client().await?;
    // as a controller leaves it that dies before it has made the revision; the garbage collector knows nothing of it
    let stray = json!({
        "metadata": {"name": format!("{}-2-0123456789abcdef", world.name), "labels": {
            "olm.operatorframework.io/owner-name": world.name,
            "olm.operatorframework.io/revision-name": format!("{}-2", world.name),
        }},
        "type": "olm.operatorframework.io/object-data", "immutable": true,
    });
    let secrets: Api<Secret> = Api::namespaced(client.clone(), olm_kit::SYSTEM_NAMESPACE);
    secrets.create(&PostParams::default(), &serde_json::from_value(stray)?).await?;
    world.extensions.delete(&world.name, &DeleteParams::default()).await?;
    Wait::new(&world.extensions, &world.name).within(LIMIT).to_be_gone().await?;
    assert_eq!(world.revisions().await?, []);
    let owned = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={}", world.name));
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &world.name);
    assert_eq!(deployments.list(&owned).await?.items.len(), 0);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &world.name);
    assert_eq!(maps.list(&owned).await?.items.len(), 0);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert_eq!(namespaces.get(&world.name).await?.metadata.deletion_timestamp, None, "it is the user's");
    // Secrets go with their revision, by the garbage collector; those without a revision go with the extension
    olm_kit::eventually("content Secrets are gone", LIMIT, || async {
        let left = secrets.list(&owned).await?.items.len();
        anyhow::ensure!(left == 0, "{left} are left");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn uninstall_with_orphaning_leaves_objects_and_revisions() -> Result<()> {
    let world = world("orphan").await?;
    let client = world.stack.cluster.client().await?;
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    world.extensions.delete(&world.name, &orphan).await?;
    Wait::new(&world.extensions, &world.name).within(LIMIT).to_be_gone().await?;
    assert_eq!(world.revisions().await?, [(1, "Active".to_owned(), true)]);
    let maps: Api<ConfigMap> = Api::namespaced(client, &world.name);
    let owned = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={}", world.name));
    assert_eq!(maps.list(&owned).await?.items.len(), 1);
    Ok(())
}

#[tokio::test]
async fn uninstall_names_what_it_waits_for() -> Result<()> {
    let world = world("held").await?;
    let protect = json!({"metadata": {"annotations": {annotations::PROTECT_CUSTOM_RESOURCES: "true"}}});
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(&protect)).await?;
    let group = format!("{}.example.com", world.name);
    for name in ["a", "b"] {
        let gadget = json!({"apiVersion": format!("{group}/v1"), "kind": "Gadget", "metadata": {"name": name, "namespace": world.name}});
        world.stack.cluster.apply(&gadget.to_string()).await?;
    }
    world.extensions.delete(&world.name, &DeleteParams::default()).await?;
    let waits_for = |number: u8| {
        let text = format!(
            "uninstalling: custom resources are protected and must be deleted first: {number} gadgets.{group} (revision {}-1)",
            world.name
        );
        let wait = Wait::new(&world.extensions, &world.name).within(LIMIT);
        async move {
            wait.until(&text, |extension: &ClusterExtension| {
                [condition::PROGRESSING, condition::READY]
                    .iter()
                    .all(|type_| current(extension, type_).is_some_and(|found| found.message == text))
            })
            .await
        }
    };
    waits_for(2).await?;
    world.until_event("UninstallWaiting").await?;
    let kind = GroupVersionKind::gvk(&group, "v1", "Gadget");
    let gadgets: Api<DynamicObject> = Api::namespaced_with(
        world.stack.cluster.client().await?,
        &world.name,
        &ApiResource::from_gvk_with_plural(&kind, "gadgets"),
    );
    gadgets.delete("a", &DeleteParams::default()).await?;
    waits_for(1).await?;
    gadgets.delete("b", &DeleteParams::default()).await?;
    Wait::new(&world.extensions, &world.name).within(LIMIT).to_be_gone().await?;
    assert_eq!(world.events("UninstallWaiting").await?.len(), 1, "once, whatever the number");
    Ok(())
}
