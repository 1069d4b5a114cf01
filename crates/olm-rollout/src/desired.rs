//! The object as it is created or applied: content plus the marks of its revision.
//!
//! Labels, revision annotation and owner references are put on a copy of the content. Rule: revisions §3, §7.3.

use olm_core::Object;
use serde_json::{Map, Value, json};

use crate::applied::our_entry;
use crate::conversion::without_created;
use crate::fields::Step;
use crate::keys;

/// A reference to an owner, as objects carry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRef {
    /// `group/version` of the owner.
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
    /// Does it block the owner's foreground deletion? `None` when absent.
    pub block_owner_deletion: Option<bool>,
}

impl OwnerRef {
    /// Reads one entry of `metadata.ownerReferences`.
    fn read(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: value.get("controller").and_then(Value::as_bool).unwrap_or(false),
            block_owner_deletion: value.get("blockOwnerDeletion").and_then(Value::as_bool),
        }
    }

    /// API group of the owner.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// The entries of `metadata.ownerReferences`.
fn owners(object: &Object) -> &[Value] {
    let list = object.metadata().and_then(|metadata| metadata.get("ownerReferences")?.as_array());
    list.map(Vec::as_slice).unwrap_or_default()
}

/// The owner references of an object.
pub fn owner_refs(object: &Object) -> Vec<OwnerRef> {
    owners(object).iter().map(OwnerRef::read).collect()
}

/// `metadata.resourceVersion`, empty when absent.
pub fn resource_version(object: &Object) -> &str {
    let version = object.metadata().and_then(|metadata| metadata.get("resourceVersion"));
    version.and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn is_terminating(live: &Object) -> bool {
    let deleted = live.metadata().and_then(|metadata| metadata.get("deletionTimestamp"));
    deleted.is_some_and(|at| !at.is_null())
}

pub fn controller_of(object: &Object) -> Option<OwnerRef> {
    owner_refs(object).into_iter().find(|owner| owner.controller)
}

/// The revision that does the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// `group/version` of the revision.
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub number: i64,
    /// Name of the owning extension, from the revision's own label; `None` stamps no owner label.
    pub extension: Option<String>,
}

impl Revision {
    fn reference(&self) -> Value {
        json!({
            "apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid,
            "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// Is this owner reference ours? Group, kind, name and UID must be equal.
    pub fn is(&self, owner: &OwnerRef) -> bool {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.group() == group && owner.kind == self.kind && owner.name == self.name && owner.uid == self.uid
    }
}

/// The object to create: content with the revision's marks, owned by it alone.
pub fn desired(content: &Object, revision: &Revision) -> Object {
    let mut object = content.clone();
    mark(&mut object, revision);
    object
}

/// Puts the revision's marks on an object. Another time changes nothing.
pub fn mark(object: &mut Object, revision: &Revision) {
    if let Some(extension) = &revision.extension {
        object.set_label(keys::OWNER_NAME, extension);
    }
    object.set_label(keys::MANAGED_BY, keys::MANAGED_BY_VALUE);
    object.set_annotation(keys::REVISION, &revision.number.to_string());
    object.metadata_mut().insert("ownerReferences".into(), json!([revision.reference()]));
}

/// The object to apply over `live`, which has another controller or none: all owner references stay, no longer as
/// controllers, and ours is added.
pub fn adopting(content: &Object, revision: &Revision, live: &Object) -> Object {
    with_owners(content, revision, live, |_| true)
}

/// The object to apply over `live`, which we control: owner references that we wrote ourselves stay.
pub fn enforcing(content: &Object, revision: &Revision, live: &Object) -> Object {
    let ours = our_entry(live)
        .and_then(|entry| entry.fields.get("f:metadata")?.get("f:ownerReferences")?.as_object())
        .cloned()
        .unwrap_or_default();
    let written = |uid: &str| {
        ours.keys().any(|key| match Step::parse(key) {
            Step::Item(keys) => keys.get("uid").and_then(Value::as_str) == Some(uid),
            Step::Here | Step::Member(_) | Step::Value(_) | Step::Other => false,
        })
    };
    with_owners(content, revision, live, written)
}

fn with_owners(content: &Object, revision: &Revision, live: &Object, keep: impl Fn(&str) -> bool) -> Object {
    let mut object = desired(content, revision);
    let mut owners: Vec<Value> = owners(live)
        .iter()
        .filter(|owner| {
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
            uid != revision.uid && keep(uid)
        })
        .cloned()
        .map(|mut owner| {
            if let Some(members) = owner.as_object_mut() {
                members.insert("controller".into(), Value::Bool(false));
            }
            owner
        })
        .collect();
    owners.push(revision.reference());
    object.metadata_mut().insert("ownerReferences".into(), Value::Array(owners));
    object
}

/// A JSON merge patch that takes our owner reference out, and with `marks` also the labels and annotations that mark the
/// object as managed by this controller; otherwise another revision has applied it, and the entry of our create goes, too. `None` when
/// there is nothing to take out.
pub fn release_patch(live: &Object, revision: &Revision, marks: bool) -> Option<Value> {
    let owners = owners(live);
    let left: Vec<Value> =
        owners.iter().filter(|owner| !revision.is(&OwnerRef::read(owner))).cloned().collect();
    let mut metadata = Map::new();
    if left.len() < owners.len() {
        metadata.insert("ownerReferences".into(), Value::Array(left));
        let entries = without_created(live).filter(|_| !marks);
        metadata.extend(entries.map(|entries| ("managedFields".to_owned(), entries.into())));
    }
    if marks {
        let labels = live.labels();
        if labels.get(keys::MANAGED_BY) == Some(&keys::MANAGED_BY_VALUE) {
            metadata.insert("labels".into(), json!({keys::MANAGED_BY: null}));
        }
        if live.annotations().contains_key(keys::REVISION) {
            metadata.insert("annotations".into(), json!({keys::REVISION: null}));
        }
    }
    if metadata.is_empty() {
        return None;
    }
    let version =
        live.metadata().and_then(|metadata| metadata.get("resourceVersion")).cloned().unwrap_or_default();
    metadata.insert("resourceVersion".into(), version);
    Some(json!({"metadata": metadata}))
}

#[cfg(test)]
pub(crate) fn test_revision() -> Revision {
    Revision {
        api_version: "olm.operatorframework.io/v1".into(),
        kind: "ClusterObjectSet".into(),
        name: "e-2".into(),
        uid: "u2".into(),
        number: 2,
        extension: Some("e".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    fn reference(name: &str, uid: &str, controller: bool) -> Value {
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": name, "uid": uid,
               "controller": controller, "blockOwnerDeletion": true})
    }

    #[test]
    fn desired_has_marks_on_a_copy_of_the_content() {
        let content = object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"a": "b"}}}),
        );
        let got = desired(&content, &test_revision());
        assert_eq!(
            got.to_value(),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": "c",
                    "labels": {"a": "b", "app.kubernetes.io/managed-by": "olm.operatorframework.io", "olm.operatorframework.io/owner-name": "e"},
                    "annotations": {"olm.operatorframework.io/revision": "2"},
                    "ownerReferences": [reference("e-2", "u2", true)],
                },
            })
        );
        let mut again = got.clone();
        mark(&mut again, &test_revision());
        assert_eq!(again, got);
        let unowned = desired(&content, &Revision { extension: None, ..test_revision() });
        assert!(
            !unowned.labels().contains_key(keys::OWNER_NAME),
            "a hand-made revision stamps no empty label"
        );
    }

    #[test]
    fn desired_adoption_keeps_all_owners_enforcement_our_own() {
        let content = object(json!({"metadata": {"name": "c"}}));
        let foreign =
            json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "x", "controller": false});
        let mut live = json!({"metadata": {
            "ownerReferences": [reference("e-1", "u1", true), foreign],
            "managedFields": [{"manager": "olm.operatorframework.io", "operation": "Apply",
                "fieldsV1": {"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"u1\"}": {}, "k:{\"uid\":\"u2\"}": {}}}}}],
        }});
        let owners = |object: Object| object.to_value()["metadata"]["ownerReferences"].clone();
        assert_eq!(
            owners(adopting(&content, &test_revision(), &object(live.clone()))),
            json!([reference("e-1", "u1", false), foreign, reference("e-2", "u2", true)])
        );
        live["metadata"]["ownerReferences"] =
            json!([reference("e-1", "u1", false), foreign, reference("e-2", "u2", true)]);
        assert_eq!(
            owners(enforcing(&content, &test_revision(), &object(live))),
            json!([reference("e-1", "u1", false), reference("e-2", "u2", true)])
        );
    }

    #[test]
    fn desired_release_takes_out_our_marks() {
        let live = |owners: Value| {
            object(json!({"metadata": {
                "resourceVersion": "7", "ownerReferences": owners,
                "labels": {"app.kubernetes.io/managed-by": "olm.operatorframework.io", "a": "b"},
                "annotations": {"olm.operatorframework.io/revision": "2"},
            }}))
        };
        let both = live(json!([reference("e-2", "u2", false), reference("e-3", "u3", true)]));
        assert_eq!(
            release_patch(&both, &test_revision(), false),
            Some(
                json!({"metadata": {"resourceVersion": "7", "ownerReferences": [reference("e-3", "u3", true)]}})
            )
        );
        assert_eq!(
            release_patch(&live(json!([reference("e-2", "u2", true)])), &test_revision(), true),
            Some(json!({"metadata": {
                "resourceVersion": "7", "ownerReferences": [],
                "labels": {"app.kubernetes.io/managed-by": null}, "annotations": {"olm.operatorframework.io/revision": null},
            }}))
        );
        assert_eq!(
            release_patch(&live(json!([reference("e-3", "u3", true)])), &test_revision(), false),
            None
        );
    }
}
