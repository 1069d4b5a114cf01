//! The live objects of all extensions: one watch for each kind in use, restricted to objects with the owner label.
//!
//! A watch starts when the first revision needs its kind (a phase at a time, so that a CRD and a resource of it can be in
//! one revision) and ends when the last lets go. Events wake the revisions that own an object or wait for it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use olm_core::{Object, ObjectKey};
use olm_runtime::controller::Waker;
use olm_runtime::task;
use olm_runtime::watched::{Change, Table, Watched};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::errors::is_code;
use super::live::{Live, ObjectRef, plain};
use crate::kinds::{Kind, KindError, Kinds};

/// How long a first listing may take before the pass gives up (and tries again later).
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before a revision is reconciled because an object that it lacks is there after all.
const PRESENT_OBJECT_DELAY: Duration = Duration::from_secs(5);
/// Ends of objects of one kind that are remembered, at most.
const TOMBSTONES: usize = 1024;
/// Objects without the owner label that one revision watches for, at most.
const AWAITED: usize = 50;

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

/// Whether a kind is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Synced {
    NotYet,
    Yes,
    Failed { problem: String, gone: bool },
}

/// The objects of one kind, from the watch and from answers to our own requests, in whichever order they come.
#[derive(Clone)]
struct Objects {
    live: Watched<ObjectRef, Live>,
    /// The version in which an object was deleted: the answer to a write of ours may come later than the deletion.
    deleted: Arc<Mutex<HashMap<ObjectRef, u64>>>,
}

impl Objects {
    fn new() -> Self {
        Self { live: Watched::new(Table::with_order(Live::is_older_than)), deleted: Arc::default() }
    }

    /// Takes in a state that a request of ours was answered with, unless the watch was faster.
    fn put(&self, place: ObjectRef, live: Live) {
        // locked while the table changes, so that no deletion comes between the check and the change
        let deleted = self.deleted.lock();
        let is_late = |deleted: &u64| live.number().is_some_and(|number| number <= *deleted);
        if !deleted.get(&place).is_some_and(is_late) {
            self.live.put(place, live);
        }
    }

    /// Applies an event and remembers the versions of deleted objects.
    fn apply<O>(
        &self,
        event: Event<O>,
        row: impl Fn(O) -> (ObjectRef, Live),
    ) -> Vec<Change<ObjectRef, Live>> {
        let mut deleted = self.deleted.lock();
        let changes = self.live.apply(event, row);
        let gone = changes.iter().filter(|change| change.after.is_none());
        for Change { key, before, .. } in gone {
            if deleted.len() >= TOMBSTONES {
                deleted.clear();
            }
            if let Some(version) = before.as_ref().and_then(Live::number) {
                deleted.insert(key.clone(), version);
            }
        }
        changes
    }
}

/// The live objects of one kind.
pub(super) struct KindWatch {
    pub(super) kind: Kind,
    objects: Objects,
    synced: watch::Receiver<Synced>,
    users: Mutex<HashSet<String>>,
    task: AbortHandle,
}

impl KindWatch {
    /// Where the object with this key lives.
    pub(super) fn place(&self, key: &ObjectKey) -> ObjectRef {
        let namespace =
            if self.kind.namespaced { key.namespace.clone().unwrap_or_default() } else { String::new() };
        (namespace, key.name.clone())
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<Live> {
        self.objects.live.get(&self.place(key))
    }

    /// Takes in what the apiserver answered to the revision `by`, unless a watch was faster.
    pub(super) fn put(&self, key: &ObjectKey, mut live: Live, by: &str) {
        live.known_to = Some(by.to_owned());
        self.objects.put(self.place(key), live);
    }

    /// Evicts an object that a request found gone.
    pub(super) fn remove(&self, key: &ObjectKey) {
        self.objects.live.remove(&self.place(key));
    }

    /// The API of the object's kind, in its namespace.
    pub(super) fn api<K>(&self, client: Client, key: &ObjectKey) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match (&key.namespace, self.kind.namespaced) {
            (Some(namespace), true) => Api::namespaced_with(client, namespace, &self.kind.resource),
            _ => Api::all_with(client, &self.kind.resource),
        }
    }

    /// An object of this kind as plain JSON.
    pub(super) fn plain(&self, object: DynamicObject) -> Object {
        plain(object, &self.kind.resource.api_version, &self.kind.resource.kind)
    }
}

impl Drop for KindWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Waiting = HashMap<(GroupVersionKind, ObjectRef), BTreeSet<String>>;

/// All live objects that revisions care for.
pub(super) struct World {
    client: Client,
    pub(super) kinds: Kinds,
    watches: Mutex<HashMap<GroupVersionKind, Arc<KindWatch>>>,
    waiting: Arc<Mutex<Waiting>>,
    foreign: Mutex<HashMap<String, Vec<Awaited>>>,
    waker: Waker,
}

/// A watch of one object that a revision waits for.
struct Awaited {
    /// Resource, name and the state that was judged.
    what: (String, String, String),
    /// It has woken the revision and is of no further use.
    is_spent: Arc<AtomicBool>,
    /// The present pass has not asked for it yet.
    unasked: bool,
    task: AbortHandle,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    pub(super) fn new(client: Client, waker: Waker) -> Self {
        Self {
            kinds: Kinds::new(client.clone()),
            client,
            watches: Mutex::default(),
            waiting: Arc::default(),
            foreign: Mutex::default(),
            waker,
        }
    }

    /// The watch of a kind, started if needed, once its first listing is complete. `user` is the UID of the revision
    /// that needs it.
    pub(super) async fn ensure(
        &self,
        gvk: &GroupVersionKind,
        user: &str,
    ) -> Result<Arc<KindWatch>, WatchError> {
        // its use is recorded before another user can release it as the last one
        let used = |watch: &Arc<KindWatch>| {
            watch.users.lock().insert(user.to_owned());
            Arc::clone(watch)
        };
        let known = self.watches.lock().get(gvk).map(used);
        let watch = match known {
            Some(watch) => watch,
            None => {
                let kind = self.kinds.find(gvk).await?;
                let mut watches = self.watches.lock();
                used(watches.entry(gvk.clone()).or_insert_with(|| Arc::new(self.start(gvk, kind))))
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
                self.drop_watch(gvk).await;
                Err(KindError::NoMatch { kind: gvk.kind.clone(), api_version: gvk.api_version() }.into())
            }
            Synced::Failed { problem, .. } => Err(WatchError::NotSynced { kind: gvk.kind.clone(), problem }),
        }
    }

    /// Ends a watch whose kind is gone, so that discovery is repeated.
    pub(super) async fn drop_watch(&self, gvk: &GroupVersionKind) {
        self.kinds.evict(gvk).await;
        self.watches.lock().remove(gvk);
    }

    /// Releases all kinds but `kept`; watches without users end.
    pub(super) fn release(&self, user: &str, kept: &HashSet<GroupVersionKind>) {
        let mut watches = self.watches.lock();
        watches.retain(|gvk, watch| {
            let mut users = watch.users.lock();
            if !kept.contains(gvk) {
                users.remove(user);
            }
            !users.is_empty()
        });
    }

    /// A pass begins that names what the revision waits for. What it names again stays watched, without a new listing.
    pub(super) fn begin_waits(&self, revision: &str) {
        self.remove_waits(revision);
        for awaited in self.foreign.lock().get_mut(revision).into_iter().flatten() {
            awaited.unasked = true;
        }
    }

    /// The pass has ended: what it did not name is waited for no more.
    pub(super) fn end_waits(&self, revision: &str) {
        let mut foreign = self.foreign.lock();
        let Some(all) = foreign.get_mut(revision) else { return };
        all.retain(|awaited| !awaited.unasked);
        if all.is_empty() {
            foreign.remove(revision);
        }
    }

    /// Removes everything that a revision waits for.
    pub(super) fn stop_waiting(&self, revision: &str) {
        self.remove_waits(revision);
        self.foreign.lock().remove(revision);
    }

    fn remove_waits(&self, revision: &str) {
        self.waiting.lock().retain(|_, names| {
            names.remove(revision);
            !names.is_empty()
        });
    }

    /// Wakes the revision when the object changes. Objects with the owner label are watched already; for others a watch
    /// of the one object starts, for [`AWAITED`] objects at most. `version` is the state that was judged.
    pub(super) fn wait_for(&self, revision: &str, watch: &KindWatch, key: &ObjectKey, version: &str) {
        let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
        let place = watch.place(key);
        self.waiting.lock().entry((gvk, place)).or_default().insert(revision.to_owned());
        if watch.get(key).is_none() {
            self.watch_one(revision, watch.api(self.client.clone(), key), &key.name, version);
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
        self.watch_one(revision, api, name, "");
    }

    fn watch_one(
        &self,
        revision: &str,
        api: Api<PartialObjectMeta<DynamicObject>>,
        name: &str,
        version: &str,
    ) {
        let what = (api.resource_url().to_owned(), name.to_owned(), version.to_owned());
        let mut foreign = self.foreign.lock();
        let all = foreign.entry(revision.to_owned()).or_default();
        all.retain(|awaited| !awaited.is_spent.load(Ordering::Acquire));
        if let Some(awaited) = all.iter_mut().find(|awaited| awaited.what == what) {
            awaited.unasked = false;
            return;
        }
        if all.iter().filter(|awaited| !awaited.unasked).count() >= AWAITED {
            return;
        }
        let is_spent = Arc::new(AtomicBool::new(false));
        let spent = Arc::clone(&is_spent);
        let (waker, revision, version) = (self.waker.clone(), revision.to_owned(), version.to_owned());
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let waits = async move {
            let mut events = watcher(api, config).backoff(olm_runtime::backoff::of_watch()).boxed();
            let unjudged = version.is_empty();
            let mut seen = unjudged;
            while let Some(event) = events.next().await {
                let changed = match event {
                    // it came just now, or it was there all the time and does not help: no reason to hurry
                    Ok(Event::InitApply(_)) if unjudged => {
                        tokio::time::sleep(PRESENT_OBJECT_DELAY).await;
                        true
                    }
                    Ok(Event::InitApply(object)) => {
                        seen = true;
                        object.resource_version().as_deref() != Some(version.as_str())
                    }
                    // listed, and it is not there any more
                    Ok(Event::InitDone) => !seen,
                    Ok(Event::Apply(_) | Event::Delete(_)) => true,
                    Ok(Event::Init) | Err(_) => false,
                };
                if changed {
                    spent.store(true, Ordering::Release);
                    waker.wake(&revision);
                    return;
                }
            }
        };
        let task = tokio::spawn(task::supervised("watch of an awaited object", waits));
        all.push(Awaited { what, is_spent, unasked: false, task: task.abort_handle() });
    }

    fn start(&self, gvk: &GroupVersionKind, kind: Kind) -> KindWatch {
        let (state, synced) = watch::channel(Synced::NotYet);
        let mut config = watcher::Config::default().labels(olm_api::labels::OWNER_NAME);
        if gvk.group.is_empty() && gvk.kind == "Secret" {
            // the content of revisions carries the owner label too; it is large and not an object of any revision
            config = config.fields(&format!("type!={}", olm_api::secret_types::OBJECT_DATA));
        }
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource);
        let objects = Objects::new();
        let follower = Follower {
            gvk: gvk.clone(),
            kind: kind.clone(),
            waker: self.waker.clone(),
            waiting: Arc::clone(&self.waiting),
            objects: objects.clone(),
            state,
        };
        let (name, follows) = (format!("watch of {}", kind.resource.plural), follower.run(api, config));
        let task = tokio::spawn(async move { task::supervised(&name, follows).await });
        KindWatch { kind, objects, synced, users: Mutex::default(), task: task.abort_handle() }
    }
}

/// Follows the events of one kind.
struct Follower {
    gvk: GroupVersionKind,
    kind: Kind,
    waker: Waker,
    waiting: Arc<Mutex<Waiting>>,
    objects: Objects,
    state: watch::Sender<Synced>,
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
            let Ok(event) = event.inspect_err(|error| self.failed(error)) else { continue };
            let is_listed = matches!(event, Event::InitDone);
            let changes = self.objects.apply(event, row);
            if is_listed {
                self.state.send_replace(Synced::Yes);
            }
            let revisions: BTreeSet<String> =
                changes.iter().flat_map(|change| self.concerned(change)).collect();
            revisions.iter().for_each(|name| self.waker.wake(name));
        }
    }

    /// The revisions to wake: those that own the object or wait for it, but for one that knows this state from the answer to its
    /// own request.
    fn concerned(&self, change: &Change<ObjectRef, Live>) -> BTreeSet<String> {
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

    fn failed(&self, error: &watcher::Error) {
        let gone = matches!(
            error,
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) if is_code(error, 404)
        );
        if *self.state.borrow() == Synced::Yes && !gone {
            debug!(kind = %self.gvk.kind, %error, "watch is restarted");
            return;
        }
        warn!(kind = %self.gvk.kind, %error, "watch failed");
        self.state.send_replace(Synced::Failed { problem: error.to_string(), gone });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_panic_exits, panics_at};
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use serde_json::json;

    /// Watches of a client that reaches nothing: they try for ever.
    fn world() -> World {
        olm_runtime::tls::install_provider();
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        World::new(Client::try_from(nowhere).unwrap(), Waker::default())
    }

    #[tokio::test]
    async fn world_keeps_watches_that_are_named_again() {
        let world = world();
        let tasks = || -> Vec<(String, bool)> {
            let foreign = world.foreign.lock();
            let all = foreign.get("e-1").into_iter().flatten();
            all.map(|awaited| (awaited.what.1.clone(), awaited.task.is_finished())).collect()
        };
        world.wait_for_named::<Namespace>("e-1", None, "a");
        world.wait_for_named::<Namespace>("e-1", None, "b");
        let first = world.foreign.lock()["e-1"][0].task.clone();
        let second = world.foreign.lock()["e-1"][1].task.clone();
        world.begin_waits("e-1");
        world.wait_for_named::<Namespace>("e-1", None, "a");
        world.wait_for_named::<Namespace>("e-1", None, "c");
        world.end_waits("e-1");
        assert_eq!(tasks(), [("a".to_owned(), false), ("c".to_owned(), false)]);
        assert_eq!(world.foreign.lock()["e-1"][0].task.id(), first.id(), "the same watch");
        let ended = async {
            while !second.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
        // one that has woken the revision is of no use any more
        world.foreign.lock()["e-1"][0].is_spent.store(true, Ordering::Release);
        world.wait_for_named::<Namespace>("e-1", None, "a");
        assert!(world.foreign.lock()["e-1"].iter().all(|awaited| awaited.task.id() != first.id()));
        for number in 0..2 * AWAITED {
            world.wait_for_named::<Namespace>("e-1", None, &number.to_string());
        }
        assert_eq!(tasks().len(), AWAITED);
        world.stop_waiting("e-1");
        assert!(tasks().is_empty());
    }

    #[test]
    fn object_watch_panic_exits() {
        let world = |path| World::new(panics_at(path), Waker::default());
        let (module, test) = (module_path!(), "object_watch_panic_exits");
        assert_panic_exits(module, test, "watch of an awaited object", async || {
            let world = world("/namespaces");
            world.wait_for_named::<Namespace>("e-1", None, "a");
            world
        });
        assert_panic_exits(module, test, "watch of configmaps", async || {
            let resource = ApiResource::erase::<ConfigMap>(&());
            let kind = Kind { resource, namespaced: true };
            world("/configmaps").start(&GroupVersionKind::gvk("", "v1", "ConfigMap"), kind)
        });
    }

    fn live(version: u64) -> Live {
        let object = json!({"metadata": {"name": "a", "resourceVersion": version.to_string()}});
        Live::new(Object::from_value(object).unwrap())
    }

    fn row((place, version): (&ObjectRef, u64)) -> (ObjectRef, Live) {
        (place.clone(), live(version))
    }

    #[test]
    fn late_answer_does_not_restore_a_deleted_object() {
        let place: ObjectRef = ("n".to_owned(), "a".to_owned());
        let objects = Objects::new();
        let version = || objects.live.get(&place).map(|live| live.version);
        objects.apply(Event::Delete((&place, 7)), row);
        objects.put(place.clone(), live(6));
        assert_eq!(version(), None, "it was written before the deletion");
        objects.put(place.clone(), live(8));
        assert_eq!(version().as_deref(), Some("8"), "it was created again");
        objects.put(place.clone(), live(7));
        assert_eq!(version().as_deref(), Some("8"), "an older state");
        for number in 0..2 * TOMBSTONES {
            objects.apply(Event::Delete((&(String::new(), number.to_string()), 9)), row);
        }
        assert!(objects.deleted.lock().len() <= TOMBSTONES);
    }

    /// The answer to a creation and the deletion by a rival arrive at the same time on two threads.
    #[test]
    fn late_answer_beside_a_deletion_does_not_restore_the_object() {
        let place: ObjectRef = ("n".to_owned(), "a".to_owned());
        let (objects, turn) = (Objects::new(), std::sync::Barrier::new(2));
        let rounds = 20_000;
        let mut restored = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    turn.wait();
                    objects.put(place.clone(), live(2 * round));
                    turn.wait();
                }
            });
            for round in 1..=rounds {
                turn.wait();
                objects.apply(Event::Delete((&place, 2 * round + 1)), row);
                turn.wait();
                if objects.live.get(&place).is_some() {
                    restored = Some(round);
                }
            }
        });
        assert_eq!(restored, None, "restored in this round");
    }

    #[tokio::test]
    async fn own_write_wakes_only_the_others() {
        let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
        let kind = Kind { resource: ApiResource::erase::<ConfigMap>(&()), namespaced: true };
        let follower = Follower {
            gvk: gvk.clone(),
            kind,
            waker: Waker::default(),
            waiting: Arc::default(),
            objects: Objects::new(),
            state: watch::Sender::new(Synced::NotYet),
        };
        let place: ObjectRef = ("n".to_owned(), "a".to_owned());
        let owned = |version: u64, owners: &[&str], known_to: Option<&str>| {
            let mut live = live(version);
            live.owners = owners.iter().map(|&owner| owner.to_owned()).collect();
            live.known_to = known_to.map(str::to_owned);
            live
        };
        let woken = |live: Live| -> Vec<String> {
            let event = Event::Apply(live);
            let changes = follower.objects.apply(event, |live| (place.clone(), live));
            changes.iter().flat_map(|change| follower.concerned(change)).collect()
        };
        follower.waiting.lock().insert((gvk, place.clone()), ["e-2".to_owned()].into());
        follower.objects.put(place.clone(), owned(5, &["e-1"], Some("e-1")));
        assert_eq!(woken(owned(5, &["e-1"], None)), ["e-2"], "the answer's own state");
        assert!(woken(owned(5, &["e-1"], None)).is_empty(), "shown again");
        assert!(woken(owned(4, &["e-1"], None)).is_empty(), "an older state");
        assert_eq!(woken(owned(6, &["e-3"], None)), ["e-1", "e-2", "e-3"], "another owner");
    }
}
