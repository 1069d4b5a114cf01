//! Stands in for the apiserver, as far as catalogd needs one: lists, watches, patches and statuses of ClusterCatalogs.
//! It answers immediately, so that only catalogd is measured.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const CATALOGS: &str = "/apis/olm.operatorframework.io/v1/clustercatalogs";

/// The running stand-in.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    catalogs: BTreeMap<String, Value>,
    watchers: Vec<mpsc::UnboundedSender<String>>,
}

type Body = BoxBody<Bytes, Infallible>;

impl Api {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let api = Self { address: listener.local_addr()?, state: Arc::default() };
        let serving = api.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let api = serving.clone();
                let service = service_fn(move |request| {
                    let api = api.clone();
                    async move { Ok::<_, Infallible>(api.respond(request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service),
                );
            }
        });
        Ok(api)
    }

    /// Writes a kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self, dir: &Path) -> Result<PathBuf> {
        let path = dir.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "users": [{"name": "bench", "user": {}}],
        });
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Adds a catalog.
    pub(crate) fn put(&self, name: &str, reference: &str) {
        self.change(name, |object| {
            *object = json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
                "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 1,
                             "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"source": {"type": "Image", "image": {"ref": reference}}, "priority": 0, "availabilityMode": "Available"},
            });
        });
    }

    /// Changes a catalog and sends the change to the watches.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut state = self.state.lock();
        state.version += 1;
        let version = state.version;
        let object = state.catalogs.entry(name.to_owned()).or_default();
        change(object);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let object = object.clone();
        let line = modified(&object);
        state.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
        object
    }

    /// The catalog as it is now.
    pub(crate) fn catalog(&self, name: &str) -> Value {
        let state = self.state.lock();
        state.catalogs.get(name).cloned().unwrap_or_default()
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let sent = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let sent: Value = serde_json::from_slice(&sent).unwrap_or_default();
        let path = head.uri.path();
        let query = head.uri.query().unwrap_or_default();
        let name = path.strip_prefix(CATALOGS).map(|rest| rest.trim_start_matches('/'));
        match (head.method, name) {
            (Method::GET, Some("")) if query.contains("watch=") => self.watch(query),
            (Method::GET, Some("")) => {
                let state = self.state.lock();
                let items: Vec<&Value> = state.catalogs.values().collect();
                full(&json!({
                    "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalogList",
                    "metadata": {"resourceVersion": state.version.to_string()}, "items": items,
                }))
            }
            (Method::GET, Some(name)) => full(&self.catalog(name)),
            (Method::PUT | Method::PATCH, Some(name)) => {
                let (name, subresource) = name.split_once('/').unwrap_or((name, ""));
                full(&self.change(name, |object| match subresource {
                    "status" => object["status"] = sent["status"].clone(),
                    _ => merge(object, &sent),
                }))
            }
            // events and the like: thank you
            (Method::POST | Method::PATCH, None) => full(&sent),
            _ => {
                let mut response = full(
                    &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}),
                );
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        }
    }

    /// What is newer than the version asked for, then whatever changes.
    fn watch(&self, query: &str) -> Response<Body> {
        let known = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let known: u64 = known.and_then(|known| known.parse().ok()).unwrap_or(0);
        let (sender, receiver) = mpsc::unbounded_channel();
        {
            let mut state = self.state.lock();
            for object in state.catalogs.values() {
                let version =
                    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
                if version > Some(known) {
                    // the receiver is at hand
                    let _ = sender.send(modified(object));
                }
            }
            state.watchers.push(sender);
        }
        let lines = futures::stream::unfold(receiver, |mut receiver| async move {
            let line = receiver.recv().await?;
            Some((Ok(Frame::data(Bytes::from(line))), receiver))
        });
        Response::new(StreamBody::new(lines).boxed())
    }
}

/// An event of a watch: the type comes first, as an apiserver sends it.
fn modified(object: &Value) -> String {
    format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n")
}

fn full(value: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())).boxed());
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

/// Puts members of `from` over those of `into`, at every depth.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert_with(|| Value::Object(Map::new())), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The text at a JSON pointer.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer}"))
}
