//! A new version that no longer has a CRD: its deletion deletes every object of that kind. Blocked while there are any.
//!
//! Rule: decision 28. A CRD with the deletion policy `keep`, or one that was never served, blocks nothing.
//!
//! The CRDs of the extension are listed, unless the cache is new enough: it has all CRDs that the new version keeps, controlled by
//! the extension's revisions, which created them together with those that are dropped.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::resolution::{Class, ExtensionRequest, PassError};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};
use olm_api::{ClusterObjectSet, annotations, labels};
use olm_core::Object;
use olm_crd_safety::message_prefix;
use serde_json::Value;

use super::{Blocker, CrdCache, crds, live, resource};

/// A CRD that carries the labels of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedCrd {
    name: String,
    /// UID of the controlling owner.
    controller: Option<String>,
    /// It has the deletion policy `keep`, or is being deleted.
    is_settled: bool,
}

impl OwnedCrd {
    /// From the metadata of a watch or a listing.
    #[must_use]
    pub fn from_metadata(crd: &PartialObjectMeta<DynamicObject>) -> Self {
        let controller = crd.owner_references().iter().find(|owner| owner.controller == Some(true));
        let policy = crd.annotations().get(annotations::DELETION_POLICY);
        let keep = policy.is_some_and(|policy| policy == annotations::DELETION_POLICY_KEEP);
        Self {
            name: crd.name_any(),
            controller: controller.map(|owner| owner.uid.clone()),
            is_settled: keep || crd.metadata.deletion_timestamp.is_some(),
        }
    }

    /// The extension whose labels the CRD carries.
    #[must_use]
    pub fn extension(crd: &PartialObjectMeta<DynamicObject>) -> Option<&str> {
        let labels = crd.labels();
        let kind = labels.get(labels::OWNER_KIND).map(String::as_str);
        let name = labels.get(labels::OWNER_NAME).map(String::as_str);
        name.filter(|_| kind == Some(labels::OWNER_KIND_CLUSTER_EXTENSION))
    }
}

/// Findings, one for each CRD of `revisions` that is not in `desired` and has objects.
pub(super) async fn check(
    client: &Client,
    cache: &dyn CrdCache,
    request: &ExtensionRequest,
    desired: &[&Object],
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<Vec<Blocker>, PassError> {
    let api = crds(client);
    let present = match cache.of_extension(&request.name) {
        Some(cached) if is_enough(&cached, request, desired, revisions) => cached,
        Some(_) | None => list(&api, request).await?,
    };
    let remaining: BTreeSet<&str> = desired.iter().map(|crd| crd.name()).collect();
    let mut blocking = Vec::new();
    for OwnedCrd { name, .. } in present.iter().filter(|crd| is_dropped(crd, request, revisions)) {
        if remaining.contains(name.as_str()) {
            continue;
        }
        let Some(live) = live(&api, name).await? else { continue };
        let count = instances(client, &live).await.map_err(|problem| {
            PassError::new(
                Class::Transient,
                format!("the new version drops CRD {name:?}; counting its objects: {problem}"),
            )
        })?;
        if count > 0 {
            let (objects, they) = if count == 1 { ("object", "it") } else { ("objects", "them") };
            blocking.push(Blocker {
                crd: name.clone(),
                check: "crdRemoval",
                about: message_prefix(name),
                text: format!(
                    "the new version drops it while {count} {objects} of it exist, and deleting the CRD deletes {they}"
                ),
            });
        }
    }
    Ok(blocking)
}

async fn list(api: &Api<DynamicObject>, request: &ExtensionRequest) -> Result<Vec<OwnedCrd>, PassError> {
    let kind = format!("{}={}", labels::OWNER_KIND, labels::OWNER_KIND_CLUSTER_EXTENSION);
    let ours = format!("{kind},{}={}", labels::OWNER_NAME, request.name);
    let listed = api.list_metadata(&ListParams::default().labels(&ours)).await.map_err(|error| {
        PassError::new(
            Class::Transient,
            format!("listing the CRDs of the installed version: {}", olm_runtime::apply::message(&error)),
        )
    })?;
    Ok(listed.items.iter().map(OwnedCrd::from_metadata).collect())
}

/// Whether the cache is new enough: it has every desired CRD, controlled by the extension.
fn is_enough(
    cached: &[OwnedCrd],
    request: &ExtensionRequest,
    desired: &[&Object],
    revisions: &[Arc<ClusterObjectSet>],
) -> bool {
    let held = |desired: &&Object| {
        cached.iter().any(|crd| crd.name == desired.name() && is_controlled(crd, request, revisions))
    };
    !desired.is_empty() && desired.iter().all(held)
}

/// Whether one of the revisions controls the CRD.
///
/// The extension controls the CRDs of a Helm release until its first revision has adopted them.
fn is_controlled(crd: &OwnedCrd, request: &ExtensionRequest, revisions: &[Arc<ClusterObjectSet>]) -> bool {
    crd.controller.as_ref().is_some_and(|uid| {
        *uid == request.uid || revisions.iter().any(|set| set.metadata.uid.as_ref() == Some(uid))
    })
}

/// Whether the CRD is deleted with the revisions: one of them controls it, and it has no deletion policy `keep`.
fn is_dropped(crd: &OwnedCrd, request: &ExtensionRequest, revisions: &[Arc<ClusterObjectSet>]) -> bool {
    is_controlled(crd, request, revisions) && !crd.is_settled
}

/// How many objects of the kind exist. One request, whatever their number.
async fn instances(client: &Client, crd: &Object) -> Result<i64, String> {
    if !was_ever_served(crd) {
        return Ok(0);
    }
    let Some(version) = served_version(crd) else {
        return Err("none of its versions is served".to_owned());
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(crd, version));
    let page = api.list_metadata(&ListParams::default().limit(1)).await.map_err(|error| error.to_string())?;
    let listed = i64::try_from(page.items.len()).unwrap_or(i64::MAX);
    let more = page.metadata.continue_.is_some_and(|token| !token.is_empty());
    Ok(listed.saturating_add(page.metadata.remaining_item_count.unwrap_or(i64::from(more))))
}

/// Established stays true once it is true, and before that no object can be created.
fn was_ever_served(crd: &Object) -> bool {
    let conditions =
        crd.0.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    conditions.into_iter().flatten().any(|found| found["type"] == "Established" && found["status"] == "True")
}

fn served_version(crd: &Object) -> Option<&str> {
    let versions = crd.0.get("spec")?.get("versions")?.as_array()?;
    let served = |version: &&Value| version.get("served").and_then(Value::as_bool).unwrap_or(false);
    versions.iter().find(served)?.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn crd_controlled_by_a_revision_is_dropped() {
        let revision = |uid: &str| {
            let mut set: ClusterObjectSet = serde_json::from_value(json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": "x-1"},
                "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent", "phases": []},
            }))
            .unwrap();
            set.metadata.uid = Some(uid.to_owned());
            Arc::new(set)
        };
        let extension = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "x", "uid": "e"},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
        }))
        .unwrap();
        let request = crate::resolution::validate(&extension).unwrap();
        let owner = |uid: &str, controller: bool| json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "x-1", "uid": uid, "controller": controller}]);
        for (case, metadata, want) in [
            ("ours", json!({"ownerReferences": owner("u", true)}), true),
            ("still the extension's own", json!({"ownerReferences": owner("e", true)}), true),
            ("of another extension", json!({"ownerReferences": owner("other", true)}), false),
            ("not controlled", json!({"ownerReferences": owner("u", false)}), false),
            ("nobody's", json!({}), false),
            (
                "going already",
                json!({"ownerReferences": owner("u", true), "deletionTimestamp": "2020-01-01T00:00:00Z"}),
                false,
            ),
            (
                "to be kept",
                json!({"ownerReferences": owner("u", true), "annotations": {"olm.operatorframework.io/deletion-policy": "keep"}}),
                false,
            ),
        ] {
            let crd =
                OwnedCrd::from_metadata(&serde_json::from_value(json!({"metadata": metadata})).unwrap());
            assert_eq!(is_dropped(&crd, &request, &[revision("u")]), want, "{case}");
        }
        let crd = |name: &str, uid: &str| {
            let metadata = json!({"name": name, "ownerReferences": owner(uid, true)});
            OwnedCrd::from_metadata(&serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        let desired = |name: &str| Object::from_value(json!({"metadata": {"name": name}})).unwrap();
        let (a, b) = (desired("a"), desired("b"));
        for (case, known, desired, want) in [
            ("all are ours", vec![crd("a", "u"), crd("b", "u"), crd("c", "u")], vec![&a, &b], true),
            ("one is not seen", vec![crd("a", "u")], vec![&a, &b], false),
            ("one is another's", vec![crd("a", "u"), crd("b", "other")], vec![&a, &b], false),
            ("nothing to compare with", vec![crd("a", "u")], vec![], false),
        ] {
            assert_eq!(is_enough(&known, &request, &desired, &[revision("u")]), want, "{case}");
        }
    }

    #[test]
    fn crd_belongs_to_an_extension_by_both_labels() {
        for (labels, want) in [
            (json!({(labels::OWNER_KIND): "ClusterExtension", (labels::OWNER_NAME): "e"}), Some("e")),
            (json!({(labels::OWNER_KIND): "Other", (labels::OWNER_NAME): "e"}), None),
            (json!({(labels::OWNER_NAME): "e"}), None),
            (json!({}), None),
        ] {
            let crd = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            assert_eq!(OwnedCrd::extension(&crd), want, "{labels}");
        }
    }

    #[test]
    fn crd_that_was_never_established_has_no_objects() {
        let crd = |status: serde_json::Value| {
            Object::from_value(json!({"status": status, "spec": {"versions": [
                {"name": "v1", "served": false}, {"name": "v2", "served": true}]}}))
            .unwrap()
        };
        let condition = |status| json!({"conditions": [{"type": "Established", "status": status}]});
        assert!(was_ever_served(&crd(condition("True"))));
        assert!(!was_ever_served(&crd(condition("False"))) && !was_ever_served(&crd(json!({}))));
        assert_eq!(served_version(&crd(json!({}))), Some("v2"));
    }
}
