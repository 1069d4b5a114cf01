//! Finalizers that the processes put on API objects.
//!
//! Rule: operator-controller §1.4, catalogd §3.6.

/// On a ClusterExtension: its unpacked bundles are deleted first.
pub const CLEANUP_UNPACK_CACHE: &str = "olm.operatorframework.io/cleanup-unpack-cache";
/// On a ClusterExtension: watches for its objects are given up first.
pub const CLEANUP_CONTENT_MANAGER_CACHE: &str = "olm.operatorframework.io/cleanup-contentmanager-cache";
/// On a ClusterObjectSet: its objects are torn down first.
pub const TEARDOWN: &str = "olm.operatorframework.io/teardown";
/// On a ClusterCatalog: its served content is deleted first.
pub const DELETE_SERVER_CACHE: &str = "olm.operatorframework.io/delete-server-cache";
