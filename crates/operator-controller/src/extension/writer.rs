//! Writing revisions: Secrets first, then the ClusterObjectSet, then the Secrets' owner. Idempotent at every step.
//!
//! Rule: revisions §4.3, §4.5 (order, texts, crash safety). It decides nothing about content.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterObjectSet, annotations, field_managers, labels, secret_types};
use olm_core::Object;
use olm_install::desired::Numbered;
use olm_rollout::{PackedSecret, unpack};
use serde_json::json;

use crate::secret_cache::SecretCache;
use crate::written_by;

/// Field manager of what is not applied: extensions themselves, and the Secrets of revisions.
pub(super) const FIELD_MANAGER: &str = "operator-controller";

/// The error of writing a revision.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An old archived revision could not be deleted.
    #[error("garbage collecting old revisions: {0}")]
    Retention(#[source] kube::Error),
    /// A Secret could not be created.
    #[error("creating ref Secret {name:?}: {source}")]
    Secret { name: String, source: kube::Error },
    /// A Secret of this name holds other content.
    #[error("creating ref Secret {name:?}: it exists and holds other content; delete it")]
    Foreign { name: String },
    /// The apiserver rejected the revision.
    #[error("creating new Revision: {0}")]
    Create(#[source] kube::Error),
    /// The settings of an existing revision could not be changed.
    #[error("patching {name} Revision: {source}")]
    Update { name: String, source: kube::Error },
    /// The owner of the Secrets could not be set.
    #[error("patching ownerReferences on ref Secrets: {0}")]
    Owner(#[source] kube::Error),
}

/// Writes revisions and their Secrets as the controller itself.
#[derive(Clone)]
pub struct RevisionWriter {
    sets: Api<ClusterObjectSet>,
    secrets: Api<Secret>,
    kept: SecretCache,
}

impl RevisionWriter {
    /// Creates Secrets in `system_namespace`, and adds them to the cache of Secrets.
    pub fn new(client: Client, system_namespace: &str, kept: SecretCache) -> Self {
        Self { sets: Api::all(client.clone()), secrets: Api::namespaced(client, system_namespace), kept }
    }

    /// Creates a revision, after deleting `expired` ones. `fingerprint` becomes an annotation of its Secrets.
    ///
    /// # Errors
    /// The step that failed; every step can be repeated.
    pub async fn create(
        &self,
        revision: &Numbered,
        expired: &[String],
        fingerprint: &str,
    ) -> Result<ClusterObjectSet, WriteError> {
        for name in expired {
            match self.sets.delete(name, &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => return Err(WriteError::Retention(error)),
                _ => {}
            }
        }
        let owner_name = revision.set.labels().get(labels::OWNER_NAME).cloned().unwrap_or_default();
        let set_name = revision.set.name_any();
        let mut all_new = true;
        let failed = |secret: &PackedSecret, source| WriteError::Secret { name: secret.name.clone(), source };
        for secret in &revision.packed.secrets {
            let desired = ref_secret(secret, &set_name, &owner_name, fingerprint);
            match self.secrets.create(&posting(), &desired).await {
                Ok(created) => self.kept.put(&Arc::new(created)),
                Err(error) if is_conflict(&error) => {
                    all_new = false;
                    if !self.renew(&desired, &set_name).await.map_err(|source| failed(secret, source))? {
                        return Err(WriteError::Foreign { name: secret.name.clone() });
                    }
                }
                Err(source) => return Err(failed(secret, source)),
            }
        }
        let stored = self.apply(&set_name, &revision.set).await.map_err(WriteError::Create)?;
        if all_new {
            for secret in &revision.packed.secrets {
                self.set_owner(&secret.name, &stored).await?;
            }
        } else {
            self.own_secrets(&stored).await?;
        }
        Ok(stored)
    }

    /// A Secret of this name exists. If it belongs to an earlier revision of the same name, the garbage collector will delete
    /// it: it is replaced now. Returns whether the Secret has the right content in the end: its name is a hash of the content, but
    /// another user with rights on Secrets could have created it.
    async fn renew(&self, desired: &Secret, revision: &str) -> Result<bool, kube::Error> {
        let name = desired.name_any();
        if let Some(found) = self.secrets.get_opt(&name).await? {
            let owners = found.owner_references();
            let present = self.sets.get_metadata_opt(revision).await?.and_then(|set| set.metadata.uid);
            let stays = owners.is_empty() || owners.iter().any(|owner| Some(&owner.uid) == present.as_ref());
            if stays && found.metadata.deletion_timestamp.is_none() {
                return Ok(same_content(&found, desired));
            }
            self.delete_secret(&name, found.metadata.uid).await?;
        }
        self.secrets.create(&posting(), desired).await.map(|_| true)
    }

    async fn delete_secret(&self, name: &str, uid: Option<String>) -> Result<(), kube::Error> {
        let same = Preconditions { uid, resource_version: None };
        match self.secrets.delete(name, &DeleteParams::default().preconditions(same)).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes the Secrets of an extension whose revisions are gone: those that the garbage collector would delete, perhaps
    /// half a minute later, and those that never got an owner. Secrets of the revisions with the UIDs `alive` stay.
    ///
    /// # Errors
    /// When the apiserver rejects a deletion; it can be repeated.
    pub async fn sweep(&self, extension: &str, alive: &HashSet<String>) -> Result<(), kube::Error> {
        let of_extension = ListParams::default()
            .labels(&format!("{}={extension},{}", labels::OWNER_NAME, labels::REVISION_NAME))
            .fields(&format!("type={}", secret_types::OBJECT_DATA));
        for secret in self.secrets.list_metadata(&of_extension).await? {
            if !secret.owner_references().iter().any(|owner| alive.contains(&owner.uid)) {
                self.delete_secret(&secret.name_any(), secret.uid()).await?;
            }
        }
        Ok(())
    }

    /// Changes the settings that can change in place: annotations, probes, deadline.
    ///
    /// # Errors
    /// When the apiserver rejects the write.
    pub async fn update(&self, set: &ClusterObjectSet) -> Result<ClusterObjectSet, WriteError> {
        let name = set.name_any();
        self.apply(&name, set).await.map_err(|source| WriteError::Update { name, source })
    }

    /// Writes the deletion policy of the extension on a revision.
    ///
    /// # Errors
    /// When the apiserver rejects the write.
    pub async fn stamp_policy(&self, set: &ClusterObjectSet, keep: bool) -> Result<(), kube::Error> {
        let policy = keep.then_some(annotations::DELETION_POLICY_KEEP);
        let patch =
            json!({"metadata": {"uid": set.uid(), "annotations": {(annotations::DELETION_POLICY): policy}}});
        match self
            .sets
            .patch_metadata(&set.name_any(), &written_by(FIELD_MANAGER), &Patch::Merge(&patch))
            .await
        {
            Err(error) if !is_not_found(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the revision the owner of its Secrets that have none yet. Returns the fingerprint in their annotations.
    ///
    /// One LIST; nothing is written when all have their owner.
    ///
    /// # Errors
    /// When the apiserver rejects the write.
    pub async fn own_secrets(&self, set: &ClusterObjectSet) -> Result<Option<String>, WriteError> {
        let name = set.name_any();
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let of_revision = ListParams::default().labels(&format!("{}={name}", labels::REVISION_NAME));
        let found = self.secrets.list_metadata(&of_revision).await.map_err(WriteError::Owner)?;
        let mut fingerprint = None;
        for secret in found {
            fingerprint = secret.annotations().get(annotations::RENDER_INPUTS).cloned().or(fingerprint);
            if !secret.owner_references().iter().any(|owner| owner.uid == uid) {
                self.set_owner(&secret.name_any(), set).await?;
            }
        }
        Ok(fingerprint)
    }

    /// Makes the revision the owner of a Secret that has none.
    async fn set_owner(&self, secret: &str, set: &ClusterObjectSet) -> Result<(), WriteError> {
        let patch = json!({"metadata": {"ownerReferences": [{
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
            "name": set.name_any(), "uid": set.metadata.uid, "controller": true, "blockOwnerDeletion": true,
        }]}});
        match self.secrets.patch_metadata(secret, &written_by(FIELD_MANAGER), &Patch::Merge(&patch)).await {
            Err(error) if !is_not_found(&error) => Err(WriteError::Owner(error)),
            _ => Ok(()),
        }
    }

    async fn apply(&self, name: &str, set: &ClusterObjectSet) -> Result<ClusterObjectSet, kube::Error> {
        let params = PatchParams::apply(field_managers::CLUSTER_EXTENSION_CONTROLLER).force();
        self.sets.patch(name, &params, &Patch::Apply(set)).await
    }
}

/// A creation under the controller's field manager.
fn posting() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn ref_secret(secret: &PackedSecret, revision: &str, owner: &str, fingerprint: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(secret.name.clone()),
            labels: Some(BTreeMap::from([
                (labels::REVISION_NAME.to_owned(), revision.to_owned()),
                (labels::OWNER_NAME.to_owned(), owner.to_owned()),
            ])),
            annotations: Some([(annotations::RENDER_INPUTS.to_owned(), fingerprint.to_owned())].into()),
            ..ObjectMeta::default()
        },
        type_: Some(secret_types::OBJECT_DATA.to_owned()),
        immutable: Some(true),
        data: Some(secret.data.iter().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect()),
        ..Secret::default()
    }
}

/// Whether two Secrets hold the same objects under the same keys; how they are compressed does not count.
fn same_content(found: &Secret, desired: &Secret) -> bool {
    let objects = |secret: &Secret| -> Option<Vec<(String, Object)>> {
        let data = secret.data.iter().flatten();
        data.map(|(key, value)| Some((key.clone(), unpack(&value.0, key, "").ok()?))).collect()
    };
    objects(found).is_some_and(|found| objects(desired).is_some_and(|desired| found == desired))
}

/// Whether the apiserver answered that the object is not there.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the apiserver answered that the object exists already, or was changed meanwhile.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rule: revisions §3, §4.4
    #[test]
    fn content_secret_has_the_fields_that_clients_read() {
        let data = BTreeMap::from([("key".to_owned(), b"value".to_vec())]);
        let packed = PackedSecret { name: "demo-1-0123456789abcdef".to_owned(), data };
        let secret = serde_json::to_value(ref_secret(&packed, "demo-1", "demo", "inputs")).unwrap();
        assert_eq!(
            secret,
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "olm.operatorframework.io/object-data", "immutable": true,
                "metadata": {
                    "name": "demo-1-0123456789abcdef",
                    "labels": {"olm.operatorframework.io/revision-name": "demo-1", "olm.operatorframework.io/owner-name": "demo"},
                    "annotations": {"olm.operatorframework.io/render-inputs": "inputs"},
                },
                "data": {"key": "dmFsdWU="},
            })
        );
    }

    /// rule: revisions §4.3
    #[test]
    fn write_errors_name_the_step() {
        let refused = || kube::Error::Api(kube::core::Status::failure("no", "Forbidden").boxed());
        for (error, want) in [
            (WriteError::Retention(refused()), "garbage collecting old revisions: "),
            (WriteError::Secret { name: "s".to_owned(), source: refused() }, "creating ref Secret \"s\": "),
            (WriteError::Create(refused()), "creating new Revision: "),
            (
                WriteError::Update { name: "demo-1".to_owned(), source: refused() },
                "patching demo-1 Revision: ",
            ),
            (WriteError::Owner(refused()), "patching ownerReferences on ref Secrets: "),
        ] {
            let text = error.to_string();
            assert!(text.starts_with(want) && text.contains("no"), "{text}");
        }
    }
}
