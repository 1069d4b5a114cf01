//! Checks on one schema node. Rule: crd-upgrade-safety §4.2; what the corrected profile lets through: decision 12.

use std::collections::BTreeSet;

use olm_core::go;
use serde_json::Value;

use super::Pair;
use crate::schema::{is_text, without_texts};

type CheckResult = Option<(&'static str, String)>;

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// Those of `list` that are not `known`.
fn missing(known: &[String], list: Vec<String>) -> Vec<String> {
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    list.into_iter().filter(|text| !known.contains(text.as_str())).collect()
}

/// All property checks, in the reference's order of names.
pub(super) fn all(pair: &mut Pair<'_>) -> Vec<(&'static str, String)> {
    let mut found = vec![default(pair), enumeration(pair)];
    pair.take("description");
    for check in ["maximum", "maxItems", "maxLength", "maxProperties"] {
        found.push(limit(pair, check, true));
    }
    for check in ["minimum", "minItems", "minLength", "minProperties"] {
        found.push(limit(pair, check, false));
    }
    found.extend([nullable(pair), one_of(pair), pattern(pair), required(pair), type_(pair)]);
    found.into_iter().flatten().collect()
}

fn default(pair: &mut Pair<'_>) -> CheckResult {
    let (old, new) = (pair.old.remove("default"), pair.new.remove("default"));
    let quoted = |value: &Value| go::quote(&value.to_string());
    let message = match (old, new) {
        (None, Some(new)) => format!("default added when there was none previously : {}", quoted(new)),
        (Some(old), None) => format!("default value removed : {}", quoted(old)),
        (Some(old), Some(new)) if old != new => {
            format!("default value changed : {} -> {}", quoted(old), quoted(new))
        }
        _ => return None,
    };
    Some(("default", message))
}

fn enumeration(pair: &mut Pair<'_>) -> CheckResult {
    let values = |value: Option<&Value>| {
        let mut list: Vec<String> = items(value).map(Value::to_string).collect();
        list.sort();
        list
    };
    let (old, new) = pair.take("enum");
    let (old, new) = (values(old), values(new));
    if old.is_empty() && !new.is_empty() {
        return Some((
            "enum",
            format!("enum constraint added when there was none previously : [{}]", new.join(" ")),
        ));
    }
    if new.is_empty() && pair.corrected() {
        return None;
    }
    let removed = missing(&new, old);
    (!removed.is_empty()).then(|| ("enum", format!("allowed enum values removed : [{}]", removed.join(" "))))
}

/// A bound of a number (`maximum`, `minimum`) is shown as `%v` prints it (`3e+07`), a length as an integer.
fn limit(pair: &mut Pair<'_>, check: &'static str, upper: bool) -> CheckResult {
    let (old, new) = pair.take(check);
    let new = new.and_then(Value::as_f64)?;
    let (name, change) = if upper { ("maximum", "decreased") } else { ("minimum", "increased") };
    let show = |bound: f64| if check == name { go::general(bound) } else { bound.to_string() };
    let message = match old.and_then(Value::as_f64) {
        // nothing is shorter than 0
        None if pair.corrected() && !upper && check != name && new == 0.0 => return None,
        None => format!("{name} constraint added when there was none previously : {}", show(new)),
        Some(old) if (upper && new < old) || (!upper && new > old) => {
            format!("{name} {change} : {} -> {}", show(old), show(new))
        }
        Some(_) => return None,
    };
    Some((check, message))
}

fn nullable(pair: &mut Pair<'_>) -> CheckResult {
    let (old, new) = pair.take("nullable");
    let on = |value: Option<&Value>| value == Some(&Value::Bool(true));
    match (on(old), on(new)) {
        (false, true) if !pair.corrected() => Some(("nullable", "nullable added : false -> true".to_owned())),
        (true, false) => Some(("nullable", "nullable removed : true -> false".to_owned())),
        _ => None,
    }
}

fn one_of(pair: &mut Pair<'_>) -> CheckResult {
    let plain = if pair.corrected() { without_texts } else { without_top_texts };
    let schemas = |value| -> Vec<String> { items(value).map(|schema| plain(schema).to_string()).collect() };
    let (old, new) = pair.take("oneOf");
    let (old, new) = (schemas(old), schemas(new));
    if old.is_empty() && !new.is_empty() {
        let all = new.join(" ");
        return Some(("oneOf", format!("oneOf constraint added when there was none previously: [{all}]")));
    }
    if new.is_empty() && pair.corrected() {
        return None; // without the constraint, more is allowed
    }
    let (removed, added) = (missing(&new, old.clone()).join(" "), missing(&old, new).join(" "));
    if !removed.is_empty() {
        return Some(("oneOf", format!("allowed oneOf schemas removed: [{removed}]")));
    }
    (!added.is_empty()).then(|| ("oneOf", format!("allowed oneOf schemas added: [{added}]")))
}

fn without_top_texts(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(node) = &mut schema {
        node.retain(|keyword, _| !is_text(keyword));
    }
    schema
}

fn pattern(pair: &mut Pair<'_>) -> CheckResult {
    let (old, new) = pair.take("pattern");
    let text = |value: Option<&Value>| go::quote(value.and_then(Value::as_str).unwrap_or_default());
    let (from, to) = (text(old), text(new));
    let word = match (old, new) {
        (None, Some(_)) => "added",
        (Some(_), None) if !pair.corrected() => "removed",
        (Some(old), Some(new)) if old != new => "changed",
        _ => return None,
    };
    Some(("pattern", format!("pattern {word} : {from} -> {to}")))
}

fn required(pair: &mut Pair<'_>) -> CheckResult {
    let (old, new) = pair.take("required");
    let names =
        |value| -> Vec<String> { items(value).filter_map(Value::as_str).map(str::to_owned).collect() };
    let mut added = missing(&names(old), names(new));
    if pair.corrected() {
        // the apiserver fills a default in before it validates
        let has_default = |name: &String| {
            pair.children.get("properties").and_then(|p| p.get(name)).and_then(|p| p.get("default")).is_some()
        };
        added.retain(|name| !has_default(name));
    }
    added.sort();
    (!added.is_empty()).then(|| ("required", format!("new required fields: [{}]", added.join(" "))))
}

fn type_(pair: &mut Pair<'_>) -> CheckResult {
    let (old, new) = pair.take("type");
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (old, new) = (text(old), text(new));
    (old != new).then(|| ("type", format!("type changed : {} -> {}", go::quote(&old), go::quote(&new))))
}
