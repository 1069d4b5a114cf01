//! `CatalogSource`: where bundles come from, an image with a catalog, a gRPC server or a ConfigMap.
//!
//! Rule: classic-apis §2.

#![expect(clippy::duplicated_attributes, reason = "printer columns share argument names")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClassicCondition, Icon, Unknown, absent, schema};

/// What the catalog is, and how clients show it.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operators.coreos.com",
    version = "v1alpha1",
    kind = "CatalogSource",
    plural = "catalogsources",
    singular = "catalogsource",
    shortname = "catsrc",
    category = "olm",
    namespaced,
    status = "CatalogSourceStatus",
    derive = "PartialEq",
    doc = "CatalogSource is a repository of bundles, from which Subscriptions install operators.",
    printcolumn(
        name = "Display",
        type_ = "string",
        json_path = ".spec.displayName",
        description = "The name for people."
    ),
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = ".spec.sourceType",
        description = "What backs the catalog."
    ),
    printcolumn(
        name = "Publisher",
        type_ = "string",
        json_path = ".spec.publisher",
        description = "Who publishes it."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Since when it exists."
    )
)]
pub struct CatalogSourceSpec {
    /// What backs the catalog: `grpc`, `configmap` or `internal` (the old name of `configmap`).
    pub source_type: String,

    /// The image of the catalog, for `grpc`. It wins over `address`.
    #[serde(default, skip_serializing_if = "absent")]
    pub image: String,

    /// Host and port of a gRPC server that runs already, for `grpc`.
    #[serde(default, skip_serializing_if = "absent")]
    pub address: String,

    /// The ConfigMap that holds the catalog, for `configmap` and `internal`.
    #[serde(default, skip_serializing_if = "absent")]
    pub config_map: String,

    /// The catalog with the highest priority is preferred; 0 if it is not set. Among equal ones the order is by name.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(range(min = -2147483648_i64, max = 2147483647_i64))]
    pub priority: Option<i32>,

    /// The name for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub display_name: String,

    /// What the catalog holds, for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub description: String,

    /// Who publishes the catalog.
    #[serde(default, skip_serializing_if = "absent")]
    pub publisher: String,

    /// The icon of the catalog.
    #[serde(default, skip_serializing_if = "absent")]
    pub icon: Option<Icon>,

    /// Secrets of the namespace that hold credentials for pulling the image.
    #[serde(default, skip_serializing_if = "absent")]
    pub secrets: Vec<String>,

    /// How newer content of the image's tag is found.
    #[serde(default, skip_serializing_if = "absent")]
    pub update_strategy: Option<UpdateStrategy>,

    /// Settings of the pod that serves the catalog.
    #[serde(default, skip_serializing_if = "absent")]
    pub grpc_pod_config: Option<GrpcPodConfig>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// How newer content is found.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// Asks the registry from time to time.
    #[serde(default, skip_serializing_if = "absent")]
    pub registry_poll: Option<RegistryPoll>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Polls of the tag of an image.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryPoll {
    /// The time between two polls, such as `30m0s`; without it, the image is not polled.
    #[serde(default, skip_serializing_if = "absent")]
    pub interval: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Settings of the pod that serves a catalog.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcPodConfig {
    /// Labels of the nodes that the pod may run on.
    #[serde(default, skip_serializing_if = "absent")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that the pod tolerates.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::objects")]
    pub tolerations: Vec<Value>,

    /// The scheduling constraints of the pod.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::object")]
    pub affinity: Option<Value>,

    /// The priority class of the pod; empty is the default of the cluster.
    #[serde(default, skip_serializing_if = "absent")]
    pub priority_class_name: Option<String>,

    /// `legacy` or `restricted`; without it, what the namespace enforces.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::security_context")]
    pub security_context_config: String,

    /// The memory that the pod asks for.
    #[serde(default, skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::quantity")]
    pub memory_target: Option<Value>,

    /// Reads the files of the image instead of starting its program.
    #[serde(default, skip_serializing_if = "absent")]
    pub extract_content: Option<ExtractContent>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Where the files of a catalog lie in its image.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtractContent {
    /// The folder of the catalog.
    pub catalog_dir: String,

    /// The folder of the cache.
    #[serde(default, skip_serializing_if = "absent")]
    pub cache_dir: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// What is served, and the state of the connection.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogSourceStatus {
    /// Explanation of `reason` for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub message: String,

    /// Why the catalog cannot be used, in CamelCase.
    #[serde(default, skip_serializing_if = "absent")]
    pub reason: String,

    /// When the image was last polled.
    #[serde(default, skip_serializing_if = "absent")]
    pub latest_image_registry_poll: Option<Time>,

    /// The ConfigMap that was read.
    #[serde(default, skip_serializing_if = "absent")]
    pub config_map_reference: Option<ConfigMapReference>,

    /// The Service of the catalog.
    #[serde(default, skip_serializing_if = "absent")]
    pub registry_service: Option<RegistryService>,

    /// The connection to the catalog.
    #[serde(default, skip_serializing_if = "absent")]
    pub connection_state: Option<ConnectionState>,

    /// Observations of the template of the image.
    #[serde(default, skip_serializing_if = "absent")]
    pub conditions: Vec<ClassicCondition>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A ConfigMap, as it was read.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapReference {
    /// Its name.
    pub name: String,

    /// Its namespace.
    pub namespace: String,

    /// Its UID.
    #[serde(default, skip_serializing_if = "absent")]
    pub uid: String,

    /// The version that was read.
    #[serde(default, skip_serializing_if = "absent")]
    pub resource_version: String,

    /// When it was read.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_update_time: Option<Time>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// The Service of a catalog.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryService {
    /// Always `grpc`.
    #[serde(default, skip_serializing_if = "absent")]
    pub protocol: String,

    /// The name of the Service.
    #[serde(default, skip_serializing_if = "absent")]
    pub service_name: String,

    /// The namespace of the Service.
    #[serde(default, skip_serializing_if = "absent")]
    pub service_namespace: String,

    /// The port, as text.
    #[serde(default, skip_serializing_if = "absent")]
    pub port: String,

    /// When the Service was made.
    #[serde(default, skip_serializing_if = "absent")]
    pub created_at: Option<Time>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// The connection to a catalog.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionState {
    /// Host and port.
    #[serde(default, skip_serializing_if = "absent")]
    pub address: String,

    /// `READY`, `CONNECTING`, `TRANSIENT_FAILURE`, `IDLE` or `SHUTDOWN`.
    pub last_observed_state: String,

    /// When the connection was last tried.
    #[serde(default, skip_serializing_if = "absent")]
    pub last_connect: Option<Time>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
