//! Apiservers for tests, and processes that must end.

use std::convert::Infallible;
use std::process::Command;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use olm_runtime::telemetry::{self, LogFormat};
use serde_json::{Value, json};

/// Set in the process that panics, to the task that does.
const CHILD: &str = "OLM_TEST_PANICS";

/// An apiserver that lists these objects, by the plural of their kind, and has no others. Nothing changes. What comes of writes is the
/// test's: `written` is given the path.
pub(crate) fn apiserver<F>(
    objects: &'static [(&str, fn() -> Value)],
    written: impl Fn(String) -> F + Clone + Send + Sync + 'static,
) -> Client
where
    F: Future<Output = Value> + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<Body>| {
        let written = written.clone();
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
                    .map(|(_, object)| object())
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
pub(crate) fn assert_panic_exits(module: &str, test: &str, task: &str, work: impl AsyncFnOnce()) {
    match std::env::var(CHILD) {
        Ok(wanted) => {
            if wanted == task {
                telemetry::init(LogFormat::Text, 0, "").unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    work().await;
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
