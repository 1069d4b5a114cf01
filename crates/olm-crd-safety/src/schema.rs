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
///
/// With the schema `before` it, branches of `anyOf` and `allOf` are numbered as equal branches there, so that a mere reordering is no
/// difference; not those inside of branches.
pub(crate) fn flatten<'a>(schema: &'a Value, before: Option<&Value>, bounds: &Bounds<'_>) -> Flat<'a> {
    let mut walk = Walk { bounds, paths: bounds.paths(), flat: Flat::new() };
    walk.node(schema, before, "^".to_owned(), 0);
    walk.flat
}

struct Walk<'a, 'b> {
    bounds: &'b Bounds<'b>,
    paths: Paths<'b>,
    flat: Flat<'a>,
}

impl<'a> Walk<'a, '_> {
    fn node(&mut self, schema: &'a Value, before: Option<&Value>, path: String, depth: usize) {
        let Some(node) = schema.as_object() else { return };
        if depth < MAX_DEPTH {
            let bounds = self.bounds;
            let is_parity = bounds.profile == Profile::Parity;
            let mut child = |value: &'a Value, before: Option<&Value>, segment: String| {
                if self.paths.take(&path, &segment) {
                    self.node(value, before, format!("{path}{segment}"), depth + 1);
                }
            };
            for (keyword, value) in node {
                let before = before.and_then(|before| before.get(keyword));
                match (keyword.as_str(), value) {
                    ("properties", Value::Object(members)) => members.iter().for_each(|(name, value)| {
                        child(value, before.and_then(|before| before.get(name)), format!(".{name}"));
                    }),
                    ("patternProperties" | "definitions", Value::Object(members)) => members
                        .iter()
                        .for_each(|(name, value)| child(value, None, format!(".{keyword}[{name}]"))),
                    ("dependencies", Value::Object(members)) => members
                        .iter()
                        .filter(|(_, value)| value.is_object())
                        .for_each(|(name, value)| child(value, None, format!(".dependencies[{name}]"))),
                    ("items", Value::Array(list)) => list
                        .iter()
                        .enumerate()
                        .for_each(|(i, value)| child(value, None, format!(".items[{i}]"))),
                    ("items" | "additionalProperties" | "additionalItems", Value::Object(_)) => {
                        child(value, before, format!(".{keyword}"));
                    }
                    ("allOf" | "anyOf", Value::Array(list)) => {
                        let list = match before {
                            Some(Value::Array(before)) => reordered(before, list, bounds.cancellation()),
                            _ => list.iter().map(Some).collect(),
                        };
                        list.into_iter()
                            .enumerate()
                            .filter_map(|(i, value)| Some((i, value?)))
                            .for_each(|(i, value)| child(value, None, format!(".{keyword}[{i}]")));
                    }
                    ("oneOf", Value::Array(list)) if is_parity => list
                        .iter()
                        .enumerate()
                        .for_each(|(i, value)| child(value, None, format!(".oneOf[{i}]"))),
                    ("not", Value::Object(_)) if is_parity => child(value, None, ".not".to_owned()),
                    _ => {}
                }
            }
        }
        self.flat.insert(path, node);
    }
}

/// The branches in the order of those `before` that are equal but for texts. The others take the places that are left; where there are
/// fewer of them, places stay empty. Once it is cancelled, the others keep their order.
fn reordered<'a>(before: &[Value], list: &'a [Value], cancellation: &Cancellation) -> Vec<Option<&'a Value>> {
    let mut rest: Vec<(&Value, Value)> = list.iter().map(|branch| (branch, without_texts(branch))).collect();
    let mut slots: Vec<Option<&Value>> = Vec::new();
    for old in before.iter().take_while(|_| !cancellation.is_cancelled()) {
        let old = without_texts(old);
        let found = rest.iter().position(|(_, new)| cancellation.is_cancelled() || *new == old);
        slots.push(found.map(|at| rest.remove(at).0));
    }
    let mut rest = rest.into_iter().map(|(branch, _)| branch);
    let mut ordered: Vec<Option<&Value>> =
        slots.into_iter().map(|slot| slot.or_else(|| rest.next())).collect();
    ordered.extend(rest.map(Some));
    ordered
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
