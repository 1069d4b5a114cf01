//! `ClusterServiceVersion`: one version of an operator, with what is needed to install and show it.
//!
//! Rule: classic-apis §6. The specification of a Deployment is kept as it is, so that fields of newer versions of Kubernetes survive.

#![expect(clippy::duplicated_attributes, reason = "printer columns share argument names")]

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Icon, Unknown, absent, schema};

/// How the operator is installed and shown.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operators.coreos.com",
    version = "v1alpha1",
    kind = "ClusterServiceVersion",
    plural = "clusterserviceversions",
    singular = "clusterserviceversion",
    shortname = "csv",
    shortname = "csvs",
    category = "olm",
    namespaced,
    status = "ClusterServiceVersionStatus",
    derive = "PartialEq",
    doc = "ClusterServiceVersion is one version of an operator.",
    printcolumn(
        name = "Display",
        type_ = "string",
        json_path = ".spec.displayName",
        description = "The name for people."
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.version",
        description = "The version."
    ),
    printcolumn(
        name = "Release",
        type_ = "string",
        json_path = ".spec.release",
        description = "The release of the version."
    ),
    printcolumn(
        name = "Replaces",
        type_ = "string",
        json_path = ".spec.replaces",
        description = "The ClusterServiceVersion that it replaces."
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "How far it is."
    )
)]
pub struct ClusterServiceVersionSpec {
    /// How the operator is installed.
    pub install: InstallStrategy,

    /// The version, as semver.
    #[serde(default, skip_serializing_if = "absent")]
    pub version: String,

    /// The release of the version: a newer one replaces an older one of the same version.
    #[serde(default, skip_serializing_if = "absent")]
    pub release: String,

    /// How mature the operator is, for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub maturity: String,

    /// CustomResourceDefinitions that the operator owns or requires.
    #[serde(rename = "customresourcedefinitions", default, skip_serializing_if = "absent")]
    pub custom_resource_definitions: Option<CustomResourceDefinitions>,

    /// Aggregated APIs that the operator owns or requires.
    #[serde(rename = "apiservicedefinitions", default, skip_serializing_if = "absent")]
    pub api_service_definitions: Option<ApiServiceDefinitions>,

    /// Webhooks of the operator.
    #[serde(rename = "webhookdefinitions", default, skip_serializing_if = "absent")]
    pub webhook_definitions: Vec<WebhookDescription>,

    /// APIs that the cluster has to serve.
    #[serde(rename = "nativeAPIs", default, skip_serializing_if = "absent")]
    pub native_apis: Vec<GroupVersionKind>,

    /// The lowest version of Kubernetes.
    #[serde(default, skip_serializing_if = "absent")]
    pub min_kube_version: String,

    /// The name for people.
    pub display_name: String,

    /// What the operator does, as Markdown.
    #[serde(default, skip_serializing_if = "absent")]
    pub description: String,

    /// Words to find the operator by.
    #[serde(default, skip_serializing_if = "absent")]
    pub keywords: Vec<String>,

    /// Who maintains the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub maintainers: Vec<Maintainer>,

    /// Who provides the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub provider: Option<AppLink>,

    /// Pages about the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub links: Vec<AppLink>,

    /// Icons of the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub icon: Vec<Icon>,

    /// Which namespaces the operator can watch.
    #[serde(default, skip_serializing_if = "absent")]
    pub install_modes: Vec<InstallMode>,

    /// The ClusterServiceVersion that this one replaces.
    #[serde(default, skip_serializing_if = "absent")]
    pub replaces: String,

    /// Labels for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub annotations: BTreeMap<String, String>,

    /// Selects objects that belong to the operator.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<LabelSelector>,

    /// What is deleted with the ClusterServiceVersion.
    #[serde(default, skip_serializing_if = "absent")]
    pub cleanup: Option<CleanupSpec>,

    /// ClusterServiceVersions that need not be installed on the way to this one.
    #[serde(default, skip_serializing_if = "absent")]
    pub skips: Vec<String>,

    /// Images that the operator uses.
    #[serde(default, skip_serializing_if = "absent")]
    pub related_images: Vec<RelatedImage>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// How an operator is installed.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallStrategy {
    /// Always `deployment`.
    pub strategy: String,

    /// The Deployments and their rights.
    #[serde(default, skip_serializing_if = "absent")]
    pub spec: Option<StrategyDetailsDeployment>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Deployments and their rights.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyDetailsDeployment {
    /// The Deployments.
    pub deployments: Vec<StrategyDeploymentSpec>,

    /// Rights in the namespaces that the operator watches.
    #[serde(default, skip_serializing_if = "absent")]
    pub permissions: Vec<StrategyDeploymentPermissions>,

    /// Rights in the whole cluster.
    #[serde(default, skip_serializing_if = "absent")]
    pub cluster_permissions: Vec<StrategyDeploymentPermissions>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A Deployment.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyDeploymentSpec {
    /// The name of the Deployment.
    pub name: String,

    /// Labels of the Deployment.
    #[serde(default, skip_serializing_if = "absent")]
    pub label: BTreeMap<String, String>,

    /// The specification of the Deployment.
    #[schemars(schema_with = "schema::object")]
    pub spec: Value,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// The rights of a ServiceAccount.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyDeploymentPermissions {
    /// The ServiceAccount.
    pub service_account_name: String,

    /// What it may do.
    #[schemars(schema_with = "schema::objects")]
    pub rules: Vec<PolicyRule>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// CustomResourceDefinitions that an operator owns or requires.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomResourceDefinitions {
    /// Those that the operator brings.
    #[serde(default, skip_serializing_if = "absent")]
    pub owned: Vec<CrdDescription>,

    /// Those that have to be there.
    #[serde(default, skip_serializing_if = "absent")]
    pub required: Vec<CrdDescription>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A kind that a CustomResourceDefinition defines.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrdDescription {
    /// The name of the CustomResourceDefinition.
    pub name: String,

    /// The version of the API.
    pub version: String,

    /// The kind.
    pub kind: String,

    /// The name for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub display_name: String,

    /// What it is, for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub description: String,

    /// Kinds that the operator makes for an object of this kind.
    #[serde(default, skip_serializing_if = "absent")]
    pub resources: Vec<ApiResourceReference>,

    /// How fields of the status are shown.
    #[serde(default, skip_serializing_if = "absent")]
    pub status_descriptors: Vec<Descriptor>,

    /// How fields of the specification are shown.
    #[serde(default, skip_serializing_if = "absent")]
    pub spec_descriptors: Vec<Descriptor>,

    /// How actions are shown.
    #[serde(default, skip_serializing_if = "absent")]
    pub action_descriptors: Vec<Descriptor>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Aggregated APIs that an operator owns or requires.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServiceDefinitions {
    /// Those that the operator serves.
    #[serde(default, skip_serializing_if = "absent")]
    pub owned: Vec<ApiServiceDescription>,

    /// Those that have to be there.
    #[serde(default, skip_serializing_if = "absent")]
    pub required: Vec<ApiServiceDescription>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A kind of an aggregated API.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServiceDescription {
    /// The name of the resource.
    pub name: String,

    /// The API group.
    pub group: String,

    /// The API version.
    pub version: String,

    /// The kind.
    pub kind: String,

    /// The Deployment that serves it.
    #[serde(default, skip_serializing_if = "absent")]
    pub deployment_name: String,

    /// The port of the container.
    #[serde(default, skip_serializing_if = "absent")]
    pub container_port: Option<i32>,

    /// The name for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub display_name: String,

    /// What it is, for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub description: String,

    /// Kinds that the operator makes for an object of this kind.
    #[serde(default, skip_serializing_if = "absent")]
    pub resources: Vec<ApiResourceReference>,

    /// How fields of the status are shown.
    #[serde(default, skip_serializing_if = "absent")]
    pub status_descriptors: Vec<Descriptor>,

    /// How fields of the specification are shown.
    #[serde(default, skip_serializing_if = "absent")]
    pub spec_descriptors: Vec<Descriptor>,

    /// How actions are shown.
    #[serde(default, skip_serializing_if = "absent")]
    pub action_descriptors: Vec<Descriptor>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A kind.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResourceReference {
    /// The name of the resource; empty in many published versions.
    #[serde(default)]
    pub name: String,

    /// The kind.
    pub kind: String,

    /// The API version.
    pub version: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// How a field is shown.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Where the field is.
    pub path: String,

    /// The name for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub display_name: String,

    /// What it is, for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub description: String,

    /// Hints for user interfaces.
    #[serde(rename = "x-descriptors", default, skip_serializing_if = "absent")]
    pub x_descriptors: Vec<String>,

    /// The value, if it is fixed.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::anything")]
    pub value: Option<Value>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A webhook of an operator.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDescription {
    /// The name that the name of the webhook begins with.
    pub generate_name: String,

    /// `ValidatingAdmissionWebhook`, `MutatingAdmissionWebhook` or `ConversionWebhook`.
    pub type_: String,

    /// The Deployment that answers.
    #[serde(default, skip_serializing_if = "absent")]
    pub deployment_name: String,

    /// The port of the Service; 443 if it is not set.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: Option<i32>,

    /// The port of the container; `containerPort` if it is not set.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub target_port: Option<Value>,

    /// Requests that are sent to the webhook.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::objects")]
    pub rules: Vec<Value>,

    /// `Fail` or `Ignore`.
    #[serde(default, skip_serializing_if = "absent")]
    pub failure_policy: Option<String>,

    /// `Exact` or `Equivalent`.
    #[serde(default, skip_serializing_if = "absent")]
    pub match_policy: Option<String>,

    /// Objects that are sent to the webhook.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::selector")]
    pub object_selector: Option<LabelSelector>,

    /// `None`, `NoneOnDryRun`, `Some` or `Unknown`.
    pub side_effects: String,

    /// Seconds within which the webhook has to answer.
    #[serde(default, skip_serializing_if = "absent")]
    pub timeout_seconds: Option<i32>,

    /// Versions of AdmissionReview or ConversionReview that the webhook reads.
    pub admission_review_versions: Vec<String>,

    /// `Never` or `IfNeeded`.
    #[serde(default, skip_serializing_if = "absent")]
    pub reinvocation_policy: Option<String>,

    /// The path of the webhook.
    #[serde(default, skip_serializing_if = "absent")]
    pub webhook_path: Option<String>,

    /// CustomResourceDefinitions that the webhook converts.
    #[serde(rename = "conversionCRDs", default, skip_serializing_if = "absent")]
    pub conversion_crds: Vec<String>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A kind of an API.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupVersionKind {
    /// The API group.
    pub group: String,

    /// The API version.
    pub version: String,

    /// The kind.
    pub kind: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Who maintains an operator.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Maintainer {
    /// The name.
    #[serde(default, skip_serializing_if = "absent")]
    pub name: String,

    /// The address.
    #[serde(default, skip_serializing_if = "absent")]
    pub email: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A page.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppLink {
    /// What it is.
    #[serde(default, skip_serializing_if = "absent")]
    pub name: String,

    /// Its address.
    #[serde(default, skip_serializing_if = "absent")]
    pub url: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A set of namespaces that an operator may watch.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallMode {
    /// `OwnNamespace`, `SingleNamespace`, `MultiNamespace` or `AllNamespaces`.
    pub type_: String,

    /// Whether the operator can.
    pub supported: bool,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// What is deleted with a ClusterServiceVersion.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CleanupSpec {
    /// Whether objects of the owned kinds are to be deleted, too. Not acted on.
    pub enabled: bool,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// An image that an operator uses.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelatedImage {
    /// What it is for.
    pub name: String,

    /// The reference of the image.
    pub image: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// How far the ClusterServiceVersion is.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterServiceVersionStatus {
    /// `Pending`, `InstallReady`, `Installing`, `Succeeded`, `Failed`, `Replacing`, `Deleting`, `Unknown`; empty for a new one.
    #[serde(default, skip_serializing_if = "absent")]
    pub phase: String,

    /// Why `phase` has its value, in CamelCase.
    #[serde(default, skip_serializing_if = "absent")]
    pub reason: String,

    /// Explanation for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub message: String,

    /// When the status was written.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_update_time: Option<Time>,

    /// When `phase` last changed.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_transition_time: Option<Time>,

    /// Phases up to now, at most 20, the oldest first.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<ClusterServiceVersionCondition>,

    /// What the operator needs, and whether it is there.
    #[serde(default, skip_serializing_if = "absent")]
    pub requirement_status: Vec<RequirementStatus>,

    /// When the certificates were made.
    #[serde(default, skip_serializing_if = "absent")]
    pub certs_last_updated: Option<Time>,

    /// When they are made again.
    #[serde(default, skip_serializing_if = "absent")]
    pub certs_rotate_at: Option<Time>,

    /// Objects that are being deleted. Not used.
    #[serde(default, skip_serializing_if = "absent")]
    pub cleanup: Option<CleanupStatus>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// One phase of the past.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterServiceVersionCondition {
    /// The phase.
    #[serde(default, skip_serializing_if = "absent")]
    pub phase: String,

    /// Why it was reached, in CamelCase.
    #[serde(default, skip_serializing_if = "absent")]
    pub reason: String,

    /// Explanation for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub message: String,

    /// When it was written.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_update_time: Option<Time>,

    /// When the phase began.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_transition_time: Option<Time>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Something that an operator needs.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequirementStatus {
    /// The API group.
    pub group: String,

    /// The API version.
    pub version: String,

    /// The kind.
    pub kind: String,

    /// The name.
    pub name: String,

    /// `Present`, `NotPresent`, `PresentNotSatisfied`, `PresentNotAvailable`, `DeploymentFound` or `DeploymentNotFound`.
    pub status: String,

    /// Explanation for people.
    pub message: String,

    /// The UID of the object.
    #[serde(default, skip_serializing_if = "absent")]
    pub uuid: String,

    /// Its parts, such as the rules of a ServiceAccount.
    #[serde(default, skip_serializing_if = "absent")]
    pub dependents: Vec<DependentStatus>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A part of something that an operator needs.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DependentStatus {
    /// The API group.
    pub group: String,

    /// The API version.
    pub version: String,

    /// The kind.
    pub kind: String,

    /// `Satisfied` or `NotSatisfied`.
    pub status: String,

    /// The UID of the object.
    #[serde(default, skip_serializing_if = "absent")]
    pub uuid: String,

    /// Explanation for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub message: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Objects that are being deleted.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CleanupStatus {
    /// The objects, by kind.
    #[serde(default, skip_serializing_if = "absent")]
    pub pending_deletion: Vec<ResourceList>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Objects of one kind.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// The API group.
    pub group: String,

    /// The kind.
    pub kind: String,

    /// The objects.
    pub instances: Vec<ResourceInstance>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// An object.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInstance {
    /// Its name.
    pub name: String,

    /// Its namespace; empty for an object of the cluster.
    #[serde(default, skip_serializing_if = "absent")]
    pub namespace: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
