//! The digest of a live object: enough to decide without a request, small enough for many objects.
//!
//! Large bodies are reduced to metadata, status and what built-in readiness reads; a pass that needs the rest reads the object once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kube::core::DynamicObject;
use olm_core::{Object, go};
use olm_rollout::probe::builtin;
use serde_json::Value;

/// Largest body that is kept whole, bytes of JSON.
const LARGEST: usize = 32 * 1024;

/// Members of `spec` that built-in readiness and the list of an object's pods go by.
const READ: [&str; 4] = ["replicas", "selector", "suspend", "updateStrategy"];

/// Where an object lives: namespace (empty for cluster-scoped ones) and name.
pub(super) type ObjectRef = (String, String);

/// A live object as a watch or a write showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    /// `metadata.resourceVersion`.
    pub(super) version: String,
    /// Hash of the fields that the revision applied: unchanged while no other writer touches them.
    pub(super) fingerprint: u64,
    /// Names of the ClusterObjectSets among its owners.
    pub(super) owners: Vec<String>,
    /// `status.observedGeneration` is behind.
    pub(super) outdated: bool,
    /// The body is not whole.
    pub(super) partial: bool,
    /// It has the label by which watches select.
    pub(super) is_labelled: bool,
    /// The revision that knows this state from an answer to itself; the others still have to be woken by the watch.
    pub(super) known_to: Option<String>,
    body: Arc<[u8]>,
}

impl Live {
    /// Digests an object as the apiserver gave it.
    pub(super) fn new(mut object: Object) -> Self {
        let owners = olm_rollout::owner_refs(&object)
            .into_iter()
            .filter(|owner| owner.kind == "ClusterObjectSet" && owner.group() == olm_api::GROUP)
            .map(|owner| owner.name)
            .collect();
        let number = |part: &str, member: &str| object.0.get(part)?.get(member)?.as_i64();
        let outdated = number("status", "observedGeneration")
            .is_some_and(|observed| observed != number("metadata", "generation").unwrap_or(0));
        let labels = object.metadata().and_then(|metadata| metadata.get("labels"));
        let is_labelled = labels.is_some_and(|labels| labels.get(olm_api::labels::OWNER_NAME).is_some());
        let (version, fingerprint) =
            (olm_rollout::resource_version(&object).to_owned(), fingerprint(&object));
        if let Some(Value::Array(entries)) = object.metadata_mut().get_mut("managedFields") {
            entries.retain(|entry| entry.get("subresource").and_then(Value::as_str) != Some("status"));
        }
        let mut body = serde_json::to_vec(&object).unwrap_or_default();
        let partial = body.len() > LARGEST;
        if partial {
            let is_read = builtin::covers(object.group(), object.kind());
            object.0.retain(|key, _| match key.as_str() {
                "apiVersion" | "kind" | "metadata" | "status" => true,
                "spec" => is_read,
                _ => false,
            });
            if let Some(Value::Object(spec)) = object.0.get_mut("spec") {
                spec.retain(|key, _| READ.contains(&key.as_str()));
            }
            object.metadata_mut().remove("managedFields");
            body = serde_json::to_vec(&object).unwrap_or_default();
        }
        let body = body.into();
        Self { version, fingerprint, owners, outdated, partial, is_labelled, known_to: None, body }
    }

    /// The object as far as it was kept.
    pub(super) fn object(&self) -> Object {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The version as a number, as far as it is one.
    pub(super) fn number(&self) -> Option<u64> {
        self.version.parse().ok()
    }
}

/// Hash of what a revision may care for: its own fields, owners and the mark of deletion. Without bookkeeping of ours
/// everything but status and counters counts.
fn fingerprint(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = |key: &str| object.metadata().and_then(|metadata| metadata.get(key)).map(go::json_string);
    for key in ["uid", "ownerReferences", "deletionTimestamp"] {
        metadata(key).hash(&mut hasher);
    }
    let Some(owned) = olm_rollout::owned(object) else {
        for (key, value) in object.0.iter().filter(|(key, _)| *key != "status" && *key != "metadata") {
            (key, go::json_string(value)).hash(&mut hasher);
        }
        (metadata("labels"), metadata("annotations")).hash(&mut hasher);
        return hasher.finish();
    };
    owned.hash(&mut hasher);
    hasher.finish()
}

/// A dynamic object of the client as plain JSON; `api_version` and `kind` are put in where lists leave them out.
pub(super) fn plain(object: DynamicObject, api_version: &str, kind: &str) -> Object {
    let DynamicObject { types, metadata, data } = object;
    let mut plain = match data {
        Value::Object(members) => Object(members),
        _ => Object::default(),
    };
    let (api_version, kind) =
        types.map_or((api_version.into(), kind.into()), |types| (types.api_version, types.kind));
    let metadata = serde_json::to_value(metadata).unwrap_or_default();
    plain.0.extend([
        ("apiVersion".into(), api_version.into()),
        ("kind".into(), kind.into()),
        ("metadata".into(), metadata),
    ]);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[test]
    fn live_fingerprint_follows_applied_fields() {
        let base = json!({"kind": "X", "metadata": {"name": "x", "resourceVersion": "1", "generation": 1}, "spec": {"a": 1}});
        let with = |path: &str, value: Value| {
            let mut changed = base.clone();
            let (parent, name) = path.rsplit_once('/').unwrap();
            changed.pointer_mut(parent).unwrap()[name] = value;
            Live::new(object(changed)).fingerprint
        };
        let was = Live::new(object(base.clone())).fingerprint;
        assert_eq!(was, with("/metadata/resourceVersion", json!("2")));
        assert_eq!(was, with("/metadata/managedFields", json!([])));
        assert_eq!(was, with("/status", json!({"a": 1})));
        assert_ne!(was, with("/spec/a", json!(2)));
        assert_ne!(was, with("/metadata/labels", json!({"a": "b"})));
        assert_ne!(was, with("/metadata/deletionTimestamp", json!("now")));
    }

    #[test]
    fn live_bodies_that_are_large_keep_metadata_and_status() {
        let live = Live::new(object(json!({
            "apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "generation": 2, "ownerReferences": [
                {"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "e-1", "uid": "1"},
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "2"},
            ]},
            "spec": {"text": "x".repeat(LARGEST)}, "status": {"observedGeneration": 1},
        })));
        assert!(live.partial && live.outdated);
        assert_eq!(live.owners, ["e-1"]);
        let kept = live.object();
        assert!(kept.0.contains_key("status") && !kept.0.contains_key("spec"));
    }

    /// A manager with a hundred RELATED_IMAGE variables is that large.
    #[test]
    fn live_bodies_that_are_large_keep_what_readiness_needs() {
        let selector = json!({"matchLabels": {"app": "x"}});
        for (kind, spec, status, ready, pods) in [
            (
                "StatefulSet",
                json!({"replicas": 3, "selector": selector}),
                json!({"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 3}),
                Some((false, ".status.readyReplicas is 1, want 3")),
                Some("app=x"),
            ),
            (
                "DaemonSet",
                json!({"selector": selector, "updateStrategy": {"type": "OnDelete"}}),
                json!({"observedGeneration": 1, "desiredNumberScheduled": 1, "numberAvailable": 1}),
                Some((true, "")),
                Some("app=x"),
            ),
            (
                "Deployment",
                json!({"replicas": 0, "selector": selector}),
                json!({"observedGeneration": 1}),
                Some((true, "")),
                Some("app=x"),
            ),
            ("Deployment", json!({"replicas": 1, "selector": selector}), json!({}), None, Some("app=x")),
            ("ReplicaSet", json!({"replicas": 3, "selector": selector}), json!({}), None, None),
        ] {
            let mut whole = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x", "generation": 1},
                "spec": spec, "status": status});
            whole["spec"]["template"] = json!({"text": "x".repeat(LARGEST)});
            let live = Live::new(object(whole));
            let kept = live.object();
            assert!(
                live.partial && kept.0.get("spec").is_none_or(|spec| spec.get("template").is_none()),
                "{kind}"
            );
            let found = builtin::readiness(&kept).map(|found| (found.is_ready(), found.messages.join("|")));
            let found = found.as_ref().map(|(ready, text)| (*ready, text.as_str()));
            assert_eq!((found, olm_rollout::pod_selector(&kept).as_deref()), (ready, pods), "{kind}");
        }
    }

    #[test]
    fn version_is_a_number_or_none() {
        let live = |version: &str| Live::new(object(json!({"metadata": {"resourceVersion": version}})));
        assert_eq!([live("9").number(), live("x").number()], [Some(9), None]);
    }
}
