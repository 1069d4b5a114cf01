//! The Kubernetes API of OLM v1 as Rust types: `ClusterExtension`, `ClusterCatalog`, `ClusterObjectSet` in group
//! `olm.operatorframework.io`, version `v1`, with the words (reasons, condition types, labels) that clients read.
//!
//! What it deliberately does not do: no behaviour, no client calls, no parsing of versions or references. The structs hold
//! plain strings and enums as the apiserver stores them; whoever needs meaning turns them into newtypes first.
//!
//! **Watching.** An object that was stored under an older schema, or by a newer version of this project, may not
//! deserialise into these types, and one such object fails a typed list or watch *as a whole*. Watch and list
//! `Api<kube::core::DeserializeGuard<T>>`: the odd object then arrives as one `Err` with its metadata and the others
//! keep working.
//!
//! The CRD manifests are generated from these types ([`crds`]); `manifests/crds` holds the result.

pub mod annotations;
pub mod cel;
pub mod cluster_catalog;
pub mod cluster_extension;
pub mod cluster_object_set;
pub mod condition;
mod crds;
pub mod field_managers;
pub mod finalizers;
pub mod labels;
pub mod reason;
mod schema;
pub mod secret_types;

pub use cluster_catalog::{ClusterCatalog, ClusterCatalogSpec, ClusterCatalogStatus};
pub use cluster_extension::{ClusterExtension, ClusterExtensionSpec, ClusterExtensionStatus};
pub use cluster_object_set::{ClusterObjectSet, ClusterObjectSetSpec, ClusterObjectSetStatus};
pub use condition::{Condition, ConditionStatus};
pub use crds::crds;

/// The API group of all kinds here.
pub const GROUP: &str = "olm.operatorframework.io";
/// The one served and stored version.
pub const VERSION: &str = "v1";
/// `group/version`, as it stands in `apiVersion`.
pub const API_VERSION: &str = "olm.operatorframework.io/v1";
