//! `Subscription`: a package that is to be installed in a namespace, and kept up to date.
//!
//! Rule: classic-apis §3.

#![expect(clippy::duplicated_attributes, reason = "printer columns share argument names")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Unknown, absent, schema};
use crate::ConditionStatus;

/// Which package is installed, from where, and how it is updated.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operators.coreos.com",
    version = "v1alpha1",
    kind = "Subscription",
    plural = "subscriptions",
    singular = "subscription",
    shortname = "sub",
    shortname = "subs",
    category = "olm",
    namespaced,
    status = "SubscriptionStatus",
    derive = "PartialEq",
    doc = "Subscription keeps the operator of a package installed in a namespace and up to date.",
    printcolumn(name = "Package", type_ = "string", json_path = ".spec.name", description = "The package."),
    printcolumn(
        name = "Source",
        type_ = "string",
        json_path = ".spec.source",
        description = "The CatalogSource."
    ),
    printcolumn(
        name = "Channel",
        type_ = "string",
        json_path = ".spec.channel",
        description = "The channel."
    )
)]
pub struct SubscriptionSpec {
    /// The CatalogSource that has the package.
    pub source: String,

    /// The namespace of the CatalogSource.
    pub source_namespace: String,

    /// The package.
    #[serde(rename = "name")]
    pub package: String,

    /// The channel; without it, the default channel of the package.
    #[serde(default, skip_serializing_if = "absent")]
    pub channel: String,

    /// The ClusterServiceVersion to begin with; ignored once one is installed.
    #[serde(rename = "startingCSV", default, skip_serializing_if = "absent")]
    pub starting_csv: String,

    /// `Automatic`, also if it is not set, or `Manual`: each InstallPlan waits until it is approved.
    #[serde(default, skip_serializing_if = "absent")]
    pub install_plan_approval: String,

    /// Settings of the pods of the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub config: Option<SubscriptionConfig>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Settings of the pods of an operator; each replaces or adds to what its ClusterServiceVersion has.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionConfig {
    /// Not used.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<LabelSelector>,

    /// Replaces the node selector; an empty one removes it.
    #[serde(default, skip_serializing_if = "absent")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Tolerations to add.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::objects")]
    pub tolerations: Vec<Value>,

    /// Replaces requests and limits of all containers.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::object")]
    pub resources: Option<Value>,

    /// Sources of environment variables to add to all containers.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::objects")]
    pub env_from: Vec<Value>,

    /// Environment variables of all containers; they replace those of the same name.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::objects")]
    pub env: Vec<Value>,

    /// Volumes of the pods; they replace those of the same name.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::objects")]
    pub volumes: Vec<Value>,

    /// Mounts of all containers; they replace those of the same name.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::objects")]
    pub volume_mounts: Vec<Value>,

    /// Scheduling constraints; a part that is not set keeps the original, an empty one removes it.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::object")]
    pub affinity: Option<Value>,

    /// Annotations to add to Deployments, pods and APIServices.
    #[serde(default, skip_serializing_if = "absent")]
    pub annotations: BTreeMap<String, String>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// What is installed, and what comes next.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionStatus {
    /// The ClusterServiceVersion that is installed next, or the newest one.
    #[serde(rename = "currentCSV", default, skip_serializing_if = "absent")]
    pub current_csv: String,

    /// The ClusterServiceVersion that is installed.
    #[serde(rename = "installedCSV", default, skip_serializing_if = "absent")]
    pub installed_csv: String,

    /// The InstallPlan of `currentCSV`, in the old form.
    #[serde(rename = "installplan", default, skip_serializing_if = "absent")]
    pub install_plan: Option<InstallPlanReference>,

    /// `UpgradeAvailable`, `UpgradePending`, `AtLatestKnown`, `UpgradeFailed`; empty for a new one.
    #[serde(default, skip_serializing_if = "absent")]
    pub state: String,

    /// Why `state` has its value.
    #[serde(default, skip_serializing_if = "absent")]
    pub reason: String,

    /// The generation of the InstallPlan of `currentCSV`.
    #[serde(default, skip_serializing_if = "absent")]
    pub install_plan_generation: Option<i64>,

    /// The InstallPlan of `currentCSV`.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::object")]
    pub install_plan_ref: Option<ObjectReference>,

    /// The CatalogSources that may be used.
    #[serde(default, skip_serializing_if = "absent")]
    pub catalog_health: Vec<SubscriptionCatalogHealth>,

    /// Observations.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<SubscriptionCondition>,

    /// When the status was written.
    pub last_updated: Time,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// An InstallPlan.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallPlanReference {
    /// Its API version.
    pub api_version: String,

    /// Its kind.
    pub kind: String,

    /// Its name.
    pub name: String,

    /// Its UID.
    pub uuid: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A CatalogSource, and whether it can be used.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionCatalogHealth {
    /// The CatalogSource.
    #[schemars(schema_with = "schema::object")]
    pub catalog_source_ref: ObjectReference,

    /// When this was observed.
    pub last_updated: Time,

    /// Whether it can be used.
    pub healthy: bool,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// One observation.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionCondition {
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

    /// When the observation was last confirmed.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_heartbeat_time: Option<Time>,

    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_transition_time: Option<Time>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
