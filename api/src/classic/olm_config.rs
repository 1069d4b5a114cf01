//! `OLMConfig`: settings of OLM for the whole cluster, in the one object `cluster`.
//!
//! Rule: classic-apis §10.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Unknown, absent};
use crate::Condition;

/// The settings.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operators.coreos.com",
    version = "v1",
    kind = "OLMConfig",
    root = "OlmConfig",
    plural = "olmconfigs",
    singular = "olmconfig",
    category = "olm",
    status = "OlmConfigStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "OLMConfig has settings of OLM for the whole cluster."
)]
pub struct OlmConfigSpec {
    /// Switches.
    #[serde(default, skip_serializing_if = "absent")]
    pub features: Option<Features>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Switches.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    /// Whether ClusterServiceVersions of operators that watch all namespaces are not copied there.
    #[serde(rename = "disableCopiedCSVs", default, skip_serializing_if = "absent")]
    pub disable_copied_csvs: Option<bool>,

    /// The time between two reads of the catalogs by the package server, such as `60m`.
    #[serde(default, skip_serializing_if = "absent")]
    pub package_server_sync_interval: Option<String>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// What the settings led to.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OlmConfigStatus {
    /// Observations: DisabledCopiedCSVs.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<Condition>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
