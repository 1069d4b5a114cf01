//! The rate at which watches are begun again.
//!
//! The client's watcher waits after an error, and begins a watch that the server ended again immediately. A proxy that ends each of
//! them soon would get requests as fast as it answers. So such a watch waits, as after an error.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Uri;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backoff::{self, WATCH_GOOD, WatchBackoff};

/// A watch that ended soon this many times in a row, with waits in between, is logged.
const REPORTED: u32 = 5;

/// The watches that the server ended soon after they began, by address. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches(Arc<Mutex<HashMap<String, Ended>>>);

#[derive(Debug)]
struct Ended {
    waits: WatchBackoff,
    /// The watch does not begin again before.
    until: Instant,
}

impl Watches {
    /// The watch that a request for this address begins; `None` for another request.
    pub(super) fn watch(&self, uri: &Uri) -> Option<Watch> {
        let query = uri.query()?;
        if !query.split('&').any(|pair| pair == "watch=true") {
            return None;
        }
        // the same watch begins at another version each time
        let pairs: Vec<&str> = query.split('&').filter(|it| !it.starts_with("resourceVersion=")).collect();
        Some(Watch { address: format!("{}?{}", uri.path(), pairs.join("&")), watches: self.clone() })
    }
}

/// A watch that is about to begin, or has begun.
#[derive(Debug)]
pub(super) struct Watch {
    address: String,
    watches: Watches,
}

impl Watch {
    /// Waits if it ended soon before. The first time it does not: an apiserver ends watches when their CRD changes.
    pub(super) async fn begin(&self) {
        let until = self.watches.0.lock().get(&self.address).map(|ended| ended.until);
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }

    /// The server ended the watch that began then.
    fn end(self, began: Instant) {
        let (now, Self { address, watches }) = (Instant::now(), self);
        let mut watches = watches.0.lock();
        watches.retain(|_, ended| now < ended.until + WATCH_GOOD);
        if now - began >= WATCH_GOOD {
            return;
        }
        match watches.entry(address) {
            Entry::Vacant(entry) => {
                entry.insert(Ended { waits: backoff::of_watch(), until: now });
            }
            Entry::Occupied(mut entry) => {
                let wait = entry.get_mut().waits.next().unwrap_or_default();
                entry.get_mut().until = now + wait;
                if entry.get().waits.earlier() == REPORTED {
                    tracing::warn!(
                        watch = entry.key().as_str(),
                        "a watch ends again and again soon after it began"
                    );
                }
            }
        }
    }
}

/// The body of an answer. That of a watch records when the server ends it; one that its reader drops has not ended.
#[derive(Debug)]
pub(super) struct AnswerBody<B> {
    body: B,
    watch: Option<(Watch, Instant)>,
}

impl<B> AnswerBody<B> {
    /// The body of the answer to a request, which began this watch if it is one.
    pub(super) fn new(body: B, watch: Option<Watch>) -> Self {
        Self { body, watch: watch.map(|watch| (watch, Instant::now())) }
    }
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if !matches!(frame, Some(Ok(_)))
            && let Some((watch, began)) = self.watch.take()
        {
            watch.end(began);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::{BodyExt as _, Empty};

    use super::*;

    const PODS: &str = "/api/v1/pods?&watch=true&timeoutSeconds=290&resourceVersion=";

    /// Begins the watch and lets the server end it after it has `lived`; how long it waited before.
    async fn run(watches: &Watches, uri: &str, lived: Duration) -> Duration {
        let watch = watches.watch(&uri.parse().unwrap()).unwrap();
        let before = Instant::now();
        watch.begin().await;
        let waited = before.elapsed();
        let body = AnswerBody::new(Empty::<bytes::Bytes>::new(), Some(watch));
        tokio::time::sleep(lived).await;
        body.collect().await.unwrap();
        waited
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_ends_soon_is_begun_again_with_a_wait() {
        let watches = Watches::default();
        let most = [0, 0, 500, 1_000, 2_000, 4_000, 5_000, 5_000].map(Duration::from_millis);
        for (version, most) in most.into_iter().enumerate() {
            let waited = run(&watches, &format!("{PODS}{version}"), Duration::ZERO).await;
            // the timer counts in milliseconds
            let within = most / 2..=most + Duration::from_millis(2);
            assert!(within.contains(&waited), "{version}: {waited:?} of {most:?}");
        }
        let other = "/api/v1/pods?&watch=true&labelSelector=a&resourceVersion=7";
        assert_eq!(run(&watches, other, Duration::ZERO).await, Duration::ZERO, "another watch");
        assert!(watches.watch(&"/api/v1/pods?&limit=500".parse().unwrap()).is_none(), "a list");
        // one that lived for a while is as new
        run(&watches, &format!("{PODS}8"), WATCH_GOOD).await;
        assert_eq!(run(&watches, &format!("{PODS}9"), Duration::ZERO).await, Duration::ZERO);
        assert_eq!(watches.0.lock().len(), 1, "what is long ago is evicted");
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_its_reader_drops_does_not_wait() {
        let watches = Watches::default();
        for _ in 0..5 {
            let watch = watches.watch(&PODS.parse().unwrap()).unwrap();
            let before = Instant::now();
            watch.begin().await;
            assert_eq!(before.elapsed(), Duration::ZERO);
            drop(AnswerBody::new(Empty::<bytes::Bytes>::new(), Some(watch)));
        }
        assert!(watches.0.lock().is_empty());
    }
}
