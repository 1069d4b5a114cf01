//! The catalogs of the process: a task for each keeps its connection or image.
//!
//! Rule: classic-apis §2.4 and §2.5.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kube::{Api, Client, ResourceExt as _};
use olm_api::classic::CatalogSource;
use olm_api::classic::catalog_source::ConfigMapReference;
use olm_classic::catalog_source::{CONNECT_TIMEOUT, ConnectionState, SpecError, validate};
use olm_runtime::controller::Waker;
use olm_runtime::watched::Objects;
use olm_runtime::{task, watched};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::backed::Backed;
use super::entry::Entry;
use super::error::CatalogError;
use super::link::Keeping;
use super::memory::{Memory, Reservation};
use super::shared::{SharedImages, SharedRead};
use super::snapshot::{Origin, Snapshot};
use crate::image_source::ImageSource;

/// Snapshots that are read at the same time.
const PARALLEL_READS: usize = 4;

/// All catalogs, by `namespace/name`.
pub(crate) struct Catalogs {
    client: Client,
    images: Arc<dyn ImageSource>,
    entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    reads: Semaphore,
    pub(super) memory: Memory,
    shared: Arc<SharedImages>,
    /// Catalogs whose connection or its error changed.
    pub(crate) states: Waker,
    /// Catalogs with content that was not read before, and ConfigMaps that are gone or cannot be read.
    pub(crate) contents: Waker,
}

impl Catalogs {
    pub(crate) fn new(client: &Client, images: Arc<dyn ImageSource>) -> Arc<Self> {
        let memory = Memory::default();
        Arc::new(Self {
            client: client.clone(),
            images,
            entries: Mutex::default(),
            reads: Semaphore::new(PARALLEL_READS),
            shared: Arc::new(SharedImages::new(memory.clone())),
            memory,
            states: Waker::default(),
            contents: Waker::default(),
        })
    }

    pub(crate) fn images(&self) -> &Arc<dyn ImageSource> {
        &self.images
    }

    /// The state of the connection, which is begun if there is none. `None`: the spec names nothing that can be read.
    pub(crate) fn state(self: &Arc<Self>, source: &Arc<CatalogSource>) -> Option<ConnectionState> {
        self.entry(source).map(|entry| entry.link.borrow().state)
    }

    /// Whether what serves the catalog is there: the process itself, and the ConfigMap if it is one. Until it is known whether that
    /// exists, it counts as there: a process that starts reports no other health than the one before.
    pub(crate) fn is_served(self: &Arc<Self>, source: &Arc<CatalogSource>) -> bool {
        self.entry(source).is_some_and(|entry| match &entry.backed {
            Backed::Image { .. } | Backed::Address(_) => true,
            Backed::ConfigMap(_) => {
                let link = entry.link.borrow();
                link.config_map.is_some() || link.state == ConnectionState::Connecting
            }
        })
    }

    /// Why the last attempt to connect, to pull or to read failed, what to change, and what is in use meanwhile.
    pub(crate) fn problem(&self, key: &str) -> Option<String> {
        let entry = self.entries.lock().get(key).cloned()?;
        entry.problem()
    }

    /// The ConfigMap of a catalog, as it was read.
    pub(crate) fn config_map(&self, key: &str) -> Option<ConfigMapReference> {
        let entry = self.entries.lock().get(key).cloned()?;
        entry.link.borrow().config_map.clone()
    }

    /// Whether the content of a catalog can be read, and how often it was.
    pub(super) fn reads(&self, key: &str) -> (bool, u64) {
        let entry = self.entries.lock().get(key).cloned();
        entry.map_or((false, 0), |entry| {
            let is_ready = entry.link.borrow().state == ConnectionState::Ready;
            (is_ready, entry.snapshots.load(Ordering::Relaxed))
        })
    }

    /// Whether the catalog has never been connected in this process.
    pub(crate) fn is_first(&self, key: &str) -> bool {
        let entry = self.entries.lock().get(key).cloned();
        entry.is_none_or(|entry| entry.link.borrow().generation == 0)
    }

    /// Resolves the tag of the image again.
    pub(crate) fn poll(&self, key: &str) {
        if let Some(entry) = self.entries.lock().get(key) {
            entry.poll.notify_one();
        }
    }

    /// Ends the connection of a catalog.
    pub(crate) fn remove(&self, key: &str) {
        self.entries.lock().remove(key);
    }

    /// Ends the connections of catalogs that are gone. Each controller makes connections, and a pass may end after its catalog is deleted.
    pub(crate) fn evict_gone(&self, sources: &Objects<CatalogSource>) {
        let mut entries: Vec<_> =
            self.entries.lock().iter().map(|(key, entry)| (key.clone(), Arc::clone(entry))).collect();
        entries.retain(|(key, entry)| sources.find(key).is_none_or(|source| source.uid() != entry.uid));
        for (key, gone) in entries {
            let mut entries = self.entries.lock();
            // it may have been replaced since
            if entries.get(&key).is_some_and(|entry| Arc::ptr_eq(entry, &gone)) {
                entries.remove(&key);
            }
        }
    }

    /// The content in use. No connection is begun: at the end of a pass the catalog may be another one, or gone.
    pub(crate) fn cached(&self, source: &CatalogSource) -> Option<Arc<Snapshot>> {
        let backed = Backed::from_spec(&source.spec)?;
        let entry = self.entries.lock().get(&watched::key(&source.metadata)).cloned();
        entry.filter(|entry| entry.is_for(source, &backed))?.in_use()
    }

    /// The content. Waits for a connection that is being made. That of an image stays in use until the next one was read.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) async fn content(
        self: &Arc<Self>,
        source: &Arc<CatalogSource>,
    ) -> Result<Arc<Snapshot>, String> {
        let invalid = |error: SpecError| format!("failed to list bundles: {error}; {}", error.fix());
        let Some(entry) = self.entry(source) else {
            return Err(validate(&source.spec).err().map(invalid).unwrap_or_default());
        };
        let failed =
            |error: CatalogError| format!("failed to list bundles: {}", entry.backed.explain(&error));
        let mut link = entry.link.subscribe();
        let made = link.wait_for(|link| link.state != ConnectionState::Connecting || link.problem.is_some());
        // the sender lives as long as the entry
        let _ = tokio::time::timeout(CONNECT_TIMEOUT, made).await;
        let _reading = entry.reading.lock().await;
        if let Some(outcome) = entry.outcome() {
            return outcome.map_err(failed);
        }
        let link = entry.link.borrow().clone();
        let Some(origin) = link.origin.filter(|_| link.state == ConnectionState::Ready) else {
            let not_yet = || CatalogError::Source("not connected yet".to_owned());
            return Err(failed(link.problem.unwrap_or_else(not_yet)));
        };
        let outcome = self.read(origin).await;
        if outcome.is_ok() {
            entry.snapshots.fetch_add(1, Ordering::Relaxed);
        }
        let (content, is_other_status) = entry.record(link.generation, outcome);
        if is_other_status {
            self.states.wake(&watched::key(&source.metadata));
        }
        content.map_err(failed)
    }

    /// Reads what no other catalog has read: one image is in memory once, also if several CatalogSources name it.
    async fn read(self: &Arc<Self>, origin: Origin) -> Result<Arc<Snapshot>, CatalogError> {
        let shared = origin.image().map(|image| Arc::clone(&image.shared));
        let Some(shared) = shared else { return self.read_alone(origin, self.memory.reserve()).await };
        let (mut last, has_waited) = match Arc::clone(&shared.read).try_lock_owned() {
            Ok(last) => (last, false),
            Err(_) => (Arc::clone(&shared.read).lock_owned().await, true),
        };
        if let Some(outcome) = last.as_ref().and_then(|last| last.outcome(has_waited)) {
            return outcome;
        }
        // of the next one only its own outcome counts, also if it panics
        *last = None;
        let catalogs = Arc::clone(self);
        // the thread that reads does not end with a caller that is cancelled: until it does, the next one waits
        let reading = tokio::spawn(async move {
            let outcome = catalogs.read_alone(origin, shared.memory.more()).await;
            *last = Some(SharedRead::new(&outcome));
            outcome
        });
        reading.await.unwrap_or_else(|error| Err(CatalogError::interrupted(error)))
    }

    async fn read_alone(&self, origin: Origin, memory: Reservation) -> Result<Arc<Snapshot>, CatalogError> {
        let permit = self.reads.acquire().await;
        let _permit = permit.map_err(|error| CatalogError::Source(error.to_string()))?;
        Snapshot::read(origin, memory).await.map(Arc::new)
    }

    fn entry(self: &Arc<Self>, source: &Arc<CatalogSource>) -> Option<Arc<Entry>> {
        let key = watched::key(&source.metadata);
        let Some(backed) = Backed::from_spec(&source.spec) else {
            // what an earlier specification named is not read any more
            self.remove(&key);
            return None;
        };
        let mut entries = self.entries.lock();
        let before = entries.get(&key);
        if let Some(known) = before.filter(|entry| entry.is_for(source, &backed)) {
            return Some(Arc::clone(known));
        }
        let entry = Arc::new(Entry::new(source, backed, before));
        let keeping = Keeping {
            key: key.clone(),
            link: entry.link.clone(),
            read: Arc::clone(&entry.read),
            poll: Arc::clone(&entry.poll),
            states: self.states.clone(),
            contents: self.contents.clone(),
        };
        let (images, source, backed) = (Arc::clone(&self.images), Arc::clone(source), entry.backed.clone());
        let (client, shared) = (self.client.clone(), Arc::clone(&self.shared));
        let kept = async move {
            match &backed {
                Backed::Address(address) => keeping.connection(address).await,
                Backed::Image { image, .. } => keeping.image(&*images, &shared, &source, image).await,
                Backed::ConfigMap(name) => {
                    let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
                    keeping.config_map(&Api::namespaced(client, namespace), name, &source).await;
                }
            }
        };
        let kept = async move { task::supervised("connection of a catalog", kept).await };
        *entry.task.lock() = Some(AbortOnDropHandle::new(tokio::spawn(kept)));
        entries.insert(key, Arc::clone(&entry));
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use futures::{FutureExt as _, StreamExt as _};
    use olm_bundle::BundleLimits;
    use serde_json::json;
    use tempfile::TempDir;

    use super::super::link::{MAX_BACKOFF, RETRY_INTERVAL};
    use super::super::testing::{Registry, image_catalogs, source};
    use super::*;
    use crate::images::Images;
    use crate::testing::{Apiserver, failure, failure_with};

    fn catalogs(apiserver: &Apiserver) -> (Arc<Catalogs>, TempDir) {
        let cache = tempfile::tempdir().unwrap();
        let limits = (olm_oci::Limits::bundle(), BundleLimits::default());
        let images =
            Images::open(apiserver.client(), cache.path(), olm_oci::Config::default(), limits).unwrap();
        (Catalogs::new(&apiserver.client(), Arc::new(images)), cache)
    }

    /// The list has the ConfigMap until it is gone; a watch ends immediately, and the next list shows the change.
    #[tokio::test(start_paused = true)]
    async fn config_map_content_ends_with_the_config_map() {
        let is_gone = Arc::new(AtomicBool::new(false));
        let gone = Arc::clone(&is_gone);
        let expired = json!({"type": "ERROR", "object": failure(410, "Expired").1});
        let apiserver = Apiserver::new(move |_, uri| {
            if uri.contains("watch=") {
                return (200, expired.clone());
            }
            let metadata = json!({"name": "content", "namespace": "ns", "uid": "u", "resourceVersion": "1"});
            let found =
                if gone.load(Ordering::Relaxed) { json!([]) } else { json!([{"metadata": metadata}]) };
            (200, json!({"metadata": {"resourceVersion": "1"}, "items": found}))
        });
        let (catalogs, _cache) = catalogs(&apiserver);
        let source = source(json!({"sourceType": "configmap", "configMap": "content"}));
        assert!(catalogs.is_served(&source), "it is not known yet whether it exists");
        catalogs.content(&source).await.map(|_| ()).unwrap();
        assert!(catalogs.cached(&source).is_some() && catalogs.is_served(&source));
        is_gone.store(true, Ordering::Relaxed);
        let mut woken = pin!(catalogs.contents.names());
        while woken.next().now_or_never().is_some() {}
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(woken.next().now_or_never().is_some(), "Subscriptions report another health");
        let error = catalogs.content(&source).await.err().unwrap();
        assert!(error.starts_with("failed to list bundles: ConfigMap content not found; "), "{error}");
        assert!(catalogs.cached(&source).is_none() && !catalogs.is_served(&source));
    }

    #[tokio::test(start_paused = true)]
    async fn config_map_that_may_not_be_read_is_reported() {
        let apiserver = Apiserver::new(|_, _| failure_with(403, "Forbidden", "configmaps is forbidden"));
        let (catalogs, _cache) = catalogs(&apiserver);
        let source = source(json!({"sourceType": "configmap", "configMap": "content"}));
        let error = catalogs.content(&source).await.err().unwrap();
        assert!(error.contains("configmaps is forbidden"), "{error}");
        assert!(error.ends_with("which spec.configMap of the CatalogSource names, or the field"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn cached_image_is_used_at_start_and_reported() {
        for is_cached in [true, false] {
            let is_out = AtomicBool::new(true);
            let registry = Arc::new(Registry { is_out, is_cached, ..Registry::default() });
            let (catalogs, source) = image_catalogs(&registry);
            assert_eq!(catalogs.content(&source).await.is_ok(), is_cached);
            let state = if is_cached { ConnectionState::Ready } else { ConnectionState::TransientFailure };
            assert_eq!(catalogs.state(&source), Some(state));
            let problem = catalogs.problem("ns/c").unwrap();
            assert!(problem.starts_with("connection refused; correct spec.image"), "{problem}");
            let reports_cache = problem.ends_with("; registry.test/c@sha256:1 stays in use");
            assert_eq!(reports_cache, is_cached, "{problem}");
            registry.is_out.store(false, Ordering::Relaxed);
            tokio::time::sleep(MAX_BACKOFF * 2).await;
            assert_eq!((catalogs.problem("ns/c"), catalogs.content(&source).await.is_ok()), (None, true));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn read_error_is_reported_and_counts_for_a_time() {
        let packages = vec!["p".to_owned()];
        let registry = Arc::new(Registry { packages, ..Registry::default() });
        let (catalogs, source) = image_catalogs(&registry);
        for (wait, want) in [(Duration::ZERO, 1), (RETRY_INTERVAL / 2, 1), (RETRY_INTERVAL, 2)] {
            tokio::time::sleep(wait).await;
            let error = catalogs.content(&source).await.err().unwrap();
            assert!(error.contains("cannot read package \"p\": disk full; correct spec.image"), "{error}");
            assert_eq!(registry.reads.load(Ordering::Relaxed), want, "after {wait:?}");
            let problem =
                catalogs.problem("ns/c").map(|problem| format!("failed to list bundles: {problem}"));
            assert_eq!(problem, Some(error));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn image_of_several_catalogs_is_in_memory_once() {
        // more than half of what all catalogs may take
        let registry = Arc::new(Registry { memory: 127 << 20, ..Registry::default() });
        let (catalogs, first) = image_catalogs(&registry);
        let named = |name: &str| {
            let mut other = CatalogSource::clone(&first);
            other.metadata.name = Some(name.to_owned());
            other.spec.image = "mirror.test/c:v1".to_owned();
            Arc::new(other)
        };
        let (second, third) = (named("d"), named("e"));
        let (read, shared) = tokio::join!(catalogs.content(&first), catalogs.content(&second));
        let read = read.unwrap();
        for shared in [shared, catalogs.content(&third).await] {
            assert!(Arc::ptr_eq(&read, &shared.unwrap()));
        }
        assert_eq!(registry.lists.load(Ordering::Relaxed), 1, "one reads it, the others wait");
        for name in ["ns/c", "ns/d", "ns/e"] {
            assert_eq!(catalogs.reads(name), (true, 1), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_read_of_an_image_is_shared_by_those_that_wait() {
        let packages = vec!["p".to_owned()];
        let registry = Arc::new(Registry { packages, ..Registry::default() });
        let (catalogs, first) = image_catalogs(&registry);
        let named = |name: &str| {
            let mut other = CatalogSource::clone(&first);
            other.metadata.name = Some(name.to_owned());
            Arc::new(other)
        };
        let (second, third) = (named("d"), named("e"));
        for (wait, want) in [(Duration::ZERO, 1), (RETRY_INTERVAL, 3)] {
            tokio::time::sleep(wait).await;
            let (read, shared) = tokio::join!(catalogs.content(&first), catalogs.content(&second));
            for error in [read.err().unwrap(), shared.err().unwrap()] {
                assert!(error.contains("cannot read package \"p\": disk full"), "{error}");
            }
            assert_eq!(registry.reads.load(Ordering::Relaxed), want, "after {wait:?}");
            assert!(catalogs.content(&third).await.is_err());
            assert_eq!(registry.reads.load(Ordering::Relaxed), want + 1, "the cause may be gone");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn cancelled_read_of_an_image_ends_before_the_next() {
        let (packages, is_held) = (vec!["p".to_owned()], Arc::new(AtomicBool::new(true)));
        let registry = Arc::new(Registry { packages, is_held, ..Registry::default() });
        let (catalogs, source) = image_catalogs(&registry);
        let read = || {
            let (catalogs, source) = (Arc::clone(&catalogs), Arc::clone(&source));
            tokio::spawn(async move { catalogs.content(&source).await.err() })
        };
        let cancelled = read();
        while registry.lists.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
        let next = read();
        tokio::time::sleep(Duration::from_millis(100)).await;
        registry.is_held.store(false, Ordering::Relaxed);
        let error = next.await.unwrap().unwrap();
        assert!(error.contains("disk full"), "{error}");
        assert_eq!(registry.lists.load(Ordering::Relaxed), 1, "its memory counts once");
    }

    #[tokio::test(start_paused = true)]
    async fn image_that_does_not_fit_into_memory_is_reported() {
        let registry = Arc::new(Registry { memory: 129 << 20, ..Registry::default() });
        let (catalogs, source) = image_catalogs(&registry);
        let error = catalogs.content(&source).await.err().unwrap();
        let want = "failed to list bundles: the content does not fit: it takes more than the limit of 134217728 bytes of memory, \
                    at least 135266304; use a catalog with fewer packages or bundles";
        assert_eq!(error, want, "neither the image nor its pull secret is wrong");
        assert_eq!(catalogs.state(&source), Some(ConnectionState::TransientFailure));
        assert_eq!(catalogs.problem("ns/c").map(|it| format!("failed to list bundles: {it}")), Some(error));
        for (wait, poll, want) in [(5, true, 1), (15, false, 2), (10, true, 3), (600, false, 5)] {
            if poll {
                catalogs.poll("ns/c");
            }
            tokio::time::sleep(Duration::from_secs(wait)).await;
            assert_eq!(registry.pulls.load(Ordering::Relaxed), want, "after further {wait} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_image_is_pulled_again_later() {
        for (is_final, want, fix) in [
            (false, 7, "or name a pull secret in spec.secrets"),
            (true, 2, "of the CatalogSource, or what the image contains"),
        ] {
            let registry =
                Arc::new(Registry { is_out: AtomicBool::new(true), is_final, ..Registry::default() });
            let (catalogs, source) = image_catalogs(&registry);
            let error = catalogs.content(&source).await.err().unwrap();
            assert!(error.contains("connection refused; correct spec.image"), "{error}");
            assert!(error.ends_with(fix), "{error}");
            tokio::time::sleep(Duration::from_secs(40)).await;
            assert_eq!(registry.pulls.load(Ordering::Relaxed), want, "{is_final}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn image_update_needs_memory_for_its_growth() {
        let registry = Arc::new(Registry { memory: 100 << 20, ..Registry::default() });
        let (catalogs, source) = image_catalogs(&registry);
        let mut other = catalogs.memory.reserve();
        other.add(128 << 20).unwrap();
        // a pass that uses the first one
        let first = catalogs.content(&source).await.unwrap();
        let update = async || {
            registry.updates.fetch_add(1, Ordering::Relaxed);
            catalogs.poll("ns/c");
            tokio::time::sleep(MAX_BACKOFF).await;
            (catalogs.content(&source).await.unwrap(), catalogs.problem("ns/c").unwrap_or_default())
        };
        let (second, problem) = update().await;
        assert!(!Arc::ptr_eq(&first, &second) && problem.is_empty(), "{problem}");
        let (third, problem) = update().await;
        assert!(Arc::ptr_eq(&second, &third), "the memory of the first one is not free yet");
        assert!(problem.contains("all catalogs takes more than the limit of 268435456 bytes"), "{problem}");
        assert!(problem.ends_with("; registry.test/c@sha256:2 stays in use"), "{problem}");
        drop(first);
        let (fourth, problem) = update().await;
        assert!(!Arc::ptr_eq(&second, &fourth) && problem.is_empty(), "{problem}");
    }

    #[tokio::test(start_paused = true)]
    async fn catalog_ends_when_its_spec_names_nothing() {
        let registry = Arc::new(Registry::default());
        let (catalogs, valid) = image_catalogs(&registry);
        catalogs.content(&valid).await.map(|_| ()).unwrap();
        assert_eq!(catalogs.reads("ns/c"), (true, 1));
        assert_eq!(catalogs.state(&source(json!({"sourceType": "grpc"}))), None);
        assert_eq!((catalogs.reads("ns/c"), catalogs.problem("ns/c")), ((false, 0), None));
    }

    /// The CatalogSource was deleted, or changed, after a pass had read it.
    #[tokio::test(start_paused = true)]
    async fn cached_content_begins_no_connection() {
        let (catalogs, before) = image_catalogs(&Arc::default());
        catalogs.content(&before).await.map(|_| ()).unwrap();
        catalogs.remove("ns/c");
        assert!(catalogs.cached(&before).is_none() && catalogs.entries.lock().is_empty());
        let after = source(json!({"sourceType": "grpc", "image": "registry.test/c:v2"}));
        catalogs.content(&after).await.map(|_| ()).unwrap();
        assert!(catalogs.cached(&before).is_none() && catalogs.cached(&after).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn catalogs_that_are_gone_are_evicted() {
        let (catalogs, deleted) = image_catalogs(&Arc::default());
        let named = |name: &str, uid: &str| {
            let mut source = CatalogSource::clone(&deleted);
            source.metadata.name = Some(name.to_owned());
            source.metadata.uid = Some(uid.to_owned());
            source
        };
        for (name, uid) in [("c", "1"), ("replaced", "2"), ("present", "3")] {
            catalogs.content(&Arc::new(named(name, uid))).await.map(|_| ()).unwrap();
        }
        let sources = Objects::<CatalogSource>::empty();
        for (name, uid) in [("replaced", "4"), ("present", "3")] {
            sources.insert(format!("ns/{name}"), watched::Object::new(named(name, uid)));
        }
        catalogs.evict_gone(&sources);
        assert!(catalogs.entries.lock().keys().eq(["ns/present"]));
    }

    #[tokio::test(start_paused = true)]
    async fn pulled_image_stays_in_use_after_an_error() {
        let registry = Arc::new(Registry::default());
        let (catalogs, source) = image_catalogs(&registry);
        catalogs.content(&source).await.map(|_| ()).unwrap();
        assert_eq!(catalogs.problem("ns/c"), None);
        let want = "connection refused; correct spec.image \"registry.test/c:v1\" of the CatalogSource, or name a pull secret \
                    in spec.secrets; registry.test/c@sha256:1 stays in use";
        for (is_out, want) in [(true, Some(want)), (false, None)] {
            registry.is_out.store(is_out, Ordering::Relaxed);
            catalogs.poll("ns/c");
            tokio::time::sleep(MAX_BACKOFF * 2).await;
            assert_eq!(catalogs.problem("ns/c").as_deref(), want);
            assert!(catalogs.cached(&source).is_some(), "{is_out}");
            assert_eq!(catalogs.state(&source), Some(ConnectionState::Ready));
        }
    }

    #[tokio::test]
    #[rustfmt::skip]
    async fn catalog_errors_name_field_and_fix() {
        let apiserver = Apiserver::new(|_, uri| match uri.contains("fieldSelector") {
            true => (200, json!({"metadata": {"resourceVersion": "1"}, "items": []})),
            false => failure(404, "NotFound"),
        });
        let (catalogs, _cache) = catalogs(&apiserver);
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (spec, begin, end) in [
            (json!({"sourceType": "grpc"}), "failed to list bundles: image and address unset",
                "; set spec.image to the image of a catalog".to_owned()),
            (json!({"sourceType": "configmap", "configMap": "content"}), "failed to list bundles: ConfigMap content not found",
                "; correct ConfigMap content, which spec.configMap of the CatalogSource names, or the field".to_owned()),
            (json!({"sourceType": "grpc", "address": unused.to_string()}), "failed to list bundles: ",
                format!("; start the registry at spec.address \"{unused}\" of the CatalogSource, or correct the field")),
        ] {
            let error = catalogs.content(&source(spec)).await.err().unwrap();
            assert!(error.starts_with(begin) && error.ends_with(&end), "{error}");
            let in_status =
                catalogs.problem("ns/c").map(|problem| format!("failed to list bundles: {problem}"));
            assert!(in_status.is_none_or(|it| it == error), "{error}");
        }
    }
}
