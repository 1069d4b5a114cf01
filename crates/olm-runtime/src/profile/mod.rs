//! `/debug/pprof`: a CPU profile in pprof's format, and the memory of the process, for users whom the reviews allow.
//!
//! Nothing is measured before a request. One profile is taken at a time.
//!
//! Rule: catalogd §10 (`--pprof-bind-address`, off by default), decision 49 (TLS and authorization, memory as text).

mod cpu;
mod memory;
mod proto;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rustls::ServerConfig;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::Shutdown;
use crate::health::{not_found, text};
use crate::metrics::{Gate, KubeReviews, Reviews, admit};
use crate::serve::{Limits, https};

const CPU: &str = "/debug/pprof/profile";
const HEAP: &str = "/debug/pprof/heap";
/// The length of a CPU profile without `seconds`, as Go has it.
const DEFAULT_SECONDS: u64 = 30;
/// The longest CPU profile.
const MAX_SECONDS: u64 = 60;
/// Samples of a CPU profile in a second.
const FREQUENCY: i32 = 99;

struct Pages<R> {
    cpu: Gate<R>,
    heap: Gate<R>,
    /// Only one CPU profile can be taken: there is one timer.
    running: Semaphore,
}

impl<R: Reviews + Clone> Pages<R> {
    fn new(reviews: R) -> Arc<Self> {
        let (cpu, heap) = (Gate::new(reviews.clone(), CPU), Gate::new(reviews, HEAP));
        Arc::new(Self { cpu, heap, running: Semaphore::new(1) })
    }
}

/// The routes, for who the reviews allow.
pub fn router(reviews: impl Reviews + Clone + 'static) -> Router {
    routes(Pages::new(reviews))
}

fn routes<R: Reviews + 'static>(pages: Arc<Pages<R>>) -> Router {
    Router::new()
        .route(CPU, get(profile::<R>))
        .route(HEAP, get(heap::<R>))
        .with_state(pages)
        .fallback(not_found)
}

/// Serves the profiles until shutdown.
pub async fn serve(listener: TcpListener, config: Arc<ServerConfig>, client: kube::Client, stop: Shutdown) {
    https(listener, router(KubeReviews(client)), config, Limits::default(), stop).await;
}

#[derive(Debug, Deserialize)]
struct Asked {
    seconds: Option<String>,
}

/// The length of the profile that is asked for.
fn length(seconds: Option<&str>) -> Result<Duration, String> {
    let seconds = match seconds {
        None | Some("") => Ok(DEFAULT_SECONDS),
        Some(text) => text.parse().map_err(drop),
    };
    let within = seconds.ok().filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
    within
        .map(Duration::from_secs)
        .ok_or_else(|| format!("seconds has to be a whole number from 1 to {MAX_SECONDS}\n"))
}

async fn profile<R: Reviews + 'static>(
    State(pages): State<Arc<Pages<R>>>,
    headers: HeaderMap,
    Query(asked): Query<Asked>,
) -> Response {
    if let Err(refused) = admit(&pages.cpu, &headers).await {
        return refused;
    }
    let length = match length(asked.seconds.as_deref()) {
        Ok(length) => length,
        Err(reason) => return text(StatusCode::BAD_REQUEST, reason),
    };
    let Ok(_running) = pages.running.try_acquire() else {
        return text(
            StatusCode::TOO_MANY_REQUESTS,
            "a CPU profile is being taken; try again when it has ended\n".to_owned(),
        );
    };
    match cpu::take(length, FREQUENCY).await {
        Ok(profile) => download("application/octet-stream", "profile.pb.gz", profile),
        Err(why) => {
            tracing::error!(error = why, "cannot take a CPU profile");
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot take a CPU profile: {why}\n"))
        }
    }
}

async fn heap<R: Reviews + 'static>(State(pages): State<Arc<Pages<R>>>, headers: HeaderMap) -> Response {
    if let Err(refused) = admit(&pages.heap, &headers).await {
        return refused;
    }
    let read = tokio::task::spawn_blocking(memory::report).await;
    read.map_or_else(
        |error| text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        |report| text(StatusCode::OK, report),
    )
}

fn download(kind: &'static str, name: &str, body: Vec<u8>) -> Response {
    let attachment = format!("attachment; filename=\"{name}\"");
    let headers: [(HeaderName, String); 2] =
        [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, attachment)];
    let body =
        axum::body::Body::from_stream(futures::stream::iter([Ok::<_, Infallible>(bytes::Bytes::from(body))]));
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use prost::Message as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::metrics::tests::FakeReviews;

    async fn ask(router: &Router, path: &str, token: &str) -> (u16, Vec<u8>) {
        let request = axum::http::Request::get(path).header("authorization", format!("Bearer {token}"));
        let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    #[rustfmt::skip]
    async fn profiles_are_served_to_authorized_users() {
        let router = router(FakeReviews::default());
        for (path, token, status, body) in [
            (HEAP, "wrong", 401, "Unauthorized\n"),
            (CPU, "wrong", 401, "Unauthorized\n"),
            (HEAP, "poor", 403, "Authorization denied for user poor\n"),
            (CPU, "poor", 403, "Authorization denied for user poor\n"),
            ("/debug/pprof/profile?seconds=0", "good", 400, "seconds has to be a whole number from 1 to 60\n"),
            ("/debug/pprof/profile?seconds=61", "good", 400, "seconds has to be a whole number from 1 to 60\n"),
            ("/debug/pprof/profile?seconds=x", "good", 400, "seconds has to be a whole number from 1 to 60\n"),
            ("/debug/pprof/trace", "good", 404, "404 page not found\n"),
        ] {
            let found = ask(&router, path, token).await;
            assert_eq!(
                (found.0, String::from_utf8(found.1).unwrap()),
                (status, body.to_owned()),
                "{path} {token}"
            );
        }
        let (status, body) = ask(&router, HEAP, "good").await;
        let body = String::from_utf8(body).unwrap();
        assert!(status == 200 && body.contains("VmRSS:"), "{body}");
    }

    /// Uses processor time, under a name of its own.
    #[inline(never)]
    fn spin_for_the_profile(until: std::time::Instant) -> u64 {
        let mut sum = 1_u64;
        while std::time::Instant::now() < until {
            for n in 0..10_000_u64 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n));
            }
        }
        sum
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn profile_has_samples_and_a_second_one_is_refused() {
        let pages = Pages::new(FakeReviews::default());
        let router = routes(Arc::clone(&pages));
        let until = std::time::Instant::now() + Duration::from_secs(3);
        let spinning = std::thread::spawn(move || spin_for_the_profile(until));
        let first = tokio::spawn({
            let router = router.clone();
            async move { ask(&router, "/debug/pprof/profile?seconds=1", "good").await }
        });
        while pages.running.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let second = ask(&router, "/debug/pprof/profile?seconds=1", "good").await;
        assert_eq!(second.0, 429);
        assert!(String::from_utf8(second.1).unwrap().starts_with("a CPU profile is being taken"));
        let (status, body) = first.await.unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        spinning.join().unwrap();
        let mut raw = Vec::new();
        flate2::read::GzDecoder::new(body.as_slice()).read_to_end(&mut raw).unwrap();
        let profile = proto::Profile::decode(raw.as_slice()).unwrap();
        assert!(!profile.sample.is_empty() && !profile.location.is_empty());
        let names =
            profile.function.iter().filter_map(|function| profile.string_table.get(function.name as usize));
        let found = names.filter(|name| name.contains("spin_for_the_profile")).count();
        assert!(found > 0, "{:?}", profile.string_table);
    }
}
