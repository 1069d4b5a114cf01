use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::{ApiServer, Settings};

/// Longer than any delay of the stand-ins.
const LATER: Duration = Duration::from_secs(10);

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: figs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Fig, plural: figs}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

fn server() -> ApiServer {
    ApiServer::new(1, Settings::default())
}

/// A ConfigMap with these owners.
fn config(server: &ApiServer, name: &str, owners: &[&Value]) -> Value {
    let owner = |owner: &&Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
    };
    let owners: Vec<Value> = owners.iter().map(owner).collect();
    let metadata = json!({"name": name, "namespace": "default", "ownerReferences": owners});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    Value::clone(&server.put(object).unwrap())
}

fn find(server: &ApiServer, name: &str) -> Option<Value> {
    server.get("configmaps", Some("default"), name).map(|found| Value::clone(&found))
}

fn delete(server: &ApiServer, name: &str, policy: &str) {
    let path = format!("/api/v1/namespaces/default/configmaps/{name}");
    server.call("DELETE", &path, "", json!({"propagationPolicy": policy})).unwrap();
}

fn finalize(server: &ApiServer, resource: &str, name: &str, finalizers: Value) {
    let patch = json!({"metadata": {"finalizers": finalizers}});
    server.patch(resource, Some("default"), name, patch).unwrap();
}

#[tokio::test(start_paused = true)]
async fn collector_deletes_what_no_owner_is_left_of() {
    let server = server();
    let (one, other) = (config(&server, "one", &[]), config(&server, "other", &[]));
    let child = config(&server, "child", &[&one]);
    config(&server, "grandchild", &[&child]);
    config(&server, "shared", &[&one, &other]);
    let gone = json!({"metadata": {"name": "gone", "uid": "00000000-0000-4000-8000-000000000000"}});
    config(&server, "dangling", &[&gone]);
    delete(&server, "one", "Background");
    assert!(find(&server, "child").is_some(), "the collector needs a moment");
    sleep(LATER).await;
    let left = ["one", "child", "grandchild", "dangling"].map(|name| find(&server, name).is_some());
    assert_eq!(left, [false; 4]);
    let owners = &find(&server, "shared").unwrap()["metadata"]["ownerReferences"];
    assert_eq!(owners.as_array().map(Vec::len), Some(1), "{owners}");
    assert_eq!(owners[0]["name"], "other");
}

#[tokio::test(start_paused = true)]
async fn collector_takes_another_uid_for_another_owner() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    delete(&server, "owner", "Background");
    config(&server, "owner", &[]);
    config(&server, "child", &[&owner]);
    sleep(LATER).await;
    assert!(find(&server, "child").is_none());
}

#[tokio::test(start_paused = true)]
async fn collector_orphans_before_the_owner_goes() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    config(&server, "child", &[&owner]);
    delete(&server, "owner", "Orphan");
    assert_eq!(find(&server, "owner").unwrap()["metadata"]["finalizers"], json!(["orphan"]));
    sleep(LATER).await;
    assert!(find(&server, "owner").is_none());
    assert_eq!(find(&server, "child").unwrap()["metadata"].get("ownerReferences"), None);
    // the child first: a watch shows it without owner while the owner is still there
    let changes = server.history();
    let of = |name: &str| {
        changes.iter().filter(|it| it.name == name && it.process == "kubernetes").map(|it| it.version).max()
    };
    assert!(of("child") < of("owner"));
}

#[tokio::test(start_paused = true)]
async fn collector_deletes_dependents_first_in_the_foreground() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    config(&server, "child", &[&owner]);
    finalize(&server, "configmaps", "child", json!(["example.com/held"]));
    delete(&server, "owner", "Foreground");
    sleep(LATER).await;
    let (owner, child) = (find(&server, "owner").unwrap(), find(&server, "child").unwrap());
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(child["metadata"]["deletionTimestamp"].is_string());
    finalize(&server, "configmaps", "child", Value::Null);
    sleep(LATER).await;
    assert_eq!((find(&server, "owner"), find(&server, "child")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn collector_is_off_by_setting() {
    let server = ApiServer::new(1, Settings { garbage_collector: false, ..Settings::default() });
    let owner = config(&server, "owner", &[]);
    config(&server, "child", &[&owner]);
    delete(&server, "owner", "Background");
    sleep(LATER).await;
    assert!(find(&server, "child").is_some());
}

#[tokio::test(start_paused = true)]
async fn namespace_goes_after_what_it_holds() {
    let server = server();
    config(&server, "one", &[]);
    finalize(&server, "configmaps", "one", json!(["example.com/held"]));
    server.delete("namespaces", None, "default").unwrap();
    sleep(LATER).await;
    let namespace = server.get("namespaces", None, "default").unwrap();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let refused = server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}));
    assert!(refused.unwrap_err().to_string().contains("is being terminated"));
    finalize(&server, "configmaps", "one", Value::Null);
    sleep(LATER).await;
    assert!(server.get("namespaces", None, "default").is_none());
}

fn deployment(image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]}}},
    })
}

/// Observed generation, and the condition `Available`.
fn availability(server: &ApiServer) -> (Value, Value) {
    let found = server.get("deployments", Some("default"), "one").unwrap();
    (found["status"]["observedGeneration"].clone(), found["status"]["conditions"][0]["status"].clone())
}

#[tokio::test(start_paused = true)]
async fn deployment_becomes_available_after_each_change_of_its_spec() {
    let delay = Duration::from_secs(2);
    let server = ApiServer::new(1, Settings { deployments: Some(delay), ..Settings::default() });
    server.put(deployment("r.example/a:1")).unwrap();
    sleep(delay / 2).await;
    assert_eq!(availability(&server), (json!(1), json!("False")));
    sleep(delay).await;
    assert_eq!(availability(&server), (json!(1), json!("True")));
    server.put(deployment("r.example/a:2")).unwrap();
    sleep(delay / 2).await;
    assert_eq!(availability(&server), (json!(2), json!("False")));
    sleep(delay).await;
    assert_eq!(availability(&server), (json!(2), json!("True")));
    let changes = server.history().len();
    server.patch("deployments", Some("default"), "one", json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    sleep(LATER).await;
    assert_eq!(server.history().len(), changes + 1, "nothing follows a change of labels");
}

#[tokio::test(start_paused = true)]
async fn crd_is_served_when_it_is_established() {
    let establishing = Duration::from_secs(1);
    let server = ApiServer::new(1, Settings { establishing, ..Settings::default() });
    let crd: Value = serde_saphyr::from_str(CRD).unwrap();
    server.put(crd).unwrap();
    let path = "/apis/example.com/v1/namespaces/default/figs";
    assert!(server.call("GET", path, "", Value::Null).is_err());
    sleep(establishing * 2).await;
    let crd = server.get("customresourcedefinitions", None, "figs.example.com").unwrap();
    let conditions: Vec<&Value> = crd["status"]["conditions"].as_array().unwrap().iter().collect();
    assert!(conditions.iter().any(|it| it["type"] == "Established" && it["status"] == "True"));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    assert!(server.call("GET", path, "", Value::Null).is_ok());
}

#[tokio::test(start_paused = true)]
async fn crd_goes_after_its_custom_resources() {
    let server =
        ApiServer::new(1, Settings { manifests: super::super::documents(&[CRD]), ..Settings::default() });
    let fig = json!({"apiVersion": "example.com/v1", "kind": "Fig",
        "metadata": {"name": "one", "namespace": "default", "finalizers": ["example.com/held"]}});
    server.put(fig).unwrap();
    let name = "figs.example.com";
    server.delete("customresourcedefinitions", None, name).unwrap();
    sleep(LATER).await;
    let fig = server.get("figs", Some("default"), "one").unwrap();
    assert!(fig["metadata"]["deletionTimestamp"].is_string());
    assert!(server.get("customresourcedefinitions", None, name).is_some());
    finalize(&server, "figs", "one", Value::Null);
    sleep(LATER).await;
    assert!(server.get("customresourcedefinitions", None, name).is_none());
    let path = "/apis/example.com/v1/namespaces/default/figs";
    assert!(server.call("GET", path, "", Value::Null).is_err(), "it is not served any longer");
}

#[tokio::test(start_paused = true)]
async fn aggregated_role_has_the_rules_of_its_parts() {
    let server = ApiServer::new(1, Settings::default());
    let role = |name: &str, part: &str, verbs: &[&str]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {"part": part}},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]})
    };
    let mut whole = role("whole", "none", &[]);
    whole["rules"] = json!([]);
    whole["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"part": "of-whole"}}]});
    for object in [role("a", "of-whole", &["get"]), whole, role("b", "of-another", &["list"])] {
        server.put(object).unwrap();
    }
    sleep(LATER).await;
    let rules = || server.get("clusterroles", None, "whole").unwrap()["rules"].clone();
    let rule = |verb: &str| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]});
    assert_eq!(rules(), json!([rule("get")]));
    server.put(role("c", "of-whole", &["watch"])).unwrap();
    sleep(LATER).await;
    assert_eq!(rules(), json!([rule("get"), rule("watch")]));
}
