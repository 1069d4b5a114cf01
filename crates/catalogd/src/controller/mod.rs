//! The ClusterCatalog controller: watches, wakes, and runs at most one reconciliation of a catalog at a time.
//!
//! What can wake a catalog:
//! - the watch of all ClusterCatalogs, whichever component wrote (own writes find nothing to do);
//! - its own next reconciliation (poll, retry);
//! - a change of leadership, for all;
//! - damaged content found by the background check;
//! - a changed pull secret, for those whose last attempt failed.
//!
//! Every replica runs this; the leader resolves tags and writes, the others serve what the status names (decision 15).
//! Rules: catalogd §4.

pub mod credentials;
pub mod fetch;
pub mod plan;
pub mod queue;
pub mod readiness;
pub mod reconcile;
pub mod report;
pub mod status;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, TryStreamExt};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use olm_api::cluster_catalog::{AvailabilityMode, ClusterCatalog};
use olm_api::condition;
use olm_runtime::backoff::Backoff;
use olm_runtime::metrics::Outcome;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::queue::Queue;
use self::readiness::Readiness;
use self::reconcile::Context;

/// The wait when no catalog is due.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

/// The running controller's state.
struct Controller {
    context: Arc<Context>,
    readiness: Arc<Readiness>,
    objects: HashMap<String, Arc<ClusterCatalog>>,
    /// Names of the list with which the watch began again.
    listing: Option<BTreeSet<String>>,
    listed: bool,
    queue: Queue,
    tasks: JoinSet<Done>,
    /// Ends the running reconciliation of a catalog whose spec has changed or which is gone.
    running: HashMap<String, Running>,
    /// Reconciliations in a row that panicked.
    panics: Backoff<String>,
}

struct Running {
    stop: CancellationToken,
    uid: Option<String>,
    generation: Option<i64>,
}

/// What a task leaves.
struct Done {
    name: String,
    next: Option<Instant>,
    /// `None` when it was ended early.
    catalog: Option<ClusterCatalog>,
    panicked: bool,
}

/// Runs until `stop`. `gc` wakes the collection of what no catalog needs; `damaged` names catalogs whose content was
/// found damaged; `secrets` receives a message when credentials have changed.
pub async fn run(
    context: Arc<Context>,
    readiness: Arc<Readiness>,
    gc: Duration,
    mut damaged: mpsc::Receiver<String>,
    mut secrets: mpsc::Receiver<()>,
    stop: CancellationToken,
) {
    let api: Api<DeserializeGuard<ClusterCatalog>> = Api::all(context.client.clone());
    let watch =
        kube::runtime::watcher(api, watcher::Config::default()).backoff(olm_runtime::backoff::of_watch());
    let mut watch = std::pin::pin!(watch);
    let mut leader = context.leader.clone();
    let mut collect = tokio::time::interval(gc.max(Duration::from_secs(1)));
    collect.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut this = Controller {
        context,
        readiness,
        objects: HashMap::new(),
        listing: None,
        listed: false,
        queue: Queue::default(),
        tasks: JoinSet::new(),
        running: HashMap::new(),
        panics: Backoff::new(),
    };
    loop {
        this.start();
        let next = this.queue.next().unwrap_or_else(|| Instant::now() + IDLE_WAIT);
        tokio::select! {
            () = stop.cancelled() => break,
            event = watch.try_next() => match event {
                Ok(Some(event)) => this.event(event).await,
                Ok(None) => break,
                Err(error) => tracing::warn!(%error, "watching catalogs failed; the watch will be started again"),
            },
            Some(done) = this.tasks.join_next(), if !this.tasks.is_empty() => match done {
                Ok(done) => this.finished(done),
                Err(error) => tracing::error!(%error, "a reconciliation ended badly"),
            },
            changed = leader.changed() => match changed {
                Ok(()) => this.wake_all(),
                Err(_) => break,
            },
            Some(name) = damaged.recv() => this.queue.wake(&name, Instant::now()),
            Some(()) = secrets.recv() => {
                for name in this.context.retry_failed() {
                    this.queue.wake(&name, Instant::now());
                }
            }
            _ = collect.tick(), if this.listed => this.collect(),
            () = tokio::time::sleep_until(next.into()) => {}
        }
    }
    this.tasks.shutdown().await;
}

impl Controller {
    async fn event(&mut self, event: Event<DeserializeGuard<ClusterCatalog>>) {
        match event {
            Event::Init => self.listing = Some(BTreeSet::new()),
            Event::InitApply(object) | Event::Apply(object) => {
                let name = object.name_any();
                if let Some(listing) = &mut self.listing {
                    listing.insert(name.clone());
                }
                match object.0 {
                    Ok(catalog) => self.update(catalog),
                    Err(error) => {
                        tracing::warn!(catalog = name, error = %error.error, "catalog object cannot be read; it stays as it is");
                    }
                }
            }
            Event::InitDone => {
                let present = self.listing.take().unwrap_or_default();
                let gone: Vec<String> =
                    self.objects.keys().filter(|name| !present.contains(*name)).cloned().collect();
                for name in gone {
                    self.gone(&name).await;
                }
                if !self.listed {
                    self.listed = true;
                    self.remove_unknown(&present).await;
                }
                self.report_missing();
            }
            Event::Delete(object) => {
                self.gone(&object.name_any()).await;
                self.report_missing();
            }
        }
    }

    /// Replaces an object by its newer version.
    fn update(&mut self, catalog: ClusterCatalog) {
        let name = catalog.name_any();
        if let Some(known) = self.objects.get(&name)
            && known.uid() == catalog.uid()
            && older(&catalog, known)
        {
            return;
        }
        if let Some(running) = self.running.get(&name)
            && (running.uid != catalog.uid()
                || running.generation != catalog.metadata.generation
                || catalog.metadata.deletion_timestamp.is_some())
        {
            running.stop.cancel();
        }
        self.objects.insert(name.clone(), Arc::new(catalog));
        self.queue.wake(&name, Instant::now());
        if self.listed {
            self.report_missing();
        }
    }

    async fn gone(&mut self, name: &str) {
        self.objects.remove(name);
        self.queue.remove(name);
        self.panics.reset(&name.to_owned());
        if let Some(running) = self.running.get(name) {
            running.stop.cancel();
        }
        self.context.remove(name).await;
    }

    /// Stops serving catalogs that were deleted while this process did not run.
    async fn remove_unknown(&mut self, present: &BTreeSet<String>) {
        let served = self.context.store.serving();
        for name in served.keys().filter(|name| !present.contains(*name)) {
            self.context.remove(name).await;
        }
    }

    fn start(&mut self) {
        for name in self.queue.start(Instant::now()) {
            let Some(catalog) = self.objects.get(&name) else {
                self.queue.finished(&name, None);
                continue;
            };
            let stop = CancellationToken::new();
            let running =
                Running { stop: stop.clone(), uid: catalog.uid(), generation: catalog.metadata.generation };
            self.running.insert(name.clone(), running);
            let (context, mut catalog) = (Arc::clone(&self.context), ClusterCatalog::clone(catalog));
            let span = tracing::info_span!("catalog", name);
            let panicked = name.clone();
            let reconciliation = async move {
                let meter = context.meter.start();
                tokio::select! {
                    (next, outcome) = context.reconcile(&mut catalog) => {
                        meter.finish(outcome);
                        Done { name, next, catalog: Some(catalog), panicked: false }
                    }
                    () = stop.cancelled() => {
                        meter.finish(Outcome::Requeue);
                        Done { name, next: Some(Instant::now()), catalog: None, panicked: false }
                    }
                }
            };
            // one that panics has ended too, or its catalog would never be reconciled again
            let reconciliation = AssertUnwindSafe(reconciliation).catch_unwind().map(|done| {
                done.unwrap_or(Done { name: panicked, next: None, catalog: None, panicked: true })
            });
            self.tasks.spawn(tracing::Instrument::instrument(reconciliation, span));
        }
    }

    fn finished(&mut self, done: Done) {
        let Done { name, next, catalog, panicked } = done;
        self.running.remove(&name);
        let next = if panicked {
            let wait = self.panics.panicked(name.clone());
            tracing::error!(
                catalog = name,
                seconds = wait.as_secs(),
                "reconciliation panicked; trying again"
            );
            Some(Instant::now() + wait)
        } else {
            self.panics.reset(&name);
            next
        };
        if let Some(catalog) = catalog
            && let Some(known) = self.objects.get_mut(&name)
            && known.uid() == catalog.uid()
            && older(known, &catalog)
        {
            *known = Arc::new(catalog);
        }
        let next = next.filter(|_| self.objects.contains_key(&name));
        self.queue.finished(&name, next);
        self.report_missing();
    }

    fn wake_all(&mut self) {
        let now = Instant::now();
        for name in self.objects.keys() {
            self.queue.wake(name, now);
        }
    }

    /// Reports to the readiness probe which catalogs should be served here and are not.
    fn report_missing(&self) {
        if !self.listed {
            return;
        }
        let serving = self.context.store.serving();
        let missing = self.objects.values().filter(|catalog| {
            let is_served = catalog
                .status
                .as_ref()
                .is_some_and(|status| condition::is_true(&status.conditions, condition::SERVING));
            is_served
                && catalog.spec.availability_mode == AvailabilityMode::Available
                && catalog.metadata.deletion_timestamp.is_none()
                && !serving.contains_key(&catalog.name_any())
        });
        self.readiness.missing(missing.map(|catalog| catalog.name_any()).collect(), Instant::now());
    }

    /// Removes what no catalog needs, away from this thread.
    fn collect(&self) {
        let store = self.context.store.clone();
        let known: BTreeSet<String> = self.objects.keys().cloned().collect();
        tokio::task::spawn_blocking(move || match store.collect(Some(&known)) {
            Ok(collected) if collected == Default::default() => {}
            Ok(collected) => tracing::info!(?collected, "removed unused catalog content"),
            Err(error) => tracing::warn!(%error, "cannot remove unused catalog content"),
        });
    }
}

/// Whether `a` is an older version of the same object than `b`. Resource versions are numbers wherever etcd is behind
/// the API server; where they are not, the one that came last counts.
fn older(a: &ClusterCatalog, b: &ClusterCatalog) -> bool {
    let version =
        |catalog: &ClusterCatalog| catalog.resource_version().and_then(|text| text.parse::<u64>().ok());
    matches!((version(a), version(b)), (Some(a), Some(b)) if a < b)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use olm_oci::{Config, Puller, SharedKeyring};
    use olm_runtime::Intervals;
    use olm_runtime::events::Events;
    use olm_runtime::metrics::Metrics;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::sync::watch;

    use super::credentials::Credentials;
    use super::fetch::Fetch;
    use super::*;
    use crate::store::Store;

    /// An apiserver with one catalog; a write panics and is counted.
    fn apiserver(writes: mpsc::UnboundedSender<Instant>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let writes = writes.clone();
            async move {
                if request.method() != Method::GET {
                    writes.send(Instant::now()).unwrap();
                    panic!("a defect");
                }
                if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                    std::future::pending::<()>().await;
                }
                let catalog = json!({
                    "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
                    "metadata": {"name": "c", "uid": "u", "resourceVersion": "1", "generation": 1},
                    "spec": {"source": {"type": "Image", "image": {"ref": "registry.example.com/c:1"}}},
                });
                let list = json!({"metadata": {"resourceVersion": "9"}, "items": [catalog]});
                Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn controller_retries_and_counts_panics() {
        olm_runtime::tls::install_provider();
        let (writes, mut written) = mpsc::unbounded_channel();
        let client = apiserver(writes);
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(true));
        let ((_damage, damaged), (_changed, secrets)) = (mpsc::channel(1), mpsc::channel(1));
        let credentials = Credentials::new(client.clone(), None, None, SharedKeyring::default());
        let context = Arc::new(Context {
            client: client.clone(),
            store: store.clone(),
            fetch: Fetch::new(Puller::new(Config::default()), credentials, store),
            leader,
            events: Events::new(client, "test", None),
            meter: metrics.controller("test", 0),
            base: "https://catalogd.example.com".to_owned(),
            intervals: Intervals::default(),
            memory: Mutex::default(),
            epoch: std::sync::atomic::AtomicU64::new(0),
        });
        let readiness = Arc::new(Readiness::new(Instant::now()));
        let stop = CancellationToken::new();
        let controller = run(context, readiness, IDLE_WAIT, damaged, secrets, stop);
        let two = async { (written.recv().await.unwrap(), written.recv().await.unwrap()) };
        tokio::select! {
            () = controller => panic!("the controller has ended"),
            written = tokio::time::timeout(Duration::from_secs(20), two) => {
                let (first, second) = written.expect("the catalog is never reconciled again");
                assert!(second - first >= Duration::from_secs(1));
            }
        }
        let metrics = metrics.classic();
        assert!(
            metrics.contains("controller_runtime_reconcile_panics_total{controller=\"test\"} "),
            "{metrics}"
        );
        assert!(
            !metrics.contains("controller_runtime_reconcile_panics_total{controller=\"test\"} 0"),
            "{metrics}"
        );
    }
}
