//! Metrics of a controller, under the names of controller-runtime and its work queue.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_api::observe::{Metric, metric_named};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::{add, encode_row};

/// How one reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; the next event starts the next one.
    Success,
    /// Done; to be looked at again at a certain time.
    RequeueAfter,
    /// Done; to be looked at again soon.
    Requeue,
    /// Failed; tried again with backoff.
    Error,
    /// Failed in a way that only a change can fix; not tried again.
    TerminalError,
}

impl Outcome {
    /// The value of the label `result`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeue_after",
            Self::Requeue => "requeue",
            Self::Error | Self::TerminalError => "error",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    controller: String,
    name: String,
}

type ByController<M, C = fn() -> M> = Family<ControllerLabel, M, C>;
type ByQueue<M, C = fn() -> M> = Family<QueueLabels, M, C>;

#[derive(Clone)]
pub(super) struct ControllerFamilies {
    total: Family<ResultLabels, Counter>,
    errors: ByController<Counter>,
    terminal: ByController<Counter>,
    panics: ByController<Counter>,
    time: ByController<Histogram>,
    workers: ByController<Gauge>,
    active: ByController<Gauge>,
    depth: ByQueue<Gauge>,
    adds: ByQueue<Counter>,
    retries: ByQueue<Counter>,
    waited: ByQueue<Histogram>,
    worked: ByQueue<Histogram>,
    running: Arc<RunningSince>,
}

/// Seconds, as controller-runtime cuts them.
const RECONCILE_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

fn reconcile_histogram() -> Histogram {
    Histogram::new(RECONCILE_BUCKETS.iter().copied())
}

fn queue_histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-9, 10.0, 12))
}

impl ControllerFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            total: Family::default(),
            errors: Family::default(),
            terminal: Family::default(),
            panics: Family::default(),
            time: Family::new_with_constructor(reconcile_histogram),
            workers: Family::default(),
            active: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(queue_histogram),
            worked: Family::new_with_constructor(queue_histogram),
            running: Arc::default(),
        };
        let f = families.clone();
        let r = registry;
        add(r, const { metric_named("controller_runtime_reconcile_total") }, f.total);
        add(r, const { metric_named("controller_runtime_reconcile_errors_total") }, f.errors);
        add(r, const { metric_named("controller_runtime_terminal_reconcile_errors_total") }, f.terminal);
        add(r, const { metric_named("controller_runtime_reconcile_panics_total") }, f.panics);
        add(r, const { metric_named("controller_runtime_reconcile_time_seconds") }, f.time);
        add(r, const { metric_named("controller_runtime_max_concurrent_reconciles") }, f.workers);
        add(r, const { metric_named("controller_runtime_active_workers") }, f.active);
        add(r, const { metric_named("workqueue_depth") }, f.depth);
        add(r, const { metric_named("workqueue_adds_total") }, f.adds);
        add(r, const { metric_named("workqueue_retries_total") }, f.retries);
        add(r, const { metric_named("workqueue_queue_duration_seconds") }, f.waited);
        add(r, const { metric_named("workqueue_work_duration_seconds") }, f.worked);
        r.register_collector(Box::new(f.running));
        families
    }

    pub(super) fn meter(&self, name: &str, workers: u32) -> ControllerMetrics {
        let controller = ControllerLabel { controller: name.to_owned() };
        let queue = QueueLabels { controller: name.to_owned(), name: name.to_owned() };
        // touched once, so that every series is there with 0 before the first object
        for outcome in [Outcome::Success, Outcome::RequeueAfter, Outcome::Requeue, Outcome::Error] {
            drop(
                self.total
                    .get_or_create(&ResultLabels { controller: name.to_owned(), result: outcome.label() }),
            );
        }
        drop(self.errors.get_or_create(&controller));
        drop(self.terminal.get_or_create(&controller));
        drop(self.panics.get_or_create(&controller));
        drop(self.time.get_or_create(&controller));
        self.workers.get_or_create(&controller).set(i64::from(workers));
        drop(self.active.get_or_create(&controller));
        drop(self.depth.get_or_create(&queue));
        drop(self.adds.get_or_create(&queue));
        drop(self.retries.get_or_create(&queue));
        drop(self.waited.get_or_create(&queue));
        drop(self.worked.get_or_create(&queue));
        self.running.0.lock().entry(name.to_owned()).or_default();
        ControllerMetrics { families: self.clone(), controller, queue }
    }
}

/// Counts the work of one controller.
#[derive(Clone)]
pub struct ControllerMetrics {
    families: ControllerFamilies,
    controller: ControllerLabel,
    queue: QueueLabels,
}

impl ControllerMetrics {
    /// A reconciliation begins. End it with [`Running::finish`]; one that is dropped without counts as a panic.
    #[must_use]
    pub fn start(&self) -> Running {
        let begun = Instant::now();
        self.families.adds.get_or_create(&self.queue).inc();
        self.families.active.get_or_create(&self.controller).inc();
        let id = self.families.running.begin(&self.controller.controller, begun);
        Running { meter: self.clone(), begun, id, finished: false }
    }

    /// So many objects are due and wait for a worker.
    pub(crate) fn queued(&self, objects: usize) {
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        self.families.depth.get_or_create(&self.queue).set(objects);
    }

    /// An object has waited for a worker this long.
    pub(crate) fn dequeued(&self, waited: Duration) {
        self.families.waited.get_or_create(&self.queue).observe(waited.as_secs_f64());
    }
}

/// A reconciliation that runs.
pub struct Running {
    meter: ControllerMetrics,
    begun: Instant,
    id: u64,
    finished: bool,
}

impl Running {
    /// The reconciliation has ended this way.
    pub fn finish(mut self, outcome: Outcome) {
        self.finished = true;
        let (families, controller) = (&self.meter.families, &self.meter.controller);
        let labels = ResultLabels { controller: controller.controller.clone(), result: outcome.label() };
        families.total.get_or_create(&labels).inc();
        match outcome {
            Outcome::Success | Outcome::RequeueAfter => {}
            Outcome::Requeue => {
                families.retries.get_or_create(&self.meter.queue).inc();
            }
            Outcome::Error => {
                families.errors.get_or_create(controller).inc();
                families.retries.get_or_create(&self.meter.queue).inc();
            }
            Outcome::TerminalError => {
                families.errors.get_or_create(controller).inc();
                families.terminal.get_or_create(controller).inc();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (families, controller) = (&self.meter.families, &self.meter.controller);
        let seconds = self.begun.elapsed().as_secs_f64();
        families.time.get_or_create(controller).observe(seconds);
        families.worked.get_or_create(&self.meter.queue).observe(seconds);
        families.active.get_or_create(controller).dec();
        families.running.end(&controller.controller, self.id);
        if !self.finished && std::thread::panicking() {
            families.panics.get_or_create(controller).inc();
        }
    }
}

/// When the running reconciliations of each controller began.
#[derive(Debug, Default)]
struct RunningSince(Mutex<BTreeMap<String, Began>>);

#[derive(Debug, Default)]
struct Began {
    next: u64,
    at: BTreeMap<u64, Instant>,
}

impl RunningSince {
    fn begin(&self, controller: &str, at: Instant) -> u64 {
        let mut all = self.0.lock();
        let began = all.entry(controller.to_owned()).or_default();
        began.next += 1;
        began.at.insert(began.next, at);
        began.next
    }

    fn end(&self, controller: &str, id: u64) {
        if let Some(began) = self.0.lock().get_mut(controller) {
            began.at.remove(&id);
        }
    }
}

impl Collector for RunningSince {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        type Fold = fn(f64, f64) -> f64;
        let families: [(&Metric, Fold); 2] = [
            (const { metric_named("workqueue_unfinished_work_seconds") }, |sum, next| sum + next),
            (const { metric_named("workqueue_longest_running_processor_seconds") }, f64::max),
        ];
        let all = self.0.lock();
        for (row, fold) in families {
            let mut family = encode_row(&mut encoder, row)?;
            for (controller, began) in all.iter() {
                let seconds = began.at.values().map(|at| at.elapsed().as_secs_f64()).fold(0.0, fold);
                let labels = QueueLabels { controller: controller.clone(), name: controller.clone() };
                ConstGauge::new(seconds).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::{Metrics, Outcome};

    fn value(text: &str, series: &str) -> Option<String> {
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
    }

    #[test]
    fn metrics_count_reconciliations() {
        let metrics = Metrics::new();
        let meter = metrics.controller("catalogs", 2);
        for outcome in [
            Outcome::Success,
            Outcome::RequeueAfter,
            Outcome::Requeue,
            Outcome::Error,
            Outcome::TerminalError,
        ] {
            meter.start().finish(outcome);
        }
        drop(meter.start());
        let panicking = meter.clone();
        let thread = std::thread::spawn(move || {
            let _running = panicking.start();
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        let running = meter.start();
        let text = metrics.classic();
        for (series, want) in [
            (r#"controller_runtime_reconcile_total{controller="catalogs",result="success"}"#, "1"),
            (r#"controller_runtime_reconcile_total{controller="catalogs",result="requeue_after"}"#, "1"),
            (r#"controller_runtime_reconcile_total{controller="catalogs",result="requeue"}"#, "1"),
            (r#"controller_runtime_reconcile_total{controller="catalogs",result="error"}"#, "2"),
            (r#"controller_runtime_reconcile_errors_total{controller="catalogs"}"#, "2"),
            (r#"controller_runtime_terminal_reconcile_errors_total{controller="catalogs"}"#, "1"),
            (r#"controller_runtime_reconcile_panics_total{controller="catalogs"}"#, "1"),
            (r#"controller_runtime_reconcile_time_seconds_count{controller="catalogs"}"#, "7"),
            (r#"controller_runtime_max_concurrent_reconciles{controller="catalogs"}"#, "2"),
            (r#"controller_runtime_active_workers{controller="catalogs"}"#, "1"),
            (r#"workqueue_adds_total{controller="catalogs",name="catalogs"}"#, "8"),
            (r#"workqueue_retries_total{controller="catalogs",name="catalogs"}"#, "2"),
        ] {
            assert_eq!(value(&text, series).as_deref(), Some(want), "{series} in\n{text}");
        }
        let unfinished = r#"workqueue_unfinished_work_seconds{controller="catalogs",name="catalogs"}"#;
        assert_ne!(value(&text, unfinished).as_deref(), Some("0.0"));
        running.finish(Outcome::Success);
        assert_eq!(value(&metrics.classic(), unfinished).as_deref(), Some("0.0"));
    }
}
