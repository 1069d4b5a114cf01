//! The Kubernetes API of OLM v1 as Rust types: `ClusterExtension`, `ClusterCatalog`, `ClusterObjectSet` in group
//! `olm.operatorframework.io`, version `v1`, with the words (reasons, condition types, labels) that clients read.
//!
//! What it deliberately does not do: no behaviour, no client calls, no parsing of versions or references. The structs hold
//! plain strings and enums as the apiserver stores them; callers that need their meaning parse them into newtypes first.
//!
//! **Watching.** An object that was stored under an older schema, or by a newer version of this project, may not
//! deserialise into these types, and one such object fails a typed list or watch *as a whole*. Watch and list
//! `Api<kube::core::DeserializeGuard<T>>`, or `Received<T>` of `olm-runtime` (decision 56): the unreadable object then arrives as
//! one `Err` with its metadata and the others keep working.
//!
//! The CRD manifests are generated from these types ([`crds`]); `manifests/crds` holds the result. [`openshift`] has two kinds of
//! OpenShift, whose definitions for other clusters are in `manifests/openshift`. [`classic`] has the kinds of OLM Classic.

#![warn(missing_docs)]

pub mod annotations;
pub mod cel;
pub mod classic;
pub mod cluster_catalog;
pub mod cluster_extension;
pub mod cluster_object_set;
pub mod condition;
mod crds;
pub mod field_managers;
pub mod finalizers;
pub mod labels;
pub mod observe;
pub mod openshift;
pub mod reason;
mod schema;
pub mod secret_types;

pub use cluster_catalog::{ClusterCatalog, ClusterCatalogSpec, ClusterCatalogStatus};
pub use cluster_extension::{ClusterExtension, ClusterExtensionSpec, ClusterExtensionStatus};
pub use cluster_object_set::{ClusterObjectSet, ClusterObjectSetSpec, ClusterObjectSetStatus};
pub use condition::{Condition, ConditionStatus};
pub use crds::crds;
/// The types of Kubernetes inside those here, for crates that must not depend on a client.
pub use k8s_openapi;

/// The API group of all kinds here.
pub const GROUP: &str = "olm.operatorframework.io";
/// The one served and stored version.
pub const VERSION: &str = "v1";
/// `group/version`, as it stands in `apiVersion`.
pub const API_VERSION: &str = "olm.operatorframework.io/v1";

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use serde_json::json;

    use super::*;

    #[test]
    fn api_unreadable_object_does_not_break_the_others() {
        let object = |spec: serde_json::Value| json!({"apiVersion": API_VERSION, "kind": "ClusterCatalog", "metadata": {"name": "a"}, "spec": spec});
        let list = json!([
            object(json!({"source": {"type": "Image", "image": {"ref": "r"}}})),
            object(json!({"source": {"type": "Git"}})),
            object(json!({})),
        ]);
        assert!(
            serde_json::from_value::<Vec<ClusterCatalog>>(list.clone()).is_err(),
            "this is what the guard is for"
        );
        let guarded: Vec<DeserializeGuard<ClusterCatalog>> = serde_json::from_value(list).unwrap();
        let good: Vec<bool> = guarded.iter().map(|item| item.0.is_ok()).collect();
        assert_eq!(good, [true, false, false]);
        let unreadable = guarded[1].0.as_ref().err().unwrap();
        assert_eq!(unreadable.metadata.name.as_deref(), Some("a"));
    }

    /// rule: operator-controller §1.4; a cluster that the reference ran is taken over by these words
    #[test]
    #[rustfmt::skip]
    fn api_keys_and_values_are_those_of_the_reference() {
        for (ours, want) in [
            (labels::OWNER_KIND, "olm.operatorframework.io/owner-kind"),
            (labels::OWNER_KIND_CLUSTER_EXTENSION, "ClusterExtension"),
            (labels::OWNER_NAME, "olm.operatorframework.io/owner-name"),
            (labels::REVISION_NAME, "olm.operatorframework.io/revision-name"),
            (labels::MIGRATED_FROM_HELM, "olm.operatorframework.io/migrated-from-helm"),
            (labels::METADATA_NAME, "olm.operatorframework.io/metadata.name"),
            (labels::MANAGED_BY, "app.kubernetes.io/managed-by"),
            (labels::MANAGED_BY_OLM, "olm.operatorframework.io"),
            (annotations::PACKAGE_NAME, "olm.operatorframework.io/package-name"),
            (annotations::BUNDLE_NAME, "olm.operatorframework.io/bundle-name"),
            (annotations::BUNDLE_VERSION, "olm.operatorframework.io/bundle-version"),
            (annotations::BUNDLE_RELEASE, "olm.operatorframework.io/bundle-release"),
            (annotations::BUNDLE_REFERENCE, "olm.operatorframework.io/bundle-reference"),
            (annotations::PROPERTIES, "olm.properties"),
            (annotations::REVISION, "olm.operatorframework.io/revision"),
            (annotations::GENERATOR, "olm.operatorframework.io/generator"),
            (annotations::HELM_RELEASE_NAME, "meta.helm.sh/release-name"),
            (annotations::HELM_RELEASE_NAMESPACE, "meta.helm.sh/release-namespace"),
            (finalizers::CLEANUP_UNPACK_CACHE, "olm.operatorframework.io/cleanup-unpack-cache"),
            (finalizers::CLEANUP_CONTENT_MANAGER_CACHE, "olm.operatorframework.io/cleanup-contentmanager-cache"),
            (finalizers::TEARDOWN, "olm.operatorframework.io/teardown"),
            (secret_types::OBJECT_DATA, "olm.operatorframework.io/object-data"),
            (secret_types::HELM_INDEX, "operatorframework.io/index.v1"),
            (secret_types::HELM_CHUNK, "operatorframework.io/chunk.v1"),
            (field_managers::CLUSTER_EXTENSION_CONTROLLER, "olm.operatorframework.io/clusterextension-controller"),
            (field_managers::OBJECTS, "olm.operatorframework.io"),
        ] {
            assert_eq!(ours, want);
        }
    }

    #[test]
    fn api_absent_fields_are_not_sent() {
        let spec =
            json!({"namespace": "n", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}});
        let extension = ClusterExtension::new("a", serde_json::from_value(spec).unwrap());
        let sent = serde_json::to_value(extension).unwrap();
        let catalog = json!({"packageName": "p", "upgradeConstraintPolicy": "CatalogProvided"});
        let want = json!({
            "apiVersion": API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "a"},
            "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": catalog}}
        });
        assert_eq!(sent, want);
        assert_eq!(serde_json::to_value(ClusterExtensionStatus::default()).unwrap(), json!({}));
    }
}
