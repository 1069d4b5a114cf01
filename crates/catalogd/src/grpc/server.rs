//! [`Registry`] on the server of [`olm_runtime::serve`]: HTTP/2 without TLS, limits on clients, one log line for each request.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use olm_runtime::Shutdown;
use olm_runtime::serve::{self, Limits, Peer};
use tokio::net::TcpListener;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tower::{Service, ServiceExt as _};
use tracing::field;

use super::health::CatalogHealth;
use super::registry::{CatalogName, Registry};
use olm_registry::proto::FILE_DESCRIPTOR_SET;
use olm_registry::proto::registry_server::RegistryServer;

/// What clients may take.
pub const LIMITS: Limits = Limits {
    connections: 256,
    connections_per_client: 128,
    handshake: Duration::from_secs(10),
    head: Duration::from_secs(15),
    head_bytes: 16 * 1024,
    streams: 64,
    stall: Duration::from_secs(60),
    // Go's clients close a connection after half an hour, and Classic resolves again when one was closed
    idle: Duration::from_secs(3600),
    drain: Duration::from_secs(30),
};
/// Bytes of a request.
pub(super) const MAX_REQUEST: usize = 64 << 10;
/// How long a request may take to arrive and to be answered, streams to their first part.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a method that are logged.
const MAX_LOGGED: usize = 256;

/// Serves until `stop`, then lets running answers end.
///
/// # Errors
/// When the descriptors of the services cannot be read.
pub fn serve(
    listener: TcpListener,
    registry: Registry,
    limits: Limits,
    stop: Shutdown,
) -> Result<impl Future<Output = ()> + Send, tonic_reflection::server::Error> {
    Ok(serve::http2(listener, service(registry)?, limits, stop))
}

/// All services as one.
///
/// # Errors
/// When the descriptors of the services cannot be read.
pub fn service<B>(
    registry: Registry,
) -> Result<
    impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    tonic_reflection::server::Error,
>
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send>
        + Send
        + 'static,
{
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let health = HealthServer::new(CatalogHealth(registry.clone())).max_decoding_message_size(MAX_REQUEST);
    let registry = RegistryServer::new(registry).max_decoding_message_size(MAX_REQUEST);
    let v1 = reflection().build_v1()?.max_decoding_message_size(MAX_REQUEST);
    let v1alpha = reflection().build_v1alpha()?.max_decoding_message_size(MAX_REQUEST);
    Ok(tower::service_fn(move |mut request: Request<B>| {
        let (registry, health) = (registry.clone(), health.clone());
        let (v1, v1alpha) = (v1.clone(), v1alpha.clone());
        async move {
            if !is_grpc(&request) {
                return Ok(not_grpc());
            }
            let record = Record::new(&request);
            if let Some(name) = catalog_of(&request) {
                request.extensions_mut().insert(name);
            }
            let path = request.uri().path().to_owned();
            let called =
                path.strip_prefix('/').and_then(|path| path.split_once('/')).map(|(service, _)| service);
            let answer = async {
                match called {
                    Some(name) if name == name_of(&registry) => registry.oneshot(request).await,
                    Some(name) if name == name_of(&health) => health.oneshot(request).await,
                    Some(name) if name == name_of(&v1) => v1.oneshot(request).await,
                    Some(name) if name == name_of(&v1alpha) => v1alpha.oneshot(request).await,
                    _ => {
                        let unknown = format!("unknown service {}", called.unwrap_or_default());
                        Ok(Status::unimplemented(unknown).into_http())
                    }
                }
            };
            let Ok(answer) = match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
                Ok(answer) => answer,
                Err(_) => Ok(Status::deadline_exceeded("the request took too long").into_http()),
            };
            record.log(&answer);
            Ok::<_, Infallible>(answer)
        }
    }))
}

fn name_of<S: NamedService>(_: &S) -> &'static str {
    S::NAME
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    request.method() == http::Method::POST
        && kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn not_grpc() -> Response<Body> {
    let mut response =
        Response::new(Body::new(Full::new(Bytes::from_static(b"this port serves gRPC only\n"))));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The catalog that a request's authority names.
fn catalog_of<B>(request: &Request<B>) -> Option<CatalogName> {
    let of_header =
        || request.headers().get(header::HOST)?.to_str().ok()?.parse::<http::uri::Authority>().ok();
    let authority = request.uri().authority().cloned().or_else(of_header)?;
    let label = authority.host().split('.').next().unwrap_or_default();
    Some(CatalogName(label.to_ascii_lowercase()))
}

/// What is logged of a request.
struct Record {
    began: Instant,
    peer: Option<Peer>,
    uri: Uri,
}

impl Record {
    fn new<B>(request: &Request<B>) -> Self {
        let (peer, uri) = (request.extensions().get().copied(), request.uri().clone());
        Self { began: Instant::now(), peer, uri }
    }

    fn log(&self, answer: &Response<Body>) {
        let path = self.uri.path();
        // an error before the first message is in the headers
        let code = Status::from_header_map(answer.headers()).map(|status| field::debug(status.code()));
        tracing::info!(
            target: "catalogd-grpc-server",
            host = self.peer.map(|Peer(address)| field::display(address.ip())),
            authority = self.uri.authority().map(|authority| field::display(truncated(authority.as_str()))),
            method = truncated(path),
            code,
            milliseconds = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "handled request"
        );
    }
}

fn truncated(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_LOGGED)).unwrap_or_default()
}
