//! Downloads of blobs: bounded buffers ahead of the reader, continued where they broke, given up when they stall.
//!
//! A download is a future that fills a small channel; the reader sits on its own thread and takes chunks from it
//! ([`Incoming`]). Nothing here checks the digest: the reader does ([`crate::layer`]), across resumed parts.

use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Method, Response, StatusCode};
use tokio::sync::mpsc;

use crate::error::{Fault, chain};
use crate::http::{Ask, Place, Transport};
use crate::layer::ChunkSource;
use crate::manifest::Descriptor;

/// Batches between download and reader.
const AHEAD: usize = 4;
/// Bytes in a batch that is handed over while more is at hand: a connection yields a few kilobytes at a time, and waking
/// the reader for each of them would cost more than reading them.
const BATCH: usize = 128 << 10;

/// What a download hands over; an empty batch is the end mark.
pub(crate) type Batch = Result<Vec<Bytes>, Fault>;

/// The reader's end of a download.
pub(crate) struct Incoming {
    batches: mpsc::Receiver<Batch>,
    ready: std::vec::IntoIter<Bytes>,
    /// Tells a finished download from one that was dropped with its future.
    done: bool,
}

impl ChunkSource for Incoming {
    fn next(&mut self) -> Result<Option<Bytes>, Fault> {
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
                Some(Err(fault)) => return Err(fault),
                None => {
                    return Err(Fault::Network {
                        what: "reading blob".into(),
                        why: "pull was cancelled".into(),
                    });
                }
            }
        }
    }
}

/// The two ends of one download.
pub(crate) fn channel() -> (mpsc::Sender<Batch>, Incoming) {
    let (sender, batches) = mpsc::channel(AHEAD);
    (sender, Incoming { batches, ready: Vec::new().into_iter(), done: false })
}

/// The writer's end: collects chunks into batches.
struct Outgoing {
    into: mpsc::Sender<Batch>,
    pending: Vec<Bytes>,
    bytes: usize,
}

impl Outgoing {
    /// `false`: the reader has gone.
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

/// Downloads `blob` into the channel. Ends when the blob, the patience or the reader ends.
pub(crate) async fn download(
    transport: &Transport,
    places: &[Place],
    blob: &Descriptor,
    into: mpsc::Sender<Batch>,
) {
    let mut out = Outgoing { into, pending: Vec::new(), bytes: 0 };
    let end = match stream(transport, places, blob, &mut out).await {
        Ok(true) => Ok(Vec::new()),
        Ok(false) => return, // the reader has gone
        Err(fault) => Err(fault),
    };
    // a reader that has gone needs no end mark
    let _ = out.into.send(end).await;
}

async fn stream(
    transport: &Transport,
    places: &[Place],
    blob: &Descriptor,
    out: &mut Outgoing,
) -> Result<bool, Fault> {
    let what = format!("reading blob {}", blob.digest);
    let retries = &transport.config().retries;
    let mut at = 0_u64;
    let mut broken = 0;
    loop {
        let response = open(transport, places, blob, at, &what).await?;
        let skip = if response.status() == StatusCode::PARTIAL_CONTENT {
            if !continues(&response, at) {
                let why = "the registry sent another range than asked for".into();
                return Err(Fault::Network { what, why });
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
        let fault = match pumped {
            Ok(finished) => return Ok(finished),
            Err(fault) => fault,
        };
        if at > before {
            broken = 0;
        }
        broken += 1;
        if broken > retries.resume {
            return Err(fault);
        }
        tracing::debug!(blob = %blob.digest, at, %fault, "download broke; continuing");
        let pause = retries.first_pause.saturating_mul(1 << (broken - 1).min(10)).min(retries.longest_pause);
        tokio::time::sleep(pause).await;
    }
}

/// Asks one place after the other, the one that had the manifest first.
async fn open(
    transport: &Transport,
    places: &[Place],
    blob: &Descriptor,
    from: u64,
    what: &str,
) -> Result<Response, Fault> {
    let mut first = None;
    for place in places {
        let path = format!("blobs/{}", blob.digest);
        let ask = Ask { method: Method::GET, path, accept: "*/*", from, what };
        match transport.send(place, &ask).await {
            Ok(response) => return Ok(response),
            Err(fault) => first = first.or(Some(fault)),
        }
    }
    Err(first.unwrap_or_else(|| Fault::Config("no place to fetch the blob from".into())))
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

/// Hands chunks on. `Ok(false)`: the reader has gone. Time counts only while the registry is waited for.
async fn pump(
    transport: &Transport,
    mut response: Response,
    mut skip: u64,
    at: &mut u64,
    size: u64,
    out: &mut Outgoing,
    what: &str,
) -> Result<bool, Fault> {
    let timeouts = &transport.config().timeouts;
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
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => {
                return Err(Fault::Network { what: what.to_owned(), why: chain(&error.without_url()) });
            }
            Err(_) => {
                return Err(Fault::Stalled {
                    what: what.to_owned(),
                    got: window,
                    waited: waited + timeouts.stall,
                });
            }
        };
        let Some(mut chunk) = chunk else {
            if *at < size {
                // a body without length that ends early; with a length the library has noticed
                return Err(Fault::Size { what: what.to_owned(), declared: size, got: *at });
            }
            return Ok(true);
        };
        waited += began.elapsed();
        window += chunk.len() as u64;
        if waited >= timeouts.slow {
            if window < timeouts.slow_bytes {
                return Err(Fault::Stalled { what: what.to_owned(), got: window, waited });
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
            // the reader refuses it; no need to listen to an endless body
            return Ok(true);
        }
    }
}
