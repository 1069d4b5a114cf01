//! OperatorConditions with their roles and gate, and Operators.

use olm_api::classic::ClusterServiceVersion;
use olm_classic::operator_group::{is_copy, keys};
use olm_classic::{operator, operator_condition};
use olm_core::Object;
use serde_json::{Map, Value, json};

use super::Comparison;
use super::observed::{self, condition_view, keyed, of_kind, owner_view, text, view};
use super::scenario::{Scenario, Snapshot, list};

pub(crate) fn compare(comparison: &mut Comparison, scenario: &Scenario, snapshot: &Snapshot) {
    let place = format!("{} {}", scenario.id, snapshot.name);
    let derived = of_kind(snapshot, "ClusterServiceVersion")
        .filter_map(|object| observed::csv(scenario, snapshot, object).ok());
    let csvs: Vec<ClusterServiceVersion> = derived.filter(|csv| !is_copy(csv)).collect();
    compare_conditions(comparison, snapshot, &place, &csvs);
    compare_gate(comparison, snapshot, &place);
    compare_operators(comparison, snapshot, &place, &csvs);
}

/// A condition object as snapshots show it, without labels.
fn operator_condition_view(condition: &olm_api::classic::OperatorCondition) -> Value {
    let value = serde_json::to_value(condition).unwrap();
    let mut spec = value["spec"].clone();
    for member in ["conditions", "overrides"] {
        for entry in spec.get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
            entry.as_object_mut().unwrap().remove("lastTransitionTime");
        }
    }
    json!({
        "apiVersion": value["apiVersion"], "kind": value["kind"], "name": value["metadata"]["name"],
        "namespace": value["metadata"]["namespace"], "owners": owner_view(&value["metadata"]), "spec": spec,
        "status": { "conditions": condition_view(&value["status"]["conditions"]) },
    })
}

fn compare_conditions(
    comparison: &mut Comparison,
    snapshot: &Snapshot,
    place: &str,
    csvs: &[ClusterServiceVersion],
) {
    let (mut ours, mut roles) = (Vec::new(), Vec::new());
    for csv in csvs {
        let mut made = operator_condition::object(csv);
        made.metadata.uid = Some("<uid>".to_owned());
        made.metadata.generation = Some(1);
        let recorded = of_kind(snapshot, "OperatorCondition").find(|object| {
            Some(text(object, "name")) == made.metadata.name.as_deref()
                && Some(text(object, "namespace")) == made.metadata.namespace.as_deref()
        });
        if let Some(recorded) = recorded {
            // what operator and administrator wrote
            let recorded = observed::operator_condition(recorded);
            made.spec.conditions = recorded.spec.conditions;
            made.spec.overrides = recorded.spec.overrides;
            made.status = operator_condition::status(&made);
        }
        roles.push(view(&operator_condition::role(&made)));
        roles.push(view(&operator_condition::role_binding(&made)));
        ours.push(operator_condition_view(&made));
    }
    let recorded = of_kind(snapshot, "OperatorCondition").cloned().map(|mut object| {
        let labels = object.as_object_mut().unwrap().remove("labels").unwrap_or_default();
        let labels: Map<String, Value> = labels.as_object().cloned().unwrap_or_default();
        // the labels of components come from the roll-up
        assert!(labels.keys().all(|key| key.starts_with(keys::COMPONENT)), "{place}: {labels:?}");
        object
    });
    comparison.compare_all("OperatorCondition", place, &keyed(ours), &keyed(recorded));
    let is_of_condition = |object: &&Value| {
        matches!(text(object, "kind"), "Role" | "RoleBinding")
            && object["owners"][0]["kind"] == "OperatorCondition"
    };
    let recorded = snapshot.objects.iter().filter(is_of_condition).cloned();
    comparison.compare_all("OperatorCondition roles", place, &keyed(roles), &keyed(recorded));
}

/// A CSV that waits has the message of the condition of the one that it replaces; one that continued replaces an operator that may be replaced.
fn compare_gate(comparison: &mut Comparison, snapshot: &Snapshot, place: &str) {
    for csv in of_kind(snapshot, "ClusterServiceVersion") {
        let replaced = text(&csv["spec"], "replaces");
        let of_replaced = |object: &&Value| {
            text(object, "name") == replaced && text(object, "namespace") == text(csv, "namespace")
        };
        let Some(condition) = of_kind(snapshot, "OperatorCondition").find(of_replaced) else { continue };
        let mut condition = observed::operator_condition(condition);
        condition.status = operator_condition::status(&condition);
        let held = operator_condition::upgradeable(Some(&condition)).err();
        let held = held.map(|why| format!("operator is not upgradeable: {why}"));
        let is_held = csv["status"]["reason"] == "OperatorConditionNotUpgradeable";
        let recorded = is_held.then(|| text(&csv["status"], "message"));
        comparison.compare("upgrade gate", place, &json!(held), &json!(recorded));
    }
}

/// A component as snapshots show it.
fn component_view(reference: &Value) -> String {
    let mut conditions = list(&reference["conditions"]);
    conditions.sort_by_key(|condition| text(condition, "type").to_owned());
    let conditions: Vec<String> = conditions
        .iter()
        .map(|it| format!("{}={}/{}", text(it, "type"), text(it, "status"), text(it, "reason")))
        // these two are chance in the reference
        .filter(|it| !it.starts_with("Progressing=") && it != "InstallPlanPending=True/Installing")
        .collect();
    let (kind, namespace, name) =
        (text(reference, "kind"), text(reference, "namespace"), text(reference, "name"));
    format!("{kind} {namespace}/{name} {}", conditions.join(","))
}

fn compare_operators(
    comparison: &mut Comparison,
    snapshot: &Snapshot,
    place: &str,
    csvs: &[ClusterServiceVersion],
) {
    let objects: Vec<Object> = snapshot.objects.iter().map(observed::object).collect();
    for recorded in of_kind(snapshot, "Operator") {
        let name = text(recorded, "name");
        let status = serde_json::to_value(operator::status(name, &objects)).unwrap();
        let components = &status["components"];
        let mut shown: Vec<String> = list(&components["refs"]).iter().map(component_view).collect();
        shown.sort();
        let ours = json!([components["labelSelector"], shown]);
        let theirs = json!([recorded["labelSelector"], recorded["components"]]);
        comparison.compare("Operator", &format!("{place} {name}"), &ours, &theirs);
    }
    for recorded in of_kind(snapshot, "Subscription") {
        let subscription = observed::subscription(recorded);
        let namespace = text(recorded, "namespace");
        let label = operator::label(&operator::name(&subscription.spec.package, namespace));
        let installed = text(&recorded["status"], "installedCSV");
        let csv = csvs.iter().find(|csv| {
            csv.metadata.name.as_deref() == Some(installed)
                && csv.metadata.namespace.as_deref() == Some(namespace)
        });
        let belonging = objects.iter().filter(|object| operator::belongs(object, &subscription, csv));
        for object in belonging {
            let has_label = object.labels().contains_key(label.as_str());
            let place = format!("{place} {} {}", object.kind(), object.name());
            comparison.compare("component label", &place, &json!(true), &json!(has_label));
        }
    }
}
