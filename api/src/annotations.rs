//! Annotation keys that are part of the wire contract.
//!
//! Rule: operator-controller §1.4; the three request keys at the end are additions (decisions 11 and 31).

/// On revisions and managed objects: the package of the bundle.
pub const PACKAGE_NAME: &str = "olm.operatorframework.io/package-name";
/// On revisions: the name of the bundle.
pub const BUNDLE_NAME: &str = "olm.operatorframework.io/bundle-name";
/// On revisions and managed objects: the version of the bundle.
pub const BUNDLE_VERSION: &str = "olm.operatorframework.io/bundle-version";
/// On revisions: the release of the bundle; an empty value means that the bundle has none, absence that it is unknown.
pub const BUNDLE_RELEASE: &str = "olm.operatorframework.io/bundle-release";
/// On revisions: the bundle's image reference as the catalog gives it.
pub const BUNDLE_REFERENCE: &str = "olm.operatorframework.io/bundle-reference";
/// On revisions: the bundle's properties as a JSON array.
pub const PROPERTIES: &str = "olm.properties";
/// On managed objects: the number of the revision that last applied them.
pub const REVISION: &str = "olm.operatorframework.io/revision";
/// On generated CRDs: which variant of the API they hold.
pub const GENERATOR: &str = "olm.operatorframework.io/generator";
/// On shipped manifests: the feature set they belong to.
pub const FEATURE_SET: &str = "olm.operatorframework.io/feature-set";
/// On objects of a Helm release of the reference: the release.
pub const HELM_RELEASE_NAME: &str = "meta.helm.sh/release-name";
/// On objects of a Helm release of the reference: the release's namespace.
pub const HELM_RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// On a ClusterExtension or one managed object's manifest: value `keep` leaves objects in place on uninstall (decision 11).
///
/// On object-data Secrets: the policy of the ClusterExtension. It counts when the revision has no ClusterExtension any more.
pub const DELETION_POLICY: &str = "olm.operatorframework.io/deletion-policy";
/// Value of [`DELETION_POLICY`].
pub const DELETION_POLICY_KEEP: &str = "keep";

/// Whether these annotations ask for [`DELETION_POLICY_KEEP`].
#[must_use]
pub fn keeps_objects(annotations: &std::collections::BTreeMap<String, String>) -> bool {
    annotations.get(DELETION_POLICY).map(String::as_str) == Some(DELETION_POLICY_KEEP)
}
/// On a ClusterExtension: value `true` refuses an uninstall that would delete custom resources (decision 11).
pub const PROTECT_CUSTOM_RESOURCES: &str = "olm.operatorframework.io/protect-custom-resources";
/// On a ClusterExtension or ClusterCatalog: any new value asks for an immediate retry (decision 31).
pub const REQUESTED_AT: &str = "olm.operatorframework.io/requested-at";
/// On a ClusterExtension: value `true` suspends it; nothing is resolved, applied or corrected until it goes away.
pub const PAUSED: &str = "olm.operatorframework.io/paused";
/// On a ClusterExtension: whether the next major version is installed without being asked for, `Hold` or `Automatic`. It wins over
/// the flag `--major-updates` (decision 32).
pub const MAJOR_UPDATES: &str = "olm.operatorframework.io/major-updates";
/// On a ClusterCatalog: a template of the image, by the version of Kubernetes; it is used in place of the spec's while it resolves. The name is
/// that of OLM Classic.
pub const CATALOG_IMAGE_TEMPLATE: &str = "olm.catalogImageTemplate";
/// On object-data Secrets: the account that the ClusterExtension names, as `namespace/name`. It counts when the revision has no
/// ClusterExtension any more.
pub const SERVICE_ACCOUNT: &str = "olm.operatorframework.io/service-account";
/// On object-data Secrets: a digest of what the objects were rendered from, so that equal inputs are recognised after a restart.
pub const RENDER_INPUTS: &str = "olm.operatorframework.io/render-inputs";
