//! A stand-in for an apiserver, for tests: it answers by a function.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// A client whose requests are answered by method and address, such as `GET /api/v1/pods?limit=500`, with a status code and a body; never
/// if there is none.
pub(crate) fn cluster(answer: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answered = answer(&format!("{} {}", request.method(), request.uri()));
        async move {
            let Some((code, body)) = answered else { return std::future::pending().await };
            Response::builder().status(code).body(Body::from(body.into_bytes()))
        }
    });
    Client::new(service, "default")
}

/// An answer that is a list.
pub(crate) fn list(items: &Value) -> (u16, String) {
    let list =
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items});
    (200, list.to_string())
}

/// An answer that is an error.
pub(crate) fn failure(code: u16, message: &str) -> (u16, String) {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
    (code, status.to_string())
}
