//! The catalog content server: paths to answers. Knows the store and HTTP; not Kubernetes, not registries.
//!
//! [`Catalogs::handle`] is a plain function from a request to a response, so that everything but sockets is tested in
//! process; `server` puts it on the server of `olm-runtime`. One snapshot of the store answers one request, so an answer never mixes
//! two versions of a catalog. Rules: catalogd §7, decisions 15, 16 and 27.

mod all;
mod body;
mod cache;
mod conditions;
mod encoding;
mod graphql;
mod metas;
mod metrics;
mod packages;
mod range;
mod respond;
mod routes;
pub mod server;

use std::pin::Pin;
use std::time::Duration;

use bytes::Buf;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;

pub use body::{Body, FRAME};
pub use conditions::http_date;
pub use metrics::Metrics;

use self::cache::Cache;
use self::conditions::{Decision, Validators};
use self::routes::{Endpoint, Route};
use crate::args::{GRAPHQL, METAS};
use crate::store::{Served, Store};

/// Type of catalog content.
const JSONL: HeaderValue = HeaderValue::from_static("application/jsonl");
/// Bound of the cache of compressed answers.
const CACHE_BYTES: usize = 8 << 20;

/// Bytes of the body of a request that are read though nothing needs them.
const MAX_DISCARDED: usize = 256 << 10;
/// How long the rest of such a body is waited for.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Which endpoints exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoints {
    /// `/api/v1/metas` and `/api/v1/packages`.
    pub metas: bool,
    /// `/api/v1/graphql`.
    pub graphql: bool,
}

/// Answers requests for catalogs.
pub struct Catalogs {
    store: Store,
    endpoints: Endpoints,
    cache: Cache,
    summaries: packages::Summaries,
    schemas: graphql::Schemas,
}

impl Catalogs {
    /// Serves what `store` serves.
    #[must_use]
    pub fn new(store: Store, endpoints: Endpoints) -> Self {
        Self {
            store,
            endpoints,
            cache: Cache::new(CACHE_BYTES),
            summaries: packages::Summaries::default(),
            schemas: graphql::Schemas::default(),
        }
    }

    /// Answers one request. The body of the request is read only where the endpoint takes one.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let mut body = std::pin::pin!(body);
        let mut response = self.find(&head, body.as_mut()).await;
        discard(body).await;
        if head.method == Method::HEAD {
            *response.body_mut() = without_body(&mut response);
        }
        response
    }

    async fn find<B>(&self, head: &http::request::Parts, body: B) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (name, endpoint) = match routes::route(head.uri.path()) {
            Route::Catalog(name, endpoint) => (name, endpoint),
            Route::Nothing => return respond::no_such_page(),
            Route::Unclean(clean) => {
                let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
                return respond::redirect(&head.method, &format!("{clean}{query}"));
            }
        };
        let reads = matches!(head.method, Method::GET | Method::HEAD);
        match endpoint {
            Endpoint::Metas | Endpoint::Packages if !self.endpoints.metas => {
                return respond::gate_is_off(METAS);
            }
            Endpoint::Graphql if !self.endpoints.graphql => return respond::gate_is_off(GRAPHQL),
            Endpoint::Graphql if head.method != Method::POST => return respond::wrong_method("POST"),
            Endpoint::All | Endpoint::Metas | Endpoint::Packages if !reads => {
                return respond::wrong_method("GET, HEAD");
            }
            Endpoint::All | Endpoint::Metas | Endpoint::Packages | Endpoint::Graphql => {}
        }
        if let Err(message) = routes::check_name(&name) {
            return respond::error(StatusCode::BAD_REQUEST, &message);
        }
        let served = || self.store.get(&name);
        match endpoint {
            Endpoint::All => match served() {
                Some(served) => all::handle(&head.method, &head.headers, &served, &self.store),
                None => respond::no_content(),
            },
            Endpoint::Metas => match (metas::query(head.uri.query().unwrap_or("")), served()) {
                (Err(why), _) => respond::bad_request(&why),
                (Ok(_), None) => respond::no_content(),
                (Ok(filter), Some(served)) => {
                    metas::handle(&head.method, &head.headers, &served, &filter, &self.cache)
                }
            },
            Endpoint::Packages if head.uri.query().is_some_and(|query| !query.is_empty()) => {
                respond::bad_request("packages takes no parameters; metas has schema, package and name")
            }
            Endpoint::Packages => match served() {
                Some(served) => {
                    let (store, summaries) = (&self.store, &self.summaries);
                    packages::handle(&head.method, &head.headers, &served, store, summaries, &self.cache)
                        .await
                }
                None => respond::no_content(),
            },
            Endpoint::Graphql => match graphql::asked(body).await {
                Err(refused) => refused,
                Ok(asked) => match served() {
                    Some(served) => {
                        let mut response = self.schemas.handle(&self.store, &served.content, asked).await;
                        name_digest(&mut response, &served);
                        response
                    }
                    None => respond::no_content(),
                },
            },
        }
    }
}

/// Reads what is left of the body of a request: a client of HTTP/2 that still sends when the answer is complete takes the end of its
/// stream for an error, and does not show the answer. What is too long or too slow is given up.
async fn discard<B: http_body::Body>(mut body: Pin<&mut B>) {
    let reading = async {
        let mut left = MAX_DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            let read = frame.data_ref().map_or(0, Buf::remaining);
            let Some(rest) = left.checked_sub(read) else { break };
            left = rest;
        }
    };
    // without it the answer is what it was: nothing depends on it
    let _elapsed = tokio::time::timeout(DISCARD_TIMEOUT, reading).await;
}

/// Drops the body of an answer to HEAD; its length stays known where it was.
fn without_body(response: &mut Response<Body>) -> Body {
    use http_body::Body as _;
    if let (Some(size), false) =
        (response.body().size_hint().exact(), response.headers().contains_key(header::CONTENT_LENGTH))
    {
        let has_body = !matches!(response.status(), StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT);
        if has_body {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(size));
        }
    }
    Body::Empty
}

/// Adds what names the representation: entity tag, date and image digest.
fn with_validators(mut response: Response<Body>, served: &Served, validators: &Validators) -> Response<Body> {
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::try_from(validators.tag.as_str()) {
        headers.insert(header::ETAG, tag);
    }
    if let Ok(date) = HeaderValue::try_from(http_date(validators.modified)) {
        headers.insert(header::LAST_MODIFIED, date);
    }
    name_digest(&mut response, served);
    response
}

/// 304 or 412, if the conditions of the request ask for it.
fn unless_met(headers: &HeaderMap, served: &Served, validators: &Validators) -> Option<Response<Body>> {
    let status = match conditions::evaluate(headers, validators) {
        Decision::NotModified => StatusCode::NOT_MODIFIED,
        Decision::Failed => StatusCode::PRECONDITION_FAILED,
        Decision::Proceed => return None,
    };
    Some(with_validators(respond::bare(status), served, validators))
}

/// Names the image that the content was made from.
fn name_digest(response: &mut Response<Body>, served: &Served) {
    if let Ok(digest) = HeaderValue::try_from(served.content.digest().to_string()) {
        response.headers_mut().insert(respond::CATALOG_DIGEST, digest);
    }
}

/// Adds length and, unless it is HEAD that asks, the body.
fn with_length(
    method: &Method,
    mut response: Response<Body>,
    length: u64,
    body: impl FnOnce() -> body::FileBody,
) -> Response<Body> {
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if *method != Method::HEAD {
        *response.body_mut() = Body::Stored(body());
    }
    response
}

#[cfg(test)]
mod tests;
