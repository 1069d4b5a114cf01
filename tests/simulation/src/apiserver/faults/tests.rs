use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::super::{ApiServer, Faults, InjectedError, Match, Settings, Verb};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

fn server() -> ApiServer {
    ApiServer::new(1, Settings { latency: Duration::ZERO, ..Settings::default() })
}

fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

/// The status code; 0 if the connection broke or the client gave up.
async fn send(client: &Client, method: &str, path: &str, body: Value) -> u16 {
    let bytes = serde_json::to_vec(&body).unwrap();
    let request = http::Request::builder().method(method).uri(path).body(bytes.into()).unwrap();
    client.send(request).await.map_or(0, |answer| answer.status().as_u16())
}

async fn create(client: &Client, name: &str) -> u16 {
    send(client, "POST", PATH, config(name)).await
}

fn exists(server: &ApiServer, name: &str) -> bool {
    server.get("configmaps", Some("default"), name).is_some()
}

#[tokio::test(start_paused = true)]
async fn fault_meets_as_many_requests_as_asked() {
    let server = server();
    let client = server.client("a");
    server.fail_next(Match::write("configmaps"), InjectedError::Status(500), 2);
    assert_eq!(send(&client, "GET", PATH, Value::Null).await, 200, "no write");
    assert_eq!(create(&server.user(), "user").await, 201, "the user meets no faults");
    assert_eq!([create(&client, "x").await, create(&client, "x").await], [500, 500]);
    assert!(!exists(&server, "x"));
    assert_eq!(create(&client, "x").await, 201);
}

#[tokio::test(start_paused = true)]
async fn process_ends_at_a_write() {
    for (is_executed, names) in [(false, vec!["x"]), (true, vec!["x", "y"])] {
        let server = server();
        let client = server.client("a");
        server.end_at_write("a", 1, is_executed);
        assert_eq!(send(&client, "GET", PATH, Value::Null).await, 200, "no write");
        assert_eq!(create(&client, "x").await, 201, "the first write");
        let second = timeout(Duration::from_secs(100), create(&client, "y"));
        let (answer, ()) = tokio::join!(second, server.until_ended("a"));
        assert!(answer.is_err(), "it is not answered");
        let present: Vec<&str> = ["x", "y"].into_iter().filter(|name| exists(&server, name)).collect();
        assert_eq!(present, names, "{is_executed}");
        assert_eq!(create(&server.client("b"), "z").await, 201, "another process");
    }
}

#[tokio::test(start_paused = true)]
async fn fault_matches_process_name_and_verb() {
    let server = server();
    let rule = Match { name: Some("x".to_owned()), verbs: vec![Verb::Delete], ..Match::process("a") };
    for name in ["x", "y"] {
        server.put(config(name)).unwrap();
    }
    server.fail(rule.clone(), InjectedError::Status(503));
    let (path, other) = (format!("{PATH}/x"), format!("{PATH}/y"));
    let (a, b) = (server.client("a"), server.client("b"));
    assert_eq!(send(&a, "DELETE", &path, Value::Null).await, 503);
    assert_eq!(send(&a, "GET", &path, Value::Null).await, 200);
    assert_eq!(send(&a, "DELETE", &other, Value::Null).await, 200);
    assert_eq!(send(&b, "DELETE", &path, Value::Null).await, 200);
    assert_eq!(send(&a, "DELETE", &path, Value::Null).await, 503, "until the end of all faults");
    server.stop_failing(&rule);
    assert_eq!(send(&a, "DELETE", &path, Value::Null).await, 404);
}

#[tokio::test(start_paused = true)]
async fn fault_happens_before_or_after_the_execution() {
    for (fault, executes, code, seconds) in [
        (InjectedError::ResetBefore, false, 0, 0),
        (InjectedError::ResetAfter, true, 0, 0),
        (InjectedError::Timeout, false, 0, 60),
        (InjectedError::TimeoutAfter, true, 0, 60),
        (InjectedError::Delay(Duration::from_secs(3)), true, 201, 3),
        (InjectedError::DelayAnswer(Duration::from_secs(3)), true, 201, 3),
    ] {
        let server = server();
        server.fail_next(Match::write("configmaps"), fault.clone(), 1);
        let start = Instant::now();
        let got = create(&server.client("a"), "x").await;
        assert_eq!((got, start.elapsed().as_secs()), (code, seconds), "{fault:?}");
        assert_eq!(exists(&server, "x"), executes, "{fault:?}");
        let request = server.requests().pop().unwrap();
        assert_eq!(request.code, if executes { 201 } else { 0 }, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn partition_cuts_off_one_process() {
    let server = server();
    server.partition("a", true);
    let limit = Duration::from_secs(120);
    assert_eq!(timeout(limit, create(&server.client("a"), "x")).await, Ok(0));
    assert!(!exists(&server, "x"));
    assert_eq!(create(&server.client("b"), "x").await, 201);
    server.partition("a", false);
    assert_eq!(create(&server.client("a"), "y").await, 201);
}

#[tokio::test(start_paused = true)]
async fn denied_requests_are_forbidden_and_reviewed_so() {
    let server = server();
    let client = server.client("a");
    server.deny(Match::write("configmaps"));
    let review = |verb: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": "default"}}})
    };
    let ask = async |verb: &str| -> bool {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let body = serde_json::to_vec(&review(verb)).unwrap();
        let answer: Value = client.request(http::Request::post(path).body(body).unwrap()).await.unwrap();
        answer["status"]["allowed"] == true
    };
    assert_eq!((create(&client, "x").await, ask("create").await, ask("get").await), (403, false, true));
    server.allow_all();
    assert_eq!((create(&client, "x").await, ask("create").await), (201, true));
}

/// Names, or codes of errors, that a watch shows within a time; then whether it has ended.
async fn watched_names(client: &Client, query: &str, time: Duration) -> (Vec<String>, bool) {
    let request = http::Request::get(format!("{PATH}?watch=true&{query}")).body(Vec::new()).unwrap();
    let mut lines = client.request_stream(request).await.unwrap().lines();
    let mut out = Vec::new();
    let end = Instant::now() + time;
    loop {
        match tokio::time::timeout_at(end, lines.next()).await {
            Err(_) => return (out, false),
            Ok(None | Some(Err(_))) => return (out, true),
            Ok(Some(Ok(line))) => {
                let event: Value = serde_json::from_str(&line).unwrap();
                let object = &event["object"];
                let name = object["metadata"]["name"].as_str().map(str::to_owned);
                out.push(name.unwrap_or_else(|| object["code"].to_string()));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn watch_events_of_a_kind_come_late() {
    let server = server();
    let from = format!("resourceVersion={}", server.version());
    server.delay_for("a", "configmaps", Duration::from_secs(30));
    server.put(config("x")).unwrap();
    let soon = Duration::from_secs(20);
    assert_eq!(watched_names(&server.client("a"), &from, soon).await, (vec![], false));
    assert_eq!(watched_names(&server.client("b"), &from, soon).await, (vec!["x".to_owned()], false));
    assert_eq!(watched_names(&server.client("a"), &from, soon).await, (vec!["x".to_owned()], false));
    server.put(config("y")).unwrap();
    server.delay_for("a", "configmaps", Duration::ZERO);
    let (names, _) = watched_names(&server.client("a"), &from, soon).await;
    assert_eq!(names, ["x", "y"], "the end of the delay releases it");
}

#[tokio::test(start_paused = true)]
async fn watch_ends_when_watches_of_its_kind_are_dropped() {
    for (resource, ends) in [("configmaps", true), ("", true), ("secrets", false)] {
        let server = server();
        let from = format!("resourceVersion={}", server.version());
        let breaker = server.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(1)).await;
            breaker.drop_watches(resource);
        });
        let (_, ended) = watched_names(&server.client("a"), &from, Duration::from_secs(5)).await;
        assert_eq!(ended, ends, "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_removed_version_is_expired() {
    let server = server();
    let from = server.version();
    server.put(config("x")).unwrap();
    server.compact();
    let client = server.client("a");
    let query = |version: u64| format!("resourceVersion={version}");
    let soon = Duration::from_secs(1);
    assert_eq!(watched_names(&client, &query(from), soon).await, (vec!["410".to_owned()], true));
    assert_eq!(watched_names(&client, &query(server.version()), soon).await, (vec![], false));
}

#[tokio::test(start_paused = true)]
async fn random_faults_follow_from_the_seed() {
    let codes = async |seed: u64| {
        let faults =
            Faults { error: 0.2, throttle: 0.1, reset_before: 0.1, reset_after: 0.1, ..Faults::default() };
        let server = ApiServer::new(seed, Settings { faults, ..Settings::default() });
        let client = server.client("a");
        let mut codes = Vec::new();
        for number in 0..50 {
            codes.push(create(&client, &format!("c{number}")).await);
        }
        (codes, server.elapsed())
    };
    let (first, again, other) = (codes(1).await, codes(1).await, codes(2).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    for code in [0, 201, 429, 500] {
        assert!(first.0.contains(&code), "{code}: {first:?}");
    }
}
