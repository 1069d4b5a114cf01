//! catalogd on a real control plane: the controller, the process, registries that fail, and signature policies.

mod cluster;
mod faults;
mod process;
mod quarantine;
mod signatures;
#[expect(clippy::unwrap_used, reason = "part of a test, and a test may panic")]
#[path = "../../../../crates/olm-oci/tests/registry/support/mod.rs"]
mod support;

use anyhow::Result;
use kube::api::{Api, Patch, PatchParams, PostParams};
use olm_api::{ClusterCatalog, annotations};
use serde_json::{Value, json};

type Catalogs = Api<ClusterCatalog>;

/// Creates a catalog of an image: a reference, and what else the field has.
async fn create(api: &Catalogs, name: &str, image: Value) -> Result<()> {
    let object = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": { "name": name },
        "spec": { "source": { "type": "Image", "image": image } },
    });
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

async fn merge(api: &Catalogs, name: &str, patch: Value) -> Result<()> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Requests an attempt now (decision 31).
async fn request(api: &Catalogs, name: &str, word: &str) -> Result<()> {
    merge(api, name, json!({ "metadata": { "annotations": { annotations::REQUESTED_AT: word } } })).await
}
