//! Decision 47: roles for users of the provided APIs, part of the revision.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use olm_api::{annotations, labels};
use olm_integration::package::Package;
use olm_kit::{Crd, Entry, eventually};
use serde_json::json;

use crate::world::{LIMIT, World};

async fn annotate(package: &Package, user_roles: Option<&str>) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {(annotations::USER_ROLES): user_roles}}});
    package.extensions.patch(&package.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn user_roles_are_preflighted_aggregated_and_removed() -> Result<()> {
    let world = World::new("user-roles").await?;
    let (name, client) = (&world.name, world.stack.cluster.client().await?);
    let group = format!("{name}.example.com");
    let bundle = world.bundle("1.0.0").crds([Crd::new("Gadget", &group)]);
    world.serve([("1.0.0", bundle)], [Entry::new("1.0.0")]).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": name}});
    world.stack.cluster.apply(&account.to_string()).await?;
    let roles: Api<ClusterRole> = Api::all(client);
    let made = async || -> Result<Vec<ClusterRole>> {
        let mut all =
            roles.list(&ListParams::default().labels(&format!("{}={name}", labels::OWNER_NAME))).await?.items;
        all.retain(|role| {
            role.metadata.name.as_ref().is_some_and(|role| role.starts_with(&format!("gadgets.{group}-")))
        });
        Ok(all)
    };

    // without the setting there are none, as in the reference
    world.want_with(json!({"serviceAccount": {"name": "installer"}}), json!({})).await?;
    let lacks = "lacks rights";
    let text = world.progressing("Retrying", lacks).await?;
    ensure!(!text.contains("-v1-admin"), "{text}");
    let granted = world.stack.roles(name, None).await?;
    ensure!(!granted.contains("-v1-admin"), "{granted}");
    world.stack.cluster.apply(&granted).await?;
    world.installed("1.0.0").await?;
    ensure!(made().await?.is_empty());

    // the account may not hand on what it has not; what it needs is reported like the rights on other objects
    annotate(&world, Some("Aggregate")).await?;
    let text = world.progressing("Retrying", lacks).await?;
    let role = format!("gadgets.{group}-v1-admin");
    ensure!(text.contains(&role) && text.contains(" gadgets: *"), "{text}");
    world.stack.cluster.apply(&world.stack.roles(name, None).await?).await?;
    let found = eventually("the roles are made", LIMIT, || async {
        let found = made().await?;
        ensure!(found.len() == 4, "{found:?}");
        Ok(found)
    })
    .await?;
    for role in &found {
        let owner = role.metadata.owner_references.as_deref().unwrap_or_default();
        ensure!(
            owner.iter().any(|owner| owner.kind == "ClusterObjectSet" && owner.name == format!("{name}-2")),
            "{role:?}"
        );
    }
    for (role, verb) in [("admin", "*"), ("edit", "create"), ("view", "watch")] {
        eventually(&format!("the cluster's {role} may {verb}"), LIMIT, || async {
            let rules = roles.get(role).await?.rules.unwrap_or_default();
            let allows = rules.iter().any(|rule| {
                rule.api_groups.as_ref().is_some_and(|groups| groups.contains(&group))
                    && rule.verbs.iter().any(|found| found == verb)
            });
            ensure!(allows, "{role} does not");
            Ok(())
        })
        .await?;
    }

    // they go with the revision that has them
    annotate(&world, None).await?;
    eventually("the roles are gone", LIMIT, || async {
        let left = made().await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}
