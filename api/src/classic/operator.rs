//! `Operator`: all objects of an operator, found by a label.
//!
//! Rule: classic-apis §1, §12.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClassicCondition, Unknown, absent, schema};

/// Nothing: an Operator reports in its status.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operators.coreos.com",
    version = "v1",
    kind = "Operator",
    plural = "operators",
    singular = "operator",
    category = "olm",
    status = "OperatorStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Operator lists the objects of an operator."
)]
pub struct OperatorSpec {
    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// The objects.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorStatus {
    /// The objects, and how they are found.
    #[serde(default, skip_serializing_if = "absent")]
    pub components: Option<Components>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Objects of an operator.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Components {
    /// Selects the objects.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::selector")]
    pub label_selector: Option<LabelSelector>,

    /// The objects.
    #[serde(default, skip_serializing_if = "absent")]
    pub refs: Vec<RichReference>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// An object, with its conditions.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RichReference {
    /// Its API version.
    #[serde(default, skip_serializing_if = "absent")]
    pub api_version: String,

    /// Its kind.
    #[serde(default, skip_serializing_if = "absent")]
    pub kind: String,

    /// Its name.
    #[serde(default, skip_serializing_if = "absent")]
    pub name: String,

    /// Its namespace.
    #[serde(default, skip_serializing_if = "absent")]
    pub namespace: String,

    /// Its UID.
    #[serde(default, skip_serializing_if = "absent")]
    pub uid: String,

    /// Its version.
    #[serde(default, skip_serializing_if = "absent")]
    pub resource_version: String,

    /// A part of it.
    #[serde(default, skip_serializing_if = "absent")]
    pub field_path: String,

    /// Its conditions.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<ClassicCondition>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
