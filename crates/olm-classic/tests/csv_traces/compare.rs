//! The outcome of the replay against the objects of the recorded snapshots.

use std::collections::BTreeSet;

use olm_classic::csv::strategy::serving;
use olm_core::Object;
use serde_json::{Value, json};

use crate::scenario::Scenario;
use crate::world::{World, key};

/// Events of the reference's loops (classic-apis §6.3): it goes to and fro where the machine here stays in the failure.
const LOOPS: [(&str, &str); 2] = [("cv-whbad-olm", "NeedsCertRotation"), ("ff-on", "NeedsCertRotation")];
/// Events of other parts of OLM.
const FOREIGN: [&str; 1] = ["DisabledCopiedCSVs"];

/// Phase, reason, message, history and requirements of all CSVs that are no copies.
pub(crate) fn statuses(scenario: &Scenario, _: &World, wrong: &mut Vec<String>) -> usize {
    let mut count = 0;
    for (snapshot, world) in &scenario.snapshots {
        for csv in scenario.objects(snapshot, "ClusterServiceVersion") {
            if csv["labels"].get("olm.copiedFrom").is_some() {
                continue;
            }
            count += 1;
            let (namespace, name) = (csv["namespace"].as_str().unwrap(), csv["name"].as_str().unwrap());
            let status = world.status(namespace, name).unwrap_or_default();
            let mut shown =
                json!({"phase": status["phase"], "reason": status["reason"], "message": status["message"]});
            if let Some(requirements) = status["requirementStatus"].as_array() {
                shown["requirementStatus"] = requirements.iter().map(without_satisfied).collect();
            }
            let mut recorded = json!({});
            for member in ["phase", "reason", "message", "requirementStatus"] {
                if let Some(value) = csv["status"].get(member) {
                    recorded[member] = value.clone();
                }
            }
            for requirement in recorded["requirementStatus"].as_array_mut().into_iter().flatten() {
                if requirement["dependents"] == json!([]) {
                    requirement.as_object_mut().unwrap().remove("dependents");
                }
            }
            if recorded.get("requirementStatus").is_some_and(Value::is_null) {
                recorded.as_object_mut().unwrap().remove("requirementStatus");
            }
            if shown != recorded {
                wrong.push(format!(
                    "{} {snapshot} {name}\n  recorded {recorded}\n  replayed {shown}",
                    scenario.id
                ));
            }
        }
    }
    count
}

/// Satisfied rules are in the records or not, by chance.
fn without_satisfied(requirement: &Value) -> Value {
    let mut requirement = requirement.clone();
    let members = requirement.as_object_mut().unwrap();
    if let Some(dependents) = members.get_mut("dependents").and_then(Value::as_array_mut) {
        dependents.retain(|dependent| dependent["status"] != "Satisfied");
        if dependents.is_empty() {
            members.remove("dependents");
        }
    }
    requirement
}

/// Each recorded event of a CSV was emitted.
pub(crate) fn events(scenario: &Scenario, world: &World, wrong: &mut Vec<String>) -> usize {
    let mut count = 0;
    for event in scenario.outcome["snapshots"]["final"]["events"].as_array().into_iter().flatten() {
        let Some(csv) = event["on"].as_str().unwrap().strip_prefix("ClusterServiceVersion/") else {
            continue;
        };
        let reason = event["reason"].as_str().unwrap();
        if FOREIGN.contains(&reason) || LOOPS.contains(&(scenario.id.as_str(), reason)) {
            continue;
        }
        count += 1;
        let emitted = (csv.to_owned(), reason.to_owned(), event["message"].as_str().unwrap().to_owned());
        if !world.events.contains(&emitted) {
            wrong.push(format!("{}: {emitted:?}", scenario.id));
        }
    }
    count
}

/// The Deployments of CSVs: name, labels with the hash, annotations, owners, and a specification whose members the recorded one has.
pub(crate) fn deployments(scenario: &Scenario, _: &World, wrong: &mut Vec<String>) -> usize {
    let mut count = 0;
    for (snapshot, world) in &scenario.snapshots {
        let recorded = scenario.objects(snapshot, "Deployment");
        let recorded: Vec<_> = recorded.iter().filter(|it| it["labels"].get("olm.owner").is_some()).collect();
        let names = |it: &Value| {
            (it["namespace"].as_str().unwrap().to_owned(), it["name"].as_str().unwrap().to_owned())
        };
        let there: BTreeSet<_> = recorded.iter().map(|it| names(it)).collect();
        let here: BTreeSet<_> =
            world.live.iter().map(|it| (it.namespace().unwrap().to_owned(), it.name().to_owned())).collect();
        if there != here && scenario.outcome["snapshots"].get(snapshot).is_some() {
            wrong.push(format!("{} {snapshot}: recorded {there:?}, replayed {here:?}", scenario.id));
        }
        for recorded in recorded {
            let Some(live) = world
                .live
                .iter()
                .find(|it| names(recorded) == (it.namespace().unwrap().to_owned(), it.name().to_owned()))
            else {
                continue;
            };
            count += 1;
            compare_object(&format!("{} {snapshot}", scenario.id), recorded, live, wrong);
        }
    }
    count
}

/// Labels of other parts of OLM: of the components of an operator.
fn own_labels(recorded: &Value) -> Value {
    let labels = recorded["labels"].as_object().into_iter().flatten();
    labels
        .filter(|(key, _)| !key.starts_with("operators.coreos.com/"))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn compare_object(place: &str, recorded: &Value, made: &Object, wrong: &mut Vec<String>) {
    let place = format!("{place} {} {}", made.kind(), recorded["name"]);
    let mut made = made.to_value();
    made.as_object_mut().unwrap().remove("status");
    let is_hashed = recorded["labels"].get("olm.deployment-spec-hash").is_some_and(|hash| hash == "<hash>");
    if is_hashed {
        made["metadata"]["labels"]["olm.deployment-spec-hash"] = "<hash>".into();
    }
    let labels = own_labels(recorded);
    if made["metadata"]["labels"] != labels {
        wrong.push(format!("{place} labels\n  recorded {labels}\n  made     {}", made["metadata"]["labels"]));
    }
    let owners: Vec<_> = made["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|owner| {
            let mut owner = owner.clone();
            owner.as_object_mut().unwrap().remove("uid");
            owner
        })
        .collect();
    if json!(owners) != *recorded.get("owners").unwrap_or(&json!([])) {
        wrong.push(format!("{place} owners: recorded {}, made {}", recorded["owners"], json!(owners)));
    }
    for member in ["spec", "rules", "subjects", "roleRef", "type", "webhooks"] {
        difference(&format!("{place} {member}"), &recorded[member], &made[member], wrong);
    }
    let annotations = |value: &Value| value.pointer("/spec/template/metadata/annotations").cloned();
    if annotations(recorded) != annotations(&made) {
        wrong.push(format!("{place}: annotations of the pods"));
    }
}

/// What is made has to be in the record, where the apiserver has added defaults; lists have the same length.
fn difference(place: &str, recorded: &Value, made: &Value, wrong: &mut Vec<String>) {
    match (recorded, made) {
        (Value::Object(recorded), Value::Object(made)) => {
            for (key, value) in made {
                difference(
                    &format!("{place}.{key}"),
                    recorded.get(key).unwrap_or(&Value::Null),
                    value,
                    wrong,
                );
            }
        }
        (Value::Array(recorded), Value::Array(made)) if recorded.len() == made.len() => {
            for (index, (recorded, made)) in recorded.iter().zip(made).enumerate() {
                difference(&format!("{place}[{index}]"), recorded, made, wrong);
            }
        }
        (Value::String(recorded), Value::Number(made)) if *recorded == made.to_string() => {}
        // the apiserver drops empty maps
        (Value::Null, Value::Object(made)) if made.is_empty() => {}
        (recorded, made) if recorded == made => {}
        _ => wrong.push(format!("{place}: recorded {recorded}, made {made}")),
    }
}

/// The objects around Deployments with webhooks, and the webhooks themselves.
pub(crate) fn serving(scenario: &Scenario, _: &World, wrong: &mut Vec<String>) -> usize {
    let mut count = 0;
    for (snapshot, world) in &scenario.snapshots {
        for csv in
            world.csvs.iter().filter(|csv| csv.status.as_ref().is_some_and(|it| it.phase == "Succeeded"))
        {
            let deployments = serving::deployments(csv);
            let mut made: Vec<_> =
                deployments.iter().flat_map(|it| serving::objects(csv, it, "<hash>")).collect();
            let selector = json!({"matchLabels": {"olm.operatorgroup.uid/<uid>": ""}});
            made.extend(csv.spec.webhook_definitions.iter().filter_map(|webhook| {
                let mut made = serving::webhook_configuration(csv, webhook, &selector, "(set)")?;
                let generated = made.metadata_mut().remove("generateName")?;
                made.metadata_mut()
                    .insert("name".to_owned(), format!("{}<rand>", generated.as_str()?).into());
                Some(made)
            }));
            for made in made.iter().filter(|it| it.namespace() != Some("kube-system")) {
                let recorded = scenario.objects(snapshot, made.kind());
                let same = recorded.iter().find(|it| {
                    it["name"] == made.name()
                        && it.get("namespace").and_then(Value::as_str) == made.namespace()
                });
                let Some(recorded) = same else {
                    wrong.push(format!(
                        "{} {snapshot}: {} {} is not recorded",
                        scenario.id,
                        made.kind(),
                        made.name()
                    ));
                    continue;
                };
                count += 1;
                compare_object(&format!("{} {snapshot}", scenario.id), recorded, made, wrong);
            }
            for webhook in &csv.spec.webhook_definitions {
                let Some(conversion) = serving::conversion(csv, webhook, "(set)") else { continue };
                for recorded in scenario.objects(snapshot, "CustomResourceDefinition") {
                    count += 1;
                    difference(
                        &format!("{} {snapshot} {:?}", scenario.id, key(csv)),
                        &recorded["conversion"],
                        &conversion,
                        wrong,
                    );
                }
            }
        }
    }
    count
}
