//! A Kubernetes manifest that keeps every field, known or not, and the key that names the object in a cluster.
//!
//! No type of any API is known here; callers make the typed view of a kind with `Object::to_value`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Why a JSON value is no manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a manifest must be a JSON object, not {found}")]
pub struct ObjectError {
    found: &'static str,
}

/// A manifest as JSON. Accessors of absent or wrongly typed members give the empty text or `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Map<String, Value>);

impl Object {
    /// Takes a JSON value that must be an object.
    ///
    /// # Errors
    /// When the value is anything else.
    pub fn from_value(value: Value) -> Result<Self, ObjectError> {
        let found = match value {
            Value::Object(map) => return Ok(Self(map)),
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
        };
        Err(ObjectError { found })
    }

    /// A copy as JSON value.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// `apiVersion`, for example `apps/v1` or `v1`.
    pub fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// API group, empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// API version without the group.
    pub fn version(&self) -> &str {
        let api_version = self.api_version();
        api_version.split_once('/').map_or(api_version, |(_, version)| version)
    }

    pub fn name(&self) -> &str {
        self.metadata_text("name").unwrap_or_default()
    }

    /// `metadata.namespace`, `None` when absent or empty.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata_text("namespace").filter(|namespace| !namespace.is_empty())
    }

    /// Members that are no strings are left out.
    pub fn labels(&self) -> BTreeMap<&str, &str> {
        self.metadata_map("labels")
    }

    /// Members that are no strings are left out.
    pub fn annotations(&self) -> BTreeMap<&str, &str> {
        self.metadata_map("annotations")
    }

    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata").and_then(Value::as_object)
    }

    /// `metadata` for writing; made (or replaced, if it is no object) when needed.
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        member_map(&mut self.0, "metadata")
    }

    pub fn set_namespace(&mut self, namespace: &str) {
        self.metadata_mut().insert("namespace".into(), namespace.into());
    }

    pub fn set_label(&mut self, key: &str, value: &str) {
        member_map(self.metadata_mut(), "labels").insert(key.into(), value.into());
    }

    pub fn set_annotation(&mut self, key: &str, value: &str) {
        member_map(self.metadata_mut(), "annotations").insert(key.into(), value.into());
    }

    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            group: self.group().to_owned(),
            version: self.version().to_owned(),
            kind: self.kind().to_owned(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn metadata_text(&self, key: &str) -> Option<&str> {
        self.metadata()?.get(key)?.as_str()
    }

    fn metadata_map(&self, key: &str) -> BTreeMap<&str, &str> {
        let members = self.metadata().and_then(|metadata| metadata.get(key)).and_then(Value::as_object);
        members
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| value.as_str().map(|value| (key.as_str(), value)))
            .collect()
    }
}

/// The object member of that name, made (or replaced, if it is no object) when needed.
pub fn member_map<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let member = parent.entry(key).or_insert(Value::Null);
    if !member.is_object() {
        *member = Value::Object(Map::new());
    }
    match member {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

/// What names an object in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// API group, empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    /// Namespace, `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectKey {
    /// `<group>/<version>, Kind=<Kind> <namespace>/<name>` (rule: revisions §7.2): the core group prints as nothing
    /// before the slash, so does a missing namespace.
    pub fn objref(&self) -> String {
        self.to_string()
    }

    /// `apiVersion` as manifests write it.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, kind, namespace, name } = self;
        write!(f, "{group}/{version}, Kind={kind} {}/{name}", namespace.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[test]
    fn keys_print_as_object_references() {
        let deployment = object(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}}),
        );
        assert_eq!(deployment.key().objref(), "apps/v1, Kind=Deployment n/d");
        let namespace = object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}));
        assert_eq!(namespace.key().objref(), "/v1, Kind=Namespace /n");
        assert_eq!(namespace.key().api_version(), "v1");
    }

    #[test]
    fn object_tolerates_wrong_types_and_keeps_unknown_fields() {
        let mut invalid =
            object(json!({"metadata": {"labels": {"a": 1, "b": "c"}, "annotations": []}, "x": {"y": 1}}));
        assert_eq!((invalid.kind(), invalid.name(), invalid.namespace()), ("", "", None));
        assert_eq!(invalid.labels(), BTreeMap::from([("b", "c")]));
        invalid.set_annotation("k", "v");
        invalid.set_label("l", "m");
        invalid.set_namespace("n");
        assert_eq!(
            invalid.to_value(),
            json!({"metadata": {"labels": {"a": 1, "b": "c", "l": "m"}, "annotations": {"k": "v"}, "namespace": "n"}, "x": {"y": 1}})
        );
        assert_eq!(
            Object::from_value(json!([])).unwrap_err().to_string(),
            "a manifest must be a JSON object, not a list"
        );
    }
}
