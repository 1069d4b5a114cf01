//! Revisions that were there before their extension: restored from a backup, or left by `--cascade=orphan`.
//!
//! A restored object has another UID than the one that was saved, so no restored revision is owned by its extension. An extension
//! without revisions adopts those that carry its name and that no extension owns: it becomes their owner, and the revision that was in
//! force counts as succeeded, so that the same pass sees an installed bundle and follows the upgrade edges from it. Their objects are
//! adopted by the rollout, which reads the marks on them; missing Secrets are created again from the bundle. Nothing is deleted.
//! Rule: revisions §4.6, decision 11.

use std::sync::Arc;

use kube::api::Patch;
use kube::{Api, ResourceExt};
use olm_api::{ClusterObjectSet, field_managers, labels};
use olm_install::resolution::{Class, ExtensionRequest, PassError, revision};
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::result::Notice;
use super::super::writer::{StepError, WriteError, is_conflict};
use crate::written_by;

/// Message of the `Succeeded` condition.
const SUCCEEDED: &str = "Revision succeeded - restored with its extension";

/// Adopts those of `others`, revisions that carry the name of the extension, that no extension owns. `own` are the extension's, which has
/// some if an earlier pass was interrupted here.
///
/// # Errors
/// With the text for the `Progressing` condition, or because the cluster has changed meanwhile.
pub(super) async fn adopt(
    context: &Context,
    request: &ExtensionRequest,
    own: &[Arc<ClusterObjectSet>],
    others: &[Arc<ClusterObjectSet>],
) -> Result<(Vec<ClusterObjectSet>, Option<Notice>), StepError> {
    let mut adopted: Vec<ClusterObjectSet> = others
        .iter()
        .filter(|set| owners(set, &request.name, &request.uid).is_some())
        .map(|set| ClusterObjectSet::clone(set))
        .collect();
    if adopted.is_empty() {
        return Ok((adopted, None));
    }
    // an extension that is being deleted may have orphaned them just now
    context.writer.ensure_present(&request.name, &request.uid).await?;
    // before they have an owner: a pass that is interrupted afterwards leaves nothing to do but the owners
    let in_force = in_force(own.iter().map(AsRef::as_ref).chain(&adopted)).map(ResourceExt::name_any);
    if let Some(set) = adopted.iter_mut().find(|set| Some(set.name_any()) == in_force) {
        *set = super::succeed(&context.client, set.clone(), SUCCEEDED).await?;
    }
    let api: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let params = written_by(field_managers::CLUSTER_EXTENSION_CONTROLLER);
    for set in &mut adopted {
        let changed = || WriteError::Changed(format!("ClusterObjectSet {}", set.name_any()));
        let owners = owners(set, &request.name, &request.uid).ok_or_else(changed)?;
        let patch = json!({"metadata": {"uid": set.uid(), "resourceVersion": set.resource_version(), "ownerReferences": owners}});
        *set = match api.patch(&set.name_any(), &params, &Patch::Merge(&patch)).await {
            Ok(stored) => stored,
            Err(error) if is_conflict(&error) => return Err(changed().into()),
            Err(error) => return Err(failed(set, &error).into()),
        };
    }
    let names: Vec<String> = adopted.iter().map(ResourceExt::name_any).collect();
    let text = format!("revisions were there before the extension; it takes them over: {}", names.join(", "));
    Ok((adopted, Some(Notice::normal("Adopted", text))))
}

/// The owners of the revision with the extension among them; `None` if it is not to be adopted.
fn owners(set: &ClusterObjectSet, name: &str, uid: &str) -> Option<Vec<Value>> {
    let is_extension = |kind: &str| kind == labels::OWNER_KIND_CLUSTER_EXTENSION;
    let present = set.owner_references();
    let of_another = present.iter().any(|owner| is_extension(&owner.kind) && owner.name != name);
    if of_another || set.metadata.deletion_timestamp.is_some() {
        return None;
    }
    // an owner of this name is this extension, or gone
    let others = present.iter().filter(|owner| !is_extension(&owner.kind)).map(|owner| json!(owner));
    let own = json!({
        "apiVersion": olm_api::API_VERSION, "kind": labels::OWNER_KIND_CLUSTER_EXTENSION, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    Some(others.chain([own]).collect())
}

/// The revision that was in force: of the active ones the oldest, because it is archived when its successor has succeeded. `None` if
/// one has succeeded.
fn in_force<'a>(sets: impl Iterator<Item = &'a ClusterObjectSet>) -> Option<&'a ClusterObjectSet> {
    let active: Vec<_> = sets.filter(|set| revision::is_active(set)).collect();
    if active.iter().any(|set| revision::has_succeeded(set)) {
        return None;
    }
    active.into_iter().min_by_key(|set| set.spec.revision)
}

fn failed(set: &ClusterObjectSet, problem: &dyn std::fmt::Display) -> PassError {
    PassError::new(Class::Transient, format!("adopting revision {}: {problem}", set.name_any()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(number: i64, state: &str, metadata: Value, succeeded: bool) -> ClusterObjectSet {
        let mut value = json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": {"name": format!("e-{number}")},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
        });
        value["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        if succeeded {
            value["status"] = json!({"conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        }
        serde_json::from_value(value).unwrap()
    }

    fn owner(kind: &str, name: &str, uid: &str) -> Value {
        json!({"apiVersion": olm_api::API_VERSION, "kind": kind, "name": name, "uid": uid})
    }

    #[test]
    #[rustfmt::skip]
    fn restored_revision_is_adopted_unless_it_has_an_owner() {
        let uids = |metadata: Value| {
            let found = owners(&set(3, "Active", metadata, false), "e", "new")?;
            Some(found.iter().map(|owner| owner["uid"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
        };
        for (case, metadata, want) in [
            ("without owner, as Velero restores", json!({}), Some(vec!["new"])),
            ("dangling", json!({"ownerReferences": [owner("ClusterExtension", "e", "old")]}), Some(vec!["new"])),
            ("with another owner", json!({"ownerReferences": [owner("Backup", "b", "b")]}), Some(vec!["b", "new"])),
            ("of another extension", json!({"ownerReferences": [owner("ClusterExtension", "f", "f")]}), None),
            ("being deleted", json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}), None),
        ] {
            let want: Option<Vec<String>> = want.map(|uids| uids.into_iter().map(str::to_owned).collect());
            assert_eq!(uids(metadata), want, "{case}");
        }
    }

    #[test]
    fn restored_revision_in_force_is_the_oldest_active_one() {
        let set = |number, state: &str, succeeded| set(number, state, json!({}), succeeded);
        for (case, sets, want) in [
            ("none", vec![], None),
            ("one", vec![set(1, "Archived", false), set(2, "Active", false)], Some(2)),
            ("in the middle of an upgrade", vec![set(3, "Active", false), set(2, "Active", false)], Some(2)),
            ("restored with its status", vec![set(2, "Active", true), set(3, "Active", false)], None),
            ("archived ones only", vec![set(1, "Archived", true)], None),
        ] {
            assert_eq!(in_force(sets.iter()).map(|set| set.spec.revision), want, "{case}");
        }
    }
}
