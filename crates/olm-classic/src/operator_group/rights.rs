//! The rights of an operator where it works: its Roles and RoleBindings in the target namespaces, or cluster-wide (classic-apis §7.7).

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::ClusterServiceVersion;
use olm_core::Object;
use serde_json::{Value, json};

use super::keys;
use super::objects::{owner_reference, set_owner_labels};
use super::targets::is_global;

const CSV: &str = "ClusterServiceVersion";

/// What the Roles and RoleBindings of a CSV become, in the order of `owned`.
///
/// - For a global group: a ClusterRole or ClusterRoleBinding of the same name, with the right to read namespaces. The caller leaves them out
///   when the operator has the rights already.
/// - Otherwise: a copy in each target namespace that has a copy of the CSV, owned by that copy; `copies` has their UIDs by namespace.
///
/// `owned` are objects of the CSV's namespace; those without the owner labels of the CSV are left out.
#[must_use]
pub fn spread(
    csv: &ClusterServiceVersion,
    targets: &[String],
    owned: &[Object],
    copies: &BTreeMap<String, String>,
) -> Vec<Object> {
    let name = csv.metadata.name.as_deref().unwrap_or_default();
    let own = csv.metadata.namespace.as_deref().unwrap_or_default();
    let owned =
        owned.iter().filter(|it| is_owned(it, name, own) && matches!(it.kind(), "Role" | "RoleBinding"));
    if is_global(targets) {
        return owned.map(|object| cluster_wide(object, name, own)).collect();
    }
    let elsewhere = |namespace: &&String| namespace.as_str() != own;
    let copied = owned.flat_map(|object| {
        targets.iter().filter(elsewhere).filter_map(|namespace| {
            copies.get(namespace).map(|uid| copied(object, name, own, namespace, uid))
        })
    });
    copied.collect()
}

/// Rights in the whole cluster, with the namespace of their CSV in their names: a CSV of the same name in another namespace has those without.
#[must_use]
pub fn apart(mut wide: Vec<Object>, namespace: &str) -> Vec<Object> {
    let is_role = |it: &&Object| it.kind() == "ClusterRole";
    let roles: BTreeSet<String> = wide.iter().filter(is_role).map(|it| it.name().to_owned()).collect();
    for object in &mut wide {
        let name = format!("{}-{namespace}", object.name());
        object.metadata_mut().insert("name".to_owned(), name.into());
        let reference = object.0.get_mut("roleRef").and_then(|reference| reference.get_mut("name"));
        if let Some(Value::String(role)) = reference
            && roles.contains(role.as_str())
        {
            *role = format!("{role}-{namespace}");
        }
    }
    wide
}

/// What a global group has made cluster-wide of the Roles and RoleBindings of a CSV, and a group with other targets does not need: first
/// bindings, then roles.
///
/// `owned` is as for [`spread`]; `live` finds the object of the cluster with the kind and name of another one. An object without the owner
/// labels of the CSV is left out, and so is what a plan made for `clusterPermissions`: its names are others.
#[must_use]
pub fn left_over(
    csv: &ClusterServiceVersion,
    owned: &[Object],
    live: impl Fn(&Object) -> Option<Object>,
) -> Vec<Object> {
    let name = csv.metadata.name.as_deref().unwrap_or_default();
    let own = csv.metadata.namespace.as_deref().unwrap_or_default();
    let wide = spread(csv, &[String::new()], owned, &BTreeMap::new());
    let apart = apart(wide.clone(), own);
    let present = wide.iter().chain(&apart).filter_map(live).filter(|it| is_owned(it, name, own));
    let (bindings, roles): (Vec<Object>, Vec<Object>) =
        present.partition(|it| it.kind() == "ClusterRoleBinding");
    bindings.into_iter().chain(roles).collect()
}

/// Whether an object has the owner labels of the CSV `name` of the namespace `own`.
fn is_owned(object: &Object, name: &str, own: &str) -> bool {
    let labels = object.labels();
    let label = |key| labels.get(key).copied();
    label(keys::OWNER) == Some(name)
        && label(keys::OWNER_KIND) == Some(CSV)
        && label(keys::OWNER_NAMESPACE) == Some(own)
}

/// A copy without what the apiserver adds to metadata.
fn fresh(object: &Object) -> Object {
    let labels = object.labels().into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    let mut fresh = object.clone();
    let metadata = [("name", object.name().into()), ("labels", Value::Object(labels))];
    let metadata = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    fresh.0.insert("metadata".to_owned(), Value::Object(metadata));
    fresh
}

fn copied(object: &Object, csv: &str, own: &str, namespace: &str, uid: &str) -> Object {
    let mut copy = fresh(object);
    copy.set_namespace(namespace);
    copy.set_label(keys::COPIED_FROM, own);
    set_owner_labels(&mut copy, CSV, namespace, csv);
    let owner = owner_reference("operators.coreos.com/v1alpha1", CSV, csv, uid, false);
    copy.metadata_mut().insert("ownerReferences".to_owned(), json!([owner]));
    copy
}

fn cluster_wide(object: &Object, csv: &str, own: &str) -> Object {
    let mut wide = fresh(object);
    let kind = format!("Cluster{}", object.kind());
    set_owner_labels(&mut wide, CSV, own, csv);
    if let Some(reference) = wide.0.get_mut("roleRef").and_then(Value::as_object_mut) {
        reference.insert("kind".to_owned(), "ClusterRole".into());
    }
    if kind == "ClusterRole" {
        let read =
            json!({ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] });
        let rules = object.0.get("rules").and_then(Value::as_array).into_iter().flatten().cloned();
        wide.0.insert("rules".to_owned(), rules.chain([read]).collect());
    }
    wide.0.insert("kind".to_owned(), kind.into());
    wide
}
