//! Metrics under the names that controller-runtime gives them, and the HTTPS server that shows them to who may see them.
//!
//! Controllers feed a [`ControllerMetrics`]; a process adds its own metrics with [`Metrics::register`]. What only Go has (`go_*`)
//! is absent.
//!
//! Rule: operator-controller §7.4, catalogd §10, decision 19 (text format 0.0.4 unless Accept asks for OpenMetrics).

mod auth;
mod controller;
mod process;
mod server;
mod summary;
mod text;

pub(crate) use auth::Gate;
#[cfg(test)]
pub(crate) use auth::tests;
pub use auth::{KubeReviews, ReviewError, Reviews};
pub use controller::{ControllerMetrics, Outcome, Running};
pub(crate) use server::admit;
pub use server::{router, serve};
pub use summary::Summary;

use std::fmt;
use std::sync::Arc;

use olm_api::observe;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Metric, Registry};

use crate::tls::ServingPair;
use controller::ControllerFamilies;
use parking_lot::Mutex;

/// All metrics of a process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    controllers: ControllerFamilies,
    requests: Family<RequestLabels, Counter>,
    leader: Family<LeaderLabels, Gauge>,
    events: Family<EventLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    host: String,
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    reason: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaderLabels {
    name: String,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Registers the metric of a row; prometheus-client itself appends `_total` to the name of a counter.
fn add(registry: &mut Registry, row: &observe::Metric, metric: impl Metric) {
    registry.register(row.name.trim_end_matches("_total"), row.help, metric);
}

/// Begins the samples of the gauge or counter of a row of `observe::METRICS` in a collector.
///
/// # Errors
/// When the text cannot be written.
pub fn encode_row<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    row: &observe::Metric,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    let kind = match row.kind {
        observe::Kind::Counter => MetricType::Counter,
        observe::Kind::Gauge => MetricType::Gauge,
        observe::Kind::Histogram => MetricType::Histogram,
        // the library knows no summaries; `text` writes the word
        observe::Kind::Summary => MetricType::Unknown,
    };
    encoder.encode_descriptor(row.name.trim_end_matches("_total"), row.help, None, kind)
}

impl Metrics {
    /// The metrics that every process has.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let controllers = ControllerFamilies::register(&mut registry);
        let requests = Family::default();
        add(&mut registry, const { observe::metric_named("rest_client_requests_total") }, requests.clone());
        let leader = Family::default();
        add(&mut registry, const { observe::metric_named("leader_election_master_status") }, leader.clone());
        let events = Family::default();
        add(&mut registry, &observe::EVENTS_SENT, events.clone());
        registry.register_collector(Box::new(process::Process::new()));
        Self { registry: Arc::new(Mutex::new(registry)), controllers, requests, leader, events }
    }

    /// Adds the metric of a row of `observe::METRICS`.
    pub fn register(&self, row: &observe::Metric, metric: impl Metric) {
        self.with_registry(|registry| add(registry, row, metric));
    }

    /// Adds metrics that are made when they are asked for.
    pub fn register_collector(&self, collector: impl Collector) {
        self.with_registry(|registry| registry.register_collector(Box::new(collector)));
    }

    /// Shows when the serving certificate ends, and how often it was read (`certwatcher_*`).
    pub fn watch_pair(&self, pair: Arc<ServingPair>) {
        self.register_collector(Reads(pair));
    }

    /// The metrics of one controller; `workers` is how many objects it reconciles at the same time.
    pub fn controller(&self, name: &str, workers: u32) -> ControllerMetrics {
        self.controllers.meter(name, workers)
    }

    /// Counts one answered request to the apiserver; `code` is the status or `<error>`.
    pub fn request(&self, code: &str, host: &str, method: &str) {
        let labels =
            RequestLabels { code: code.to_owned(), host: host.to_owned(), method: method.to_owned() };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts one event that is sent.
    pub(crate) fn event(&self, reason: &str, warning: bool) {
        let kind = if warning { "Warning" } else { "Normal" };
        self.events.get_or_create(&EventLabels { reason: reason.to_owned(), r#type: kind }).inc();
    }

    /// Records whether this process holds the lease of this name.
    pub fn leads(&self, name: &str, leads: bool) {
        self.leader.get_or_create(&LeaderLabels { name: name.to_owned() }).set(i64::from(leads));
    }

    /// The metrics as OpenMetrics text.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        let result =
            self.with_registry(|registry| prometheus_client::encoding::text::encode(&mut text, registry));
        if result.is_err() {
            // only a metric's own encoder can fail; a String takes everything
            tracing::error!("a metric cannot be encoded");
        }
        text::with_summaries(&text)
    }

    /// The metrics in the classic text format 0.0.4.
    pub fn classic(&self) -> String {
        text::classic(&self.open_metrics())
    }

    fn with_registry<T>(&self, f: impl FnOnce(&mut Registry) -> T) -> T {
        f(&mut self.registry.lock())
    }
}

#[derive(Debug)]
struct Reads(Arc<ServingPair>);

impl Collector for Reads {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (reads, failures) = self.0.counts();
        for (row, count) in [
            (const { observe::metric_named("certwatcher_read_certificate_total") }, reads),
            (const { observe::metric_named("certwatcher_read_certificate_errors_total") }, failures),
        ] {
            ConstCounter::new(count).encode(encode_row(&mut encoder, row)?)?;
        }
        if let Some(ends) = self.0.ends() {
            let out = encode_row(&mut encoder, &observe::SERVING_CERTIFICATE_EXPIRY)?;
            ConstGauge::new(ends.as_second()).encode(out)?;
        }
        Ok(())
    }
}
