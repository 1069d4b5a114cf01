//! The runner of every controller: what wakes it, a queue of object names, and passes that run in parallel, one at a time for each
//! object.
//!
//! A pass that panics ends no other; it is counted and retried with backoff. When the process stops, no pass begins any more and
//! running ones are finished. If the returned future is dropped, because the lease is lost, running passes are aborted.

mod queue;
mod workers;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt as _, Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::metrics::{ControllerMetrics, Outcome};
use crate::{backoff, task};
use queue::Queue;
pub use workers::{Stopping, Workers};

/// One thing that wakes a controller, with its reason. A controller lists all of them in one place.
pub struct Source {
    reason: &'static str,
    names: BoxStream<'static, String>,
}

impl Source {
    /// Every item of `changes` wakes the objects that `names` gives for it.
    pub fn new<T, I>(
        reason: &'static str,
        changes: impl Stream<Item = T> + Send + 'static,
        mut names: impl FnMut(T) -> I + Send + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = String>,
        I::IntoIter: Send + 'static,
    {
        let names = changes.flat_map(move |change| futures::stream::iter(names(change)));
        Self { reason, names: names.boxed() }
    }
}

/// When the object is reconciled again if nothing wakes it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Never.
    OnChange,
    /// After this time.
    After(Duration),
    /// After a failure: later and later.
    Backoff,
    /// After a failure: later and later, at the latest after this time.
    BackoffWithin(Duration),
}

impl Requeue {
    /// The same, but after this time at the latest.
    #[must_use]
    pub fn within(self, limit: Option<Duration>) -> Self {
        match (self, limit) {
            (_, None) => self,
            (Self::OnChange, Some(limit)) => Self::After(limit),
            (Self::After(wait), Some(limit)) => Self::After(wait.min(limit)),
            (Self::Backoff, Some(limit)) => Self::BackoffWithin(limit),
            (Self::BackoffWithin(wait), Some(limit)) => Self::BackoffWithin(wait.min(limit)),
        }
    }
}

/// Names of objects that a task of the controller wakes, each once however often it is woken. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Waker(Arc<(Mutex<BTreeSet<String>>, Notify)>);

impl Waker {
    /// Reconciles the object with this name soon.
    pub fn wake(&self, name: &str) {
        self.0.0.lock().insert(name.to_owned());
        self.0.1.notify_one();
    }

    /// The names as they come. Meant for one reader.
    pub fn names(&self) -> impl Stream<Item = String> + Send + use<> {
        futures::stream::unfold(self.clone(), |waker| async move {
            loop {
                let woken = waker.0.1.notified();
                let name = waker.0.0.lock().pop_first();
                if let Some(name) = name {
                    return Some((name, waker.clone()));
                }
                woken.await;
            }
        })
    }
}

/// A controller.
pub struct Controller {
    /// Its name in logs.
    pub name: &'static str,
    /// How many passes work at the same time, and when it stops.
    pub workers: Arc<Workers>,
    /// Counts passes and how they end.
    pub metrics: ControllerMetrics,
    /// Sources that wake an object within this time lead to one pass.
    pub debounce: Duration,
    /// The wait after this many earlier failures in a row.
    pub backoff: fn(u32) -> Duration,
    /// The shortest time between two passes over an object.
    pub min_interval: Duration,
    /// What wakes it.
    pub sources: Vec<Source>,
}

impl Controller {
    /// A controller with the usual backoff.
    #[must_use]
    pub fn new(
        name: &'static str,
        workers: Arc<Workers>,
        metrics: ControllerMetrics,
        sources: Vec<Source>,
    ) -> Self {
        let (debounce, min_interval) = (Duration::ZERO, Duration::ZERO);
        Self { name, workers, metrics, debounce, backoff: backoff::delay, min_interval, sources }
    }
}

/// Runs until the workers are stopped. No pass begins before `ready`, so that none sees half of a cache. `pass` gives the pass over an
/// object, `None` if there is no such object.
pub async fn run<F>(controller: Controller, ready: impl Future<Output = ()>, pass: impl Fn(&str) -> Option<F>)
where
    F: Future<Output = (Requeue, Outcome)> + Send + 'static,
{
    let Controller { name: controller, workers, metrics, debounce, backoff, min_interval, sources } =
        controller;
    let sources = sources.into_iter().map(|source| source.names.map(move |name| (name, source.reason)));
    let mut woken = futures::stream::select_all(sources);
    let mut ready = std::pin::pin!(ready.fuse());
    let mut queue = Queue::default();
    let mut passes: JoinSet<(String, std::thread::Result<Requeue>, Instant)> = JoinSet::new();
    let mut failures: HashMap<String, u32> = HashMap::new();
    let mut is_ready = false;
    loop {
        let due = queue.next().filter(|_| is_ready);
        let is_due = due.is_some_and(|due| due <= Instant::now());
        tokio::select! {
            biased;
            () = workers.stopped() => break,
            Some(done) = passes.join_next() => {
                let Ok((name, requeue, ended)) = done else { continue };
                let wait = match requeue {
                    Ok(Requeue::OnChange) => None,
                    Ok(Requeue::After(wait)) => Some(wait),
                    Ok(Requeue::Backoff) => Some(backoff(count(&mut failures, &name))),
                    Ok(Requeue::BackoffWithin(limit)) => Some(backoff(count(&mut failures, &name)).min(limit)),
                    Err(_) => Some(backoff::after_panic(count(&mut failures, &name))),
                };
                if matches!(requeue, Ok(Requeue::OnChange | Requeue::After(_))) {
                    failures.remove(&name);
                }
                queue.finish(&name, wait.and_then(|wait| ended.checked_add(wait)));
            }
            () = &mut ready, if !is_ready => is_ready = true,
            Some((name, reason)) = woken.next() => {
                tracing::trace!(controller, name, reason, "woken");
                queue.wake(name, Instant::now(), debounce);
            }
            turn = Arc::clone(&workers).turn(), if is_due => {
                let (Ok(turn), Some(name)) = (turn, queue.start(Instant::now())) else { continue };
                let Some(work) = pass(&name) else {
                    failures.remove(&name);
                    queue.finish(&name, None);
                    continue;
                };
                let (metrics, workers) = (metrics.clone(), Arc::clone(&workers));
                passes.spawn(async move {
                    let counted = async {
                        let running = metrics.start();
                        let (requeue, outcome) = work.await;
                        running.finish(outcome);
                        requeue
                    };
                    let requeue = AssertUnwindSafe(counted).catch_unwind().await.inspect_err(|panic| {
                        tracing::error!(controller, name, panic = task::panic_message(&**panic), "pass panicked");
                    });
                    drop(turn);
                    let ended = Instant::now();
                    if !min_interval.is_zero() {
                        let _ = tokio::time::timeout(min_interval, workers.stopped()).await;
                    }
                    (name, requeue, ended)
                });
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && !is_due => {}
        }
    }
    while passes.join_next().await.is_some() {}
}

/// Counts a failure; gives the number of earlier ones in a row.
fn count(failures: &mut HashMap<String, u32>, name: &str) -> u32 {
    let count = failures.entry(name.to_owned()).or_default();
    let earlier = *count;
    *count = count.saturating_add(1);
    earlier
}

#[cfg(test)]
mod tests;
