//! Downloads of blobs: bounded buffers ahead of the reader, continued where they broke, given up when they stall.
//!
//! A download is a future that fills a small channel; the reader sits on its own thread and takes chunks from it
//! ([`Incoming`]). Nothing here checks the digest: the reader does ([`crate::layer`]), across resumed parts.

use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use tokio::sync::mpsc;

use crate::error::ImageError;
use crate::http::{Ask, Endpoint, Transport, connection_error};
use crate::layer::ChunkSource;
use crate::manifest::Descriptor;

/// Batches between download and reader.
const MAX_PENDING_BATCHES: usize = 4;
/// Bytes in a batch that is handed over while more is available: a connection yields a few kilobytes at a time, and waking
/// the reader for each of them would cost more than reading them.
const BATCH: usize = 128 << 10;

/// What a download hands over; an empty batch is the end mark.
pub(crate) type Batch = Result<Vec<Bytes>, ImageError>;

/// The reader's end of a download.
pub(crate) struct Incoming {
    batches: mpsc::Receiver<Batch>,
    ready: std::vec::IntoIter<Bytes>,
    /// Distinguishes a finished download from one that was dropped with its future.
    done: bool,
}

impl ChunkSource for Incoming {
    fn next(&mut self) -> Result<Option<Bytes>, ImageError> {
        loop {
            if let Some(chunk) = Iterator::next(&mut self.ready) {
                return Ok(Some(chunk));
            }
            if self.done {
                return Ok(None);
            }
            match self.batches.blocking_recv() {
                Some(Ok(batch)) if batch.is_empty() => self.done = true,
                Some(Ok(batch)) => self.ready = batch.into_iter(),
                Some(Err(cause)) => return Err(cause),
                None => {
                    return Err(ImageError::network("reading blob", "pull was cancelled"));
                }
            }
        }
    }
}

/// The two ends of one download.
pub(crate) fn channel() -> (mpsc::Sender<Batch>, Incoming) {
    let (sender, batches) = mpsc::channel(MAX_PENDING_BATCHES);
    (sender, Incoming { batches, ready: Vec::new().into_iter(), done: false })
}

/// The writer's end: collects chunks into batches.
struct Outgoing {
    into: mpsc::Sender<Batch>,
    pending: Vec<Bytes>,
    bytes: usize,
}

impl Outgoing {
    /// `false`: the reader is gone.
    async fn push(&mut self, chunk: Bytes) -> bool {
        self.bytes += chunk.len();
        self.pending.push(chunk);
        self.bytes < BATCH || self.flush().await
    }

    async fn flush(&mut self) -> bool {
        self.bytes = 0;
        self.pending.is_empty() || self.into.send(Ok(std::mem::take(&mut self.pending))).await.is_ok()
    }
}

/// Downloads `blob` into the channel. Ends with the blob, when the retries are used up, or when the reader is gone.
pub(crate) async fn download(
    transport: &Transport,
    endpoints: &[Endpoint],
    blob: &Descriptor,
    into: mpsc::Sender<Batch>,
) {
    let mut out = Outgoing { into, pending: Vec::new(), bytes: 0 };
    let end = match stream(transport, endpoints, blob, &mut out).await {
        Ok(true) => Ok(Vec::new()),
        Ok(false) => return, // the reader is gone
        Err(cause) => Err(cause),
    };
    // a reader that is gone needs no end mark
    let _ = out.into.send(end).await;
}

async fn stream(
    transport: &Transport,
    endpoints: &[Endpoint],
    blob: &Descriptor,
    out: &mut Outgoing,
) -> Result<bool, ImageError> {
    let what = format!("reading blob {}", blob.digest);
    let retries = &transport.config.retries;
    let mut at = 0_u64;
    let mut broken = 0;
    loop {
        let response = open(transport, endpoints, blob, at, &what).await?;
        let skip = if response.status() == StatusCode::PARTIAL_CONTENT {
            if !continues(&response, at) {
                return Err(ImageError::network(what, "the registry sent another range than asked for"));
            }
            0
        } else {
            at // the whole blob again
        };
        let before = at;
        let pumped = pump(transport, response, skip, &mut at, blob.size, out, &what).await;
        // what has come has come, also when the rest has not
        if !out.flush().await {
            return Ok(false);
        }
        let cause = match pumped {
            Ok(finished) => return Ok(finished),
            Err(cause) => cause,
        };
        // a registry that only drips makes no progress
        if at - before >= transport.config.timeouts.slow_bytes {
            broken = 0;
        }
        broken += 1;
        if broken > retries.resume {
            return Err(cause);
        }
        tracing::debug!(blob = %blob.digest, at, %cause, "download broke; continuing");
        let pause = retries.first_pause.saturating_mul(1 << (broken - 1).min(10)).min(retries.longest_pause);
        tokio::time::sleep(pause).await;
    }
}

/// Requests the blob from one endpoint after the other, beginning with the one that had the manifest.
async fn open(
    transport: &Transport,
    endpoints: &[Endpoint],
    blob: &Descriptor,
    from: u64,
    what: &str,
) -> Result<Response, ImageError> {
    let mut first = None;
    for endpoint in endpoints {
        let ask = Ask::blob(&blob.digest, from, what);
        match transport.send(endpoint, &ask).await {
            Ok(response) => return Ok(response),
            Err(cause) => first = first.or(Some(cause)),
        }
    }
    Err(first.unwrap_or_else(|| ImageError::Config("no place to fetch the blob from".into())))
}

fn continues(response: &Response, at: u64) -> bool {
    response
        .headers()
        .get(CONTENT_RANGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.strip_prefix("bytes "))
        .and_then(|text| text.split('-').next())
        .and_then(|start| start.trim().parse::<u64>().ok())
        == Some(at)
}

/// Forwards chunks to the reader. `Ok(false)`: the reader is gone. Time counts only while the registry is waited for.
async fn pump(
    transport: &Transport,
    mut response: Response,
    mut skip: u64,
    at: &mut u64,
    size: u64,
    out: &mut Outgoing,
    what: &str,
) -> Result<bool, ImageError> {
    let timeouts = &transport.config.timeouts;
    let (mut waited, mut window) = (Duration::ZERO, 0_u64);
    loop {
        let mut next = pin!(response.chunk());
        let mut began = Instant::now();
        let here = match futures::poll!(next.as_mut()) {
            Poll::Ready(chunk) => Ok(chunk),
            Poll::Pending => {
                // the reader gets what there is before the registry is waited for
                if !out.flush().await {
                    return Ok(false);
                }
                began = Instant::now();
                tokio::time::timeout(timeouts.stall, next).await
            }
        };
        let chunk = match here {
            Ok(chunk) => chunk.map_err(|error| ImageError::network(what, connection_error(error)))?,
            Err(_) => {
                return Err(ImageError::Stalled {
                    what: what.to_owned(),
                    got: window,
                    waited: waited + timeouts.stall,
                });
            }
        };
        let Some(mut chunk) = chunk else {
            if *at < size {
                // a body without length that ends early; with a length the library has noticed
                return Err(ImageError::Size { what: what.to_owned(), declared: size, got: *at });
            }
            return Ok(true);
        };
        waited += began.elapsed();
        window += chunk.len() as u64;
        if waited >= timeouts.slow {
            if window < timeouts.slow_bytes {
                return Err(ImageError::Stalled { what: what.to_owned(), got: window, waited });
            }
            (waited, window) = (Duration::ZERO, 0);
        }
        let drop = skip.min(chunk.len() as u64);
        skip -= drop;
        let chunk = chunk.split_off(usize::try_from(drop).unwrap_or(usize::MAX));
        if chunk.is_empty() {
            continue;
        }
        *at += chunk.len() as u64;
        let beyond = *at > size;
        if !out.push(chunk).await {
            return Ok(false);
        }
        if beyond {
            // the reader rejects it; an endless body need not be received
            return Ok(true);
        }
    }
}
