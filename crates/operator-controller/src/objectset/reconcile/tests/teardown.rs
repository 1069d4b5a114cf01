//! The objects that a removal leaves to the revisions in force.

use olm_runtime::events::Events;

use super::*;
use crate::testing::success;

/// Revision `number` of extension `e`, which owns it, with the CRD in its content or without.
fn numbered(number: i64, state: &str, has_crd: bool, metadata: &Value) -> Arc<ClusterObjectSet> {
    let owner = json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "e", "uid": "x", "controller": true});
    let mut all = json!({"name": format!("e-{number}"), "uid": format!("u{number}"), "labels": {(labels::OWNER_NAME): "e"},
        "ownerReferences": [owner]});
    all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ks.g.io"}, "spec": {}});
    let objects = if has_crd { vec![json!({"object": crd})] } else { vec![] };
    let phases = json!([{"name": "crds", "objects": objects}]);
    let spec = json!({"revision": number, "lifecycleState": state, "phases": phases});
    Arc::new(revision(&all, &spec, &json!({})))
}

/// The revision after it has succeeded.
fn succeeded(mut set: Arc<ClusterObjectSet>) -> Arc<ClusterObjectSet> {
    let status = json!({"conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2000-01-01T00:00:00Z"}]});
    Arc::make_mut(&mut set).status = serde_json::from_value(status).unwrap();
    set
}

/// A cluster with a custom resource, its CRD, which the revisions with these numbers own, the last one as its controller, and extension
/// `e`, if it has this metadata.
fn cluster(owners: &[i64], extension: Option<Value>) -> Apiserver {
    let usual = apiserver();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (_, mut crd) = usual.respond("GET", &format!("{definitions}/ks.g.io"));
    let owners = owners.iter().map(|number| {
        json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "name": format!("e-{number}"),
            "uid": format!("u{number}"), "controller": owners.last() == Some(number)})
    });
    crd["metadata"]["ownerReferences"] = owners.collect();
    crd["metadata"]["labels"] = json!({(labels::OWNER_NAME): "e"});
    Apiserver::new(move |method, uri| match (method, uri.split('?').next().unwrap_or_default()) {
        ("GET", path) if path == definitions => {
            (200, json!({"metadata": {"resourceVersion": "9"}, "items": [crd]}))
        }
        ("GET" | "PATCH", path) if path.starts_with(definitions) => (200, crd.clone()),
        ("GET", "/apis/g.io/v1/ks") => {
            (200, json!({"metadata": {}, "items": [{"metadata": {"name": "k", "uid": "u9"}}]}))
        }
        ("DELETE", "/apis/g.io/v1/ks/k") => success(),
        ("GET", "/apis/olm.operatorframework.io/v1/clusterextensions/e") => match &extension {
            Some(metadata) => {
                let version = "meta.k8s.io/v1";
                (200, json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata}))
            }
            None => failure(404, "NotFound"),
        },
        _ => usual.respond(method, uri),
    })
}

/// A controller that knows these revisions, but not their content.
fn controller(apiserver: &Apiserver, siblings: &[Arc<ClusterObjectSet>]) -> Context {
    let revisions = Revisions::default();
    for sibling in siblings {
        revisions.put(sibling.name_any(), Object(Ok(Arc::clone(sibling))));
    }
    Context::new(apiserver.client(), "olm", revisions, Objects::empty())
}

/// The first passes over these revisions have ended: their content is known.
async fn read_content(context: &Context, siblings: &[Arc<ClusterObjectSet>]) {
    for sibling in siblings {
        let mut taken = context.memories.take(&sibling.uid().unwrap());
        context.know(sibling, &mut taken.memory).await.unwrap();
        taken.put();
    }
}

/// Method and path of the requests since these that were to change something.
fn writes(apiserver: &Apiserver, since: usize) -> Vec<String> {
    let requests = apiserver.requests().into_iter().skip(since).filter(|line| !line.starts_with("GET "));
    requests.map(|line| line.split([' ', '?']).take(2).collect::<Vec<_>>().join(" ")).collect()
}

/// rule: revisions §17 row 26: after a restart it is not known yet what the revisions in force have in their content
#[tokio::test]
async fn archiving_leaves_to_revisions_in_force_what_they_have() {
    let sibling = |number: i64, state: &str| numbered(number, state, true, &json!({}));
    let unknown = |detail: &str| Outcome::Removing(Some(detail.to_owned()));
    let (unknown_older, unknown_newer) = (unknown(OLDER_UNKNOWN), unknown(NEWER_UNKNOWN));
    let (left, gone) = (Outcome::Removing(None), Outcome::Archived);
    for (case, owners, sibling, is_known, want) in [
        ("an older one that has succeeded", &[1, 2][..], succeeded(sibling(1, "Active")), true, &left),
        ("the same, after a restart", &[1, 2], succeeded(sibling(1, "Active")), false, &unknown_older),
        ("an older one that is not complete", &[1, 2], sibling(1, "Active"), false, &left),
        ("the object was made again meanwhile", &[2], succeeded(sibling(1, "Active")), true, &left),
        ("made again, before a restart", &[2], succeeded(sibling(1, "Active")), false, &unknown_older),
        ("an archived one, after a restart", &[2], succeeded(sibling(1, "Archived")), false, &gone),
        ("an older one is not there yet", &[2], sibling(1, "Active"), true, &gone),
        ("an older one that is archived", &[1, 2], sibling(1, "Archived"), true, &gone),
        ("a newer one, after a restart", &[1, 2], sibling(3, "Active"), false, &unknown_newer),
        ("a newer one", &[1, 2], sibling(3, "Active"), true, &left),
        ("it has been taken over", &[2, 3], succeeded(sibling(3, "Active")), false, &gone),
    ] {
        let (apiserver, siblings) = (cluster(owners, None), [sibling]);
        let context = controller(&apiserver, &siblings);
        if is_known {
            read_content(&context, &siblings).await;
        }
        let archived = numbered(2, "Archived", true, &json!({}));
        let outcome = archive(&archived, &context, &mut Memory::default()).await.outcome;
        // the deletion is not answered
        let is_deleted = writes(&apiserver, 0).iter().any(|line| line.starts_with("DELETE "));
        let (is_left, is_released) = (*want != gone, owners.last() != Some(&2));
        assert_eq!(is_deleted, !is_left && !is_released, "{case}: {outcome:?}");
        assert!(is_deleted || outcome == *want, "{case}: {outcome:?}");
    }
}

/// The Secrets of the older revision are lost, or the apiserver rejects its definition of the CRD.
#[tokio::test]
async fn archiving_bounds_the_wait_for_an_older_revision() {
    for (case, owners, is_known) in
        [("its content is lost", &[2][..], false), ("it does not take the CRD back", &[1, 2], true)]
    {
        let siblings = [succeeded(numbered(1, "Active", true, &json!({})))];
        let apiserver = cluster(owners, None);
        let mut context = controller(&apiserver, &siblings);
        context.custom_resource_wait = Duration::ZERO;
        if is_known {
            read_content(&context, &siblings).await;
        }
        let archived = numbered(2, "Archived", true, &json!({}));
        let outcome = archive(&archived, &context, &mut Memory::default()).await.outcome;
        assert_eq!(outcome, Outcome::Archived, "{case}");
        assert_eq!(writes(&apiserver, 0), RELEASE.1, "{case}: the CRD stays, without our reference");
    }
}

/// Content is usually read within a second after a start. A wait that lasts is an event, and is polled less often.
#[tokio::test]
async fn archiving_records_a_wait_that_lasts() {
    let (apiserver, siblings) = (cluster(&[1, 2], None), [numbered(3, "Active", true, &json!({}))]);
    let mut context = controller(&apiserver, &siblings);
    context.events = Some(Events::new(apiserver.client(), "test", None));
    let archived = numbered(2, "Archived", true, &json!({}));
    for (seconds, after, events) in [(0, CONTENT_POLL_INTERVAL, 0), (10, schedule::TEARDOWN_INTERVAL, 1)] {
        let since = Instant::now().checked_sub(Duration::from_secs(seconds));
        let mut memory = Memory { archive_seen: since, ..Memory::default() };
        let pass = archive(&archived, &context, &mut memory).await;
        assert_eq!(pass.outcome, Outcome::Removing(Some(NEWER_UNKNOWN.to_owned())), "{seconds}");
        assert_eq!(pass.requeue, Requeue::After(after), "{seconds}");
        let mut sent = apiserver.requests();
        sent.retain(|line| line.starts_with("POST ") && line.contains("/events"));
        assert_eq!(sent.len(), events, "{seconds}: {sent:?}");
        assert!(sent.iter().all(|event| event.contains(NEWER_UNKNOWN)), "{sent:?}");
    }
}

/// The metadata of extension `e`, changed by `more`.
fn extension(more: &Value) -> Option<Value> {
    let mut metadata = json!({"name": "e", "uid": "x", "resourceVersion": "5"});
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Some(metadata)
}

/// Revision `number` while it is being deleted, with these finalizers beside ours.
fn deleted(number: i64, state: &str, more: &[&str], metadata: &Value) -> Arc<ClusterObjectSet> {
    let all: Vec<_> = more.iter().chain([&finalizers::TEARDOWN]).collect();
    let mut changed = json!({"deletionTimestamp": "2000-01-01T00:00:00Z", "finalizers": all});
    changed.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    numbered(number, state, true, &changed)
}

/// What a pass over a revision that is being deleted waits for, and its writes.
async fn pass_of_teardown(
    (apiserver, context): (&Apiserver, &Context),
    deleted: &Arc<ClusterObjectSet>,
    memory: &mut Memory,
) -> (String, Vec<String>) {
    let before = apiserver.requests().len();
    let detail = match tear_down(deleted, context, memory).await {
        Ok(Removed::All) => "all is gone".to_owned(),
        Ok(Removed::Waiting { detail, .. }) => detail.unwrap_or_default(),
        Err(problem) => problem,
    };
    (detail, writes(apiserver, before))
}

/// The custom resource is deleted.
const DELETE: (&str, &[&str]) =
    ("waiting for custom resources to go: 1 ks.g.io", &["DELETE /apis/g.io/v1/ks/k"]);
/// The CRD stays, without our reference.
const RELEASE: (&str, &[&str]) =
    ("all is gone", &["PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/ks.g.io"]);
/// Nothing is done for the time being.
const WAIT: (&str, &[&str]) = ("", &[]);
/// It is not known what revision 1 has.
const OLDER_UNKNOWN: &str = "waiting for the content of revision e-1; this ends after 5 minutes";
/// It is not known what revision 3 has.
const NEWER_UNKNOWN: &str =
    "waiting for the content of revision e-3; this also ends if it succeeds or is deleted";

/// rule: revisions §11, first paragraph: the garbage collector leaves what the predecessor of a stuck revision owned, when that is
/// deleted by hand. Custom resources cannot be made again.
#[tokio::test]
async fn teardown_leaves_to_revisions_in_force_what_they_have() {
    let second = || deleted(2, "Active", &[], &json!({}));
    let in_foreground = || deleted(2, "Active", &["foregroundDeletion"], &json!({}));
    let first = || vec![numbered(1, "Active", true, &json!({}))];
    let third = || vec![numbered(3, "Active", true, &json!({}))];
    let other = |state: &str, metadata: Value| vec![numbered(1, state, true, &metadata)];
    let unowned = json!({"ownerReferences": []});
    let (keep, protect) = (annotations::DELETION_POLICY, annotations::PROTECT_CUSTOM_RESOURCES);
    let kept = json!({"annotations": {(keep): annotations::DELETION_POLICY_KEEP}});
    let protected = extension(&json!({"annotations": {(protect): "true"}}));
    let going = json!({"deletionTimestamp": "2000-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]});
    let mut going_and_kept = going.clone();
    going_and_kept["annotations"] = kept["annotations"].clone();
    let (stays, goes) = (extension(&json!({})), extension(&going));
    for (case, deleted, owners, siblings, extension, (detail, written)) in [
        // the older one is in force
        ("it takes the CRD back", second(), &[1, 2][..], first(), stays.clone(), WAIT),
        ("the same, in foreground", in_foreground(), &[1, 2], first(), stays.clone(), WAIT),
        ("the same, with `keep`", second(), &[1, 2], first(), extension(&kept), WAIT),
        ("the same, with protection", second(), &[1, 2], first(), protected, WAIT),
        (
            "the same, by hand without an extension",
            deleted(2, "Active", &[], &unowned),
            &[1, 2],
            other("Active", unowned),
            None,
            WAIT,
        ),
        (
            "it has the CRD since it was made again",
            second(),
            &[2],
            vec![succeeded(first().remove(0))],
            stays.clone(),
            WAIT,
        ),
        ("it has not come to the CRD", second(), &[2], first(), stays.clone(), DELETE),
        ("it is archived", second(), &[1, 2], other("Archived", json!({})), stays.clone(), DELETE),
        (
            "it is deleted, too",
            second(),
            &[1, 2],
            vec![deleted(1, "Active", &[], &json!({}))],
            stays.clone(),
            DELETE,
        ),
        // the newer one is in force
        ("it takes the CRD over", second(), &[1, 2], third(), stays.clone(), WAIT),
        (
            "the same, archived before",
            deleted(2, "Archived", &[], &json!({})),
            &[2],
            third(),
            stays.clone(),
            WAIT,
        ),
        ("it took the CRD over", second(), &[2, 3], third(), stays.clone(), RELEASE),
        (
            "it lacks the CRD",
            second(),
            &[2],
            vec![numbered(3, "Active", false, &json!({}))],
            stays.clone(),
            DELETE,
        ),
        // no other one
        ("the only one", second(), &[2], vec![], stays, DELETE),
        ("the only one, with `keep`", second(), &[2], vec![], extension(&kept), RELEASE),
        // all revisions go
        ("with its extension", second(), &[1, 2], first(), goes.clone(), DELETE),
        ("with its extension, in foreground", in_foreground(), &[1, 2], first(), goes, DELETE),
        ("with its extension, with `keep`", second(), &[1, 2], first(), extension(&going_and_kept), RELEASE),
        ("after its extension", second(), &[1, 2], first(), None, RELEASE),
    ] {
        let apiserver = cluster(owners, extension);
        let context = controller(&apiserver, &siblings);
        read_content(&context, &siblings).await;
        let at = (&apiserver, &context);
        let (found, writes) = pass_of_teardown(at, &deleted, &mut Memory::default()).await;
        assert_eq!(found, detail, "{case}");
        assert_eq!(writes, written, "{case}");
    }
}

/// After a restart it is not known yet whether an older revision has the CRD, which was made again after its deletion by hand. Its Secrets
/// may be lost.
#[tokio::test]
async fn teardown_waits_for_content_of_older_revisions() {
    let deleted = deleted(2, "Active", &[], &json!({}));
    let older = |state: &str, has_crd: bool| numbered(1, state, has_crd, &json!({}));
    let wait: (&str, &[&str]) = (OLDER_UNKNOWN, &[]);
    for (case, sibling, is_known, is_late, (detail, written)) in [
        ("not read yet", succeeded(older("Active", true)), false, false, wait),
        ("it has the CRD", succeeded(older("Active", true)), true, false, WAIT),
        ("it lacks the CRD", succeeded(older("Active", false)), true, false, DELETE),
        ("it cannot be read", succeeded(older("Active", true)), false, true, RELEASE),
        ("it has not succeeded", older("Active", true), false, false, DELETE),
        ("it is archived", succeeded(older("Archived", true)), false, false, DELETE),
    ] {
        let (apiserver, siblings) = (cluster(&[2], extension(&json!({}))), [sibling]);
        let mut context = controller(&apiserver, &siblings);
        if is_late {
            context.custom_resource_wait = Duration::ZERO;
        }
        if is_known {
            read_content(&context, &siblings).await;
        }
        let at = (&apiserver, &context);
        let (found, writes) = pass_of_teardown(at, &deleted, &mut Memory::default()).await;
        assert_eq!(found, detail, "{case}");
        assert_eq!(writes, written, "{case}");
    }
}

#[tokio::test]
async fn teardown_deletes_custom_resources_if_the_extension_follows() {
    let (deleted, siblings) =
        (deleted(2, "Active", &[], &json!({})), [numbered(1, "Active", true, &json!({}))]);
    let apiserver = cluster(&[1, 2], extension(&json!({})));
    let context = controller(&apiserver, &siblings);
    let show = |metadata: Option<Value>| {
        let object: ClusterExtension = serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": metadata,
            "spec": {"namespace": "a", "source": {"sourceType": "Catalog", "catalog": {"packageName": "a"}}},
        }))
        .unwrap();
        let shown = Event::Apply(Object(Ok(Arc::new(object))));
        context.extensions.0.apply(shown, |object: Object<ClusterExtension>| (object.name(), object));
    };
    show(extension(&json!({})));
    let (at, mut memory) = ((&apiserver, &context), Memory::default());
    for pass in 0..3 {
        assert_eq!(pass_of_teardown(at, &deleted, &mut memory).await, (String::new(), vec![]), "{pass}");
    }
    let path = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/ks.g.io";
    let reads: Vec<String> = apiserver.requests().into_iter().filter(|line| line.starts_with(path)).collect();
    assert_eq!(reads, Vec::<String>::new(), "the watch shows whose it will be");
    // the older revision has not taken the CRD back, and the extension is deleted
    show(extension(&json!({"resourceVersion": "6", "deletionTimestamp": "2000-01-01T00:00:00Z"})));
    let (detail, writes) = pass_of_teardown(at, &deleted, &mut memory).await;
    assert_eq!(detail, DELETE.0);
    assert_eq!(writes, DELETE.1);
}

/// rule: decision 11: the manifest of the CRD asks to keep it, so its custom resources have to stay, too.
#[tokio::test]
async fn teardown_keeps_custom_resources_of_a_kept_crd() {
    let usual = cluster(&[1], extension(&json!({})));
    let kept = json!({(annotations::DELETION_POLICY): annotations::DELETION_POLICY_KEEP});
    let apiserver = Apiserver::new(move |method, uri| {
        let (code, mut answer) = usual.respond(method, uri);
        if uri.starts_with("/apis/apiextensions.k8s.io/v1/customresourcedefinitions") {
            let at = if answer.get("items").is_some() { "/items/0/metadata" } else { "/metadata" };
            if let Some(metadata) = answer.pointer_mut(at) {
                metadata["annotations"] = kept.clone();
            }
        }
        (code, answer)
    });
    let (context, deleted) = (controller(&apiserver, &[]), deleted(1, "Active", &[], &json!({})));
    let at = (&apiserver, &context);
    let (found, writes) = pass_of_teardown(at, &deleted, &mut Memory::default()).await;
    assert_eq!(found, RELEASE.0);
    assert_eq!(writes, RELEASE.1);
}

/// Finalizers hold the first page: the next one is asked to go all the same, and is not given up before.
#[tokio::test]
async fn teardown_deletes_custom_resources_of_all_pages() {
    let deleted = deleted(1, "Active", &[], &json!({}));
    let usual = cluster(&[1], extension(&json!({})));
    let page = |next: &str, name: &str, held: bool| {
        let mut item = json!({"metadata": {"name": name}});
        if held {
            item["metadata"]["deletionTimestamp"] = json!("2000-01-01T00:00:00Z");
        }
        json!({"metadata": {"continue": next}, "items": [item]})
    };
    let pages = [
        page("second", "held", true),
        page("third", "k", false),
        page("", "never asked in this pass", false),
    ];
    let apiserver = Apiserver::new(move |method, uri| match method {
        "GET" if uri.starts_with("/apis/g.io/v1/ks?") => {
            let page = ["continue=second", "continue=third"].iter().position(|next| uri.contains(next));
            (200, pages[page.map_or(0, |page| page + 1)].clone())
        }
        _ => usual.respond(method, uri),
    });
    let mut context = controller(&apiserver, &[]);
    context.custom_resource_wait = Duration::ZERO;
    let (found, writes) = pass_of_teardown((&apiserver, &context), &deleted, &mut Memory::default()).await;
    assert_eq!(found, "waiting for custom resources to go: more than 2 ks.g.io");
    assert_eq!(writes, DELETE.1);
}

/// An admission webhook of the operator, for example, that is asked for each deletion: the operator may never run again.
#[tokio::test]
async fn teardown_bounds_the_wait_for_a_webhook_that_fails() {
    let deleted = deleted(1, "Active", &[], &json!({}));
    let failed = "deleting custom resource k of ks.g.io: no";
    let rest_follows = [DELETE.1[0], "DELETE /apis/olm.operatorframework.io/v1/clusterobjectsets/e-1"];
    let protected = json!({"annotations": {(annotations::PROTECT_CUSTOM_RESOURCES): "true"}});
    for (case, code, reason, is_late, metadata, want, written) in [
        ("it may recover", 500, "InternalError", false, json!({}), failed, DELETE.1),
        (
            "it did not",
            500,
            "InternalError",
            true,
            json!({}),
            "deleting the rest of its objects: ",
            &rest_follows[..],
        ),
        ("the right is missing", 403, "Forbidden", true, json!({}), failed, DELETE.1),
        ("the apiserver asks for fewer requests", 429, "TooManyRequests", true, json!({}), failed, DELETE.1),
        ("protected", 500, "InternalError", true, protected, "custom resources are protected", &[]),
    ] {
        let usual = cluster(&[1], extension(&metadata));
        let apiserver = Apiserver::new(move |method, uri| match (method, uri.split('?').next()) {
            ("DELETE", Some("/apis/g.io/v1/ks/k")) => failure_with(code, reason, "no"),
            _ => usual.respond(method, uri),
        });
        let mut context = controller(&apiserver, &[]);
        if is_late {
            context.custom_resource_wait = Duration::ZERO;
        }
        let at = (&apiserver, &context);
        let (found, writes) = pass_of_teardown(at, &deleted, &mut Memory::default()).await;
        assert!(found.starts_with(want), "{case}: {found}");
        assert_eq!(writes, written, "{case}");
    }
}

/// An apiserver rejects the definition of the older revision if the new version of the CRD is stored already.
#[tokio::test]
async fn teardown_ends_if_an_object_is_not_taken_back() {
    let deleted = deleted(2, "Active", &[], &json!({}));
    for (case, sibling, is_known, detail, released) in [
        ("older", numbered(1, "Active", true, &json!({})), false, "all is gone", true),
        ("newer: it may come to it", numbered(3, "Active", true, &json!({})), true, "", false),
        ("newer, after a restart", numbered(3, "Active", true, &json!({})), false, NEWER_UNKNOWN, false),
    ] {
        let (apiserver, siblings) = (cluster(&[1, 2], extension(&json!({}))), [sibling]);
        let mut context = controller(&apiserver, &siblings);
        context.custom_resource_wait = Duration::ZERO;
        if is_known {
            read_content(&context, &siblings).await;
        }
        let (found, writes) =
            pass_of_teardown((&apiserver, &context), &deleted, &mut Memory::default()).await;
        assert_eq!(found, detail, "{case}");
        assert_eq!(writes, if released { RELEASE.1 } else { &[] }, "{case}");
        // it stays with its labels and the owner that it had before
        let patch = apiserver.requests().into_iter().find(|line| line.starts_with("PATCH "));
        let keeps = |patch: String| patch.contains(r#""uid":"u1""#) && !patch.contains("labels");
        assert_eq!(patch.map(keeps), released.then_some(true), "{case}");
    }
}
