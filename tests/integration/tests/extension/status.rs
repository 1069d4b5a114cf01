//! The exact objects of an extension as clients read them: conditions, finalizers, revision, Secret, objects.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, condition};
use olm_kit::{Entry, Wait, eventually};
use serde_json::{Value, json};

use crate::world::{LIMIT, World, current};

/// `Type=Status/Reason: message` of every condition that the reference has, sorted.
fn conditions(extension: &ClusterExtension) -> Vec<String> {
    let additive = [condition::READY, condition::RECONCILING, condition::STALLED];
    let all = extension.status.iter().flat_map(|status| &status.conditions);
    let mut lines: Vec<String> = all
        .filter(|found| !additive.contains(&found.type_.as_str()))
        .map(|found| {
            assert_eq!(found.observed_generation, extension.metadata.generation, "{}", found.type_);
            format!("{}={}/{}: {}", found.type_, found.status.as_str(), found.reason, found.message)
        })
        .collect();
    lines.sort();
    lines
}

/// rule: operator-controller §A, §1.4, §5.1, §5.2; revisions §3
#[tokio::test]
async fn status_of_an_installed_extension_is_exact() -> Result<()> {
    let world = World::new("shown").await?;
    let bundle = world.push("1.0.0", &world.bundle("1.0.0")).await?;
    let package =
        olm_kit::Package::new(&world.name).channel("stable", [Entry::new("1.0.0")]).bundle("1.0.0", &bundle);
    world.serve_package(&package).await?;
    let extension = world.install_any("1.0.0").await?;
    let name = &world.name;
    assert_eq!(
        conditions(&extension),
        [
            "Available=True/ProbesSucceeded: Objects are available and pass all probes.",
            "BundleDeprecated=False/NotDeprecated: bundle not deprecated",
            "ChannelDeprecated=False/NotDeprecated: channel not deprecated",
            "Deprecated=False/NotDeprecated: not deprecated",
            &format!("Installed=True/Succeeded: Installed bundle {bundle} successfully"),
            "PackageDeprecated=False/NotDeprecated: package not deprecated",
            "Progressing=True/Succeeded: Revision 1.0.0 has rolled out.",
        ]
    );
    let mut finalizers = extension.finalizers().to_vec();
    finalizers.sort();
    let cleanups = ["contentmanager", "unpack"];
    assert_eq!(finalizers, cleanups.map(|of| format!("olm.operatorframework.io/cleanup-{of}-cache")));
    let status = serde_json::to_value(&extension.status)?;
    assert_eq!(status["install"], json!({"bundle": {"name": format!("{name}.v1.0.0"), "version": "1.0.0"}}));
    assert_eq!(status["activeRevisions"], json!([{"name": format!("{name}-1")}]));

    let set = world.sets.get(&format!("{name}-1")).await?;
    let managers = |of: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry]| {
        let applied = of.iter().filter(|entry| entry.operation.as_deref() == Some("Apply"));
        applied.filter_map(|entry| entry.manager.clone()).collect::<Vec<_>>()
    };
    assert_eq!(managers(set.managed_fields()), ["olm.operatorframework.io/clusterextension-controller"]);
    let secrets: Api<Secret> =
        Api::namespaced(world.stack.cluster.client().await?, olm_kit::SYSTEM_NAMESPACE);
    let of_revision = format!("olm.operatorframework.io/revision-name={name}-1");
    let found = secrets.list(&ListParams::default().labels(&of_revision)).await?.items;
    let [secret] = found.as_slice() else { anyhow::bail!("{} Secrets", found.len()) };
    assert_eq!(secret.type_.as_deref(), Some("olm.operatorframework.io/object-data"));
    let owner_name = secret.labels()["olm.operatorframework.io/owner-name"].as_str();
    assert_eq!((secret.immutable, owner_name), (Some(true), name.as_str()));
    let by: std::collections::BTreeSet<&str> =
        secret.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(Vec::from_iter(by), ["operator-controller"]);
    let owner = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": format!("{name}-1"),
        "uid": set.uid(), "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(serde_json::to_value(secret.owner_references())?, owner);

    let maps: Api<ConfigMap> = Api::namespaced(world.stack.cluster.client().await?, name);
    let object = maps.get(&format!("{name}-config")).await?;
    assert_eq!(serde_json::to_value(object.owner_references())?, owner);
    let ours = |all: &std::collections::BTreeMap<String, String>| -> Vec<(String, String)> {
        let known = |key: &str| key.starts_with("olm.") || key.starts_with("app.kubernetes.io/managed-by");
        all.iter().filter(|(key, _)| known(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let own = |key: &str, value: &str| pair(&format!("olm.operatorframework.io/{key}"), value);
    let manager = pair("app.kubernetes.io/managed-by", "olm.operatorframework.io");
    let labels = [manager, own("owner-kind", "ClusterExtension"), own("owner-name", name)];
    assert_eq!(ours(object.labels()), labels);
    let annotations = [own("bundle-version", "1.0.0"), own("package-name", name), own("revision", "1")];
    assert_eq!(ours(object.annotations()), annotations);
    let by: Vec<&str> = object.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(by, ["olm.operatorframework.io"]);
    Ok(())
}

/// rule: operator-controller §3.6: a deadline changes the newest revision, a configuration makes another one
#[tokio::test]
async fn deadline_changes_in_place_and_config_makes_a_revision() -> Result<()> {
    let world = World::new("settings").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    world.install_any("1.0.0").await?;
    world.want_with(json!({"progressDeadlineMinutes": 30}), json!({})).await?;
    Wait::new(&world.sets, &format!("{}-1", world.name))
        .within(LIMIT)
        .until("has the deadline", |set: &olm_api::ClusterObjectSet| {
            set.spec.progress_deadline_minutes == Some(30)
        })
        .await?;
    assert_eq!(world.revisions().await?.len(), 1);
    let config = json!({"configType": "Inline", "inline": {"deploymentConfig": {"env": [{"name": "A", "value": "1"}]}}});
    world.want_with(json!({"progressDeadlineMinutes": 30, "config": config}), json!({})).await?;
    world.installed("1.0.0").await?;
    let want = [(1, "Archived".to_owned(), true), (2, "Active".to_owned(), true)];
    eventually("revision 2 follows", LIMIT, || async {
        let found = world.revisions().await?;
        anyhow::ensure!(found == want, "{found:?}");
        Ok(())
    })
    .await
}

/// rule: operator-controller §3.5, §5.1
#[tokio::test]
async fn config_that_is_invalid_is_terminal_until_fixed() -> Result<()> {
    let world = World::new("misfit").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    // a pass that ends earlier reports another Installed condition
    world.catalog_is_known().await?;
    let config = |inline: Value| json!({"config": {"configType": "Inline", "inline": inline}});
    world.want_with(config(json!({"colour": "red"})), json!({})).await?;
    let extension = world
        .until("is refused for its configuration", |extension| {
            current(extension, condition::PROGRESSING)
                .is_some_and(|found| found.reason == "InvalidConfiguration")
        })
        .await?;
    let found = current(&extension, condition::PROGRESSING).context("no condition")?;
    let want = format!(
        "error for resolved bundle \"{}.v1.0.0\" with version \"1.0.0\": invalid ClusterExtension configuration: invalid \
         configuration: unknown field \"colour\"",
        world.name
    );
    assert!(found.message.starts_with(&want), "{}", found.message);
    assert_eq!(found.status.as_str(), "False");
    assert!(current(&extension, condition::INSTALLED).is_none(), "the reference reports nothing either");
    assert_eq!(world.revisions().await?, []);
    let good = json!({"deploymentConfig": {"env": [{"name": "A", "value": "1"}]}});
    world.want_with(config(good), json!({})).await?;
    world.installed("1.0.0").await?;
    Ok(())
}

/// rule: revisions §4.5, §16 row 15
#[tokio::test]
async fn revision_history_keeps_five_archived_revisions() -> Result<()> {
    let world = World::new("history").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    for round in 1..=8 {
        let env = json!([{"name": "ROUND", "value": round.to_string()}]);
        let inline = json!({"deploymentConfig": {"env": env}});
        world.want_with(json!({"config": {"configType": "Inline", "inline": inline}}), json!({})).await?;
        eventually(&format!("revision {round} is in force"), LIMIT, || async {
            let all = world.revisions().await?;
            let last = all.last().cloned();
            anyhow::ensure!(last == Some((round, "Active".to_owned(), true)), "{all:?}");
            anyhow::ensure!(all.iter().filter(|(_, state, _)| state == "Active").count() == 1, "{all:?}");
            Ok(())
        })
        .await?;
    }
    // what is deleted goes with its finalizer
    eventually("five archived revisions stay", LIMIT, || async {
        let left: Vec<i64> = world.revisions().await?.into_iter().map(|(number, _, _)| number).collect();
        anyhow::ensure!(left == [3, 4, 5, 6, 7, 8], "{left:?}");
        Ok(())
    })
    .await
}

/// rule: operator-controller §3.4 (table e), §3.6; decision 6
#[tokio::test]
async fn catalog_loss_keeps_an_installed_version_within_the_range() -> Result<()> {
    let world = World::new("kept").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    world.want(json!({"version": "1.x"})).await?;
    world.installed("1.0.0").await?;
    let client = world.stack.cluster.client().await?;
    let catalogs: Api<ClusterCatalog> = Api::all(client.clone());
    catalogs.delete(&world.name, &DeleteParams::default()).await?;
    Wait::new(&catalogs, &world.name).within(LIMIT).to_be_gone().await?;

    // another edit than that of the version counts, and drift is corrected
    let enforcement = json!({"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}});
    world.want_with(enforcement, json!({"version": ">=1.0.0 <2.0.0"})).await?;
    // the removal of the catalog arrives through another watch than the edit
    let extension = world
        .until("1.0.0 is Ready, and nothing is known of deprecations", |extension| {
            let is = |type_: &str, status: &str| {
                current(extension, type_).is_some_and(|found| found.status.as_str() == status)
            };
            is(condition::READY, "True") && is(condition::DEPRECATED, "Unknown")
        })
        .await?;
    let kept = extension.status.as_ref().and_then(|status| status.install.as_ref());
    assert_eq!(kept.map(|install| install.bundle.version.as_str()), Some("1.0.0"));
    let lines = conditions(&extension);
    assert!(lines.iter().any(|line| line.starts_with("Progressing=True/Succeeded: ")), "{lines:?}");
    let unknown =
        "Deprecated=Unknown/DeprecationStatusUnknown: deprecation status unknown: catalog data unavailable";
    assert!(lines.iter().any(|line| line == unknown), "{lines:?}");
    let deadline = json!({"progressDeadlineMinutes": 30});
    world.want_with(deadline, json!({"version": ">=1.0.0 <2.0.0"})).await?;
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let has_deadline = |set: &ClusterObjectSet| set.spec.progress_deadline_minutes == Some(30);
    let revision = format!("{}-1", world.name);
    Wait::new(&sets, &revision).within(LIMIT).until("has the deadline", has_deadline).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, &world.name);
    let map = format!("{}-config", world.name);
    maps.delete(&map, &DeleteParams::default()).await?;
    Wait::new(&maps, &map).within(LIMIT).to_exist().await?;

    world.want(json!({"version": "2.x"})).await?;
    world.progressing("Retrying", "matching version \"2.x\"").await?;
    let extension = world.extensions.get(&world.name).await?;
    let version = extension.status.and_then(|status| status.install).map(|install| install.bundle.version);
    assert_eq!(version.as_deref(), Some("1.0.0"), "a rejected bundle takes nothing away");
    Ok(())
}

/// rule: operator-controller §9.1 rows 4, 5
#[tokio::test]
async fn catalog_labels_and_availability_trigger_a_reconcile() -> Result<()> {
    let world = World::new("again").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    let catalogs: Api<ClusterCatalog> = Api::all(world.stack.cluster.client().await?);
    let change = async |change: Value| {
        catalogs.patch(&world.name, &PatchParams::default(), &Patch::Merge(change)).await
    };
    let mode = |mode: &str| json!({"spec": {"availabilityMode": mode}});
    world.want(json!({"selector": {"matchLabels": {"late": world.name}}})).await?;
    world.progressing("Retrying", "no bundles found for package").await?;
    change(mode("Unavailable")).await?;
    change(json!({"metadata": {"labels": {"late": world.name}}})).await?;
    Wait::new(&catalogs, &world.name)
        .within(LIMIT)
        .until("is withdrawn", |catalog: &ClusterCatalog| {
            let conditions = catalog.status.as_ref().map(|status| status.conditions.as_slice());
            condition::is_false(conditions.unwrap_or_default(), condition::SERVING)
        })
        .await?;
    let text = world.progressing("Retrying", "no bundles found for package").await?;
    assert!(text.starts_with(&format!("no bundles found for package {:?}", world.name)), "{text}");
    change(mode("Available")).await?;
    world.installed("1.0.0").await?;
    // as if it did not exist: what is installed stays, and the range is evaluated
    change(mode("Unavailable")).await?;
    world.want(json!({"selector": {"matchLabels": {"late": world.name}}, "version": "1.x"})).await?;
    world.installed("1.0.0").await?;
    Ok(())
}

/// rule: operator-controller §3.4 (HandleFinalizers)
#[tokio::test]
async fn finalizers_of_others_are_left_alone() -> Result<()> {
    let world = World::new("held").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    let mut finalizers = world.install_any("1.0.0").await?.finalizers().to_vec();
    finalizers.push("test.example.com/hold".to_owned());
    let held = json!({"metadata": {"finalizers": finalizers}});
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(held)).await?;
    world.extensions.delete(&world.name, &DeleteParams::default()).await?;
    world
        .until("only the foreign finalizer is left", |extension| {
            extension.finalizers() == ["test.example.com/hold"]
        })
        .await?;
    assert_eq!(world.revisions().await?, []);
    let free = json!({"metadata": {"finalizers": null}});
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(free)).await?;
    Wait::new(&world.extensions, &world.name).within(LIMIT).to_be_gone().await
}
