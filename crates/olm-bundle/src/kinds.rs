//! Kinds of objects that a bundle may ship beside its CSV and CRDs. Rule: bundle-rendering §7, check 13.
//!
//! Matched by kind alone, as the reference does: a `Service` of another group passes as a core one would.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// A kind that a bundle may ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupportedKind {
    pub kind: &'static str,
    /// The `apiVersion` that a manifest of the kind has when it names none. Published bundles hold such manifests; the reference
    /// reads them and then cannot apply them.
    pub usual_api_version: &'static str,
    pub scope: Scope,
}

const fn supported(scope: Scope, usual_api_version: &'static str, kind: &'static str) -> SupportedKind {
    SupportedKind { kind, usual_api_version, scope }
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const MONITORING: &str = "monitoring.coreos.com/v1";
const CONSOLE: &str = "console.openshift.io/v1";

/// The kinds that a bundle may ship beside its CSV and CRDs.
pub const SUPPORTED_KINDS: &[SupportedKind] = &[
    supported(Scope::Namespaced, "v1", "ConfigMap"),
    supported(Scope::Namespaced, "v1", "Secret"),
    supported(Scope::Namespaced, "v1", "Service"),
    supported(Scope::Namespaced, "v1", "ServiceAccount"),
    // the reference takes it for cluster-scoped, which leaves it without a namespace (bundle-rendering §16 row 10)
    supported(Scope::Namespaced, "autoscaling.k8s.io/v1", "VerticalPodAutoscaler"),
    supported(Scope::Cluster, CONSOLE, "ConsoleCLIDownload"),
    supported(Scope::Cluster, CONSOLE, "ConsoleLink"),
    supported(Scope::Cluster, CONSOLE, "ConsolePlugin"),
    supported(Scope::Cluster, CONSOLE, "ConsoleQuickStart"),
    supported(Scope::Cluster, CONSOLE, "ConsoleYAMLSample"),
    supported(Scope::Namespaced, MONITORING, "PodMonitor"),
    supported(Scope::Namespaced, MONITORING, "PrometheusRule"),
    supported(Scope::Namespaced, MONITORING, "ServiceMonitor"),
    supported(Scope::Namespaced, "networking.k8s.io/v1", "NetworkPolicy"),
    supported(Scope::Namespaced, "policy/v1", "PodDisruptionBudget"),
    supported(Scope::Cluster, RBAC, "ClusterRole"),
    supported(Scope::Cluster, RBAC, "ClusterRoleBinding"),
    supported(Scope::Namespaced, RBAC, "Role"),
    supported(Scope::Namespaced, RBAC, "RoleBinding"),
    supported(Scope::Cluster, "scheduling.k8s.io/v1", "PriorityClass"),
];

fn find(kind: &str) -> Option<&'static SupportedKind> {
    SUPPORTED_KINDS.iter().find(|found| found.kind == kind)
}

/// The scope of a supported kind; `None` for kinds that a bundle may not ship.
pub(crate) fn scope(kind: &str) -> Option<Scope> {
    find(kind).map(|found| found.scope)
}

/// See [`SupportedKind::usual_api_version`].
pub(crate) fn usual_api_version(kind: &str) -> Option<&'static str> {
    match kind {
        "CustomResourceDefinition" => Some("apiextensions.k8s.io/v1"),
        "ClusterServiceVersion" => Some("operators.coreos.com/v1alpha1"),
        kind => find(kind).map(|found| found.usual_api_version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_a_usual_version() {
        assert_eq!(scope("VerticalPodAutoscaler"), Some(Scope::Namespaced));
        assert_eq!(usual_api_version("ConsolePlugin"), Some(CONSOLE));
        assert_eq!((scope("Deployment"), usual_api_version("Deployment")), (None, None));
        let csv = "ClusterServiceVersion";
        assert_eq!((scope(csv), usual_api_version(csv)), (None, Some("operators.coreos.com/v1alpha1")));
    }
}
