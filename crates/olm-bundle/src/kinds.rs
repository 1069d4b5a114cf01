//! Kinds of objects that a bundle may ship beside its CSV and CRDs. Rule: bundle-rendering §7, check 13.
//!
//! Matched by kind alone, as the reference does: a `Service` of another group passes as a core one would.

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
        // the reference takes it for cluster-scoped, which leaves it without a namespace (bundle-rendering §16 row 10)
        | "VerticalPodAutoscaler" => Some(Scope::Namespaced),
        "ClusterRole" | "ClusterRoleBinding" | "PriorityClass" | "ConsoleYAMLSample" | "ConsoleQuickStart"
        | "ConsoleCLIDownload" | "ConsoleLink" | "ConsolePlugin" => Some(Scope::Cluster),
        _ => None,
    }
}

/// The `apiVersion` that a manifest of the kind has when it names none. Published bundles hold such manifests; the
/// reference reads them and then cannot apply them.
pub(crate) fn usual_api_version(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Service" | "ServiceAccount" | "Secret" | "ConfigMap" => "v1",
        "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => "rbac.authorization.k8s.io/v1",
        "PodDisruptionBudget" => "policy/v1",
        "NetworkPolicy" => "networking.k8s.io/v1",
        "PriorityClass" => "scheduling.k8s.io/v1",
        "PrometheusRule" | "ServiceMonitor" | "PodMonitor" => "monitoring.coreos.com/v1",
        "VerticalPodAutoscaler" => "autoscaling.k8s.io/v1",
        "ConsoleYAMLSample" | "ConsoleQuickStart" | "ConsoleCLIDownload" | "ConsoleLink"
        | "ConsolePlugin" => "console.openshift.io/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "ClusterServiceVersion" => "operators.coreos.com/v1alpha1",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_a_usual_version() {
        for kind in
            ["VerticalPodAutoscaler", "ConsolePlugin", "PodMonitor", "NetworkPolicy", "PriorityClass", "Role"]
        {
            assert!(scope(kind).is_some() && usual_api_version(kind).is_some(), "{kind}");
        }
        assert_eq!((scope("Deployment"), usual_api_version("Deployment")), (None, None));
    }
}
