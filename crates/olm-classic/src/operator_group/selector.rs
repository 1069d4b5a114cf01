//! The label selector of an operator group.

use std::collections::BTreeMap;

use olm_api::classic::OperatorGroup;
use olm_core::dns;
use olm_rollout::probe::{LabelSelector, Requirement};

/// Longest name and value of a label, in bytes.
const MAX_LABEL: usize = 63;
/// Longest prefix of a label's key, in bytes.
const MAX_PREFIX: usize = 253;

/// Reads `spec.selector`; `None` when it is absent or empty.
///
/// # Errors
/// The field, its problem and the fix.
pub(super) fn read(group: &OperatorGroup) -> Result<Option<LabelSelector>, String> {
    let Some(selector) = &group.spec.selector else { return Ok(None) };
    let mut parsed = LabelSelector::default();
    for (key, value) in selector.match_labels.iter().flatten() {
        check_key(key).map_err(|problem| format!("spec.selector.matchLabels: {problem}"))?;
        check_value(value).map_err(|problem| format!("spec.selector.matchLabels[{key:?}]: {problem}"))?;
        parsed.equal.insert(key.clone(), value.clone());
    }
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let values = expression.values.as_deref().unwrap_or_default();
        let requirement = check_key(&expression.key)
            .and_then(|()| values.iter().try_for_each(|value| check_value(value)))
            .and_then(|()| Requirement::parse(&expression.key, &expression.operator, values));
        parsed.expressions.push(requirement.map_err(|problem| {
            format!(
                "spec.selector.matchExpressions[{index}]: {problem}; use In or NotIn with values, Exists or DoesNotExist without"
            )
        })?);
    }
    Ok((parsed != LabelSelector::default()).then_some(parsed))
}

/// Whether a namespace with these labels is selected.
pub(super) fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.matches(&labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
}

fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| {
        !prefix.is_empty() && prefix.len() <= MAX_PREFIX && olm_core::dns_subdomain(prefix) == prefix
    };
    if is_name(name) && prefix.is_none_or(is_prefix) {
        Ok(())
    } else {
        Err(format!("{key:?} is no key of a label; write it like example.com/name"))
    }
}

fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is no value of a label; use at most {MAX_LABEL} letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    ))
}

fn is_name(text: &str) -> bool {
    text.len() <= MAX_LABEL && dns::is_label_value(text)
}
