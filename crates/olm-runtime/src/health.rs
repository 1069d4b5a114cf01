//! `/healthz` and `/readyz`, in the form of the Kubernetes health library: plain text, `?verbose`, `?exclude=`, a path for each check.
//!
//! Checks are added by the process; this module does not define readiness.
//!
//! Rule: catalogd §10, operator-controller §7.1.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;

/// Checks one condition; the text of a failure goes to the log, not to the client.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

type Checks = Arc<BTreeMap<&'static str, Check>>;

/// The routes, to be served with [`crate::serve::http`]; `ready` are the checks of `/readyz` beside the one that always succeeds.
pub fn router(ready: impl IntoIterator<Item = (&'static str, Check)>) -> Router {
    let always = |name| -> (&'static str, Check) { (name, Arc::new(|| Ok(()))) };
    let checks = |checks: BTreeMap<&'static str, Check>| {
        Router::new().route("/", any(all)).route("/{check}", any(run_check)).with_state(Arc::new(checks))
    };
    let live = checks(BTreeMap::from([always("healthz")]));
    let ready = checks(ready.into_iter().chain([always("readyz")]).collect());
    Router::new().nest("/healthz", live).nest("/readyz", ready).fallback(not_found)
}

async fn all(State(checks): State<Checks>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let mut verbose = false;
    let mut excluded: Vec<&str> = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("verbose", _) => verbose = true,
            ("exclude", name) => excluded.push(name),
            _ => {}
        }
    }
    let mut report = String::new();
    let mut failed = false;
    for (name, check) in checks.iter() {
        // writing to a String cannot fail
        if excluded.contains(name) {
            let _ = writeln!(report, "[+]{name} excluded: ok");
        } else if let Err(reason) = check() {
            failed = true;
            tracing::info!(check = *name, reason, "health check failed");
            let _ = writeln!(report, "[-]{name} failed: reason withheld");
        } else {
            let _ = writeln!(report, "[+]{name} ok");
        }
    }
    let unknown: Vec<&str> = excluded.into_iter().filter(|name| !checks.contains_key(*name)).collect();
    if !unknown.is_empty() {
        let _ = writeln!(report, "warn: some health checks cannot be excluded: no matches for {unknown:?}");
    }
    if failed {
        report.push_str("healthz check failed\n");
        return text(StatusCode::INTERNAL_SERVER_ERROR, report);
    }
    if !verbose {
        return text(StatusCode::OK, "ok".to_owned());
    }
    report.push_str("healthz check passed\n");
    text(StatusCode::OK, report)
}

async fn run_check(State(checks): State<Checks>, Path(name): Path<String>) -> Response {
    let Some(check) = checks.get(name.as_str()) else { return not_found().await };
    match check() {
        Ok(()) => text(StatusCode::OK, "ok".to_owned()),
        Err(reason) => {
            tracing::info!(check = name, reason, "health check failed");
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
        }
    }
}

pub(crate) async fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}

/// Plain text as Go's servers write it.
pub(crate) fn text(status: StatusCode, body: String) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tower::ServiceExt;

    async fn get(router: &Router, path: &str) -> (u16, String) {
        let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn health_answers_like_the_kubernetes_library() {
        let started = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&started);
        let check: Check =
            Arc::new(
                move || {
                    if seen.load(Ordering::Relaxed) { Ok(()) } else { Err("not started".to_owned()) }
                },
            );
        let router = router([("catalog-server", check)]);
        for (path, status, body) in [
            ("/healthz", 200, "ok"),
            ("/healthz/healthz", 200, "ok"),
            ("/healthz/other", 404, "404 page not found\n"),
            ("/other", 404, "404 page not found\n"),
            (
                "/readyz",
                500,
                "[-]catalog-server failed: reason withheld\n[+]readyz ok\nhealthz check failed\n",
            ),
            ("/readyz?exclude=catalog-server", 200, "ok"),
            ("/readyz/catalog-server", 500, "internal server error: not started\n"),
        ] {
            assert_eq!(get(&router, path).await, (status, body.to_owned()), "{path}");
        }
        started.store(true, Ordering::Relaxed);
        for (path, body) in [
            ("/readyz", "ok"),
            ("/readyz/catalog-server", "ok"),
            ("/readyz?verbose", "[+]catalog-server ok\n[+]readyz ok\nhealthz check passed\n"),
            (
                "/readyz?verbose=1&exclude=readyz&exclude=x",
                "[+]catalog-server ok\n[+]readyz excluded: ok\nwarn: some health checks cannot be excluded: no matches for [\"x\"]\nhealthz check passed\n",
            ),
        ] {
            assert_eq!(get(&router, path).await, (200, body.to_owned()), "{path}");
        }
    }
}
