//! Damage that the checks must find.

use anyhow::{Result, bail};
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::ClusterCatalog;
use olm_api::labels;
use olm_kit::SYSTEM_NAMESPACE;
use serde_json::json;

use crate::world::World;

/// Done once, after the first churn.
#[derive(Debug)]
pub(crate) enum Damage {
    None,
    /// A content Secret of a revision that is not there.
    Secret,
    /// A folder in catalogd's staging area.
    File,
    /// catalogd's account continues to write.
    Writes,
}

impl Damage {
    /// From `OLM_SOAK_BREAK`.
    pub(crate) fn from_environment() -> Result<Self> {
        Ok(match std::env::var("OLM_SOAK_BREAK").as_deref() {
            Err(_) | Ok("") => Self::None,
            Ok("secret") => Self::Secret,
            Ok("file") => Self::File,
            Ok("writes") => Self::Writes,
            Ok(other) => bail!("OLM_SOAK_BREAK: {other:?} is none of secret, file, writes"),
        })
    }

    /// Does it.
    pub(crate) async fn strike(&mut self, world: &World) -> Result<()> {
        match self {
            Self::None => {}
            Self::Secret => {
                let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
                    "name": "left-behind", "namespace": SYSTEM_NAMESPACE,
                    "labels": {labels::OWNER_NAME: "soak-00", labels::REVISION_NAME: "soak-00-999"}}});
                world.cluster.apply(&secret.to_string()).await?;
            }
            Self::File => {
                std::fs::create_dir_all(world.process("catalogd")?.cache().join("staging/left-behind"))?;
            }
            Self::Writes => {
                let kubeconfig = world.cluster.kubeconfig_that_may_all("catalogd").await?;
                let client = olm_kit::Cluster::client_from(&kubeconfig).await?;
                let name = world.shelves[0].name.clone();
                tokio::spawn(async move {
                    let catalogs: Api<ClusterCatalog> = Api::all(client);
                    for number in 0..600 {
                        let note = json!({"metadata": {"annotations": {"note": number.to_string()}}});
                        let _ = catalogs.patch(&name, &PatchParams::default(), &Patch::Merge(note)).await;
                        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    }
                });
                *self = Self::None;
            }
        }
        Ok(())
    }
}
