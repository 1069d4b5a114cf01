//! Recorded responses of the reference's schema, compared with those of this schema: every cause, word for word.
//!
//! The records are in the shared material; without it the test prints that it was skipped.

use anyhow::{Context, Result};
use olm_integration::offer;
use olm_yaml::{Limits, yaml_to_json};
use serde_json::{Value, json};

use crate::cases::report;
use crate::catalog::{base, catalogs};
use crate::cluster;

/// The recorded response comes from the mutating webhook (it writes an empty spec); there is no webhook here (decision 14) and the
/// schema answers `spec: Required value`, which `catalog_schema_validates_other_fields` asserts.
const ONLY_WITH_WEBHOOK: &str = "no spec";

#[tokio::test]
async fn catalog_schema_answers_as_recorded() -> Result<()> {
    let Some(folder) = olm_kit::shared_material() else {
        println!("SKIPPED: the recorded behaviour (../shared or OLM_SHARED) is absent");
        return Ok(());
    };
    let path = folder.join("reference-behaviour/scenarios/api-cc-set.yaml");
    let yaml = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let mut bytes = Vec::new();
    yaml_to_json(&yaml, &mut bytes, &Limits::default())?;
    let record: Value = serde_json::from_slice(&bytes)?;
    let cases = record.pointer("/input/steps/0/api-cases").and_then(Value::as_array).context("no cases")?;
    let answers = record
        .pointer("/outcome/standard and experimental/steps/0/result")
        .and_then(Value::as_array)
        .context("no answers")?;
    assert_eq!(cases.len(), answers.len());

    let (_, client) = cluster().await?;
    let api = catalogs(&client);
    let mut wrong: Vec<String> = Vec::new();
    for (case, answer) in cases.iter().zip(answers) {
        let name = case["case"].as_str().context("a case without name")?;
        assert_eq!(case["case"], answer["case"]);
        if name == ONLY_WITH_WEBHOOK {
            continue;
        }
        let field_and_message = |cause: &Value| {
            let text = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
            (text("field"), text("message"))
        };
        let skipped = |(field, message): &(String, String)| {
            field != "<nil>" && !message.contains("some validation rules were not checked")
        };
        let causes = answer["result"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let want: Vec<_> = causes.iter().map(field_and_message).filter(skipped).collect();
        let got = offer(&api, object_from_case(case)).await?.err().unwrap_or_default();
        if !(want.len() == got.len() && want.iter().zip(&got).all(|(want, got)| same_cause(want, got))) {
            wrong.push(format!("{name}: recorded {want:?}, but {got:?}"));
        }
    }
    report(cases.len() - 1, &wrong)
}

/// The object of a recorded case: arguments first, then the patch.
/// The same field and message; older apiservers (1.31) name the type where others print the value.
fn same_cause(want: &(String, String), got: &(String, String)) -> bool {
    let message = got.1.strip_prefix("Invalid value: \"string\": ");
    want.0 == got.0 && (want.1 == got.1 || message.is_some_and(|message| want.1.ends_with(message)))
}

fn object_from_case(case: &Value) -> Value {
    let mut object = base();
    for (argument, place) in [
        ("ref", "/spec/source/image/ref"),
        ("poll", "/spec/source/image/pollIntervalMinutes"),
        ("availability", "/spec/availabilityMode"),
        ("priority", "/spec/priority"),
    ] {
        let Some(value) = case["args"].get(argument) else { continue };
        let value = if value == "${REPEAT:a:1001}" { json!("a".repeat(1001)) } else { value.clone() };
        object = olm_integration::patched(object, &[(place, value)]);
    }
    if let Some(patch) = case.get("patch") {
        merge(&mut object, patch);
    }
    object
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    for (key, value) in members {
        if value.is_null() {
            if let Some(object) = target.as_object_mut() {
                object.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}
