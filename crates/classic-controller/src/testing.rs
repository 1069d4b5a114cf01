//! An apiserver for tests, which answers by a function.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;

/// Answers a method and an URI with a status code and a body.
type Handler = dyn Fn(&str, &str) -> (u16, Value) + Send + Sync;

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
                let body = request.into_body().collect().await?.to_bytes();
                requests.lock().push(format!("{method} {uri} {}", String::from_utf8_lossy(&body)));
                let (code, value) = answer(&method, &uri);
                let body = Body::from(value.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        Client::new(service, "default")
    }

    /// Method, URI and body of each request, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}
