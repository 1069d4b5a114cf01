//! Apiservers for tests, and processes that must end.

use std::convert::Infallible;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use olm_runtime::telemetry::{self, LogFormat};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Set in the process that panics, to the task that does.
const CHILD: &str = "OLM_TEST_PANICS";

/// An apiserver that lists these objects, by the plural of their kind, and has no others. Nothing changes. What comes of writes is the
/// test's: `written` is given the path.
pub(crate) fn apiserver<F>(
    objects: Vec<(&'static str, Value)>,
    written: impl Fn(String) -> F + Clone + Send + Sync + 'static,
) -> Client
where
    F: Future<Output = Value> + Send + 'static,
{
    let objects = Arc::new(objects);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (objects, written) = (Arc::clone(&objects), written.clone());
        async move {
            let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
            let (code, answer) = if request.method() != Method::GET {
                (StatusCode::OK, written(path).await)
            } else if query.contains("watch=true") {
                std::future::pending().await
            } else if query.contains("limit=") {
                let items: Vec<Value> = objects
                    .iter()
                    .filter(|(plural, _)| path.ends_with(&format!("/{plural}")))
                    .map(|(_, object)| object.clone())
                    .collect();
                (StatusCode::OK, json!({"metadata": {"resourceVersion": "9"}, "items": items}))
            } else {
                let status =
                    json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                (StatusCode::NOT_FOUND, status)
            };
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = code;
            Ok::<_, Infallible>(response)
        }
    });
    Client::new(service, "default")
}

/// A client whose requests panic if their path ends like this; other requests are not answered.
pub(crate) fn panics_at(path: &'static str) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        assert!(!request.uri().path().ends_with(path), "a defect");
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    });
    Client::new(service, "default")
}

/// Starts the calling test, `test` of `module`, again as a process that does `work`, and checks that the panic of the background
/// task ends the process and is logged.
pub(crate) fn assert_panic_exits<T>(module: &str, test: &str, task: &str, work: impl AsyncFnOnce() -> T) {
    match std::env::var(CHILD) {
        Ok(child) => {
            if child == task {
                telemetry::init(LogFormat::Text, 0, "").unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let _running = work().await;
                    tokio::time::sleep(Duration::from_secs(5)).await; // the parent finds that it has not ended
                });
            }
        }
        Err(_) => {
            let module = module.split_once("::").unwrap().1;
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
                .env(CHILD, task)
                .output()
                .unwrap();
            let log = String::from_utf8_lossy(&child.stderr);
            assert_eq!(child.status.code(), Some(1), "{task}: {log}");
            let named =
                log.lines().any(|line| line.contains("background task panicked") && line.contains(task));
            assert!(named, "{task}: {log}");
        }
    }
}

/// Answers a method and an URI with a status code and a body.
type Handler = dyn Fn(&str, &str) -> (u16, Value) + Send + Sync;

/// An apiserver that answers by a function and records what it was asked.
pub(crate) struct Apiserver {
    answer: Arc<Handler>,
    requests: Arc<Mutex<Vec<String>>>,
    /// Of the last request.
    headers: Arc<Mutex<HeaderMap>>,
}

impl Apiserver {
    pub(crate) fn new(answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), requests: Arc::default(), headers: Arc::default() }
    }

    /// The status code and the body for a request.
    pub(crate) fn respond(&self, method: &str, uri: &str) -> (u16, Value) {
        (self.answer)(method, uri)
    }

    pub(crate) fn client(&self) -> Client {
        let (answer, requests) = (Arc::clone(&self.answer), Arc::clone(&self.requests));
        let last = Arc::clone(&self.headers);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
            *last.lock() = request.headers().clone();
            async move {
                let (method, uri) = (request.method().to_string(), request.uri().to_string());
                let body = request.into_body().collect().await?.to_bytes();
                let line = format!("{method} {uri} {}", String::from_utf8_lossy(&body));
                requests.lock().push(line.trim_end().to_owned());
                let (code, value) = answer(&method, &uri);
                let response =
                    Response::builder().status(code).body(Body::from(value.to_string().into_bytes()));
                Ok::<_, tower::BoxError>(response?)
            }
        });
        Client::new(service, "default")
    }

    /// As whom the last request was made, empty for the controller itself.
    pub(crate) fn last_user(&self) -> String {
        self.last_header("impersonate-user")
    }

    /// How the apiserver is to read the last request's body.
    pub(crate) fn last_content_type(&self) -> String {
        self.last_header("content-type")
    }

    fn last_header(&self, name: &str) -> String {
        let headers = self.headers.lock();
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    }

    /// Method, URI and body of each request, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}
