//! Deletion: order, custom resources, keeping, orphaning, lost content.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use olm_api::ClusterExtension;
use olm_kit::Wait;
use serde_json::json;

use crate::bench::{Bench, owners, secrets};

#[tokio::test]
async fn removal_deletes_phases_in_reverse_one_by_one() -> Result<()> {
    let bench = Bench::new("reverse").await?;
    let configuration = [bench.config_map("first", json!({}))];
    let deploy = [bench.config_map("last", json!({}))];
    bench.revision(1).phase("configuration", configuration).phase("deploy", deploy).roll_out().await?;
    bench.patch(&bench.config_maps(), "last", json!({"metadata": {"finalizers": ["test/hold"]}})).await?;
    bench.delete(1).await?;
    Wait::new(&bench.config_maps(), "last")
        .until("is being deleted", |found| found.metadata.deletion_timestamp.is_some())
        .await?;
    let text = "removing revision resources that are not owned by another revision";
    bench.message(1, "Progressing", text).await?;
    let first = bench.config_maps().get("first").await?;
    assert!(first.metadata.deletion_timestamp.is_none(), "the first phase waits for the last");
    bench.patch(&bench.config_maps(), "last", json!({"metadata": {"finalizers": null}})).await?;
    bench.gone(1).await?;
    assert!(!bench.has_config_map("first").await?);
    Ok(())
}

#[tokio::test]
async fn removal_deletes_custom_resources_before_the_operator() -> Result<()> {
    let bench = Bench::new("crfirst").await?;
    let group = format!("{}/v1", bench.group());
    let (crds, deploy) = ([bench.crd("Widget")], [bench.deployment("operator", "i:1")]);
    bench.revision(1).default_probes().phase("crds", crds).phase("deploy", deploy).roll_out().await?;
    let mut widget = bench.custom_resource("Widget", "w");
    widget["metadata"]["finalizers"] = json!(["test/operator"]);
    bench.create(&widget).await?;
    bench.delete(1).await?;
    let widgets = bench.api(&group, "Widget");
    Wait::new(&widgets, "w")
        .until("is being deleted", |found| found.metadata.deletion_timestamp.is_some())
        .await?;
    let text = format!("; waiting for custom resources to go: 1 widgets.{}", bench.group());
    bench.message(1, "Progressing", &text).await?;
    let operator = bench.api("apps/v1", "Deployment").get("operator").await?;
    assert!(operator.metadata.deletion_timestamp.is_none(), "the operator still runs");
    // the operator does its work
    bench.patch(&widgets, "w", json!({"metadata": {"finalizers": null}})).await?;
    bench.gone(1).await?;
    assert!(bench.api("apps/v1", "Deployment").get_opt("operator").await?.is_none());
    let crds = bench.api("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    assert!(crds.get_opt(&format!("widgets.{}", bench.group())).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn removal_bounds_the_wait_for_custom_resources() -> Result<()> {
    let bench = Bench::new("bounded").await?;
    let (crds, deploy) = ([bench.crd("Widget")], [bench.config_map("operator", json!({}))]);
    bench.revision(1).default_probes().phase("crds", crds).phase("deploy", deploy).roll_out().await?;
    let mut widget = bench.custom_resource("Widget", "w");
    widget["metadata"]["finalizers"] = json!(["test/nobody"]);
    bench.create(&widget).await?;
    bench.delete(1).await?;
    Wait::new(&bench.config_maps(), "operator").to_be_gone().await?;
    let widgets = bench.api(&format!("{}/v1", bench.group()), "Widget");
    bench.patch(&widgets, "w", json!({"metadata": {"finalizers": null}})).await?;
    bench.gone(1).await?;
    Ok(())
}

#[tokio::test]
async fn removal_is_blocked_by_protected_custom_resources() -> Result<()> {
    let bench = Bench::new("protect").await?;
    let uid = bench.extension(json!({"olm.operatorframework.io/protect-custom-resources": "true"})).await?;
    bench.revision(1).owned_by(&uid).default_probes().phase("crds", [bench.crd("Widget")]).roll_out().await?;
    bench.create(&bench.custom_resource("Widget", "w")).await?;
    bench.delete(1).await?;
    let text =
        format!("; custom resources are protected and must be deleted first: 1 widgets.{}", bench.group());
    bench.message(1, "Progressing", &text).await?;
    let widgets = bench.api(&format!("{}/v1", bench.group()), "Widget");
    assert!(widgets.get("w").await?.metadata.deletion_timestamp.is_none());
    widgets.delete("w", &DeleteParams::default()).await?;
    bench.gone(1).await?;
    Ok(())
}

#[tokio::test]
async fn removal_strips_owner_and_labels_from_kept_objects() -> Result<()> {
    let bench = Bench::new("keep").await?;
    let uid = bench.extension(json!({"olm.operatorframework.io/deletion-policy": "keep"})).await?;
    let configuration = [bench.config_map("config", json!({"a": "1"}))];
    bench.revision(1).owned_by(&uid).phase("configuration", configuration).roll_out().await?;
    bench.delete(1).await?;
    bench.gone(1).await?;
    let kept = bench.config_maps().get("config").await?;
    assert_eq!(owners(&kept), Vec::<String>::new());
    assert!(kept.metadata.deletion_timestamp.is_none());
    assert!(!kept.annotations().contains_key("olm.operatorframework.io/revision"));
    // another revision may adopt it
    let next = bench.other("again");
    next.revision(1)
        .protection("IfNoController")
        .phase("configuration", [next.config_map("config", json!({"a": "2"}))])
        .roll_out()
        .await?;
    Ok(())
}

#[tokio::test]
async fn removal_keeps_a_manifest_that_asks_for_it() -> Result<()> {
    let bench = Bench::new("keepone").await?;
    let mut kept = bench.config_map("kept", json!({}));
    kept["metadata"]["annotations"] = json!({"olm.operatorframework.io/deletion-policy": "keep"});
    bench.revision(1).phase("configuration", [kept, bench.config_map("gone", json!({}))]).roll_out().await?;
    bench.delete(1).await?;
    bench.gone(1).await?;
    assert!(!bench.has_config_map("gone").await?);
    assert_eq!(owners(&bench.config_maps().get("kept").await?), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn removal_with_orphaning_leaves_the_objects() -> Result<()> {
    let bench = Bench::new("orphan").await?;
    let configuration = [bench.config_map("config", json!({"a": "1"}))];
    bench.revision(1).phase("configuration", configuration).roll_out().await?;
    bench.revisions().delete(&bench.name(1), &DeleteParams::orphan()).await?;
    bench.gone(1).await?;
    let left = bench.config_maps().get("config").await?;
    assert_eq!((owners(&left), left.metadata.deletion_timestamp.is_some()), (vec![], false));
    Ok(())
}

#[tokio::test]
async fn removal_is_not_blocked_by_lost_content() -> Result<()> {
    let bench = Bench::new("lost").await?;
    let (contents, revision) = bench
        .revision(1)
        .phase("configuration", [bench.config_map("config", json!({"a": "1"}))])
        .phase("deploy", [bench.deployment("operator", "i:1")])
        .packed()?;
    let secret = contents[0]["metadata"]["name"].as_str().unwrap_or_default();
    secrets(&bench).create(&PostParams::default(), &serde_json::from_value(contents[0].clone())?).await?;
    bench.revisions().create(&PostParams::default(), &revision).await?;
    bench.succeeded(1).await?;
    secrets(&bench).delete(secret, &DeleteParams::default()).await?;
    bench.message(1, "Progressing", "resolving ref in phase").await?;
    assert!(bench.has_config_map("config").await?, "running objects are left alone");
    bench.delete(1).await?;
    bench.gone(1).await?;
    assert!(!bench.has_config_map("config").await?);
    assert!(bench.api("apps/v1", "Deployment").get_opt("operator").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn removal_with_lost_content_deletes_custom_resources_first() -> Result<()> {
    let bench = Bench::new("lostcr").await?;
    let (contents, revision) = bench
        .revision(1)
        .default_probes()
        .phase("crds", [bench.crd("Widget")])
        .phase("deploy", [bench.deployment("operator", "i:1")])
        .packed()?;
    for content in &contents {
        secrets(&bench).create(&PostParams::default(), &serde_json::from_value(content.clone())?).await?;
    }
    bench.revisions().create(&PostParams::default(), &revision).await?;
    bench.succeeded(1).await?;
    let mut widget = bench.custom_resource("Widget", "w");
    widget["metadata"]["finalizers"] = json!(["test/operator"]);
    bench.create(&widget).await?;
    for content in &contents {
        let name = content["metadata"]["name"].as_str().unwrap_or_default();
        secrets(&bench).delete(name, &DeleteParams::default()).await?;
    }
    bench.message(1, "Progressing", "resolving ref in phase").await?;
    bench.delete(1).await?;
    let text = format!("; waiting for custom resources to go: 1 widgets.{}", bench.group());
    bench.message(1, "Progressing", &text).await?;
    let operator = bench.api("apps/v1", "Deployment").get("operator").await?;
    assert!(operator.metadata.deletion_timestamp.is_none(), "the operator still runs");
    let widgets = bench.api(&format!("{}/v1", bench.group()), "Widget");
    bench.patch(&widgets, "w", json!({"metadata": {"finalizers": null}})).await?;
    bench.gone(1).await?;
    assert!(bench.api("apps/v1", "Deployment").get_opt("operator").await?.is_none());
    Ok(())
}

/// The garbage collector deletes a revision whose extension did not wait for it; nothing requests the removal of its objects.
#[tokio::test]
async fn removal_keeps_objects_if_the_extension_went_first() -> Result<()> {
    let bench = Bench::new("deserted").await?;
    let uid = bench.extension(json!({})).await?;
    let extensions: Api<ClusterExtension> = Api::all(bench.client.clone());
    let configuration = [bench.config_map("config", json!({"a": "1"}))];
    bench.revision(1).owned_by(&uid).phase("configuration", configuration).roll_out().await?;
    // no finalizer holds it
    extensions.delete(&bench.extension, &DeleteParams::default()).await?;
    bench.gone(1).await?;
    let kept = bench.config_maps().get("config").await?;
    assert_eq!((owners(&kept), kept.metadata.deletion_timestamp), (vec![], None));
    Ok(())
}

/// The extension goes with two revisions in force; the older one is deleted first and waits for the newer one all the same.
#[tokio::test]
async fn removal_deletes_the_latest_revision_first() -> Result<()> {
    let bench = Bench::new("twogo").await?;
    bench.extension(json!({})).await?;
    let extensions: Api<ClusterExtension> = Api::all(bench.client.clone());
    let hold = |finalizers: serde_json::Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let extension =
        extensions.patch(&bench.extension, &PatchParams::default(), &hold(json!(["test/hold"]))).await?;
    let uid = extension.uid().unwrap_or_default();
    let revision = |number| bench.revision(number).owned_by(&uid).probe("", "ConfigMap", "data.ready", "yes");
    let gate = |ready: &str| bench.config_map("gate", json!({"ready": ready}));
    let old = bench.config_map("old", json!({"ready": "yes"}));
    revision(1).phase("first", [gate("yes"), old]).roll_out().await?;
    revision(2).phase("first", [gate("no")]).create().await?;
    bench.reason(2, "Available", "False", "ProbeFailure").await?;
    extensions.delete(&bench.extension, &DeleteParams::default()).await?;
    bench.until_cached("being deleted", |metadata| metadata.deletion_timestamp.is_some()).await?;
    bench.delete(1).await?;
    let text = format!("; waiting for revision {} to be removed", bench.name(2));
    bench.message(1, "Progressing", &text).await?;
    assert!(bench.config_maps().get("old").await?.metadata.deletion_timestamp.is_none());
    bench.delete(2).await?;
    bench.gone(2).await?;
    bench.gone(1).await?;
    for name in ["old", "gate"] {
        assert!(!bench.has_config_map(name).await?, "{name}");
    }
    extensions.patch(&bench.extension, &PatchParams::default(), &hold(json!(null))).await?;
    Ok(())
}

#[tokio::test]
async fn removal_of_a_new_revision_returns_objects_to_the_old_one() -> Result<()> {
    let bench = Bench::new("back").await?;
    let gate = |ready: &str| bench.config_map("gate", json!({"ready": ready}));
    let revision = |number| bench.revision(number).probe("", "ConfigMap", "data.ready", "yes");
    revision(1).phase("first", [gate("yes")]).roll_out().await?;
    revision(2).phase("first", [gate("no")]).create().await?;
    bench.reason(2, "Available", "False", "ProbeFailure").await?;
    bench.delete(2).await?;
    bench.gone(2).await?;
    // the reference to the deleted revision goes with it or, a little later, by the garbage collector
    Wait::new(&bench.config_maps(), "gate")
        .until("is back in the hands of revision 1 alone", |gate| {
            gate.data["data"]["ready"] == "yes" && owners(gate) == [format!("{}*", bench.name(1))]
        })
        .await?;
    bench.succeeded(1).await?;
    Ok(())
}

/// The revision of a stuck upgrade is deleted by hand. With the CRD, all custom resources would go.
#[tokio::test]
async fn removal_of_a_stuck_revision_keeps_custom_resources() -> Result<()> {
    let bench = Bench::new("stuck").await?;
    let uid = bench.extension(json!({})).await?;
    let gate = |ready: &str| bench.config_map("gate", json!({"ready": ready}));
    let revision = |number: i64, ready| {
        bench
            .revision(number)
            .owned_by(&uid)
            .probe("", "ConfigMap", "data.ready", "yes")
            .phase("crds", [bench.crd("Widget")])
            .phase("deploy", [bench.deployment("operator", &format!("i:{number}")), gate(ready)])
    };
    revision(1, "yes").roll_out().await?;
    let deployments = bench.api("apps/v1", "Deployment");
    let operator = deployments.get("operator").await?.uid();
    let widget = bench.create(&bench.custom_resource("Widget", "w")).await?.uid();
    revision(2, "no").create().await?;
    bench.reason(2, "Available", "False", "ProbeFailure").await?;
    bench.delete(2).await?;
    bench.gone(2).await?;
    let widgets = bench.api(&format!("{}/v1", bench.group()), "Widget");
    let left = widgets.get("w").await?;
    assert_eq!((left.uid(), left.metadata.deletion_timestamp), (widget, None));
    let found = deployments.get("operator").await?;
    assert_eq!(found.uid(), operator, "it was deleted and made again");
    assert_eq!(found.data["spec"]["template"]["spec"]["containers"][0]["image"], "i:1");
    bench.succeeded(1).await?;
    Ok(())
}
