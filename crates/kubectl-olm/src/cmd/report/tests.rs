//! A report of a cluster with secrets in everything that can be read.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// In every secret.
const PLANTED: &str = "PLANTED7";

fn list(items: Value) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

fn annotations() -> Value {
    json!({
        "kubectl.kubernetes.io/last-applied-configuration": format!("{{\"env\":\"{PLANTED}\"}}"),
        "example.com/note": PLANTED,
        "olm.operatorframework.io/paused": format!("token={PLANTED}"),
    })
}

fn pod_spec() -> Value {
    json!({
        "initContainers": [{"name": "init", "image": "registry/init:v1", "env": [{"name": "A", "value": PLANTED}]}],
        "containers": [{
            "name": "manager", "image": format!("https://user:{PLANTED}@registry/manager:v1"),
            "args": ["--leader-elect", format!("--api-token={PLANTED}"), "--password", PLANTED],
            "command": ["sh", "-c", format!("curl -H 'Authorization: Bearer {PLANTED}' https://u:{PLANTED}@host/")],
            "env": [{"name": "HTTPS_PROXY", "value": format!("http://u:{PLANTED}@proxy:3128")}, {"name": "PLAIN", "value": PLANTED}],
            "livenessProbe": {"httpGet": {"path": "/", "httpHeaders": [{"name": "X", "value": PLANTED}]}},
        }],
    })
}

/// What the cluster has at each path, and the paths that were read.
fn content(path: &str) -> Option<String> {
    let conditions = json!([{"type": "Ready", "status": "False", "reason": "Retrying",
        "message": format!("pull failed: https://user:{PLANTED}@registry/v2 password={PLANTED}\nmore")}]);
    let olm = "/apis/olm.operatorframework.io/v1";
    let own = "namespaces/olmv1-system";
    let value = if path == "/version" {
        json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "", "buildDate": "",
            "goVersion": "", "compiler": "", "platform": "linux/amd64"})
    } else if path == format!("{olm}/clusterextensions") {
        list(
            json!([{"metadata": {"name": "sample", "annotations": annotations(), "managedFields": [{"fieldsV1": {PLANTED: {}}}]},
            "spec": {"namespace": "sample", "source": {"catalog": {"packageName": "sample"}},
                "config": {"inline": {"adminPassword": PLANTED, "nested": {"list": [PLANTED], "plain": PLANTED}}}},
            "status": {"conditions": conditions, "install": {"bundle": {"version": "1.2.3"}}}}]),
        )
    } else if path == format!("{olm}/clusterobjectsets") {
        list(
            json!([{"metadata": {"name": "sample-1", "annotations": annotations()}, "spec": {"phases": [{"name": "p", "objects": [
            {"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": PLANTED}, "x": PLANTED}}]}]}}]),
        )
    } else if path == format!("/apis/apps/v1/{own}/deployments") {
        list(
            json!([{"metadata": {"name": "catalogd", "annotations": annotations()}, "spec": {"replicas": 1, "template": {
            "metadata": {"annotations": annotations()}, "spec": pod_spec()}}, "status": {"readyReplicas": 1}}]),
        )
    } else if path == format!("/api/v1/{own}/pods") {
        list(
            json!([{"metadata": {"name": "catalogd-1", "annotations": annotations()}, "spec": pod_spec(), "status": {"phase": "Running",
            "containerStatuses": [{"name": "manager", "restartCount": 2,
                "lastState": {"terminated": {"message": format!("secret={PLANTED}")}}}]}}]),
        )
    } else if path == format!("/api/v1/{own}/services") {
        list(json!([{"metadata": {"name": "catalogd-service", "annotations": annotations()}}]))
    } else if path == "/api/v1/namespaces/default/events" {
        let event = |version: &str, message: String| {
            json!({"metadata": {"name": "e", "namespace": "default", "annotations": annotations()}, "type": "Warning", "reason": "Failed",
                "involvedObject": {"kind": "ClusterExtension", "name": "sample", "apiVersion": version},
                "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"})
        };
        let ours = event(
            "olm.operatorframework.io/v1",
            format!("it failed: Authorization: Basic {PLANTED}, token: {PLANTED}"),
        );
        list(json!([ours, event("v1", PLANTED.to_owned())]))
    } else if path.starts_with(&format!("/api/v1/{own}/pods/catalogd-1/log?")) {
        // lines in the forms of loggers and HTTP traces
        let key = format!("-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----");
        return Some(format!(
            "{PLANTED}\n-----END RSA PRIVATE KEY-----\nfirst line\nlevel=info authorization=\"Bearer {PLANTED}\" url=https://u:{PLANTED}@host/\n\
             {{\"level\":\"info\",\"password\":\"{PLANTED}\",\"headers\":\"Authorization: Bearer {PLANTED}\",\"body\":\"{{\\\"token\\\":\\\"{PLANTED}\\\"}}\"}}\n\
             {key}\nCookie: session={PLANTED}; other={PLANTED}\neyJhbGciOiJI{PLANTED}.e30.{PLANTED}\nlast line\n"
        ));
    } else {
        return None;
    };
    Some(value.to_string())
}

/// A client of such a cluster. Everything else is forbidden.
fn cluster() -> (Client, Arc<Mutex<Vec<String>>>) {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&paths);
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let path = if path.contains("/log?") { path } else { request.uri().path().to_owned() };
        let answer = match content(&path) {
            Some(body) => Response::builder().status(200).body(Body::from(body.into_bytes())),
            None => {
                let message = format!("{path} is forbidden: token={PLANTED}");
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message});
                Response::builder().status(403).body(Body::from(status.to_string().into_bytes()))
            }
        };
        read.lock().unwrap().push(path);
        async move { Ok::<_, Infallible>(answer.unwrap()) }
    });
    (Client::new(service, "default"), paths)
}

fn unpacked(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        files.insert(entry.path().unwrap().display().to_string(), content);
    }
    files
}

fn contains(content: &[u8], text: &str) -> bool {
    content.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
#[rustfmt::skip]
async fn report_holds_no_planted_secret() {
    let (client, paths) = cluster();
    let endpoints = Endpoints { urls: Vec::new(), token_file: None, cas_dir: None };
    let collector = Collector::new(SYSTEM_NAMESPACE.to_owned(), Timestamp::UNIX_EPOCH);
    let (files, summary) = collector.collect(Ok(client), &endpoints).await;
    let files = unpacked(&files.archive("report", &summary, 0).unwrap());
    for (path, content) in &files {
        let text = String::from_utf8_lossy(content);
        assert!(!contains(content, PLANTED) && !path.contains(PLANTED), "{path}: {text}");
    }
    // what is not secret is there
    for (path, want) in [
        ("summary.txt", &["Kubernetes v1.36.0", "sample   sample    1.2.3", "clustercatalogs: ", "Not read", "Files"][..]),
        ("clusterextensions/sample.yaml", &["packageName: sample", "adminPassword: \"[redacted]\""]),
        ("clusterobjectsets/sample-1.yaml", &["kind: ConfigMap"]),
        ("deployments/catalogd.yaml", &["--leader-elect", "name: HTTPS_PROXY"]),
        ("events.txt", &["Failed", "ClusterExtension/sample"]),
        ("logs/catalogd-1/manager.log", &["first line", "last line"]),
        ("logs/catalogd-1/manager.previous.log", &["first line"]),
        ("logs/catalogd-1/init.log", &["first line"]),
        ("versions.json", &["v1.36.0"]),
    ] {
        let content =
            files.get(&format!("report/{path}")).unwrap_or_else(|| panic!("{path} of {:?}", files.keys()));
        for text in want {
            assert!(contains(content, text), "{path} has {text}: {}", String::from_utf8_lossy(content));
        }
    }
    let paths = paths.lock().unwrap();
    assert!(!paths.iter().any(|path| path.contains("secrets") || path.contains("configmaps")), "{paths:?}");
}

#[tokio::test]
async fn report_names_events_that_are_too_many() {
    for (namespace, want) in [
        ("default", vec!["GET /api/v1/namespaces/default/events?&limit=2000"]),
        (
            SYSTEM_NAMESPACE,
            vec![
                "GET /api/v1/namespaces/default/events?&fieldSelector=involvedObject.apiVersion%3Dolm.operatorframework.io%2Fv1&limit=2000",
                "GET /api/v1/namespaces/olmv1-system/events?&limit=2000",
            ],
        ),
    ] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let client = crate::stand_in::cluster(move |request| {
            if !request.contains("/events?") {
                return Some(crate::stand_in::failure(403, "forbidden"));
            }
            log.lock().unwrap().push(request.to_owned());
            let listed =
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": "more"}, "items": []});
            Some((200, listed.to_string()))
        });
        let endpoints = Endpoints { urls: Vec::new(), token_file: None, cas_dir: None };
        let collector = Collector::new(namespace.to_owned(), Timestamp::UNIX_EPOCH);
        let (_, summary) = collector.collect(Ok(client), &endpoints).await;
        let line = format!("  more than 2000 events of namespace {namespace}: there are too many\n");
        assert!(summary.contains(&line), "{summary}");
        assert_eq!(*asked.lock().unwrap(), want);
    }
}

#[tokio::test]
async fn report_of_an_unreachable_cluster_gives_the_reason() {
    let endpoints = Endpoints { urls: Vec::new(), token_file: None, cas_dir: None };
    let collector = Collector::new(SYSTEM_NAMESPACE.to_owned(), Timestamp::UNIX_EPOCH);
    let failure = CommandError::Unreachable("cannot find the cluster".to_owned());
    let (files, summary) = collector.collect(Err(failure), &endpoints).await;
    assert!(summary.contains("  the cluster: cannot find the cluster\n"), "{summary}");
    let folder = tempfile::tempdir().unwrap();
    files.write_folder(&folder.path().join("report"), &summary).unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("report/summary.txt")).unwrap(), summary);
}

#[test]
fn report_path_names_an_archive_or_a_folder() {
    for (path, want) in [("a.tar.gz", true), ("a/b.tgz", true), ("a", false), ("a.tar.gz/b", false)] {
        assert_eq!(is_archive(Path::new(path)), want, "{path}");
    }
}
