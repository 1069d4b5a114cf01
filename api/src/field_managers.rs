//! Field managers of server-side apply. They are visible in `metadata.managedFields` and must not change.
//!
//! Rule: operator-controller §1.4, decision 20.

/// Writes ClusterObjectSets on behalf of a ClusterExtension.
pub const CLUSTER_EXTENSION_CONTROLLER: &str = "olm.operatorframework.io/clusterextension-controller";
/// Writes the objects of a ClusterObjectSet.
pub const OBJECTS: &str = "olm.operatorframework.io";
/// Writes the Secrets of built-in webhook certificates, and the `caBundle`s that trust them (decision 13).
pub const WEBHOOK_CERTIFICATES: &str = "olm.operatorframework.io/webhook-certificates";
/// Writes the status of the ClusterOperator `olm`.
pub const CLUSTER_OPERATOR: &str = "olm.operatorframework.io/cluster-operator";
