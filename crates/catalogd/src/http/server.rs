//! Puts [`Catalogs`] on the network: TLS, HTTP/1.1 and HTTP/2, bounds on clients, draining at the end.
//!
//! Bounds: connections, also those of one client, time to the first request, header time and size, streams a connection, and
//! time without progress when a client does not take what it asked for. Rule: catalogd §7.1, §7.10; feasibility §5 for the
//! buffer sizes.

mod opening;
mod progress;
mod seats;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use self::opening::Opening;
use self::progress::{Progress, ResponseGuard};
use self::seats::Seats;
use super::{Body, Catalogs, FRAME, Metrics, respond};

/// What clients may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time; more wait in the kernel's queue.
    pub connections: usize,
    /// Of these, connections of one address; further ones are closed.
    pub of_one_client: usize,
    /// From the first byte of a connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// To send the headers of a request, the first one too; also how long an idle connection of HTTP/1.1 is kept.
    pub headers: Duration,
    /// Without any byte taken by the client while we have bytes for it.
    pub stall: Duration,
    /// Bytes of the path and query of a request.
    pub uri: usize,
    /// Bytes of all headers of a request.
    pub header_bytes: u32,
    /// HTTP/2 streams of one connection.
    pub streams: u32,
    /// To finish running answers at the end.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            of_one_client: 512,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(15),
            stall: Duration::from_secs(60),
            uri: 8 * 1024,
            header_bytes: 64 * 1024,
            streams: 64,
            drain: Duration::from_secs(30),
        }
    }
}

/// Everything a connection needs.
struct Shared {
    catalogs: Arc<Catalogs>,
    metrics: Metrics,
    limits: Limits,
}

/// Serves until `stop` is done, then drains.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    catalogs: Arc<Catalogs>,
    metrics: Metrics,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    let places = Arc::new(Semaphore::new(limits.connections));
    let seats = Seats::new(limits.of_one_client);
    let graceful = GracefulShutdown::new();
    let shared = Arc::new(Shared { catalogs, metrics, limits });
    let builders = Arc::new(Builders::new(&shared.limits));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: wait for some connection to end.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(seat) = seats.take(peer.ip()) else {
            tracing::debug!(%peer, "a client has too many connections");
            continue;
        };
        let (tls, shared, builders, watcher) =
            (Arc::clone(&tls), Arc::clone(&shared), Arc::clone(&builders), graceful.watcher());
        tokio::spawn(async move {
            let _place = (place, seat);
            if let Err(error) = connection(socket, peer, tls, shared, &builders, watcher).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
    drop(listener);
    if timeout(shared.limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("some answers were cut off at the end");
    }
}

/// One for each version of HTTP. A builder of both would wait for a silent client for ever, to guess the version.
struct Builders {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl Builders {
    fn new(limits: &Limits) -> Self {
        let head = usize::try_from(limits.header_bytes).unwrap_or(FRAME);
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(limits.headers)
            .max_header_size(head)
            // the head must fit into the buffer, else the buffer's limit is the one that counts
            .max_buf_size(head.saturating_add(16 * 1024));
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(limits.header_bytes)
            .max_send_buf_size(FRAME)
            .keep_alive_interval(limits.stall / 2)
            .keep_alive_timeout(limits.stall / 2);
        Self { http1, http2 }
    }
}

async fn connection(
    socket: TcpStream,
    peer: SocketAddr,
    tls: Arc<ServerConfig>,
    shared: Arc<Shared>,
    builders: &Builders,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // Small HTTP/2 answers otherwise wait 40 ms for an acknowledgement.
    socket.set_nodelay(true)?;
    let stream = Watched { inner: socket, limit: shared.limits.stall, waiting: None };
    let accept = TlsAcceptor::from(tls).accept_with(stream, |session| session.set_buffer_limit(Some(FRAME)));
    let stream = timeout(shared.limits.handshake, accept).await??;
    let headers = shared.limits.headers;
    // HTTP/2 over TLS is always agreed on (RFC 9113 §3.3)
    let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let (progress, stall) = (Progress::new(), shared.limits.stall);
    let answers = Arc::clone(&progress);
    let service = service_fn(move |request| {
        let (shared, answers) = (Arc::clone(&shared), Arc::clone(&answers));
        async move { Ok::<_, Infallible>(handle(&shared, &answers, peer, request).await) }
    });
    if agreed {
        let stream = TokioIo::new(Opening::new(stream, opening::PREFACE, headers));
        let served = watcher.watch(builders.http2.serve_connection(stream, service));
        tokio::select! {
            served = served => served?,
            () = progress.stall(stall) => return Err("the client takes nothing of its answers".into()),
        }
    } else {
        watcher.watch(builders.http1.serve_connection(TokioIo::new(stream), service)).await?;
    }
    Ok(())
}

async fn handle<B>(
    shared: &Shared,
    answers: &Arc<Progress>,
    peer: SocketAddr,
    request: Request<B>,
) -> Response<Observed>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let length = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let record = RequestRecord {
        metrics: shared.metrics.clone(),
        began: Instant::now(),
        peer,
        method: request.method().clone(),
        uri: request.uri().clone(),
        version: request.version(),
        status: StatusCode::OK,
        size: 0,
    };
    let chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let mut response = if length > shared.limits.uri {
        respond::error(StatusCode::URI_TOO_LONG, "URI too long")
    } else {
        shared.catalogs.handle(request).await
    };
    if chunked {
        // The client or proxy that sent it may have gone by its Content-Length, which the library has dropped: what follows may
        // be part of this request and is not read as another one (RFC 9112 §6.1).
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let status = response.status();
    response.map(|body| Observed {
        body,
        record: RequestRecord { status, ..record },
        answer: answers.begin(),
    })
}

/// What is logged and counted when an answer is over.
struct RequestRecord {
    metrics: Metrics,
    began: Instant,
    peer: SocketAddr,
    method: http::Method,
    uri: http::Uri,
    version: http::Version,
    status: StatusCode,
    size: u64,
}

/// A body that records its end, complete or not.
struct Observed {
    body: Body,
    record: RequestRecord,
    answer: ResponseGuard,
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.answer.moves();
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

impl Drop for Observed {
    fn drop(&mut self) {
        let record = &self.record;
        record.metrics.observe(record.status.as_u16(), record.began.elapsed().as_secs_f64());
        tracing::info!(
            target: "catalogd-http-server",
            host = %record.peer.ip(),
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

/// A socket that fails when it takes no byte for too long.
struct Watched {
    inner: TcpStream,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    fn judge<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.judge(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, buffers);
        self.judge(polled, context)
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
        let drain = Limits::default().drain;
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
