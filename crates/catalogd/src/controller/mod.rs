//! The ClusterCatalog controller: watches, wakes, and ends a reconciliation whose catalog has changed.
//!
//! Every replica runs this; the leader resolves tags and writes, the others serve what the status names (decision 15).
//! Rules: catalogd §4.

pub mod credentials;
pub mod fetch;
#[cfg(test)]
mod messages;
pub mod plan;
pub mod readiness;
pub mod reconcile;
pub mod report;
pub mod service;
pub mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use olm_api::cluster_catalog::{AvailabilityMode, ClusterCatalog};
use olm_api::{annotations, condition};
use olm_runtime::controller::{self, Controller, Requeue, Source, Workers};
use olm_runtime::metrics::Outcome;
use olm_runtime::polled::answered;
use olm_runtime::task;
use olm_runtime::watched::{Change, Object, Objects};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::readiness::Readiness;
use self::reconcile::Context;

struct State {
    context: Arc<Context>,
    readiness: Arc<Readiness>,
    catalogs: Objects<ClusterCatalog>,
    stop: CancellationToken,
}

/// Runs until `stop`. `gc` is the time between collections of what no catalog needs; `damaged` names catalogs whose content was
/// found damaged; `secrets` receives a message when credentials have changed.
pub async fn run(
    context: Arc<Context>,
    readiness: Arc<Readiness>,
    gc: Duration,
    damaged: mpsc::Receiver<String>,
    secrets: mpsc::Receiver<()>,
    stop: CancellationToken,
) {
    let state = Arc::new(State { context, readiness, catalogs: Objects::empty(), stop: stop.clone() });
    // each catalog may wait for its registry
    let workers = Workers::new(u16::MAX, stop);
    let sources = sources(&state, damaged, secrets);
    let controller = Controller {
        describe: {
            let catalogs = state.catalogs.clone();
            Box::new(move |name| catalogs.describe(name))
        },
        ..Controller::new(crate::run::CONTROLLER, workers, state.context.meter.clone(), sources)
    };
    let _watch = state.catalogs.watch(&state.context.client);
    let read = || {
        let client = state.context.client.clone();
        async move {
            let version = answered(client.apiserver_version().await)?;
            Ok(version.and_then(|version| version.git_version.parse().ok()))
        }
    };
    let interval = state.context.intervals.cluster;
    let interruptions = state.catalogs.interruptions();
    let reading = state.context.version.follow("the version", read, interruptions, interval);
    let ready = async {
        state.catalogs.wait_until_listed().await;
        // else the image of a template would be that of the spec for a moment
        state.context.version.wait_until_read().await;
        state.remove_unknown().await;
        state.report_missing();
    };
    let passes = controller::run(controller, ready, |name| {
        // warnings name the catalog also where the filter drops what is less
        let span = tracing::error_span!("catalog", catalog = name);
        Some(Arc::clone(&state).pass(name.to_owned()).instrument(span))
    });
    tokio::select! {
        () = passes => {}
        () = state.collect(gc) => {}
        never = task::supervised("reading the version of the cluster", reading) => match never {},
    }
}

/// What wakes a catalog. Beside it, a reconciliation asks to be repeated: for the next poll, or a retry.
fn sources(state: &Arc<State>, damaged: mpsc::Receiver<String>, secrets: mpsc::Receiver<()>) -> Vec<Source> {
    let [changed, leads, retries, templates] = std::array::from_fn(|_| Arc::clone(state));
    vec![
        Source::new("it changed, whichever component wrote it", state.catalogs.subscribe(), move |change| {
            changed.changed(&change);
            [change.key]
        }),
        Source::new("leadership changed", changes(state.context.leader.clone()), move |()| {
            leads.catalogs.names()
        }),
        Source::new(
            "the version of the cluster changed, and its image is a template",
            state.context.version.changes(),
            move |()| templates.templated(),
        ),
        Source::new("its content is damaged", received(damaged), |name| [name]),
        Source::new("its last attempt failed, and a pull secret changed", received(secrets), move |()| {
            retries.context.retry_failed()
        }),
    ]
}

fn received<T: Send + 'static>(mut receiver: mpsc::Receiver<T>) -> impl futures::Stream<Item = T> + Send {
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

fn changes(leader: watch::Receiver<bool>) -> impl futures::Stream<Item = ()> + Send {
    futures::stream::unfold(leader, async |mut leader| leader.changed().await.ok().map(|()| ((), leader)))
}

impl State {
    /// Ends the running reconciliation of a catalog that has another spec, is being deleted or is gone. A change may be noticed late:
    /// what counts is the present catalog, which the reconciliation may have begun with.
    fn changed(&self, change: &Change<String, Object<ClusterCatalog>>) {
        let catalog = self.catalogs.get(&change.key);
        let mut all = self.context.states.lock();
        let state = all.entry(change.key.clone()).or_default();
        state.was_deleted |= change.after.is_none();
        if let Some((stop, uid, generation)) = &state.running
            && catalog.as_ref().map(Object::meta).is_none_or(|now| {
                now.uid != *uid || now.generation != *generation || now.deletion_timestamp.is_some()
            })
        {
            stop.cancel();
        }
        drop(all);
        self.report_missing();
    }

    /// Catalogs whose image is a template.
    fn templated(&self) -> Vec<String> {
        let all = self.catalogs.all();
        let has = |catalog: &&Arc<ClusterCatalog>| {
            catalog.annotations().contains_key(annotations::CATALOG_IMAGE_TEMPLATE)
        };
        all.iter().filter(has).map(|catalog| catalog.name_any()).collect()
    }

    async fn pass(self: Arc<Self>, name: String) -> (Requeue, Outcome) {
        let was_deleted = self
            .context
            .states
            .lock()
            .get_mut(&name)
            .is_some_and(|state| std::mem::take(&mut state.was_deleted));
        if was_deleted {
            self.context.remove(&name).await;
        }
        let done = match self.catalogs.get(&name).map(|catalog| catalog.0) {
            Some(Ok(catalog)) => self.reconcile(&name, ClusterCatalog::clone(&catalog)).await,
            Some(Err(invalid)) => {
                let error = &invalid.error;
                tracing::warn!(%error, "catalog object cannot be read; it stays as it is");
                (Requeue::OnChange, Outcome::TerminalError)
            }
            None => {
                self.context.states.lock().retain(|known, state| *known != name || state.was_deleted);
                (Requeue::Gone, Outcome::Success)
            }
        };
        self.report_missing();
        done
    }

    async fn pass_over(&self, catalog: &mut ClusterCatalog) -> (Option<Instant>, Outcome) {
        let done = self.context.reconcile(catalog).await;
        self.context.keep_service(catalog).await;
        done
    }

    async fn reconcile(&self, name: &str, mut catalog: ClusterCatalog) -> (Requeue, Outcome) {
        let stop = self.stop.child_token();
        let running = Some((stop.clone(), catalog.uid(), catalog.metadata.generation));
        self.context.states.lock().entry(name.to_owned()).or_default().running = running;
        let done = tokio::select! {
            (next, outcome) = self.pass_over(&mut catalog) => {
                let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
                Some((wait.map_or(Requeue::OnChange, Requeue::After), outcome))
            }
            () = stop.cancelled() => None,
        };
        if let Some(state) = self.context.states.lock().get_mut(name) {
            state.running = None;
        }
        match done {
            Some(done) => {
                self.catalogs.update(name.to_owned(), Object::new(catalog));
                done
            }
            None => (Requeue::After(Duration::ZERO), Outcome::Requeue),
        }
    }

    /// Stops serving catalogs that were deleted while this process did not run.
    async fn remove_unknown(&self) {
        let (served, present) = (self.context.store.serving(), self.catalogs.names());
        for name in served.keys().filter(|name| !present.contains(name)) {
            self.context.remove(name).await;
        }
    }

    /// Reports to the readiness probe which catalogs should be served here and are not.
    fn report_missing(&self) {
        if !self.catalogs.read().is_listed() {
            return;
        }
        let serving = self.context.store.serving();
        let all = self.catalogs.all();
        let missing = all.iter().filter(|catalog| {
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

    /// Removes what no catalog needs, now and then, away from this thread.
    async fn collect(&self, gc: Duration) {
        let mut ticks = tokio::time::interval(gc.max(Duration::from_secs(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.catalogs.wait_until_listed().await;
        loop {
            ticks.tick().await;
            let (store, catalogs) = (self.context.store.clone(), self.catalogs.clone());
            // what is published was known before: names of an earlier moment would lack a catalog that has come since
            let is_known = move |name: &str| catalogs.read().rows().contains_key(name);
            tokio::task::spawn_blocking(move || match store.collect(Some(&is_known)) {
                Ok(collected) if collected == Default::default() => {}
                Ok(collected) => tracing::info!(?collected, "removed unused catalog content"),
                Err(error) => tracing::warn!(%error, "cannot remove unused catalog content"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use bytes::Bytes;
    use http::{Method, Request};
    use kube::Client;
    use olm_api::finalizers;
    use olm_oci::{Config, Puller, SharedKeyring};
    use olm_runtime::Intervals;
    use olm_runtime::events::Events;
    use olm_runtime::metrics::Metrics;
    use olm_runtime::testing;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::credentials::Credentials;
    use super::fetch::Fetch;
    use super::plan::{FailedAttempt, Quarantine};
    use super::reconcile::Remembered;
    use super::*;
    use crate::store::{Served, Store};

    /// An apiserver that answers with what is written.
    fn echo() -> Client {
        testing::client(|request| std::future::ready(written(&request)))
    }

    fn written(request: &Request<Bytes>) -> (u16, Value) {
        (200, serde_json::from_slice(request.body()).unwrap_or_default())
    }

    /// A catalog that the leader has seen before.
    fn catalog(reference: &str, status: Value) -> ClusterCatalog {
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "1", "generation": 1,
                "labels": {"olm.operatorframework.io/metadata.name": "c"},
                "finalizers": [finalizers::DELETE_SERVER_CACHE]},
            "spec": {"source": {"type": "Image", "image": {"ref": reference}}},
            "status": status,
        }))
        .unwrap()
    }

    fn condition_of(type_: &str, status: &str, reason: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": "x", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    /// Serves content that `source` has led to; returns its reference.
    fn serve(store: &Store, source: &str) -> String {
        let digest = format!("sha256:{}", "a".repeat(64));
        let staging = store.stage(store.lease(&digest.parse().unwrap())).unwrap();
        let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
        let file = br#"{"schema":"olm.package","name":"a"}"#;
        ingest.file("a.json", &mut &file[..]).unwrap();
        let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
        let reference = format!("registry.example.com/c@{digest}");
        let source = Some(source.to_owned());
        store
            .publish("c", Served { content, reference: reference.clone(), source, last_unpacked: 1 })
            .unwrap();
        reference
    }

    /// An apiserver with one catalog; a write panics and is counted.
    fn apiserver(writes: mpsc::UnboundedSender<Instant>) -> Client {
        testing::client(move |request| {
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
                (200, json!({"metadata": {"resourceVersion": "9"}, "items": [catalog]}))
            }
        })
    }

    fn context(client: &Client, store: Store, leader: watch::Receiver<bool>, metrics: &Metrics) -> Context {
        let credentials = Credentials::new(client.clone(), None, None, SharedKeyring::default());
        Context {
            client: client.clone(),
            store: store.clone(),
            fetch: Fetch::new(Puller::new(Config::default()), credentials, store),
            leader,
            events: Events::new(client.clone(), "test", None),
            meter: metrics.controller("test", 0),
            base: "https://catalogd.example.com".to_owned(),
            services: None,
            intervals: Intervals::default(),
            version: Default::default(),
            states: Mutex::default(),
            epoch: std::sync::atomic::AtomicU64::new(0),
        }
    }

    #[tokio::test]
    async fn earlier_change_ends_no_reconciliation() {
        olm_runtime::tls::install_provider();
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(true));
        let state = State {
            context: Arc::new(context(&echo(), store, leader, &metrics)),
            readiness: Arc::new(Readiness::new(Instant::now())),
            catalogs: Objects::empty(),
            stop: CancellationToken::new(),
        };
        let at = |generation: i64| {
            let mut catalog = catalog("registry.example.com/c:1", json!(null));
            catalog.metadata.resource_version = Some(generation.to_string());
            catalog.metadata.generation = Some(generation);
            Object::new(catalog)
        };
        let change = |after: i64| Change {
            key: "c".to_owned(),
            before: None,
            after: Some(at(after)),
            is_answer: false,
        };
        state.catalogs.insert("c".to_owned(), at(2));
        let stop = CancellationToken::new();
        let running = Some((stop.clone(), Some("u".to_owned()), Some(2)));
        state.context.states.lock().entry("c".to_owned()).or_default().running = running;
        state.changed(&change(1));
        state.changed(&change(2));
        assert!(!stop.is_cancelled(), "it has begun with the present catalog");
        state.catalogs.insert("c".to_owned(), at(3));
        state.changed(&change(3));
        assert!(stop.is_cancelled());
    }

    /// rule: catalogd §4.4
    #[tokio::test]
    async fn removal_that_the_disk_refuses_is_reported() {
        olm_runtime::tls::install_provider();
        let mut catalog: ClusterCatalog = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "1", "generation": 2,
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizers::DELETE_SERVER_CACHE]},
            "spec": {"source": {"type": "Image", "image": {"ref": "registry.example.com/c:1"}}},
        }))
        .unwrap();
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        // no file can be removed from what is no directory
        std::fs::remove_dir_all(root.path().join("names")).unwrap();
        std::fs::write(root.path().join("names"), "").unwrap();
        let (paths, stored) = (Arc::new(Mutex::new(Vec::new())), catalog.clone());
        let seen = Arc::clone(&paths);
        let client = testing::client(move |request| {
            let (path, mut stored) = (request.uri().path().to_owned(), stored.clone());
            if path.ends_with("/status") {
                stored.status = serde_json::from_value(written(&request).1["status"].clone()).unwrap();
            }
            seen.lock().push(path);
            std::future::ready((200, serde_json::to_value(&stored).unwrap()))
        });
        let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(true));
        let (next, outcome) = context(&client, store, leader, &metrics).reconcile(&mut catalog).await;
        assert!(next.is_some() && outcome == Outcome::Error, "{next:?} {outcome:?}");
        let conditions = catalog.status.unwrap().conditions;
        let progressing = condition::find(&conditions, condition::PROGRESSING).unwrap();
        let begins = "finalizer \"olm.operatorframework.io/delete-server-cache\" failed: ";
        assert_eq!(progressing.reason, "Retrying");
        assert!(progressing.message.starts_with(begins), "{}", progressing.message);
        let catalogs: Vec<_> =
            paths.lock().iter().filter(|path| path.contains("/clustercatalogs/")).cloned().collect();
        assert_eq!(catalogs.len(), 1, "the finalizer stays: {catalogs:?}");
    }

    /// rule: catalogd §4.4
    #[tokio::test]
    async fn removal_in_two_attempts_leaves_no_content() {
        olm_runtime::tls::install_provider();
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let image = "registry.example.com/c:1";
        serve(&store, image);
        // what is no file cannot be removed as one
        let name = root.path().join("names/c");
        std::fs::remove_file(&name).unwrap();
        std::fs::create_dir(&name).unwrap();
        let mut catalog = catalog(image, json!(null));
        catalog.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(true));
        let context = context(&echo(), store, leader, &metrics);
        let stored = || std::fs::read_dir(root.path().join("content")).unwrap().count();
        let (next, outcome) = context.reconcile(&mut catalog).await;
        assert!(next.is_some() && outcome == Outcome::Error, "{next:?} {outcome:?}");
        assert_eq!(stored(), 1);
        std::fs::remove_dir(&name).unwrap();
        let _ = context.reconcile(&mut catalog).await;
        assert_eq!(stored(), 0);
    }

    #[tokio::test]
    async fn failed_fetch_is_one_warning() {
        olm_runtime::tls::install_provider();
        let reference = format!("127.0.0.1:1/c@sha256:{}", "0".repeat(64));
        let source = json!({"type": "Image", "image": {"ref": reference}});
        let mut catalog = catalog(&reference, json!({"resolvedSource": source}));
        let client = echo();
        let (warnings, _guard) =
            testing::logged(|metadata| *metadata.level() <= tracing::Level::WARN, &["message"]);
        let refused = "connection refused";
        for (leads, want) in
            [(false, "cannot fetch catalog content"), (true, refused), (true, "cannot fetch catalog content")]
        {
            let root = tempfile::tempdir().unwrap();
            let (store, _) = Store::open(root.path()).unwrap();
            let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(leads));
            let context = context(&client, store, leader, &metrics);
            for _ in 0..2 {
                let (_, outcome) = context.reconcile(&mut catalog).await;
                assert_eq!(outcome, Outcome::Error);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let warned = std::mem::take(&mut *warnings.lock());
            assert!(matches!(&warned[..], [only] if only.contains(want)), "{leads} {want}: {warned:?}");
        }
    }

    /// rule: catalogd §12 row 2
    #[tokio::test]
    async fn lost_content_of_a_blocked_catalog_is_reported_in_time() {
        olm_runtime::tls::install_provider();
        for (serving, is_due) in [("True", true), ("False", false)] {
            let status = json!({"conditions": [condition_of("Serving", serving, "Available")]});
            let mut catalog = catalog("library/c:1", status);
            let root = tempfile::tempdir().unwrap();
            let (store, _) = Store::open(root.path()).unwrap();
            let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(true));
            let context = context(&echo(), store, leader, &metrics);
            // the event of the own status write leads to the second pass
            for _ in 0..2 {
                let (next, _) = context.reconcile(&mut catalog).await;
                let wait = next.map(|next| next.saturating_duration_since(Instant::now()).as_secs());
                assert!(wait.is_some_and(|wait| (50..=60).contains(&wait)) == is_due, "{serving}: {wait:?}");
            }
        }
    }

    /// rule: decision 35
    #[tokio::test]
    async fn failure_of_a_removed_template_is_not_reported() {
        olm_runtime::tls::install_provider();
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let image = "registry.example.com/c:1";
        let reference = serve(&store, image);
        let mut catalog = catalog(
            image,
            json!({
                "conditions": [condition_of("Progressing", "True", "Succeeded")],
                "resolvedSource": {"type": "Image", "image": {"ref": reference}},
            }),
        );
        let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(true));
        let context = context(&echo(), store, leader, &metrics);
        for (template, want) in [(Some("127.0.0.1:1/c:1"), "Retrying"), (None, "Succeeded")] {
            let entry = |image: &str| (annotations::CATALOG_IMAGE_TEMPLATE.to_owned(), image.to_owned());
            catalog.metadata.annotations = template.map(|image| [entry(image)].into());
            let (next, _) = context.reconcile(&mut catalog).await;
            let conditions = &catalog.status.as_ref().unwrap().conditions;
            let progressing = condition::find(conditions, condition::PROGRESSING).unwrap();
            assert_eq!(progressing.reason, want, "{}", progressing.message);
            assert_eq!(next.is_some(), template.is_some());
        }
    }

    /// rule: catalogd §3.6
    #[tokio::test]
    async fn quarantine_is_lifted_while_the_registry_is_away() {
        olm_runtime::tls::install_provider();
        let [image, other] = ["a", "b"].map(|digit| format!("sha256:{}", digit.repeat(64)));
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        for digest in [&image, &other] {
            std::fs::write(root.path().join("attempts").join(digest), "2").unwrap();
        }
        let mut quarantined = condition_of("Quarantined", "True", "ReadingEndedTheProcess");
        quarantined["message"] = json!(format!("catalogd ended 2 times while it read the image {image}"));
        let conditions = json!([condition_of("Progressing", "True", "Retrying"), quarantined]);
        let mut catalog = catalog("127.0.0.1:1/c:1", json!({"conditions": conditions}));
        let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(true));
        let context = context(&echo(), store.clone(), leader, &metrics);
        for (requested, left) in [(None, [2, 2]), (Some("now"), [0, 2])] {
            let entry = |value: &str| (annotations::REQUESTED_AT.to_owned(), value.to_owned());
            catalog.metadata.annotations = requested.map(|value| [entry(value)].into());
            let (_, outcome) = context.reconcile(&mut catalog).await;
            assert_eq!(outcome, Outcome::Error, "no registry answers");
            let conditions = &catalog.status.as_ref().unwrap().conditions;
            assert_eq!(condition::is_true(conditions, condition::QUARANTINED), requested.is_none());
            let attempts = [&image, &other].map(|digest| store.unfinished_attempts(&digest.parse().unwrap()));
            assert_eq!(attempts, left, "{requested:?}");
        }
    }

    #[tokio::test]
    async fn retry_that_is_asked_for_during_a_pass_is_not_lost() {
        olm_runtime::tls::install_provider();
        let known: Arc<OnceLock<Arc<Context>>> = Arc::default();
        let asked = Arc::clone(&known);
        // a pull secret changes while the pass writes
        let client = testing::client(move |request| {
            let _ = asked.get().map(|context| context.retry_failed());
            std::future::ready(written(&request))
        });
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let (metrics, (_lead, leader)) = (Metrics::new(), watch::channel(true));
        let context = Arc::new(context(&client, store, leader, &metrics));
        assert!(known.set(Arc::clone(&context)).is_ok());
        let image = "registry.example.com/c:1";
        let mut remembered = Remembered::default();
        remembered.plan.failure = Some(FailedAttempt {
            reference: image.to_owned(),
            generation: Some(1),
            attempts: 1,
            message: "unauthorized".to_owned(),
            blocked: false,
            retry: Some(Instant::now() + Duration::from_secs(300)),
            quarantine: Quarantine::Unchanged,
        });
        context.states.lock().entry("c".to_owned()).or_default().remembered = remembered;
        let (next, _) = context.reconcile(&mut catalog(image, json!(null))).await;
        assert!(next.is_some_and(|next| next <= Instant::now()), "{next:?}");
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
        let context = Arc::new(context(&client, store, leader, &metrics));
        let readiness = Arc::new(Readiness::new(Instant::now()));
        let stop = CancellationToken::new();
        let controller = run(context, readiness, Duration::from_secs(3600), damaged, secrets, stop);
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
