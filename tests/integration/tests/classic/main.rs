//! classic-controller on a real control plane. Here, with catalogs in ConfigMaps: what a user gets out of by the objects alone.
//!
//! Rule: classic-apis §3 to §6, decision 54.

mod edits;
mod extensions;
mod real;
mod secrets;
mod site;
mod unreadable;

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, InstallPlan, Subscription};
use olm_kit::{Wait, eventually};
use serde_json::{Value, json};

use site::{LIMIT, Site};

/// A condition that is True, with its message.
fn is_true(subscription: &Subscription, type_: &str) -> bool {
    let mut conditions = subscription.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|it| it.type_ == type_ && it.status == olm_api::ConditionStatus::True)
}

fn has_installed(subscription: &Subscription, csv: &str) -> bool {
    subscription
        .status
        .as_ref()
        .is_some_and(|status| status.installed_csv == csv && status.state == "AtLatestKnown")
}

fn is_phase(plan: &InstallPlan, phase: &str) -> bool {
    plan.status.as_ref().is_some_and(|status| status.phase == phase)
}

#[tokio::test]
async fn classic_subscription_continues_with_its_csv() -> Result<()> {
    let site = Site::start().await?;
    let subscriptions: Api<Subscription> = site.api();
    let csvs: Api<ClusterServiceVersion> = site.api();
    site.catalog(&["1"], "v1").await?;
    site.subscribe("Automatic").await?;
    let wait = || Wait::new(&subscriptions, "demo").within(LIMIT).log(site.log());
    wait().until("the first version is installed", |it| has_installed(it, "demo.v1")).await?;
    let label = format!("operators.coreos.com/demo.{}", site.namespace);
    let labelled = |csv: &ClusterServiceVersion| csv.labels().contains_key(&label);
    let csv = Wait::new(&csvs, "demo.v1").within(LIMIT).until("it is a component", labelled).await?;

    subscriptions.delete("demo", &DeleteParams::default()).await?;
    wait().to_be_gone().await?;
    site.subscribe("Automatic").await?;
    let again = wait().until("it has the same version", |it| has_installed(it, "demo.v1")).await?;
    ensure!(!is_true(&again, "ResolutionFailed"), "{again:?}");
    ensure!(csvs.get("demo.v1").await?.uid() == csv.uid(), "it was made again");
    site.event("Subscription", "Adopted", "continues with ClusterServiceVersion demo.v1").await?;

    csvs.delete("demo.v1", &DeleteParams::default()).await?;
    Wait::new(&csvs, "demo.v1").within(LIMIT).to_be_gone().await?;
    wait().until("its end is reported", |it| is_true(it, "InstalledCSVMissing")).await?;
    site.event("Subscription", "Waiting", "ClusterServiceVersion demo.v1").await?;
    ensure!(csvs.get_opt("demo.v1").await?.is_none(), "nothing installs it again");
    Ok(())
}

#[tokio::test]
async fn classic_pending_plan_gives_way_to_a_newer_version() -> Result<()> {
    let site = Site::start().await?;
    let plans: Api<InstallPlan> = site.api();
    let subscriptions: Api<Subscription> = site.api();
    // the only plan of the namespace, which installs this version and waits for approval
    let pending = async |csv: &str| {
        let what = format!("a plan for {csv} waits for approval");
        eventually(&what, LIMIT, || async {
            let all = plans.list(&ListParams::default()).await?.items;
            let [plan] = all.as_slice() else { anyhow::bail!("{} plans", all.len()) };
            ensure!(plan.spec.cluster_service_version_names == [csv] && is_phase(plan, "RequiresApproval"));
            Ok(plan.name_any())
        })
        .await
    };
    site.catalog(&["1"], "v1").await?;
    site.subscribe("Manual").await?;
    let first = pending("demo.v1").await?;
    site.event("InstallPlan", "Waiting", "set spec.approved to true").await?;
    site.catalog(&["1", "2"], "v1").await?;
    let second = pending("demo.v2").await?;
    ensure!(first != second, "{first} was used again");
    site.event("Subscription", "PlanSuperseded", "demo.v2 takes the place of demo.v1").await?;
    site.event("InstallPlan", "PlanSuperseded", "a newer InstallPlan takes its place, for demo.v2").await?;
    site.merge(&plans, &second, json!({"spec": {"approved": true}})).await?;
    let wait = Wait::new(&subscriptions, "demo").within(LIMIT).log(site.log());
    wait.until("it is installed", |it| has_installed(it, "demo.v2")).await?;
    Ok(())
}

#[tokio::test]
async fn classic_failed_plan_is_retried_with_its_csv() -> Result<()> {
    let site = Site::start().await?;
    let plans: Api<InstallPlan> = site.api();
    let csvs: Api<ClusterServiceVersion> = site.api();
    let crds: Api<CustomResourceDefinition> = Api::all(site.client.clone());
    site.definition("v0").await?;
    site.catalog(&["1"], "v1").await?;
    site.subscribe("Automatic").await?;
    let failed = eventually("the plan fails", LIMIT, || async {
        let all = plans.list(&ListParams::default()).await?.items;
        let failed = all.into_iter().find(|plan| is_phase(plan, "Failed"));
        failed.ok_or_else(|| anyhow::anyhow!("no plan is Failed"))
    })
    .await?;
    let name = failed.name_any();
    site.event("InstallPlan", "Waiting", "to retry it, set spec.approved to false").await?;
    let csv = csvs.get("demo.v1").await?;

    crds.delete("widgets.demo.test", &DeleteParams::default()).await?;
    Wait::new(&crds, "widgets.demo.test").within(LIMIT).to_be_gone().await?;
    let wait = || Wait::new(&plans, &name).within(LIMIT).log(site.log());
    site.merge(&plans, &name, json!({"spec": {"approved": false}})).await?;
    wait().until("it waits for approval", |it| is_phase(it, "RequiresApproval")).await?;
    site.merge(&plans, &name, json!({"spec": {"approved": true}})).await?;
    wait().until("it is complete", |it| is_phase(it, "Complete")).await?;
    ensure!(csvs.get("demo.v1").await?.uid() == csv.uid(), "the version was made again");
    Ok(())
}

#[tokio::test]
async fn classic_controllers_that_are_left_out_write_nothing() -> Result<()> {
    let site = Site::start_with(&[("--controllers", "catalog,subscription,group")]).await?;
    let (plans, csvs): (Api<InstallPlan>, Api<ClusterServiceVersion>) = (site.api(), site.api());
    site.catalog(&["1"], "v1").await?;
    site.subscribe("Automatic").await?;
    let is_pending = |it: &Subscription| {
        it.status.as_ref().is_some_and(|it| it.state == "UpgradePending" && it.install_plan_ref.is_some())
    };
    let subscriptions: Api<Subscription> = site.api();
    let wait = Wait::new(&subscriptions, "demo").within(LIMIT).log(site.log());
    wait.until("it has a plan", is_pending).await?;
    // an install takes a second
    tokio::time::sleep(Duration::from_secs(3)).await;
    let all = plans.list(&ListParams::default()).await?.items;
    ensure!(all.len() == 1 && !is_phase(&all[0], "Complete"), "{all:?}");
    ensure!(csvs.list(&ListParams::default()).await?.items.is_empty(), "the plan was carried out");
    Ok(())
}

#[tokio::test]
async fn classic_waits_without_a_subscription_are_events() -> Result<()> {
    let site = Site::start().await?;
    let object = |api: &str, kind: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": site.namespace});
        json!({"apiVersion": format!("operators.coreos.com/{api}"), "kind": kind, "metadata": metadata, "spec": spec})
    };
    let csv = |name: &str, replaces: &str, required: Value| {
        let spec = json!({
            "displayName": "demo", "replaces": replaces, "install": {"strategy": "deployment", "spec": {"deployments": []}},
            "installModes": [{"type": "OwnNamespace", "supported": true}],
            "customresourcedefinitions": {"required": required},
        });
        object("v1alpha1", "ClusterServiceVersion", name, spec)
    };
    let missing = json!([{"name": "gadgets.demo.test", "version": "v1", "kind": "Gadget"}]);
    site.apply(&csv("demo.v1", "", missing)).await?;
    site.apply(&csv("demo.v2", "demo.v1", json!([]))).await?;
    site.event("ClusterServiceVersion", "Waiting", "waiting until ClusterServiceVersion demo.v1").await?;
    let spec = json!({"sourceType": "configmap", "configMap": "gone"});
    site.apply(&object("v1alpha1", "CatalogSource", "main", spec)).await?;
    site.event("CatalogSource", "Waiting", "gone not found").await?;
    site.apply(&object("v1", "OperatorGroup", "second", json!({}))).await?;
    site.event("OperatorGroup", "Waiting", "delete all but one").await
}
