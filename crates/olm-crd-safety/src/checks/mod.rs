//! The checks, and the walk that applies them to every schema node of the old version.
//!
//! Each check looks at its own keywords, reports at most one change, and takes its keywords out of both nodes; what still
//! differs afterwards is an unhandled change. Rule: crd-upgrade-safety §3.2, §4.

pub(crate) mod crd;
mod property;
mod unhandled;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::bounds::Bounds;
use crate::schema::flatten;
use crate::{Comparison, Finding, Profile};

/// The keywords of one node, old and new, from which checks take what they have judged.
pub(crate) struct Pair<'a> {
    pub(crate) old: BTreeMap<&'a str, &'a Value>,
    pub(crate) new: BTreeMap<&'a str, &'a Value>,
    /// The new node with its `properties`, for checks that look at a child's default.
    pub(crate) children: &'a Map<String, Value>,
    pub(crate) profile: Profile,
}

impl<'a> Pair<'a> {
    /// Takes a keyword out of both nodes.
    pub(crate) fn take(&mut self, keyword: &str) -> (Option<&'a Value>, Option<&'a Value>) {
        // an empty schema allows every value, so `not: {}` allows none
        let given = |value: Option<&'a Value>| {
            if keyword == "not" { value.filter(|value| !value.is_null()) } else { present(value) }
        };
        (given(self.old.remove(keyword)), given(self.new.remove(keyword)))
    }

    pub(crate) fn corrected(&self) -> bool {
        self.profile == Profile::Corrected
    }
}

/// Absent, null and empty collections mean the same in a schema.
fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    })
}

/// Every node of the old schema against its successor; a node without one is compared with an empty schema.
pub(crate) fn compare(
    old: &Value,
    new: &Value,
    bounds: &Bounds<'_>,
    comparison: impl Fn(String) -> Comparison,
) -> Vec<Finding> {
    let new = flatten(new, (bounds.profile == Profile::Corrected).then_some(old), bounds);
    let old = flatten(old, None, bounds);
    let nothing = Map::new();
    let mut findings = Vec::new();
    for (path, old_node) in old.into_iter().take_while(|_| !bounds.is_over()) {
        let successor = new.get(&path).copied();
        if bounds.profile == Profile::Corrected && successor.is_none() && in_combinator(&path) {
            continue; // the parent judges branches that come or go
        }
        let new_node = successor.unwrap_or(&nothing);
        let mut found = node(old_node, new_node, bounds.profile);
        if bounds.profile == Profile::Corrected && in_combinator(&path) && successor.is_some() {
            found.extend(added_to_branch(old_node, new_node));
        }
        let found = found.into_iter().map(|(check, message)| Finding {
            comparison: comparison(path.clone()),
            check,
            message,
        });
        findings.extend(found.take_while(|finding| bounds.take(finding)));
    }
    findings
}

/// New fields and items of a branch of `anyOf` or `allOf`, or of what is inside of one. They are no new optional fields: they constrain
/// what is declared outside.
fn added_to_branch(old: &Map<String, Value>, new: &Map<String, Value>) -> Option<(&'static str, String)> {
    fn fields(node: &Map<String, Value>) -> impl Iterator<Item = &str> {
        let items = node.get("items").map(|_| "items");
        let properties = node.get("properties").and_then(Value::as_object);
        items.into_iter().chain(properties.into_iter().flat_map(Map::keys).map(String::as_str))
    }
    let known: BTreeSet<&str> = fields(old).collect();
    let added: Vec<&str> = fields(new).filter(|name| !known.contains(name)).collect();
    let message = format!("unhandled changes found (fields added to a branch: [{}])", added.join(" "));
    (!added.is_empty()).then_some(("unhandled", message))
}

fn in_combinator(path: &str) -> bool {
    path.contains(".anyOf[") || path.contains(".allOf[")
}

fn node(old: &Map<String, Value>, new: &Map<String, Value>, profile: Profile) -> Vec<(&'static str, String)> {
    let mut pair = Pair { old: own(old), new: own(new), children: new, profile };
    if pair.corrected() {
        prepare(&mut pair);
    }
    let mut findings = property::all(&mut pair);
    findings.extend(unhandled::compare(&mut pair));
    findings
}

/// The keywords of a node without its children, which have their own paths.
fn own(node: &Map<String, Value>) -> BTreeMap<&str, &Value> {
    let own = node.iter().filter(|(keyword, _)| !matches!(keyword.as_str(), "properties" | "items"));
    own.map(|(keyword, value)| (keyword.as_str(), value)).collect()
}

/// The corrected profile's extra knowledge: texts are no difference, children of map values speak for themselves.
fn prepare(pair: &mut Pair<'_>) {
    for keyword in ["description", "title", "example", "externalDocs"] {
        pair.take(keyword);
    }
    let is_schema = |node: &BTreeMap<&str, &Value>| {
        node.get("additionalProperties").is_some_and(|value| value.is_object())
    };
    if is_schema(&pair.old) && is_schema(&pair.new) {
        pair.take("additionalProperties");
    }
}

/// Why a finding of this check is dangerous.
pub(crate) fn danger(check: &str) -> &'static str {
    match check {
        "scope" => "all stored objects would become unreachable",
        "storedVersionRemoval" => "objects stored in that version could no longer be read",
        "servedVersionRemoval" => "clients that use that version would fail",
        "existingFieldRemoval" => "the field's stored values would be pruned on the next write",
        "default" => "objects that leave the field out would change their meaning",
        "required" => "stored objects without the field could no longer be updated",
        "enum" | "maximum" | "maxItems" | "maxLength" | "maxProperties" | "minimum" | "minItems"
        | "minLength" | "minProperties" | "pattern" | "oneOf" => {
            "stored objects with other values could no longer be updated"
        }
        "nullable" => "stored null values would become invalid",
        "type" => "stored values have the old type",
        "schema" => "the apiserver refuses a version without a schema",
        _ => "whether stored objects stay valid cannot be decided",
    }
}

/// What an author can do instead of the change that this check found.
pub(crate) fn fix(check: &str) -> &'static str {
    match check {
        "scope" => "make a new kind instead",
        "storedVersionRemoval" => "migrate stored objects, then drop the version in a later release",
        "servedVersionRemoval" => "keep serving the version, marked as deprecated, until no client uses it",
        "existingFieldRemoval" | "type" => {
            "keep the field and add a new one, or make a new version with a conversion webhook"
        }
        "required" => "give the field a default, or keep it optional",
        "schema" => "give every version an openAPIV3Schema",
        _ => "keep the old constraint, or make a new version with a conversion webhook",
    }
}
