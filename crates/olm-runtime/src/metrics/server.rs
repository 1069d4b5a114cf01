//! The route `/metrics` behind its gate, and the server that shows it.
//!
//! Rule: catalogd §10: no token or a wrong one 401, no permission 403, no answer from the cluster 500; too many at the same time 429.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures::stream;
use kube::Client;
use tokio::net::TcpListener;

use super::auth::{AccessError, Decision, Gate, KubeReviews, Reviews};
use super::{Metrics, text};
use crate::Shutdown;
use crate::error_text::chain;
use crate::health::{not_found, text as plain};
use crate::profile;
use crate::serve::{Limits, https};
use crate::tls::{TlsSettings, WatchedPair, server_config};

const PATH: &str = "/metrics";

/// The route, for who the reviews allow.
pub fn router(metrics: Metrics, reviews: impl Reviews + 'static) -> Router {
    let state = Arc::new(Page { metrics, gate: Gate::new(reviews, PATH) });
    Router::new().route(PATH, any(show)).with_state(state).fallback(not_found)
}

/// Serves metrics and profiles, each if it has a listener, from when there is a certificate until shutdown. Errors are logged: no work waits
/// for it, and none fails because of it.
pub async fn serve<E: Display>(
    certificate: impl Future<Output = Result<Option<WatchedPair>, E>>,
    settings: TlsSettings,
    (listener, profiles): (Option<TcpListener>, Option<TcpListener>),
    client: Client,
    metrics: Metrics,
    stop: Shutdown,
) {
    let (pair, keeping) = match certificate.await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return tracing::error!(%error, "metrics are not served: there is no certificate"),
    };
    metrics.watch_pair(Arc::clone(&pair));
    let config = match server_config(pair, &settings) {
        Ok(config) => config,
        Err(error) => return tracing::error!(error = chain(&error), "metrics are not served"),
    };
    let router = router(metrics, KubeReviews(client.clone()));
    let (shared, until) = (Arc::clone(&config), stop.clone());
    let serving = async {
        if let Some(listener) = listener {
            https(listener, router, shared, Limits::default(), until).await;
        }
    };
    let profiling = async {
        if let Some(listener) = profiles {
            profile::serve(listener, config, client, stop).await;
        }
    };
    tokio::join!(serving, profiling, keeping);
}

struct Page<R> {
    metrics: Metrics,
    gate: Gate<R>,
}

async fn show<R: Reviews + 'static>(State(page): State<Arc<Page<R>>>, headers: HeaderMap) -> Response {
    match admit(&page.gate, &headers).await {
        Ok(()) => metrics(&page.metrics, &headers),
        Err(refused) => refused,
    }
}

/// Lets the request in, or returns the answer that refuses it.
pub(crate) async fn admit<R: Reviews>(gate: &Gate<R>, headers: &HeaderMap) -> Result<(), Response> {
    let Some(token) = bearer(headers) else {
        return Err(plain(StatusCode::UNAUTHORIZED, "Unauthorized\n".to_owned()));
    };
    Err(match gate.decision(token, Instant::now()).await {
        Ok(Decision::Allowed) => return Ok(()),
        Ok(Decision::Unknown) => plain(StatusCode::UNAUTHORIZED, "Unauthorized\n".to_owned()),
        Ok(Decision::Denied(user)) => {
            plain(StatusCode::FORBIDDEN, format!("Authorization denied for user {user}\n"))
        }
        Err(AccessError::Busy) => {
            let text = "too many requests wait for authentication; try again\n".to_owned();
            let mut refused = plain(StatusCode::TOO_MANY_REQUESTS, text);
            refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            refused
        }
        Err(AccessError::Authentication(_)) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, "Authentication failed\n".to_owned())
        }
        Err(AccessError::Authorization(user, _)) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, format!("Authorization for user {user} failed\n"))
        }
    })
}

fn metrics(metrics: &Metrics, headers: &HeaderMap) -> Response {
    let accept: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let (kind, body) = if text::wants_open_metrics(&accept.join(",")) {
        (text::OPEN, metrics.open_metrics())
    } else {
        (text::CLASSIC, metrics.classic())
    };
    // a stream, so that the answer has no Content-Length, as scrapers know it
    let body = Body::from_stream(stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(body))]));
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::super::auth::tests::FakeReviews;
    use super::*;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    async fn get(router: &Router, path: &str, authorization: &str, accept: &str) -> (u16, String, String) {
        let request = axum::http::Request::get(path)
            .header("authorization", authorization)
            .header("accept", accept)
            .body(Body::empty())
            .unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn metrics_are_served_to_authorized_users() {
        let router = router(Metrics::new(), FakeReviews::default());
        let plain = "text/plain; charset=utf-8";
        for (path, authorization, status, body) in [
            ("/metrics", "", 401, "Unauthorized\n"),
            ("/metrics", "Bearer ", 401, "Unauthorized\n"),
            ("/metrics", "Basic good", 401, "Unauthorized\n"),
            ("/metrics", "Bearer wrong", 401, "Unauthorized\n"),
            ("/metrics", "Bearer poor", 403, "Authorization denied for user poor\n"),
            ("/metrics", "Bearer down", 500, "Authentication failed\n"),
            ("/metrics", "Bearer unsure", 500, "Authorization for user unsure failed\n"),
            ("/other", "Bearer good", 404, "404 page not found\n"),
        ] {
            let want = (status, plain.to_owned(), body.to_owned());
            assert_eq!(get(&router, path, authorization, "").await, want, "{path} {authorization}");
        }
        let (status, kind, body) = get(&router, "/metrics", "bearer good", "*/*").await;
        assert_eq!((status, kind.as_str()), (200, text::CLASSIC));
        assert!(body.contains("\nprocess_start_time_seconds ") && !body.contains("# EOF"), "{body}");
        let (_, kind, body) = get(&router, "/metrics", "Bearer good", "application/openmetrics-text").await;
        assert_eq!(kind, text::OPEN);
        assert!(body.ends_with("# EOF\n"));
    }
}
