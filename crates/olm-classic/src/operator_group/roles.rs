//! Cluster roles for the users of provided APIs (classic-apis §7.7).

use std::borrow::Borrow;
use std::collections::BTreeMap;

use olm_api::classic::{ClusterServiceVersion, OperatorGroup};
use olm_core::Object;
use serde_json::{Value, json};

use super::api::{Api, ApiSet, provided};
use super::intersection::annotated;
use super::objects::{encode, owner_reference, rbac, set_owner_labels};
use super::targets::{name, namespace};
use super::{is_copy, keys};

/// Groups of rights, by the suffix of a role's name.
const SUFFIXES: [(&str, &[&str]); 3] = [
    ("admin", &["*"]),
    ("edit", &["create", "update", "patch", "delete"]),
    ("view", &["get", "list", "watch"]),
];

/// The label by which a role of an API is added to those of groups.
fn aggregation_label(api: &Api, suffix: &str) -> String {
    format!("olm.opgroup.permissions/aggregate-to-{}-{suffix}", api.hash())
}

/// The APIs of a group whose roles are aggregated: those of its annotation, and those of every CSV that is annotated with the group, be it
/// an active member or not.
#[must_use]
pub fn aggregated(group: &OperatorGroup, csvs: &[impl Borrow<ClusterServiceVersion>]) -> ApiSet {
    let belongs = |csv: &&ClusterServiceVersion| {
        let annotation =
            |key| csv.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        !is_copy(csv)
            && csv.metadata.namespace.as_deref() == Some(namespace(group))
            && annotation(keys::OPERATOR_GROUP) == Some(name(group))
            && annotation(keys::OPERATOR_NAMESPACE) == Some(namespace(group))
    };
    csvs.iter()
        .map(Borrow::borrow)
        .filter(belongs)
        .fold(annotated(group), |all, csv| all.union(&provided(csv)))
}

/// The roles of a group: one each for admin, edit and view, which Kubernetes fills from the roles of these APIs. They are deleted with the
/// group, by their owner labels.
#[must_use]
pub fn of_group(group: &OperatorGroup, apis: &ApiSet) -> Vec<Object> {
    let (namespace, name) = (namespace(group), name(group));
    let role = |suffix: &str| {
        let hash = encode(&format!("{namespace}/{name}/{suffix}"));
        let mut role = rbac("ClusterRole", &format!("olm.og.{name}.{suffix}-{hash}"));
        set_owner_labels(&mut role, "OperatorGroup", namespace, name);
        let labels: std::collections::BTreeSet<String> =
            apis.0.iter().map(|api| aggregation_label(api, suffix)).collect();
        if !labels.is_empty() {
            let selectors: Vec<Value> =
                labels.into_iter().map(|label| json!({ "matchLabels": { label: "true" } })).collect();
            role.0.insert("aggregationRule".to_owned(), json!({ "clusterRoleSelectors": selectors }));
        }
        role
    };
    SUFFIXES.iter().map(|(suffix, _)| role(suffix)).collect()
}

/// UIDs by name of the CustomResourceDefinitions (`PLURAL.GROUP`) and APIServices (`VERSION.GROUP`) of a cluster.
pub type Uids = BTreeMap<String, String>;

/// The roles of the APIs that a CSV owns, in the order of its description; made when it has Succeeded. An API whose definition is not in
/// the cluster has none: the roles are deleted with the definition.
#[must_use]
pub fn of_apis(csv: &ClusterServiceVersion, crds: &Uids, api_services: &Uids) -> Vec<Object> {
    let mut roles = Vec::new();
    for crd in csv.spec.custom_resource_definitions.iter().flat_map(|crds| &crds.owned) {
        let (Some((plural, group)), Some(uid)) = (crd.name.split_once('.'), crds.get(&crd.name)) else {
            continue;
        };
        let api = Api { kind: crd.kind.clone(), version: crd.version.clone(), group: group.to_owned() };
        // the kind in lower case is what the reference writes
        let owner =
            owner_reference("apiextensions.k8s.io/v1", "customresourcedefinition", &crd.name, uid, false);
        let base = format!("{}-{}", crd.name, crd.version);
        roles.extend(of_resource(&api, &base, plural, &owner));
        let mut role = api_role(&api, &format!("{base}-crdview"), "view", &owner);
        let rule = json!({
            "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
            "resourceNames": [crd.name], "verbs": ["get"],
        });
        role.0.insert("rules".to_owned(), json!([rule]));
        roles.push(role);
    }
    for service in csv.spec.api_service_definitions.iter().flat_map(|services| &services.owned) {
        let object = format!("{}.{}", service.version, service.group);
        let Some(uid) = api_services.get(&object) else { continue };
        let api = Api {
            kind: service.kind.clone(),
            version: service.version.clone(),
            group: service.group.clone(),
        };
        let owner = owner_reference("apiregistration.k8s.io/v1", "APIService", &object, uid, false);
        let base = format!("{}-{}", service.name, service.version);
        roles.extend(of_resource(&api, &base, &service.name, &owner));
    }
    roles
}

/// The roles for one resource.
fn of_resource(api: &Api, base: &str, resource: &str, owner: &Value) -> Vec<Object> {
    let roles = SUFFIXES.iter().map(|(suffix, verbs)| {
        let mut role = api_role(api, &format!("{base}-{suffix}"), suffix, owner);
        let rule = json!({ "apiGroups": [api.group], "resources": [resource], "verbs": verbs });
        role.0.insert("rules".to_owned(), json!([rule]));
        role
    });
    roles.collect()
}

fn api_role(api: &Api, name: &str, suffix: &str, owner: &Value) -> Object {
    let mut role = rbac("ClusterRole", name);
    role.set_label(&format!("rbac.authorization.k8s.io/aggregate-to-{suffix}"), "true");
    role.set_label(&aggregation_label(api, suffix), "true");
    role.metadata_mut().insert("ownerReferences".to_owned(), json!([owner]));
    role
}
