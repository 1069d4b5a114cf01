//! The objects that a removal leaves to the revisions in force.

use super::*;

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
        ("DELETE", "/apis/g.io/v1/ks/k") => (200, json!({"kind": "Status", "status": "Success"})),
        ("GET", "/apis/olm.operatorframework.io/v1/clusterextensions/e") => match &extension {
            Some(metadata) => {
                let version = "meta.k8s.io/v1";
                (200, json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata}))
            }
            None => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})),
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
    let unknown = Outcome::Removing(Some("waiting for the content of revision e-3".to_owned()));
    let (left, gone) = (Outcome::Removing(None), Outcome::Archived);
    for (case, owners, sibling, is_known, want) in [
        ("an older one that has succeeded", &[1, 2][..], succeeded(sibling(1, "Active")), false, &left),
        ("an older one that is not complete", &[1, 2], sibling(1, "Active"), false, &left),
        ("the object was made again meanwhile", &[2], succeeded(sibling(1, "Active")), true, &left),
        ("an older one is not there yet", &[2], sibling(1, "Active"), true, &gone),
        ("an older one that is archived", &[1, 2], sibling(1, "Archived"), true, &gone),
        ("a newer one, after a restart", &[1, 2], sibling(3, "Active"), false, &unknown),
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
