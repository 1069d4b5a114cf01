//! Labels and annotations of operator groups and their operators (classic-apis §12).

/// Annotation of a CSV: the name of its operator group.
pub const OPERATOR_GROUP: &str = "olm.operatorGroup";
/// Annotation of a CSV: the namespace of its operator group.
pub const OPERATOR_NAMESPACE: &str = "olm.operatorNamespace";
/// Annotation of a CSV that is no copy: the namespaces that it watches, sorted, with commas between them; empty for all.
pub const TARGET_NAMESPACES: &str = "olm.targetNamespaces";
/// Annotation of an operator group: the APIs of its operators.
pub const PROVIDED_APIS: &str = "olm.providedAPIs";
/// Label of copies: the namespace of the original.
pub const COPIED_FROM: &str = "olm.copiedFrom";
/// Label of an object: the name of its owner.
pub const OWNER: &str = "olm.owner";
/// Label of an object: the namespace of its owner.
pub const OWNER_NAMESPACE: &str = "olm.owner.namespace";
/// Label of an object: the kind of its owner.
pub const OWNER_KIND: &str = "olm.owner.kind";
/// Label of every object that OLM creates, with the value `true`; the caches hold no other.
pub const MANAGED: &str = "olm.managed";
/// Prefix of the label of a target namespace; the UID of the operator group follows.
pub const GROUP_UID: &str = "olm.operatorgroup.uid/";
/// Prefix of the label of each component of an operator; `PACKAGE.NAMESPACE` follows.
pub const COMPONENT: &str = "operators.coreos.com/";
/// Annotation of `kubectl apply`.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
