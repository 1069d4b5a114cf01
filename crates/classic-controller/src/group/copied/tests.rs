//! Requests of the controller of copies, rights and roles, in each state of the cluster.

use kube::runtime::watcher::Event;
use olm_runtime::metrics::Outcome;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::testing::{self, Apiserver, failure, failure_with, put, success};

/// One pass over the copies of a CSV in all namespaces: its requests, and what comes of it. `is_disabled` is the switch of the OLMConfig,
/// without effect in the namespace `protected`; in the namespace `refused` nothing may be written.
async fn pass(is_disabled: bool, protected: &str, refused: &'static str) -> (Vec<String>, kube::Result<()>) {
    let csv = |namespace: &str, labels: Value| {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"namespace": namespace, "name": "demo.v1", "uid": namespace, "resourceVersion": "2", "labels": labels},
            "spec": {"displayName": "d", "install": {"strategy": "deployment"}},
            "status": {"phase": "Succeeded", "reason": "InstallSucceeded"},
        })
    };
    let copy = csv("b", json!({"olm.copiedFrom": "home"}));
    let answer = copy.clone();
    let apiserver = Apiserver::new(move |_, uri| match uri.contains(&format!("/namespaces/{refused}/")) {
        true => failure_with(403, "Forbidden", "no"),
        false => (200, answer.clone()),
    });
    let cluster = Cluster::new();
    for namespace in ["home", "b", "c"] {
        put(&cluster.namespaces, json!({"metadata": {"name": namespace}}));
    }
    let features = json!({"features": {"disableCopiedCSVs": is_disabled}});
    put(&cluster.configs, json!({"metadata": {"name": "cluster"}, "spec": features}));
    if is_disabled {
        cluster.copies.insert(&serde_json::from_value(copy).unwrap());
    }
    let protected = BTreeSet::from([protected.to_owned()]);
    let context = testing::context_with(NAME, &apiserver, &cluster, protected);
    let original = serde_json::from_value(csv("home", json!({}))).unwrap();
    let outcome = write_copies(&context, &original, &[String::new()]).await;
    let short = |line: String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    (apiserver.requests().into_iter().map(short).collect(), outcome)
}

#[tokio::test]
async fn copy_that_is_refused_keeps_no_other_from_being_written() {
    for refused in ["b", "c"] {
        let (requests, outcome) = pass(false, "none", refused).await;
        for namespace in ["b", "c"] {
            let created = format!("/namespaces/{namespace}/clusterserviceversions?");
            let is_creation = |line: &&String| line.starts_with("POST ") && line.contains(&created);
            assert_eq!(requests.iter().filter(is_creation).count(), 1, "{refused}: {requests:?}");
        }
        assert!(outcome.is_err(), "{refused} is tried again");
    }
}

#[tokio::test]
async fn copy_that_is_gone_is_created_again() {
    let csv = |namespace: &str, text: &str, labels: Value| {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"namespace": namespace, "name": "demo.v1", "uid": namespace, "resourceVersion": "2", "labels": labels},
            "spec": {"displayName": text, "install": {"strategy": "deployment"}},
            "status": {"phase": "Succeeded", "reason": "InstallSucceeded"},
        })
    };
    let copied = json!({"olm.copiedFrom": "home"});
    let answer = csv("b", "new", copied.clone());
    let apiserver = Apiserver::new(move |method, uri| match method {
        "PUT" if !uri.contains("/status") => failure(404, "NotFound"),
        _ => (200, answer.clone()),
    });
    let cluster = Cluster::new();
    for namespace in ["home", "b"] {
        put(&cluster.namespaces, json!({"metadata": {"name": namespace}}));
    }
    cluster.copies.insert(&serde_json::from_value(csv("b", "old", copied)).unwrap());
    let context = testing::context(NAME, &apiserver, &cluster);
    let original = serde_json::from_value(csv("home", "new", json!({}))).unwrap();
    let error = write_copies(&context, &original, &["b".to_owned()]).await.unwrap_err();
    assert_eq!(ended(Err(error)).0, Requeue::Backoff);
    write_copies(&context, &original, &["b".to_owned()]).await.unwrap();
    let requests = apiserver.requests();
    let methods = requests.iter().map(|line| line.split(' ').next().unwrap_or_default());
    assert!(methods.eq(["PUT", "POST", "PUT"]), "{requests:?}");
}

#[tokio::test]
async fn copy_that_is_refused_keeps_no_other_from_being_deleted() {
    let csv = |namespace: &str, labels: Value| {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"namespace": namespace, "name": "demo.v1", "uid": namespace, "labels": labels},
            "spec": {"displayName": "d", "install": {"strategy": "deployment"}},
            "status": {"phase": "Succeeded", "reason": "InstallSucceeded"},
        })
    };
    let cluster = Cluster::new();
    put(&cluster.namespaces, json!({"metadata": {"name": "c"}}));
    let copy = csv("b", json!({"olm.copiedFrom": "home"}));
    cluster.copies.insert(&serde_json::from_value(copy).unwrap());
    let apiserver = Apiserver::new(|_, uri| match uri.contains("/namespaces/c/") {
        true => failure_with(403, "Forbidden", "no"),
        false => success(),
    });
    let context = testing::context(NAME, &apiserver, &cluster);
    let original = serde_json::from_value(csv("home", json!({}))).unwrap();
    assert!(write_copies(&context, &original, &["c".to_owned()]).await.is_err(), "it is tried again");
    assert!(cluster.copies.get("b/demo.v1").is_none(), "{:?}", apiserver.requests());
}

#[tokio::test]
async fn copies_that_one_namespace_keeps_are_deleted_in_others() {
    let cluster = Cluster::new();
    for namespace in ["b", "c"] {
        let labels = json!({"olm.copiedFrom": "home"});
        let metadata = json!({"namespace": namespace, "name": "demo.v1", "uid": namespace, "labels": labels});
        let spec = json!({"displayName": "d", "install": {"strategy": "deployment"}});
        let copy = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        cluster.copies.insert(&copy);
    }
    let apiserver = Apiserver::new(|_, uri| match uri.contains("/namespaces/b/") {
        true => failure_with(403, "Forbidden", "no"),
        false => success(),
    });
    let context = testing::context(NAME, &apiserver, &cluster);
    assert!(reconcile(&context, "home/demo.v1").await.is_err(), "it is tried again");
    assert!(cluster.copies.uids("home", "demo.v1").into_keys().eq(["b"]), "{:?}", apiserver.requests());
}

#[tokio::test]
async fn copy_is_deleted_as_it_was_observed() {
    for ((code, answer), stays) in
        [(success(), false), (failure(404, "NotFound"), false), (failure(409, "Conflict"), true)]
    {
        let apiserver = Apiserver::new(move |_, _| (code, answer.clone()));
        let cluster = Cluster::new();
        let metadata = json!({"namespace": "b", "name": "demo.v1", "uid": "u", "resourceVersion": "7",
            "labels": {"olm.copiedFrom": "home"}});
        let spec = json!({"displayName": "d", "install": {"strategy": "deployment"}});
        let copy = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        cluster.copies.insert(&copy);
        let context = testing::context(NAME, &apiserver, &cluster);
        let deleted = delete(&context, "b", "demo.v1").await;
        assert_eq!(ended(deleted.map(|()| Requeue::Gone)).0 == Requeue::Backoff, stays, "{code}");
        assert_eq!(cluster.copies.get("b/demo.v1").is_some(), stays, "{code}");
        let requests = apiserver.requests();
        for part in ["DELETE ", r#""uid":"u""#, r#""resourceVersion":"7""#] {
            assert!(requests.len() == 1 && requests[0].contains(part), "{part}: {requests:?}");
        }
    }
}

#[test]
fn copy_that_is_refused_is_tried_again() {
    let refused = |causes: Value| {
        let status = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "message": "no",
            "details": {"causes": causes}});
        kube::Error::Api(serde_json::from_value::<kube::core::Status>(status).unwrap().boxed())
    };
    let ends = refused(json!([{"reason": "NamespaceTerminating"}]));
    assert!(is_namespace_gone(&ends));
    let starts = refused(json!([]));
    assert!(!is_namespace_gone(&starts));
    assert_eq!(ended(Err(starts)).0, Requeue::Backoff);
}

#[tokio::test]
async fn enabled_copies_leave_events_alone() {
    let about_events = |all: &[String]| -> Vec<String> {
        let events = all.iter().filter(|line| line.contains("/events"));
        events.map(|line| line.split(['?', ' ']).next().unwrap_or_default().to_owned()).collect()
    };
    let (disabled, outcome) = pass(true, "none", "none").await;
    outcome.unwrap();
    assert_eq!(about_events(&disabled), ["POST"], "it is reported: {disabled:?}");
    assert!(disabled.iter().any(|line| line.starts_with("DELETE ")), "{disabled:?}");
    let (enabled, outcome) = pass(false, "none", "none").await;
    outcome.unwrap();
    assert_eq!(about_events(&enabled), Vec::<String>::new());
    assert!(enabled.iter().any(|line| line.starts_with("POST ")), "the copy is written: {enabled:?}");
}

#[tokio::test]
async fn disabled_copies_stay_in_protected_namespaces() {
    for (protected, is_deleted, is_created) in [("none", true, false), ("b", false, false), ("c", true, true)]
    {
        let (requests, outcome) = pass(true, protected, "none").await;
        outcome.unwrap();
        let has = |method: &str, namespace: &str| {
            let copy = format!("/namespaces/{namespace}/clusterserviceversions");
            requests.iter().any(|line| line.starts_with(method) && line.contains(&copy))
        };
        assert_eq!(has("DELETE ", "b"), is_deleted, "{protected}: {requests:?}");
        assert_eq!(has("POST ", "c"), is_created, "{protected}: {requests:?}");
    }
}

#[tokio::test]
async fn copies_stay_while_their_original_does_not_fit_its_type() {
    for (display_name, deleted, want) in [
        (json!(5), Value::Null, &[][..]),
        (json!(5), json!("2026-01-01T00:00:00Z"), &["DELETE"]),
        (json!("d"), json!("2026-01-01T00:00:00Z"), &["DELETE"]),
    ] {
        let cluster = Cluster::new();
        let spec = json!({"displayName": display_name, "install": {"strategy": "deployment"}});
        let metadata = json!({"namespace": "home", "name": "demo.v1", "deletionTimestamp": deleted});
        let csv: watched::Received<ClusterServiceVersion> =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        cluster.csvs.insert("home/demo.v1".to_owned(), watched::Object::from(csv));
        let metadata =
            json!({"namespace": "b", "name": "demo.v1", "uid": "u", "labels": {"olm.copiedFrom": "home"}});
        let spec = json!({"displayName": "d", "install": {"strategy": "deployment"}});
        let copy = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        cluster.copies.insert(&copy);
        let apiserver = Apiserver::new(|_, _| success());
        let context = testing::context(NAME, &apiserver, &cluster);
        reconcile(&context, "home/demo.v1").await.unwrap();
        let requests = apiserver.requests();
        let methods = requests.iter().map(|line| line.split(' ').next().unwrap_or_default());
        assert!(methods.eq(want.iter().copied()), "{requests:?}");
    }
}

/// The methods of the requests of a pass for a CSV in namespace `home` that has a copy in namespace `b`.
async fn methods_of_a_pass(cluster: &Arc<Cluster>) -> Vec<String> {
    let csv = |namespace: &str, labels: Value| {
        json!({
            "metadata": {"namespace": namespace, "name": "demo.v1", "uid": namespace, "labels": labels},
            "spec": {"displayName": "d", "install": {"strategy": "deployment"}},
        })
    };
    put(&cluster.csvs, csv("home", json!({})));
    let copy = csv("b", json!({"olm.copiedFrom": "home"}));
    cluster.copies.insert(&serde_json::from_value(copy).unwrap());
    let apiserver = Apiserver::new(|_, _| success());
    let context = testing::context(NAME, &apiserver, cluster);
    reconcile(&context, "home/demo.v1").await.unwrap();
    let requests = apiserver.requests();
    requests.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn copies_stay_while_their_group_does_not_fit_its_type() {
    for (group, want) in [(Some(json!({"targetNamespaces": "b"})), &[][..]), (None, &["DELETE"])] {
        let cluster = Cluster::new();
        if let Some(spec) = group {
            let group = json!({"metadata": {"namespace": "home", "name": "og"}, "spec": spec});
            let group: watched::Received<OperatorGroup> = serde_json::from_value(group).unwrap();
            cluster.groups.insert("home/og".to_owned(), watched::Object::from(group));
        }
        assert_eq!(methods_of_a_pass(&cluster).await, want);
    }
}

#[tokio::test]
async fn copies_stay_while_the_account_of_their_group_is_missing() {
    for (is_missing, want) in [("True", &[][..]), ("False", &["DELETE"])] {
        let conditions = json!([{"type": "OperatorGroupServiceAccount", "status": is_missing,
            "reason": "ServiceAccountNotFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let status =
            json!({"namespaces": [], "lastUpdated": "2026-01-01T00:00:00Z", "conditions": conditions});
        let spec = json!({"serviceAccountName": "sa"});
        let cluster = Cluster::new();
        let metadata = json!({"namespace": "home", "name": "og"});
        put(&cluster.groups, json!({"metadata": metadata, "spec": spec, "status": status}));
        assert_eq!(methods_of_a_pass(&cluster).await, want, "{is_missing}");
    }
}

#[test]
fn copies_take_the_place_of_one_that_is_gone() {
    let cluster = Cluster::new();
    for (namespace, name) in [("home", "demo.v1"), ("away", "demo.v1"), ("home", "other.v1")] {
        let metadata = json!({"namespace": namespace, "name": name});
        let spec = json!({"displayName": "d", "install": {"strategy": "deployment"}});
        put(&cluster.csvs, json!({"metadata": metadata, "spec": spec}));
    }
    for (after, want) in [(None, &["away/demo.v1", "home/demo.v1"][..]), (Some(()), &[])] {
        let change = Change { key: "b/demo.v1".to_owned(), before: Some(()), after, is_answer: false };
        assert!(beside(&cluster, &change).iter().eq(want), "{after:?}");
    }
}

fn owned_by(csv: &str) -> Value {
    json!({"olm.owner": csv, "olm.owner.namespace": "home", "olm.owner.kind": "ClusterServiceVersion"})
}

/// A CSV with a Role, in the namespace `home` of a group with this target.
fn with_role(phase: &str, reason: &str, target: &str) -> Arc<Cluster> {
    let cluster = Cluster::new();
    put(&cluster.namespaces, json!({"metadata": {"name": "home"}}));
    put(
        &cluster.roles,
        json!({"metadata": {"name": "r", "namespace": "home", "labels": owned_by("demo.v1")}, "rules": []}),
    );
    put(
        &cluster.groups,
        json!({"metadata": {"name": "g", "namespace": "home"}, "spec": {}, "status": {"namespaces": [target], "lastUpdated": "2026-01-01T00:00:00Z"}}),
    );
    put(
        &cluster.csvs,
        json!({
            "metadata": {"namespace": "home", "name": "demo.v1", "uid": "u"},
            "spec": {"displayName": "d", "install": {"strategy": "deployment", "spec": {"deployments": [], "permissions": [{"serviceAccountName": "sa", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}]}}},
            "status": {"phase": phase, "reason": reason},
        }),
    );
    cluster
}

/// Methods and paths of the requests of one pass over that CSV.
async fn requests(cluster: &Arc<Cluster>) -> Vec<String> {
    let apiserver = Apiserver::new(|_, _| {
        let body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
        (200, body)
    });
    let context = testing::context(NAME, &apiserver, cluster);
    reconcile(&context, "home/demo.v1").await.unwrap();
    let short = |line: String| line.split(['?', ' ']).take(2).collect::<Vec<_>>().join(" ");
    apiserver.requests().into_iter().map(short).collect()
}

const CREATED: &str = "POST /apis/rbac.authorization.k8s.io/v1/clusterroles";
const DELETED: &str = "DELETE /apis/rbac.authorization.k8s.io/v1/clusterroles/r";

#[tokio::test]
async fn roles_of_a_csv_that_failed_stay_in_its_namespace() {
    for (phase, reason, want) in
        [("Failed", "UnsupportedOperatorGroup", &[][..]), ("Pending", "RequirementsNotMet", &[CREATED])]
    {
        assert_eq!(requests(&with_role(phase, reason, "")).await, want, "{phase}");
    }
}

#[tokio::test]
async fn roles_of_the_cluster_follow_the_targets_of_a_group() {
    let succeeded = ("Succeeded", "InstallSucceeded");
    let failed = ("Failed", "UnsupportedOperatorGroup");
    for (case, (phase, reason), target, present, want) in [
        ("there", succeeded, "", &[("r", "demo.v1")][..], &[][..]),
        ("deleted", succeeded, "", &[], &[CREATED]),
        (
            "narrowed",
            succeeded,
            "home",
            &[("r", "demo.v1"), ("of-cluster-permissions", "demo.v1")],
            &[DELETED],
        ),
        ("narrowed, and not supported", failed, "home", &[("r", "demo.v1")], &[DELETED]),
        ("narrowed before", succeeded, "home", &[("of-cluster-permissions", "demo.v1")], &[]),
        ("of another operator", succeeded, "home", &[("r", "other.v1")], &[]),
    ] {
        let cluster = with_role(phase, reason, target);
        let read = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]});
        for (name, csv) in present {
            let metadata = json!({"name": name, "labels": owned_by(csv)});
            put(&cluster.cluster_roles, json!({"metadata": metadata, "rules": [read]}));
        }
        assert_eq!(requests(&cluster).await, want, "{case}");
    }
}

#[tokio::test]
async fn roles_of_the_cluster_are_made_although_a_copy_is_refused() {
    let cluster = with_role("Succeeded", "InstallSucceeded", "");
    put(&cluster.namespaces, json!({"metadata": {"name": "b"}}));
    let apiserver = Apiserver::new(|_, uri| match uri.contains("/namespaces/b/") {
        true => failure_with(403, "Forbidden", "no"),
        false => {
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
            (200, role)
        }
    });
    let context = testing::context(NAME, &apiserver, &cluster);
    assert!(reconcile(&context, "home/demo.v1").await.is_err(), "it is tried again");
    let requests = apiserver.requests();
    assert!(requests.iter().any(|line| line.starts_with(CREATED)), "{requests:?}");
}

#[tokio::test]
async fn roles_that_one_namespace_refuses_are_made_in_others() {
    let cluster = with_role("Succeeded", "InstallSucceeded", "b");
    let metadata = json!({"name": "g", "namespace": "home", "resourceVersion": "2"});
    let status = json!({"namespaces": ["b", "c"], "lastUpdated": "2026-01-01T00:00:00Z"});
    put(&cluster.groups, json!({"metadata": metadata, "spec": {}, "status": status}));
    for namespace in ["b", "c"] {
        let labels = json!({"olm.copiedFrom": "home"});
        let metadata = json!({"namespace": namespace, "name": "demo.v1", "uid": namespace, "labels": labels});
        let spec = json!({"displayName": "d", "install": {"strategy": "deployment"}});
        let copy = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        cluster.copies.insert(&copy);
    }
    let apiserver = Apiserver::new(|_, uri| match uri.contains("/namespaces/b/") {
        true => failure_with(403, "Forbidden", "no"),
        false => (
            200,
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}}),
        ),
    });
    let context = testing::context(NAME, &apiserver, &cluster);
    assert!(reconcile(&context, "home/demo.v1").await.is_err(), "it is tried again");
    let requests = apiserver.requests();
    for namespace in ["b", "c"] {
        let created = format!("/namespaces/{namespace}/roles?");
        let is_creation = |line: &&String| line.starts_with("POST ") && line.contains(&created);
        assert_eq!(requests.iter().filter(is_creation).count(), 1, "{namespace}: {requests:?}");
    }
}

#[tokio::test]
async fn roles_of_the_cluster_are_not_those_of_another_csv() {
    let mut elsewhere = owned_by("demo.v1");
    elsewhere["olm.owner.namespace"] = json!("elsewhere");
    for (labels, exists, method, name) in [
        (elsewhere.clone(), true, "POST ", r#""name":"r-home""#),
        (elsewhere, false, "PUT ", r#""name":"r""#),
        (json!({}), false, "POST ", r#""name":"r-home""#),
    ] {
        let cluster = with_role("Succeeded", "InstallSucceeded", "");
        put(&cluster.cluster_roles, json!({"metadata": {"name": "r", "labels": labels}, "rules": []}));
        if exists {
            let spec = json!({"displayName": "d", "install": {"strategy": "deployment"}});
            let metadata = json!({"namespace": "elsewhere", "name": "demo.v1"});
            put(&cluster.csvs, json!({"metadata": metadata, "spec": spec}));
        }
        let answer = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
        let apiserver = Apiserver::new(move |_, _| (200, answer.clone()));
        let context = testing::context(NAME, &apiserver, &cluster);
        reconcile(&context, "home/demo.v1").await.unwrap();
        let requests = apiserver.requests();
        assert!(requests.len() == 1 && requests[0].starts_with(method), "{exists}: {requests:?}");
        assert!(requests[0].contains(name), "{exists}: {requests:?}");
    }
}

#[tokio::test]
async fn roles_of_the_cluster_wake_their_csv_when_deleted() {
    /// As a watch shows it.
    fn make_and_delete<K>(objects: &watched::Objects<K>, value: &Value)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        put(objects, value.clone());
        let object: K = serde_json::from_value(value.clone()).unwrap();
        objects.apply(Event::Delete(object), |it| (watched::key(it.meta()), watched::Object::new(it)));
    }
    let cluster = Cluster::new();
    let context = testing::context("group", &Apiserver::new(|_, _| (404, json!({}))), &cluster);
    let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel();
    let pass = move |key: &str| {
        sender.send(key.to_owned()).unwrap();
        None::<std::future::Ready<(Requeue, Outcome)>>
    };
    let passes = controller::run(context.further(NAME, sources(&cluster)), std::future::ready(()), pass);
    let script = async {
        let mut object = json!({"metadata": {"name": "r", "labels": owned_by("demo.v1")}});
        make_and_delete(&cluster.cluster_roles, &object);
        assert_eq!(woken.recv().await.as_deref(), Some("home/demo.v1"));
        object["roleRef"] = json!({"apiGroup": "", "kind": "ClusterRole", "name": "r"});
        make_and_delete(&cluster.cluster_role_bindings, &object);
        assert_eq!(woken.recv().await.as_deref(), Some("home/demo.v1"));
    };
    let both = async {
        tokio::select! { () = passes => {}, () = script => {} }
    };
    tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
}
