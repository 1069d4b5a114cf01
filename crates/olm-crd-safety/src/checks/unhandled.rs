//! Whatever no check understands. The parity profile blocks every such difference; the corrected one knows which
//! directions only widen. Rule: crd-upgrade-safety §4.3, decision 12.

use std::collections::BTreeSet;

use olm_core::go;
use serde_json::Value;

use super::Pair;
use crate::schema::{rule_identity, without_texts};

/// Keywords with the reference's label for each, in the order of its struct.
const LABELS: [(&str, &str); 24] = [
    ("id", "ID"),
    ("$schema", "Schema"),
    ("$ref", "Ref"),
    ("format", "Format"),
    ("title", "Title"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("multipleOf", "MultipleOf"),
    ("uniqueItems", "UniqueItems"),
    ("allOf", "AllOf"),
    ("anyOf", "AnyOf"),
    ("not", "Not"),
    ("additionalProperties", "AdditionalProperties"),
    ("patternProperties", "PatternProperties"),
    ("dependencies", "Dependencies"),
    ("additionalItems", "AdditionalItems"),
    ("definitions", "Definitions"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource"),
    ("x-kubernetes-int-or-string", "XIntOrString"),
    ("x-kubernetes-list-type", "XListType"),
    ("x-kubernetes-map-type", "XMapType"),
];

pub(super) fn compare(pair: &mut Pair<'_>) -> Option<(&'static str, String)> {
    let mut changes = Vec::new();
    let mut differs = false;
    for (keyword, label) in LABELS {
        let (old, new) = pair.take(keyword);
        let (old, new) = (unless_off(old), unless_off(new));
        if old == new || (pair.corrected() && widens(keyword, old, new)) {
            continue;
        }
        differs = true;
        changes.push(format!("{label} {} -> {}", keyword_value(keyword, old), keyword_value(keyword, new)));
    }
    let (old, new) = pair.take("x-kubernetes-validations");
    let is_corrected = pair.corrected();
    let plain = |rules: &Value| match rules {
        Value::Array(rules) if is_corrected => Value::Array(rules.iter().map(rule_identity).collect()),
        other => other.clone(),
    };
    let (old, new) = (old.map(plain), new.map(plain));
    if old != new && !(pair.corrected() && rules_removed(old.as_ref(), new.as_ref())) {
        differs = true;
        changes.push(format!("XValidations {} -> {}", rules(old.as_ref()), rules(new.as_ref())));
    }
    // the rest has no short form: list map keys and keywords that this program does not know
    let rest: Vec<&str> = pair.old.keys().chain(pair.new.keys()).copied().collect();
    for keyword in rest {
        let (old, new) = pair.take(keyword);
        differs |= old != new;
    }
    differs.then(|| {
        let detail = if changes.is_empty() { String::new() } else { format!(" ({})", changes.join("; ")) };
        ("unhandled", format!("unhandled changes found{detail}"))
    })
}

/// `false` and absent are the same for every boolean keyword but `additionalProperties`, where the value is kept as it is.
fn unless_off(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| **value != Value::Bool(false))
}

/// Whether everything that was valid stays valid.
fn widens(keyword: &str, old: Option<&Value>, new: Option<&Value>) -> bool {
    match keyword {
        "format" => matches!((text(old), text(new)), (_, "") | ("int32", "int64") | ("float", "double")),
        // an absent one means the same
        "x-kubernetes-list-type" => matches!((text(old), text(new)), ("", "atomic") | ("atomic", "")),
        "x-kubernetes-map-type" => {
            matches!((text(old), text(new)), ("", "granular") | ("granular", ""))
        }
        "exclusiveMaximum" | "exclusiveMinimum" | "uniqueItems" | "multipleOf" => new.is_none(),
        "not" => new.is_none() || old.map(without_texts) == new.map(without_texts),
        "x-kubernetes-preserve-unknown-fields" => old.is_none(),
        // equal branches stand at equal places; each is judged at its own path
        "anyOf" => match (branches(old), branches(new)) {
            (_, 0) => true,
            (0, _) => false,
            (before, after) => after >= before,
        },
        "allOf" => branches(new) <= branches(old),
        _ => false,
    }
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn branches(value: Option<&Value>) -> usize {
    value.and_then(Value::as_array).map_or(0, Vec::len)
}

fn rules_removed(old: Option<&Value>, new: Option<&Value>) -> bool {
    let texts = |value: Option<&Value>| -> BTreeSet<String> {
        value.and_then(Value::as_array).into_iter().flatten().map(Value::to_string).collect()
    };
    texts(new).is_subset(&texts(old))
}

/// The value of a keyword as the condensed text of an unhandled change shows it.
fn keyword_value(keyword: &str, value: Option<&Value>) -> String {
    let pointer = matches!(
        keyword,
        "multipleOf"
            | "x-kubernetes-preserve-unknown-fields"
            | "x-kubernetes-list-type"
            | "x-kubernetes-map-type"
            | "$ref"
    );
    match value {
        None => match keyword {
            "format" | "title" | "id" | "$schema" => "\"\"".to_owned(),
            "exclusiveMaximum"
            | "exclusiveMinimum"
            | "uniqueItems"
            | "x-kubernetes-embedded-resource"
            | "x-kubernetes-int-or-string" => "false".to_owned(),
            _ => "nil".to_owned(),
        },
        Some(Value::String(text)) if pointer => format!("&{}", go::quote(text)),
        Some(Value::String(text)) => go::quote(text),
        Some(Value::Bool(on)) if pointer => format!("&{on}"),
        Some(Value::Bool(on)) => on.to_string(),
        Some(Value::Number(n)) if pointer => format!("&{n}"),
        Some(Value::Number(n)) => n.to_string(),
        Some(_) => "<complex value>".to_owned(),
    }
}

/// The CEL rules as that text shows them.
fn rules(value: Option<&Value>) -> String {
    let Some(Value::Array(list)) = value else { return "nil".to_owned() };
    let shown: Vec<String> = list
        .iter()
        .map(|rule| {
            let member = |json: &str, label: &str| {
                let text = rule.get(json).and_then(Value::as_str).filter(|text| !text.is_empty())?;
                Some(format!("{label}: {}", go::quote(text)))
            };
            let parts = [
                member("rule", "Rule"),
                member("message", "Message"),
                member("messageExpression", "MessageExpression"),
                member("fieldPath", "FieldPath"),
            ];
            format!("{{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
        })
        .collect();
    format!("ValidationRules{{{}}}", shown.join(", "))
}
