//! ClusterExtension: operator-controller §1.1.

use anyhow::Result;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject};
use olm_integration::{api, patched};
use olm_kit::unique;
use serde_json::{Value, json};

use crate::cases::{Case, accepted, cases, create_accepted, offer_all, offer_changes, write_statuses};
use crate::cluster;

const CASES: &str = include_str!("cases/extension.yaml");

pub(crate) fn extensions(client: &Client) -> Api<DynamicObject> {
    api(client, "ClusterExtension", "clusterextensions")
}

pub(crate) fn base() -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "offered"},
        "spec": {"namespace": "default", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
    })
}

#[tokio::test]
async fn extension_schema_validates_package_names() -> Result<()> {
    let (_, client) = cluster().await?;
    offer_all(&extensions(&client), cases(CASES, "package names", &base())?).await
}

#[tokio::test]
async fn extension_schema_validates_version_ranges() -> Result<()> {
    let (_, client) = cluster().await?;
    offer_all(&extensions(&client), cases(CASES, "version ranges", &base())?).await
}

#[tokio::test]
async fn extension_schema_validates_namespaces() -> Result<()> {
    let (_, client) = cluster().await?;
    offer_all(&extensions(&client), cases(CASES, "namespaces", &base())?).await
}

#[tokio::test]
async fn extension_schema_validates_other_fields() -> Result<()> {
    let (_, client) = cluster().await?;
    let mut all = cases(CASES, "other fields", &base())?;
    let too_many = [("spec.source.catalog.channels", "must have at most 256 items")];
    for (count, rejected) in [(256, &[][..]), (257, &too_many)] {
        let object = patched(base(), &[("/spec/source/catalog/channels", json!(vec!["c"; count]))]);
        all.push(Case::new(&format!("{count} channels"), object, rejected));
    }
    offer_all(&extensions(&client), all).await
}

#[tokio::test]
async fn extension_schema_fills_in_defaults_only() -> Result<()> {
    let (_, client) = cluster().await?;
    let stored = accepted(&extensions(&client), base()).await?;
    let catalog = json!({"packageName": "demo", "upgradeConstraintPolicy": "CatalogProvided"});
    let want = json!({"namespace": "default", "source": {"sourceType": "Catalog", "catalog": catalog}});
    assert_eq!(stored.data["spec"], want);
    assert_eq!(stored.data.get("status"), None);

    // an explicit null is dropped; a schema with `nullable` would store it
    let null = patched(
        base(),
        &[("/spec/source/catalog", json!({"packageName": "demo", "version": null, "channels": null}))],
    );
    assert_eq!(accepted(&extensions(&client), null).await?.data["spec"], want);
    Ok(())
}

#[tokio::test]
async fn extension_schema_rejects_immutable_changes() -> Result<()> {
    let (_, client) = cluster().await?;
    let api = extensions(&client);
    let name = unique("immutable");
    let with_account = patched(
        base(),
        &[("/metadata/name", json!(name)), ("/spec/serviceAccount/name", json!("installer"))],
    );
    offer_changes(&api, &create_accepted(&api, with_account).await?, CASES, "changes").await?;
    api.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn extension_schema_validates_status() -> Result<()> {
    let (_, client) = cluster().await?;
    let condition = json!({"conditions": [{"type": "Installed", "status": "True", "reason": "Succeeded", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let mut all = cases(CASES, "conditions", &condition)?;
    all.extend(cases(CASES, "status", &json!({}))?);
    let object = patched(base(), &[("/metadata/name", json!(unique("status")))]);
    write_statuses(&extensions(&client), object, all).await
}
