//! `InstallPlan`: the objects that one step of a namespace's Subscriptions makes, in order.
//!
//! Rule: classic-apis §5.

#![expect(clippy::duplicated_attributes, reason = "printer columns share argument names")]

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClassicCondition, Unknown, absent, schema};

/// What is to be installed, and whether it may be.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operators.coreos.com",
    version = "v1alpha1",
    kind = "InstallPlan",
    plural = "installplans",
    singular = "installplan",
    shortname = "ip",
    category = "olm",
    namespaced,
    status = "InstallPlanStatus",
    derive = "PartialEq",
    doc = "InstallPlan lists the objects that are made to install or update operators.",
    printcolumn(
        name = "CSV",
        type_ = "string",
        json_path = ".spec.clusterServiceVersionNames[0]",
        description = "The first ClusterServiceVersion of the plan."
    ),
    printcolumn(
        name = "Approval",
        type_ = "string",
        json_path = ".spec.approval",
        description = "How the plan is approved."
    ),
    printcolumn(
        name = "Approved",
        type_ = "boolean",
        json_path = ".spec.approved",
        description = "Whether it is approved."
    )
)]
pub struct InstallPlanSpec {
    /// Not used.
    #[serde(default, skip_serializing_if = "absent")]
    pub source: String,

    /// Not used.
    #[serde(default, skip_serializing_if = "absent")]
    pub source_namespace: String,

    /// The ClusterServiceVersions that the plan installs.
    pub cluster_service_version_names: Vec<String>,

    /// `Automatic` or `Manual`.
    pub approval: String,

    /// Whether the plan may be carried out.
    pub approved: bool,

    /// Plans of a namespace are numbered.
    #[serde(default, skip_serializing_if = "absent")]
    pub generation: Option<i64>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// How far the plan is.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallPlanStatus {
    /// `Planning`, `RequiresApproval`, `Installing`, `Complete` or `Failed`.
    pub phase: String,

    /// Observations: Resolved, Installed.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<ClassicCondition>,

    /// The CatalogSources of the bundles.
    pub catalog_sources: Vec<String>,

    /// The objects, in order.
    #[serde(default, skip_serializing_if = "absent")]
    pub plan: Vec<Step>,

    /// Bundles that are images and are being unpacked.
    #[serde(default, skip_serializing_if = "absent")]
    pub bundle_lookups: Vec<BundleLookup>,

    /// The account of the OperatorGroup that makes the objects.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::object")]
    pub attenuated_service_account_ref: Option<ObjectReference>,

    /// When the first step was tried.
    #[serde(default, skip_serializing_if = "absent")]
    pub start_time: Option<Time>,

    /// Explanation for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub message: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// One object.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The ClusterServiceVersion that needs the object.
    pub resolving: String,

    /// The object.
    pub resource: StepResource,

    /// Whether the plan may complete without it.
    #[serde(default, skip_serializing_if = "absent")]
    pub optional: bool,

    /// `Unknown`, `NotPresent`, `Present`, `Created`, `NotCreated`, `WaitingForApi` or `UnsupportedResource`.
    pub status: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// The object of a step.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepResource {
    /// The CatalogSource that it comes from.
    pub source_name: String,

    /// The namespace of the CatalogSource.
    pub source_namespace: String,

    /// The API group.
    pub group: String,

    /// The API version.
    pub version: String,

    /// The kind.
    pub kind: String,

    /// The name.
    pub name: String,

    /// The object as JSON, or a reference to the ConfigMap that has it.
    #[serde(default, skip_serializing_if = "absent")]
    pub manifest: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A bundle that is being unpacked.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleLookup {
    /// The image of the bundle.
    pub path: String,

    /// The ClusterServiceVersion.
    pub identifier: String,

    /// The ClusterServiceVersion that it replaces.
    pub replaces: String,

    /// The CatalogSource.
    #[schemars(schema_with = "schema::object")]
    pub catalog_source_ref: ObjectReference,

    /// Observations: BundleLookupNotPersisted, BundleLookupPending, BundleLookupFailed.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<ClassicCondition>,

    /// The properties of the bundle, as JSON.
    #[serde(default, skip_serializing_if = "absent")]
    pub properties: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
