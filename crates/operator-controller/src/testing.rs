//! Apiservers for tests, and processes that must end.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::Client;
use olm_runtime::telemetry::{self, LogFormat};
pub(crate) use olm_runtime::testing::{Apiserver, client, failure, failure_with, success};
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
    client(move |request| {
        let (objects, written) = (Arc::clone(&objects), written.clone());
        async move {
            let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
            if request.method() != Method::GET {
                (200, written(path).await)
            } else if query.contains("watch=true") {
                std::future::pending().await
            } else if query.contains("limit=") {
                let items: Vec<Value> = objects
                    .iter()
                    .filter(|(plural, _)| path.ends_with(&format!("/{plural}")))
                    .map(|(_, object)| object.clone())
                    .collect();
                (200, json!({"metadata": {"resourceVersion": "9"}, "items": items}))
            } else {
                failure(404, "NotFound")
            }
        }
    })
}

/// A client whose requests panic if their path ends like this; other requests are not answered.
pub(crate) fn panics_at(path: &'static str) -> Client {
    client(move |request| async move {
        assert!(!request.uri().path().ends_with(path), "a defect");
        std::future::pending().await
    })
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
