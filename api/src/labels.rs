//! Label keys (and fixed values) that are part of the wire contract.
//!
//! Rule: operator-controller §1.4. New state never goes into new labels on revisions or managed objects.

/// On revisions and managed objects: the kind of the owner, always [`OWNER_KIND_CLUSTER_EXTENSION`].
pub const OWNER_KIND: &str = "olm.operatorframework.io/owner-kind";
/// Value of [`OWNER_KIND`].
pub const OWNER_KIND_CLUSTER_EXTENSION: &str = "ClusterExtension";
/// On revisions, managed objects and object-data Secrets: the name of the owning ClusterExtension.
pub const OWNER_NAME: &str = "olm.operatorframework.io/owner-name";
/// On object-data Secrets: the name of the revision that refers to them.
pub const REVISION_NAME: &str = "olm.operatorframework.io/revision-name";
/// On Secrets that hold built-in webhook certificates: value `built-in`. Never on revisions or managed objects (decision 13).
pub const WEBHOOK_CERTIFICATE: &str = "olm.operatorframework.io/webhook-certificate";
/// Value of [`WEBHOOK_CERTIFICATE`].
pub const WEBHOOK_CERTIFICATE_BUILT_IN: &str = "built-in";
/// On a revision made from a Helm release: value `true`.
pub const MIGRATED_FROM_HELM: &str = "olm.operatorframework.io/migrated-from-helm";
/// On every ClusterCatalog: its own name, so that label selectors can pick one catalog.
pub const METADATA_NAME: &str = "olm.operatorframework.io/metadata.name";
/// On managed objects: who manages them.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`] for objects of a ClusterObjectSet.
pub const MANAGED_BY_OLM: &str = "olm.operatorframework.io";
/// On Helm release Secrets of the reference: the package of the installed bundle (an annotation elsewhere).
pub const PACKAGE_NAME: &str = crate::annotations::PACKAGE_NAME;
/// On Helm release Secrets of the reference: the name of the installed bundle.
pub const BUNDLE_NAME: &str = crate::annotations::BUNDLE_NAME;
/// On Helm release Secrets of the reference: the version of the installed bundle.
pub const BUNDLE_VERSION: &str = crate::annotations::BUNDLE_VERSION;
/// On Helm release Secrets of the reference: the release of the installed bundle, when known.
pub const BUNDLE_RELEASE: &str = crate::annotations::BUNDLE_RELEASE;
/// On Helm release Secrets of the reference: the image reference of the installed bundle.
pub const BUNDLE_REFERENCE: &str = crate::annotations::BUNDLE_REFERENCE;
