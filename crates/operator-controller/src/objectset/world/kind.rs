//! The watch of one kind: its objects as events and answers to own requests show them, in whichever order they come.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use olm_core::ObjectKey;
use olm_runtime::controller::Waker;
use olm_runtime::task;
use olm_runtime::watched::{Change, Table, Watched, config_of_large_objects};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use crate::kinds::Kind;
use crate::objectset::errors::{is_code, watch_failed};
use crate::objectset::live::{Live, ObjectRef, plain};
use crate::objectset::requests::ObjectRequests;

/// Whether a kind is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Synced {
    NotYet,
    Yes,
    Failed { problem: String, gone: bool },
}

/// The objects of one kind. Clones share them.
#[derive(Clone)]
pub(super) struct Objects {
    pub(super) live: Watched<ObjectRef, Live>,
    progress: Arc<Mutex<Progress>>,
}

/// What became of the answer to a request.
pub(super) enum PutOutcome {
    /// The watch shows this state of the object or a later one, or the next event will.
    Shown,
    /// The object was evicted; its last state.
    Evicted(Live),
    /// The watch does not have the object, and may not show any more that it has gone.
    Late,
}

/// How far the watch is.
#[derive(Debug, Default)]
struct Progress {
    /// The highest version of any object that was shown, of deleted ones too. An answer that is not newer changes nothing, or
    /// restores what is gone.
    version: u64,
    /// Complete listings. What was deleted before one is not in it, so an answer to a request that began before proves nothing.
    listings: u64,
}

impl Objects {
    pub(super) fn new() -> Self {
        Self { live: Watched::new(Table::with_order(Live::number)), progress: Arc::default() }
    }

    /// The number of complete listings, to be read before a request whose answer is [`put`](Self::put).
    pub(super) fn listings(&self) -> u64 {
        self.progress.lock().listings
    }

    /// Takes in the answer to a request that began after so many `listings`, unless the watch was faster. An object that watches do
    /// not select is evicted: no event would show its changes, nor its deletion.
    pub(super) fn put(&self, place: ObjectRef, live: Live, listings: u64) -> PutOutcome {
        // locked while the table changes, so that no event comes between the check and the change
        let progress = self.progress.lock();
        let is_late = live.number().is_some_and(|number| number <= progress.version);
        let last = self.live.get(&place);
        if is_late || listings != progress.listings {
            return if last.is_some() { PutOutcome::Shown } else { PutOutcome::Late };
        }
        if live.is_labelled {
            self.live.put(place, live);
        } else if let Some(last) = last {
            self.live.remove(&place);
            return PutOutcome::Evicted(last);
        }
        PutOutcome::Shown
    }

    /// Evicts an object that a request found gone, if it is still as it was before that request.
    pub(super) fn remove(&self, place: &ObjectRef, version: &str) -> Option<Live> {
        let _progress = self.progress.lock();
        let found = self.live.get(place).filter(|live| live.version == version)?;
        self.live.remove(place);
        Some(found)
    }

    /// Applies an event.
    pub(super) fn apply<O>(
        &self,
        event: Event<O>,
        row: impl Fn(O) -> (ObjectRef, Live),
    ) -> Vec<Change<ObjectRef, Live>> {
        let mut progress = self.progress.lock();
        progress.listings += u64::from(matches!(event, Event::InitDone));
        let highest = Cell::new(progress.version);
        let changes = self.live.apply(event, |object| {
            let (place, live) = row(object);
            highest.set(highest.get().max(live.number().unwrap_or_default()));
            (place, live)
        });
        progress.version = highest.get();
        changes
    }
}

/// The revisions that wait for an object, by its kind and place.
pub(super) type Waiting = HashMap<(GroupVersionKind, ObjectRef), BTreeSet<String>>;

/// The revisions that a kind concerns. Clones share them.
#[derive(Clone)]
pub(super) struct Interest {
    pub(super) gvk: GroupVersionKind,
    pub(super) waker: Waker,
    pub(super) waiting: Arc<Mutex<Waiting>>,
    /// The names of the revisions that use the watch, by UID.
    pub(super) users: Arc<Mutex<HashMap<String, String>>>,
}

impl Interest {
    /// The revisions to wake for a change: those that own the object or wait for it, but for one that knows this state from the
    /// answer to its own request.
    pub(super) fn of_change(&self, change: &Change<ObjectRef, Live>) -> BTreeSet<String> {
        let mut names =
            self.waiting.lock().get(&(self.gvk.clone(), change.key.clone())).cloned().unwrap_or_default();
        names.extend(change.states().flat_map(|live| live.owners.iter().cloned()));
        if let (Some(before), Some(after)) = (&change.before, &change.after)
            && before.version == after.version
        {
            names.retain(|name| Some(name) != before.known_to.as_ref());
        }
        names
    }

    /// Wakes all revisions that use the watch.
    pub(super) fn wake_users(&self) {
        self.users.lock().values().for_each(|name| self.waker.wake(name));
    }
}

/// The live objects of one kind.
pub(in crate::objectset) struct KindWatch {
    kind: Kind,
    pub(super) interest: Interest,
    pub(super) synced: watch::Receiver<Synced>,
    objects: Objects,
    task: AbortHandle,
}

impl KindWatch {
    pub(super) fn start(client: &Client, kind: Kind, interest: Interest) -> Self {
        let (state, synced) = watch::channel(Synced::NotYet);
        let config = config(&interest.gvk);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource);
        let objects = Objects::new();
        let follower =
            Follower { kind: kind.clone(), interest: interest.clone(), objects: objects.clone(), state };
        let (name, follows) = (format!("watch of {}", kind.resource.plural), follower.run(api, config));
        let task = tokio::spawn(async move { task::supervised(&name, follows).await });
        Self { kind, interest, synced, objects, task: task.abort_handle() }
    }

    /// Where the object with this key lives.
    pub(super) fn place(&self, key: &ObjectKey) -> ObjectRef {
        let namespace =
            if self.kind.namespaced { key.namespace.clone().unwrap_or_default() } else { String::new() };
        (namespace, key.name.clone())
    }

    /// Whether the object needs a namespace and has none.
    pub(in crate::objectset) fn lacks_namespace(&self, key: &ObjectKey) -> bool {
        self.kind.namespaced && key.namespace.is_none()
    }

    pub(in crate::objectset) fn get(&self, key: &ObjectKey) -> Option<Live> {
        self.objects.live.get(&self.place(key))
    }

    /// To be read before a request whose answer is [`put`](Self::put).
    pub(in crate::objectset) fn listings(&self) -> u64 {
        self.objects.listings()
    }

    /// Takes in what the apiserver answered to the revision `by`, unless a watch was faster. If a user has removed the label by which
    /// watches select, they show that as a deletion at an older version, which counts for nothing after this answer; so the other
    /// revisions are woken now. If the object has gone since, `by` is woken to find out.
    pub(in crate::objectset) fn put(&self, key: &ObjectKey, mut live: Live, by: &str, listings: u64) {
        live.known_to = Some(by.to_owned());
        let place = self.place(key);
        match self.objects.put(place.clone(), live, listings) {
            PutOutcome::Shown => {}
            PutOutcome::Evicted(last) => self.wake_others(place, last, by),
            PutOutcome::Late => self.interest.waker.wake(by),
        }
    }

    /// Evicts an object that a request of the revision `by` found gone, if it is still the `version` of before the request. The
    /// watch need not show the deletion any more, so the other revisions that it concerns are woken now.
    pub(in crate::objectset) fn remove(&self, key: &ObjectKey, version: &str, by: &str) {
        let place = self.place(key);
        if let Some(last) = self.objects.remove(&place, version) {
            self.wake_others(place, last, by);
        }
    }

    /// Wakes the revisions that an eviction concerns, but the one that made the request.
    fn wake_others(&self, place: ObjectRef, last: Live, by: &str) {
        let change = Change { key: place, before: Some(last), after: None, is_answer: true };
        let concerned = self.interest.of_change(&change).into_iter().filter(|name| name != by);
        concerned.for_each(|name| self.interest.waker.wake(&name));
    }

    /// The API of the object's kind, in its namespace.
    pub(in crate::objectset) fn api<K>(&self, client: Client, key: &ObjectKey) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match (&key.namespace, self.kind.namespaced) {
            (Some(namespace), true) => Api::namespaced_with(client, namespace, &self.kind.resource),
            _ => Api::all_with(client, &self.kind.resource),
        }
    }

    /// Requests for the object of this kind.
    pub(in crate::objectset) fn requests(&self, client: Client, key: &ObjectKey) -> ObjectRequests {
        let api: Api<DynamicObject> = self.api(client.clone(), key);
        ObjectRequests::new(client, api.resource_url(), &key.name)
    }
}

impl Drop for KindWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Selects the objects of revisions of this kind.
pub(super) fn config(gvk: &GroupVersionKind) -> watcher::Config {
    let config = match (gvk.group.as_str(), gvk.kind.as_str()) {
        // the content of revisions carries the owner label too; it is large and not an object of any revision
        ("", "Secret") => {
            watcher::Config::default().fields(&format!("type!={}", olm_api::secret_types::OBJECT_DATA))
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => config_of_large_objects(),
        _ => watcher::Config::default(),
    };
    config.labels(olm_api::labels::OWNER_NAME)
}

/// Follows the events of one kind.
pub(super) struct Follower {
    pub(super) kind: Kind,
    pub(super) interest: Interest,
    pub(super) objects: Objects,
    pub(super) state: watch::Sender<Synced>,
}

impl Follower {
    async fn run(self, api: Api<DynamicObject>, config: watcher::Config) {
        let mut events = watcher(api, config).backoff(olm_runtime::backoff::of_watch()).boxed();
        let ApiResource { api_version, kind, .. } = &self.kind.resource;
        let row = |object: DynamicObject| {
            let place = (object.namespace().unwrap_or_default(), object.name_any());
            (place, Live::new(plain(object, api_version, kind)))
        };
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(event, row),
                Err(error) => self.failed(&error),
            }
        }
    }

    /// Applies an event and wakes whom it concerns. A listing is an event, too: it shows what changed since the last one.
    pub(super) fn apply<O>(&self, event: Event<O>, row: impl Fn(O) -> (ObjectRef, Live)) {
        let is_listed = matches!(event, Event::InitDone);
        let changes = self.objects.apply(event, row);
        if is_listed && matches!(self.state.send_replace(Synced::Yes), Synced::Failed { .. }) {
            self.interest.wake_users();
        }
        let revisions: BTreeSet<String> =
            changes.iter().flat_map(|change| self.interest.of_change(change)).collect();
        revisions.iter().for_each(|name| self.interest.waker.wake(name));
    }

    /// A watch whose kind is gone has failed for its users, who are woken to learn it; otherwise one that has listed recovers.
    pub(super) fn failed(&self, error: &watcher::Error) {
        let gone = matches!(
            error,
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) if is_code(error, 404)
        );
        let kind = &self.interest.gvk.kind;
        let was_synced = *self.state.borrow() == Synced::Yes;
        if was_synced && !gone {
            debug!(%kind, %error, "watch is restarted");
            return;
        }
        warn!(%kind, %error, "watch failed");
        self.state.send_replace(Synced::Failed { problem: watch_failed(error), gone });
        if was_synced {
            self.interest.wake_users();
        }
    }
}
