//! `PackageManifest`: a package of a catalog, as the aggregated API `packages.operators.coreos.com/v1` shows it. It is never stored, so
//! there is no CustomResourceDefinition.
//!
//! Rule: classic-apis §1.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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

    /// Nothing; always written.
    #[serde(default)]
    pub spec: PackageManifestSpec,

    /// The package.
    #[serde(default, skip_serializing_if = "absent")]
    pub status: PackageManifestStatus,

    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Nothing: a package is all status.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PackageManifestSpec {
    /// Fields that are not known here.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Packages of the catalogs that a namespace can use.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageManifestList {
    /// Always `packages.operators.coreos.com/v1`.
    pub api_version: String,

    /// Always `PackageManifestList`.
    pub kind: String,

    /// Metadata of the list.
    #[schemars(schema_with = "schema::object")]
    pub metadata: ListMeta,

    /// The packages.
    pub items: Vec<PackageManifest>,
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

/// The OpenAPI v3 document of the API: its three requests and the schemas of its kinds.
#[must_use]
pub fn open_api() -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    generator.subschema_for::<PackageManifestList>();
    let mut schemas = Value::Object(generator.take_definitions(true));
    for kind in ["PackageManifest", "PackageManifestList"] {
        schemas[kind]["x-kubernetes-group-version-kind"] =
            json!([{ "group": GROUP, "version": "v1", "kind": kind }]);
    }
    let parameter = |place: &str, name: &str, description: &str| {
        json!({
            "in": place, "name": name, "description": description, "required": place == "path",
            "schema": { "type": "string" },
        })
    };
    let namespace = parameter("path", "namespace", "The namespace that asks.");
    let name = parameter("path", "name", "The name of the package.");
    let get = |action: &str, kind: &str, description: &str, parameters: Value, content: Value| {
        json!({ "get": {
            "description": description, "parameters": parameters,
            "responses": { "200": { "description": "OK", "content": content } },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": { "group": GROUP, "version": "v1", "kind": kind },
        } })
    };
    let body = |kind: &str| json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{kind}") } } });
    let image = json!({ "image/*": { "schema": { "type": "string", "format": "binary" } } });
    let root = format!("/apis/{API_VERSION}/namespaces/{{namespace}}/packagemanifests");
    let selectors = json!([
        namespace,
        parameter("query", "labelSelector", "Selects packages by label, such as `catalog=main`."),
        parameter("query", "fieldSelector", "Selects a package by `metadata.name` or `metadata.namespace`."),
    ]);
    let list = get(
        "list",
        "PackageManifest",
        "Lists the packages of the catalogs that the namespace can use.",
        selectors,
        body("PackageManifestList"),
    );
    let one =
        get("get", "PackageManifest", "Reads a package.", json!([namespace, name]), body("PackageManifest"));
    let icon = get("get", "PackageManifest", "Reads the icon of a package.", json!([namespace, name]), image);
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Packages of OLM Classic", "version": "v1" },
        "paths": {
            root.clone(): list,
            format!("{root}/{{name}}"): one,
            format!("{root}/{{name}}/icon"): icon,
        },
        "components": { "schemas": schemas },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference of the document leads somewhere, and the members of the kinds are those of their JSON.
    #[test]
    fn package_manifest_schema_is_whole() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    members.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| references(value, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let document = open_api();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 10, "{found:?}");
        for reference in found {
            assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
        }
        let members = |kind: &str| {
            let properties = &document["components"]["schemas"][kind]["properties"];
            properties.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(members("PackageManifest"), "apiVersion kind metadata spec status");
        assert_eq!(members("PackageChannel"), "currentCSV currentCSVDesc deprecation entries name");
        let written = serde_json::to_value(PackageManifest::default()).unwrap();
        assert_eq!(written["spec"], json!({}));
    }
}
