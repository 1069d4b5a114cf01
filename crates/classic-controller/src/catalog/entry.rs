//! One catalog of the process: its connection or image, and the content that was read from it.
//!
//! Rule: classic-apis §2.4 and §2.5.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use kube::ResourceExt as _;
use olm_api::classic::CatalogSource;
use olm_classic::catalog_source::ConnectionState;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::backed::Backed;
use super::error::CatalogError;
use super::link::{Link, RETRY_INTERVAL, ReadAttempt};
use super::memory::MemoryError;
use super::snapshot::{Origin, Snapshot};

/// A catalog.
pub(super) struct Entry {
    pub(super) uid: Option<String>,
    pub(super) backed: Backed,
    pub(super) link: watch::Sender<Link>,
    pub(super) poll: Arc<Notify>,
    /// The last attempt to read the content.
    pub(super) read: Arc<Mutex<Option<ReadAttempt>>>,
    /// How often the content was read.
    pub(super) snapshots: AtomicU64,
    pub(super) reading: tokio::sync::Mutex<()>,
    pub(super) task: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Entry {
    /// Not connected yet. `before` is of an earlier specification: if both are images of the same CatalogSource, its content is in use until
    /// that of the new one was read, or the new one cannot be pulled.
    pub(super) fn new(source: &CatalogSource, backed: Backed, before: Option<&Arc<Self>>) -> Self {
        let uid = source.uid();
        let is_image = matches!(backed, Backed::Image { .. });
        let earlier =
            before.filter(|it| is_image && it.is_image() && it.uid == uid).and_then(|it| it.in_use());
        let origin = earlier.as_ref().map(|earlier| earlier.origin.clone());
        let read = earlier.map(|earlier| ReadAttempt {
            generation: 0,
            at: Instant::now(),
            outcome: Ok(earlier),
            earlier: None,
        });
        Self {
            uid,
            backed,
            link: watch::Sender::new(Link { origin, ..Link::new() }),
            poll: Arc::default(),
            read: Arc::new(Mutex::new(read)),
            snapshots: AtomicU64::default(),
            reading: tokio::sync::Mutex::default(),
            task: Mutex::default(),
        }
    }

    pub(super) fn is_for(&self, source: &CatalogSource, backed: &Backed) -> bool {
        self.backed == *backed && self.uid == source.uid()
    }

    fn is_image(&self) -> bool {
        matches!(self.backed, Backed::Image { .. })
    }

    /// The content in use: that of an image until that of the next one was read. Without a connection there is none, except that of an
    /// earlier specification: what was read before may be gone.
    pub(super) fn in_use(&self) -> Option<Arc<Snapshot>> {
        let Link { state, generation, .. } = *self.link.borrow();
        let read = self.read.lock();
        // a read of something else than an image may end after its connection did
        let counts = |it: &&ReadAttempt| self.is_image() || it.generation == generation;
        read.as_ref().filter(counts).filter(|_| may_be_used(state, generation))?.content().ok()
    }

    /// The outcome of the last attempt to read the content, if it counts: content as long as the connection, which is another one when there
    /// may be other content; an error, or the content that is in use because of it, for a time.
    pub(super) fn outcome(&self) -> Option<Result<Arc<Snapshot>, CatalogError>> {
        let Link { state, generation, .. } = *self.link.borrow();
        let read = self.read.lock();
        let read = read.as_ref().filter(|it| it.generation == generation)?;
        let counts = read.outcome.is_ok() || read.at.elapsed() < RETRY_INTERVAL;
        (may_be_used(state, generation) && counts).then(|| read.content())
    }

    /// Records the outcome of an attempt to read the content. Returns the content in use, and whether the status is another one.
    pub(super) fn record(
        &self,
        generation: u64,
        outcome: Result<Arc<Snapshot>, CatalogError>,
    ) -> (Result<Arc<Snapshot>, CatalogError>, bool) {
        let is_error = outcome.is_err();
        let mut read = self.read.lock();
        let earlier = read.as_ref().filter(|_| is_error && self.is_image()).and_then(|it| it.content().ok());
        let attempt = ReadAttempt { generation, at: Instant::now(), outcome, earlier };
        let content = attempt.content();
        let before = read.replace(attempt);
        // before the earlier content is dropped, which takes a while
        drop(read);
        (content, is_error || before.is_some_and(|it| it.outcome.is_err()))
    }

    /// Why the last attempt to connect, to pull or to read failed, what to change, and what is in use meanwhile.
    pub(super) fn problem(&self) -> Option<String> {
        let Link { state, origin, problem, generation, .. } = self.link.borrow().clone();
        let read = self.read.lock();
        let last = read.as_ref().filter(|it| it.generation == generation);
        let error = problem.as_ref().or_else(|| last?.outcome.as_ref().err())?;
        let text = self.backed.explain(error);
        let content = read.as_ref().and_then(|it| it.content().ok());
        let in_use = match &content {
            Some(content) => Some(&content.origin),
            // it was pulled, and is read when it is used
            None => origin.as_ref().filter(|_| problem.is_some()),
        };
        let image = in_use.and_then(Origin::image).filter(|_| state == ConnectionState::Ready);
        let Some(image) = image else { return Some(text) };
        let wait = match error {
            CatalogError::Memory(MemoryError::AllCatalogs { .. }) => "the update waits for memory: ",
            CatalogError::Memory(MemoryError::Catalog { .. })
            | CatalogError::Source(_)
            | CatalogError::Rejected(_) => "",
        };
        Some(format!("{wait}{text}; {} stays in use", image.content.reference()))
    }
}

/// Whether content that was read counts. Before the first connection it is that of an image of an earlier specification.
fn may_be_used(state: ConnectionState, generation: u64) -> bool {
    state == ConnectionState::Ready || (state == ConnectionState::Connecting && generation == 0)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use futures::{FutureExt as _, StreamExt as _};
    use serde_json::json;

    use super::super::link::MAX_BACKOFF;
    use super::super::testing::{Registry, image_catalogs, source};
    use super::*;

    fn of_image(image: &str) -> Arc<CatalogSource> {
        source(json!({"sourceType": "grpc", "image": image}))
    }

    #[tokio::test(start_paused = true)]
    async fn image_update_waits_for_memory() {
        for is_other_spec in [false, true] {
            let packages = vec!["p".to_owned()];
            let registry = Arc::new(Registry { packages, bytes: 600 << 10, ..Registry::default() });
            let (catalogs, before) = image_catalogs(&registry);
            // all but 1 MiB of two catalogs
            let mut others = [catalogs.memory.reserve(), catalogs.memory.reserve()];
            others[0].add(128 << 20).unwrap();
            others[1].add(127 << 20).unwrap();
            let first = catalogs.content(&before).await.unwrap();
            registry.updates.fetch_add(1, Ordering::Relaxed);
            catalogs.poll("ns/c");
            let after = if is_other_spec { of_image("registry.test/c:v2") } else { before };
            tokio::time::sleep(Duration::from_secs(1)).await;
            // two passes
            for _ in 0..2 {
                let used = catalogs.content(&after).await.unwrap();
                let cached = catalogs.cached(&after).unwrap();
                assert!(Arc::ptr_eq(&first, &used) && Arc::ptr_eq(&first, &cached), "{is_other_spec}");
            }
            assert_eq!(registry.lists.load(Ordering::Relaxed), 2, "{is_other_spec}");
            assert_eq!(catalogs.state(&after), Some(ConnectionState::Ready), "{is_other_spec}");
            let problem = catalogs.problem("ns/c").unwrap();
            let begin = "the update waits for memory: the content does not fit: with at least 61";
            let end = " bytes of memory; delete CatalogSources that are not needed, or use a smaller catalog; \
                       registry.test/c@sha256:1 stays in use";
            assert!(problem.starts_with(begin) && problem.ends_with(end), "{is_other_spec}: {problem}");
            let mut woken = pin!(catalogs.contents.names());
            while woken.next().now_or_never().is_some() {}
            tokio::time::sleep(RETRY_INTERVAL * 3).await;
            assert!(woken.next().now_or_never().is_some(), "{is_other_spec}: passes read it again");
            drop(others);
            let updated = catalogs.content(&after).await.unwrap();
            assert!(!Arc::ptr_eq(&first, &updated), "{is_other_spec}");
            assert_eq!(catalogs.problem("ns/c"), None, "{is_other_spec}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn image_of_another_spec_is_used_when_its_index_fits() {
        let registry = Arc::new(Registry { memory: 100 << 20, ..Registry::default() });
        let (catalogs, before) = image_catalogs(&registry);
        let mut other = catalogs.memory.reserve();
        other.add(128 << 20).unwrap();
        // a pass that uses the first one
        let first = catalogs.content(&before).await.unwrap();
        registry.updates.fetch_add(1, Ordering::Relaxed);
        catalogs.poll("ns/c");
        tokio::time::sleep(MAX_BACKOFF).await;
        let second = catalogs.content(&before).await.unwrap();
        registry.updates.fetch_add(1, Ordering::Relaxed);
        let after = of_image("registry.test/c:v2");
        for (is_out, begin) in [
            (false, "the update waits for memory: the content does not fit: "),
            (true, "connection refused; "),
        ] {
            registry.is_out.store(is_out, Ordering::Relaxed);
            let _ = catalogs.state(&after);
            tokio::time::sleep(Duration::from_secs(600)).await;
            let used = catalogs.content(&after).await.unwrap();
            assert!(Arc::ptr_eq(&second, &used), "{is_out}");
            assert_eq!(catalogs.state(&after), Some(ConnectionState::Ready), "{is_out}");
            let problem = catalogs.problem("ns/c").unwrap();
            assert!(problem.starts_with(begin), "{problem}");
            assert!(problem.ends_with("; registry.test/c@sha256:2 stays in use"), "{problem}");
        }
        registry.is_out.store(false, Ordering::Relaxed);
        drop(first);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let third = catalogs.content(&after).await.unwrap();
        assert!(!Arc::ptr_eq(&second, &third));
        assert_eq!(catalogs.problem("ns/c"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn image_of_an_earlier_spec_is_used_during_the_pull() {
        for is_out in [false, true] {
            let registry = Arc::new(Registry::default());
            let (catalogs, before) = image_catalogs(&registry);
            let first = catalogs.content(&before).await.unwrap();
            registry.is_slow.store(true, Ordering::Relaxed);
            registry.is_out.store(is_out, Ordering::Relaxed);
            let after = of_image("registry.test/other:v1");
            assert!(Arc::ptr_eq(&first, &catalogs.content(&after).await.unwrap()), "{is_out}");
            assert!(catalogs.cached(&after).is_some(), "{is_out}");
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(catalogs.content(&after).await.is_err(), is_out);
            assert_eq!(catalogs.cached(&after).is_none(), is_out);
            let other = source(json!({"sourceType": "grpc", "address": "127.0.0.1:1"}));
            let _ = catalogs.state(&other);
            assert!(catalogs.cached(&other).is_none(), "{is_out}: an address is no update of an image");
        }
    }
}
