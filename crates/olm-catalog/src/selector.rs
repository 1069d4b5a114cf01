//! Label selectors, checked as Kubernetes checks them.
//!
//! The error messages are those of the Kubernetes libraries, because users see them in the `Progressing` condition.
//! Rule: operator-controller §4.1.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ParseExpressionError, Selector};
use olm_core::dns;

/// Checks `selector`; absent or empty selects everything.
///
/// # Errors
/// The Kubernetes error message for the first invalid requirement (labels in key order, then expressions).
pub fn parse_selector(selector: Option<&LabelSelector>) -> Result<Selector, String> {
    let Some(selector) = selector else { return Ok(Selector::default()) };
    for (key, value) in selector.match_labels.iter().flatten() {
        check(key, std::slice::from_ref(value), None)?;
    }
    for expression in selector.match_expressions.iter().flatten() {
        let values = expression.values.as_deref().unwrap_or_default();
        let set = match expression.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                Some("[]: for 'in', 'notin' operators, values set can't be empty".to_owned())
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let shown = serde_json::to_string(values).unwrap_or_default();
                Some(format!("{shown}: values set must be empty for exists and does not exist"))
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
            other => return Err(format!("{other:?} is not a valid label selector operator")),
        };
        check(&expression.key, values, set)?;
    }
    selector.clone().try_into().map_err(|error: ParseExpressionError| error.to_string())
}

/// `set` is the problem with the number of values.
fn check(key: &str, values: &[String], set: Option<String>) -> Result<(), String> {
    let mut problems = Vec::new();
    let about_key = qualified_name_problems(key);
    if !about_key.is_empty() {
        problems.push(format!("key: Invalid value: {key:?}: {}", about_key.join("; ")));
    }
    problems.extend(set.map(|problem| format!("values: Invalid value: {problem}")));
    for (index, value) in values.iter().enumerate() {
        let about_value = label_value_problems(value);
        if !about_value.is_empty() {
            let about_value = about_value.join("; ");
            problems.push(format!("values[{index}][{key}]: Invalid value: {value:?}: {about_value}"));
        }
    }
    match problems.len() {
        0 => Ok(()),
        1 => Err(problems.remove(0)),
        _ => Err(format!("[{}]", problems.join(", "))),
    }
}

const NAME_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn qualified_name_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else if prefix.len() > 253 {
                problems.push("prefix part must be no more than 253 characters".to_owned());
            } else if !dns::is_subdomain(prefix) {
                problems.push(format!("prefix part {}", dns::SHAPE));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a qualified name {NAME_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 characters".to_owned());
    }
    if !dns::is_label_value(name) {
        problems.push(format!("name part {NAME_TEXT}"));
    }
    problems
}

fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if !value.is_empty() && !dns::is_label_value(value) {
        problems.push(VALUE_TEXT.to_owned());
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt as _;

    use super::*;

    fn parse(json: serde_json::Value) -> Result<Selector, String> {
        parse_selector(Some(&serde_json::from_value(json).unwrap()))
    }

    #[test]
    #[rustfmt::skip]
    fn selector_matches_as_kubernetes() {
        let labels: BTreeMap<String, String> =
            [("tier", "gold"), ("team", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (json, want) in [
            (serde_json::json!({}), true),
            (serde_json::json!({"matchLabels": {"tier": "gold"}}), true),
            (serde_json::json!({"matchLabels": {"tier": "silver"}}), false),
            (serde_json::json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "x"]}]}), true),
            (serde_json::json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}), false),
            (serde_json::json!({"matchExpressions": [{"key": "nope", "operator": "NotIn", "values": ["gold"]}]}), true),
            (serde_json::json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]}), true),
            (serde_json::json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}), false),
        ] {
            assert_eq!(parse(json.clone()).unwrap().matches(&labels), want, "{json}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn selector_errors_are_those_of_kubernetes() {
        for (json, want) in [
            (serde_json::json!({"matchExpressions": [{"key": "tier", "operator": "bad"}]}),
                "\"bad\" is not a valid label selector operator"),
            (serde_json::json!({"matchLabels": {"": "value"}}), "key: Invalid value: \"\": name part must be non-empty"),
            (serde_json::json!({"matchLabels": {"name": "&value"}}), "values[0][name]: Invalid value: \"&value\": a valid label must be"),
            (serde_json::json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "values: Invalid value: []: for 'in', 'notin' operators"),
            (serde_json::json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
                "values: Invalid value: [\"x\"]: values set must be empty"),
            (serde_json::json!({"matchLabels": {"A_/b": "v"}}), "key: Invalid value: \"A_/b\": prefix part"),
            (serde_json::json!({"matchLabels": {"a/b/c": "v"}}), "key: Invalid value: \"a/b/c\": a qualified name"),
        ] {
            let text = parse(json.clone()).unwrap_err();
            assert!(text.starts_with(want), "{json}: {text}");
        }
    }
}
