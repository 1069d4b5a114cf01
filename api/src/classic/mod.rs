//! The kinds of OLM Classic, group `operators.coreos.com`, as Rust types; [`crds`] has their definitions.
//!
//! Empty text, lists and maps are absent, as in Go. Each struct keeps fields that it does not know, so what was read and is written again
//! loses nothing. Parts that are handed to Kubernetes as they are (the specification of a Deployment, tolerations, volumes) are JSON: the
//! apiserver that receives them knows its own version best. Phases, states and reasons are plain text here.
//!
//! Rule: classic-apis §1.

pub mod catalog_source;
pub mod cluster_service_version;
mod definitions;
pub mod install_plan;
pub mod observe;
pub mod olm_config;
pub mod operator;
pub mod operator_condition;
pub mod operator_group;
pub mod package_manifest;
mod schema;
pub mod subscription;

use std::collections::BTreeMap;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ConditionStatus;

pub use catalog_source::{CatalogSource, CatalogSourceSpec, CatalogSourceStatus};
pub use cluster_service_version::{
    ClusterServiceVersion, ClusterServiceVersionSpec, ClusterServiceVersionStatus,
};
pub use definitions::crds;
pub use install_plan::{InstallPlan, InstallPlanSpec, InstallPlanStatus};
pub use olm_config::{OlmConfig, OlmConfigSpec, OlmConfigStatus};
pub use operator::{Operator, OperatorSpec, OperatorStatus};
pub use operator_condition::{OperatorCondition, OperatorConditionSpec, OperatorConditionStatus};
pub use operator_group::{OperatorGroup, OperatorGroupSpec, OperatorGroupStatus};
pub use package_manifest::PackageManifest;
pub use subscription::{Subscription, SubscriptionSpec, SubscriptionStatus};

/// The API group of all kinds here but `PackageManifest`.
pub const GROUP: &str = "operators.coreos.com";

/// Fields that a type does not know, as they were read.
pub type Unknown = BTreeMap<String, Value>;

/// Whether a field is not written.
fn absent<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An icon.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Icon {
    /// The image, in base64.
    pub base64data: String,

    /// Its media type.
    pub mediatype: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// One observation, with the time when it was last written.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassicCondition {
    /// What is observed.
    pub type_: String,

    /// True, False or Unknown.
    pub status: ConditionStatus,

    /// Why `status` has its value, in CamelCase.
    #[serde(default, skip_serializing_if = "absent")]
    pub reason: String,

    /// Explanation for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub message: String,

    /// When the observation was last written.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_update_time: Option<Time>,

    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_transition_time: Option<Time>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
