//! The rules for a revision's content, checked before anything is applied.
//!
//! Rule: revisions §7.4. A phase name that starts with a digit is allowed, as in the API (§17 row 27).

use std::collections::BTreeMap;

use olm_core::{Object, ObjectKey};
use serde_json::Value;

/// Checks the objects of a revision one after the other, so that only one need be in memory at a time.
#[derive(Debug, Default)]
pub struct Validation {
    phases: Vec<(String, Vec<Checked>)>,
}

#[derive(Debug)]
struct Checked {
    key: ObjectKey,
    messages: Vec<String>,
}

impl Validation {
    /// The objects that are added next belong to this phase.
    pub fn begin_phase(&mut self, name: &str) {
        self.phases.push((name.to_owned(), Vec::new()));
    }

    /// Checks the next object of the phase.
    pub fn add(&mut self, object: &Object) {
        if let Some((_, checked)) = self.phases.last_mut() {
            checked.push(Checked { key: object.key(), messages: check(object) });
        }
    }

    /// The text of the condition, without its prefix; `None` when there are no findings.
    #[must_use]
    pub fn finish(self, revision: &str, number: i64) -> Option<String> {
        let mut seen: BTreeMap<&ObjectKey, Vec<&str>> = BTreeMap::new();
        for (name, objects) in &self.phases {
            for object in objects {
                seen.entry(&object.key).or_default().push(name);
            }
        }
        let mut findings = vec![];
        for (name, objects) in &self.phases {
            let objects: Vec<String> = objects
                .iter()
                .filter_map(|Checked { key, messages }| {
                    let places = seen.get(key).filter(|places| places.len() > 1);
                    let duplicate = places
                        .map(|places| format!("duplicate object found in phases: {}", places.join(", ")));
                    let messages: Vec<String> = messages.iter().cloned().chain(duplicate).collect();
                    (!messages.is_empty())
                        .then(|| format!("object {}: {}", key.objref(), messages.join(", ")))
                })
                .collect();
            if !objects.is_empty() {
                findings.push(format!("phase {name:?}: {}", objects.join(", ")));
            }
        }
        (!findings.is_empty()).then(|| format!("revision {revision:?} ({number}): {}", findings.join(", ")))
    }
}

/// Whether requests can name the object: its API, its name and its namespace are segments of their path. A revision with another one is not
/// rolled out.
#[must_use]
pub fn is_addressable(key: &ObjectKey) -> bool {
    has_api_path(key) && is_path_segment(&key.name) && key.namespace.as_deref().is_none_or(is_path_segment)
}

fn has_api_path(key: &ObjectKey) -> bool {
    (key.group.is_empty() || is_path_segment(&key.group)) && is_path_segment(&key.version)
}

fn is_path_segment(name: &str) -> bool {
    let is_plain = |byte: u8| !byte.is_ascii_control() && !b" /%?#<>`".contains(&byte);
    !matches!(name, "" | "." | "..") && name.bytes().all(is_plain)
}

fn check(object: &Object) -> Vec<String> {
    let mut messages = vec![];
    for (field, value) in [("apiVersion", object.api_version()), ("kind", object.kind())] {
        if value.is_empty() {
            messages.push(format!("{field}: Required value: must not be empty"));
        }
    }
    let (key, api_version) = (object.key(), object.api_version());
    if !api_version.is_empty() && !has_api_path(&key) {
        messages.push(format!("apiVersion: Invalid value: {api_version:?}: must be segments of a path"));
    }
    for (field, value) in [("name", Some(&key.name)), ("namespace", key.namespace.as_ref())] {
        match value {
            Some(value) if value.is_empty() => {
                messages.push(format!("metadata.{field}: Required value: must not be empty"));
            }
            Some(value) if !is_path_segment(value) => {
                messages
                    .push(format!("metadata.{field}: Invalid value: {value:?}: must be a segment of a path"));
            }
            Some(_) | None => {}
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
    fn validate_names_are_segments_of_a_path() {
        for (name, namespace, want) in [
            ("system:a.b-c", "n", None),
            ("rôle", "n", None),
            ("a", "", None),
            ("", "n", Some("metadata.name: Required value: must not be empty")),
            ("a/b", "n", Some("metadata.name: Invalid value: \"a/b\": must be a segment of a path")),
            ("..", "n", Some("metadata.name: Invalid value: \"..\": must be a segment of a path")),
            ("a b", "n", Some("metadata.name: Invalid value: \"a b\": must be a segment of a path")),
            ("a<b", "n", Some("metadata.name: Invalid value: \"a<b\": must be a segment of a path")),
            ("a`b", "n", Some("metadata.name: Invalid value: \"a`b\": must be a segment of a path")),
            ("a", "n?x", Some("metadata.namespace: Invalid value: \"n?x\": must be a segment of a path")),
        ] {
            let metadata = json!({"name": name, "namespace": namespace});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            let object = Object::from_value(object).unwrap();
            assert_eq!(check(&object).first().map(String::as_str), want, "{name:?} {namespace:?}");
            assert_eq!(is_addressable(&object.key()), want.is_none(), "{name:?} {namespace:?}");
        }
    }

    #[test]
    fn validate_api_versions_are_segments_of_a_path() {
        let invalid =
            |value: &str| format!("apiVersion: Invalid value: {value:?}: must be segments of a path");
        for (api_version, want) in [
            ("v1", None),
            ("g.io/v1", None),
            ("", Some("apiVersion: Required value: must not be empty".to_owned())),
            ("v1 ", Some(invalid("v1 "))),
            ("g.io/", Some(invalid("g.io/"))),
            ("g.io/v1/x", Some(invalid("g.io/v1/x"))),
            ("g?/v1", Some(invalid("g?/v1"))),
        ] {
            let object = json!({"apiVersion": api_version, "kind": "ConfigMap", "metadata": {"name": "a"}});
            let object = Object::from_value(object).unwrap();
            assert_eq!(is_addressable(&object.key()), want.is_none(), "{api_version:?}");
            assert_eq!(check(&object), Vec::from_iter(want), "{api_version:?}");
        }
    }

    #[test]
    fn validate_findings_name_phase_object_and_field() {
        let object = |value: Value| Object::from_value(value).unwrap();
        let fine = || {
            object(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n", "uid": "", "finalizers": []}}),
            )
        };
        let validate = |phases: &[(&str, Vec<Object>)]| {
            let mut validation = Validation::default();
            for (name, objects) in phases {
                validation.begin_phase(name);
                objects.iter().for_each(|object| validation.add(object));
            }
            validation.finish("e-1", 1)
        };
        assert_eq!(validate(&[("1a", vec![fine()])]), None);
        let bad =
            object(json!({"kind": "X", "metadata": {"name": "x", "uid": "1", "ownerReferences": [{}]}}));
        assert_eq!(
            validate(&[("a", vec![fine(), bad]), ("b", vec![fine()])]).unwrap(),
            "revision \"e-1\" (1): phase \"a\": object /v1, Kind=ConfigMap n/c: duplicate object found in phases: a, b, object /, Kind=X /x: \
             apiVersion: Required value: must not be empty, metadata.uid: Forbidden: must be empty, metadata.ownerReferences: Forbidden: \
             must be empty, phase \"b\": object /v1, Kind=ConfigMap n/c: duplicate object found in phases: a, b"
        );
    }
}
