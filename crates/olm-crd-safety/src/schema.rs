//! A schema as a flat map from path to node. Rule: crd-upgrade-safety §3.1.

use std::collections::BTreeMap;

use olm_core::Cancellation;
use serde_json::{Map, Value};

use crate::Profile;
use crate::bounds::{Bounds, Paths};

/// Deepest nesting that is looked at; the apiserver refuses schemas far below this.
const MAX_DEPTH: usize = 256;

/// Path to node, in path order. The root is `^`.
pub(crate) type Flat<'a> = BTreeMap<String, &'a Map<String, Value>>;

/// Flattens a schema. The corrected profile stays out of `oneOf` and `not`, where wider is not safer: these are compared
/// whole at their parent. Once the comparison is over, nodes are missing.
pub(crate) fn flatten<'a>(schema: &'a Value, bounds: &Bounds<'_>) -> Flat<'a> {
    let mut flat = Flat::new();
    walk(schema, "^".to_owned(), bounds.profile, 0, &mut bounds.paths(), &mut flat);
    flat
}

fn walk<'a>(
    schema: &'a Value,
    path: String,
    profile: Profile,
    depth: usize,
    paths: &mut Paths<'_>,
    flat: &mut Flat<'a>,
) {
    let Some(node) = schema.as_object() else { return };
    if depth < MAX_DEPTH {
        let mut child = |value: &'a Value, segment: String| {
            if paths.take(&path, &segment) {
                walk(value, format!("{path}{segment}"), profile, depth + 1, paths, flat);
            }
        };
        for (keyword, value) in node {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(members)) => {
                    members.iter().for_each(|(name, value)| child(value, format!(".{name}")));
                }
                ("patternProperties" | "definitions", Value::Object(members)) => {
                    members.iter().for_each(|(name, value)| child(value, format!(".{keyword}[{name}]")));
                }
                ("dependencies", Value::Object(members)) => members
                    .iter()
                    .filter(|(_, value)| value.is_object())
                    .for_each(|(name, value)| child(value, format!(".dependencies[{name}]"))),
                ("items", Value::Array(list)) => {
                    list.iter().enumerate().for_each(|(i, value)| child(value, format!(".items[{i}]")));
                }
                ("items" | "additionalProperties" | "additionalItems", Value::Object(_)) => {
                    child(value, format!(".{keyword}"));
                }
                ("allOf" | "anyOf", Value::Array(list)) => {
                    list.iter().enumerate().for_each(|(i, value)| child(value, format!(".{keyword}[{i}]")));
                }
                ("oneOf", Value::Array(list)) if profile == Profile::Parity => {
                    list.iter().enumerate().for_each(|(i, value)| child(value, format!(".oneOf[{i}]")));
                }
                ("not", Value::Object(_)) if profile == Profile::Parity => child(value, ".not".to_owned()),
                _ => {}
            }
        }
    }
    flat.insert(path, node);
}

/// A copy without what only people read (`description`, `title`, `example`, `externalDocs`, texts of CEL rules), at any depth.
pub(crate) fn without_texts(value: &Value) -> Value {
    match value {
        Value::Object(node) => Value::Object(
            node.iter()
                .filter(|(keyword, _)| !is_text(keyword))
                .map(|(keyword, value)| {
                    let value = match (keyword.as_str(), value) {
                        // names of properties are no keywords
                        (
                            "properties" | "patternProperties" | "definitions" | "dependencies",
                            Value::Object(members),
                        ) => Value::Object(
                            members.iter().map(|(k, v)| (k.clone(), without_texts(v))).collect(),
                        ),
                        ("x-kubernetes-validations", Value::Array(rules)) => {
                            Value::Array(rules.iter().map(rule_identity).collect())
                        }
                        ("enum" | "default", _) => value.clone(),
                        _ => without_texts(value),
                    };
                    (keyword.clone(), value)
                })
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.iter().map(without_texts).collect()),
        other => other.clone(),
    }
}

pub(crate) fn is_text(keyword: &str) -> bool {
    matches!(keyword, "description" | "title" | "example" | "externalDocs")
}

/// A CEL rule without its texts.
pub(crate) fn rule_identity(rule: &Value) -> Value {
    match rule {
        Value::Object(rule) => {
            let mut rule = rule.clone();
            let texts = ["message", "messageExpression", "reason", "fieldPath"];
            rule.retain(|member, _| !texts.contains(&member.as_str()));
            Value::Object(rule)
        }
        other => other.clone(),
    }
}

/// The new schema with branches of `anyOf`/`allOf` in the order of the old schema's equal branches, at any depth, so that a
/// mere reordering is no difference. Once it is cancelled, further branches keep their order.
pub(crate) fn align(old: &Value, new: &Value, cancellation: &Cancellation) -> Value {
    let (Value::Object(old), Value::Object(node)) = (old, new) else { return new.clone() };
    let mut aligned = Map::new();
    for (keyword, value) in node {
        let before = old.get(keyword);
        let value = match (keyword.as_str(), before, value) {
            ("anyOf" | "allOf", Some(Value::Array(before)), Value::Array(list)) => {
                Value::Array(reorder(before, list, cancellation))
            }
            ("properties", Some(Value::Object(before)), Value::Object(members)) => Value::Object(
                members
                    .iter()
                    .map(|(name, value)| {
                        let before = before.get(name);
                        (name.clone(), before.map_or(value.clone(), |b| align(b, value, cancellation)))
                    })
                    .collect(),
            ),
            ("items" | "additionalProperties", Some(before), value) => align(before, value, cancellation),
            (_, _, value) => value.clone(),
        };
        aligned.insert(keyword.clone(), value);
    }
    Value::Object(aligned)
}

fn reorder(before: &[Value], list: &[Value], cancellation: &Cancellation) -> Vec<Value> {
    let mut rest: Vec<&Value> = list.iter().collect();
    let mut slots: Vec<Option<Value>> = Vec::new();
    for old in before.iter().take_while(|_| !cancellation.is_cancelled()) {
        let plain = without_texts(old);
        let is_same = |new: &&Value| cancellation.is_cancelled() || without_texts(new) == plain;
        let found = rest.iter().position(is_same);
        slots.push(found.map(|at| rest.remove(at).clone()));
    }
    let mut rest = rest.into_iter();
    let mut ordered: Vec<Value> =
        slots.into_iter().filter_map(|slot| slot.or_else(|| rest.next().cloned())).collect();
    ordered.extend(rest.cloned());
    ordered
}
