//! Parts of the objects that OLM creates.

use olm_core::{Object, digits};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha224};

use super::keys;

/// SHA-224 of a text in base 62.
pub(crate) fn encode(text: &str) -> String {
    digits(&Sha224::digest(text.as_bytes()), 62)
}

/// An entry of `metadata.ownerReferences`; deleting the owner does not wait for the object.
pub(crate) fn owner_reference(
    api_version: &str,
    kind: &str,
    name: &str,
    uid: &str,
    is_controller: bool,
) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
        "controller": is_controller, "blockOwnerDeletion": false,
    })
}

/// An object of `rbac.authorization.k8s.io/v1` with the label `olm.managed`.
pub(super) fn rbac(kind: &str, name: &str) -> Object {
    let metadata = json!({ "name": name, "labels": { keys::MANAGED: "true" } });
    let members = [
        ("apiVersion", Value::from("rbac.authorization.k8s.io/v1")),
        ("kind", kind.into()),
        ("metadata", metadata),
    ];
    Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

pub(super) fn set_owner_labels(object: &mut Object, kind: &str, namespace: &str, name: &str) {
    object.set_label(keys::OWNER, name);
    object.set_label(keys::OWNER_KIND, kind);
    object.set_label(keys::OWNER_NAMESPACE, namespace);
}
