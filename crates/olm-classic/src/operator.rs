//! The Operator object: the components of an operator over all namespaces.
//!
//! A component has the label `operators.coreos.com/PACKAGE.NAMESPACE`. OLM sets it on the Subscription, its CSV and its current install plan,
//! and on what the CSV owns. The Operator `PACKAGE.NAMESPACE` lists all objects with the label.
//!
//! Rule: classic-apis §1, §12.

use std::collections::BTreeSet;

use olm_api::classic::install_plan::Step;
use olm_api::classic::operator::{Components, OperatorStatus, RichReference};
use olm_api::classic::{ClusterServiceVersion, GROUP, InstallPlan, InstallPlanStatus, Subscription};
use olm_core::Object;
use serde_json::{Value, json};

use crate::install_plan::StepStatus;
use crate::operator_group::keys::{COMPONENT, COPIED_FROM, MANAGED, OWNER, OWNER_KIND, OWNER_NAMESPACE};

/// Longest name of a label, in bytes.
const MAX_LABEL: usize = 63;

/// Kinds of objects that become components when a CSV owns them; the rest of a bundle is not listed.
const OWNED_KINDS: [&str; 11] = [
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "Deployment",
    "OperatorCondition",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
];

/// The name of the Operator for a package that is subscribed in a namespace.
#[must_use]
pub fn name(package: &str, namespace: &str) -> String {
    format!("{package}.{namespace}")
}

/// The label of the components of an operator. A name that is too long for a label is cut.
#[must_use]
pub fn label(operator: &str) -> String {
    let mut end = operator.len().min(MAX_LABEL);
    while !operator.is_char_boundary(end) {
        end -= 1;
    }
    let name = operator[..end].trim_end_matches(|end: char| !end.is_ascii_alphanumeric());
    format!("{COMPONENT}{name}")
}

/// The names in the component labels of an object: the Operators that have to be written when it changes.
#[must_use]
pub fn operators_of(object: &Object) -> BTreeSet<String> {
    object.labels().keys().filter_map(|key| key.strip_prefix(COMPONENT)).map(str::to_owned).collect()
}

/// Adds component labels to an object that is about to be created, so that they take no write of their own afterwards: to a CSV itself, and to
/// what `csv` is going to own.
pub fn label_component<'a>(
    object: &mut Object,
    labels: impl IntoIterator<Item = &'a str>,
    csv: Option<&ClusterServiceVersion>,
) {
    let is_csv = object.group() == GROUP && object.kind() == "ClusterServiceVersion";
    let is_component = is_csv || csv.is_some_and(|csv| is_owned(object, csv));
    for label in labels.into_iter().filter(|label| is_component && label.starts_with(COMPONENT)) {
        object.set_label(label, "");
    }
}

/// Whether an object belongs to the operator of a Subscription, and so gets its label. `csv` is the installed CSV of the Subscription.
#[must_use]
pub fn belongs(object: &Object, subscription: &Subscription, csv: Option<&ClusterServiceVersion>) -> bool {
    let own = subscription.metadata.namespace.as_deref();
    let is_named = |name: Option<&str>| object.namespace() == own && Some(object.name()) == name;
    if object.group() == GROUP {
        let status = subscription.status.as_ref();
        match object.kind() {
            "Subscription" => return is_named(subscription.metadata.name.as_deref()),
            "ClusterServiceVersion" => {
                let installed = status.map(|status| status.installed_csv.as_str());
                return is_named(installed) && !object.labels().contains_key(COPIED_FROM);
            }
            "InstallPlan" => {
                let plan = status.and_then(|status| status.install_plan_ref.as_ref());
                return is_named(plan.and_then(|plan| plan.name.as_deref()));
            }
            _ => {}
        }
    }
    csv.is_some_and(|csv| is_owned(object, csv))
}

/// Whether an object belonged to the operator of a Subscription and does not any more, and so loses its label: an earlier install plan.
#[must_use]
pub fn belonged(object: &Object, subscription: &Subscription) -> bool {
    let is_plan = object.group() == GROUP && object.kind() == "InstallPlan";
    let generation = object.0.get("spec").and_then(|spec| spec["generation"].as_i64());
    is_plan && !belongs(object, subscription, None) && !is_ahead(generation, subscription)
}

/// Labels a plan that is about to be created with the operators of these packages of its namespace, for [`is_announced`].
pub fn announce<'a>(plan: &mut InstallPlan, namespace: &str, packages: impl IntoIterator<Item = &'a str>) {
    for package in packages {
        let label = label(&name(package, namespace));
        plan.metadata.labels.get_or_insert_default().insert(label, String::new());
    }
}

/// Whether the Subscriptions for which a plan was made refer to it; it has the labels of their operators from its creation on. Until then its
/// steps wait: a Subscription that finds a ClusterServiceVersion and no plan of its own takes it for a foreign one. Once they have begun
/// they wait for none: the Subscription to a dependency, which they make, never refers to the plan, and the operator of the dependency
/// labels it, too.
#[must_use]
pub fn is_announced<'a>(
    plan: &InstallPlan,
    subscriptions: impl IntoIterator<Item = &'a Subscription>,
) -> bool {
    let has_begun = |status: &InstallPlanStatus| {
        let is_tried = |step: &Step| StepStatus::parse(&step.status) != StepStatus::Unknown;
        status.start_time.is_some() || status.plan.iter().any(is_tried)
    };
    if plan.status.as_ref().is_some_and(has_begun) {
        return true;
    }
    let labels = plan.metadata.labels.as_ref();
    let is_for = |subscription: &Subscription| {
        let namespace = subscription.metadata.namespace.as_deref().unwrap_or_default();
        let label = label(&name(&subscription.spec.package, namespace));
        labels.is_some_and(|labels| labels.contains_key(&label))
    };
    let mut subscriptions = subscriptions.into_iter().filter(|it| is_for(it));
    !subscriptions.any(|it| is_ahead(plan.spec.generation, it))
}

/// Whether the plan of this generation is later than the one to which a Subscription refers.
pub(crate) fn is_ahead(generation: Option<i64>, subscription: &Subscription) -> bool {
    let known = subscription.status.as_ref().and_then(|status| status.install_plan_generation);
    generation.is_some_and(|generation| generation > known.unwrap_or_default())
}

/// Whether an object is owned by a CSV, by reference or by labels, or defines one of its CustomResourceDefinitions.
fn is_owned(object: &Object, csv: &ClusterServiceVersion) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (csv_name, csv_namespace) = (text(&csv.metadata.name), text(&csv.metadata.namespace));
    let labels = object.labels();
    let label = |key| labels.get(key).copied().unwrap_or_default();
    if object.kind() == "CustomResourceDefinition" {
        let mut owned = csv.spec.custom_resource_definitions.iter().flat_map(|crds| &crds.owned);
        return label(MANAGED) == "true" && owned.any(|crd| crd.name == object.name());
    }
    if !OWNED_KINDS.contains(&object.kind()) {
        return false;
    }
    let owners = object.metadata().and_then(|it| it.get("ownerReferences")).and_then(Value::as_array);
    let is_csv =
        |owner: &Value| owner["kind"] == "ClusterServiceVersion" && owner["name"] == csv_name.as_str();
    let by_reference =
        object.namespace() == Some(csv_namespace.as_str()) && owners.into_iter().flatten().any(is_csv);
    let copied_from = label(COPIED_FROM);
    let home = if copied_from.is_empty() { label(OWNER_NAMESPACE) } else { copied_from };
    let by_labels =
        label(OWNER_KIND) == "ClusterServiceVersion" && label(OWNER) == csv_name && home == csv_namespace;
    by_reference || by_labels
}

/// The status of an Operator: the objects with its label, sorted by API version, kind, namespace and name. Of other groups than OLM's own,
/// only objects with the label `olm.managed: "true"` are listed.
#[must_use]
pub fn status(operator: &str, objects: &[Object]) -> OperatorStatus {
    let label = label(operator);
    let is_component = |object: &&Object| {
        let labels = object.labels();
        labels.contains_key(label.as_str())
            && (object.group() == GROUP
                || object.kind() == "CustomResourceDefinition"
                || labels.get(MANAGED) == Some(&"true"))
    };
    let mut refs: Vec<RichReference> = objects.iter().filter(is_component).map(reference).collect();
    refs.sort_by(|a, b| {
        let key = |it: &RichReference| {
            (it.api_version.clone(), it.kind.clone(), it.namespace.clone(), it.name.clone())
        };
        key(a).cmp(&key(b))
    });
    let selector = json!({ "matchExpressions": [{ "key": label, "operator": "Exists" }] });
    let components =
        Components { label_selector: serde_json::from_value(selector).ok(), refs, ..Components::default() };
    OperatorStatus { components: Some(components), ..OperatorStatus::default() }
}

/// A reference with the conditions of the object. The phase of a CSV is its one condition.
fn reference(object: &Object) -> RichReference {
    let metadata = |key| {
        let value = object.metadata().and_then(|metadata| metadata.get(key)).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let status = object.0.get("status").cloned().unwrap_or_default();
    let conditions = if (object.group(), object.kind()) == (GROUP, "ClusterServiceVersion") {
        phase_condition(&status).into_iter().collect()
    } else {
        status["conditions"].as_array().cloned().unwrap_or_default()
    };
    RichReference {
        api_version: object.api_version().to_owned(),
        kind: object.kind().to_owned(),
        name: object.name().to_owned(),
        namespace: object.namespace().unwrap_or_default().to_owned(),
        uid: metadata("uid"),
        resource_version: metadata("resourceVersion"),
        // what is no condition is left out: the object is foreign
        conditions: conditions.into_iter().filter_map(|it| serde_json::from_value(it).ok()).collect(),
        ..RichReference::default()
    }
}

fn phase_condition(status: &Value) -> Option<Value> {
    let phase = status["phase"].as_str().filter(|phase| !phase.is_empty())?;
    let mut condition = json!({ "type": phase, "status": "True" });
    for key in ["reason", "message", "lastUpdateTime", "lastTransitionTime"] {
        if let Some(value) = status.get(key) {
            condition[key] = value.clone();
        }
    }
    Some(condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(value: Value) -> Vec<Object> {
        value.as_array().unwrap().iter().map(|it| Object::from_value(it.clone()).unwrap()).collect()
    }

    /// rule: classic-apis §12
    #[test]
    fn operator_lists_labelled_objects_with_their_conditions() {
        let labels = json!({ "operators.coreos.com/demo.ns": "", "olm.managed": "true" });
        let csv = "operators.coreos.com/v1alpha1";
        let all = objects(json!([
            { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "sa", "namespace": "ns", "labels": labels } },
            { "apiVersion": csv, "kind": "ClusterServiceVersion", "metadata": { "name": "demo.v1", "namespace": "ns", "uid": "u", "labels": { "operators.coreos.com/demo.ns": "" } },
              "status": { "phase": "Pending", "reason": "RequirementsNotMet", "message": "m", "conditions": [{ "phase": "Pending" }] } },
            { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "namespace": "ns", "labels": labels },
              "status": { "conditions": [{ "type": "Available", "status": "True" }, { "status": 5 }, "nonsense"] } },
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "unmanaged", "labels": { "operators.coreos.com/demo.ns": "" } } },
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "other", "labels": { "operators.coreos.com/other.ns": "", "olm.managed": "true" } } },
        ]));
        let status = serde_json::to_value(status("demo.ns", &all)).unwrap();
        assert_eq!(
            status,
            json!({ "components": {
                "labelSelector": { "matchExpressions": [{ "key": "operators.coreos.com/demo.ns", "operator": "Exists" }] },
                "refs": [
                    { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "namespace": "ns", "conditions": [{ "type": "Available", "status": "True" }] },
                    { "apiVersion": csv, "kind": "ClusterServiceVersion", "name": "demo.v1", "namespace": "ns", "uid": "u",
                      "conditions": [{ "type": "Pending", "status": "True", "reason": "RequirementsNotMet", "message": "m" }] },
                    { "apiVersion": "v1", "kind": "ServiceAccount", "name": "sa", "namespace": "ns" },
                ],
            } })
        );
        assert_eq!(operators_of(&all[4]), BTreeSet::from(["other.ns".to_owned()]));
    }

    /// rule: classic-apis §12
    #[test]
    fn operator_loses_earlier_install_plans() {
        let subscription: Subscription = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns"}, "spec": {"name": "demo", "source": "c", "sourceNamespace": "ns"},
            "status": {"installPlanRef": {"name": "install-2"}, "lastUpdated": "2024-01-01T00:00:00Z"},
        }))
        .unwrap();
        let csv = "operators.coreos.com/v1alpha1";
        for (api_version, kind, name, want) in [
            (csv, "InstallPlan", "install-1", true),
            (csv, "InstallPlan", "install-2", false),
            (csv, "ClusterServiceVersion", "demo.v1", false),
            ("v1", "ConfigMap", "install-1", false),
        ] {
            let metadata = json!({ "name": name, "namespace": "ns" });
            let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
            let got = belonged(&Object::from_value(object).unwrap(), &subscription);
            assert_eq!(got, want, "{kind} {name}");
        }
    }

    /// A plan whose Subscription does not know it yet waits, and keeps the label that it was created with.
    #[test]
    fn operator_announces_a_plan_to_its_subscription() {
        let subscription = |package: &str, generation: Option<i64>| -> Subscription {
            serde_json::from_value(json!({
                "metadata": {"name": "s", "namespace": "ns"}, "spec": {"name": package, "source": "c", "sourceNamespace": "ns"},
                "status": {"installPlanGeneration": generation, "lastUpdated": "2024-01-01T00:00:00Z"},
            }))
            .unwrap()
        };
        for (package, generation, labelled, announced) in [
            ("demo", None, true, false),
            ("demo", Some(1), true, false),
            ("demo", Some(2), true, true),
            ("demo", Some(3), true, true),
            ("demo", None, false, true),
            ("other", None, true, true),
        ] {
            let plan = json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan", "metadata": {"name": "install-2", "namespace": "ns"},
                "spec": {"approval": "Automatic", "approved": true, "clusterServiceVersionNames": [], "generation": 2},
            });
            let of = subscription(package, generation);
            let mut read: InstallPlan = serde_json::from_value(plan.clone()).unwrap();
            announce(&mut read, "ns", labelled.then_some("demo"));
            let labels: Vec<&String> = read.metadata.labels.iter().flat_map(|labels| labels.keys()).collect();
            assert_eq!(labels == ["operators.coreos.com/demo.ns"], labelled, "{labels:?}");
            assert_eq!(is_announced(&read, [&of]), announced, "{package} {generation:?} {labelled}");
            let is_earlier = generation.is_some_and(|known| known >= 2);
            assert_eq!(belonged(&Object::from_value(plan).unwrap(), &of), is_earlier, "{generation:?}");
        }
    }

    /// The Subscription to a dependency has no plan of its own, and its operator labels the plan that made it.
    #[test]
    fn operator_of_a_dependency_does_not_stop_its_plan() {
        for (status, step, announced) in [
            (json!({}), "Unknown", false),
            (json!({}), "Created", true),
            (json!({"startTime": "2024-01-01T00:00:00Z"}), "Unknown", true),
        ] {
            let resource = json!({"sourceName": "c", "sourceNamespace": "ns", "group": "", "version": "v1", "kind": "Secret", "name": "s",
                "manifest": ""});
            let mut plan: InstallPlan = serde_json::from_value(json!({
                "metadata": { "name": "install-1", "namespace": "ns" },
                "spec": { "approval": "Automatic", "approved": true, "clusterServiceVersionNames": [], "generation": 1 },
            }))
            .unwrap();
            announce(&mut plan, "ns", ["dependency"]);
            let mut value = json!({"phase": "Installing", "catalogSources": [],
                "plan": [{"resolving": "a.v1", "resource": resource, "status": step}]});
            value.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
            plan.status = Some(serde_json::from_value(value).unwrap());
            let dependency: Subscription = serde_json::from_value(json!({
                "metadata": {"name": "s", "namespace": "ns"}, "spec": {"name": "dependency", "source": "c", "sourceNamespace": "ns"},
            }))
            .unwrap();
            assert_eq!(is_announced(&plan, [&dependency]), announced, "{plan:?}");
        }
    }

    /// A label that is there at creation is the one that the object would get afterwards.
    #[test]
    fn operator_labels_what_becomes_a_component() {
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": { "name": "demo.v1", "namespace": "ns" },
            "spec": { "install": { "strategy": "deployment" }, "displayName": "demo", "customresourcedefinitions": {
                "owned": [{ "name": "n", "kind": "Widget", "version": "v1" }] } },
        }))
        .unwrap();
        let label = "operators.coreos.com/demo.ns";
        let owner = json!([{ "kind": "ClusterServiceVersion", "name": "demo.v1" }]);
        let managed = json!({ "olm.managed": "true" });
        let own = json!({ "olm.owner": "demo.v1", "olm.owner.namespace": "ns", "olm.owner.kind": "ClusterServiceVersion" });
        for (kind, labels, owners, want) in [
            ("Deployment", json!({}), owner.clone(), true),
            ("Deployment", json!({}), json!([]), false),
            ("ClusterRole", own, json!([]), true),
            ("ClusterRole", json!({}), json!([]), false),
            ("CustomResourceDefinition", managed, json!([]), true),
            ("CustomResourceDefinition", json!({}), json!([]), false),
            ("PrometheusRule", json!({}), owner, false),
        ] {
            let metadata =
                json!({ "name": "n", "namespace": "ns", "labels": labels, "ownerReferences": owners });
            let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata });
            let mut object = Object::from_value(object).unwrap();
            label_component(&mut object, [label, "example.com/other"], Some(&csv));
            assert_eq!(object.labels().contains_key(label), want, "{kind} {labels}");
            assert!(!object.labels().contains_key("example.com/other"), "{kind}");
        }
    }

    #[test]
    fn operator_label_is_cut_to_a_label() {
        let long = format!("{}.{}", "p".repeat(62), "namespace");
        for (operator, want) in [
            ("demo.ns", "operators.coreos.com/demo.ns".to_owned()),
            (long.as_str(), format!("operators.coreos.com/{}", "p".repeat(62))),
            ("", "operators.coreos.com/".to_owned()),
        ] {
            assert_eq!(label(operator), want, "{operator}");
        }
    }
}
