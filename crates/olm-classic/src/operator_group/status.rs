//! The status of an operator group (classic-apis §7.1).

use std::borrow::Borrow;

use olm_api::classic::{OperatorGroup, OperatorGroupStatus, Time};
use olm_api::{Condition, ConditionStatus};
use serde_json::json;

use super::account::Account;
use super::targets::{GroupError, Namespaces, namespace, resolve};

/// The condition of a group whose account does not exist.
const ACCOUNT_CONDITION: &str = "OperatorGroupServiceAccount";
/// The condition of a group that is not the only one of its namespace.
const SEVERAL_CONDITION: &str = "MultipleOperatorGroup";

/// Whether the status of a group reports that its account does not exist.
pub(super) fn is_account_missing(group: &OperatorGroup) -> bool {
    let mut conditions = group.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|it| it.type_ == ACCOUNT_CONDITION && it.status == ConditionStatus::True)
}

/// What a group waits for, and what to do; `None` if it does not wait.
///
/// It is the note of the event [`WAITING_EVENT`](crate::install_plan::WAITING_EVENT).
#[must_use]
pub fn group_wait(status: &OperatorGroupStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().filter(|it| it.status == ConditionStatus::True);
    conditions.find_map(|condition| {
        let fix = match condition.type_.as_str() {
            SEVERAL_CONDITION => "delete all but one",
            ACCOUNT_CONDITION => "create it, or change spec.serviceAccountName",
            _ => return None,
        };
        Some(format!("{}; {fix}", condition.message))
    })
}

/// The status that a group gets; `None` when the present one needs no write.
///
/// As long as its account is missing, a group keeps the namespaces that it has: one whose account never existed has none. `groups` are those
/// of the group's namespace, itself among them.
///
/// # Errors
/// When the specification selects no namespaces for a malformed field; the status stays as it is.
pub fn status(
    group: &OperatorGroup,
    groups: &[impl Borrow<OperatorGroup>],
    namespaces: &Namespaces,
    account: &Account,
    now: &Time,
) -> Result<Option<OperatorGroupStatus>, GroupError> {
    let before = group.status.as_ref();
    let reference = match account {
        Account::Unnamed | Account::Missing => None,
        Account::Present { uid, resource_version } => serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "uid": uid, "resourceVersion": resource_version,
            "name": group.spec.service_account_name, "namespace": namespace(group),
        }))
        .ok(),
    };
    let targets = match account {
        Account::Missing => before.map(|status| status.namespaces.clone()).unwrap_or_default(),
        Account::Unnamed | Account::Present { .. } => resolve(group, namespaces)?,
    };
    let several = groups
        .iter()
        .map(Borrow::borrow)
        .filter(|other| namespace(other) == namespace(group))
        .nth(1)
        .is_some();
    let conditions = [
        several.then(|| {
            (
                SEVERAL_CONDITION,
                "MultipleOperatorGroupsFound",
                "Multiple OperatorGroup found in the same namespace".to_owned(),
            )
        }),
        (*account == Account::Missing).then(|| {
            let message = format!("ServiceAccount {} not found", group.spec.service_account_name);
            (ACCOUNT_CONDITION, "ServiceAccountNotFound", message)
        }),
    ];
    let conditions = conditions.into_iter().flatten().map(|(type_, reason, message)| {
        let present = before.and_then(|status| status.conditions.iter().find(|it| it.type_ == type_));
        let since = present.filter(|it| it.status == ConditionStatus::True);
        Condition {
            type_: type_.to_owned(),
            status: ConditionStatus::True,
            reason: reason.to_owned(),
            message,
            observed_generation: None,
            last_transition_time: since.map_or(now, |it| &it.last_transition_time).clone(),
        }
    });
    let mut status = OperatorGroupStatus {
        namespaces: targets,
        service_account_ref: reference,
        last_updated: before.map_or(now, |status| &status.last_updated).clone(),
        conditions: conditions.collect(),
        unknown: before.map(|status| status.unknown.clone()).unwrap_or_default(),
    };
    if before == Some(&status) {
        return Ok(None);
    }
    status.last_updated = now.clone();
    Ok(Some(status))
}
