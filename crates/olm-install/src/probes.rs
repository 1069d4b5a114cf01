//! The probes of a revision, as the pure engine evaluates them.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use olm_api::cluster_object_set::{Assertion as ApiAssertion, ProbeSelector, ProgressionProbe};
use olm_api::{ClusterObjectSet, labels};
use olm_catalog::parse_selector;
use olm_rollout::probe::{Assertion, Author, LabelSelector, Probe, Requirement, Selector};

/// Who wrote the revision.
#[must_use]
pub fn author(revision: &ClusterObjectSet) -> Author {
    let labels = revision.labels();
    let kind = labels.get(labels::OWNER_KIND).map(String::as_str);
    let named = labels.get(labels::OWNER_NAME).is_some_and(|name| !name.is_empty());
    if kind == Some(labels::OWNER_KIND_CLUSTER_EXTENSION) && named { Author::Extension } else { Author::User }
}

/// The probes of a revision.
///
/// # Errors
/// When a selector or an assertion lacks what its type asks for, or a label selector is invalid.
pub fn probes(probes: &[ProgressionProbe]) -> Result<Vec<Probe>, String> {
    probes
        .iter()
        .map(|probe| {
            let selector = selector(&probe.selector)?;
            let assertions = probe.assertions.iter().map(assertion).collect::<Result<_, _>>()?;
            Ok(Probe { selector, assertions })
        })
        .collect()
}

fn selector(selector: &ProbeSelector) -> Result<Selector, String> {
    if let Some(kind) = &selector.group_kind {
        return Ok(Selector::GroupKind { group: kind.group.clone(), kind: kind.kind.clone() });
    }
    let Some(label) = &selector.label else {
        return Err(format!("unknown progressionProbe selector type: {:?}", selector.type_));
    };
    let expressions = label.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.clone().unwrap_or_default();
        Requirement::parse(&expression.key, &expression.operator, &values)
    });
    let invalid = |problem: String| {
        let shown = serde_json::to_string(label).unwrap_or_default();
        format!("invalid label selector in progressionProbe ({shown}): {problem}")
    };
    // the schema accepts any text as key and value
    parse_selector(Some(label)).map_err(invalid)?;
    let expressions = expressions.collect::<Result<_, _>>().map_err(invalid)?;
    let equal: BTreeMap<String, String> = label.match_labels.clone().unwrap_or_default();
    Ok(Selector::Label(LabelSelector { equal, expressions }))
}

fn assertion(assertion: &ApiAssertion) -> Result<Assertion, String> {
    if let Some(condition) = &assertion.condition_equal {
        let status = format!("{:?}", condition.status);
        return Ok(Assertion::ConditionEqual { condition: condition.type_.clone(), status });
    }
    if let Some(fields) = &assertion.fields_equal {
        return Ok(Assertion::FieldsEqual { a: fields.field_a.clone(), b: fields.field_b.clone() });
    }
    if let Some(field) = &assertion.field_value {
        return Ok(Assertion::FieldValue { path: field.field_path.clone(), value: field.value.clone() });
    }
    Err(format!("unknown progressionProbe assertion probe type: {:?}", assertion.type_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn probes_are_read() {
        let read = |value: serde_json::Value| probes(&[serde_json::from_value(value).unwrap()]);
        let got = read(json!({
            "selector": {"type": "Label", "label": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
            "assertions": [
                {"type": "ConditionEqual", "conditionEqual": {"type": "Ready", "status": "False"}},
                {"type": "FieldsEqual", "fieldsEqual": {"fieldA": "a", "fieldB": "b"}},
                {"type": "FieldValue", "fieldValue": {"fieldPath": "a", "value": "b"}},
            ],
        }))
        .unwrap();
        assert_eq!(got[0].assertions.len(), 3);
        assert_eq!(
            got[0].assertions[0],
            Assertion::ConditionEqual { condition: "Ready".into(), status: "False".into() }
        );
        for (label, want) in [
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Nope"}]}),
                "\"Nope\" is not a valid label selector operator",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (json!({"matchLabels": {"a b": "c"}}), "key: Invalid value: \"a b\": name part must consist of"),
            (json!({"matchLabels": {"a": "&"}}), "values[0][a]: Invalid value: \"&\": a valid label must be"),
        ] {
            let bad = read(json!({"selector": {"type": "Label", "label": label}, "assertions": []}));
            let text = bad.unwrap_err();
            let shown = text.strip_prefix("invalid label selector in progressionProbe ({");
            let problem = shown.and_then(|shown| shown.split_once("}): ")).map(|(_, problem)| problem);
            assert!(problem.is_some_and(|problem| problem.starts_with(want)), "{text}");
        }
    }
}
