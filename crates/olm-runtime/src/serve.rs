//! The HTTP server of every process: connections, heads and time are bounded, so that hostile or slow clients cannot hold it up,
//! and running answers end before the process does.
//!
//! It knows no routes; it serves an `axum::Router` or any other [`HttpService`]. HTTP/2 is on where the limits give it streams.
//!
//! Rule: catalogd §7.1, §7.10.

mod guard;
mod per_client;
mod progress;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;
use tower::{Service, ServiceExt as _};

use crate::Shutdown;
use crate::error_text::chain;
use guard::StallGuard;
use per_client::PerClient;
use progress::{Progress, ResponseGuard};

/// What one connection buffers of its answers, in bytes. Bodies of stored content are best sent in frames of this size.
pub const SEND_BUFFER: usize = 128 * 1024;

/// Bytes of the preface of HTTP/2 (RFC 9113 §3.4).
const HTTP2_PREFACE: usize = 24;

/// The answer to HTTP on a port of HTTPS, as Go's server gives it.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// Bytes of such a request that are read.
const MAX_PLAIN_HTTP: u64 = 64 << 10;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; more wait in the system's queue.
    pub connections: usize,
    /// Of these, connections of one address; further ones are closed.
    pub connections_per_client: usize,
    /// The time for a TLS handshake.
    pub handshake: Duration,
    /// The time for a request's head, also the longest pause between two requests of a connection of HTTP/1.1.
    pub head: Duration,
    /// The size of a request's head (request line and headers) in bytes; 431 above it. A URI above 64 kB gives 414.
    pub head_bytes: u32,
    /// HTTP/2 streams of one connection; 0 turns HTTP/2 off.
    pub streams: u32,
    /// How long a client may take no byte of an answer before the connection is given up.
    pub stall: Duration,
    /// The longest pause between two requests of a connection of HTTP/2, also of one that answers pings.
    pub idle: Duration,
    /// How long running answers may take once the server is asked to stop.
    pub drain: Duration,
}

impl Default for Limits {
    /// For health and metrics: small answers over HTTP/1.1. A token fits into a head, and the heads of all connections into memory, because
    /// they are read before the token is.
    fn default() -> Self {
        Self {
            connections: 512,
            connections_per_client: 256,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(5),
            head_bytes: 64 << 10,
            streams: 0,
            stall: Duration::from_secs(30),
            idle: Duration::from_secs(180),
            drain: Duration::from_secs(30),
        }
    }
}

/// What a server serves: a service from requests to responses that never fails.
pub trait HttpService:
    Service<
        Request<Incoming>,
        Response = Response<<Self as HttpService>::Body>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    type Body = B;
}

/// The address of the client, among the extensions of each request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Serves over TLS until shutdown, then lets running answers end. The limits decide the versions of HTTP that are offered.
pub async fn https(
    listener: TcpListener,
    service: impl HttpService,
    tls: Arc<rustls::ServerConfig>,
    limits: Limits,
    shutdown: Shutdown,
) {
    let mut tls = Arc::unwrap_or_clone(tls);
    let versions: &[&[u8]] = if limits.streams == 0 { &[b"http/1.1"] } else { &[b"h2", b"http/1.1"] };
    tls.alpn_protocols = versions.iter().map(|version| version.to_vec()).collect();
    accept(listener, service, Transport::Tls(TlsAcceptor::from(Arc::new(tls))), limits, shutdown).await;
}

/// Serves HTTP/1.1 without TLS until shutdown, then lets running answers end.
pub async fn http(listener: TcpListener, service: impl HttpService, limits: Limits, shutdown: Shutdown) {
    accept(listener, service, Transport::Plain, limits, shutdown).await;
}

/// Serves HTTP/2 without TLS to clients that know it beforehand, as those of gRPC do, until shutdown, then lets running answers end.
pub async fn http2(listener: TcpListener, service: impl HttpService, limits: Limits, shutdown: Shutdown) {
    accept(listener, service, Transport::PlainHttp2, limits, shutdown).await;
}

/// What connections speak.
#[derive(Clone)]
enum Transport {
    /// HTTP/1.1 without TLS.
    Plain,
    /// HTTP/2 without TLS (RFC 9113 §3.3).
    PlainHttp2,
    /// The version that both sides agree on.
    Tls(TlsAcceptor),
}

async fn accept(
    listener: TcpListener,
    service: impl HttpService,
    transport: Transport,
    limits: Limits,
    shutdown: Shutdown,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let clients = PerClient::new(limits.connections_per_client);
    let builders = Arc::new(Builders::new(&limits));
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    loop {
        let accepted = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (listener.accept().await, slot)
        };
        let (accepted, slot) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accepted => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_about_one_connection(&error) => continue,
            Err(error) => {
                // most likely out of file descriptors; running connections will free some
                tracing::warn!(%error, "cannot accept connections, trying again in a moment");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let Some(client) = clients.take(peer.ip()) else {
            tracing::debug!(%peer, "a client has too many connections");
            continue;
        };
        while tasks.try_join_next().is_some() {}
        let connection = Connection {
            service: service.clone(),
            peer,
            transport: transport.clone(),
            builders: Arc::clone(&builders),
            limits,
            watcher: graceful.watcher(),
            shutdown: shutdown.clone(),
        };
        tasks.spawn(async move {
            if let Err(error) = connection.serve(stream).await {
                tracing::debug!(%peer, error = chain(&*error), "connection ended early");
            }
            drop((slot, client));
        });
    }
    drop(listener);
    let drained = async {
        graceful.shutdown().await;
        while tasks.join_next().await.is_some() {}
    };
    if tokio::time::timeout(limits.drain, drained).await.is_err() {
        tracing::warn!(seconds = limits.drain.as_secs(), "some answers did not end in time and are cut off");
    }
}

/// One for each version of HTTP. A builder of both would wait for a silent client for ever, to guess the version.
struct Builders {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl Builders {
    fn new(limits: &Limits) -> Self {
        let head_bytes = usize::try_from(limits.head_bytes).unwrap_or(usize::MAX);
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_header_size(head_bytes)
            // the head must fit into the buffer, else the buffer's limit (400 kB) is the one that counts
            .max_buf_size(head_bytes.saturating_add(16_384));
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(limits.head_bytes)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(limits.stall / 2)
            .keep_alive_timeout(limits.stall / 2);
        Self { http1, http2 }
    }
}

struct Connection<S> {
    service: S,
    peer: SocketAddr,
    transport: Transport,
    builders: Arc<Builders>,
    limits: Limits,
    watcher: Watcher,
    shutdown: Shutdown,
}

type ConnectionError = Box<dyn Error + Send + Sync>;
type ConnectionResult = Result<(), ConnectionError>;

impl<S: HttpService> Connection<S> {
    async fn serve(self, stream: TcpStream) -> ConnectionResult {
        // small answers would otherwise wait for the client's delayed acknowledgement
        stream.set_nodelay(true)?;
        let acceptor = match &self.transport {
            Transport::Tls(acceptor) => acceptor.clone(),
            Transport::Plain => return self.serve_plain(stream, false).await,
            Transport::PlainHttp2 => return self.serve_plain(stream, true).await,
        };
        let mut first = [0];
        let peeked = tokio::time::timeout(self.limits.handshake, stream.peek(&mut first));
        let peeked = tokio::select! {
            () = self.shutdown.cancelled() => return Ok(()),
            peeked = peeked => peeked??,
        };
        // a method begins with a letter, a handshake with another byte
        if peeked == 1 && first[0].is_ascii_alphabetic() {
            return refuse_plain_http(stream, self.limits.handshake).await;
        }
        let stream = StallGuard::new(stream, self.limits.stall);
        let accept = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(SEND_BUFFER)));
        let mut stream = tokio::select! {
            () = self.shutdown.cancelled() => return Ok(()),
            accepted = tokio::time::timeout(self.limits.handshake, accept) => accepted??,
        };
        // HTTP/2 over TLS is always agreed on (RFC 9113 §3.3)
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        if is_http2 {
            stream.get_mut().0.wait_for_close();
        }
        self.serve_http(stream, is_http2).await
    }

    async fn serve_plain(self, stream: TcpStream, is_http2: bool) -> ConnectionResult {
        let mut stream = StallGuard::new(stream, self.limits.stall);
        if is_http2 {
            stream.wait_for_close();
        }
        self.serve_http(stream, is_http2).await
    }

    async fn serve_http(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        is_http2: bool,
    ) -> ConnectionResult {
        let Self { service, peer, builders, limits, watcher, shutdown, .. } = self;
        let progress = Progress::new();
        let answers = Arc::clone(&progress);
        let service =
            service_fn(move |request| respond(service.clone(), peer, Arc::clone(&answers), request));
        if !is_http2 {
            let connection = builders.http1.serve_connection(TokioIo::new(stream), service);
            return Ok(watcher.watch(connection).await?);
        }
        // until the preface is there the library waits without an end
        let (opened, mut missing) = (Arc::new(Notify::new()), HTTP2_PREFACE);
        let opening = Arc::clone(&opened);
        let stream = InspectReader::new(stream, move |bytes| {
            if missing > 0 {
                missing = missing.saturating_sub(bytes.len());
                if missing == 0 {
                    opening.notify_one();
                }
            }
        });
        let mut connection = pin!(builders.http2.serve_connection(TokioIo::new(stream), service));
        let mut stalled = pin!(async {
            if tokio::time::timeout(limits.head, opened.notified()).await.is_err() {
                return ConnectionError::from(io::Error::from(io::ErrorKind::TimedOut));
            }
            progress.stall(limits.stall).await;
            "the client takes nothing of its answers".into()
        });
        // a watcher has one reason to end a connection, and here are two; it is held until the connection has ended
        tokio::select! {
            served = connection.as_mut() => return Ok(served?),
            error = stalled.as_mut() => return Err(error),
            () = shutdown.cancelled() => {}
            () = progress.idle(limits.idle) => {}
        }
        connection.as_mut().graceful_shutdown();
        let unacknowledged = async {
            tokio::time::sleep(limits.stall).await;
            progress.idle(limits.stall).await;
        };
        tokio::select! {
            served = connection => Ok(served?),
            error = stalled => Err(error),
            () = unacknowledged => Err("the client does not acknowledge that the connection ends".into()),
        }
    }
}

/// Answers a client that sent HTTP without TLS in its own protocol.
async fn refuse_plain_http(mut stream: TcpStream, limit: Duration) -> ConnectionResult {
    let exchange = async {
        stream.write_all(PLAIN_HTTP).await?;
        stream.shutdown().await?;
        // to close while bytes are unread would take the answer away from the client
        tokio::io::copy(&mut stream.take(MAX_PLAIN_HTTP), &mut tokio::io::sink()).await
    };
    tokio::time::timeout(limit, exchange).await??;
    Ok(())
}

async fn respond<S: HttpService>(
    service: S,
    peer: SocketAddr,
    progress: Arc<Progress>,
    mut request: Request<Incoming>,
) -> Result<Response<WatchedBody<S::Body>>, Infallible> {
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    request.extensions_mut().insert(Peer(peer));
    progress.arrives();
    let mut response = service.oneshot(request).await?;
    if is_chunked {
        // The client or proxy that sent it may have gone by its Content-Length, which the library has dropped: what follows may
        // be part of this request and is not read as another one (RFC 9112 §6.1).
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| WatchedBody { body, answer: progress.begin() }))
}

/// A body whose frames count as progress of its connection.
struct WatchedBody<B> {
    body: B,
    answer: ResponseGuard,
}

impl<B: Body + Unpin> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.answer.moves();
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
mod tests;
