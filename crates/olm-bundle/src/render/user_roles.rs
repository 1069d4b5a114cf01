//! Roles for the users of the provided APIs, aggregated to the cluster's `admin`, `edit` and `view`. Rule: classic-apis §7.7 (names,
//! verbs, labels of aggregation); decision 47 (which versions, and what is left out).

use olm_core::Object;
use serde_json::{Value, json};

/// The suffix of a role's name, the role of the cluster that it is aggregated to, and what it allows.
const ROLES: &[(&str, &str, &[&str])] = &[
    ("admin", "admin", &["*"]),
    ("edit", "edit", &["create", "update", "patch", "delete"]),
    ("view", "view", &["get", "list", "watch"]),
];
/// Roles of one version of a CRD: those above, and the one that reads the CRD.
pub(super) const ROLES_OF_A_VERSION: usize = ROLES.len() + 1;

/// The roles of every served version.
pub(super) fn roles(crds: &[Object]) -> Vec<Object> {
    crds.iter().flat_map(|crd| served(crd).into_iter().flat_map(|version| roles_of(crd, &version))).collect()
}

/// Names of the versions that the apiserver serves.
pub(super) fn served(crd: &Object) -> Vec<String> {
    let versions = crd.0.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
    let served = |version: &&Value| version.get("served").and_then(Value::as_bool) == Some(true);
    let names =
        versions.into_iter().flatten().filter(served).filter_map(|version| version.get("name")?.as_str());
    names.map(str::to_owned).collect()
}

fn roles_of(crd: &Object, version: &str) -> Vec<Object> {
    let spec = crd.0.get("spec");
    let text = |pointer: &str| {
        spec.and_then(|spec| spec.pointer(pointer)).and_then(Value::as_str).unwrap_or_default()
    };
    let (group, plural) = (text("/group"), text("/names/plural"));
    let role = |suffix: &str, aggregated_to: &str, rule: Value| {
        super::object(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {
                "name": format!("{}-{version}-{suffix}", crd.name()),
                "labels": {format!("rbac.authorization.k8s.io/aggregate-to-{aggregated_to}"): "true"},
            },
            "rules": [rule],
        }))
    };
    let on_resources = ROLES.iter().map(|(suffix, aggregated_to, verbs)| {
        role(suffix, aggregated_to, json!({"apiGroups": [group], "resources": [plural], "verbs": verbs}))
    });
    let read_crd = json!({
        "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
        "resourceNames": [crd.name()], "verbs": ["get"],
    });
    on_resources.chain([role("crdview", "view", read_crd)]).collect()
}
