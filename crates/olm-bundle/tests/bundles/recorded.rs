//! The reference and the acceptance lab's bundles, as recorded: every object that it created is rendered here under
//! the same name, and holds nothing that the recorded object contradicts; every error has the recorded words.
//!
//! The records are not part of the repository: without them the test is skipped.
#![expect(clippy::unwrap_used, reason = "a test, also in its helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use olm_bundle::{RegistryV1, RenderOptions, render};
use olm_yaml::{Documents, Limits};
use serde_json::Value;

use crate::lab;

fn read(folder: &Path, id: &str) -> Value {
    let bytes = std::fs::read(folder.join(format!("{id}.yaml"))).unwrap();
    let json = Documents::from_bytes(&bytes, Limits::default()).next().unwrap().unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// The last `ce` step's configuration, the recorded extension, and the recorded objects that a bundle brings.
fn final_state(record: &Value) -> (Option<Value>, Value, Vec<Value>) {
    let steps = record["input"]["steps"].as_array().unwrap();
    let inline =
        steps.iter().rev().find_map(|step| step.get("ce")?.get("inline")).filter(|inline| !inline.is_null());
    let outcome = record["outcome"].as_object().unwrap();
    let outcome = outcome.iter().find(|(name, _)| name.contains("experimental")).unwrap().1;
    let state = &outcome["snapshots"]["final"];
    let extension = state["extensions"].as_object().unwrap().values().next().unwrap().clone();
    let own = ["ClusterObjectSet", "Secret", "ReplicaSet", "Pod"];
    let objects = state["objects"].as_array().cloned().unwrap_or_default();
    let objects =
        objects.into_iter().filter(|object| !own.contains(&object["kind"].as_str().unwrap())).collect();
    (inline.cloned(), extension, objects)
}

fn bundle(record: &Value, version: &str) -> (lab::Scenario, Result<RegistryV1, olm_bundle::ParseError>) {
    let scenario = lab::Scenario { id: record["id"].as_str().unwrap().to_owned() };
    let package = &record["input"]["catalogs"]["main"]["packages"]["demo"];
    let mut spec = package.get("content").cloned().unwrap_or_else(|| serde_json::json!({}));
    lab::merge(&mut spec, package["bundles"].get(version).unwrap_or(&serde_json::json!({})));
    let files = scenario.files(version, &scenario.fill(&spec));
    (scenario, RegistryV1::from_files(files))
}

#[test]
#[rustfmt::skip]
fn recorded_errors_have_the_same_words() {
    let Some(folder) = lab::shared("reference-behaviour/scenarios") else { return };
    for id in [
        "b-own-only", "b-badcsv", "b-noannot", "b-subdir", "b-unsupkind", "b-dupdeploy", "b-crdmissing",
        "b-apisvc", "b-whnodeploy", "cfg-single-none", "cfg-own-other", "cfg-unknown",
    ] {
        let record = read(&folder, id);
        let (inline, extension, _) = final_state(&record);
        let (scenario, parsed) = bundle(&record, "1.0.0");
        let mut options = RenderOptions::new(scenario.namespace());
        options.config = inline.map(|inline| scenario.fill(&inline));
        let progressing = &extension["conditions"]["Progressing"];
        let recorded = progressing["message"].as_str().unwrap();
        let name = format!("{}.v1.0.0", scenario.package());
        let start = format!("error for resolved bundle {name:?} with version \"1.0.0\": ");
        let (text, reason) = match parsed {
            Err(error) => (error.to_string(), None),
            Ok(bundle) => {
                let error = render(&bundle, &options).unwrap_err();
                (error.to_string(), error.terminal_reason())
            }
        };
        assert_eq!(text, recorded.strip_prefix(&start).unwrap(), "{id}");
        assert_eq!(reason.unwrap_or("Retrying"), progressing["reason"].as_str().unwrap(), "{id}");
    }
}

#[test]
#[rustfmt::skip]
fn objects_are_the_recorded_ones() {
    let Some(folder) = lab::shared("reference-behaviour/scenarios") else { return };
    let mut compared = 0;
    for id in [
        "b-allmodes", "b-env", "b-props", "cfg-allown-own", "cfg-dep-env", "inst-kinds", "inst-perms",
        "inst-exact", "inst-latest", "up-removed-objs", "up-replaces", "img-digest", "heal-objects",
        "crd-add-opt",
    ] {
        let record = read(&folder, id);
        let (inline, extension, recorded) = final_state(&record);
        let version = extension["install"]["bundle"]["version"].as_str().unwrap().to_owned();
        let (scenario, parsed) = bundle(&record, &version);
        let mut options = RenderOptions::new(scenario.namespace());
        options.config = inline.map(|inline| scenario.fill(&inline));
        let rendered = render(&parsed.unwrap(), &options).unwrap();

        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = |object: &Value| ["kind", "namespace", "name"].map(|member| text(&object[member]));
        let by_key: BTreeMap<_, _> = recorded.iter().map(|object| (key(object), object)).collect();
        let mut names = BTreeSet::new();
        for object in rendered.iter().filter(|object| object.kind() != "Secret") {
            let namespace = object.namespace().unwrap_or_default();
            let key = [object.kind(), namespace, object.name()].map(str::to_owned);
            let recorded = by_key.get(&key).unwrap_or_else(|| panic!("{id}: {key:?} is not recorded"));
            for (member, value) in &object.0 {
                let holds = match member.as_str() {
                    // records keep metadata flat and of CRDs only a hash
                    "metadata" => ["labels", "annotations"].iter().all(|part| {
                        value.get(part).is_none_or(|part_value| within(part_value, &recorded[*part]))
                    }),
                    "spec" if object.kind() == "CustomResourceDefinition" => true,
                    member => within(value, &recorded[member]),
                };
                assert!(holds, "{id}: {key:?} {member}: rendered {value}, recorded {recorded}");
            }
            if object.kind() == "Deployment" {
                let annotations =
                    |value: &Value| value["spec"]["template"]["metadata"]["annotations"].clone();
                assert_eq!(annotations(&object.to_value()), annotations(recorded), "{id}: pod annotations");
            }
            names.insert(key);
            compared += 1;
        }
        assert_eq!(names, by_key.keys().cloned().collect(), "{id}: no object is missing");
    }
    assert!(compared > 100, "{compared} objects were compared");
}

/// Whether everything in `part` is in `whole`, which has the API server's defaults as well.
fn within(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(name, member)| whole.get(name).is_some_and(|known| within(member, known)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| within(part, whole))
        }
        (part, whole) => part == whole,
    }
}
