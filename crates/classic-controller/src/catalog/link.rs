//! The connection of one catalog: to its registry, the image of its tag, or its ConfigMap.
//!
//! Rule: classic-apis §2.4 and §2.5.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use olm_api::classic::catalog_source::ConfigMapReference;
use olm_api::classic::{CatalogSource, Time};
use olm_catalog::registry::Registry;
use olm_classic::catalog_source::{ConnectionState, SNAPSHOT_LIFETIME};
use olm_classic::operator_group::keys::MANAGED;
use olm_runtime::controller::Waker;
use olm_runtime::error_text::chain;
use olm_runtime::watched;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::config_map::ConfigMapCatalog;
use super::error::CatalogError;
use super::shared::SharedImages;
use super::snapshot::{Origin, Snapshot};
use crate::context::MANAGER;
use crate::image_source::ImageSource;

/// The longest wait between two attempts to connect or to pull.
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// How long the error of an attempt to read the content counts: namespaces that wait for it do not repeat it one after the other.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// How many times as long the wait is after an image whose content is rejected, cannot be read, or does not fit into memory: each attempt
/// reads it whole, and another one helps only when the tag or other CatalogSources have changed.
const REJECTED_BACKOFF: u32 = 30;

/// The connection of a catalog.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) state: ConnectionState,
    pub(super) origin: Option<Origin>,
    pub(super) problem: Option<CatalogError>,
    /// The ConfigMap that was read.
    pub(super) config_map: Option<ConfigMapReference>,
    /// Counts the origins. 0: there is none yet, or that of an image of an earlier specification.
    pub(super) generation: u64,
}

impl Link {
    /// Before the first attempt has ended.
    pub(super) fn new() -> Self {
        Self {
            state: ConnectionState::Connecting,
            origin: None,
            problem: None,
            config_map: None,
            generation: 0,
        }
    }
}

/// An attempt to read the content of a catalog.
pub(super) struct ReadAttempt {
    /// Of the link.
    pub(super) generation: u64,
    pub(super) at: Instant,
    pub(super) outcome: Result<Arc<Snapshot>, CatalogError>,
    /// What was read of the image before, in use as long as this one cannot be read.
    pub(super) earlier: Option<Arc<Snapshot>>,
}

impl ReadAttempt {
    /// The content in use, or why there is none.
    pub(super) fn content(&self) -> Result<Arc<Snapshot>, CatalogError> {
        self.outcome.clone().or_else(|error| self.earlier.clone().ok_or(error))
    }
}

/// Keeps the connection of one catalog.
pub(super) struct Keeping {
    pub(super) key: String,
    pub(super) link: watch::Sender<Link>,
    /// The last attempt to read the content.
    pub(super) read: Arc<Mutex<Option<ReadAttempt>>>,
    pub(super) poll: Arc<Notify>,
    pub(super) states: Waker,
    pub(super) contents: Waker,
}

impl Keeping {
    fn set(&self, state: ConnectionState, origin: Option<Origin>, problem: Option<CatalogError>) {
        let has_content = origin.is_some();
        let is_image = origin.as_ref().is_some_and(|origin| origin.image().is_some());
        let Link { state: before, problem: earlier, .. } = self.link.borrow().clone();
        let is_other_problem = problem != earlier;
        self.link.send_modify(|link| {
            link.state = state;
            link.problem = problem;
            if state != ConnectionState::Ready {
                link.origin = None;
            }
            if let Some(origin) = origin {
                link.origin = Some(origin);
                link.generation += 1;
            }
        });
        // what was read of an earlier connection does not count any more, and leaves its memory to others; that of an image is in use until
        // that of the next one was read
        if (has_content && !is_image) || state != ConnectionState::Ready {
            self.read.lock().take_if(|attempt| attempt.content().is_ok());
        }
        if state != before || is_other_problem {
            self.states.wake(&self.key);
        }
        if has_content {
            self.contents.wake(&self.key);
        }
    }

    pub(super) async fn connection(&self, address: &str) {
        let mut failures = 0;
        loop {
            match Registry::connect(address).await {
                Ok(registry) => {
                    let begin = Instant::now();
                    let origin = Origin::Registry(registry.clone());
                    self.set(ConnectionState::Ready, Some(origin.clone()), None);
                    self.refresh(&origin, registry.closed()).await;
                    tracing::info!(catalog = self.key, "connection closed");
                    self.set(ConnectionState::Connecting, None, None);
                    let (wait, in_a_row) = after_end(begin.elapsed(), failures);
                    failures = in_a_row;
                    tokio::time::sleep(wait).await;
                }
                Err(error) => {
                    let problem = error.to_string();
                    tracing::info!(catalog = self.key, error = problem, "cannot connect");
                    self.set(ConnectionState::TransientFailure, None, Some(CatalogError::Source(problem)));
                    tokio::time::sleep(backoff(failures)).await;
                    failures += 1;
                }
            }
        }
    }

    /// Until the connection is `closed`, has its content read again after each lifetime in which it was used: a registry reports no change.
    async fn refresh(&self, origin: &Origin, closed: impl Future<Output = ()>) {
        let mut closed = pin!(closed);
        while timeout(SNAPSHOT_LIFETIME, &mut closed).await.is_err() {
            let generation = self.link.borrow().generation;
            let is_used = self.read.lock().as_ref().is_some_and(|it| it.generation == generation);
            if is_used {
                self.set(ConnectionState::Ready, Some(origin.clone()), None);
            }
        }
    }

    /// Bytes of the index of the image that is used, until another takes its place.
    fn index_memory(&self) -> usize {
        let link = self.link.borrow();
        link.origin.as_ref().and_then(Origin::image).map_or(0, |image| image.shared.memory.bytes())
    }

    fn has_content(&self) -> bool {
        self.read.lock().as_ref().is_some_and(|attempt| attempt.content().is_ok())
    }

    /// Waits until the tag is polled. While the content of the image before is in use, passes see no error that they repeat: they are woken
    /// when it is time to read that of the present image again.
    async fn wait_for_poll(&self) {
        let mut retries = 0;
        while timeout(backoff(retries) * REJECTED_BACKOFF, self.poll.notified()).await.is_err() {
            let is_due = |it: &ReadAttempt| it.earlier.is_some() && it.at.elapsed() >= RETRY_INTERVAL;
            let is_due = self.read.lock().as_ref().is_some_and(is_due);
            retries = if is_due { retries + 1 } else { 0 };
            if is_due {
                self.contents.wake(&self.key);
            }
        }
    }

    pub(super) async fn image(
        &self,
        images: &dyn ImageSource,
        all: &SharedImages,
        source: &CatalogSource,
        reference: &str,
    ) {
        // in a row
        let (mut failures, mut rejected) = (0, 0);
        let (mut digest, mut is_served) = (String::new(), false);
        loop {
            let opened = images.catalog(source, reference).await.map_err(CatalogError::from);
            let replaced = self.index_memory();
            let image = opened.and_then(|opened| all.add(opened, replaced).map_err(CatalogError::from));
            let (origin, problem) = match image {
                Ok(image) => {
                    let problem = image.content.problem().map(|it| CatalogError::Source(it.to_owned()));
                    // what a tag had before does not take the place of what was pulled since
                    let is_next =
                        image.content.reference() != digest && (problem.is_none() || digest.is_empty());
                    if is_next {
                        image.content.reference().clone_into(&mut digest);
                    }
                    (is_next.then_some(Origin::Image(image)), problem)
                }
                Err(error) => (None, Some(error)),
            };
            // what was pulled before stays in use; that of an earlier specification, too, from when the present one does not fit into memory
            let does_not_fit = matches!(problem, Some(CatalogError::Memory(_)));
            is_served |= !digest.is_empty() || (does_not_fit && self.has_content());
            let state = if is_served { ConnectionState::Ready } else { ConnectionState::TransientFailure };
            self.set(state, origin, problem.clone());
            let wait = match problem {
                None => {
                    (failures, rejected) = (0, 0);
                    self.wait_for_poll().await;
                    continue;
                }
                Some(CatalogError::Source(error)) => {
                    tracing::info!(catalog = self.key, error, "cannot pull the image");
                    failures += 1;
                    backoff(failures - 1)
                }
                Some(error @ (CatalogError::Rejected(_) | CatalogError::Memory(_))) => {
                    tracing::info!(catalog = self.key, %error, "the content of the image is rejected");
                    (failures, rejected) = (0, rejected + 1);
                    // however often the tag is polled
                    tokio::time::sleep(MAX_BACKOFF).await;
                    (backoff(rejected - 1) * REJECTED_BACKOFF).saturating_sub(MAX_BACKOFF)
                }
            };
            let _ = timeout(wait, self.poll.notified()).await;
        }
    }

    /// The ConfigMap goes with its catalog, and has the label that the reference gives to those of others.
    async fn own(&self, api: &Api<ConfigMap>, config_map: &ConfigMap, source: &CatalogSource) {
        let Some(owner) = source.owner_ref(&()) else { return };
        let owner = OwnerReference { controller: Some(false), block_owner_deletion: Some(false), ..owner };
        let mut owners = config_map.owner_references().to_vec();
        let is_owned = owners.iter().any(|other| other.uid == owner.uid);
        let label = config_map.labels().get(MANAGED);
        if is_owned && label.is_some() {
            return;
        }
        owners.extend((!is_owned).then_some(owner));
        let label = label.map_or("false", String::as_str);
        let version = &config_map.metadata.resource_version;
        let patch = json!({"metadata": {
            "ownerReferences": owners, "labels": {MANAGED: label}, "resourceVersion": version,
        }});
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        // a conflict is another version, which is seen next
        if let Err(error) = api.patch(&config_map.name_any(), &params, &Patch::Merge(patch)).await {
            tracing::info!(catalog = self.key, error = chain(&error), "cannot own the ConfigMap");
        }
    }

    pub(super) async fn config_map(&self, api: &Api<ConfigMap>, name: &str, source: &CatalogSource) {
        let mut changes = pin!(watched::single(api.clone(), name));
        while let Some(change) = changes.next().await {
            let found = match change {
                Ok(found) => found,
                Err(error) => {
                    // what was found before counts; until then Subscriptions report why there is nothing
                    if self.link.borrow().state == ConnectionState::Connecting {
                        let problem = chain(&error);
                        tracing::info!(catalog = self.key, error = problem, "cannot watch the ConfigMap");
                        self.set(ConnectionState::Connecting, None, Some(CatalogError::Source(problem)));
                    }
                    continue;
                }
            };
            if let Some(found) = &found {
                self.own(api, found, source).await;
            }
            let reference = found.as_ref().map(|it| ConfigMapReference {
                name: it.name_any(),
                namespace: it.namespace().unwrap_or_default(),
                uid: it.uid().unwrap_or_default(),
                resource_version: it.resource_version().unwrap_or_default(),
                last_update_time: Some(Time(Timestamp::now())),
                unknown: BTreeMap::new(),
            });
            self.link.send_modify(|link| link.config_map = reference);
            let missing = || format!("ConfigMap {name} not found");
            match found.ok_or_else(missing).and_then(|it| ConfigMapCatalog::read(&it)) {
                Ok(catalog) => {
                    let origin = Some(Origin::ConfigMap(Arc::new(catalog)));
                    self.set(ConnectionState::Ready, origin, None);
                }
                Err(problem) => {
                    self.set(ConnectionState::TransientFailure, None, Some(CatalogError::Source(problem)));
                    // Subscriptions that may use it report another health
                    self.contents.wake(&self.key);
                }
            }
            // its version is part of the status
            self.states.wake(&self.key);
        }
    }
}

/// The wait after the end of a connection that lasted so long, and the number of failures in a row: one that ends soon is a failure, so that
/// a registry which closes each connection is not asked, and its content not read, without a pause.
fn after_end(lasted: Duration, failures: u32) -> (Duration, u32) {
    if lasted < MAX_BACKOFF { (backoff(failures), failures + 1) } else { (Duration::ZERO, 0) }
}

fn backoff(earlier_failures: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(1 << earlier_failures.min(10)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::Value;

    use super::*;
    use crate::testing::Apiserver;

    fn keeping() -> Keeping {
        Keeping {
            key: "ns/c".to_owned(),
            link: watch::Sender::new(Link::new()),
            read: Arc::default(),
            poll: Arc::default(),
            states: Waker::default(),
            contents: Waker::default(),
        }
    }

    #[test]
    fn connection_that_is_ready_again_has_other_content() {
        let keeping = keeping();
        let mut states = pin!(keeping.states.names());
        let mut contents = pin!(keeping.contents.names());
        let origin = || Some(Origin::ConfigMap(Arc::default()));
        for (state, origin, is_reported, is_resolved) in [
            (ConnectionState::Ready, origin(), true, true),
            (ConnectionState::Ready, None, false, false),
            (ConnectionState::TransientFailure, None, true, false),
            (ConnectionState::Ready, origin(), true, true),
        ] {
            keeping.set(state, origin, None);
            let woken = [states.next().now_or_never(), contents.next().now_or_never()];
            assert_eq!(woken.map(|it| it.is_some()), [is_reported, is_resolved], "{state}");
        }
    }

    #[tokio::test]
    async fn config_map_gets_owner_and_label_once() {
        let source = json!({"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": {"sourceType": "configmap"}});
        let source: CatalogSource = serde_json::from_value(source).unwrap();
        let owner = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "name": "c", "uid": "u",
            "controller": false, "blockOwnerDeletion": false});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o"});
        for (owners, labels, want) in [
            (json!([]), Value::Null, Some((json!([owner]), "false"))),
            (json!([other]), json!({"olm.managed": "true"}), Some((json!([other, owner]), "true"))),
            (json!([owner]), json!({"a": "b"}), Some((json!([owner]), "false"))),
            (json!([owner]), json!({"olm.managed": "false"}), None),
        ] {
            let metadata = json!({"namespace": "ns", "name": "content", "resourceVersion": "1", "labels": labels,
                "ownerReferences": owners});
            let config_map = json!({ "metadata": metadata });
            let stored = config_map.clone();
            let apiserver = Apiserver::new(move |_, _| (200, stored.clone()));
            let config_map: ConfigMap = serde_json::from_value(config_map).unwrap();
            keeping().own(&Api::namespaced(apiserver.client(), "ns"), &config_map, &source).await;
            let requests = apiserver.requests();
            let bodies = requests.iter().map(|line| line.splitn(3, ' ').nth(2).unwrap());
            let written: Vec<Value> = bodies.map(|body| serde_json::from_str(body).unwrap()).collect();
            let want = want.map(|(owners, label)| {
                json!({"metadata": {"ownerReferences": owners, "labels": {"olm.managed": label}, "resourceVersion": "1"}})
            });
            assert_eq!(written, want.into_iter().collect::<Vec<_>>(), "{requests:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn registry_content_is_read_again_while_it_is_used() {
        let keeping = keeping();
        let origin = Origin::ConfigMap(Arc::default());
        keeping.set(ConnectionState::Ready, Some(origin.clone()), None);
        let mut woken = pin!(keeping.contents.names());
        assert!(woken.next().now_or_never().is_some());
        for (case, is_read, want) in
            [("unused", false, 1), ("read once", true, 2), ("not read after that", false, 2)]
        {
            let generation = keeping.link.borrow().generation;
            if is_read {
                let outcome = Err(CatalogError::Source("down".to_owned()));
                let at = Instant::now();
                *keeping.read.lock() = Some(ReadAttempt { generation, at, outcome, earlier: None });
            }
            keeping.refresh(&origin, tokio::time::sleep(SNAPSHOT_LIFETIME * 5 / 2)).await;
            assert_eq!(keeping.link.borrow().generation, want, "{case}");
            assert_eq!(woken.next().now_or_never().is_some(), is_read, "{case}");
        }
    }

    #[test]
    fn connection_that_ends_soon_is_made_again_later() {
        let seconds = Duration::from_secs;
        for (lasted, failures, want) in [
            (seconds(3600), 0, (seconds(0), 0)),
            (MAX_BACKOFF, 5, (seconds(0), 0)),
            (seconds(0), 0, (seconds(1), 1)),
            (seconds(9), 2, (seconds(4), 3)),
            (seconds(0), 20, (MAX_BACKOFF, 21)),
        ] {
            assert_eq!(after_end(lasted, failures), want, "{lasted:?} {failures}");
        }
    }
}
