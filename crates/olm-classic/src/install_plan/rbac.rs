//! Service accounts, roles and bindings that a plan makes from the permissions of a ClusterServiceVersion.
//!
//! Names and content hashes are those of the reference, byte for byte: they are what a cluster has that it managed before.
//! Rule: classic-apis §5.3.

use olm_api::classic::ClusterServiceVersion;
use olm_api::classic::cluster_service_version::StrategyDeploymentPermissions;
use olm_api::k8s_openapi::api::rbac::v1::PolicyRule;
use olm_core::{Object, go};
use serde_json::{Value, json};

use crate::operator_group::encode;

/// Longest name, in bytes.
const MAX_NAME_LENGTH: usize = 63;
const RBAC: &str = "rbac.authorization.k8s.io";
const HASH_LABEL: &str = "olm.permissions.hash";

/// The objects in the order of a plan: for each account by name its ServiceAccount, roles with bindings, cluster roles with bindings.
pub(super) fn objects(csv: &ClusterServiceVersion, csv_name: &str, namespace: &str) -> Vec<Object> {
    let Some(strategy) = &csv.spec.install.spec else { return Vec::new() };
    let mut accounts: Vec<&str> = (strategy.permissions.iter().chain(&strategy.cluster_permissions))
        .map(|permissions| permissions.service_account_name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    accounts.sort_unstable();
    accounts.dedup();
    let mut objects = Vec::new();
    let owner = Owner { csv: csv_name, namespace };
    for account in accounts {
        // the account `default` is the cluster's own
        if account != "default" {
            objects.push(owner.account(account));
        }
        for permissions in of_account(&strategy.permissions, account) {
            let name = role_name(&format!("{csv_name}-{account}"), &owner.name_text(permissions, false));
            objects.extend(owner.role_and_binding("Role", &name, permissions));
        }
        for permissions in of_account(&strategy.cluster_permissions, account) {
            let name = role_name(csv_name, &owner.name_text(permissions, true));
            objects.extend(owner.role_and_binding("ClusterRole", &name, permissions));
        }
    }
    objects
}

fn of_account<'a>(
    list: &'a [StrategyDeploymentPermissions],
    account: &'a str,
) -> impl Iterator<Item = &'a StrategyDeploymentPermissions> {
    list.iter().filter(move |permissions| permissions.service_account_name == account)
}

struct Owner<'a> {
    csv: &'a str,
    namespace: &'a str,
}

impl Owner<'_> {
    fn account(&self, name: &str) -> Object {
        let mut metadata = json!({"name": name, "namespace": self.namespace});
        metadata["ownerReferences"] = json!([self.reference()]);
        object(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
    }

    fn role_and_binding(
        &self,
        kind: &str,
        name: &str,
        permissions: &StrategyDeploymentPermissions,
    ) -> [Object; 2] {
        let account = &permissions.service_account_name;
        let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}]);
        let role_ref = json!({"apiGroup": RBAC, "kind": kind, "name": name});
        let rules: Vec<String> = permissions.rules.iter().map(go_rule).collect();
        let rules_hash = encode(&format!("[{}]", rules.join(",")));
        let binding_hash = encode(&go::json_string(&json!({"RoleRef": role_ref, "Subjects": subjects})));
        let is_namespaced = kind == "Role";
        let role = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": kind,
            "metadata": self.metadata(name, &rules_hash, is_namespaced), "rules": permissions.rules,
        });
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"),
            "metadata": self.metadata(name, &binding_hash, is_namespaced), "subjects": subjects, "roleRef": role_ref,
        });
        [object(role), object(binding)]
    }

    fn metadata(&self, name: &str, hash: &str, is_namespaced: bool) -> Value {
        let mut labels = super::step::owner_labels(self.csv, self.namespace);
        labels.insert(HASH_LABEL.into(), hash.into());
        let mut metadata = json!({"name": name, "labels": labels});
        if is_namespaced {
            metadata["namespace"] = self.namespace.into();
            metadata["ownerReferences"] = json!([self.reference()]);
        }
        metadata
    }

    /// Without the UID, which is not known before the ClusterServiceVersion exists.
    fn reference(&self) -> Value {
        super::step::owner_reference(self.csv, "")
    }

    /// What the hash in the name of a role covers.
    fn name_text(&self, permissions: &StrategyDeploymentPermissions, is_cluster: bool) -> String {
        let quoted = |text: &str| go::json_string(&Value::from(text));
        let rules: Vec<String> = permissions.rules.iter().map(go_rule).collect();
        let namespace =
            if is_cluster { format!(",\"namespace\":{}", quoted(self.namespace)) } else { String::new() };
        format!(
            "{{\"name\":{}{namespace},\"permission\":{{\"serviceAccountName\":{},\"rules\":[{}]}}}}\n",
            quoted(self.csv),
            quoted(&permissions.service_account_name),
            rules.join(","),
        )
    }
}

/// The rule as Go encodes its struct: members in the struct's order, empty optional lists left out.
fn go_rule(rule: &PolicyRule) -> String {
    let mut text = format!("{{\"verbs\":{}", go::json_string(&json!(rule.verbs)));
    for (member, texts) in [
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
    ] {
        if let Some(texts) = texts.as_ref().filter(|texts| !texts.is_empty()) {
            text.push_str(&format!(",\"{member}\":{}", go::json_string(&json!(texts))));
        }
    }
    text.push('}');
    text
}

/// `<base>-<hash of the text>`, the base cut so that the name has at most 63 bytes.
fn role_name(base: &str, text: &str) -> String {
    let hash = encode(text);
    let mut end = base.len();
    if base.len() + hash.len() > MAX_NAME_LENGTH {
        end = MAX_NAME_LENGTH.saturating_sub(hash.len() + 1).min(base.len());
    }
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &base[..end])
}

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], group: &str, resource: &str) -> PolicyRule {
        PolicyRule {
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            ..PolicyRule::default()
        }
    }

    #[test]
    fn rbac_names_and_hashes_are_those_recorded() {
        let owner = Owner { csv: "demo-sb-manual.v1.0.0", namespace: "c-sb-manual" };
        let permissions = |rule: PolicyRule| StrategyDeploymentPermissions {
            service_account_name: "demo-sb-manual-sa".to_owned(),
            rules: vec![rule],
            ..StrategyDeploymentPermissions::default()
        };
        let own = permissions(rule(&["get", "list", "watch", "create"], "", "configmaps"));
        let name = role_name("demo-sb-manual.v1.0.0-demo-sb-manual-sa", &owner.name_text(&own, false));
        assert_eq!(name, "demo-sb-manual.v1.0.0-dem-23anNnOQVvUSw44Wko3EfQY3KJhE90oDlAGRl");
        let [role, binding] = owner.role_and_binding("Role", &name, &own);
        assert_eq!(role.labels()[HASH_LABEL], "7pnGfKgI8Rnf6fYdJI9POdoNFNWWdPMI1ldfq6");
        assert_eq!(binding.labels()[HASH_LABEL], "3GfhVmRCfc20ju3fIaUbtFdV7xvnd6fr2RIUHS");
        let wide = permissions(rule(&["*"], "sb-manual.lab.test", "*"));
        let name = role_name("demo-sb-manual.v1.0.0", &owner.name_text(&wide, true));
        assert_eq!(name, "demo-sb-manual.v1.0.0-cQm7ci77eDo6xbnAG6QLIbsMRxCw3K8JT3hQ2H");
        let [role, binding] = owner.role_and_binding("ClusterRole", &name, &wide);
        assert_eq!(role.labels()[HASH_LABEL], "2BSs3VX38EJWMm8AMoJ6D4l4HIW6Nm3DLOyBA3");
        assert_eq!(binding.labels()[HASH_LABEL], "3vLOTqknoIOaV5MQU0kAhgYsub4OMkEmzGxt0I");
        assert_eq!((role.namespace(), binding.kind()), (None, "ClusterRoleBinding"));
    }

    #[test]
    fn rbac_names_have_63_bytes_and_whole_characters() {
        let long = "é".repeat(60);
        let name = role_name(&long, "text");
        assert!(name.len() <= MAX_NAME_LENGTH && name.starts_with('é'), "{name}");
        assert!(role_name("short", "text").starts_with("short-"));
    }
}
