//! The runner of every controller: what wakes it, a queue of object names, and passes that run in parallel, one at a time for each
//! object.
//!
//! A pass that panics ends no other; it is counted and retried with backoff. When the process stops, no pass begins any more and
//! running ones are finished. If the returned future is dropped, because the lease is lost, running passes are aborted.

mod queue;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
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
use crate::{backoff, report, task};
use queue::{Next, Queue};
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
    /// Never, and there is no such object any more.
    Gone,
    /// Never.
    OnChange,
    /// Within a minute: events of what it waits for come before, and this is for one that was missed.
    Unfinished,
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
            (_, None) | (Self::Gone, _) => self,
            (Self::OnChange, Some(limit)) => Self::After(limit),
            (Self::Unfinished, Some(limit)) if limit >= backoff::UNFINISHED => self,
            (Self::Unfinished, Some(limit)) => Self::After(limit),
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
    /// The longest wait for an event of an object that is not finished.
    pub unfinished: Duration,
    /// What wakes it.
    pub sources: Vec<Source>,
    /// What is cached of an object and what it waits for, for the [`report`].
    pub describe: Describe,
}

/// The text about an object that a controller adds to a [`report`].
pub type Describe = Box<dyn Fn(&str) -> String + Send + Sync>;

impl Controller {
    /// A controller with the usual backoff.
    #[must_use]
    pub fn new(
        name: &'static str,
        workers: Arc<Workers>,
        metrics: ControllerMetrics,
        sources: Vec<Source>,
    ) -> Self {
        Self {
            name,
            workers,
            metrics,
            debounce: Duration::ZERO,
            backoff: backoff::of_object,
            min_interval: Duration::ZERO,
            unfinished: backoff::UNFINISHED,
            sources,
            describe: Box::new(|_| String::new()),
        }
    }
}

/// What the runner remembers of an object.
#[derive(Default)]
struct Record {
    /// Passes that failed, in a row.
    failures: u32,
    /// When the last pass ended, and how; without an outcome by a panic.
    last: Option<(Instant, Option<Outcome>)>,
}

impl Record {
    /// Counts a failure; returns the number of earlier ones in a row.
    fn count_failure(&mut self) -> u32 {
        let earlier = self.failures;
        self.failures = earlier.saturating_add(1);
        earlier
    }
}

/// How a pass ended.
struct Ended {
    name: String,
    at: Instant,
    result: std::thread::Result<(Requeue, Outcome)>,
}

/// Runs until the workers are stopped. No pass begins before `ready`, so that none sees half of a cache. `pass` gives the pass over an
/// object, `None` if there is no such object.
pub async fn run<F>(controller: Controller, ready: impl Future<Output = ()>, pass: impl Fn(&str) -> Option<F>)
where
    F: Future<Output = (Requeue, Outcome)> + Send + 'static,
{
    let Controller {
        name: controller,
        workers,
        metrics,
        debounce,
        backoff,
        min_interval,
        unfinished,
        sources,
        describe,
    } = controller;
    let sources = sources.into_iter().map(|source| source.names.map(move |name| (name, source.reason)));
    let mut woken = futures::stream::select_all(sources);
    let mut ready = std::pin::pin!(ready.fuse());
    let mut queue = Queue::default();
    let mut passes: JoinSet<Ended> = JoinSet::new();
    let mut records: BTreeMap<String, Record> = BTreeMap::new();
    let mut reports = report::requests();
    let mut is_ready = false;
    loop {
        queue.advance(Instant::now());
        metrics.queued(queue.depth());
        let next = queue.next();
        tokio::select! {
            biased;
            () = workers.stopped() => break,
            Some(done) = passes.join_next() => {
                let Ok(Ended { name, at, result }) = done else { continue };
                let record = records.entry(name.clone()).or_default();
                record.last = Some((at, result.as_ref().ok().map(|(_, outcome)| *outcome)));
                let requeue = result.map(|(requeue, _)| requeue);
                let wait = match requeue {
                    Ok(Requeue::Gone | Requeue::OnChange) => None,
                    Ok(Requeue::Unfinished) => Some(backoff::unfinished(unfinished)),
                    Ok(Requeue::After(wait)) => Some(wait),
                    Ok(Requeue::Backoff) => Some(backoff(record.count_failure())),
                    Ok(Requeue::BackoffWithin(limit)) => Some(backoff(record.count_failure()).min(limit)),
                    Err(_) => Some(backoff::after_panic(record.count_failure())),
                };
                match requeue {
                    Ok(Requeue::Gone) => drop(records.remove(&name)),
                    Ok(Requeue::OnChange | Requeue::Unfinished | Requeue::After(_)) => record.failures = 0,
                    Ok(Requeue::Backoff | Requeue::BackoffWithin(_)) | Err(_) => {}
                }
                queue.finish(&name, wait.and_then(|wait| at.checked_add(wait)));
            }
            () = &mut ready, if !is_ready => is_ready = true,
            Ok(()) = reports.changed() => {
                let now = Instant::now();
                let objects = records.iter().map(|(name, record)| {
                    (name.clone(), state(record, queue.next_of(name), now), describe(name))
                });
                report::log(controller, objects);
            }
            Some((name, reason)) = woken.next() => {
                tracing::trace!(controller, name, reason, "woken");
                queue.wake(name, Instant::now(), debounce);
            }
            turn = Arc::clone(&workers).turn(), if is_ready && queue.depth() > 0 => {
                let (Ok(turn), Some((name, waited))) = (turn, queue.start(Instant::now())) else { continue };
                metrics.dequeued(waited);
                let Some(work) = pass(&name) else {
                    records.remove(&name);
                    queue.finish(&name, None);
                    continue;
                };
                let (metrics, workers) = (metrics.clone(), Arc::clone(&workers));
                passes.spawn(async move {
                    let counted = async {
                        let running = metrics.start();
                        let (requeue, outcome) = work.await;
                        running.finish(outcome);
                        (requeue, outcome)
                    };
                    let result = AssertUnwindSafe(counted).catch_unwind().await.inspect_err(|panic| {
                        tracing::error!(controller, name, panic = task::panic_message(&**panic), "pass panicked");
                    });
                    drop(turn);
                    let at = Instant::now();
                    if !min_interval.is_zero() {
                        let _ = tokio::time::timeout(min_interval, workers.stopped()).await;
                    }
                    Ended { name, at, result }
                });
            }
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
    while passes.join_next().await.is_some() {}
}

/// When the last pass over an object ended, how, and when the next one begins.
fn state(record: &Record, next: Next, now: Instant) -> String {
    let seconds = |duration: Duration| format!("{:.1} s", duration.as_secs_f64());
    let last = match record.last {
        None => "none".to_owned(),
        Some((ended, outcome)) => {
            let outcome = outcome.map_or("panic", Outcome::label);
            format!("{outcome} {} ago", seconds(now.duration_since(ended)))
        }
    };
    let next = match next {
        Next::OnChange => "on change".to_owned(),
        Next::Running => "running".to_owned(),
        Next::At(at) if at <= now => format!("due for {}", seconds(now.duration_since(at))),
        Next::At(at) => format!("in {}", seconds(at.duration_since(now))),
    };
    format!("last pass: {last}; failures in a row: {}; next pass: {next}", record.failures)
}

#[cfg(test)]
mod tests;
