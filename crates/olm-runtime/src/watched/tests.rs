use std::collections::VecDeque;
use std::convert::Infallible;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use olm_api::ClusterObjectSet;
use serde_json::json;

use super::*;

type Row = (&'static str, u64);

fn applied(
    table: &mut Table<&'static str, u64>,
    events: impl IntoIterator<Item = Event<Row>>,
) -> Vec<String> {
    let mut changes: Vec<String> = events
        .into_iter()
        .flat_map(|event| table.apply(event, |object| object))
        .map(|Change { key, before, after, .. }| format!("{key} {before:?} {after:?}"))
        .collect();
    changes.sort();
    changes
}

#[test]
fn listing_replaces_the_rows_when_it_is_complete() {
    let mut table = Table::default();
    let first = [Event::Init, Event::InitApply(("a", 1)), Event::InitApply(("b", 1))];
    assert!(applied(&mut table, first).is_empty());
    assert!(table.rows().is_empty() && !table.is_listed());
    assert_eq!(applied(&mut table, [Event::InitDone]), ["a None Some(1)", "b None Some(1)"]);
    assert!(table.is_listed());
    // interrupted, then complete: `b` went and `c` came in between
    let second = [Event::Init, Event::InitApply(("b", 9)), Event::Init, Event::InitApply(("a", 1))];
    assert!(applied(&mut table, second).is_empty());
    assert_eq!(table.rows().len(), 2);
    let rest = [Event::InitApply(("c", 2)), Event::InitDone];
    assert_eq!(applied(&mut table, rest), ["b Some(1) None", "c None Some(2)"]);
}

#[test]
fn change_is_reported_once() {
    let mut table = Table::default();
    let events = [Event::Apply(("a", 1)), Event::Apply(("a", 1)), Event::Apply(("a", 2))];
    assert_eq!(applied(&mut table, events), ["a None Some(1)", "a Some(1) Some(2)"]);
    assert_eq!(applied(&mut table, [Event::Delete(("a", 3))]), ["a Some(3) None"]);
    assert_eq!(table.put("a", 1).unwrap().states().collect::<Vec<_>>(), [&1]);
    assert!(table.put("a", 1).is_none());
}

#[test]
fn newer_row_is_kept() {
    let mut table = Table::with_order(|row: &u64| Some(*row));
    table.put("a", 5);
    assert!(applied(&mut table, [Event::Apply(("a", 4)), Event::Delete(("a", 4))]).is_empty());
    assert!(table.put("a", 3).is_none());
    let listing = [Event::Init, Event::InitApply(("a", 4)), Event::InitDone];
    assert!(applied(&mut table, listing).is_empty());
    assert_eq!(table.rows()["a"], 5);
    assert_eq!(applied(&mut table, [Event::Delete(("a", 6))]), ["a Some(6) None"]);
}

#[test]
fn version_is_lower_only_if_both_are_known() {
    assert!(is_lower(Some(9), Some(10)) && !is_lower(Some(10), Some(10)));
    assert!(!is_lower(None, Some(10)) && !is_lower(Some(9), None));
}

#[tokio::test]
async fn waiting_ends_with_the_first_listing() {
    let table: Watched<&str, u64> = Watched::default();
    let (waits, also) = (table.clone(), table.clone());
    let waiting = tokio::spawn(async move { waits.wait_until_listed().await });
    tokio::task::yield_now().await;
    table.apply(Event::Apply(("a", 1)), |object| object);
    assert!(!waiting.is_finished());
    table.apply(Event::<Row>::InitDone, |object| object);
    waiting.await.unwrap();
    also.wait_until_listed().await;
    assert!(table.get(&"a").is_none(), "it was not in the listing");
}

#[test]
fn group_follows_the_rows() {
    let table: Table<&'static str, u64> = Table::default();
    let mut table = table.grouped_by(|row| if *row < 10 { Some("small") } else { None });
    let all = |table: &Table<&'static str, u64>| table.group("small").copied().collect::<Vec<_>>();
    applied(&mut table, [Event::InitApply(("b", 2)), Event::InitApply(("a", 1)), Event::InitDone]);
    assert_eq!(all(&table), [1, 2]);
    applied(&mut table, [Event::Apply(("a", 3)), Event::Apply(("b", 20))]);
    assert_eq!(all(&table), [3]);
    applied(&mut table, [Event::Init, Event::InitApply(("b", 4)), Event::InitDone]);
    assert_eq!(all(&table), [4]);
    table.remove(&"b");
    assert!(table.groups.is_empty());
}

fn object(version: &str, spec: serde_json::Value) -> Object<ClusterObjectSet> {
    let guard: Received<ClusterObjectSet> = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "spec": spec,
        "metadata": {
            "name": "a", "uid": "u", "resourceVersion": version, "managedFields": [{"manager": "kubectl"}],
            "annotations": {LAST_APPLIED: "{}", "mine": "x"}, "labels": {"set": "x", "empty": ""},
        },
    }))
    .unwrap();
    Object::from(guard)
}

fn valid(version: &str) -> Object<ClusterObjectSet> {
    object(version, json!({"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"}))
}

#[test]
fn object_keeps_only_the_metadata_that_is_read() {
    for object in [valid("1"), object("1", json!({"revision": "one"}))] {
        let metadata = object.meta();
        assert!(metadata.managed_fields.is_none());
        assert_eq!(metadata.annotations, Some([("mine".to_owned(), "x".to_owned())].into()));
        let want = (Some("x"), None, "a".into());
        assert_eq!((object.label("set"), object.label("empty"), object.name()), want);
    }
    let invalid = object("1", json!({"revision": "one"})).0.unwrap_err();
    assert!(invalid.error.contains("one"), "{invalid}");
}

#[tokio::test]
async fn answer_to_a_write_is_shown_once_and_restores_no_object() {
    let objects = Objects::<ClusterObjectSet>::empty();
    let changes = objects.subscribe();
    let row = |object: Object<ClusterObjectSet>| ("a".to_owned(), object);
    objects.update("a".to_owned(), valid("9"));
    objects.apply(Event::Apply(valid("10")), row);
    objects.update("a".to_owned(), valid("11"));
    objects.apply(Event::Apply(valid("11")), row);
    objects.update("a".to_owned(), valid("9"));
    assert_eq!(objects.meta("a", |metadata| metadata.resource_version.clone()), Some(Some("11".to_owned())));
    objects.apply(Event::Delete(valid("12")), row);
    objects.update("a".to_owned(), valid("11"));
    assert!(objects.names().is_empty());
    drop(objects);
    let shown = |change: Change<String, Object<ClusterObjectSet>>| {
        let version = change.after.and_then(|object| object.meta().resource_version.clone());
        (version.unwrap_or_default(), change.is_answer)
    };
    let shown: Vec<_> = changes.map(shown).collect().await;
    assert_eq!(shown, [("10".to_owned(), false), ("11".to_owned(), true), (String::new(), false)]);
}

#[test]
fn created_object_gets_no_row_after_its_deletion() {
    let objects = Objects::<ClusterObjectSet>::empty();
    let row = |object: Object<ClusterObjectSet>| ("a".to_owned(), object);
    objects.apply(Event::Delete(valid("8")), row);
    objects.insert("a".to_owned(), valid("9"));
    assert_eq!(objects.names(), ["a"], "it was created after that");
    objects.apply(Event::Delete(valid("12")), row);
    objects.insert("a".to_owned(), valid("9"));
    assert!(objects.names().is_empty());
    objects.insert("a".to_owned(), valid("13"));
    assert_eq!(objects.names(), ["a"]);
}

#[test]
fn deleted_object_is_not_kept() {
    let objects = Objects::<ClusterObjectSet>::empty();
    let deleted = valid("12");
    let content = Arc::downgrade(deleted.ok().unwrap());
    drop(objects.apply(Event::Delete(deleted), |object| ("a".to_owned(), object)));
    assert!(content.upgrade().is_none());
}

/// Each watch ends with an error, and the next list shows the change.
#[tokio::test(start_paused = true)]
async fn single_object_is_shown_when_listed_and_at_each_change() {
    let status = |code: u16| json!({"kind": "Status", "status": "Failure", "reason": "X", "code": code});
    let expired = json!({"type": "ERROR", "object": status(410)});
    let list = |items: serde_json::Value| json!({"metadata": {"resourceVersion": "1"}, "items": items});
    let there = json!([{"metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1"}}]);
    let none = || (200_u16, list(json!([])));
    let mut lists = VecDeque::from([none(), (403, status(403)), (200, list(there)), none()]);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&requests);
    let apiserver = tower::service_fn(move |request: http::Request<Body>| {
        let uri = request.uri().to_string();
        let is_watch = uri.contains("watch=true");
        record.lock().push(uri);
        let answer = if is_watch { Some((200, expired.clone())) } else { lists.pop_front() };
        async move {
            let Some((code, body)) = answer else { return std::future::pending().await };
            http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
        }
    });
    let api: Api<ConfigMap> = Api::namespaced(Client::new(apiserver, "default"), "n");
    let name = |object: Option<ConfigMap>| object.and_then(|it| it.metadata.name);
    let changes = single(api, "c").map(|change| change.map(name).map_err(drop));
    let shown: Vec<_> = changes.take(6).collect().await;
    assert_eq!(shown, [Ok(None), Err(()), Err(()), Ok(Some("c".to_owned())), Err(()), Ok(None)]);
    let requests = requests.lock();
    let names_it = |uri: &String| {
        uri.starts_with("/api/v1/namespaces/n/configmaps?") && uri.contains("fieldSelector=metadata.name%3Dc")
    };
    assert!(requests.iter().all(names_it), "{requests:?}");
}

#[tokio::test]
async fn watch_of_metadata_requests_no_content() {
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&accepted);
    let apiserver = tower::service_fn(move |request: http::Request<Body>| {
        record.lock().push(request.headers().get("accept").cloned());
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        async move {
            if is_watch {
                return std::future::pending().await;
            }
            let item =
                json!({"metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1"}});
            let list = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": "1"}, "items": [item],
            });
            Ok::<_, Infallible>(http::Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    let (client, objects) = (Client::new(apiserver, "default"), Objects::<ConfigMap>::empty());
    let config = watcher::Config::default();
    let _watch =
        objects.watch_metadata(&client, config, |metadata| ConfigMap { metadata, ..ConfigMap::default() });
    objects.wait_until_listed().await;
    assert!(objects.find("n/c").is_some_and(|found| found.metadata.uid.as_deref() == Some("u")));
    let accepted = accepted.lock();
    let is_partial = |accept: &Option<http::HeaderValue>| {
        let accept = accept.as_ref().and_then(|accept| accept.to_str().ok());
        accept.is_some_and(|accept| accept.contains("as=PartialObjectMetadata"))
    };
    assert!(!accepted.is_empty() && accepted.iter().all(is_partial), "{accepted:?}");
}
