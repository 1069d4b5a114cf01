//! Writing revisions: Secrets first, then the ClusterObjectSet, then the Secrets' owner. Idempotent at every step.
//!
//! Rule: revisions §4.3, §4.5 (order, texts, crash safety). It decides nothing about content.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, field_managers, labels, secret_types};
use olm_core::Object;
use olm_install::desired::Numbered;
use olm_install::resolution::{Class, PassError};
use olm_rollout::{PackedSecret, unpack};
use olm_runtime::apply;
use serde_json::json;

use crate::recorded::Recorded;
use crate::secret_cache::SecretCache;
use crate::written_by;

/// Field manager of what is not applied: extensions themselves, and the Secrets of revisions.
pub(super) const FIELD_MANAGER: &str = "operator-controller";

/// The error of writing a revision.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An old archived revision could not be deleted.
    #[error("garbage collecting old revisions: {}", apply::message(.0))]
    Retention(#[source] kube::Error),
    /// A Secret could not be created.
    #[error("creating ref Secret {name:?}: {}", apply::message(.source))]
    Secret { name: String, source: kube::Error },
    /// A Secret of this name holds other content.
    #[error("creating ref Secret {name:?}: it exists and holds other content; delete it")]
    Foreign { name: String },
    /// The apiserver rejected the revision.
    #[error("creating new Revision: {}", apply::message(.0))]
    Create(#[source] kube::Error),
    /// The settings of an existing revision could not be changed.
    #[error("patching {name} Revision: {}", apply::message(.source))]
    Update { name: String, source: kube::Error },
    /// The owner of the Secrets could not be set.
    #[error("patching ownerReferences on ref Secrets: {}", apply::message(.0))]
    Owner(#[source] kube::Error),
    /// Whether the revision can be written could not be read.
    #[error("reading {object} before writing a revision: {}", apply::message(.source))]
    Read { object: String, source: kube::Error },
    /// A revision of this name belongs to something else.
    #[error(
        "creating new Revision: {name} exists already and is not owned by this extension; delete it, or wait until it is gone"
    )]
    Taken { name: String },
    /// A revision of this name is the extension's, but is not found by its label.
    #[error(
        "creating new Revision: {name} exists already and has lost its label {label}; run: kubectl label clusterobjectset {name} {label}={owner} --overwrite",
        label = labels::OWNER_NAME
    )]
    Unlabelled { name: String, owner: String },
    /// It is not as the caches have it, and was not written.
    #[error("{0} has changed meanwhile")]
    Changed(String),
}

/// Why a step of a pass did not come to its end.
#[derive(Debug)]
pub enum StepError {
    /// It becomes part of the status.
    Failed(PassError),
    /// What the pass was about has changed: another pass follows, and the status stays as it is.
    Changed(WriteError),
}

impl From<PassError> for StepError {
    fn from(error: PassError) -> Self {
        Self::Failed(error)
    }
}

impl From<WriteError> for StepError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Changed(_) => Self::Changed(error),
            error => Self::Failed(PassError::new(Class::Transient, error.to_string())),
        }
    }
}

/// Writes revisions and their Secrets as the controller itself.
#[derive(Clone)]
pub struct RevisionWriter {
    extensions: Api<ClusterExtension>,
    sets: Api<ClusterObjectSet>,
    secrets: Api<Secret>,
    kept: SecretCache,
}

impl RevisionWriter {
    /// Creates Secrets in `system_namespace`, and adds them to the cache of Secrets.
    pub fn new(client: Client, system_namespace: &str, kept: SecretCache) -> Self {
        Self {
            extensions: Api::all(client.clone()),
            sets: Api::all(client.clone()),
            secrets: Api::namespaced(client, system_namespace),
            kept,
        }
    }

    /// Creates a revision, after deleting `expired` ones. `fingerprint` and `recorded` become annotations of its Secrets.
    ///
    /// The caches that it was planned from may be late, so it is read before: an existing revision of this name is not written, and
    /// no successor is created for an extension that is being deleted.
    ///
    /// # Errors
    /// The step that failed; every step can be repeated.
    pub async fn create(
        &self,
        revision: &Numbered,
        expired: &[&ClusterObjectSet],
        fingerprint: &str,
        recorded: &Recorded,
    ) -> Result<ClusterObjectSet, WriteError> {
        self.ensure_unused(&revision.set).await?;
        // a first revision has no predecessor whose objects it could take over and lose
        if let Some(owner) =
            revision.set.owner_references().first().filter(|_| revision.set.spec.revision > 1)
        {
            self.ensure_present(&owner.name, &owner.uid).await?;
        }
        for set in expired {
            // one that was changed or replaced meanwhile is judged again before the next revision
            let deleted = apply::delete(&self.sets, &set.metadata, DeleteParams::default()).await;
            deleted.map_err(WriteError::Retention)?;
        }
        self.write(revision, None, fingerprint, recorded).await
    }

    /// Creates the missing Secrets of a revision again. `judged` is the revision as it was read; another state is not written.
    ///
    /// # Errors
    /// The step that failed; every step can be repeated.
    pub async fn restore(
        &self,
        revision: &Numbered,
        judged: &ClusterObjectSet,
        fingerprint: &str,
        recorded: &Recorded,
    ) -> Result<ClusterObjectSet, WriteError> {
        self.write(revision, Some(judged), fingerprint, recorded).await
    }

    /// Whether the extension is there, as the apiserver has it, and not being deleted. With `--cascade=orphan` the garbage collector
    /// may have released its revisions already, so none may become its own again.
    ///
    /// # Errors
    /// [`WriteError::Changed`] if it is not.
    pub(crate) async fn ensure_present(&self, extension: &str, uid: &str) -> Result<(), WriteError> {
        let object = || format!("ClusterExtension {extension}");
        let found = self.extensions.get_metadata_opt(extension).await;
        let found = found.map_err(|source| WriteError::Read { object: object(), source })?;
        let is_present = |found: &PartialObjectMeta<ClusterExtension>| {
            found.metadata.uid.as_deref() == Some(uid) && found.metadata.deletion_timestamp.is_none()
        };
        if found.as_ref().is_some_and(is_present) { Ok(()) } else { Err(WriteError::Changed(object())) }
    }

    /// No revision has the name of the new one `set`.
    async fn ensure_unused(&self, set: &ClusterObjectSet) -> Result<(), WriteError> {
        let name = set.name_any();
        let object = || format!("ClusterObjectSet {name}");
        let found = self.sets.get_metadata_opt(&name).await;
        let found = found.map_err(|source| WriteError::Read { object: object(), source })?;
        let Some(found) = found else { return Ok(()) };
        let is_owner = |uid: &str| set.owner_references().iter().any(|owner| owner.uid == uid);
        if found.owner_references().iter().any(|owner| is_owner(&owner.uid)) {
            let owner = set.labels().get(labels::OWNER_NAME);
            if found.labels().get(labels::OWNER_NAME) != owner {
                return Err(WriteError::Unlabelled { name, owner: owner.cloned().unwrap_or_default() });
            }
            return Err(WriteError::Changed(object()));
        }
        Err(WriteError::Taken { name })
    }

    /// Writes Secrets, and then the revision; in the state `judged` if it exists.
    async fn write(
        &self,
        revision: &Numbered,
        judged: Option<&ClusterObjectSet>,
        fingerprint: &str,
        recorded: &Recorded,
    ) -> Result<ClusterObjectSet, WriteError> {
        let owner_name = revision.set.labels().get(labels::OWNER_NAME).cloned().unwrap_or_default();
        let set_name = revision.set.name_any();
        let mut created = Some(Vec::new());
        let failed = |secret: &PackedSecret, source| WriteError::Secret { name: secret.name.clone(), source };
        for secret in &revision.packed.secrets {
            let desired = ref_secret(secret, &set_name, &owner_name, fingerprint, recorded);
            match self.secrets.create(&posting(), &desired).await {
                Ok(new) => {
                    created.iter_mut().for_each(|all| all.push(new.metadata.clone()));
                    self.kept.put(&Arc::new(new));
                }
                Err(error) if is_conflict(&error) => {
                    created = None;
                    if !self.renew(&desired, &set_name).await.map_err(|source| failed(secret, source))? {
                        return Err(WriteError::Foreign { name: secret.name.clone() });
                    }
                }
                Err(source) => return Err(failed(secret, source)),
            }
        }
        let stored = self.apply(&revision.set, judged).await.map_err(|error| match judged {
            Some(_) if is_conflict(&error) => WriteError::Changed(format!("ClusterObjectSet {set_name}")),
            _ => WriteError::Create(error),
        })?;
        match created {
            Some(created) => {
                for secret in created {
                    self.mark(&secret, &stored, recorded).await?;
                }
            }
            None => {
                self.mark_secrets(&owner_name, &[&stored], recorded).await?;
            }
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
            apply::delete(&self.secrets, &found.metadata, DeleteParams::default()).await?;
        }
        self.secrets.create(&posting(), desired).await.map(|_| true)
    }

    /// Deletes the Secrets of an extension whose revisions are gone: those that the garbage collector would delete, perhaps minutes
    /// later, and those that never got an owner. Secrets of the revisions with the names `alive` stay.
    ///
    /// # Errors
    /// When the apiserver rejects a deletion; it can be repeated.
    pub async fn sweep(&self, extension: &str, alive: &HashSet<String>) -> Result<(), kube::Error> {
        let of_extension = ListParams::default()
            .labels(&format!("{}={extension},{}", labels::OWNER_NAME, labels::REVISION_NAME))
            .fields(&format!("type={}", secret_types::OBJECT_DATA));
        for secret in self.secrets.list_metadata(&of_extension).await? {
            if !secret.labels().get(labels::REVISION_NAME).is_some_and(|name| alive.contains(name)) {
                apply::delete(&self.secrets, &secret.metadata, DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// Changes the settings that can change in place: annotations, probes, deadline. `judged` is the revision as it was read; another
    /// state is not written.
    ///
    /// # Errors
    /// When the apiserver rejects the write.
    pub async fn update(
        &self,
        set: &ClusterObjectSet,
        judged: &ClusterObjectSet,
    ) -> Result<ClusterObjectSet, WriteError> {
        let name = set.name_any();
        self.apply(set, Some(judged)).await.map_err(|source| match source {
            conflict if is_conflict(&conflict) => WriteError::Changed(format!("ClusterObjectSet {name}")),
            source => WriteError::Update { name, source },
        })
    }

    /// Makes revisions the owners of their Secrets that lack them, and records on the Secrets what their extension is like. Returns
    /// the fingerprints in their annotations, by the UID of the revision.
    ///
    /// One LIST; nothing is written when all are as they should be.
    ///
    /// # Errors
    /// When the apiserver rejects the write.
    pub(crate) async fn mark_secrets(
        &self,
        extension: &str,
        sets: &[&ClusterObjectSet],
        recorded: &Recorded,
    ) -> Result<HashMap<String, String>, WriteError> {
        let of_extension = ListParams::default().labels(&format!(
            "{}={extension},{}",
            labels::OWNER_NAME,
            labels::REVISION_NAME
        ));
        let mut fingerprints = HashMap::new();
        for secret in self.secrets.list_metadata(&of_extension).await.map_err(WriteError::Owner)? {
            let revision = secret.labels().get(labels::REVISION_NAME);
            let Some(set) = sets.iter().find(|set| set.metadata.name.as_ref() == revision) else { continue };
            let uid = set.uid().unwrap_or_default();
            let is_owned = secret.owner_references().iter().any(|owner| owner.uid == uid);
            if !is_owned || Recorded::from_annotations(secret.annotations()) != *recorded {
                self.mark(&secret.metadata, set, recorded).await?;
            }
            let fingerprint = secret.annotations().get(annotations::RENDER_INPUTS).cloned();
            fingerprints.extend(fingerprint.map(|fingerprint| (uid, fingerprint)));
        }
        Ok(fingerprints)
    }

    /// Records on the Secrets of a revision the fingerprint of the inputs that its content was compared with, so that the next process need
    /// not render it again.
    ///
    /// # Errors
    /// When the apiserver rejects the write.
    pub(crate) async fn record_inputs(
        &self,
        extension: &str,
        revision: &str,
        inputs: &str,
    ) -> Result<(), WriteError> {
        let of_revision = ListParams::default().labels(&format!(
            "{}={extension},{}={revision}",
            labels::OWNER_NAME,
            labels::REVISION_NAME
        ));
        for secret in self.secrets.list_metadata(&of_revision).await.map_err(WriteError::Owner)? {
            if secret.annotations().get(annotations::RENDER_INPUTS).is_some_and(|found| found == inputs) {
                continue;
            }
            let patch = json!({"metadata": {
                "uid": secret.uid(), "annotations": {(annotations::RENDER_INPUTS): inputs},
            }});
            let params = written_by(FIELD_MANAGER);
            match self.secrets.patch_metadata(&secret.name_any(), &params, &Patch::Merge(&patch)).await {
                Err(error) if !is_not_found(&error) => return Err(WriteError::Owner(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the revision to the owners of this very Secret; others stay. The apiserver rejects a second controller.
    async fn mark(
        &self,
        secret: &ObjectMeta,
        set: &ClusterObjectSet,
        recorded: &Recorded,
    ) -> Result<(), WriteError> {
        // a strategic merge patch joins lists of owners by UID
        let patch = json!({"metadata": {
            "uid": secret.uid,
            "annotations": recorded.annotations(),
            "ownerReferences": [{
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
                "name": set.name_any(), "uid": set.metadata.uid, "controller": true, "blockOwnerDeletion": true,
            }],
        }});
        let name = secret.name.as_deref().unwrap_or_default();
        match self.secrets.patch_metadata(name, &written_by(FIELD_MANAGER), &Patch::Strategic(&patch)).await {
            Err(error) if !is_not_found(&error) => Err(WriteError::Owner(error)),
            _ => Ok(()),
        }
    }

    /// Applies a revision; only in the state `judged`, if there is one.
    async fn apply(
        &self,
        set: &ClusterObjectSet,
        judged: Option<&ClusterObjectSet>,
    ) -> Result<ClusterObjectSet, kube::Error> {
        let params = PatchParams::apply(field_managers::CLUSTER_EXTENSION_CONTROLLER).force();
        let mut set = Cow::Borrowed(set);
        if let Some(judged) = judged {
            let metadata = &mut set.to_mut().metadata;
            metadata.uid = judged.uid();
            metadata.resource_version = judged.resource_version();
        }
        self.sets.patch(&set.name_any(), &params, &Patch::Apply(&*set)).await
    }
}

/// A creation under the controller's field manager.
fn posting() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn ref_secret(
    secret: &PackedSecret,
    revision: &str,
    owner: &str,
    fingerprint: &str,
    recorded: &Recorded,
) -> Secret {
    let recorded = recorded.annotations().into_iter().filter_map(|(key, value)| Some((key, value?)));
    let fingerprint = (annotations::RENDER_INPUTS.to_owned(), fingerprint.to_owned());
    Secret {
        metadata: ObjectMeta {
            name: Some(secret.name.clone()),
            labels: Some(BTreeMap::from([
                (labels::REVISION_NAME.to_owned(), revision.to_owned()),
                (labels::OWNER_NAME.to_owned(), owner.to_owned()),
            ])),
            annotations: Some(recorded.chain([fingerprint]).collect()),
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
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the apiserver answered that the object exists already, or was changed meanwhile.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use olm_install::account::Account;

    use super::*;
    use crate::testing::{Apiserver, failure, success};

    /// rule: revisions §3, §4.4
    #[test]
    fn content_secret_has_the_fields_that_clients_read() {
        let data = BTreeMap::from([("key".to_owned(), b"value".to_vec())]);
        let packed = PackedSecret { name: "demo-1-0123456789abcdef".to_owned(), data };
        let account = Account { namespace: "ns".to_owned(), name: "installer".to_owned() };
        let recorded = Recorded { keep: true, account: Some(account) };
        let secret = ref_secret(&packed, "demo-1", "demo", "inputs", &recorded);
        let secret = serde_json::to_value(secret).unwrap();
        assert_eq!(
            secret,
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "olm.operatorframework.io/object-data", "immutable": true,
                "metadata": {
                    "name": "demo-1-0123456789abcdef",
                    "labels": {"olm.operatorframework.io/revision-name": "demo-1", "olm.operatorframework.io/owner-name": "demo"},
                    "annotations": {
                        "olm.operatorframework.io/deletion-policy": "keep", "olm.operatorframework.io/render-inputs": "inputs",
                        "olm.operatorframework.io/service-account": "ns/installer",
                    },
                },
                "data": {"key": "dmFsdWU="},
            })
        );
    }

    fn set(name: &str) -> ClusterObjectSet {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "labels": {(labels::OWNER_NAME): "demo"}},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        }))
        .unwrap()
    }

    /// An apiserver that lists these Secrets.
    fn apiserver(secrets: serde_json::Value) -> Apiserver {
        let stored = serde_json::to_value(set("demo-2")).unwrap();
        Apiserver::new(move |method, uri| match (method, uri.contains("/secrets")) {
            ("GET", true) => {
                (200, json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": secrets}))
            }
            ("DELETE", true) => success(),
            (_, true) => (
                200,
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {}}),
            ),
            // the revision to be written is not there, its extension is
            ("GET", false) if uri.contains("/clusterobjectsets/") => failure(404, "NotFound"),
            ("DELETE", false) => failure(409, "Conflict"),
            _ => (200, stored.clone()),
        })
    }

    fn writer_of(apiserver: &Apiserver) -> RevisionWriter {
        RevisionWriter::new(apiserver.client(), "olmv1-system", SecretCache::default())
    }

    /// The requests of `work` that change something, where these Secrets are listed.
    async fn writes(secrets: serde_json::Value, work: impl AsyncFnOnce(RevisionWriter)) -> Vec<String> {
        let apiserver = apiserver(secrets);
        work(writer_of(&apiserver)).await;
        apiserver.requests().into_iter().filter(|request| !request.starts_with("GET ")).collect()
    }

    fn secret(name: &str, revision: &str, more: serde_json::Value) -> serde_json::Value {
        let mut metadata = json!({"name": name, "uid": "s1", "resourceVersion": "3", "labels": {
            (labels::REVISION_NAME): revision, (labels::OWNER_NAME): "demo"}});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": metadata})
    }

    #[tokio::test]
    async fn content_secrets_keep_their_other_owners() {
        let recorded = Recorded { keep: true, account: None };
        let owners = |uid: &str| json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid}]);
        let keep = json!({annotations::DELETION_POLICY: "keep", annotations::RENDER_INPUTS: "inputs"});
        let secrets = json!([
            secret("foreign", "demo-2", json!({"ownerReferences": owners("other"), "annotations": keep})),
            secret(
                "settled",
                "demo-2",
                json!({"ownerReferences": owners("uid-demo-2"), "annotations": keep})
            ),
            secret("outdated", "demo-2", json!({"ownerReferences": owners("uid-demo-2")})),
            secret("archived", "demo-1", json!({})),
        ]);
        let writes = writes(secrets, async |writer| {
            let found = writer.mark_secrets("demo", &[&set("demo-2")], &recorded).await.unwrap();
            assert_eq!(found, HashMap::from([("uid-demo-2".to_owned(), "inputs".to_owned())]));
        })
        .await;
        let [foreign, outdated] = &writes[..] else { panic!("{writes:#?}") };
        assert!(
            foreign.contains("/secrets/foreign?") && outdated.contains("/secrets/outdated?"),
            "{writes:#?}"
        );
        for patch in [foreign, outdated] {
            // of this very Secret, and merged with the owners that it has
            assert!(patch.contains(r#""uid":"s1""#) && patch.contains(r#""uid":"uid-demo-2""#), "{patch}");
            assert!(patch.contains(r#""olm.operatorframework.io/service-account":null"#), "{patch}");
        }
    }

    /// The apiserver joins the lists of owners; a merge patch would replace the list of the Secret.
    #[tokio::test]
    async fn content_secret_owners_are_joined() {
        let apiserver = apiserver(json!([secret("foreign", "demo-2", json!({}))]));
        let sets = [&set("demo-2")];
        writer_of(&apiserver).mark_secrets("demo", &sets, &Recorded::default()).await.unwrap();
        assert_eq!(apiserver.requests().len(), 2, "{:#?}", apiserver.requests());
        assert_eq!(apiserver.last_content_type(), "application/strategic-merge-patch+json");
    }

    #[tokio::test]
    async fn expired_revisions_are_deleted_as_they_were_judged() {
        let numbered = Numbered { set: set("demo-2"), packed: Default::default() };
        let writes = writes(json!([]), async |writer| {
            // one that has changed meanwhile stays and holds nothing up
            writer.create(&numbered, &[&set("demo-1")], "inputs", &Recorded::default()).await.unwrap();
        })
        .await;
        let [delete, apply] = &writes[..] else { panic!("{writes:#?}") };
        assert!(
            delete.contains("/demo-1") && delete.contains(r#"{"resourceVersion":"7","uid":"uid-demo-1"}"#),
            "{delete}"
        );
        assert!(apply.starts_with("PATCH ") && apply.contains("/demo-2?"), "{apply}");
    }

    #[tokio::test]
    async fn sweep_deletes_secrets_of_revisions_that_are_gone() {
        let owners = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "gone"}]);
        let secrets = json!([
            secret("stray", "demo-3", json!({})),
            secret("of-an-orphan", "demo-1", json!({})),
            secret("of-a-gone-revision", "demo-2", json!({"ownerReferences": owners})),
        ]);
        let alive = HashSet::from(["demo-1".to_owned()]);
        let writes = writes(secrets, async |writer| writer.sweep("demo", &alive).await.unwrap()).await;
        let [stray, of_gone] = &writes[..] else { panic!("{writes:#?}") };
        let exactly = r#"{"resourceVersion":"3","uid":"s1"}"#;
        assert!(stray.contains("/secrets/stray") && stray.contains(exactly), "{stray}");
        assert!(of_gone.contains("/secrets/of-a-gone-revision"), "{of_gone}");
    }

    /// What writing revision `demo-2` comes to, with these metadata of it and of its extension at the apiserver, and what is written.
    async fn created(
        number: i64,
        live: Option<serde_json::Value>,
        extension: serde_json::Value,
    ) -> (Result<(), String>, Vec<String>) {
        let apiserver = Apiserver::new(move |method, uri| {
            let not_found = || failure(404, "NotFound");
            match method {
                "GET" if uri.contains("/clusterextensions/") => (200, json!({"metadata": extension})),
                "GET" => live.clone().map_or_else(not_found, |live| (200, json!({"metadata": live}))),
                _ => (200, serde_json::to_value(set("demo-2")).unwrap()),
            }
        });
        let mut desired = set("demo-2");
        desired.spec.revision = number;
        desired.metadata.owner_references = Some(vec![OwnerReference {
            kind: "ClusterExtension".to_owned(),
            name: "demo".to_owned(),
            uid: "u1".to_owned(),
            ..OwnerReference::default()
        }]);
        let numbered = Numbered { set: desired, packed: Default::default() };
        let writer = writer_of(&apiserver);
        let done = writer.create(&numbered, &[], "inputs", &Recorded::default()).await;
        let writes = apiserver.requests().into_iter().filter(|request| !request.starts_with("GET "));
        (done.map(|_| ()).map_err(|error| error.to_string()), writes.collect())
    }

    #[tokio::test]
    #[rustfmt::skip]
    async fn revision_is_not_created_from_late_caches() {
        let own = || json!([{"apiVersion": "v1", "kind": "ClusterExtension", "name": "demo", "uid": "u1"}]);
        let present = || json!({"name": "demo", "uid": "u1"});
        let changed = |object: &str| Err(format!("{object} has changed meanwhile"));
        let taken = "creating new Revision: demo-2 exists already and is not owned by this extension; delete it, or wait until it is gone";
        let unlabelled = "creating new Revision: demo-2 exists already and has lost its label olm.operatorframework.io/owner-name; run: \
                          kubectl label clusterobjectset demo-2 olm.operatorframework.io/owner-name=demo --overwrite";
        let deleted = json!({"name": "demo", "uid": "u1", "deletionTimestamp": "2030-01-01T00:00:00Z"});
        for (case, number, live, extension, want) in [
            ("free", 2, None, present(), Ok(())),
            ("created before", 2, Some(json!({"name": "demo-2", "ownerReferences": own(), "labels": {(labels::OWNER_NAME): "demo"}})),
                present(), changed("ClusterObjectSet demo-2")),
            ("created before, without its label", 2, Some(json!({"name": "demo-2", "ownerReferences": own()})), present(),
                Err(unlabelled.to_owned())),
            ("of another owner", 2, Some(json!({"name": "demo-2"})), present(), Err(taken.to_owned())),
            ("extension being deleted", 2, None, deleted.clone(), changed("ClusterExtension demo")),
            ("another extension", 2, None, json!({"name": "demo", "uid": "u2"}), changed("ClusterExtension demo")),
            // nothing that was there before can be lost with it
            ("first of a deleted one", 1, None, deleted, Ok(())),
        ] {
            let (done, writes) = created(number, live, extension).await;
            assert_eq!((&done, writes.len()), (&want, usize::from(want.is_ok())), "{case}: {writes:?}");
        }
    }

    #[tokio::test]
    async fn existing_revision_is_written_only_as_it_was_judged() {
        let numbered = Numbered { set: set("demo-2"), packed: Default::default() };
        let judged = set("demo-2");
        for code in [200, 409] {
            let apiserver = Apiserver::new(move |_, _| match code {
                200 => (200, serde_json::to_value(set("demo-2")).unwrap()),
                _ => failure(code, "Conflict"),
            });
            let writer = writer_of(&apiserver);
            let mut bare = judged.clone();
            (bare.metadata.uid, bare.metadata.resource_version) = (None, None);
            let updated = writer.update(&bare, &judged).await;
            let restored = writer.restore(&numbered, &judged, "inputs", &Recorded::default()).await;
            for done in [updated, restored] {
                let done = done.map(|_| ()).map_err(|error| error.to_string());
                let changed = Err("ClusterObjectSet demo-2 has changed meanwhile".to_owned());
                assert_eq!(done, if code == 200 { Ok(()) } else { changed });
            }
            for patch in apiserver.requests().iter().filter(|request| request.starts_with("PATCH ")) {
                assert!(
                    patch.contains(r#""resourceVersion":"7""#) && patch.contains(r#""uid":"uid-demo-2""#),
                    "{patch}"
                );
            }
        }
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

    #[tokio::test]
    async fn content_secrets_record_the_inputs_they_were_compared_with() {
        let with = |inputs: &str| json!({"annotations": {annotations::RENDER_INPUTS: inputs}});
        let secrets = json!([
            secret("older", "demo-2", with("older")),
            secret("none", "demo-2", json!({})),
            secret("same", "demo-2", with("inputs")),
        ]);
        let writes = writes(secrets, async |writer| {
            writer.record_inputs("demo", "demo-2", "inputs").await.unwrap();
        })
        .await;
        let [older, none] = &writes[..] else { panic!("{writes:#?}") };
        assert!(older.contains("/secrets/older?") && none.contains("/secrets/none?"), "{writes:#?}");
        for patch in [older, none] {
            let metadata =
                r#"{"annotations":{"olm.operatorframework.io/render-inputs":"inputs"},"uid":"s1"}"#;
            assert!(patch.contains(metadata), "{patch}");
        }
    }
}
