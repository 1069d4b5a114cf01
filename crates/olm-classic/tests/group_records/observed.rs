//! The typed objects behind a snapshot, and the form in which snapshots show objects.

use std::collections::BTreeMap;

use olm_api::classic::{ClusterServiceVersion, OperatorCondition, OperatorGroup, Subscription};
use olm_classic::operator_group::keys;
use olm_core::Object;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::scenario::{Scenario, Snapshot, list};

const TIME: &str = "2024-01-01T00:00:00Z";
/// The annotation whose value is JSON, which snapshots show decoded.
const PROPERTIES: &str = "operatorframework.io/properties";

/// Objects of a snapshot by kind.
pub(crate) fn of_kind<'a>(snapshot: &'a Snapshot, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    snapshot.objects.iter().filter(move |object| object["kind"] == kind)
}

pub(crate) fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["labels"][key].as_str()
}

pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> T {
    let shown = value.to_string();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

/// The metadata of a recorded object.
fn metadata(object: &Value) -> Value {
    let mut annotations = object["annotations"].clone();
    if let Some(properties) = annotations.get_mut(PROPERTIES) {
        *properties = properties.to_string().into();
    }
    json!({
        "name": object["name"], "namespace": object["namespace"], "labels": object["labels"],
        "annotations": annotations, "uid": "<uid>", "generation": 1,
    })
}

/// Recorded conditions, a map by type, as the list that the object has.
fn conditions(shown: &Value) -> Vec<Value> {
    let all = shown.as_object().into_iter().flatten();
    all.map(|(type_, condition)| {
        let mut condition = condition.clone();
        condition["type"] = type_.as_str().into();
        for member in ["reason", "message"] {
            if condition.get(member).is_none() {
                condition[member] = "".into();
            }
        }
        condition["lastTransitionTime"] = TIME.into();
        condition
    })
    .collect()
}

/// A list of conditions as snapshots show it.
pub(crate) fn condition_view(conditions: &Value) -> Value {
    let all = list(conditions).into_iter().map(|condition| {
        let mut shown = Map::new();
        for member in ["status", "reason", "message"] {
            if let Some(text) = condition[member].as_str().filter(|text| !text.is_empty()) {
                shown.insert(member.to_owned(), text.into());
            }
        }
        (text(&condition, "type").to_owned(), Value::Object(shown))
    });
    Value::Object(all.collect())
}

/// A recorded group without status and without the annotation that follows from its CSVs.
pub(crate) fn group(object: &Value) -> OperatorGroup {
    let mut group: OperatorGroup = typed(json!({
        "apiVersion": object["apiVersion"], "kind": "OperatorGroup", "metadata": metadata(object), "spec": object["spec"],
    }));
    if let Some(annotations) = &mut group.metadata.annotations {
        annotations.remove(keys::PROVIDED_APIS);
    }
    group
}

/// A CSV of a snapshot: its definition is derived from the input of the scenario, the rest is recorded.
///
/// # Errors
/// Why its definition cannot be derived.
pub(crate) fn csv(
    scenario: &Scenario,
    snapshot: &Snapshot,
    object: &Value,
) -> Result<ClusterServiceVersion, String> {
    let (namespace, name) = (text(object, "namespace"), text(object, "name"));
    let source = label(object, keys::COPIED_FROM).unwrap_or(namespace);
    let csvs = scenario.csvs(snapshot);
    let derived = csvs.get(source, name).ok_or("no step and no catalog has the CSV")?;
    let mut spec = derived["spec"].clone();
    let recorded = &object["spec"];
    let deployments: Vec<Value> =
        list(&spec["install"]["spec"]["deployments"]).iter().map(|it| it["name"].clone()).collect();
    if recorded["deployments"] != json!(deployments) || recorded["version"] != spec["version"] {
        return Err(format!("derived deployments {deployments:?} of version {}", spec["version"]));
    }
    for member in ["cleanup", "replaces"] {
        if !recorded[member].is_null() {
            spec[member] = recorded[member].clone();
        }
    }
    let status = &object["status"];
    let history = list(&status["history"]).into_iter().map(|entry| {
        let (state, message) = entry.as_str().unwrap_or_default().split_once(": ").unwrap_or_default();
        let (phase, reason) = state.split_once('/').unwrap_or_default();
        json!({ "phase": phase, "reason": reason, "message": message })
    });
    let mut requirements = list(&status["requirementStatus"]);
    for requirement in &mut requirements {
        if requirement.get("message").is_none() {
            requirement["message"] = "".into();
        }
    }
    let certificates = |member: &str| status.get(member).map(|_| TIME);
    Ok(typed(json!({
        "apiVersion": object["apiVersion"], "kind": "ClusterServiceVersion", "metadata": metadata(object), "spec": spec,
        "status": {
            "phase": text(status, "phase"), "reason": text(status, "reason"), "message": text(status, "message"),
            "conditions": history.collect::<Vec<_>>(), "requirementStatus": requirements,
            "certsLastUpdated": certificates("certsLastUpdated"), "certsRotateAt": certificates("certsRotateAt"),
        },
    })))
}

/// A CSV as snapshots show it.
pub(crate) fn csv_view(csv: &ClusterServiceVersion) -> Value {
    let value = serde_json::to_value(csv).unwrap();
    let mut annotations = value["metadata"]["annotations"].clone();
    if let Some(properties) = annotations.get_mut(PROPERTIES) {
        *properties = serde_json::from_str(properties.as_str().unwrap_or_default()).unwrap();
    }
    let (spec, status) = (&value["spec"], &value["status"]);
    let certificates = |member: &str| status.get(member).map(|_| "set");
    let deployments: Vec<Value> =
        list(&spec["install"]["spec"]["deployments"]).iter().map(|it| it["name"].clone()).collect();
    let history: Vec<Value> = list(&status["conditions"])
        .iter()
        .map(|it| format!("{}/{}: {}", text(it, "phase"), text(it, "reason"), text(it, "message")).into())
        .collect();
    json!({
        "apiVersion": value["apiVersion"], "kind": value["kind"], "name": value["metadata"]["name"],
        "namespace": value["metadata"]["namespace"], "labels": value["metadata"]["labels"], "annotations": annotations,
        "spec": {"cleanup": spec["cleanup"], "deployments": deployments, "replaces": spec["replaces"], "version": spec["version"]},
        "status": {
            "phase": status["phase"], "reason": status["reason"], "message": status["message"], "history": history,
            "requirementStatus": status["requirementStatus"], "certsLastUpdated": certificates("certsLastUpdated"),
            "certsRotateAt": certificates("certsRotateAt"),
        },
    })
}

/// A recorded condition object; its status belongs to the present generation.
pub(crate) fn operator_condition(object: &Value) -> OperatorCondition {
    let dated = |member: &str| {
        let mut all = list(&object["spec"][member]);
        for condition in &mut all {
            condition["lastTransitionTime"] = TIME.into();
        }
        all
    };
    let mut spec = object["spec"].clone();
    for member in ["conditions", "overrides"] {
        spec[member] = dated(member).into();
    }
    typed(json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata(object), "spec": spec,
    }))
}

/// A recorded subscription, as far as components depend on it.
pub(crate) fn subscription(object: &Value) -> Subscription {
    let status = &object["status"];
    typed(json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata(object), "spec": object["spec"],
        "status": {"installedCSV": text(status, "installedCSV"), "installPlanRef": {"name": status["installPlanRef"]}, "lastUpdated": TIME},
    }))
}

/// A recorded object with what the reference reads of it: metadata, owners, conditions. Conditions that snapshots leave out are those of
/// a healthy object.
pub(crate) fn object(recorded: &Value) -> Object {
    let kind = text(recorded, "kind");
    let mut metadata = metadata(recorded);
    metadata["ownerReferences"] = recorded["owners"].clone();
    let condition = |type_: &str, status: &str, reason: &str| json!({ "type": type_, "status": status, "reason": reason });
    let status = match kind {
        "ClusterServiceVersion" => recorded["status"].clone(),
        "CustomResourceDefinition" => json!({ "conditions": [
            condition("Established", "True", "InitialNamesAccepted"), condition("NamesAccepted", "True", "NoConflicts"),
        ] }),
        "Deployment" => match recorded["available"].as_str() {
            Some(status) => {
                json!({ "conditions": [condition("Available", status, "MinimumReplicasAvailable")] })
            }
            None => json!({}),
        },
        _ => json!({ "conditions": conditions(&recorded["status"]["conditions"]) }),
    };
    let mut value =
        json!({ "apiVersion": recorded["apiVersion"], "kind": kind, "metadata": metadata, "status": status });
    for member in ["rules", "roleRef", "subjects"] {
        if let Some(body) = recorded.get(member) {
            value[member] = body.clone();
        }
    }
    Object::from_value(value).unwrap()
}

/// An object of RBAC as snapshots show it.
pub(crate) fn view(object: &Object) -> Value {
    let mut shown = object.to_value();
    let metadata = shown["metadata"].take();
    for member in ["name", "namespace", "labels"] {
        if !metadata[member].is_null() {
            shown[member] = metadata[member].clone();
        }
    }
    if let Some(owners) = owner_view(&metadata) {
        shown["owners"] = owners;
    }
    shown.as_object_mut().unwrap().remove("metadata");
    shown
}

/// Owner references as snapshots show them.
pub(crate) fn owner_view(metadata: &Value) -> Option<Value> {
    let owners: Vec<Value> = list(&metadata["ownerReferences"])
        .into_iter()
        .map(|mut owner| {
            owner.as_object_mut().unwrap().remove("uid");
            owner
        })
        .collect();
    (!owners.is_empty()).then(|| owners.into())
}

/// The value without null, and without empty lists and maps.
pub(crate) fn pruned(value: impl Serialize) -> Value {
    let value = serde_json::to_value(value).unwrap();
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(key, value)| (key, pruned(value)));
            members.filter(|(_, value)| !is_empty(value)).collect()
        }
        Value::Array(items) => items.into_iter().map(pruned).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Objects by namespace and name.
pub(crate) fn keyed(objects: impl IntoIterator<Item = Value>) -> BTreeMap<String, Value> {
    objects
        .into_iter()
        .map(|object| {
            (
                format!("{} {}/{}", text(&object, "kind"), text(&object, "namespace"), text(&object, "name")),
                object,
            )
        })
        .collect()
}
