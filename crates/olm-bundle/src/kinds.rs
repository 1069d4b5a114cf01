//! Kinds of objects that a bundle may ship beside its CSV and CRDs. Rule: bundle-rendering §7, check 13.
//!
//! Matched by kind alone, as the reference does: a `Service` of another group passes as a core one would.

/// Where objects of a kind live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Namespaced,
    Cluster,
}

/// The scope of a supported kind; `None` for kinds that a bundle may not ship.
pub(crate) fn scope(kind: &str) -> Option<Scope> {
    match kind {
        "Service" | "ServiceAccount" | "Role" | "RoleBinding" | "Secret" | "ConfigMap" | "PodDisruptionBudget"
        | "NetworkPolicy" | "PrometheusRule" | "ServiceMonitor" | "PodMonitor"
        // the reference takes it for cluster-scoped, which leaves it without a namespace (defect 10 of §16)
        | "VerticalPodAutoscaler" => Some(Scope::Namespaced),
        "ClusterRole" | "ClusterRoleBinding" | "PriorityClass" | "ConsoleYAMLSample" | "ConsoleQuickStart"
        | "ConsoleCLIDownload" | "ConsoleLink" | "ConsolePlugin" => Some(Scope::Cluster),
        _ => None,
    }
}
