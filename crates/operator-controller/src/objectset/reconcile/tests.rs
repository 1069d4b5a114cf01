mod teardown;

use serde_json::{Value, json};

use super::*;
use kube::runtime::watcher::Event;
use olm_api::{ClusterExtension, labels};

use crate::accounts::{Accounts, Mode, Rights};
use crate::revisions::Revisions;
use crate::testing::{Apiserver, failure, failure_with};
use olm_runtime::watched::{Object, Objects};

fn revision(metadata: &Value, spec: &Value, status: &Value) -> ClusterObjectSet {
    let mut object = json!({
        "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
        "metadata": {"name": "e-1", "uid": "u1", "generation": 1, "creationTimestamp": "2000-01-01T00:00:00Z"},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        "status": status,
    });
    for (member, more) in [("metadata", metadata), ("spec", spec)] {
        object[member].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    serde_json::from_value(object).unwrap()
}

/// The apiserver's clock stamped the creation, decades before the controller's clock.
#[test]
fn deadline_counts_from_the_first_sight() {
    let minute = Duration::from_secs(60);
    let reported = |generation: i64| {
        json!({"conditions": [{
            "type": "Progressing", "status": "False", "reason": reason::PROGRESS_DEADLINE_EXCEEDED, "message": "",
            "observedGeneration": generation, "lastTransitionTime": "2000-01-01T00:00:00Z"}]})
    };
    let passed = Deadline::Passed { minutes: 2 };
    for (case, status, known_for, want) in [
        ("just seen", json!({}), 0, Deadline::Ahead(minute * 2)),
        ("a minute later", json!({}), 60, Deadline::Ahead(minute)),
        ("two minutes later", json!({}), 120, passed),
        ("reported by a process before", reported(1), 0, passed),
        ("reported of another generation", reported(0), 0, Deadline::Ahead(minute * 2)),
    ] {
        let revision = revision(&json!({}), &json!({"progressDeadlineMinutes": 2}), &status);
        assert_eq!(deadline(&revision, minute, Duration::from_secs(known_for), false), want, "{case}");
    }
}

#[test]
fn revision_status_keeps_conditions_of_other_writers() {
    let foreign = json!({"type": "example.com/Scanned", "status": "False", "reason": "Found", "message": "",
        "lastTransitionTime": "2000-01-01T00:00:00Z"});
    let revision = revision(&json!({}), &json!({}), &json!({"conditions": [foreign]}));
    let failed = Outcome::Failed("x".to_owned());
    let after = status(&revision, &failed, Deadline::None, None, Timestamp::UNIX_EPOCH).unwrap();
    let types: Vec<&str> = after.conditions.iter().map(|found| found.type_.as_str()).collect();
    assert_eq!(types, ["example.com/Scanned", condition::PROGRESSING]);
    assert_eq!(after.conditions[0], revision.status.unwrap().conditions[0]);
}

/// One CRD, which the revision controls, and one custom resource that a finalizer holds.
fn apiserver() -> Apiserver {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ks.g.io", "uid": "u2", "resourceVersion": "2", "ownerReferences": [{
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "name": "e-1", "uid": "u1", "controller": true}]},
        "spec": {"group": "g.io", "scope": "Cluster", "names": {"kind": "K", "plural": "ks"},
            "versions": [{"name": "v1", "served": true, "storage": true}]},
    });
    let held = json!({"metadata": {"name": "k", "deletionTimestamp": "2000-01-01T00:00:00Z", "finalizers": ["g.io/x"]}});
    let list = |items: &[&Value]| json!({"metadata": {"resourceVersion": "9"}, "items": items});
    Apiserver::new(move |method, uri| match (method, uri.split('?').next().unwrap_or_default()) {
        ("GET", "/apis/apiextensions.k8s.io/v1") => {
            let resource = json!({"name": "customresourcedefinitions", "kind": "CustomResourceDefinition",
                "namespaced": false, "verbs": [], "singularName": ""});
            (200, json!({"groupVersion": "apiextensions.k8s.io/v1", "resources": [resource]}))
        }
        ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions") => (200, list(&[])),
        ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ks.g.io") => (200, crd.clone()),
        ("GET", "/apis/g.io/v1/ks") => (200, list(&[&held])),
        _ => failure(500, "InternalError"),
    })
}

/// As above, for the deletion: the wait for custom resources was over before it began.
#[tokio::test]
async fn teardown_waits_for_custom_resources_whatever_the_clock() {
    let apiserver = apiserver();
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ks.g.io"}, "spec": {}});
    let phases = json!([{"name": "crds", "objects": [{"object": crd}]}]);
    let deleted = json!({"deletionTimestamp": "2000-01-01T00:00:00Z", "finalizers": [finalizers::TEARDOWN]});
    let revision = Arc::new(revision(&deleted, &json!({"phases": phases}), &json!({})));
    let mut context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
    let mut memory = Memory::default();
    let removed = tear_down(&revision, &context, &mut memory).await;
    let Ok(Removed::Waiting { detail: Some(detail), .. }) = &removed else { panic!("{removed:?}") };
    assert_eq!(detail, "waiting for custom resources to go: 1 ks.g.io");
    let writes =
        || apiserver.requests().into_iter().filter(|line| !line.starts_with("GET ")).collect::<Vec<_>>();
    assert_eq!(writes(), Vec::<String>::new());

    context.custom_resource_wait = Duration::ZERO;
    tear_down(&revision, &context, &mut memory).await.unwrap_err();
    let writes = writes();
    assert!(writes.len() == 1 && writes[0].starts_with("DELETE "), "the wait is over: {writes:?}");
}

/// The definition cannot be read, so it is unknown whether there are custom resources.
#[tokio::test]
async fn teardown_waits_while_definitions_cannot_be_watched() {
    let (usual, group) = (apiserver(), "/apis/apiextensions.k8s.io/v1");
    let apiserver = Apiserver::new(move |method, uri| match uri.split('?').next().unwrap_or_default() {
        path if path.starts_with(group) && path != group => failure(429, "TooManyRequests"),
        _ => usual.respond(method, uri),
    });
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ks.g.io"}, "spec": {}});
    let phases = json!([{"name": "crds", "objects": [{"object": crd}]}]);
    let deleted = json!({"deletionTimestamp": "2000-01-01T00:00:00Z", "finalizers": [finalizers::TEARDOWN]});
    let revision = Arc::new(revision(&deleted, &json!({"phases": phases}), &json!({})));
    let context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
    let mut memory = Memory::default();
    let problem = tear_down(&revision, &context, &mut memory).await.unwrap_err();
    assert!(problem.contains("ks.g.io"), "{problem}");
    assert!(!memory.custom_resources_gone, "they go before the rest");
}

/// Found by simulation, seed 4941: whether the content is lost is unknown, so nothing is searched by owner references instead.
#[tokio::test]
async fn teardown_reads_content_again_if_the_apiserver_fails() {
    let phases = json!([{"name": "a", "objects": [{"ref": {"name": "s", "namespace": "olm", "key": "k"}}]}]);
    let deleted = json!({"deletionTimestamp": "2000-01-01T00:00:00Z", "finalizers": [finalizers::TEARDOWN],
        "labels": {(labels::OWNER_NAME): "e"}});
    let revision = Arc::new(revision(&deleted, &json!({"phases": phases}), &json!({})));
    for (code, reason, is_searched) in
        [(429, "TooManyRequests", false), (500, "InternalError", false), (404, "NotFound", true)]
    {
        let apiserver = Apiserver::new(move |_, uri| match uri.split('?').next().unwrap_or_default() {
            "/api/v1/namespaces/olm/secrets" => {
                (200, json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": []}))
            }
            _ => failure(code, reason),
        });
        let context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
        let removed = tear_down(&revision, &context, &mut Memory::default()).await;
        let requests = apiserver.requests();
        let discovers = |line: &String| line.ends_with(" /api") || line.ends_with(" /apis");
        assert_eq!(requests.iter().any(discovers), is_searched, "{reason}: {removed:?}: {requests:?}");
        if !is_searched {
            let problem = removed.unwrap_err();
            assert!(problem.contains("getting Secret olm/s"), "{problem}");
        }
    }
}

/// An object without a name, or whose API is no path, cannot exist, so no request can be made for it.
#[tokio::test]
async fn teardown_ends_if_an_object_has_no_name() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "n"}});
    let blank =
        json!({"apiVersion": "v1 ", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
    let crd =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {}});
    let phases = json!([{"name": "a", "objects": [{"object": map}, {"object": blank}, {"object": crd}]}]);
    let deleted = json!({"deletionTimestamp": "2000-01-01T00:00:00Z", "finalizers": [finalizers::TEARDOWN]});
    let revision = Arc::new(revision(&deleted, &json!({"phases": phases}), &json!({})));
    let context =
        Context::new(creation(500, json!({})).client(), "olm", Revisions::default(), Objects::empty());
    let removed = tear_down(&revision, &context, &mut Memory::default()).await;
    assert!(matches!(removed, Ok(Removed::All)), "{removed:?}");
}

/// A cluster with a mutable Secret, that answers a creation like this.
fn creation(code: u16, answer: Value) -> Apiserver {
    let mutable =
        json!({"metadata": {"name": "mutable", "namespace": "n", "uid": "s", "resourceVersion": "3"}});
    let resource = json!({"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": [], "singularName": ""});
    Apiserver::new(move |method, uri| match (method, uri.split('?').next().unwrap_or_default()) {
        ("GET", "/api/v1") => (200, json!({"groupVersion": "v1", "resources": [resource]})),
        ("GET", "/api/v1/configmaps") => (200, json!({"metadata": {"resourceVersion": "9"}, "items": []})),
        ("GET", "/api/v1/namespaces/n/secrets/mutable") => (200, mutable.clone()),
        ("POST", _) => (code, answer.clone()),
        _ => failure(404, "NotFound"),
    })
}

/// An event may be missed of whatever a revision waits for.
#[tokio::test]
async fn rollout_that_is_not_finished_is_requeued_within_a_minute() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
    let mut created = map.clone();
    created["metadata"]["resourceVersion"] = "10".into();
    let refused = |code: u16, about: &str| {
        let reason = if code == 404 { "NotFound" } else { "Forbidden" };
        json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code, "details": {"kind": about}})
    };
    let probes = json!([{"selector": {"type": "GroupKind", "groupKind": {"group": "", "kind": "ConfigMap"}},
        "assertions": [{"type": "ConditionEqual", "conditionEqual": {"type": "Ready", "status": "True"}}]}]);
    let content = json!([{"name": "a", "objects": [{"object": map}]}]);
    let named = |number: usize| {
        let mut map = map.clone();
        map["metadata"]["name"] = format!("a-{number}").into();
        json!({"object": map})
    };
    let large = json!([{"name": "a", "objects": (0..=AWAITED).map(named).collect::<Vec<_>>()}]);
    let secret =
        json!([{"name": "a", "objects": [{"ref": {"name": "mutable", "namespace": "n", "key": "x"}}]}]);
    for (case, phases, probes, apiserver, want) in [
        ("complete", &content, json!([]), creation(201, created.clone()), Requeue::OnChange),
        (
            "complete, without a label by which all objects are watched",
            &large,
            json!([]),
            creation(201, created.clone()),
            Requeue::Unfinished,
        ),
        ("a probe fails", &content, probes, creation(201, created), Requeue::Unfinished),
        ("no namespace", &content, json!([]), creation(404, refused(404, "namespaces")), Requeue::Unfinished),
        ("no rights", &content, json!([]), creation(403, refused(403, "configmaps")), Requeue::Backoff),
        ("content that may change", &secret, json!([]), creation(500, json!({})), Requeue::Unfinished),
    ] {
        let spec = json!({"phases": phases, "progressionProbes": probes});
        let revision = Arc::new(revision(&json!({}), &spec, &json!({})));
        let context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
        let Pass { outcome, requeue } = roll_out(&revision, &context, &mut Memory::default()).await;
        assert_eq!(requeue, want, "{case}: {outcome:?}");
    }
}

#[tokio::test]
async fn rollout_rejects_an_object_that_lacks_its_namespace() {
    let apiserver = creation(405, json!({}));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let phases = json!([{"name": "a", "objects": [{"object": map}]}]);
    let revision = Arc::new(revision(&json!({}), &json!({"phases": phases}), &json!({})));
    let context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
    let outcome = roll_out(&revision, &context, &mut Memory::default()).await.outcome;
    let want = "reconciling object: validating: /v1, Kind=ConfigMap /a: metadata.namespace: Required value: objects of this kind are in \
                a namespace";
    assert_eq!(outcome, Outcome::Failed(want.to_owned()));
}

/// Two revisions of different extensions with `None`, for example, would take the object from each other for ever.
#[tokio::test]
async fn rollout_limits_adoptions_of_a_contested_object() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
    let owned = |kind: &str, uid: &str| {
        let mut owned = map.clone();
        owned["metadata"]["resourceVersion"] = "5".into();
        owned["metadata"]["ownerReferences"] = json!([{"apiVersion": olm_api::API_VERSION, "kind": kind, "name": "e-1",
            "uid": uid, "controller": true}]);
        owned
    };
    let (theirs, ours) = (owned("Other", "x"), owned("ClusterObjectSet", "u1"));
    let usual = creation(409, json!({}));
    let apiserver = Apiserver::new(move |method, uri| match (method, uri) {
        ("GET", _) if uri.starts_with("/api/v1/namespaces/n/configmaps/a") => (200, theirs.clone()),
        ("PATCH", _) => (200, ours.clone()),
        _ => usual.respond(method, uri),
    });
    let spec =
        json!({"phases": [{"name": "a", "objects": [{"object": map}]}], "collisionProtection": "None"});
    let revision = Arc::new(revision(&json!({}), &spec, &json!({})));
    let context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
    let mut memory = Memory::default();
    let mut ends = vec![];
    for _ in 0..30 {
        ends.push(roll_out(&revision, &context, &mut memory).await.outcome.is_complete());
    }
    let adoptions = apiserver.requests().iter().filter(|line| line.starts_with("PATCH ")).count();
    assert_eq!((ends[0], adoptions), (true, 21), "{ends:?}");
}

/// A foreign deletion whose finalizer is not removed.
#[tokio::test]
async fn rollout_names_an_object_that_is_being_deleted() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
    let mut deleted = map.clone();
    deleted["metadata"]["resourceVersion"] = "5".into();
    deleted["metadata"]["deletionTimestamp"] = "2000-01-01T00:00:00Z".into();
    deleted["metadata"]["finalizers"] = json!(["g.io/x"]);
    deleted["metadata"]["ownerReferences"] = json!([{"apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "name": "e-1",
        "uid": "u1", "controller": true}]);
    let usual = creation(500, json!({}));
    let apiserver = Apiserver::new(move |method, uri| {
        let is_read = uri.starts_with("/api/v1/namespaces/n/configmaps/a");
        if is_read { (200, deleted.clone()) } else { usual.respond(method, uri) }
    });
    let phases = json!([{"name": "a", "objects": [{"object": map}]}]);
    let revision = Arc::new(revision(&json!({}), &json!({"phases": phases}), &json!({})));
    let context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
    let Pass { outcome, requeue } = roll_out(&revision, &context, &mut Memory::default()).await;
    assert_eq!(requeue, Requeue::Unfinished, "{outcome:?}");
    let status = status(&revision, &outcome, Deadline::None, None, Timestamp::now()).unwrap();
    let available = condition::find(&status.conditions, condition::AVAILABLE).unwrap();
    assert_eq!(available.message, "Object ConfigMap.v1 n/a: it is being deleted, held by finalizers g.io/x");
}

/// rule: revisions §9.4
#[tokio::test]
async fn deadline_bounds_the_wait_for_a_retry() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
    let phases = json!([{"name": "a", "objects": [{"object": map}]}]);
    for (minutes, is_bounded) in [(json!(null), false), (json!(10), true)] {
        let spec = json!({"phases": phases, "progressDeadlineMinutes": minutes});
        let revision = revision(&json!({"finalizers": [finalizers::TEARDOWN]}), &spec, &json!({}));
        let (stored, usual) =
            (serde_json::to_value(&revision).unwrap(), creation(403, failure(403, "Forbidden").1));
        let apiserver = Apiserver::new(move |method, uri| match method {
            "PATCH" => (200, stored.clone()),
            _ => usual.respond(method, uri),
        });
        let context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
        let (requeue, _) = reconcile(Arc::new(revision), &context).await;
        match requeue {
            Requeue::BackoffWithin(left) => {
                assert!(is_bounded && left <= Duration::from_secs(600), "{left:?}")
            }
            other => assert!(!is_bounded && other == Requeue::Backoff, "{other:?}"),
        }
    }
}

/// The predecessor may have been orphaned, or belong to another extension, since the cache saw it.
#[tokio::test]
async fn archiving_changes_exactly_what_was_judged() {
    let set = |number: i64, uid: &str, version: &str| {
        let owner = json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "e", "uid": "x", "controller": true});
        let metadata = json!({"name": format!("e-{number}"), "uid": uid, "resourceVersion": version,
            "labels": {(labels::OWNER_NAME): "e"}, "ownerReferences": [owner]});
        revision(&metadata, &json!({"phases": [], "revision": number}), &json!({}))
    };
    let (predecessor, successor) = (set(1, "u1", "7"), set(2, "u2", "8"));
    for (code, want) in [(200, Requeue::OnChange), (404, Requeue::OnChange), (409, Requeue::Backoff)] {
        let answer = match code {
            200 => serde_json::to_value(&predecessor).unwrap(),
            _ => failure(code, "Test").1,
        };
        let apiserver = Apiserver::new(move |_, _| (code, answer.clone()));
        let revisions = Revisions::default();
        for set in [&predecessor, &successor] {
            revisions.put(set.name_any(), Object(Ok(Arc::new(set.clone()))));
        }
        let context = Context::new(apiserver.client(), "olm", revisions, Objects::empty());
        let pass = roll_out(&Arc::new(successor.clone()), &context, &mut Memory::default()).await;
        assert!(pass.outcome.is_complete(), "{code}: {:?}", pass.outcome);
        assert_eq!(pass.requeue, want, "{code}");
        let patches: Vec<_> =
            apiserver.requests().into_iter().filter(|line| line.starts_with("PATCH ")).collect();
        let [patch] = &patches[..] else { panic!("{patches:?}") };
        assert!(patch.contains("/clusterobjectsets/e-1"), "{patch}");
        assert!(patch.contains(r#""metadata":{"resourceVersion":"7","uid":"u1"}"#), "{patch}");
    }
}

/// The cache of revisions may show an owner that orphaned the revision and is gone.
#[tokio::test]
async fn removal_uses_the_recorded_account_if_the_extension_is_gone() {
    let secret =
        json!({"metadata": {"name": "s", "annotations": {(annotations::SERVICE_ACCOUNT): "n/recorded"}}});
    let list = json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": [secret]});
    let account =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}});
    let apiserver = Apiserver::new(move |_, uri| match uri.split('?').next().unwrap_or_default() {
        "/api/v1/namespaces/olm/secrets" => (200, list.clone()),
        "/api/v1/namespaces/n/serviceaccounts/recorded" => (200, account.clone()),
        _ => failure(404, "NotFound"),
    });
    let extensions = Objects::empty();
    extensions.apply(Event::Init, |object: Object<ClusterExtension>| (object.name(), object));
    extensions.apply(Event::InitDone, |object: Object<ClusterExtension>| (object.name(), object));
    let (rights, _woken) = Rights::new(apiserver.client());
    let accounts = Accounts::new(apiserver.client(), Mode::Impersonate, extensions.clone(), rights);
    let mut context = Context::new(apiserver.client(), "olm", Revisions::default(), extensions);
    context.identities = Arc::new(Arc::new(accounts));
    let owners = json!([{"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "e", "uid": "x", "controller": true}]);
    let phases = json!([{"name": "a", "objects": [{"ref": {"name": "s", "namespace": "olm", "key": "k"}}]}]);
    let revision = revision(&json!({"ownerReferences": owners}), &json!({"phases": phases}), &json!({}));
    let mut memory = Memory::default();
    let owner = context.owner(&revision, &mut memory).await.unwrap();
    let client = context.removing_client(&revision, &owner, &mut memory).await.unwrap();
    let request = http::Request::get("/who").body(kube::client::Body::empty()).unwrap();
    client.send(request).await.unwrap();
    assert_eq!(apiserver.last_user(), "system:serviceaccount:n:recorded");
}

/// rule: revisions §6 rows 6 and 8: the revision cannot be written, its status can
#[tokio::test]
async fn revision_reports_a_finalizer_that_cannot_be_written() {
    let deleted = json!({"deletionTimestamp": "2000-01-01T00:00:00Z", "finalizers": [finalizers::TEARDOWN]});
    for (case, metadata, want) in [
        ("added", json!({}), "error ensuring teardown finalizer: "),
        (
            "removed",
            deleted,
            "error removing revision: its objects are gone, but its finalizer cannot be removed: ",
        ),
    ] {
        let revision = Arc::new(revision(&metadata, &json!({"phases": []}), &json!({})));
        let stored = serde_json::to_value(&*revision).unwrap();
        let apiserver = Apiserver::new(move |method, uri| match method {
            "PATCH" if uri.contains("/status?") => (200, stored.clone()),
            "PATCH" => failure_with(403, "Forbidden", "no"),
            _ => failure(404, "NotFound"),
        });
        let context = Context::new(apiserver.client(), "olm", Revisions::default(), Objects::empty());
        let (requeue, ended) = reconcile(Arc::clone(&revision), &context).await;
        assert_eq!((requeue, ended), (Requeue::Backoff, Ended::Error), "{case}");
        let statuses: Vec<_> =
            apiserver.requests().into_iter().filter(|line| line.contains("/status?")).collect();
        let [written] = &statuses[..] else { panic!("{case}: {statuses:?}") };
        assert!(written.contains(&format!(r#""message":"{want}no"#)), "{case}: {written}");
        assert!(written.contains(r#""reason":"Retrying""#), "{case}: {written}");
    }
}
