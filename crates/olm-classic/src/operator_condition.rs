//! OperatorConditions: the upgrade gate, overrides, roles and environment.
//!
//! Rule: classic-apis §8.

use olm_api::classic::{
    ClusterServiceVersion, OperatorCondition, OperatorConditionSpec, OperatorConditionStatus,
};
use olm_api::{Condition, ConditionStatus};
use olm_core::Object;
use serde_json::{Value, json};

use crate::operator_group::keys::MANAGED;
use crate::operator_group::owner_reference;

/// The environment variable in all containers of an operator's Deployments; its value is the name of the condition, which is that of the
/// CSV.
pub(crate) const ENVIRONMENT: &str = "OPERATOR_CONDITION_NAME";
/// The condition type that holds upgrades.
pub(crate) const UPGRADEABLE: &str = "Upgradeable";

const API_VERSION: &str = "operators.coreos.com/v2";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The ServiceAccounts of a CSV: those of its cluster permissions, then those of its permissions, repeated where both name one; `default`
/// without any. Accounts that only Deployments name do not count.
#[must_use]
pub fn service_accounts(csv: &ClusterServiceVersion) -> Vec<String> {
    let strategy = csv.spec.install.spec.iter();
    let permissions = strategy.flat_map(|it| it.cluster_permissions.iter().chain(&it.permissions));
    let accounts: Vec<String> = permissions.map(|it| it.service_account_name.clone()).collect();
    if accounts.is_empty() { vec!["default".to_owned()] } else { accounts }
}

/// The names of a CSV's Deployments, in its order.
#[must_use]
pub fn deployments(csv: &ClusterServiceVersion) -> Vec<String> {
    csv.spec.install.spec.iter().flat_map(|it| &it.deployments).map(|it| it.name.clone()).collect()
}

/// The condition that is created for a CSV, owned by it.
#[must_use]
pub fn object(csv: &ClusterServiceVersion) -> OperatorCondition {
    let name = csv.metadata.name.as_deref().unwrap_or_default();
    let spec = OperatorConditionSpec {
        service_accounts: service_accounts(csv),
        deployments: deployments(csv),
        ..OperatorConditionSpec::default()
    };
    let mut condition = OperatorCondition::new(name, spec);
    condition.metadata.namespace = csv.metadata.namespace.clone();
    let uid = csv.metadata.uid.as_deref().unwrap_or_default();
    let owner = owner_reference("operators.coreos.com/v1alpha1", "ClusterServiceVersion", name, uid, true);
    condition.metadata.owner_references = serde_json::from_value(json!([owner])).ok();
    condition
}

/// The specification of an existing condition with the accounts and Deployments of its CSV; `None` when it has them. What the operator and
/// the administrator wrote stays.
#[must_use]
pub fn repaired(condition: &OperatorCondition, csv: &ClusterServiceVersion) -> Option<OperatorConditionSpec> {
    let spec = OperatorConditionSpec {
        service_accounts: service_accounts(csv),
        deployments: deployments(csv),
        ..condition.spec.clone()
    };
    (spec != condition.spec).then_some(spec)
}

/// An object of RBAC with the name of the condition, owned by it.
fn owned(condition: &OperatorCondition, kind: &str, members: Vec<(&str, Value)>) -> Object {
    let name = condition.metadata.name.as_deref().unwrap_or_default();
    let uid = condition.metadata.uid.as_deref().unwrap_or_default();
    let metadata = json!({
        "name": name, "namespace": condition.metadata.namespace, "labels": { MANAGED: "true" },
        "ownerReferences": [owner_reference(API_VERSION, "OperatorCondition", name, uid, true)],
    });
    let all = [("apiVersion", RBAC.into()), ("kind", kind.into()), ("metadata", metadata)];
    Object(all.into_iter().chain(members).map(|(key, value)| (key.to_owned(), value)).collect())
}

/// The Role that lets the operator write its condition.
#[must_use]
pub fn role(condition: &OperatorCondition) -> Object {
    let rule = json!({
        "apiGroups": ["operators.coreos.com"], "resources": ["operatorconditions"],
        "resourceNames": [condition.metadata.name], "verbs": ["get", "update", "patch"],
    });
    owned(condition, "Role", vec![("rules", json!([rule]))])
}

/// The binding of that Role to the ServiceAccounts of the condition, which are those of its namespace.
#[must_use]
pub fn role_binding(condition: &OperatorCondition) -> Object {
    let subjects = condition.spec.service_accounts.iter();
    let subjects: Value =
        subjects.map(|account| json!({ "kind": "ServiceAccount", "name": account })).collect();
    let role = json!({
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": condition.metadata.name,
    });
    owned(condition, "RoleBinding", vec![("roleRef", role), ("subjects", subjects)])
}

/// The status with the conditions of the specification, which count for the present generation; `None` when it has them. Conditions of other
/// types stay: operators that use v1 write them into the status themselves.
#[must_use]
pub fn status(condition: &OperatorCondition) -> Option<OperatorConditionStatus> {
    let before = condition.status.clone().unwrap_or_default();
    let mut status = before.clone();
    for reported in &condition.spec.conditions {
        let reported = Condition { observed_generation: condition.metadata.generation, ..reported.clone() };
        match status.conditions.iter_mut().find(|it| it.type_ == reported.type_) {
            Some(present) => *present = reported,
            None => status.conditions.push(reported),
        }
    }
    (status != before).then_some(status)
}

/// Why the operator of a condition must not be replaced now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotUpgradeable {
    /// The operator, or an override, reports False, with this message.
    #[error("the operator is not upgradeable: {0}")]
    Reported(String),
    /// The status is about an older generation of the condition.
    #[error("the operatorcondition status \"Upgradeable\"=\"{}\" is outdated", .0.as_str())]
    Outdated(ConditionStatus),
}

/// The upgrade gate: whether the operator of this condition may be replaced by a newer version. An override of the administrator wins in both
/// directions: it permits if it is True, while the operator holds back if it reports False. Without an observation, or without the condition,
/// it may.
///
/// # Errors
/// Why the new version has to wait; its message is `operator is not upgradeable: ` and this.
pub fn upgradeable(condition: Option<&OperatorCondition>) -> Result<(), NotUpgradeable> {
    let Some(condition) = condition else { return Ok(()) };
    let held = |message: &str| Err(NotUpgradeable::Reported(message.to_owned()));
    if let Some(set) = condition.spec.overrides.iter().find(|it| it.type_ == UPGRADEABLE) {
        return match set.status {
            ConditionStatus::True => Ok(()),
            ConditionStatus::False | ConditionStatus::Unknown => held(&set.message),
        };
    }
    let mut reported = condition.status.iter().flat_map(|status| &status.conditions);
    let Some(reported) = reported.find(|it| it.type_ == UPGRADEABLE) else {
        return Ok(());
    };
    if reported.observed_generation.unwrap_or_default() < condition.metadata.generation.unwrap_or_default() {
        return Err(NotUpgradeable::Outdated(reported.status));
    }
    match reported.status {
        ConditionStatus::True | ConditionStatus::Unknown => Ok(()),
        ConditionStatus::False => held(&reported.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(generation: i64, spec: Value, status: Value) -> OperatorCondition {
        let metadata = json!({ "name": "demo.v1", "namespace": "ns", "generation": generation });
        let object = json!({
            "apiVersion": API_VERSION, "kind": "OperatorCondition", "metadata": metadata, "spec": spec, "status": {"conditions": status},
        });
        serde_json::from_value(object).unwrap()
    }

    fn entry(status: &str, message: &str, generation: Option<i64>) -> Value {
        let mut entry = json!({
            "type": UPGRADEABLE, "status": status, "message": message, "reason": "Some", "lastTransitionTime": "2024-01-01T00:00:00Z",
        });
        if let Some(generation) = generation {
            entry["observedGeneration"] = generation.into();
        }
        entry
    }

    /// rule: classic-apis §8
    #[test]
    #[rustfmt::skip]
    fn condition_gate_holds_upgrades() {
        assert_eq!(upgradeable(None), Ok(()));
        // administrators leave the time out
        let overridden = |status: &str| {
            let set = json!({ "type": UPGRADEABLE, "status": status, "reason": "Some", "message": "set" });
            json!({ "overrides": [set] })
        };
        let outdated = |status: &str| {
            Some(format!("the operatorcondition status \"Upgradeable\"=\"{status}\" is outdated"))
        };
        let held = |text: &str| Some(format!("the operator is not upgradeable: {text}"));
        for (name, spec, status, want) in [
            ("nothing reported", json!({}), json!([]), None),
            ("another type", json!({}),
                json!([{ "type": "Other", "status": "False", "reason": "A", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z" }]),
                None),
            ("true", json!({}), json!([entry("True", "go", Some(3))]), None),
            ("false", json!({}), json!([entry("False", "not now", Some(3))]), held("not now")),
            ("unknown", json!({}), json!([entry("Unknown", "who", Some(3))]), None),
            ("older generation, false", json!({}), json!([entry("False", "x", Some(2))]), outdated("False")),
            ("older generation, true", json!({}), json!([entry("True", "x", Some(2))]), outdated("True")),
            ("written by v1 without generation", json!({}), json!([entry("True", "x", None)]), outdated("True")),
            ("override lets through", overridden("True"), json!([entry("False", "x", Some(3))]), None),
            ("override holds", overridden("False"), json!([entry("True", "x", Some(3))]), held("set")),
            ("override unknown", overridden("Unknown"), json!([entry("True", "x", Some(3))]), held("set")),
            ("override of an outdated one", overridden("True"), json!([entry("False", "x", Some(1))]), None),
        ] {
            let got = upgradeable(Some(&condition(3, spec, status))).err().map(|error| error.to_string());
            assert_eq!(got, want, "{name}");
        }
    }

    /// rule: classic-apis §8
    #[test]
    fn condition_status_takes_the_spec_with_its_generation() {
        let spec = json!({ "conditions": [entry("False", "not now", None)] });
        let first = status(&condition(2, spec.clone(), json!([]))).unwrap();
        assert_eq!(
            serde_json::to_value(&first).unwrap(),
            json!({ "conditions": [entry("False", "not now", Some(2))] })
        );
        let same = json!([entry("False", "not now", Some(2))]);
        assert_eq!(status(&condition(2, spec.clone(), same.clone())), None);
        let newer = status(&condition(3, spec, same)).unwrap();
        assert_eq!(newer.conditions[0].observed_generation, Some(3));
        let of_v1 = json!([entry("True", "written by the operator", None)]);
        assert_eq!(status(&condition(2, json!({}), of_v1)), None);
    }

    fn csv(install: Value) -> ClusterServiceVersion {
        let object = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": { "name": "demo.v1", "namespace": "ns", "uid": "u" },
            "spec": { "displayName": "demo", "install": { "strategy": "deployment", "spec": install } },
        });
        serde_json::from_value(object).unwrap()
    }

    /// rule: classic-apis §8
    #[test]
    fn condition_lists_accounts_as_often_as_the_csv() {
        let rights = |names: &[&str]| -> Value {
            names.iter().map(|name| json!({ "serviceAccountName": name, "rules": [] })).collect()
        };
        for (permissions, cluster, want) in [
            (rights(&[]), rights(&[]), vec!["default"]),
            (rights(&["a"]), rights(&["a"]), vec!["a", "a"]),
            (rights(&["e", "b"]), rights(&["d", "c", "b"]), vec!["d", "c", "b", "e", "b"]),
        ] {
            let install = json!({"deployments": [{"name": "one", "spec": {}}], "permissions": permissions, "clusterPermissions": cluster});
            let made = object(&csv(install));
            assert_eq!(
                (made.spec.service_accounts, made.spec.deployments),
                (want.iter().map(|&it| it.to_owned()).collect(), vec!["one".to_owned()])
            );
        }
    }

    /// rule: classic-apis §8
    #[test]
    fn condition_edits_of_accounts_are_undone() {
        let csv = csv(json!({ "deployments": [{ "name": "one", "spec": {} }] }));
        let mut made = object(&csv);
        assert_eq!(repaired(&made, &csv), None);
        made.spec.overrides = serde_json::from_value(json!([entry("True", "x", None)])).unwrap();
        let good = made.spec.clone();
        made.spec.service_accounts.clear();
        made.spec.deployments.push("two".to_owned());
        assert_eq!(repaired(&made, &csv), Some(good));
    }
}
