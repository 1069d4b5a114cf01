//! Labels and annotations that this crate puts on objects or reads from them. They are part of the wire contract.
//!
//! The crate must not know CR types, so it keeps its own copy of these words; a test of the controller compares them
//! with those of the API crate. Rule: revisions §3.

/// The kind of revisions.
pub const OBJECT_SET: &str = "ClusterObjectSet";
/// Label: the kind of the owner.
pub const OWNER_KIND: &str = "olm.operatorframework.io/owner-kind";
pub const OWNER_KIND_VALUE: &str = "ClusterExtension";
/// Label: the name of the owning extension.
pub const OWNER_NAME: &str = "olm.operatorframework.io/owner-name";
/// Label on Secrets: the revision that refers to them.
pub const REVISION_NAME: &str = "olm.operatorframework.io/revision-name";
/// Label: who manages the object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY_VALUE: &str = "olm.operatorframework.io";
/// Annotation: number of the revision that last applied the object.
pub const REVISION: &str = "olm.operatorframework.io/revision";
/// Annotation: version of the bundle.
pub const BUNDLE_VERSION: &str = "olm.operatorframework.io/bundle-version";
/// Annotation: package of the bundle.
pub const PACKAGE_NAME: &str = "olm.operatorframework.io/package-name";
/// Annotation on a manifest: `keep` leaves the object behind when its revision goes (decision 11).
pub const DELETION_POLICY: &str = "olm.operatorframework.io/deletion-policy";
/// Value of [`DELETION_POLICY`].
pub const DELETION_POLICY_KEEP: &str = "keep";
/// Annotation that kubectl leaves on manifests; dropped from content.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Field manager of managed objects.
pub const FIELD_MANAGER: &str = "olm.operatorframework.io";
/// Field manager of what the reference installed through a Helm release.
pub(crate) const HELM_FIELD_MANAGER: &str = "operator-controller";
/// Annotation on an object of a Helm release.
pub const HELM_RELEASE_NAME: &str = "meta.helm.sh/release-name";
/// Type of the Secrets that hold content.
pub const OBJECT_DATA: &str = "olm.operatorframework.io/object-data";
/// Finalizer with which the garbage collector marks an owner whose dependents shall stay.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// Finalizer of the garbage collector on an owner, until its dependents are deleted.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
