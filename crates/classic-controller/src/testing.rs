//! An apiserver for tests, which answers by a function.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use olm_runtime::Shutdown;
use olm_runtime::metrics::Metrics;
use parking_lot::Mutex;
use serde_json::Value;

use crate::args::RepairDeployments;
use crate::cluster::Cluster;
use crate::context::{Context, Settings};

/// Answers a method and an URI with a status code and a body.
type Handler = dyn Fn(&str, &str) -> (u16, Value) + Send + Sync;

/// The dependencies of a controller that uses this apiserver.
pub(crate) fn context(name: &'static str, apiserver: &Apiserver, cluster: &Arc<Cluster>) -> Arc<Context> {
    context_with(name, apiserver, cluster, BTreeSet::new())
}

/// The same with namespaces that keep copies of ClusterServiceVersions although copies are disabled.
pub(crate) fn context_with(
    name: &'static str,
    apiserver: &Apiserver,
    cluster: &Arc<Cluster>,
    protected_namespaces: BTreeSet<String>,
) -> Arc<Context> {
    let settings = Settings {
        global_namespace: "olm".to_owned(),
        plan_retry_window: Duration::ZERO,
        unpack_timeout: Duration::ZERO,
        repair_deployments: RepairDeployments::default(),
        protected_namespaces,
    };
    Context::new((name, 1), &apiserver.client(), cluster, &settings, &Metrics::new(), &Shutdown::new())
}

/// Records what it was asked.
pub(crate) struct Apiserver {
    answer: Arc<Handler>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Apiserver {
    pub(crate) fn new(answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), requests: Arc::default() }
    }

    pub(crate) fn client(&self) -> Client {
        let (answer, requests) = (Arc::clone(&self.answer), Arc::clone(&self.requests));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
            async move {
                let (method, uri) = (request.method().to_string(), request.uri().to_string());
                let user = request.headers().get("impersonate-user").and_then(|user| user.to_str().ok());
                let user = user.map(|user| format!(" as {user}")).unwrap_or_default();
                let body = request.into_body().collect().await?.to_bytes();
                requests.lock().push(format!("{method} {uri} {}{user}", String::from_utf8_lossy(&body)));
                let (code, value) = answer(&method, &uri);
                let body = Body::from(value.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        Client::new(service, "default")
    }

    /// Method, URI, body and impersonated user of each request, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}
