//! The content of the world in the form of the records.

use std::collections::BTreeMap;

use olm_api::classic::{InstallPlan, Subscription};
use olm_classic::install_plan::{StepManifest, StepStatus, unpacked_name};
use olm_core::Object;
use serde_json::{Map, Value, json};

use crate::world::World;

/// Conditions whose messages are in our own words, or contain a set of clauses of which several are right.
const OWN_WORDS: [&str; 4] =
    ["ResolutionFailed", "BundleUnpacking", "BundleUnpackFailed", "InstallPlanFailed"];

/// Kinds of objects that only plans make.
#[rustfmt::skip]
const MADE: [&str; 11] = [
    "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Secret",
    "Service", "PodDisruptionBudget", "PriorityClass", "CustomResourceDefinition",
];

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) plans: usize,
    pub(crate) steps: usize,
    pub(crate) subscriptions: usize,
    pub(crate) objects: usize,
    pub(crate) messages: usize,
    pub(crate) equal_messages: usize,
}

fn plan_name(name: &str) -> String {
    match name.strip_prefix("install-") {
        Some(number) => format!("install-<{number}>"),
        None => name.to_owned(),
    }
}

/// Paths at which two values differ.
pub(crate) fn differences(path: &str, ours: &Value, recorded: &Value, found: &mut Vec<String>) {
    match (ours, recorded) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                differences(&format!("{path}/{key}"), &of(a), &of(b), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}/{index}"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: {a} instead of {b}")),
    }
}

/// Labels of the roll-up in the Operator object are not ours, nor are marks of the lab.
fn own_labels(labels: &Value) -> Value {
    let is_own = |key: &str| !key.starts_with("operators.coreos.com/") && !key.starts_with("lab.test/");
    let own: Map<String, Value> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| is_own(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Value::Object(own)
}

fn conditions<'a>(list: impl Iterator<Item = (&'a str, &'a str, &'a str, &'a str)>) -> Value {
    let mut map = Map::new();
    for (type_, status, reason, message) in list {
        let mut condition = json!({"status": status});
        if !reason.is_empty() {
            condition["reason"] = reason.into();
        }
        if !message.is_empty() {
            condition["message"] = message.into();
        }
        map.insert(type_.to_owned(), condition);
    }
    Value::Object(map)
}

fn subscription(it: &Subscription) -> Value {
    let mut view = json!({
        "labels": own_labels(&json!(it.metadata.labels)), "annotations": it.metadata.annotations.clone().unwrap_or_default(),
        "spec": it.spec,
    });
    if let Some(plan) = view["annotations"].get("olm.generated-by").and_then(Value::as_str) {
        view["annotations"]["olm.generated-by"] = plan_name(plan).into();
    }
    let Some(status) = &it.status else { return view };
    let mut shown = Map::new();
    let mut set = |key: &str, text: &str| {
        if !text.is_empty() {
            shown.insert(key.to_owned(), text.into());
        }
    };
    set("currentCSV", &status.current_csv);
    set("installedCSV", &status.installed_csv);
    set("state", &status.state);
    if let Some(reference) = &status.install_plan_ref {
        set("installPlanRef", &plan_name(reference.name.as_deref().unwrap()));
    }
    if let Some(reference) = &status.install_plan {
        set("installplan", &plan_name(&reference.name));
    }
    if let Some(generation) = status.install_plan_generation {
        shown.insert("installPlanGeneration".to_owned(), generation.into());
    }
    let health = status.catalog_health.iter().map(|it| {
        let of = &it.catalog_source_ref;
        let word = if it.healthy { "healthy" } else { "unhealthy" };
        format!("{}/{} {word}", of.namespace.as_deref().unwrap(), of.name.as_deref().unwrap())
    });
    shown.insert("catalogHealth".to_owned(), health.collect());
    let list = status.conditions.iter();
    let list =
        list.map(|it| (it.type_.as_str(), it.status.as_str(), it.reason.as_str(), it.message.as_str()));
    shown.insert("conditions".to_owned(), conditions(list));
    view["status"] = Value::Object(shown);
    view
}

/// Compares words of conditions where they have to be the same, and counts them where they may be ours.
fn take_messages(ours: &mut Value, recorded: &mut Value, counts: &mut Counts) {
    for type_ in OWN_WORDS {
        let take = |view: &mut Value| {
            view["status"]["conditions"].get_mut(type_)?.as_object_mut()?.remove("message")
        };
        if let (Some(a), Some(b)) = (take(ours), take(recorded)) {
            counts.messages += 1;
            counts.equal_messages += usize::from(a == b);
        }
    }
}

fn rank(kind: &str) -> u8 {
    match kind {
        "ClusterServiceVersion" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    }
}

fn manifest(index: usize, step: &olm_api::classic::install_plan::Step) -> Value {
    match StepManifest::read(index, step).unwrap() {
        StepManifest::Reference(reference) => {
            let mut view = json!({"reference": reference});
            view["reference"]["properties"] = serde_json::from_str(&reference.properties).unwrap();
            view
        }
        StepManifest::Object(object) => {
            let mut view = json!({"name": object.name()});
            for (member, map) in [("labels", object.labels()), ("annotations", object.annotations())] {
                if !map.is_empty() {
                    view[member] = json!(map);
                }
            }
            if object.kind() == "ClusterServiceVersion" {
                view["replaces"] = object.0["spec"].get("replaces").cloned().unwrap_or(Value::Null);
            }
            view
        }
    }
}

fn plan(it: &InstallPlan) -> Value {
    let mut names = it.spec.cluster_service_version_names.clone();
    names.sort_unstable();
    let mut owners: Vec<&str> =
        it.metadata.owner_references.iter().flatten().map(|it| it.name.as_str()).collect();
    owners.sort_unstable();
    let mut spec = json!({"approval": it.spec.approval, "approved": it.spec.approved, "clusterServiceVersionNames": names});
    if let Some(generation) = it.spec.generation {
        spec["generation"] = generation.into();
    }
    let mut view = json!({"spec": spec, "owners": owners});
    let Some(status) = &it.status else { return view };
    let list = status.conditions.iter();
    let list = list.map(|it| (it.type_.as_str(), it.status.as_str(), it.reason.as_str(), ""));
    let mut steps: Vec<(u8, &str, Value)> = Vec::new();
    for (index, step) in status.plan.iter().enumerate() {
        let resource = &step.resource;
        let mut shown = json!({
            "kind": resource.kind, "name": resource.name, "version": resource.version,
            "sourceName": resource.source_name, "sourceNamespace": resource.source_namespace,
        });
        if !resource.group.is_empty() {
            shown["group"] = resource.group.as_str().into();
        }
        let status = match StepStatus::parse(&step.status) {
            StepStatus::Created | StepStatus::Present => "Created or Present",
            other => other.as_str(),
        };
        let value = json!({"resolving": step.resolving, "status": status, "resource": shown, "manifest": manifest(index, step)});
        steps.push((rank(&resource.kind), &step.resolving, value));
    }
    steps.sort_by_key(|(rank, resolving, _)| (*rank, *resolving));
    let steps: Vec<Value> = steps.into_iter().map(|(_, _, value)| value).collect();
    let lookups: Vec<Value> = status
        .bundle_lookups
        .iter()
        .map(|it| {
            json!({
                "path": it.path, "identifier": it.identifier, "replaces": it.replaces, "conditions": {},
                "properties": serde_json::from_str::<Value>(&it.properties).unwrap(),
            })
        })
        .collect();
    view["status"] = json!({
        "phase": status.phase, "catalogSources": status.catalog_sources, "conditions": conditions(list), "plan": steps,
        "bundleLookups": lookups,
    });
    view
}

/// A recorded plan in the same form.
fn recorded_plan(it: &Value, unpacked: &BTreeMap<String, String>) -> Value {
    let owners = it["owners"].as_array().into_iter().flatten().map(|owner| owner["name"].clone());
    let mut owners: Vec<Value> = owners.collect();
    owners.sort_by_key(ToString::to_string);
    let mut view = json!({"spec": it["spec"], "owners": owners});
    let status = &it["status"];
    if status.get("phase").is_none() {
        return view;
    }
    let mut found = status["conditions"].clone();
    for (_, condition) in found.as_object_mut().into_iter().flatten() {
        condition.as_object_mut().unwrap().remove("message");
    }
    let mut steps = status["plan"].clone();
    for step in steps.as_array_mut().into_iter().flatten() {
        let manifest = step["manifest"].as_object_mut().unwrap();
        manifest.remove("kind");
        manifest.remove("body");
        let name = manifest.get_mut("reference").and_then(|it| it.get_mut("name"));
        if let Some(name) = name {
            *name = unpacked[name.as_str().unwrap()].as_str().into();
        }
    }
    let mut lookups = status.get("bundleLookups").cloned().unwrap_or_else(|| json!([]));
    for lookup in lookups.as_array_mut().into_iter().flatten() {
        lookup.as_object_mut().unwrap().remove("catalogSourceRef");
    }
    view["status"] = json!({
        "phase": status["phase"], "catalogSources": status["catalogSources"], "conditions": found, "plan": steps, "bundleLookups": lookups,
    });
    view
}

fn made(object: &Object) -> Value {
    let mut view = json!({"labels": object.labels(), "annotations": object.annotations()});
    let owners = object.metadata().and_then(|it| it.get("ownerReferences")).and_then(Value::as_array);
    let mut owners: Vec<Value> = owners.cloned().unwrap_or_default();
    for owner in &mut owners {
        owner.as_object_mut().unwrap().remove("uid");
    }
    owners.sort_by_key(|it| it["name"].to_string());
    view["owners"] = owners.into();
    for member in ["rules", "subjects", "roleRef"] {
        if let Some(value) = object.0.get(member) {
            view[member] = value.clone();
        }
    }
    if object.kind() == "CustomResourceDefinition" {
        let versions = object.0["spec"]["versions"].as_array().unwrap().iter();
        view["versions"] = versions.map(|it| json!([it["name"], it["served"], it["storage"]])).collect();
    }
    view
}

/// Compares plans, Subscriptions and the objects that plans made with a snapshot.
pub(crate) fn snapshot(world: &World<'_>, recorded: &Value, counts: &mut Counts) -> Vec<String> {
    let mut found = Vec::new();
    let objects: Vec<&Value> = recorded["objects"].as_array().into_iter().flatten().collect();
    let of = |kind: &'static str| objects.iter().copied().filter(move |it| it["kind"] == kind);
    let mut plans: BTreeMap<String, Value> = BTreeMap::new();
    let unpacked = unpacked_names(world);
    for it in of("InstallPlan") {
        plans.insert(it["name"].as_str().unwrap().to_owned(), recorded_plan(it, &unpacked));
    }
    for it in &world.plans {
        let name = plan_name(it.metadata.name.as_deref().unwrap());
        let ours = plan(it);
        counts.plans += 1;
        counts.steps += ours["status"]["plan"].as_array().map_or(0, Vec::len);
        match plans.remove(&name) {
            Some(recorded) => differences(&format!("InstallPlan/{name}"), &ours, &recorded, &mut found),
            None => found.push(format!("InstallPlan/{name}: is not recorded")),
        }
    }
    found.extend(plans.keys().map(|name| format!("InstallPlan/{name}: is missing")));
    let mut subscriptions: BTreeMap<&str, &Value> =
        of("Subscription").map(|it| (it["name"].as_str().unwrap(), it)).collect();
    for it in &world.subscriptions {
        let name = it.metadata.name.as_deref().unwrap();
        let Some(recorded) = subscriptions.remove(name) else {
            found.push(format!("Subscription/{name}: is not recorded"));
            continue;
        };
        counts.subscriptions += 1;
        let mut ours = subscription(it);
        let mut recorded = json!({
            "labels": own_labels(&recorded["labels"]), "spec": recorded["spec"], "status": recorded["status"],
            "annotations": recorded.get("annotations").cloned().unwrap_or_else(|| json!({})),
        });
        take_messages(&mut ours, &mut recorded, counts);
        differences(&format!("Subscription/{name}"), &ours, &recorded, &mut found);
    }
    found.extend(subscriptions.keys().map(|name| format!("Subscription/{name}: is missing")));
    for object in world.objects.iter().filter(|it| MADE.contains(&it.kind())) {
        let same = |it: &&Value| it["kind"] == object.kind() && it["name"] == object.name();
        // what belongs to a version that is gone was collected
        let Some(recorded) = objects.iter().copied().find(same) else { continue };
        let mut view = json!({
            "labels": own_labels(&recorded["labels"]), "annotations": recorded.get("annotations").cloned().unwrap_or_else(|| json!({})),
            "owners": recorded.get("owners").cloned().unwrap_or_else(|| json!([])),
        });
        let mut ours = made(object);
        // marks of versions that are gone stay until the next update; the records leave them out
        let is_current = |mark: &Value| {
            world
                .csvs
                .iter()
                .any(|csv| mark.as_str().unwrap().split('/').next_back() == csv.metadata.name.as_deref())
        };
        let marks = ours["annotations"].as_object_mut().unwrap();
        marks.retain(|key, value| {
            !key.starts_with("operatorframework.io/installed-alongside-") || is_current(value)
        });
        for member in ["rules", "subjects", "roleRef", "versions"] {
            if let Some(value) = recorded.get(member) {
                view[member] = value.clone();
            }
        }
        ours["labels"] = own_labels(&ours["labels"]);
        counts.objects += 1;
        differences(&format!("{}/{}", object.kind(), object.name()), &ours, &view, &mut found);
    }
    found
}

/// What the records call the ConfigMaps of unpacked bundles.
fn unpacked_names(world: &World<'_>) -> BTreeMap<String, String> {
    let bundles = world.images().into_iter();
    bundles.map(|(name, image)| (format!("<unpack:{name}>"), unpacked_name(&image))).collect()
}
