//! Apiservers for tests, which answer by a function, and what was logged.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::BoxError;
use tracing::Metadata;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;

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

/// Answers a method and an URI with a status code and a body.
type Handler = dyn Fn(&str, &str) -> (u16, Value) + Send + Sync;

/// An apiserver that records what it was asked.
pub struct Apiserver {
    answer: Arc<Handler>,
    /// Method, URI and body of each request, with its headers.
    asked: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

impl Apiserver {
    pub fn new(answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), asked: Arc::default() }
    }

    /// The status code and the body for a request.
    pub fn respond(&self, method: &str, uri: &str) -> (u16, Value) {
        (self.answer)(method, uri)
    }

    pub fn client(&self) -> Client {
        let (answer, asked) = (Arc::clone(&self.answer), Arc::clone(&self.asked));
        client(move |request| {
            let (method, uri) = (request.method().as_str(), request.uri().to_string());
            let line = format!("{method} {uri} {}", String::from_utf8_lossy(request.body()));
            asked.lock().push((line.trim_end().to_owned(), request.headers().clone()));
            std::future::ready(answer(method, &uri))
        })
    }

    /// Method, URI and body of each request, in order.
    pub fn requests(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(line, _)| line.clone()).collect()
    }

    /// As whom each request was made, empty for the controller itself.
    pub fn users(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(_, headers)| header(headers, "impersonate-user")).collect()
    }

    /// As whom the last request was made.
    pub fn last_user(&self) -> String {
        self.users().pop().unwrap_or_default()
    }

    /// How the apiserver is to read the last request's body.
    pub fn last_content_type(&self) -> String {
        self.asked.lock().last().map(|(_, headers)| header(headers, "content-type")).unwrap_or_default()
    }
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
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

/// Collects these fields of the events that count, in this thread, until the guard is dropped.
pub fn logged(
    counts: fn(&Metadata<'_>) -> bool,
    fields: &'static [&'static str],
) -> (Arc<Mutex<Vec<String>>>, DefaultGuard) {
    let lines = Arc::default();
    let guard = tracing::subscriber::set_default(Log { counts, fields, lines: Arc::clone(&lines) });
    (lines, guard)
}

struct Log {
    counts: fn(&Metadata<'_>) -> bool,
    fields: &'static [&'static str],
    lines: Arc<Mutex<Vec<String>>>,
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.counts)(metadata)
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            if self.fields.contains(&field.name()) {
                self.lines.lock().push(format!("{value:?}"));
            }
        });
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
