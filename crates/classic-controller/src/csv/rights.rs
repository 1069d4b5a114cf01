//! The rules of RBAC that hold for a ServiceAccount, from the caches.

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use olm_classic::csv::requirements::RuleScope;
use olm_classic::csv::rights::{allow, is_account};

use crate::cluster::Cluster;

/// The rules that hold for one ServiceAccount.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// In all namespaces.
    cluster: Vec<PolicyRule>,
    /// In the namespace that was asked for, beside those.
    namespace: Vec<PolicyRule>,
}

impl Rights {
    /// The rights of an account of a namespace, in that namespace and cluster-wide.
    pub(crate) fn of_account(cluster: &Cluster, namespace: &str, account: &str) -> Self {
        Self::at(cluster, namespace, (namespace, account))
    }

    /// The rights of an account, given by namespace and name, in the namespace `at` and cluster-wide.
    pub(crate) fn at(cluster: &Cluster, at: &str, (namespace, account): (&str, &str)) -> Self {
        let binds = |subjects: Option<&Vec<Subject>>, binding: Option<&str>| {
            subjects.is_some_and(|all| all.iter().any(|it| is_account(it, binding, namespace, account)))
        };
        let rules = |role: &RoleRef| -> Vec<PolicyRule> {
            let found = match role.kind.as_str() {
                "ClusterRole" => cluster.cluster_roles.find(&role.name).and_then(|role| role.rules.clone()),
                _ => cluster.roles.find(&format!("{at}/{}", role.name)).and_then(|it| it.rules.clone()),
            };
            found.unwrap_or_default()
        };
        let wide = cluster.cluster_role_bindings.all();
        let wide = wide.iter().filter(|binding| binds(binding.subjects.as_ref(), None));
        let here = cluster.role_bindings.in_namespace(at);
        let here = here.iter().filter(|binding| binds(binding.subjects.as_ref(), Some(at)));
        Self {
            cluster: wide.flat_map(|binding| rules(&binding.role_ref)).collect(),
            namespace: here.flat_map(|binding| rules(&binding.role_ref)).collect(),
        }
    }

    /// Whether the account may do all that a rule names.
    pub(crate) fn allow(&self, scope: RuleScope, rule: &PolicyRule) -> bool {
        match scope {
            RuleScope::Cluster => allow(&self.cluster, rule),
            RuleScope::Namespace => allow(&[self.cluster.as_slice(), &self.namespace].concat(), rule),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::put;

    #[test]
    fn rights_come_from_namespace_and_cluster() {
        let cluster = Cluster::new();
        let rules = |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
        let role_ref = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let subjects = json!([{"kind": "ServiceAccount", "name": "a", "namespace": "ns"}]);
        let meta = |namespace: &str, name: &str| json!({"namespace": namespace, "name": name});
        put(&cluster.roles, json!({"metadata": meta("ns", "r"), "rules": rules("pods")}));
        put(&cluster.roles, json!({"metadata": meta("other", "r"), "rules": rules("secrets")}));
        put(&cluster.cluster_roles, json!({"metadata": {"name": "wide"}, "rules": rules("nodes")}));
        put(&cluster.cluster_roles, json!({"metadata": {"name": "here"}, "rules": rules("services")}));
        for (name, role) in [("b1", role_ref("Role", "r")), ("b2", role_ref("ClusterRole", "here"))] {
            put(
                &cluster.role_bindings,
                json!({"metadata": meta("ns", name), "roleRef": role, "subjects": subjects}),
            );
        }
        let binding = json!({"metadata": {"name": "b3"}, "roleRef": role_ref("ClusterRole", "wide"), "subjects": subjects});
        put(&cluster.cluster_role_bindings, binding);
        let rights = Rights::of_account(&cluster, "ns", "a");
        for (resource, in_namespace, in_cluster) in [
            ("pods", true, false),
            ("services", true, false),
            ("nodes", true, true),
            ("secrets", false, false),
        ] {
            let rule: PolicyRule = serde_json::from_value(rules(resource)[0].clone()).unwrap();
            let got = (rights.allow(RuleScope::Namespace, &rule), rights.allow(RuleScope::Cluster, &rule));
            assert_eq!(got, (in_namespace, in_cluster), "{resource}");
        }
        let secrets: PolicyRule = serde_json::from_value(rules("secrets")[0].clone()).unwrap();
        put(
            &cluster.role_bindings,
            json!({"metadata": meta("other", "b"), "roleRef": role_ref("Role", "r"), "subjects": subjects}),
        );
        let elsewhere = Rights::at(&cluster, "other", ("ns", "a"));
        assert!(elsewhere.allow(RuleScope::Namespace, &secrets), "it is bound there");
        let none = Rights::of_account(&cluster, "ns", "b");
        assert!(
            !none.allow(RuleScope::Namespace, &serde_json::from_value(rules("pods")[0].clone()).unwrap())
        );
    }
}
