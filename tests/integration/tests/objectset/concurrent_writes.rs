//! Concurrent writes: a foreign write arrives between the controller's decision about an object and its own request.
//!
//! The controller's client holds such a request until the other one is done ([`hold`]).

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Request};
use kube::Client;
use kube::api::DeleteParams;
use kube::client::Body;
use olm_kit::condition;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::bench::{ACCOUNT, Bench, owners};

/// An expected request, and the channel that is notified of it.
struct Expected {
    method: Method,
    path: String,
    arrived: oneshot::Sender<oneshot::Sender<()>>,
}

/// The requests that are to be held, each once.
static EXPECTED: Mutex<Vec<Expected>> = Mutex::new(Vec::new());

/// A client that holds the requests that tests expect.
pub(crate) fn holding(client: Client) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let answer: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            if let Some(expected) = expected(&request) {
                let (go, gone) = oneshot::channel();
                if expected.arrived.send(go).is_ok() {
                    // a test that ended lets it go, too
                    let _ = gone.await;
                }
            }
            client.send(request).await
        });
        answer
    });
    Client::new(service, "default")
}

fn expected(request: &Request<Body>) -> Option<Expected> {
    let mut all = EXPECTED.lock();
    let found = all.iter().position(|one| {
        // of patches only the applies: the others are preparations
        let kind = request.headers().get(http::header::CONTENT_TYPE);
        let applies = kind.is_some_and(|kind| kind == "application/apply-patch+yaml");
        one.method == request.method()
            && one.path == request.uri().path()
            && (one.method != Method::PATCH || applies)
    })?;
    Some(all.swap_remove(found))
}

/// A request that is held until this is dropped.
struct Held(#[expect(dead_code, reason = "dropping it lets the request go")] oneshot::Sender<()>);

/// Holds the next request of the controller with this method for this ConfigMap.
fn hold(bench: &Bench, method: Method, name: &str) -> impl Future<Output = Result<Held>> {
    let path = format!("/api/v1/namespaces/{}/configmaps/{name}", bench.namespace);
    let (arrived, comes) = oneshot::channel();
    let what = format!("{method} {path}");
    EXPECTED.lock().push(Expected { method, path, arrived });
    async move {
        let go = timeout(Duration::from_secs(60), comes).await.with_context(|| format!("no {what}"))?;
        Ok(Held(go?))
    }
}

/// Statuses of the controller's patches of an object, in their order.
fn patches(bench: &Bench, name: &str) -> Result<Vec<u64>> {
    let ours = format!(":{ACCOUNT}");
    let found = bench.cluster.audited(0, |request| {
        request.user.ends_with(&ours)
            && (request.verb.as_str(), request.resource.as_str()) == ("patch", "configmaps")
            && (request.namespace.as_str(), request.name.as_str()) == (bench.namespace.as_str(), name)
    })?;
    Ok(found.into_iter().map(|request| request.code).collect())
}

/// A revision of one ConfigMap, which is there.
async fn rolled_out(name: &str) -> Result<Bench> {
    let bench = Bench::new(name).await?;
    let map = bench.config_map("config", json!({"a": "1"}));
    bench.revision(1).phase("configuration", [map]).roll_out().await?;
    Ok(bench)
}

/// rule: revisions §7.3
#[tokio::test]
async fn concurrent_write_is_judged_in_the_same_pass() -> Result<()> {
    let bench = rolled_out("between").await?;
    let held = hold(&bench, Method::PATCH, "config");
    // a missing field conflicts with no manager, so only the resourceVersion prevents the write
    bench.patch(&bench.config_maps(), "config", json!({"data": {"a": null}})).await?;
    let held = held.await?;
    bench.patch(&bench.config_maps(), "config", json!({"data": {"b": "theirs"}})).await?;
    drop(held);
    let found = bench.until_data("config", "a", "1").await?;
    assert_eq!(found.data["data"]["b"], "theirs");
    olm_kit::eventually("the record is written", Duration::from_secs(60), || async {
        let patches = patches(&bench, "config")?;
        anyhow::ensure!(patches == [409, 200], "patches: {patches:?}");
        Ok(())
    })
    .await
}

/// rule: revisions §7.3
#[tokio::test]
async fn concurrent_replacement_of_an_object_is_not_overwritten() -> Result<()> {
    let bench = rolled_out("exchanged").await?;
    let held = hold(&bench, Method::PATCH, "config");
    bench.patch(&bench.config_maps(), "config", json!({"data": {"a": null}})).await?;
    let held = held.await?;
    bench.config_maps().delete("config", &DeleteParams::default()).await?;
    bench.create(&bench.config_map("config", json!({"b": "theirs"}))).await?;
    drop(held);
    let revision = bench.message(1, "Progressing", "revision object collisions in phase 0").await?;
    let text = condition(&revision, "Progressing").map(|found| found.message).unwrap_or_default();
    assert!(text.contains("config exists already and is not managed by OLM"), "{text}");
    let found = bench.config_maps().get("config").await?;
    assert_eq!(found.data["data"], json!({"b": "theirs"}));
    assert_eq!(owners(&found), [""; 0]);
    Ok(())
}

/// rule: revisions §12
#[tokio::test]
async fn concurrent_replacement_of_an_object_is_not_deleted() -> Result<()> {
    let bench = Bench::new("spared").await?;
    let content = ["exchanged", "handed-over"].map(|name| bench.config_map(name, json!({"a": "ours"})));
    // in this phase objects are deleted one by one
    bench.revision(1).phase("deploy", content).roll_out().await?;
    let holds = ["exchanged", "handed-over"].map(|name| hold(&bench, Method::DELETE, name));
    bench.delete(1).await?;
    let [exchanged, handed_over] = holds;

    let held = exchanged.await?;
    bench.config_maps().delete("exchanged", &DeleteParams::default()).await?;
    let theirs = bench.create(&bench.config_map("exchanged", json!({"a": "theirs"}))).await?;
    drop(held);

    let held = handed_over.await?;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "exchanged", "uid": theirs.metadata.uid,
        "controller": true}]);
    bench.patch(&bench.config_maps(), "handed-over", json!({"metadata": {"ownerReferences": owner}})).await?;
    drop(held);

    bench.gone(1).await?;
    let found = bench.config_maps().get("exchanged").await?;
    assert_eq!(found.metadata.uid, theirs.metadata.uid);
    let found = bench.config_maps().get("handed-over").await?;
    assert_eq!(found.metadata.deletion_timestamp, None);
    assert_eq!(owners(&found), ["exchanged*"]);
    Ok(())
}
