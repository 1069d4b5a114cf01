//! `OperatorGroup`: the namespaces that the operators of a namespace watch.
//!
//! Rule: classic-apis §7. `v1` is stored; `v1alpha2` has the same fields without `upgradeStrategy` and conditions.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Unknown, absent, schema};
use crate::Condition;

/// The namespaces, and the account that installs.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operators.coreos.com",
    version = "v1",
    kind = "OperatorGroup",
    plural = "operatorgroups",
    singular = "operatorgroup",
    shortname = "og",
    category = "olm",
    namespaced,
    status = "OperatorGroupStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "OperatorGroup selects the namespaces that the operators of its namespace watch."
)]
pub struct OperatorGroupSpec {
    /// Selects the namespaces by label.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<LabelSelector>,

    /// The namespaces; they win over `selector`. Without both, all namespaces.
    #[serde(default, skip_serializing_if = "absent")]
    pub target_namespaces: Vec<String>,

    /// The ServiceAccount that installs, in the namespace of the group.
    #[serde(default, skip_serializing_if = "absent")]
    pub service_account_name: String,

    /// Keeps the annotation `olm.providedAPIs` as it is.
    #[serde(rename = "staticProvidedAPIs", default, skip_serializing_if = "absent")]
    pub static_provided_apis: Option<bool>,

    /// `Default`, or `TechPreviewUnsafeFailForward`: failed versions may be replaced.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::upgrade_strategy")]
    pub upgrade_strategy: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// The namespaces, as they were resolved.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorGroupStatus {
    /// The namespaces; one empty name for all.
    #[serde(default, skip_serializing_if = "absent")]
    pub namespaces: Vec<String>,

    /// The ServiceAccount that installs.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::object")]
    pub service_account_ref: Option<ObjectReference>,

    /// When the status was written.
    pub last_updated: Time,

    /// Observations: MultipleOperatorGroup, OperatorGroupServiceAccount.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<Condition>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
