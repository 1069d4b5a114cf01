//! The live objects of all extensions: one watch for each kind in use, restricted to objects with the owner label.
//!
//! A watch starts when the first revision needs its kind (a phase at a time, so that a CRD and a resource of it can be in
//! one revision) and ends when the last lets go. Events wake the revisions that own an object or wait for it.

mod awaited;
mod kind;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource};
use olm_core::ObjectKey;
use olm_rollout::Revision;
use olm_runtime::controller::Waker;
use parking_lot::Mutex;

use crate::kinds::{KindError, Kinds};
use awaited::Foreign;
use kind::{Interest, Synced, Waiting};

pub(super) use awaited::AWAITED;
pub(super) use kind::KindWatch;

/// How long a first listing may take before the pass gives up (and tries again later).
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a kind cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    /// The cluster does not serve the kind.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// The first listing did not come.
    #[error("listing {kind}: {problem}")]
    NotSynced {
        kind: String,
        /// The last error, or that it took too long.
        problem: String,
    },
}

impl WatchError {
    pub(super) fn is_no_match(&self) -> bool {
        matches!(self, Self::Kind(KindError::NoMatch { .. }))
    }
}

/// All live objects that revisions care for.
pub(super) struct World {
    client: Client,
    pub(super) kinds: Kinds,
    watches: Mutex<HashMap<GroupVersionKind, Arc<KindWatch>>>,
    waiting: Arc<Mutex<Waiting>>,
    foreign: Foreign,
    waker: Waker,
}

impl World {
    pub(super) fn new(client: Client, waker: Waker) -> Self {
        Self {
            kinds: Kinds::new(client.clone()),
            client,
            watches: Mutex::default(),
            waiting: Arc::default(),
            foreign: Foreign::default(),
            waker,
        }
    }

    /// The watch of a kind, started if needed, once its first listing is complete. `user` is the revision that needs it.
    pub(super) async fn ensure(
        &self,
        gvk: &GroupVersionKind,
        user: &Revision,
    ) -> Result<Arc<KindWatch>, WatchError> {
        // its use is recorded before another user can release it as the last one
        let used = |watch: &Arc<KindWatch>| {
            watch.interest.users.lock().insert(user.uid.clone(), user.name.clone());
            Arc::clone(watch)
        };
        let known = self.watches.lock().get(gvk).map(used);
        let watch = match known {
            Some(watch) => watch,
            None => {
                let kind = self.kinds.find(gvk).await?;
                let interest = Interest {
                    gvk: gvk.clone(),
                    waker: self.waker.clone(),
                    waiting: Arc::clone(&self.waiting),
                    users: Arc::default(),
                };
                let start = || Arc::new(KindWatch::start(&self.client, kind, interest));
                used(self.watches.lock().entry(gvk.clone()).or_insert_with(start))
            }
        };
        let mut synced = watch.synced.clone();
        let settled = synced.wait_for(|state| *state != Synced::NotYet);
        let state = match tokio::time::timeout(LIST_TIMEOUT, settled).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) => Synced::Failed { problem: "the watch has ended".to_owned(), gone: true },
            Err(_) => Synced::Failed { problem: "it takes too long".to_owned(), gone: false },
        };
        match state {
            Synced::Yes | Synced::NotYet => Ok(watch),
            Synced::Failed { gone: true, .. } => {
                if self.drop_watch(&watch) {
                    self.kinds.evict(gvk);
                }
                Err(KindError::NoMatch { kind: gvk.kind.clone(), api_version: gvk.api_version() }.into())
            }
            Synced::Failed { problem, .. } => Err(WatchError::NotSynced { kind: gvk.kind.clone(), problem }),
        }
    }

    /// Ends this watch, so that the next user begins another. One that was begun since stays. Whether there was anything to end.
    fn drop_watch(&self, watch: &KindWatch) -> bool {
        let mut watches = self.watches.lock();
        let gvk = &watch.interest.gvk;
        let is_present = watches.get(gvk).is_some_and(|present| std::ptr::eq(Arc::as_ptr(present), watch));
        is_present && watches.remove(gvk).is_some()
    }

    /// A write was answered as if the cluster did not serve the kind. If discovery does not have it either, the watch ends, and its
    /// users are woken to find out.
    pub(super) async fn check_served(&self, watch: &KindWatch) {
        let gvk = &watch.interest.gvk;
        self.kinds.evict(gvk);
        let is_gone = matches!(self.kinds.find(gvk).await, Err(KindError::NoMatch { .. }));
        if is_gone && self.drop_watch(watch) {
            watch.interest.wake_users();
        }
    }

    /// Releases all kinds but `kept`; watches without users end.
    pub(super) fn release(&self, user: &str, kept: &HashSet<GroupVersionKind>) {
        let mut watches = self.watches.lock();
        watches.retain(|gvk, watch| {
            let mut users = watch.interest.users.lock();
            if !kept.contains(gvk) {
                users.remove(user);
            }
            !users.is_empty()
        });
    }

    /// A pass begins that names what the revision waits for. What it names again stays watched, without a new listing.
    pub(super) fn begin_waits(&self, revision: &str) {
        self.remove_waits(revision);
        self.foreign.begin(revision);
    }

    /// The pass has ended: what it did not name is waited for no more.
    pub(super) fn end_waits(&self, revision: &str) {
        self.foreign.end(revision);
    }

    /// Removes everything that a revision waits for.
    pub(super) fn stop_waiting(&self, revision: &str) {
        self.remove_waits(revision);
        self.foreign.remove(revision);
    }

    fn remove_waits(&self, revision: &str) {
        self.waiting.lock().retain(|_, names| {
            names.remove(revision);
            !names.is_empty()
        });
    }

    /// Wakes the revision when the object changes. Objects with the owner label are watched already; for others a watch
    /// of the one object starts, for [`awaited::AWAITED`] objects at most. `version` is the state that was judged.
    pub(super) fn wait_for(&self, revision: &str, watch: &KindWatch, key: &ObjectKey, version: &str) {
        let place = watch.place(key);
        let mut waiting = self.waiting.lock();
        waiting.entry((watch.interest.gvk.clone(), place)).or_default().insert(revision.to_owned());
        drop(waiting);
        if watch.get(key).is_none() {
            let api = watch.api(self.client.clone(), key);
            self.foreign.watch(revision, api, &key.name, version, &self.waker);
        }
    }

    /// Wakes the revision when the object of a built-in kind appears or changes: a cluster-scoped one, or one in `namespace`.
    pub(super) fn wait_for_named<K: Resource<DynamicType = ()>>(
        &self,
        revision: &str,
        namespace: Option<&str>,
        name: &str,
    ) {
        let (client, resource) = (self.client.clone(), ApiResource::erase::<K>(&()));
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        self.foreign.watch(revision, api, name, "", &self.waker);
    }

    /// The objects that a revision waits for.
    pub(super) fn waits(&self, revision: &str) -> Vec<String> {
        let waiting = self.waiting.lock();
        let waits = waiting.iter().filter(|(_, names)| names.contains(revision));
        let mut all: Vec<String> =
            waits.map(|((gvk, (namespace, name)), _)| format!("{} {namespace}/{name}", gvk.kind)).collect();
        drop(waiting);
        all.extend(self.foreign.names(revision));
        all.sort();
        all
    }

    /// The resourceVersion of an object as its watch has it; `None` if it does not have it.
    pub(super) fn cached_version(&self, gvk: &GroupVersionKind, key: &ObjectKey) -> Option<String> {
        Some(self.watches.lock().get(gvk)?.get(key)?.version)
    }
}

#[cfg(test)]
mod tests;
