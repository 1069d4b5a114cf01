//! The parts of olm-runtime that only an apiserver can prove.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use axum::body::Body;
use http_body_util::BodyExt;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::Resource;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use olm_api::{ClusterCatalog, Condition, ConditionStatus, condition, reason};
use olm_runtime::apply::{self, ErrorClass};
use olm_runtime::events::{Events, NewEvent};
use olm_runtime::leader::{self, Election, Timing};
use olm_runtime::metrics::{KubeReviews, Metrics, router};
use olm_runtime::{Shutdown, client, write_status};
use serde_json::json;
use tower::ServiceExt;

use crate::{catalog, cluster};

const QUICK: Timing = Timing {
    lease: Duration::from_secs(3),
    renew: Duration::from_secs(2),
    retry: Duration::from_millis(100),
};
/// How long a busy machine may take; the tests end as soon as the event is there.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn leader_election_has_one_leader_at_a_time() -> Result<()> {
    let (cluster, client) = cluster().await?;
    let namespace = cluster.namespace("leader").await?;
    let metrics = Metrics::new();
    let never = Shutdown::new();
    let election = |identity: &str, timing: Timing| {
        Election::new("lock", namespace.clone()).with_identity(identity, timing)
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    let holder = || async {
        let spec = leases.get("lock").await?.spec.unwrap_or_default();
        anyhow::Ok((spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or_default()))
    };

    // the leader of this part must keep the lease even if the apiserver is slow to renew it
    let kept = Timing { renew: LIMIT, ..QUICK };
    // a long lease: the second can only get it because the first gives it back
    let long = Timing { lease: Duration::from_secs(3600), ..kept };
    let free = json!({"metadata": {"name": "lock"}});
    leases.create(&PostParams::default(), &serde_json::from_value(free)?).await?;
    let first = leader::acquire(client.clone(), election("first", long), &metrics, &never)
        .await
        .context("stopped")?;
    assert_eq!(holder().await?, ("first".to_owned(), 0));
    assert!(metrics.classic().contains("leader_election_master_status{name=\"lock\"} 1\n"));
    let stop = Shutdown::new();
    let waiting = tokio::spawn({
        let (client, election, metrics, stop) =
            (client.clone(), election("never", long), Metrics::new(), stop.clone());
        async move { leader::acquire(client, election, &metrics, &stop).await.is_none() }
    });
    stop.cancel();
    assert!(waiting.await?, "asked to stop while waiting");
    let second = tokio::spawn({
        let (client, election, never) = (client.clone(), election("second", QUICK), never.clone());
        async move { leader::acquire(client, election, &Metrics::new(), &never).await }
    });
    assert_eq!(holder().await?.0, "first");
    first.release().await;
    assert!(metrics.classic().contains("leader_election_master_status{name=\"lock\"} 0\n"));
    let second = tokio::time::timeout(LIMIT, second).await??.context("stopped")?;
    assert_eq!(holder().await?, ("second".to_owned(), 1));

    // another holder takes it by force: the leader must notice
    let mut lease = leases.get("lock").await?;
    let spec = lease.spec.as_mut().context("no spec")?;
    spec.holder_identity = Some("thief".to_owned());
    spec.lease_duration_seconds = Some(1);
    let stolen = loop {
        match leases.replace("lock", &PostParams::default(), &lease).await {
            Ok(lease) => break lease,
            // the leader renewed in between
            Err(error) if apply::classify(&error) == ErrorClass::Conflict => {
                lease.metadata.resource_version = leases.get("lock").await?.metadata.resource_version;
            }
            Err(error) => return Err(error.into()),
        }
    };
    assert_eq!(stolen.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("thief"));
    tokio::time::timeout(LIMIT, second.loss().cancelled()).await?;
    second.release().await;

    // the thief does not renew: the next process takes over when the lease has run out
    let third = leader::acquire(client.clone(), election("third", kept), &metrics, &never);
    let third = tokio::time::timeout(LIMIT, third).await?.context("stopped")?;
    assert_eq!(holder().await?.0, "third");
    third.release().await;
    assert_eq!(holder().await?.0, "");
    Ok(())
}

#[tokio::test]
async fn status_is_written_once_and_not_over_newer_objects() -> Result<()> {
    let (_, client) = cluster().await?;
    let api: Api<ClusterCatalog> = Api::all(client.clone());
    let name = olm_kit::unique("status");
    let object = olm_integration::patched(
        catalog::base(),
        &[("/metadata/name", json!(name)), ("/spec/availabilityMode", json!("Unavailable"))],
    );
    let stored = api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let now = k8s_openapi::jiff::Timestamp::from_second(1_700_000_000)?;
    let mut status = olm_api::ClusterCatalogStatus::default();
    assert!(
        write_status(&api, &stored, status.clone(), "test").await?.is_none(),
        "an empty status is not written"
    );

    let (kind, state) = (condition::PROGRESSING, ConditionStatus::True);
    let progressing = Condition::new(kind, state, reason::RETRYING, "first", Some(1), now);
    condition::set(&mut status.conditions, progressing);
    let written = write_status(&api, &stored, status.clone(), "test").await?.context("not written")?;
    assert_eq!(written.status.as_ref(), Some(&status), "what comes back is what was sent");
    let managers: Vec<_> =
        written.metadata.managed_fields.iter().flatten().filter_map(|it| it.manager.as_deref()).collect();
    assert!(managers.contains(&"test"), "{managers:?}");
    assert!(
        write_status(&api, &written, status.clone(), "test").await?.is_none(),
        "the same is not written again"
    );

    // the object that was read first is old by now
    status.conditions[0].message = "second".to_owned();
    let conflict = write_status(&api, &stored, status.clone(), "test").await.err().context("no error")?;
    assert!(conflict.is_conflict(), "{conflict}");
    assert!(
        conflict.to_string().starts_with("error updating status: Operation cannot be fulfilled on "),
        "{conflict}"
    );

    api.delete(&name, &DeleteParams::default()).await?;
    let gone = write_status(&api, &written, status, "test").await.err().context("no error")?;
    // apiservers up to 1.31 answer with a conflict about the UID that no object has any more
    let conflict = gone.is_conflict() && gone.to_string().ends_with("UID in object meta: ");
    assert!(gone.is_gone() || conflict, "{gone}");
    Ok(())
}

#[tokio::test]
async fn apply_reports_conflicts_and_rejections() -> Result<()> {
    let (cluster, client) = cluster().await?;
    let namespace = cluster.namespace("apply").await?;
    let resource = ApiResource::erase::<ConfigMap>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": value}});
    let ours = PatchParams::apply("ours");

    let dry_run = PatchParams { dry_run: true, ..ours.clone() };
    api.patch("a", &dry_run, &Patch::Apply(config("1"))).await?;
    let missing = api.get("a").await.err().context("a dry run stored something")?;
    assert_eq!(apply::classify(&missing), ErrorClass::NotFound);
    assert_eq!(apply::message(&missing), "configmaps \"a\" not found");

    let first = api.patch("a", &ours, &Patch::Apply(config("1"))).await?;
    let again = api.patch("a", &ours, &Patch::Apply(config("1"))).await?;
    assert_eq!(first.metadata.resource_version, again.metadata.resource_version, "the same writes nothing");

    let theirs = PatchParams::apply("theirs");
    let conflict = api.patch("a", &theirs, &Patch::Apply(config("2"))).await.err().context("no conflict")?;
    assert_eq!(apply::classify(&conflict), ErrorClass::Conflict);
    let forced = api.patch("a", &theirs.force(), &Patch::Apply(config("2"))).await?;
    assert_eq!(forced.data["data"]["key"], "2");

    let object: DynamicObject = serde_json::from_value(config("3"))?;
    let exists = api.create(&PostParams::default(), &object).await.err().context("created twice")?;
    assert_eq!(apply::classify(&exists), ErrorClass::AlreadyExists);
    let invalid = config("4").as_object().cloned().map(|mut it| {
        it.insert("data".to_owned(), json!({"a/b": "c"}));
        it
    });
    let invalid = api.patch("a", &ours, &Patch::Apply(invalid)).await.err().context("accepted")?;
    assert_eq!(apply::classify(&invalid), ErrorClass::Invalid);
    Ok(())
}

#[tokio::test]
async fn metrics_require_authorization() -> Result<()> {
    let (cluster, client) = cluster().await?;
    let namespace = cluster.namespace("metrics").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let mut tokens = Vec::new();
    for name in ["allowed", "denied"] {
        let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        accounts.create(&PostParams::default(), &account).await?;
        let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        tokens.push(answer.status.and_then(|status| status.token).context("no token")?);
    }
    cluster
        .apply(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {namespace}}}\nrules: [{{nonResourceURLs: [/metrics], verbs: [get]}}]\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {namespace}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {namespace}}}\nsubjects: [{{kind: ServiceAccount, name: allowed, namespace: {namespace}}}]\n"
        ))
        .await?;
    let metrics = Metrics::new();
    let counted = client::connect(Some(&cluster.kubeconfig()), &metrics).await?;
    let router = router(metrics, KubeReviews(counted));
    let get = |token: String| {
        let router = router.clone();
        async move {
            let request =
                axum::http::Request::get("/metrics").header("authorization", format!("Bearer {token}"));
            let answer = router.oneshot(request.body(Body::empty())?).await?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.map_err(|error| anyhow!("{error}"))?.to_bytes();
            anyhow::Ok((status, String::from_utf8(body.to_vec())?))
        }
    };
    cluster.until_may_get(&format!("system:serviceaccount:{namespace}:allowed"), "/metrics").await?;
    let (status, body) = get(tokens[0].clone()).await?;
    assert_eq!(status, 200, "{body}");
    assert!(
        body.contains("rest_client_requests_total{code=\"201\","),
        "our own requests are counted: {body}"
    );
    let denied = format!("Authorization denied for user system:serviceaccount:{namespace}:denied\n");
    assert_eq!(get(tokens[1].clone()).await?, (403, denied));
    assert_eq!(get("wrong".to_owned()).await?, (401, "Unauthorized\n".to_owned()));
    Ok(())
}

#[tokio::test]
async fn events_appear_once() -> Result<()> {
    let (_, client) = cluster().await?;
    let api: Api<ClusterCatalog> = Api::all(client.clone());
    let name = olm_kit::unique("events");
    let object = olm_integration::patched(
        catalog::base(),
        &[("/metadata/name", json!(name)), ("/spec/availabilityMode", json!("Unavailable"))],
    );
    let stored = api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let events = Events::new(client.clone(), "catalogd", Some("pod".to_owned()));
    let event = NewEvent { warning: true, reason: "PullFailed", action: "Pull", note: "no such image" };
    for _ in 0..3 {
        events.publish(&stored.object_ref(&()), event.clone()).await;
    }
    // events of cluster-scoped objects live in `default`
    let list = Api::<Event>::namespaced(client.clone(), "default").list(&ListParams::default()).await?;
    let about: Vec<_> = list
        .iter()
        .filter(|event| event.regarding.as_ref().and_then(|it| it.name.as_ref()) == Some(&name))
        .collect();
    assert_eq!(about.len(), 1);
    assert_eq!(about[0].note.as_deref(), Some("no such image"));
    assert_eq!((about[0].type_.as_deref(), about[0].series.as_ref()), (Some("Warning"), None));

    // the same reason with another note is another event, unless a key marks it as the same
    let (object, other) = (stored.object_ref(&()), NewEvent { note: "no such tag", ..event });
    events.publish_once(&object, "pull", other.clone()).await;
    events.publish_once(&object, "pull", NewEvent { note: "no such digest", ..other }).await;
    let list = Api::<Event>::namespaced(client.clone(), "default").list(&ListParams::default()).await?;
    let mine =
        list.iter().filter(|event| event.regarding.as_ref().and_then(|it| it.name.as_ref()) == Some(&name));
    let mut notes: Vec<_> = mine.filter_map(|event| event.note.clone()).collect();
    notes.sort();
    assert_eq!(notes, ["no such image", "no such tag"]);
    api.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

/// The process waits for a lease that another holder has, so it touches nothing in the shared cluster.
#[tokio::test]
async fn metrics_are_served_while_waiting_for_the_lease() -> Result<()> {
    let (cluster, client) = cluster().await?;
    let namespace = cluster.namespace("process").await?;
    let lease = json!({
        "metadata": {"name": "9c4404e7.operatorframework.io"}, "spec": {"holderIdentity": "another client", "leaseDurationSeconds": 3600},
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    cluster
        .apply(&format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: reader, namespace: {namespace}}}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {namespace}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\nsubjects: [{{kind: ServiceAccount, name: reader, namespace: {namespace}}}]\n"
        ))
        .await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &namespace);
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let answer = accounts.create_token_request("reader", &PostParams::default(), &request).await?;
    cluster.until_may_get(&format!("system:serviceaccount:{namespace}:reader"), "/metrics").await?;
    let token = answer.status.and_then(|status| status.token).context("no token")?;

    let mut process = olm_kit::Program::operator_controller(cluster)?
        .flag("--system-namespace", &namespace)
        .flag("--leader-elect", "true")
        .start()
        .await?;
    let http = olm_kit::Ca::shared()?.http_client()?;
    let url = format!("{}/metrics", process.metrics_url());
    assert_eq!(http.get(&url).send().await?.status().as_u16(), 401);
    // metrics and probes are served before the controllers are made, and these add their series
    olm_kit::eventually("the process waits for the lease", Duration::from_secs(30), || async {
        ensure!(process.log_text().contains("waiting to become leader"), "{}", process.log_text());
        Ok(())
    })
    .await?;
    let answer = http.get(&url).bearer_auth(token).send().await?;
    assert_eq!(answer.status().as_u16(), 200);
    let text = answer.text().await?;
    for series in [
        "controller_runtime_reconcile_total{controller=\"clusterobjectset\",result=\"success\"} 0",
        "controller_runtime_reconcile_total{controller=\"controller-operator-cluster-extension-controller\",result=\"error\"} 0",
        "leader_election_master_status{name=\"9c4404e7.operatorframework.io\"} 0",
        "certwatcher_read_certificate_total 1",
    ] {
        assert!(text.lines().any(|line| line == series), "{series} in\n{text}");
    }
    let holder =
        leases.get("9c4404e7.operatorframework.io").await?.spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder.as_deref(), Some("another client"));
    assert!(process.stop(), "ends cleanly while waiting:\n{}", process.log_text());
    Ok(())
}
