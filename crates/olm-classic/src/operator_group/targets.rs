//! The namespaces that an operator group selects (classic-apis §7.1).

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::OperatorGroup;
use serde_json::{Value, json};

use super::api::ApiSet;
use super::status::is_account_missing;
use super::{keys, selector};

/// Names and labels of the namespaces of a cluster.
pub type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// A field of an operator group that OLM cannot act on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operatorgroup {namespace}/{name}: {problem}")]
pub struct GroupError {
    pub namespace: String,
    pub name: String,
    /// The field, what is wrong with it, and the fix.
    pub problem: String,
}

impl GroupError {
    fn new(group: &OperatorGroup, problem: String) -> Self {
        Self { namespace: namespace(group).to_owned(), name: name(group).to_owned(), problem }
    }
}

/// The name of a group, empty if it has none.
pub(super) fn name(group: &OperatorGroup) -> &str {
    group.metadata.name.as_deref().unwrap_or_default()
}

/// The namespace of a group, empty if it has none.
pub(super) fn namespace(group: &OperatorGroup) -> &str {
    group.metadata.namespace.as_deref().unwrap_or_default()
}

/// The namespaces of a group, sorted, for `status.namespaces`: one empty name for all of them, no name when its selector matches nothing.
/// A listed namespace counts whether it exists or not.
///
/// # Errors
/// `""` among the listed ones, or a malformed selector.
pub fn resolve(group: &OperatorGroup, namespaces: &Namespaces) -> Result<Vec<String>, GroupError> {
    let listed: BTreeSet<&String> = group.spec.target_namespaces.iter().collect();
    if listed.iter().any(|name| name.is_empty()) {
        let problem = "spec.targetNamespaces: TargetNamespaces cannot contain NamespaceAll; remove \"\", or leave targetNamespaces and selector \
                       out to select all namespaces";
        return Err(GroupError::new(group, problem.to_owned()));
    }
    if !listed.is_empty() {
        return Ok(listed.into_iter().cloned().collect());
    }
    let selector = selector::read(group).map_err(|problem| GroupError::new(group, problem))?;
    let Some(selector) = selector else { return Ok(vec![String::new()]) };
    let selected = namespaces.iter().filter(|(_, labels)| selector::matches(&selector, labels));
    Ok(selected.map(|(name, _)| name.clone()).collect())
}

/// Everything in a group that OLM cannot act on: what [`resolve`] rejects, and entries of `olm.providedAPIs` that are no APIs.
#[must_use]
pub fn lint(group: &OperatorGroup) -> Vec<GroupError> {
    let annotation = group.metadata.annotations.as_ref().and_then(|all| all.get(keys::PROVIDED_APIS));
    let (_, errors) = ApiSet::parse(annotation.map(String::as_str).unwrap_or_default());
    let annotation = errors.into_iter().map(|error| {
        GroupError::new(group, format!("metadata.annotations[{:?}]: {error}", keys::PROVIDED_APIS))
    });
    resolve(group, &Namespaces::new()).err().into_iter().chain(annotation).collect()
}

/// The namespaces of `status.namespaces`, sorted; `None` as long as the group has no status.
#[must_use]
pub fn resolved(group: &OperatorGroup) -> Option<Vec<String>> {
    let namespaces: BTreeSet<&String> = group.status.as_ref()?.namespaces.iter().collect();
    Some(namespaces.into_iter().cloned().collect())
}

/// The namespaces of `status.namespaces`, sorted; `None` as long as they may be others: the group has no status, or none of them because its
/// account has never existed.
#[must_use]
pub fn settled(group: &OperatorGroup) -> Option<Vec<String>> {
    resolved(group).filter(|targets| !(targets.is_empty() && is_account_missing(group)))
}

/// Whether these are all namespaces.
#[must_use]
pub fn is_global(targets: &[String]) -> bool {
    matches!(targets, [only] if only.is_empty())
}

/// The selector of the namespaces whose objects the webhooks of a group's operators see (classic-apis §9), `{}` for all; `None` as long as
/// the targets are not known: the group has no status, or that of an earlier specification.
#[must_use]
pub fn webhook_namespaces(group: &OperatorGroup) -> Option<Value> {
    if is_global(&resolved(group)?) {
        return Some(json!({}));
    }
    if group.spec.target_namespaces.is_empty() {
        return group.spec.selector.as_ref().map(|selector| json!(selector));
    }
    let label = format!("{}{}", keys::GROUP_UID, group.metadata.uid.as_deref().unwrap_or_default());
    Some(json!({ "matchLabels": { label: "" } }))
}

/// Whether the groups have a namespace in common; each counts with its own namespace, and `""` has all in common.
#[must_use]
pub fn intersect(one: &OperatorGroup, other: &OperatorGroup) -> bool {
    let scope = |group: &OperatorGroup| -> BTreeSet<String> {
        let own = std::iter::once(namespace(group).to_owned());
        resolved(group).unwrap_or_default().into_iter().chain(own).collect()
    };
    let (one, other) = (scope(one), scope(other));
    one.contains("") || other.contains("") || !one.is_disjoint(&other)
}

/// A change of the group's label on a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceLabel {
    pub namespace: String,
    /// `olm.operatorgroup.uid/UID`; its value is empty.
    pub label: String,
    /// Whether the label is added; otherwise it is removed.
    pub add: bool,
}

/// What to change so that the targets of the group with this UID, and no other namespaces, have its label. Webhooks of its operators select
/// namespaces by it. A global group labels none.
#[must_use]
pub fn labels(uid: &str, targets: &[String], namespaces: &Namespaces) -> Vec<NamespaceLabel> {
    let label = format!("{}{uid}", keys::GROUP_UID);
    let changes = namespaces.iter().filter_map(|(namespace, labels)| {
        let add = targets.contains(namespace);
        (add != labels.contains_key(&label)).then(|| NamespaceLabel {
            namespace: namespace.clone(),
            label: label.clone(),
            add,
        })
    });
    changes.collect()
}
