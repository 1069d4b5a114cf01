//! A CRD's structural schema as JSON Schema (draft 4, whose `exclusiveMaximum` is a switch too), and its defaults.
//!
//! What the apiserver adds to JSON Schema is translated: `nullable`, `x-kubernetes-int-or-string`, sets, embedded objects. CEL
//! rules and the uniqueness of map keys are not: only the apiserver evaluates these. Nor are patterns that Go has and ECMAScript does not,
//! which a schema of draft 4 must not have.

use std::collections::BTreeSet;

use jsonschema::draft4;
use serde_json::{Map, Value, json};

/// Deepest nesting that is translated or defaulted; the apiserver refuses schemas far below this.
const MAX_DEPTH: usize = 256;

/// Bytes that defaults may add to one object; each property that is looked at takes one, too. Defaults multiply where items of a default
/// have defaults again.
const MAX_DEFAULTS: usize = 16 << 20;
/// Bytes of a value without its text: what a map with one member takes.
const VALUE: usize = 640;

/// The schema for a validator. Everything that only people or the apiserver read is left out.
pub(crate) fn json_schema(node: &Value) -> Value {
    translate(node, 0)
}

fn translate(node: &Value, depth: usize) -> Value {
    let Some(node) = node.as_object().filter(|_| depth < MAX_DEPTH) else { return json!({}) };
    let one = |value: &Value| translate(value, depth + 1);
    let mut schema = Map::new();
    for (keyword, value) in node {
        let translated = match (keyword.as_str(), value) {
            ("properties", Value::Object(members)) => {
                Value::Object(members.iter().map(|(name, value)| (name.clone(), one(value))).collect())
            }
            ("items" | "not", Value::Object(_)) | ("additionalProperties", Value::Object(_)) => one(value),
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) if !list.is_empty() => {
                Value::Array(list.iter().map(one).collect())
            }
            ("enum" | "required", Value::Array(list)) if list.is_empty() => continue,
            ("required", Value::Array(list)) => {
                let names: BTreeSet<&str> = list.iter().filter_map(Value::as_str).collect();
                json!(names)
            }
            ("pattern", Value::String(_)) if !draft4::meta::is_valid(&json!({"pattern": value})) => continue,
            (
                "type" | "enum" | "format" | "pattern" | "maximum" | "minimum" | "exclusiveMaximum"
                | "exclusiveMinimum" | "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties"
                | "minProperties" | "multipleOf" | "required" | "uniqueItems",
                value,
            ) if !value.is_null() => value.clone(),
            _ => continue,
        };
        schema.insert(keyword.clone(), translated);
    }
    for (switch, bound) in [("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")] {
        if !schema.contains_key(bound) {
            schema.remove(switch);
        }
    }
    let is_true = |keyword: &str| node.get(keyword).and_then(Value::as_bool).unwrap_or(false);
    if is_true("x-kubernetes-int-or-string") {
        schema.insert("type".into(), json!(["integer", "string"]));
    }
    if node.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set") {
        schema.insert("uniqueItems".into(), json!(true));
    }
    if is_true("nullable") {
        allow_null(&mut schema);
    }
    Value::Object(schema)
}

fn allow_null(schema: &mut Map<String, Value>) {
    match schema.get_mut("type") {
        Some(Value::Array(types)) => types.push(json!("null")),
        Some(one @ Value::String(_)) => *one = json!([one, "null"]),
        _ => {}
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
}

/// Fills in what the apiserver would when it reads the object: defaults of absent members, at any depth.
///
/// # Errors
/// When that is more than the limit.
pub(crate) fn apply_defaults(schema: &Value, value: &mut Value) -> Result<(), String> {
    Filling { left: MAX_DEFAULTS }.fill(schema, value, 0, 0)
}

struct Filling {
    /// Of [`MAX_DEFAULTS`].
    left: usize,
}

impl Filling {
    /// `path` is the length of the path to the value, which errors about it repeat.
    fn fill(&mut self, schema: &Value, value: &mut Value, depth: usize, path: usize) -> Result<(), String> {
        if depth >= MAX_DEPTH {
            return Ok(());
        }
        match value {
            Value::Object(members) => {
                let properties = schema.get("properties").and_then(Value::as_object);
                for (name, schema) in properties.into_iter().flatten() {
                    let path = path + name.len();
                    let nullable = schema.get("nullable").and_then(Value::as_bool).unwrap_or(false);
                    let absent = members.get(name).is_none_or(|found| found.is_null() && !nullable);
                    let default = schema.get("default").filter(|_| absent);
                    let paid =
                        self.pay(1).and_then(|()| default.map_or(Some(()), |it| self.pay_for(it, path)));
                    paid.ok_or_else(|| too_many(name))?;
                    if let Some(default) = default {
                        members.insert(name.clone(), default.clone());
                    }
                    if let Some(member) = members.get_mut(name) {
                        self.fill(schema, member, depth + 1, path)?;
                    }
                }
                if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                    for (name, member) in members.iter_mut() {
                        self.fill(schema, member, depth + 1, path + name.len())?;
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    items.iter_mut().try_for_each(|item| self.fill(schema, item, depth + 1, path))?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    /// Takes so many bytes of the limit; `None` if fewer are left.
    fn pay(&mut self, bytes: usize) -> Option<()> {
        self.left = self.left.checked_sub(bytes)?;
        Some(())
    }

    /// For a copy of the value at a path of this length.
    fn pay_for(&mut self, value: &Value, path: usize) -> Option<()> {
        self.pay(VALUE + path)?;
        match value {
            Value::String(text) => self.pay(text.len()),
            Value::Array(items) => items.iter().try_for_each(|item| self.pay_for(item, path)),
            Value::Object(members) => {
                members.iter().try_for_each(|(name, member)| self.pay_for(member, path + name.len()))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(()),
        }
    }
}

fn too_many(field: &str) -> String {
    let field = &field[..field.floor_char_boundary(100)];
    format!(
        "defaults, the last of field {field:?}, would add more than {MAX_DEFAULTS} bytes to an object; publish a bundle whose schema \
         has smaller defaults"
    )
}
