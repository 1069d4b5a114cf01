//! The rules for a revision's content, checked before anything is applied.
//!
//! Rule: revisions §7.4. A phase name that starts with a digit is allowed, as in the API (§17 row 27).

use std::collections::BTreeMap;

use olm_core::{Object, ObjectKey};
use serde_json::Value;

use crate::phase::Phase;

/// Checks all phases; the text is that of the condition, without its prefix. `None` when there is nothing to complain
/// about.
pub fn validate(revision: &str, number: i64, phases: &[Phase]) -> Option<String> {
    let mut seen: BTreeMap<ObjectKey, Vec<&str>> = BTreeMap::new();
    for phase in phases {
        for object in &phase.objects {
            seen.entry(object.key()).or_default().push(&phase.name);
        }
    }
    let mut findings = vec![];
    for phase in phases {
        let objects: Vec<String> = phase
            .objects
            .iter()
            .filter_map(|object| {
                let mut messages = check(object);
                if let Some(places) = seen.get(&object.key()).filter(|places| places.len() > 1) {
                    messages.push(format!("duplicate object found in phases: {}", places.join(", ")));
                }
                (!messages.is_empty())
                    .then(|| format!("object {}: {}", object.key().objref(), messages.join(", ")))
            })
            .collect();
        if !objects.is_empty() {
            findings.push(format!("phase {:?}: {}", phase.name, objects.join(", ")));
        }
    }
    (!findings.is_empty()).then(|| format!("revision {revision:?} ({number}): {}", findings.join(", ")))
}

fn check(object: &Object) -> Vec<String> {
    let mut messages = vec![];
    for (field, value) in [("apiVersion", object.api_version()), ("kind", object.kind())] {
        if value.is_empty() {
            messages.push(format!("{field}: Required value: must not be empty"));
        }
    }
    let metadata = object.metadata();
    for field in ["uid", "generation", "generateName", "finalizers", "ownerReferences", "resourceVersion"] {
        if metadata.and_then(|metadata| metadata.get(field)).is_some_and(|value| !is_zero(value)) {
            messages.push(format!("metadata.{field}: Forbidden: must be empty"));
        }
    }
    messages
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn validate_findings_name_phase_object_and_field() {
        let object = |value: Value| Object::from_value(value).unwrap();
        let fine = || {
            object(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n", "uid": "", "finalizers": []}}),
            )
        };
        let phase = |name: &str, objects: Vec<Object>| Phase { name: name.into(), objects };
        assert_eq!(validate("e-1", 1, &[phase("1a", vec![fine()])]), None);
        let bad =
            object(json!({"kind": "X", "metadata": {"name": "x", "uid": "1", "ownerReferences": [{}]}}));
        assert_eq!(
            validate("e-1", 1, &[phase("a", vec![fine(), bad]), phase("b", vec![fine()])]).unwrap(),
            "revision \"e-1\" (1): phase \"a\": object /v1, Kind=ConfigMap n/c: duplicate object found in phases: a, b, object /, Kind=X /x: \
             apiVersion: Required value: must not be empty, metadata.uid: Forbidden: must be empty, metadata.ownerReferences: Forbidden: \
             must be empty, phase \"b\": object /v1, Kind=ConfigMap n/c: duplicate object found in phases: a, b"
        );
    }
}
