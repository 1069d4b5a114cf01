//! The assertions of a probe about an object. The messages are part of the contract.
//!
//! Rule: revisions §8.3; numbers and booleans equal the text that prints them (§17 row 17).

use olm_core::{Object, go};
use serde_json::Value;

use super::{NO_CONDITIONS, NULL_CONDITIONS, ProbeResult};

/// One assertion. Paths are alphanumeric segments separated by dots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assertion {
    /// A condition of this type has this status.
    ConditionEqual {
        /// Type of the condition.
        condition: String,
        /// `True` or `False`.
        status: String,
    },
    /// Two fields are there and equal.
    FieldsEqual { a: String, b: String },
    FieldValue {
        path: String,
        /// Expected value, as text.
        value: String,
    },
}

impl Assertion {
    pub fn check(&self, object: &Object) -> ProbeResult {
        match self {
            Self::ConditionEqual { condition, status } => condition_equal(object, condition, status),
            Self::FieldsEqual { a, b } => fields_equal(object, a, b),
            Self::FieldValue { path, value } => field_value(object, path, value),
        }
    }
}

fn condition_equal(object: &Object, type_: &str, status: &str) -> ProbeResult {
    let Some(conditions) = object.0.get("status").and_then(|status| status.get("conditions")) else {
        return ProbeResult::unknown(NO_CONDITIONS);
    };
    let Some(conditions) = conditions.as_array() else {
        return ProbeResult::unknown(NULL_CONDITIONS);
    };
    let generation = object
        .metadata()
        .and_then(|metadata| metadata.get("generation"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    for condition in conditions {
        let Some(condition) = condition.as_object() else {
            return ProbeResult::unknown(NULL_CONDITIONS);
        };
        let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("type") != type_ {
            continue;
        }
        let observed = condition.get("observedGeneration").and_then(Value::as_i64);
        if observed.is_some_and(|observed| observed != generation) {
            return ProbeResult::unknown(format!(".status.condition[{type_:?}] outdated"));
        }
        let actual = text("status");
        let found = format!(".status.condition[{type_:?}] is {actual}");
        return if actual == status { ProbeResult::holds(found) } else { ProbeResult::no(found) };
    }
    ProbeResult::unknown(format!("missing .status.condition[{type_:?}]"))
}

fn fields_equal(object: &Object, a: &str, b: &str) -> ProbeResult {
    match (locate(object, a), locate(object, b)) {
        (Ok(Some(left)), Ok(Some(right))) if left == right => ProbeResult::holds(format!("{a:?} == {b:?}")),
        (Ok(Some(left)), Ok(Some(right))) => ProbeResult::no(format!(
            "{a:?} != {b:?} expected: {} got: {}",
            go::json_string(left),
            go::json_string(right)
        )),
        (Ok(Some(_)), _) => ProbeResult::no(format!("{b:?} missing")),
        _ => ProbeResult::no(format!("{a:?} missing")),
    }
}

fn field_value(object: &Object, path: &str, expected: &str) -> ProbeResult {
    match locate(object, path) {
        Err(problem) => ProbeResult::no(format!("error locating key {path:?}; {problem}")),
        Ok(None) => ProbeResult::no(format!("missing key: {path:?}")),
        Ok(Some(value)) if is_text(value, expected) => {
            ProbeResult::holds(format!("value at key {path:?} == {expected:?}"))
        }
        Ok(Some(value)) => ProbeResult::no(format!(
            "value at key {path:?} != {expected:?}; expected: {expected:?} got: {}",
            go::json_string(value)
        )),
    }
}

fn is_text(value: &Value, expected: &str) -> bool {
    match value {
        Value::String(text) => text == expected,
        Value::Number(_) | Value::Bool(_) => go::json_string(value) == expected,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// The value at a dotted path: `None` when missing, an error when a step on the way is no object.
fn locate<'a>(object: &'a Object, path: &str) -> Result<Option<&'a Value>, String> {
    let mut steps = path.trim_start_matches('.').split('.');
    let Some(mut value) = steps.next().and_then(|first| object.0.get(first)) else {
        return Ok(None);
    };
    let mut walked = String::new();
    for (done, step) in path.trim_start_matches('.').split('.').zip(steps) {
        walked.push('.');
        walked.push_str(done);
        let kind = match value {
            Value::Object(members) => match members.get(step) {
                Some(member) => {
                    value = member;
                    continue;
                }
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            Value::Bool(_) => "bool",
            Value::Number(number) if number.is_f64() => "float64",
            Value::Number(_) => "int64",
            Value::String(_) => "string",
            Value::Array(_) => "[]interface {}",
        };
        return Err(format!(
            "{walked}.{step} accessor error: {} is of the type {kind}, expected map[string]interface{{}}",
            value.as_str().map_or_else(|| go::json_string(value), str::to_owned)
        ));
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Ready, test_object};
    use serde_json::json;

    /// rule: revisions §8.3, every row
    #[test]
    #[rustfmt::skip]
    fn probe_assertions_table() {
        let condition = || Assertion::ConditionEqual { condition: "T".into(), status: "True".into() };
        let fields = || Assertion::FieldsEqual { a: "status.a".into(), b: "status.b".into() };
        let value = || Assertion::FieldValue { path: "status.phase".into(), value: "Bound".into() };
        let number = || Assertion::FieldValue { path: "status.n".into(), value: "3".into() };
        let flag = || Assertion::FieldValue { path: "status.f".into(), value: "true".into() };
        for (assertion, status, ready, message) in [
            (condition(), json!({}), Ready::Unknown, "missing .status.conditions"),
            (condition(), json!({"conditions": {}}), Ready::Unknown, "malformed .status.conditions"),
            (condition(), json!({"conditions": ["x"]}), Ready::Unknown, "malformed .status.conditions"),
            (condition(), json!({"conditions": []}), Ready::Unknown, r#"missing .status.condition["T"]"#),
            (condition(), json!({"conditions": [{"type": "U", "status": "True"}]}), Ready::Unknown, r#"missing .status.condition["T"]"#),
            (condition(), json!({"conditions": [{"type": "T", "status": "True", "observedGeneration": 1}]}), Ready::Unknown,
                r#".status.condition["T"] outdated"#),
            (condition(), json!({"conditions": [{"type": "T", "status": "True", "observedGeneration": 2}]}), Ready::Yes,
                r#".status.condition["T"] is True"#),
            (condition(), json!({"conditions": [{"type": "T", "status": "Unknown"}]}), Ready::No, r#".status.condition["T"] is Unknown"#),
            (fields(), json!({}), Ready::No, r#""status.a" missing"#),
            (fields(), json!({"a": 1}), Ready::No, r#""status.b" missing"#),
            (fields(), json!({"a": {"x": [1]}, "b": {"x": [1]}}), Ready::Yes, r#""status.a" == "status.b""#),
            (fields(), json!({"a": 1, "b": "<"}), Ready::No, r#""status.a" != "status.b" expected: 1 got: "\u003c""#),
            (value(), json!({}), Ready::No, r#"missing key: "status.phase""#),
            (value(), json!(null), Ready::No, r#"missing key: "status.phase""#),
            (
                value(),
                json!("text"),
                Ready::No,
                r#"error locating key "status.phase"; .status.phase accessor error: text is of the type string, expected map[string]interface{}"#,
            ),
            (value(), json!({"phase": "Bound"}), Ready::Yes, r#"value at key "status.phase" == "Bound""#),
            (value(), json!({"phase": "Pending"}), Ready::No,
                r#"value at key "status.phase" != "Bound"; expected: "Bound" got: "Pending""#),
            (value(), json!({"phase": {"a": 1}}), Ready::No, r#"value at key "status.phase" != "Bound"; expected: "Bound" got: {"a":1}"#),
            (number(), json!({"n": 3}), Ready::Yes, r#"value at key "status.n" == "3""#),
            (number(), json!({"n": 4}), Ready::No, r#"value at key "status.n" != "3"; expected: "3" got: 4"#),
            (flag(), json!({"f": true}), Ready::Yes, r#"value at key "status.f" == "true""#),
            (flag(), json!({"f": false}), Ready::No, r#"value at key "status.f" != "true"; expected: "true" got: false"#),
        ] {
            let object = test_object(json!({"metadata": {"generation": 2}, "status": status}));
            let got = assertion.check(&object);
            assert_eq!(
                (got.ready, got.messages.join("|").as_str()),
                (ready, message),
                "{assertion:?} on {status}"
            );
        }
        let bare = test_object(json!({}));
        assert_eq!(value().check(&bare), ProbeResult::no(r#"missing key: "status.phase""#));
    }
}
