//! Service accounts, and the roles and bindings of the CSV's permissions. Rules: bundle-rendering §8.3, §9.1 to §9.3.

use std::collections::BTreeSet;

use olm_core::{Object, go};
use serde_json::{Value, json};

use super::Context;
use crate::csv::{Permission, PolicyRule};
use crate::modes::Targets;
use crate::names;

/// Accounts named by permissions, by name; `default` is the cluster's own.
pub(super) fn service_accounts(context: &Context<'_>) -> Vec<Object> {
    let csv = &context.bundle.csv;
    let named: BTreeSet<_> =
        csv.permissions.iter().chain(&csv.cluster_permissions).map(Permission::account).collect();
    named
        .into_iter()
        .filter(|name| *name != "default")
        .map(|name| {
            super::object(json!({
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": context.namespace()},
            }))
        })
        .collect()
}

/// Roles and their bindings in every watched namespace; none where the whole cluster is watched.
pub(super) fn permissions(context: &Context<'_>) -> Vec<Object> {
    let Targets::Namespaces(namespaces) = context.targets else { return Vec::new() };
    let mut objects = Vec::new();
    for namespace in namespaces {
        for permission in &context.bundle.csv.permissions {
            objects.extend(role_and_binding(context, permission, Some(namespace)));
        }
    }
    objects
}

/// Cluster roles and their bindings; permissions are promoted where the whole cluster is watched.
pub(super) fn cluster_permissions(context: &Context<'_>) -> Vec<Object> {
    let csv = &context.bundle.csv;
    let mut objects: Vec<_> = csv
        .cluster_permissions
        .iter()
        .flat_map(|permission| role_and_binding(context, permission, None))
        .collect();
    if *context.targets == Targets::All {
        for permission in &csv.permissions {
            let mut promoted = permission.clone();
            promoted.rules.get_or_insert_default().push(read_namespaces());
            objects.extend(role_and_binding(context, &promoted, None));
        }
    }
    objects
}

/// What an operator that watches everything needs beside its own permissions.
fn read_namespaces() -> PolicyRule {
    PolicyRule {
        verbs: Some(["get", "list", "watch"].map(str::to_owned).to_vec()),
        api_groups: vec![String::new()],
        resources: vec!["namespaces".to_owned()],
        ..PolicyRule::default()
    }
}

fn role_and_binding(
    context: &Context<'_>,
    permission: &Permission,
    namespace: Option<&String>,
) -> [Object; 2] {
    let account = permission.account();
    let base = format!("{}-{account}", context.bundle.csv.name);
    let name = names::name(&base, &names::object_hash(&go_text(permission)));
    let (role_kind, binding_kind) =
        if namespace.is_some() { ("Role", "RoleBinding") } else { ("ClusterRole", "ClusterRoleBinding") };
    let metadata = match namespace {
        Some(namespace) => json!({"name": name, "namespace": namespace}),
        None => json!({"name": name}),
    };
    let rules: Vec<_> = permission.rules.iter().flatten().map(rule_value).collect();
    let mut role = super::object(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": role_kind,
        "metadata": metadata,
    }));
    // moved, not copied
    role.0.insert("rules".to_owned(), Value::Array(rules));
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": binding_kind,
        "metadata": metadata,
        "subjects": [{"kind": "ServiceAccount", "namespace": context.namespace(), "name": account}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
    });
    [role, super::object(binding)]
}

fn rule_value(rule: &PolicyRule) -> Value {
    let mut value = json!({"verbs": rule.verbs.as_deref().unwrap_or_default()});
    for (member, texts) in optional_members(rule) {
        if !texts.is_empty() {
            value[member] = json!(texts);
        }
    }
    value
}

fn optional_members(rule: &PolicyRule) -> [(&'static str, &[String]); 4] {
    [
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
    ]
}

/// The permission as Go encodes its struct: members in the struct's order, empty optional lists left out.
fn go_text(permission: &Permission) -> String {
    let account = go::json_string(&Value::from(permission.service_account.as_str()));
    let rules = match &permission.rules {
        None => "null".to_owned(),
        Some(rules) => format!("[{}]", rules.iter().map(go_rule).collect::<Vec<_>>().join(",")),
    };
    format!("{{\"serviceAccountName\":{account},\"rules\":{rules}}}")
}

fn go_rule(rule: &PolicyRule) -> String {
    let mut text = format!(
        "{{\"verbs\":{}",
        rule.verbs.as_ref().map_or_else(|| "null".to_owned(), |verbs| go_texts(verbs))
    );
    for (member, texts) in optional_members(rule) {
        if !texts.is_empty() {
            text.push_str(&format!(",\"{member}\":{}", go_texts(texts)));
        }
    }
    text.push('}');
    text
}

fn go_texts(texts: &[String]) -> String {
    go::json_string(&json!(texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], group: &str, resource: &str) -> PolicyRule {
        PolicyRule {
            verbs: Some(verbs.iter().map(|verb| (*verb).to_owned()).collect()),
            api_groups: vec![group.to_owned()],
            resources: vec![resource.to_owned()],
            ..PolicyRule::default()
        }
    }

    #[test]
    fn rbac_permission_is_encoded_as_in_go() {
        let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
        let permission = Permission {
            service_account: "webhook-operator-controller-manager".to_owned(),
            rules: Some(vec![
                rule(&all, "", "configmaps"),
                rule(&all, "coordination.k8s.io", "leases"),
                rule(&["create", "patch"], "", "events"),
                read_namespaces(),
            ]),
        };
        let text = go_text(&permission);
        let want = r#"{"serviceAccountName":"webhook-operator-controller-manager","rules":[{"verbs":["get","list","watch","create","update","patch","delete"],"apiGroups":[""],"resources":["configmaps"]},{"verbs":["get","list","watch","create","update","patch","delete"],"apiGroups":["coordination.k8s.io"],"resources":["leases"]},{"verbs":["create","patch"],"apiGroups":[""],"resources":["events"]},{"verbs":["get","list","watch"],"apiGroups":[""],"resources":["namespaces"]}]}"#;
        assert_eq!(text, want);
        let base = "webhook-operator.v0.0.5-webhook-operator-controller-manager";
        let want = "webhook-operator.v-1zfvwth88plw3th2midra1jqduroo1q7omiagjujsiu3";
        assert_eq!(names::name(base, &names::object_hash(&text)), want);
    }

    #[test]
    fn absent_and_empty_lists_differ_in_the_encoding() {
        let encoded = |service_account: &str, rules: Option<Vec<PolicyRule>>| {
            go_text(&Permission { service_account: service_account.to_owned(), rules })
        };
        assert_eq!(encoded("", None), r#"{"serviceAccountName":"","rules":null}"#);
        assert_eq!(encoded("a<b", Some(Vec::new())), "{\"serviceAccountName\":\"a\\u003cb\",\"rules\":[]}");
        let unsorted = PolicyRule {
            resource_names: vec!["n".to_owned()],
            non_resource_urls: vec!["/metrics".to_owned()],
            ..PolicyRule::default()
        };
        let empty = PolicyRule { verbs: Some(Vec::new()), ..PolicyRule::default() };
        let want = r#"{"serviceAccountName":"a","rules":[{"verbs":null,"resourceNames":["n"],"nonResourceURLs":["/metrics"]},{"verbs":[]}]}"#;
        assert_eq!(encoded("a", Some(vec![unsorted, empty])), want);
    }
}
