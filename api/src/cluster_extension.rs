//! `ClusterExtension`: the request to have one package installed, and its status.
//!
//! Rule: operator-controller §1.1 (the experimental superset, decision 2), decision 3 for `version`.

#![expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the schema derive copies each struct into a function; printer columns share argument names"
)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Condition;
use crate::cel;
use crate::schema::{self, Selector};

/// The package to install, where it may come from and how it is installed.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "olm.operatorframework.io",
    version = "v1",
    kind = "ClusterExtension",
    plural = "clusterextensions",
    singular = "clusterextension",
    shortname = "ce",
    category = "olm",
    status = "ClusterExtensionStatus",
    derive = "PartialEq",
    doc = "ClusterExtension asks for one package to be installed in the cluster and kept at a version that the request allows.",
    printcolumn(name = "Installed Bundle", type_ = "string", json_path = ".status.install.bundle.name"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.install.bundle.version"),
    printcolumn(
        name = "Installed",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Installed')].status"
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Progressing')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(
        name = "Package",
        type_ = "string",
        priority = 1,
        json_path = r#".spec.source.catalog.packageName"#
    ),
    printcolumn(
        name = "Catalog",
        type_ = "string",
        priority = 1,
        json_path = r#".spec.source.catalog.selector.matchLabels.olm\.operatorframework\.io/metadata\.name"#
    ),
    printcolumn(
        name = "Deprecated",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Deprecated")].status"#
    )
)]
pub struct ClusterExtensionSpec {
    /// The namespace for the package's own namespaced objects, such as its Deployments and ServiceAccounts.
    /// It must exist, or be created by the user; it cannot be changed later. A lower-case DNS label of at most 63 characters.
    #[schemars(length(max = 63))]
    #[x_kube(validation = cel::unchanged("namespace is immutable"), validation = cel::namespace_label())]
    pub namespace: String,

    /// A ServiceAccount in `namespace` in whose name the package's objects are written. Without it they are written with the
    /// rights of the controller. It can be removed later, but not exchanged for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1))]
    pub service_account: Option<ServiceAccountReference>,

    /// Where the package comes from.
    #[x_kube(validation = cel::member("sourceType", "Catalog", "catalog"))]
    pub source: Source,

    /// How the package is installed and upgraded; the defaults are safe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = cel::only_member("install", "preflight"))]
    pub install: Option<Install>,

    /// Settings for the bundle, such as the namespace that it watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = cel::member("configType", "Inline", "inline"))]
    pub config: Option<Config>,

    /// Minutes (10 to 720) that a rollout may take before it is reported as failed. Without it there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 720))]
    pub progress_deadline_minutes: Option<i32>,
}

/// Names a ServiceAccount in the extension's namespace.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccountReference {
    /// The ServiceAccount's name: lower-case DNS labels joined by dots, at most 253 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = cel::unchanged("name is immutable once set but may be cleared"), validation = cel::subdomain("name"))]
    pub name: Option<String>,
}

/// Where a package comes from; `sourceType` selects the member that is set.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The kind of source; `Catalog` is the only one.
    pub source_type: SourceType,

    /// The package and the constraints on its version, looked up in the cluster's catalogs.
    /// Required when `sourceType` is `Catalog`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogFilter>,
}

/// The kinds of source.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceType {
    /// From the ClusterCatalogs of this cluster.
    Catalog,
}

/// Which bundles of which catalogs may be installed.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogFilter {
    /// The package's name; it cannot be changed later. Lower-case DNS labels joined by dots, at most 253 characters.
    #[schemars(length(max = 253))]
    #[x_kube(validation = cel::unchanged("packageName is immutable"), validation = cel::subdomain("packageName"))]
    pub package_name: String,

    /// The versions that are allowed: one version (`1.2.3`) or a range, at most 64 characters. Comparators (`=`, `!=`, `>`, `>=`,
    /// `<`, `<=`, `~`, `^`) separated by spaces or commas must all hold, groups separated by `||` are alternatives, `x`, `X` or `*`
    /// stands for any number, and `1.2.3 - 2.3.4` includes both ends. Without it every version is allowed. Prereleases match only
    /// a group that names a prerelease itself. A single version pins the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = cel::version_range())]
    pub version: Option<String>,

    /// The channels (at most 256) to take versions from; without it all channels of the package count. Together with `version` a
    /// bundle must satisfy both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::channels")]
    pub channels: Vec<String>,

    /// Which ClusterCatalogs to look into, by their labels; without it all of them. Every catalog carries the label
    /// `olm.operatorframework.io/metadata.name` with its own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<Selector>,

    /// What decides about the way from the installed version to another. `CatalogProvided` follows the upgrade edges of the
    /// catalog's channels. `SelfCertified` allows any version in range, also a lower one; data loss is then the user's risk.
    #[serde(default)]
    pub upgrade_constraint_policy: UpgradeConstraintPolicy,
}

/// Who decides which upgrades are possible.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpgradeConstraintPolicy {
    /// The catalog's upgrade edges.
    #[default]
    CatalogProvided,
    /// The user.
    SelfCertified,
}

/// How a package is installed and upgraded.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Install {
    /// Checks that run before anything is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = cel::only_member("preflight", "crdUpgradeSafety"))]
    pub preflight: Option<Preflight>,
}

/// Checks that run before anything is applied.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// The check that new CustomResourceDefinitions do not endanger stored custom resources.
    pub crd_upgrade_safety: CrdUpgradeSafety,
}

/// The CRD upgrade safety check.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrdUpgradeSafety {
    /// `Strict` refuses an upgrade whose CRDs are not safe; it is the default. `Warn` checks and reports
    /// in an event, but continues; `None` skips the check: the upgrade may then lose data.
    pub enforcement: CrdUpgradeSafetyEnforcement,
}

/// What an unsafe CRD change leads to.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CrdUpgradeSafetyEnforcement {
    /// Nothing; there is no check.
    None,
    /// The upgrade is refused.
    #[default]
    Strict,
    /// The upgrade continues; an event reports the findings (decision 12).
    Warn,
}

/// Settings for a bundle; `configType` selects the member that is set.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Where the settings are; `Inline` is the only place.
    pub config_type: ConfigType,

    /// The settings themselves, a JSON object with at least one member. Which members there are depends on the bundle, e.g.
    /// `watchNamespace` or `deploymentConfig`. Required when `configType` is `Inline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub inline: Option<Map<String, Value>>,
}

/// Where settings are.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigType {
    /// In the ClusterExtension itself.
    Inline,
}

/// What is installed and the state of the last attempt.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterExtensionStatus {
    /// Observations: `Installed`, `Progressing`, `Available`, `Ready`; `Reconciling`, `Stalled`, `Quarantined` (a bundle is not read
    /// again, because reading it ended the process twice) and `UpgradeAvailable` (the catalog has an upgrade that is not made by
    /// itself) while they hold; and whether catalogs deprecate what is installed (`Deprecated`, `PackageDeprecated`,
    /// `ChannelDeprecated`, `BundleDeprecated`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The installed bundle; absent while nothing is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallStatus>,

    /// The revisions that are not archived: the installed one first, then those that are rolling out, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub active_revisions: Vec<RevisionStatus>,

    /// How the package's webhooks get their serving certificates; absent as long as no bundle with webhooks was rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_certificates: Option<WebhookCertificates>,
}

/// How the package's webhooks get their serving certificates.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookCertificates {
    /// Who issues them. Chosen when the first bundle with webhooks is rendered, and kept from then on, also when another
    /// provider is installed later.
    pub provider: WebhookCertificateProvider,
}

/// Who issues serving certificates (decision 13).
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookCertificateProvider {
    /// cert-manager.
    CertManager,
    /// OpenShift's service CA.
    ServiceCa,
    /// The controller itself.
    BuiltIn,
}

/// The installed bundle.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallStatus {
    /// The deprecation of the installed bundle in the catalog.
    pub bundle: BundleMetadata,
}

/// Identifies one bundle of a package.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleMetadata {
    /// The bundle's name: lower-case DNS labels joined by dots.
    #[x_kube(validation = cel::subdomain("packageName"))]
    pub name: String,

    /// The bundle's semantic version.
    #[x_kube(validation = cel::bundle_version())]
    pub version: String,

    /// The bundle's release within its version, at most 20 characters; empty means that the bundle has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    #[x_kube(validation = cel::bundle_release())]
    pub release: Option<String>,
}

/// One revision of the extension that is not archived.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevisionStatus {
    /// The name of the ClusterObjectSet.
    pub name: String,

    /// Its `Available` and `Progressing` conditions while it rolls out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
