use olm_core::Object;

use super::*;

/// rule: classic-apis §7.7
#[test]
fn group_role_names_are_the_recorded_ones() {
    let group = group("c-og-ok-global", "og", json!({}), json!([""]));
    let roles = roles::of_group(&group, &ApiSet::default());
    let names: Vec<&str> = roles.iter().map(Object::name).collect();
    let want = [
        "olm.og.og.admin-6pwe0WbAwAuoTahbvUKX2dtr8DFL6FS12woJPc",
        "olm.og.og.edit-cODgMAH01ankIRlvLoBXJFVkHIBclNiSEav9tO",
        "olm.og.og.view-407dXTQeu8I3cXz78CqhBIITDqa1oIkRb6jDzO",
    ];
    assert_eq!(names, want);
    assert!(roles.iter().all(|role| !role.0.contains_key("aggregationRule")));
}

/// rule: classic-apis §7.7
#[test]
fn group_api_service_roles_are_owned_by_it() {
    let mut csv = csv("ns", &[], &["Missing"]);
    csv.spec.api_service_definitions = serde_json::from_value(json!({
        "owned": [{ "name": "things", "group": "y.io", "version": "v2", "kind": "Thing" }],
    }))
    .unwrap();
    let services = BTreeMap::from([("v2.y.io".to_owned(), "uid".to_owned())]);
    let roles = roles::of_apis(&csv, &BTreeMap::new(), &services);
    let names: Vec<&str> = roles.iter().map(Object::name).collect();
    assert_eq!(names, ["things-v2-admin", "things-v2-edit", "things-v2-view"]);
    let owner = &roles[0].metadata().unwrap()["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("APIService"), &json!("v2.y.io")));
    assert_eq!(roles[1].0["rules"][0]["apiGroups"], json!(["y.io"]));
}

/// rule: classic-apis §7.7
#[test]
fn group_rights_become_cluster_wide_for_all_namespaces() {
    let labels = json!({ "olm.owner": "demo.v1", "olm.owner.kind": "ClusterServiceVersion", "olm.owner.namespace": "ns", "olm.managed": "true" });
    let foreign = json!({ "olm.owner": "other.v1", "olm.owner.kind": "ClusterServiceVersion", "olm.owner.namespace": "ns" });
    let object = |kind: &str, labels: &Value| {
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r" });
        let mut object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": { "name": "r", "namespace": "ns", "labels": labels, "uid": "x", "resourceVersion": "9" },
        });
        match kind {
            "Role" => object["rules"] = json!([{ "verbs": ["get"] }]),
            _ => object["roleRef"] = role,
        }
        Object::from_value(object).unwrap()
    };
    let owned = [object("Role", &labels), object("RoleBinding", &labels), object("Role", &foreign)];
    let csv = csv("ns", &[], &[]);
    let wide = rights::spread(&csv, &[String::new()], &owned, &BTreeMap::new());
    let read = json!({ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] });
    assert_eq!(
        serde_json::to_value(&wide).unwrap(),
        json!([
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r", "labels": labels},
                "rules": [{"verbs": ["get"]}, read],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "r", "labels": labels},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            },
        ])
    );
    let apart = rights::apart(wide.clone(), "ns");
    assert_eq!(
        (apart[0].name(), apart[1].name(), &apart[1].0["roleRef"]["name"]),
        ("r-ns", "r-ns", &json!("r-ns"))
    );
    // what others made, or a plan for clusterPermissions, stays when the group gets other targets
    for (case, live, want) in [
        ("as they were made", wide.clone(), vec!["ClusterRoleBinding", "ClusterRole"]),
        ("under names of their own", apart, vec!["ClusterRoleBinding", "ClusterRole"]),
        ("gone", vec![], vec![]),
        ("of another CSV", vec![object("ClusterRole", &foreign)], vec![]),
        (
            "without labels",
            vec![object("ClusterRole", &json!({})), wide[1].clone()],
            vec!["ClusterRoleBinding"],
        ),
    ] {
        let is_it = |live: &&Object, it: &Object| (live.kind(), live.name()) == (it.kind(), it.name());
        let find = |it: &Object| live.iter().find(|live| is_it(live, it)).cloned();
        let left = rights::left_over(&csv, &owned, find);
        let kinds: Vec<&str> = left.iter().map(Object::kind).collect();
        assert_eq!(kinds, want, "{case}");
    }
    // neither its own namespace, nor one without a copy of the CSV
    let targets = ["a", "b", "ns"].map(str::to_owned);
    let copies = BTreeMap::from([("a".to_owned(), "uid-a".to_owned()), ("ns".to_owned(), "x".to_owned())]);
    let copied = rights::spread(&csv, &targets, &owned, &copies);
    let places: Vec<_> = copied.iter().map(|it| (it.kind(), it.namespace().unwrap())).collect();
    assert_eq!(places, [("Role", "a"), ("RoleBinding", "a")]);
}
