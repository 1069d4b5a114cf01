//! Labels and annotations of the objects of a CSV (classic-apis §12).

use olm_api::classic::ClusterServiceVersion;
use olm_core::Object;
use serde_json::{Map, Value, json};

pub(super) use crate::operator_group::keys::{
    MANAGED, OWNER, OWNER_KIND, OWNER_NAMESPACE, TARGET_NAMESPACES,
};

pub(super) const SPEC_HASH: &str = "olm.deployment-spec-hash";
pub(super) const KIND: &str = "ClusterServiceVersion";
const API_VERSION: &str = "operators.coreos.com/v1alpha1";

pub(super) fn name(csv: &ClusterServiceVersion) -> &str {
    csv.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn namespace(csv: &ClusterServiceVersion) -> &str {
    csv.metadata.namespace.as_deref().unwrap_or_default()
}

/// Owner references do not cross namespaces, so objects of the cluster and of other namespaces have labels instead.
pub(super) fn set_owner(object: &mut Object, csv: &ClusterServiceVersion) {
    object.set_label(OWNER, name(csv));
    object.set_label(OWNER_KIND, KIND);
    object.set_label(OWNER_NAMESPACE, namespace(csv));
}

/// Deleting the CSV does not wait for the object.
pub(super) fn refer_to_owner(object: &mut Object, csv: &ClusterServiceVersion) {
    let owner = json!({
        "apiVersion": API_VERSION, "kind": KIND, "name": name(csv),
        "uid": csv.metadata.uid.as_deref().unwrap_or_default(), "controller": false, "blockOwnerDeletion": false,
    });
    object.metadata_mut().insert("ownerReferences".to_owned(), json!([owner]));
}

/// An object that OLM manages; an empty namespace is none.
pub(super) fn managed(api_version: &str, kind: &str, namespace: &str, name: &str) -> Object {
    let mut object = Object(Map::new());
    object.0.insert("apiVersion".to_owned(), api_version.into());
    object.0.insert("kind".to_owned(), kind.into());
    object.metadata_mut().insert("name".to_owned(), name.into());
    if !namespace.is_empty() {
        object.set_namespace(namespace);
    }
    object.set_label(MANAGED, "true");
    object
}

/// Whether the owner labels of an object name the CSV.
pub(super) fn is_owned(object: &Object, csv: &ClusterServiceVersion) -> bool {
    let labels = object.labels();
    let has = |key: &str, value: &str| labels.get(key).copied() == Some(value);
    has(OWNER, name(csv)) && has(OWNER_KIND, KIND) && has(OWNER_NAMESPACE, namespace(csv))
}

/// The text of a member of a JSON object; empty where there is none.
pub(super) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}
