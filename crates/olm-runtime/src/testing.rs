//! An apiserver for tests, which answers by a function.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

/// A client whose requests are answered with a status code and a body.
pub fn client<F>(answer: impl Fn(Request<Bytes>) -> F + Send + Sync + 'static) -> Client
where
    F: Future<Output = (u16, Value)> + Send + 'static,
{
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (code, value) = answer(Request::from_parts(head, body)).await;
            let body = Body::from(value.to_string().into_bytes());
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    Client::new(service, "default")
}

/// An answer that is an error.
pub fn failure(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code}))
}

/// As [`failure`], with a message.
pub fn failure_with(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let (code, mut status) = failure(code, reason);
    status["message"] = message.into();
    (code, status)
}

/// The answer to a deletion.
pub fn success() -> (u16, Value) {
    (200, json!({"kind": "Status", "status": "Success"}))
}
