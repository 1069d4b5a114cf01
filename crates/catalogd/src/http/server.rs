//! [`Catalogs`] on the server of [`olm_runtime::serve`]: limits on clients, one log line and one measurement for each request.
//!
//! Rule: catalogd §7.1, §7.10.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use olm_runtime::Shutdown;
use olm_runtime::serve::{self, Limits, Peer};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tracing::field;

use super::{Body, Catalogs, Metrics, respond};

/// What clients may take.
pub const LIMITS: Limits = Limits {
    connections: 1024,
    connections_per_client: 512,
    handshake: Duration::from_secs(10),
    head: Duration::from_secs(15),
    head_bytes: 64 * 1024,
    streams: 64,
    stall: Duration::from_secs(60),
    idle: Duration::from_secs(180),
    drain: Duration::from_secs(30),
};
/// Bytes of the path and query of a request.
const MAX_TARGET: usize = 8 * 1024;

/// Serves until `stop`, then lets running answers end.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    catalogs: Arc<Catalogs>,
    metrics: Metrics,
    limits: Limits,
    stop: Shutdown,
) {
    let service = tower::service_fn(move |request: Request<_>| {
        let (catalogs, metrics) = (Arc::clone(&catalogs), metrics.clone());
        async move { Ok::<_, Infallible>(handle(&catalogs, metrics, request).await) }
    });
    serve::https(listener, service, tls, limits, stop).await;
}

async fn handle<B>(catalogs: &Catalogs, metrics: Metrics, request: Request<B>) -> Response<RecordedBody>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let length = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let record = RequestRecord {
        metrics,
        began: Instant::now(),
        peer: request.extensions().get().copied(),
        method: request.method().clone(),
        uri: request.uri().clone(),
        version: request.version(),
        status: StatusCode::OK,
        size: 0,
    };
    let response = if length > MAX_TARGET {
        respond::error(StatusCode::URI_TOO_LONG, "URI too long")
    } else {
        catalogs.handle(request).await
    };
    let status = response.status();
    response.map(|body| RecordedBody { body, record: RequestRecord { status, ..record } })
}

/// What is logged and counted when an answer is over.
struct RequestRecord {
    metrics: Metrics,
    began: Instant,
    peer: Option<Peer>,
    method: http::Method,
    uri: http::Uri,
    version: http::Version,
    status: StatusCode,
    size: u64,
}

/// A body that records its end, complete or not.
struct RecordedBody {
    body: Body,
    record: RequestRecord,
}

impl http_body::Body for RecordedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.record.size += frame.data_ref().map_or(0, |data| data.len() as u64)
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::error!(uri = %LoggedTarget(&self.record.uri), %error, "cannot read catalog content");
            }
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RecordedBody {
    fn drop(&mut self) {
        let record = &self.record;
        record.metrics.observe(record.status.as_u16(), record.began.elapsed().as_secs_f64());
        tracing::info!(
            target: "catalogd-http-server",
            host = record.peer.map(|Peer(address)| field::display(address.ip())),
            username = "-",
            method = %record.method,
            uri = %LoggedTarget(&record.uri),
            protocol = ?record.version,
            status = record.status.as_u16(),
            size = record.size,
            "handled request"
        );
    }
}

/// A request's target in the log: at most [`LoggedTarget::BYTES`] of it. A client may send much more.
struct LoggedTarget<'a>(&'a http::Uri);

impl LoggedTarget<'_> {
    /// Longest target that is logged whole.
    const BYTES: usize = 2048;
}

impl fmt::Display for LoggedTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.0.to_string();
        match target.get(..target.floor_char_boundary(Self::BYTES)) {
            Some(begin) if begin.len() < target.len() => write!(f, "{begin}…"),
            _ => f.write_str(&target),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_drains_within_the_grace_period_of_the_pod() {
        let deployment = include_str!("../../../../manifests/base/catalogd/deployment.yaml");
        let grace =
            deployment.lines().find_map(|line| line.trim().strip_prefix("terminationGracePeriodSeconds: "));
        let grace = Duration::from_secs(grace.unwrap().parse().unwrap());
        assert_eq!(grace, Duration::from_secs(45));
        let drain = LIMITS.drain;
        assert!(drain + Duration::from_secs(10) <= grace, "{drain:?} of {grace:?}");
    }

    #[test]
    fn server_truncates_long_targets_in_the_log() {
        for (length, whole) in
            [(10, true), (LoggedTarget::BYTES, true), (LoggedTarget::BYTES + 1, false), (60_000, false)]
        {
            let target = format!("/{}", "a".repeat(length - 1));
            let shown = LoggedTarget(&target.parse().unwrap()).to_string();
            let want = if whole { target } else { format!("{}…", &target[..LoggedTarget::BYTES]) };
            assert_eq!(shown, want);
        }
    }
}
