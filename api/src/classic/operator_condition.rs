//! `OperatorCondition`: a report of an operator about itself to OLM, such as that it must not be replaced now.
//!
//! Rule: classic-apis §8. `v2` is stored; in [`v1`] the operator writes its conditions into the status.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Unknown, absent};
use crate::Condition;

/// Conditions that the operator and the administrator set.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operators.coreos.com",
    version = "v2",
    kind = "OperatorCondition",
    plural = "operatorconditions",
    singular = "operatorcondition",
    shortname = "condition",
    category = "olm",
    namespaced,
    status = "OperatorConditionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "OperatorCondition is how an operator reports its state to OLM."
)]
pub struct OperatorConditionSpec {
    /// ServiceAccounts of the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub service_accounts: Vec<String>,

    /// Deployments of the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub deployments: Vec<String>,

    /// Conditions that an administrator sets; they win over those of the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub overrides: Vec<Condition>,

    /// Conditions that the operator sets.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<Condition>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// What OLM took over.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorConditionStatus {
    /// The conditions of the specification, with the generation that they were taken from.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<Condition>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// The old version of the kind, which is served.
pub mod v1 {
    use super::*;

    /// Conditions that the administrator sets.
    #[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[kube(
        group = "operators.coreos.com",
        version = "v1",
        kind = "OperatorCondition",
        plural = "operatorconditions",
        singular = "operatorcondition",
        shortname = "condition",
        category = "olm",
        namespaced,
        status = "OperatorConditionStatus",
        derive = "PartialEq",
        derive = "Default",
        doc = "OperatorCondition is how an operator reports its state to OLM."
    )]
    pub struct OperatorConditionSpec {
        /// ServiceAccounts of the operator.
        #[serde(default, skip_serializing_if = "absent")]
        pub service_accounts: Vec<String>,

        /// Deployments of the operator.
        #[serde(default, skip_serializing_if = "absent")]
        pub deployments: Vec<String>,

        /// Conditions that an administrator sets; they win over those of the operator.
        #[serde(default, skip_serializing_if = "absent")]
        pub overrides: Vec<Condition>,

        /// Fields that are not known here.
        #[serde(flatten)]
        #[schemars(skip)]
        pub unknown: Unknown,
    }

    /// Conditions that the operator sets, as a status.
    #[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct OperatorConditionStatus {
        /// Conditions that the operator sets.
        #[serde(default, skip_serializing_if = "absent")]
        pub conditions: Vec<Condition>,

        /// Fields that are not known here.
        #[serde(flatten)]
        #[schemars(skip)]
        pub unknown: Unknown,
    }
}
