//! Pull secrets of plans that another OLM Classic made.
//!
//! Rule: classic-apis §5.3.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::classic::InstallPlan;
use olm_kit::{CLASSIC_NAMESPACE, Wait};
use serde_json::json;

use crate::site::{LIMIT, Site};

/// Makes a Secret in a namespace, and a plan that copies it as the pull secret of a catalog there.
async fn plan(site: &Site, name: &str, secret: &str, from: &str) -> Result<()> {
    let metadata = json!({"name": secret, "namespace": from});
    let content = json!({"key": "of the catalog"});
    site.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content}))
        .await?;
    let metadata = json!({"name": name, "namespace": site.namespace});
    let spec = json!({"approval": "Automatic", "approved": true, "clusterServiceVersionNames": []});
    let plan = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan", "metadata": metadata, "spec": spec});
    site.apply(&plan).await?;
    let manifest = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}}).to_string();
    let resource = json!({
        "group": "", "version": "v1", "kind": "Secret", "name": secret, "manifest": manifest, "sourceName": "main", "sourceNamespace": from,
    });
    let step = json!({"resolving": "demo.v1", "resource": resource, "status": "Unknown"});
    let status = json!({"status": {"phase": "Installing", "catalogSources": ["main"], "plan": [step]}});
    let plans: Api<InstallPlan> = site.api();
    plans.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

#[tokio::test]
async fn classic_plan_copies_pull_secrets_of_its_catalogs() -> Result<()> {
    let site = Site::start().await?;
    site.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLASSIC_NAMESPACE}}))
        .await?;
    plan(&site, "install-old", "pull", CLASSIC_NAMESPACE).await?;
    let (copies, plans): (Api<Secret>, Api<InstallPlan>) = (site.api(), site.api());
    let has_content =
        |copy: &Secret| copy.data.as_ref().is_some_and(|data| data["key"].0 == b"of the catalog");
    Wait::new(&copies, "pull").within(LIMIT).log(site.log()).until("it is copied", has_content).await?;

    let other = site.other_namespace("other").await?;
    plan(&site, "install-foreign", "private", &other).await?;
    let has_failed = |plan: &InstallPlan| plan.status.as_ref().is_some_and(|it| it.phase == "Failed");
    let wait = Wait::new(&plans, "install-foreign").within(LIMIT).log(site.log());
    wait.until("it is refused", has_failed).await?;
    ensure!(copies.get_opt("private").await?.is_none(), "a Secret of another namespace was copied");
    Ok(())
}
