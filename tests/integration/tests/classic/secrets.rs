//! Pull secrets of plans that another OLM Classic made.
//!
//! Rule: classic-apis §5.3.

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::classic::InstallPlan;
use olm_kit::Wait;
use serde_json::json;

use crate::site::{LIMIT, Site};

#[tokio::test]
async fn classic_plan_copies_a_pull_secret_of_its_catalog() -> Result<()> {
    let site = Site::start().await?;
    let catalogs = site.other_namespace("catalogs").await?;
    let metadata = json!({"name": "pull", "namespace": catalogs});
    site.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": "of the catalog"}})).await?;
    let metadata = json!({"name": "install-old", "namespace": site.namespace});
    let spec = json!({"approval": "Automatic", "approved": true, "clusterServiceVersionNames": []});
    let plan = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan", "metadata": metadata, "spec": spec});
    site.apply(&plan).await?;
    let manifest = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"}}).to_string();
    let resource = json!({
        "group": "", "version": "v1", "kind": "Secret", "name": "pull", "manifest": manifest,
        "sourceName": "main", "sourceNamespace": catalogs,
    });
    let step = json!({"resolving": "demo.v1", "resource": resource, "status": "Unknown"});
    let status = json!({"status": {"phase": "Installing", "catalogSources": ["main"], "plan": [step]}});
    let plans: Api<InstallPlan> = site.api();
    plans.patch_status("install-old", &PatchParams::default(), &Patch::Merge(status)).await?;

    let copies: Api<Secret> = site.api();
    let has_content =
        |copy: &Secret| copy.data.as_ref().is_some_and(|data| data["key"].0 == b"of the catalog");
    Wait::new(&copies, "pull").within(LIMIT).log(site.log()).until("it is copied", has_content).await?;
    Ok(())
}
