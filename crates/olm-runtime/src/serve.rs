//! HTTP/1.1 servers that hostile or slow clients cannot hold up: bounded connections, bounded heads, a time limit on each step,
//! and a graceful end.
//!
//! It knows no routes; it serves the `axum::Router` it is given. HTTP/2 is off, as in the reference.
//!
//! Rule: catalogd §7.1.

mod guard;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::Shutdown;
use guard::StallGuard;

/// What a client may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at the same time; more wait in the system's queue.
    pub connections: usize,
    /// The time for a TLS handshake.
    pub handshake: Duration,
    /// The time for a request's head, also the longest pause between two requests of a connection.
    pub head: Duration,
    /// The size of a request's head (request line and headers) in bytes; 431 above it. A URI above 64 kB gives 414.
    pub head_bytes: usize,
    /// How long a client may take no byte of an answer before the connection is given up.
    pub stall: Duration,
    /// How long running answers may take once the server is asked to stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(5),
            head_bytes: 1 << 20,
            stall: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }
}

/// Runs a server of the process to its end; that it ended badly is logged under its `name` and ends nothing else.
pub async fn logged(name: &'static str, server: impl Future<Output = io::Result<()>>) {
    if let Err(error) = server.await {
        tracing::error!(server = name, %error, "server ended");
    }
}

/// Serves over TLS until shutdown, then lets running answers end.
///
/// # Errors
/// Only if the listener itself breaks.
pub async fn https(
    listener: TcpListener,
    router: Router,
    tls: Arc<rustls::ServerConfig>,
    limits: Limits,
    shutdown: Shutdown,
) -> io::Result<()> {
    accept(listener, router, Some(TlsAcceptor::from(tls)), limits, shutdown).await
}

/// Serves without TLS until shutdown, then lets running answers end.
///
/// # Errors
/// Only if the listener itself breaks.
pub async fn http(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: Shutdown,
) -> io::Result<()> {
    accept(listener, router, None, limits, shutdown).await
}

async fn accept(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    shutdown: Shutdown,
) -> io::Result<()> {
    let limits = Arc::new(limits);
    let slots = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    loop {
        let slot = tokio::select! {
            () = shutdown.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.map_err(io::Error::other)?,
        };
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) if is_about_one_connection(&error) => continue,
                Err(error) => {
                    // most likely out of file descriptors; running connections will free some
                    tracing::warn!(error = %error, "cannot accept connections, trying again in a moment");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
            },
        };
        while tasks.try_join_next().is_some() {}
        let connection = Connection {
            router: router.clone(),
            tls: tls.clone(),
            limits: Arc::clone(&limits),
            watcher: graceful.watcher(),
        };
        let stopping = shutdown.clone();
        tasks.spawn(async move {
            connection.serve(stream, stopping).await;
            drop(slot);
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
    Ok(())
}

struct Connection {
    router: Router,
    tls: Option<TlsAcceptor>,
    limits: Arc<Limits>,
    watcher: Watcher,
}

impl Connection {
    async fn serve(self, stream: TcpStream, shutdown: Shutdown) {
        // small answers would otherwise wait for the client's delayed acknowledgement
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "cannot set TCP_NODELAY");
        }
        let stream = StallGuard::new(stream, self.limits.stall);
        match self.tls.clone() {
            None => self.speak(stream).await,
            Some(acceptor) => {
                let handshake = tokio::time::timeout(self.limits.handshake, acceptor.accept(stream));
                let shaken = tokio::select! {
                    () = shutdown.cancelled() => return,
                    shaken = handshake => shaken,
                };
                match shaken {
                    Ok(Ok(stream)) => self.speak(stream).await,
                    Ok(Err(error)) => tracing::debug!(error = %error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake took too long"),
                }
            }
        }
    }

    async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_header_size(self.limits.head_bytes)
            // the head must fit into the buffer, else the buffer's limit (400 kB) is the one that counts
            .max_buf_size(self.limits.head_bytes.saturating_add(16_384));
        let connection =
            builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(self.router));
        if let Err(error) = self.watcher.watch(connection).await {
            tracing::debug!(error = crate::error_text::chain(&error), "connection ended early");
        }
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
