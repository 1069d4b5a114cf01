//! A stream whose writes fail when the other side takes nothing for too long, and whose end waits for that of the other side.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The longest pause of a client that is still to close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Passes everything through; a write or flush that waits longer than the limit ends with [`io::ErrorKind::TimedOut`].
pub(super) struct StallGuard<S> {
    stream: S,
    limit: Duration,
    /// runs while a write waits, or the end of the other side is waited for
    waiting: Option<Pin<Box<Sleep>>>,
    waits_for_close: bool,
    is_shut_down: bool,
}

impl<S> StallGuard<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, waiting: None, waits_for_close: false, is_shut_down: false }
    }

    /// Shutdown then waits until the client closes its side, too, and drops what it sends meanwhile. A client of HTTP/2 sends frames
    /// while it reads an answer; to close before they are read would reset the connection, and take the rest of the answer away from it.
    pub(super) fn wait_for_close(&mut self) {
        self.waits_for_close = true;
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no data")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut_down {
            let result = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.watch(cx, result))?;
            self.is_shut_down = true;
        }
        if self.waits_for_close { self.poll_closed(cx).map(Ok) } else { Poll::Ready(Ok(())) }
    }
}

impl<S: AsyncRead + Unpin> StallGuard<S> {
    /// Ready once the client has closed its side, or sends nothing for too long.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut unread = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut unread);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => self.waiting = None,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(CLOSE_TIMEOUT)));
                    return waiting.as_mut().poll(cx);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn serve_guard_gives_up_a_client_that_reads_nothing() {
        let (ours, _theirs) = tokio::io::duplex(8);
        let mut guarded = StallGuard::new(ours, Duration::from_millis(20));
        let begun = tokio::time::Instant::now();
        let error = guarded.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }

    #[tokio::test]
    async fn serve_guard_restarts_the_time_with_every_byte() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut guarded = StallGuard::new(ours, Duration::from_secs(3600));
        guarded.write_all(&[7; 8]).await.unwrap();
        assert!(guarded.waiting.is_none());
        let full = poll_fn(|cx| Poll::Ready(Pin::new(&mut guarded).poll_write(cx, &[7]).is_pending())).await;
        assert!(full && guarded.waiting.is_some(), "the clock runs while the client takes nothing");
        assert_eq!(theirs.read_u8().await.unwrap(), 7);
        guarded.write_all(&[7]).await.unwrap();
        assert!(guarded.waiting.is_none(), "and stops when it does");
    }

    #[tokio::test]
    async fn serve_guard_ends_after_a_client_that_sends_while_it_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = async {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let mut answer = vec![0; 4];
            client.read_exact(&mut answer).await.unwrap();
            for _ in 0..20 {
                client.write_all(b"more, please").await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            client.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let server = async {
            let mut server = StallGuard::new(listener.accept().await.unwrap().0, Duration::from_secs(60));
            server.wait_for_close();
            server.write_all(b"an answer").await.unwrap();
            server.shutdown().await.unwrap();
            drop(server);
        };
        assert_eq!(tokio::join!(client, server).0, b"an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn serve_guard_waits_for_a_silent_client_for_seconds() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut guarded = StallGuard::new(ours, Duration::from_secs(3600));
        guarded.wait_for_close();
        let begun = tokio::time::Instant::now();
        let sender = async {
            tokio::time::sleep(CLOSE_TIMEOUT / 2).await;
            theirs.write_all(&[7; 8]).await.unwrap();
        };
        let (ended, ()) = tokio::join!(guarded.shutdown(), sender);
        ended.unwrap();
        assert_eq!(begun.elapsed(), CLOSE_TIMEOUT / 2 + CLOSE_TIMEOUT);
    }
}
