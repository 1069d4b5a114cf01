//! `OperatorCondition`: a report of an operator about itself to OLM, such as that it must not be replaced now.
//!
//! Rule: classic-apis §8. `v2` is stored; in `v1` the operator writes its conditions into the status.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Time, Unknown, absent};
use crate::{Condition, ConditionStatus};

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
    pub overrides: Vec<Override>,

    /// Conditions that the operator sets.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<Condition>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A condition that an administrator sets.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// When `status` last changed; a new message or reason alone does not move it.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_transition_time: Option<Time>,

    /// Explanation for people; may be empty.
    #[schemars(length(max = 32768))]
    pub message: String,

    /// The `metadata.generation` that this observation is about; older than the object's means out of date.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// One CamelCase word, the cause of the value of `status`; programs may match on it.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,

    /// Whether the observation holds: True, False, or Unknown when it could not be made.
    pub status: ConditionStatus,

    /// What is observed, in CamelCase; each type occurs at most once.
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    #[serde(rename = "type")]
    pub type_: String,
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
