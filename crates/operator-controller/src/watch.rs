//! Watches of our own kinds: one for each kind in a process, a cache that all controllers read, and what changed for each
//! of them.
//!
//! An object that does not fit its type arrives as an error value of its own ([`Stored`]) and never stops the watch.
//! Managed fields and kubectl's copy of what was applied are dropped: nobody here reads them, and they are more than half of an
//! object's size. Objects are shared, never copied: whoever reads one gets a pointer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher as _};
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use olm_runtime::task;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// An object as the apiserver has it.
#[derive(Debug)]
pub struct Stored<K>(pub Result<Arc<K>, Unreadable>);

/// An object that does not fit its type.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Why not.
    pub error: String,
    /// What can be read of it.
    pub metadata: ObjectMeta,
}

impl<K> Clone for Stored<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'de, K: Resource + DeserializeOwned> serde::Deserialize<'de> for Stored<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(match K::deserialize(&value) {
            Ok(object) => Ok(Arc::new(object)),
            Err(error) => {
                let rest = PartialObjectMeta::<K>::deserialize(&value).map_err(D::Error::custom)?;
                Err(Unreadable { error: error.to_string(), metadata: rest.metadata })
            }
        }))
    }
}

impl<K: Resource + Clone> Resource for Stored<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(types: &K::DynamicType) -> Cow<'_, str> {
        K::kind(types)
    }

    fn group(types: &K::DynamicType) -> Cow<'_, str> {
        K::group(types)
    }

    fn version(types: &K::DynamicType) -> Cow<'_, str> {
        K::version(types)
    }

    fn plural(types: &K::DynamicType) -> Cow<'_, str> {
        K::plural(types)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => Arc::make_mut(object).meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

/// What kubectl notes of an object that it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Drops what nobody here reads.
fn slim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// Something that happened to an object.
#[derive(Debug)]
pub struct Change<K> {
    /// The object as it is, or was last.
    pub object: Stored<K>,
    /// It does not exist any more.
    pub gone: bool,
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), gone: self.gone }
    }
}

/// What happens to all objects of a kind: each as it is at first, and every change. Ends only with the watch.
pub type Changes<K> = BoxStream<'static, Change<K>>;

type Event<K> = watcher::Event<Stored<K>>;
type Observer<K> = Box<dyn FnMut(&Event<K>) + Send>;

/// The objects of one kind as a [`Watch`] knows them. Cheap to clone; whoever has one reads the same.
///
/// It is kube's store, but that any number may wait for the first listing: kube's own `wait_until_ready` wakes only the last
/// of those who wait.
#[derive(Clone)]
pub struct Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store: Store<Stored<K>>,
    filled: tokio::sync::watch::Receiver<bool>,
}

/// The watch ended before its first listing was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the watch has ended")]
pub struct Ended;

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// Resolves once the first listing is complete.
    ///
    /// # Errors
    /// When the watch ends before that: the process ends.
    pub async fn wait_until_ready(&self) -> Result<(), Ended> {
        self.filled.clone().wait_for(|filled| *filled).await.map(|_| ()).map_err(|_| Ended)
    }

    /// The same objects as kube's machinery wants them.
    #[must_use]
    pub fn reader(&self) -> Store<Stored<K>> {
        self.store.clone()
    }
}

impl<K> std::ops::Deref for Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    type Target = Store<Stored<K>>;

    fn deref(&self) -> &Self::Target {
        &self.store
    }
}

/// All objects of one cluster-scoped kind; to be [started](Watch::start).
pub struct Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// The cache.
    pub store: Cache<K>,
    writer: Writer<Stored<K>>,
    filled: tokio::sync::watch::Sender<bool>,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    observers: Vec<Observer<K>>,
    subscribers: Vec<mpsc::UnboundedSender<Change<K>>>,
}

/// Ends the watch when it is dropped.
#[derive(Debug)]
pub struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// A watch of all objects of kind `K`.
    pub fn new(client: &Client) -> Self {
        let api: Api<Stored<K>> = Api::all(client.clone());
        let events = watcher(api, watcher::Config::default())
            .backoff(olm_runtime::backoff::of_watch())
            .modify(|object: &mut Stored<K>| slim(object.meta_mut()))
            .boxed();
        Self::of(events)
    }

    fn of(events: BoxStream<'static, watcher::Result<Event<K>>>) -> Self {
        let (store, writer) = reflector::store();
        let (filled, seen) = tokio::sync::watch::channel(false);
        let store = Cache { store, filled: seen };
        Self { store, writer, filled, events, observers: Vec::new(), subscribers: Vec::new() }
    }

    /// A further stream of all changes. What is not taken yet waits as a pointer for each change.
    pub fn subscribe(&mut self) -> Changes<K> {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        self.subscribers.push(sender);
        futures::stream::poll_fn(move |context| receiver.poll_recv(context)).boxed()
    }

    /// Shows every event to `observer` before the cache has it.
    pub(crate) fn observe(&mut self, observer: impl FnMut(&Event<K>) + Send + 'static) {
        self.observers.push(Box::new(observer));
    }

    /// Fills the cache and tells what changes, until the result is dropped.
    pub fn start(self) -> Running {
        let task = format!("watch of {}", K::plural(&()));
        Running(tokio::spawn(async move { task::supervised(&task, self.run()).await }).abort_handle())
    }

    async fn run(mut self) {
        while let Some(event) = self.events.next().await {
            match event {
                Ok(event) => self.take(&event),
                Err(error) => tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted"),
            }
        }
    }

    fn take(&mut self, event: &Event<K>) {
        let before = matches!(event, watcher::Event::InitDone).then(|| self.store.state());
        self.observers.iter_mut().for_each(|observer| observer(event));
        self.writer.apply_watcher_event(event);
        match event {
            watcher::Event::Init | watcher::Event::InitApply(_) => {}
            watcher::Event::Apply(object) => self.tell(object, false),
            watcher::Event::Delete(object) => self.tell(object, true),
            // a listing says what there is; what went while nobody watched is told too
            watcher::Event::InitDone => {
                self.filled.send_replace(true);
                self.store.state().iter().for_each(|object| self.tell(object, false));
                for object in before.into_iter().flatten() {
                    if self.store.get(&ObjectRef::from_obj(&*object)).is_none() {
                        self.tell(&object, true);
                    }
                }
            }
        }
    }

    fn tell(&self, object: &Stored<K>, gone: bool) {
        for subscriber in &self.subscribers {
            // an error means that the subscriber has ended
            let _ = subscriber.send(Change { object: object.clone(), gone });
        }
    }
}

/// Lets a change pass only when `key` of the object differs from the last time or the object is gone, so that a controller does
/// not wake for its own writes. Memory: one number for each object.
pub fn when_changed<K, H>(
    changes: impl Stream<Item = Change<K>> + Send + 'static,
    key: impl Fn(&Stored<K>) -> H + Send + 'static,
) -> impl Stream<Item = Change<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    H: Hash,
{
    let mut seen: HashMap<String, u64> = HashMap::new();
    changes.filter(move |Change { object, gone }| {
        let uid = object.uid().unwrap_or_default();
        let pass = if *gone {
            seen.remove(&uid);
            true
        } else {
            let mut hasher = DefaultHasher::new();
            key(object).hash(&mut hasher);
            object.meta().deletion_timestamp.is_some().hash(&mut hasher);
            let now = hasher.finish();
            seen.insert(uid, now) != Some(now)
        };
        std::future::ready(pass)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_panic_exits, panics_at};
    use olm_api::ClusterObjectSet;
    use serde_json::json;

    fn stored(name: &str, number: i64) -> Stored<ClusterObjectSet> {
        let object = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": name, "uid": name, "generation": number},
            "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"},
        });
        serde_json::from_value(object).unwrap()
    }

    fn watch() -> Watch<ClusterObjectSet> {
        Watch::of(futures::stream::empty().boxed())
    }

    #[test]
    fn watch_panic_exits() {
        let task = "watch of clusterobjectsets";
        assert_panic_exits(module_path!(), "watch_panic_exits", task, async || {
            let running = Watch::<ClusterObjectSet>::new(&panics_at("/clusterobjectsets")).start();
            std::mem::forget(running);
        });
    }

    #[test]
    fn what_nobody_reads_is_dropped() {
        let mut metadata: ObjectMeta = serde_json::from_value(json!({
            "name": "a", "managedFields": [{"manager": "kubectl"}], "annotations": {LAST_APPLIED: "{}", "mine": "x"},
        }))
        .unwrap();
        slim(&mut metadata);
        assert_eq!(
            serde_json::to_value(metadata).unwrap(),
            json!({"name": "a", "annotations": {"mine": "x"}})
        );
    }

    #[tokio::test]
    async fn all_who_wait_for_the_first_listing_are_woken() {
        let mut watch = watch();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let cache = watch.store.clone();
                tokio::spawn(async move { cache.wait_until_ready().await })
            })
            .collect();
        tokio::task::yield_now().await;
        watch.take(&watcher::Event::Init);
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|one| !one.is_finished()));
        watch.take(&watcher::Event::InitDone);
        for one in waiting {
            let woken = tokio::time::timeout(std::time::Duration::from_secs(5), one).await;
            assert_eq!(woken.unwrap().unwrap(), Ok(()));
        }
    }

    #[tokio::test]
    async fn who_waits_hears_that_the_watch_has_ended() {
        let cache = watch().store.clone();
        assert_eq!(cache.wait_until_ready().await, Err(Ended));
    }

    #[test]
    fn an_object_that_does_not_fit_keeps_its_name() {
        let odd = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": "odd"}, "spec": {"revision": "one"}});
        let odd: Stored<ClusterObjectSet> = serde_json::from_value(odd).unwrap();
        assert_eq!(odd.name_any(), "odd");
        assert!(odd.0.unwrap_err().error.contains("one"));
    }

    #[tokio::test]
    async fn every_subscriber_hears_of_everything_and_of_what_went_unseen() {
        let mut watch = watch();
        let (first, second) = (watch.subscribe(), watch.subscribe());
        for event in [
            watcher::Event::Init,
            watcher::Event::InitApply(stored("a", 1)),
            watcher::Event::InitApply(stored("b", 1)),
            watcher::Event::InitDone,
            watcher::Event::Apply(stored("b", 2)),
            watcher::Event::Init,
            watcher::Event::InitApply(stored("b", 2)),
            watcher::Event::InitDone,
            watcher::Event::Delete(stored("b", 2)),
        ] {
            watch.take(&event);
        }
        drop(watch);
        let told = |changes: Changes<ClusterObjectSet>| {
            changes
                .map(|change| format!("{}{}", if change.gone { "-" } else { "+" }, change.object.name_any()))
        };
        let (first, second): (Vec<_>, Vec<_>) = (told(first).collect().await, told(second).collect().await);
        assert_eq!(first, second);
        let mut listed = first[..2].to_vec();
        listed.sort();
        assert_eq!(listed, ["+a", "+b"]);
        assert_eq!(first[2..], ["+b", "+b", "-a", "-b"]);
    }

    #[tokio::test]
    async fn a_change_that_does_not_matter_wakes_nobody_and_an_end_always_does() {
        let change = |number, gone| Change { object: stored("a", number), gone };
        let changes =
            [change(1, false), change(1, false), change(2, false), change(2, true), change(2, false)];
        let passed = when_changed(futures::stream::iter(changes), |object| object.meta().generation);
        let passed: Vec<_> = passed.map(|one| (one.object.meta().generation, one.gone)).collect().await;
        assert_eq!(passed, [(Some(1), false), (Some(2), false), (Some(2), true), (Some(2), false)]);
    }
}
