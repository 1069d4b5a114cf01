//! Parts of the objects that OLM creates.

use olm_core::Object;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha224};

use super::keys;

/// SHA-224 of a text as one big-endian number in base 62 (digits, lower case, upper case), without padding.
pub(crate) fn encode(text: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut number = Sha224::digest(text.as_bytes()).to_vec();
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut rest = 0_usize;
        for byte in &mut number {
            let value = rest * 256 + usize::from(*byte);
            // value / 62 is below 256 because the rest is below 62
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
            rest = value % 62;
        }
        digits.push(char::from(DIGITS[rest]));
    }
    digits.into_iter().rev().collect()
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

/// Sets the labels that name the owner of an object.
pub(super) fn set_owner_labels(object: &mut Object, kind: &str, namespace: &str, name: &str) {
    object.set_label(keys::OWNER, name);
    object.set_label(keys::OWNER_KIND, kind);
    object.set_label(keys::OWNER_NAMESPACE, namespace);
}
