//! Needs, those that are missing, and the roles that grant them, over one small operator.

use std::collections::{BTreeMap, BTreeSet};

use olm_core::{Object, ObjectKey};
use serde_json::{Value, json};

use super::{Granted, Right, RoleRef, Roles, Rule, Scope, Served, missing, needed};

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

fn operator() -> Vec<Object> {
    let rbac = "rbac.authorization.k8s.io/v1";
    vec![
        object(
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "op", "namespace": "ns"}}),
        ),
        object(json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "op"},
            "rules": [{"apiGroups": ["demo.io"], "resources": ["things", "things/status"], "verbs": ["get", "update"]},
                      {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]})),
        object(json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "op"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "op"},
            "subjects": [{"kind": "ServiceAccount", "name": "op", "namespace": "ns"}]})),
        object(json!({"apiVersion": rbac, "kind": "Role", "metadata": {"name": "op", "namespace": "ns"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]})),
        object(
            json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": "view", "namespace": "ns"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}),
        ),
        object(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.demo.io"},
            "spec": {"group": "demo.io", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}}})),
        object(
            json!({"apiVersion": "demo.io/v1", "kind": "Thing", "metadata": {"name": "first", "namespace": "ns"}}),
        ),
    ]
}

fn served(key: &ObjectKey) -> Option<Served> {
    let (plural, namespaced) = match key.kind.as_str() {
        "ServiceAccount" => ("serviceaccounts", true),
        "ClusterRole" => ("clusterroles", false),
        "ClusterRoleBinding" => ("clusterrolebindings", false),
        "Role" => ("roles", true),
        "RoleBinding" => ("rolebindings", true),
        "CustomResourceDefinition" => ("customresourcedefinitions", false),
        _ => return None,
    };
    Some(Served { plural: plural.to_owned(), namespaced })
}

fn no_rules(_: &RoleRef) -> Option<Vec<Rule>> {
    None
}

fn texts(rights: &BTreeSet<(Scope, Right)>) -> Vec<String> {
    let scope = |scope: &Scope| match scope {
        Scope::Cluster => "cluster".to_owned(),
        Scope::Namespace(namespace) => namespace.clone(),
    };
    rights.iter().map(|(at, right)| format!("{}: {right}", scope(at))).collect()
}

#[test]
fn permissions_missing_are_reported_as_roles_to_apply() {
    let needs = needed(&operator(), served, no_rules);
    let all = missing(&needs, &Granted::default());
    insta::assert_snapshot!(Roles::new("op-installer", "ns", "installer", &all));
}

#[test]
fn permissions_missing_are_listed_in_words() {
    let needs = needed(&operator(), served, no_rules);
    let all = missing(&needs, &Granted::default());
    insta::assert_snapshot!(Roles::new("op-installer", "ns", "installer", &all).lines().join("\n"));
}

#[test]
fn permissions_granted_by_the_roles_are_not_missing() {
    let needs = needed(&operator(), served, no_rules);
    let all = missing(&needs, &Granted::default());
    let mut granted = Granted::default();
    for (scope, rules) in Roles::new("x", "ns", "installer", &all).rules {
        match scope {
            Scope::Cluster => granted.cluster.extend(rules),
            Scope::Namespace(namespace) => granted.namespaces.entry(namespace).or_default().extend(rules),
        }
    }
    assert_eq!(texts(&missing(&needs, &granted)), Vec::<String>::new());
    // each single right counts
    for rule in 0..granted.cluster.len() {
        let mut less = granted.clone();
        less.cluster.remove(rule);
        assert!(!missing(&needs, &less).is_empty(), "without {:?}", granted.cluster[rule]);
    }
}

#[test]
fn permissions_of_a_cluster_admin_are_complete() {
    let star = || vec!["*".to_owned()];
    let admin = vec![
        Rule { groups: star(), resources: star(), verbs: star(), ..Rule::default() },
        Rule { urls: star(), verbs: star(), ..Rule::default() },
    ];
    let granted = Granted { cluster: admin, namespaces: BTreeMap::new() };
    assert_eq!(texts(&missing(&needed(&operator(), served, no_rules), &granted)), Vec::<String>::new());
}

#[test]
fn permissions_granting_needs_the_rights_or_escalate_and_bind() {
    let role = vec![operator().remove(1)];
    let base = |verb: &str| Rule {
        groups: vec!["rbac.authorization.k8s.io".to_owned()],
        resources: vec!["clusterroles".to_owned()],
        verbs: vec![verb.to_owned()],
        ..Rule::default()
    };
    let lacks = |granted: Vec<Rule>| {
        let granted = Granted { cluster: granted, namespaces: BTreeMap::new() };
        let needs = needed(&role, served, no_rules);
        missing(&needs, &granted).iter().filter(|(_, right)| right.to_string().contains("things")).count()
    };
    assert_eq!(lacks(vec![base("create")]), 4);
    assert_eq!(lacks(vec![base("escalate")]), 0);
    let one = Rule::from_value(&json!({"apiGroups": ["demo.io"], "resources": ["things"], "verbs": ["get"]}));
    assert_eq!(lacks(vec![one]), 3);
}

#[test]
fn permissions_binding_to_a_foreign_role_needs_its_rules() {
    let binding = vec![operator().remove(4)];
    let lacks = |roles: &dyn Fn(&RoleRef) -> Option<Vec<Rule>>| {
        let needs = needed(&binding, served, roles);
        let all = texts(&missing(&needs, &Granted::default()));
        all.into_iter()
            .filter(|text| !text.contains("rolebindings") && !text.contains("finalizers"))
            .collect::<Vec<_>>()
    };
    assert_eq!(lacks(&no_rules), ["ns: bind clusterroles.rbac.authorization.k8s.io \"view\""]);
    let view = |reference: &RoleRef| {
        assert_eq!(reference, &RoleRef { namespace: None, name: "view".to_owned() });
        Some(vec![Rule::from_value(
            &json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}),
        )])
    };
    assert_eq!(lacks(&view), ["ns: get pods", "ns: list pods"]);
}

#[test]
fn permissions_aggregated_role_needs_escalate() {
    let role = object(
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}, "rules": []}),
    );
    let all = texts(&missing(&needed(&[role], served, no_rules), &Granted::default()));
    assert!(
        all.iter().any(|text| text.contains("escalate clusterroles.rbac.authorization.k8s.io \"a\"")),
        "{all:?}"
    );
}
