//! `PackageManifest`: a package of a catalog, as the aggregated API `packages.operators.coreos.com/v1` shows it. It is never stored, so
//! there is no CustomResourceDefinition.
//!
//! Rule: classic-apis §1.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster_service_version::{
    ApiServiceDefinitions, AppLink, CustomResourceDefinitions, GroupVersionKind, InstallMode, Maintainer,
};
use super::{Icon, Unknown, absent, schema};

/// The API group.
pub const GROUP: &str = "packages.operators.coreos.com";
/// `group/version`, the value of `apiVersion`.
pub const API_VERSION: &str = "packages.operators.coreos.com/v1";

/// A package of a catalog.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageManifest {
    /// Always `packages.operators.coreos.com/v1`.
    pub api_version: String,

    /// Always `PackageManifest`.
    pub kind: String,

    /// The name is that of the package, the namespace the one that was asked.
    #[schemars(schema_with = "schema::object")]
    pub metadata: ObjectMeta,

    /// The package.
    #[serde(default, skip_serializing_if = "absent")]
    pub status: PackageManifestStatus,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A package.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageManifestStatus {
    /// The CatalogSource that has the package.
    #[serde(default, skip_serializing_if = "absent")]
    pub catalog_source: String,

    /// The name of the CatalogSource for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub catalog_source_display_name: String,

    /// Who publishes the CatalogSource.
    #[serde(default, skip_serializing_if = "absent")]
    pub catalog_source_publisher: String,

    /// The namespace of the CatalogSource.
    #[serde(default, skip_serializing_if = "absent")]
    pub catalog_source_namespace: String,

    /// Who provides the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub provider: AppLink,

    /// The name of the package.
    #[serde(default, skip_serializing_if = "absent")]
    pub package_name: String,

    /// That the package is deprecated.
    #[serde(default, skip_serializing_if = "absent")]
    pub deprecation: Option<Deprecation>,

    /// The channels.
    #[serde(default, skip_serializing_if = "absent")]
    pub channels: Vec<PackageChannel>,

    /// The channel of a Subscription that names none.
    #[serde(default, skip_serializing_if = "absent")]
    pub default_channel: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// That something is deprecated.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deprecation {
    /// What to do about it.
    #[serde(default, skip_serializing_if = "absent")]
    pub message: String,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A channel of a package.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageChannel {
    /// The name.
    pub name: String,

    /// The head of the channel.
    #[serde(rename = "currentCSV", default, skip_serializing_if = "absent")]
    pub current_csv: String,

    /// The head of the channel, for people.
    #[serde(rename = "currentCSVDesc", default, skip_serializing_if = "absent")]
    pub current_csv_description: CsvDescription,

    /// All versions, the highest first.
    #[serde(default, skip_serializing_if = "absent")]
    pub entries: Vec<ChannelEntry>,

    /// That the channel is deprecated.
    #[serde(default, skip_serializing_if = "absent")]
    pub deprecation: Option<Deprecation>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A version in a channel.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelEntry {
    /// The ClusterServiceVersion.
    pub name: String,

    /// Its version.
    #[serde(default, skip_serializing_if = "absent")]
    pub version: String,

    /// That the version is deprecated.
    #[serde(default, skip_serializing_if = "absent")]
    pub deprecation: Option<Deprecation>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A ClusterServiceVersion, for people.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsvDescription {
    /// The name for people.
    #[serde(default, skip_serializing_if = "absent")]
    pub display_name: String,

    /// Icons of the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub icon: Vec<Icon>,

    /// The version.
    #[serde(default, skip_serializing_if = "absent")]
    pub version: String,

    /// Who provides the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub provider: AppLink,

    /// The annotations of the ClusterServiceVersion.
    #[serde(default, skip_serializing_if = "absent")]
    pub annotations: BTreeMap<String, String>,

    /// Words to find the operator by.
    #[serde(default, skip_serializing_if = "absent")]
    pub keywords: Vec<String>,

    /// Pages about the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub links: Vec<AppLink>,

    /// Who maintains the operator.
    #[serde(default, skip_serializing_if = "absent")]
    pub maintainers: Vec<Maintainer>,

    /// How mature the operator is.
    #[serde(default, skip_serializing_if = "absent")]
    pub maturity: String,

    /// What the operator does, as Markdown.
    #[serde(default, skip_serializing_if = "absent")]
    pub description: String,

    /// Which namespaces the operator can watch.
    #[serde(default, skip_serializing_if = "absent")]
    pub install_modes: Vec<InstallMode>,

    /// CustomResourceDefinitions that the operator owns or requires.
    #[serde(rename = "customresourcedefinitions", default, skip_serializing_if = "absent")]
    pub custom_resource_definitions: CustomResourceDefinitions,

    /// Aggregated APIs that the operator owns or requires.
    #[serde(rename = "apiservicedefinitions", default, skip_serializing_if = "absent")]
    pub api_service_definitions: ApiServiceDefinitions,

    /// APIs that the cluster has to serve.
    #[serde(default, skip_serializing_if = "absent")]
    pub native_apis: Vec<GroupVersionKind>,

    /// The lowest version of Kubernetes.
    #[serde(default, skip_serializing_if = "absent")]
    pub min_kube_version: String,

    /// Images that the operator uses.
    #[serde(default, skip_serializing_if = "absent")]
    pub related_images: Vec<String>,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}
