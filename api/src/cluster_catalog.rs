//! `ClusterCatalog`: an image with catalog content that catalogd unpacks and serves to the cluster.
//!
//! Rule: catalogd §3.

#![expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the schema derive copies each struct into a function; printer columns share argument names"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Condition;
use crate::cel;
use crate::schema;

/// Where the content comes from and how clients should treat it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "olm.operatorframework.io",
    version = "v1",
    kind = "ClusterCatalog",
    plural = "clustercatalogs",
    singular = "clustercatalog",
    shortname = "cc",
    category = "olm",
    status = "ClusterCatalogStatus",
    derive = "PartialEq",
    doc = "ClusterCatalog makes the file-based catalog inside a container image available in the cluster.",
    printcolumn(name = "LastUnpacked", type_ = "date", json_path = ".status.lastUnpacked"),
    printcolumn(
        name = "Serving",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Serving")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Progressing")].reason"#
    ),
    printcolumn(name = "Priority", type_ = "integer", priority = 1, json_path = r#".spec.priority"#),
    printcolumn(
        name = "Digest",
        type_ = "string",
        priority = 1,
        json_path = r#".status.resolvedSource.image.ref"#
    )
)]
pub struct ClusterCatalogSpec {
    /// Where the catalog's content comes from.
    #[x_kube(validation = cel::catalog_source_member())]
    pub source: CatalogSource,

    /// Among catalogs that could each provide a package, the one with the highest priority is used. 0 if it is not set;
    /// negative numbers are allowed.
    #[serde(default)]
    #[schemars(range(min = -2147483648_i64, max = 2147483647_i64))]
    pub priority: i32,

    /// `Unavailable` switches the catalog off: its content is neither served nor used, and what is installed stays.
    #[serde(default)]
    pub availability_mode: AvailabilityMode,
}

/// Whether a catalog may be used.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AvailabilityMode {
    /// Switched off by the user.
    Unavailable,
    /// In use.
    #[default]
    Available,
}

/// Where content comes from; `type` names the member that is set.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogSource {
    /// The kind of source; `Image` is the only one.
    #[serde(rename = "type")]
    pub type_: CatalogSourceType,

    /// The container image that holds the content. Required when `type` is `Image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = cel::poll_needs_tag())]
    pub image: Option<ImageSource>,
}

/// The kinds of source.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatalogSourceType {
    /// A container image.
    Image,
}

/// A container image that holds a catalog.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageSource {
    /// The full image reference with registry, name and either a tag or a digest, at most 1000 characters, such as
    /// `quay.io/operatorhubio/catalog:latest`.
    #[serde(rename = "ref")]
    #[schemars(length(max = 1000))]
    #[x_kube(
        validation = cel::ref_domain(),
        validation = cel::ref_name(),
        validation = cel::ref_tag_or_digest(),
        validation = cel::ref_tag_length(),
        validation = cel::ref_tag_characters(),
        validation = cel::ref_digest_algorithm(),
        validation = cel::ref_digest_length(),
        validation = cel::ref_digest_hex()
    )]
    pub reference: String,

    /// Minutes (at least 1) between polls of the tag. Without it, and always for a digest, the image is resolved when the spec or the
    /// annotation `olm.operatorframework.io/requested-at` changes, when its content is missing, and when a failed attempt is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::poll_minutes")]
    pub poll_interval_minutes: Option<i64>,
}

/// What is served and the state of the last attempt.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCatalogStatus {
    /// Observations: `Serving` (content can be fetched), `Progressing` (what is being done about the source), `Quarantined` (the image
    /// is not read again, because reading it ended the process twice) while it holds; with the annotation `olm.catalogImageTemplate` also
    /// `TemplatesHaveResolved` (its variables have a value) and `ResolvedImage` (its image is used).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The source that the served content was taken from, with the image's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = cel::catalog_source_member())]
    pub resolved_source: Option<ResolvedCatalogSource>,

    /// Where clients inside the cluster fetch the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urls: Option<CatalogUrls>,

    /// When the served content was unpacked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_unpacked: Option<Time>,
}

/// A source after tags were resolved; `type` selects the member that is set.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedCatalogSource {
    /// The kind of source; `Image` is the only one.
    #[serde(rename = "type")]
    pub type_: CatalogSourceType,

    /// The image that the content was taken from.
    pub image: ResolvedImageSource,
}

/// An image by digest.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedImageSource {
    /// The full image reference with a digest, at most 1000 characters.
    #[serde(rename = "ref")]
    #[schemars(length(max = 1000))]
    #[x_kube(
        validation = cel::ref_domain(),
        validation = cel::ref_name(),
        validation = cel::ref_digest(),
        validation = cel::ref_digest_algorithm(),
        validation = cel::ref_digest_length(),
        validation = cel::ref_digest_hex()
    )]
    pub reference: String,
}

/// Where content can be fetched.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogUrls {
    /// The address (http or https, at most 525 characters) that API paths such as `/api/v1/all` are appended to.
    #[schemars(length(max = 525))]
    #[x_kube(validation = cel::base_is_url(), validation = cel::base_scheme())]
    pub base: String,
}
