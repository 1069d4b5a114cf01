//! The objects of one kind as a watch shows them, each reduced to what the process needs of it.
//!
//! [`Table`] is the state and applies events without IO. [`Watched`] is a table that several tasks share and that a watch keeps
//! up to date. [`Objects`] is the table of one of the project's own kinds. [`single`] shows one object without a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::core::{ObjectMeta, PartialObjectMeta, error_boundary::InvalidObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher::watcher};
use kube::{Api, Client, Resource};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::error_text::chain;
use crate::{backoff, task};

mod received;

pub use received::{Received, readable};

/// The rows of a kind by key. A new listing replaces them when it is complete, never before.
#[derive(Debug)]
pub struct Table<K, V> {
    rows: BTreeMap<K, V>,
    listing: BTreeMap<K, V>,
    is_listed: bool,
    version: fn(&V) -> Option<u64>,
    group: fn(&V) -> Option<&str>,
    /// The keys of each group.
    groups: BTreeMap<String, BTreeSet<K>>,
    /// The version of the object whose deletion the watch showed last.
    last_deleted: Option<u64>,
}

/// A row that appeared, changed or went. At least one of the two states is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<K, V> {
    /// Key of the row.
    pub key: K,
    /// The row before; of a deleted object its last state.
    pub before: Option<V>,
    /// The row now; `None` when the object is gone.
    pub after: Option<V>,
    /// The state comes from the answer to a request of this process.
    pub is_answer: bool,
}

impl<K, V> Change<K, V> {
    fn new(key: K, before: Option<V>, after: Option<V>) -> Self {
        Self { key, before, after, is_answer: false }
    }

    /// The states that are there, the earlier one first.
    pub fn states(&self) -> impl Iterator<Item = &V> {
        self.before.iter().chain(&self.after)
    }

    /// The present state, of a deleted object the last.
    pub fn latest(&self) -> Option<&V> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// Whether the object appeared, went, or differs in what `part` takes of it.
    pub fn concerns<'a, P: PartialEq>(&'a self, part: impl Fn(&'a V) -> P) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => part(before) != part(after),
            _ => true,
        }
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self::with_order(|_| None)
    }
}

impl<K, V> Table<K, V> {
    /// An empty table that keeps a row rather than replace it with one that has a lower `version`. A row without a version is neither older
    /// nor newer than any other.
    #[must_use]
    pub fn with_order(version: fn(&V) -> Option<u64>) -> Self {
        Self {
            rows: BTreeMap::new(),
            listing: BTreeMap::new(),
            is_listed: false,
            version,
            group: |_| None,
            groups: BTreeMap::new(),
            last_deleted: None,
        }
    }

    /// The same with an index of the rows by `group`.
    #[must_use]
    pub fn grouped_by(self, group: fn(&V) -> Option<&str>) -> Self {
        Self { group, ..self }
    }

    #[must_use]
    pub fn rows(&self) -> &BTreeMap<K, V> {
        &self.rows
    }

    /// Whether a listing was ever complete: until then an object that has no row may exist.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    fn is_older(&self, one: &V, than: &V) -> bool {
        is_lower((self.version)(one), (self.version)(than))
    }
}

fn is_lower(one: Option<u64>, than: Option<u64>) -> bool {
    matches!((one, than), (Some(one), Some(than)) if one < than)
}

impl<K: Clone + Ord, V: Clone + PartialEq> Table<K, V> {
    /// The rows of a group in the order of their keys.
    pub fn group(&self, group: &str) -> impl Iterator<Item = &V> {
        self.groups.get(group).into_iter().flatten().filter_map(|key| self.rows.get(key))
    }

    /// Applies an event of the watch and returns what it changed.
    pub fn apply<O>(&mut self, event: Event<O>, row: impl Fn(O) -> (K, V)) -> Vec<Change<K, V>> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let (key, value) = row(object);
                self.listing.insert(key, value);
                Vec::new()
            }
            Event::InitDone => self.replace(),
            Event::Apply(object) => {
                let (key, value) = row(object);
                self.put(key, value).into_iter().collect()
            }
            Event::Delete(object) => {
                let (key, last) = row(object);
                self.delete(key, last).into_iter().collect()
            }
        }
    }

    /// Inserts a row: the object as the API server showed it in an event or in the answer to a request. `None` when that
    /// changes nothing, or when it is older than the row that is there.
    pub fn put(&mut self, key: K, value: V) -> Option<Change<K, V>> {
        let before = self.rows.get(&key);
        if before.is_some_and(|before| *before == value || self.is_older(&value, before)) {
            return None;
        }
        let before = self.insert(key.clone(), value.clone());
        Some(Change::new(key, before, Some(value)))
    }

    fn delete(&mut self, key: K, last: V) -> Option<Change<K, V>> {
        if self.rows.get(&key).is_some_and(|before| self.is_older(&last, before)) {
            return None;
        }
        self.remove(&key);
        self.last_deleted = (self.version)(&last);
        Some(Change::new(key, Some(last), None))
    }

    /// Whether an object that this process created was deleted before its row is added. A watch shows changes in their order: after a later
    /// deletion it has shown the creation, too.
    fn is_gone(&self, key: &K, created: &V) -> bool {
        !self.rows.contains_key(key) && is_lower((self.version)(created), self.last_deleted)
    }

    /// Removes the row of an object that the API server did not find.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let row = self.rows.remove(key)?;
        if let Some(group) = (self.group)(&row)
            && let Some(keys) = self.groups.get_mut(group)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.groups.remove(group);
            }
        }
        Some(row)
    }

    fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.remove(&key);
        if let Some(group) = (self.group)(&value) {
            self.groups.entry(group.to_owned()).or_default().insert(key.clone());
        }
        self.rows.insert(key, value);
        before
    }

    fn replace(&mut self) -> Vec<Change<K, V>> {
        self.is_listed = true;
        let listing = std::mem::take(&mut self.listing);
        let gone: Vec<K> = self.rows.keys().filter(|key| !listing.contains_key(key)).cloned().collect();
        let mut changes: Vec<_> =
            listing.into_iter().filter_map(|(key, value)| self.put(key, value)).collect();
        changes.extend(gone.into_iter().map(|key| {
            let last = self.remove(&key);
            Change::new(key, last, None)
        }));
        changes
    }
}

/// A table that a watch keeps up to date. Clones share it.
#[derive(Debug)]
pub struct Watched<K, V>(Arc<Shared<K, V>>);

#[derive(Debug)]
struct Shared<K, V> {
    table: RwLock<Table<K, V>>,
    listed: watch::Sender<bool>,
    interruptions: watch::Sender<u64>,
    subscribers: Mutex<Vec<mpsc::UnboundedSender<Change<K, V>>>>,
}

impl<K, V> Clone for Watched<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V> Default for Watched<K, V> {
    fn default() -> Self {
        Self::new(Table::default())
    }
}

impl<K, V> Watched<K, V> {
    /// Shares a table.
    #[must_use]
    pub fn new(table: Table<K, V>) -> Self {
        let (table, listed) = (RwLock::new(table), watch::Sender::new(false));
        let interruptions = watch::Sender::new(0);
        Self(Arc::new(Shared { table, listed, interruptions, subscribers: Mutex::default() }))
    }

    /// The table, which does not change while the guard lives. Not to be held across an `await`.
    pub fn read(&self) -> RwLockReadGuard<'_, Table<K, V>> {
        self.0.table.read()
    }

    /// Counts the times that the watch failed: the apiserver may be another one since.
    #[must_use]
    pub fn interruptions(&self) -> watch::Receiver<u64> {
        self.0.interruptions.subscribe()
    }

    /// Returns when the first listing is complete.
    pub async fn wait_until_listed(&self) {
        // the sender lives as long as `self`
        let _ = self.0.listed.subscribe().wait_for(|listed| *listed).await;
    }
}

impl<K: Clone + Ord, V: Clone + PartialEq> Watched<K, V> {
    /// The row with this key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        self.read().rows.get(key).cloned()
    }

    /// The rows that are there, then all changes, each after the table has it. Those that are not taken yet wait in memory.
    pub fn subscribe(&self) -> impl Stream<Item = Change<K, V>> + Send + use<K, V>
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        // with the table locked, so that no change is missed
        let table = self.read();
        let rows = table.rows.iter();
        let rows: Vec<_> = rows.map(|(key, row)| Change::new(key.clone(), None, Some(row.clone()))).collect();
        self.0.subscribers.lock().push(sender);
        let changes = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
        futures::stream::iter(rows).chain(changes)
    }

    /// See [`Table::put`].
    pub fn put(&self, key: K, value: V) -> Option<Change<K, V>> {
        self.0.table.write().put(key, value)
    }

    /// Replaces a row by the answer to a write, before the watch shows it. An answer that comes after the object has gone changes
    /// nothing.
    pub fn update(&self, key: K, value: V) {
        let change = {
            let mut table = self.0.table.write();
            if !table.rows.contains_key(&key) {
                return;
            }
            table.put(key, value)
        };
        self.publish(change.map(|change| Change { is_answer: true, ..change }).as_slice());
    }

    /// Adds the row of an object that this process created, before the watch shows it; none if the watch has shown its deletion.
    pub fn insert(&self, key: K, value: V) {
        let change = {
            let mut table = self.0.table.write();
            if table.is_gone(&key, &value) {
                return;
            }
            table.put(key, value)
        };
        self.publish(change.map(|change| Change { is_answer: true, ..change }).as_slice());
    }

    /// See [`Table::remove`].
    pub fn remove(&self, key: &K) {
        self.0.table.write().remove(key);
    }

    /// Empties the table, as if nothing was ever listed: the kind is not served any more.
    pub fn clear(&self) {
        let mut table = self.0.table.write();
        table.rows.clear();
        table.groups.clear();
        table.is_listed = false;
        self.0.listed.send_replace(false);
    }

    /// See [`Table::apply`].
    pub fn apply<O>(&self, event: Event<O>, row: impl Fn(O) -> (K, V)) -> Vec<Change<K, V>> {
        let (changes, is_listed) = {
            let mut table = self.0.table.write();
            (table.apply(event, row), table.is_listed)
        };
        self.publish(&changes);
        if is_listed {
            self.0.listed.send_if_modified(|listed| !std::mem::replace(listed, true));
        }
        changes
    }

    fn publish(&self, changes: &[Change<K, V>]) {
        let mut subscribers = self.0.subscribers.lock();
        for change in changes {
            subscribers.retain(|subscriber| subscriber.send(change.clone()).is_ok());
        }
    }

    /// Applies the events of a watch while the stream is polled; gives each change after the table has it. A watch that fails
    /// is logged and started again with the wait of [`backoff::of_watch`].
    pub fn follow<O, F>(
        &self,
        api: Api<O>,
        config: watcher::Config,
        row: F,
    ) -> impl Stream<Item = Change<K, V>> + Send + use<K, V, O, F>
    where
        F: Fn(O) -> (K, V) + Send + 'static,
        O: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let table = self.clone();
        let mut log = Log::new(api.resource_url().to_owned());
        let events = watcher(api, config).backoff(backoff::of_watch());
        events.flat_map(move |event| {
            // that it begins is no success yet
            if !matches!(event, Ok(Event::Init)) {
                log.record(event.as_ref().err());
            }
            let changes = match event {
                Ok(event) => table.apply(event, &row),
                Err(_) => {
                    table.0.interruptions.send_modify(|count| *count += 1);
                    Vec::new()
                }
            };
            futures::stream::iter(changes)
        })
    }
}

/// The object of this name, `None` while there is none: at first, after each later listing, and at each change. A watch that fails gives
/// its error, which is logged already, and is started again with the wait of [`backoff::of_watch`].
pub fn single<K>(api: Api<K>, name: &str) -> impl Stream<Item = watcher::Result<Option<K>>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut log = Log::new(format!("{}/{name}", api.resource_url()));
    let changes = watcher::watch_object(api, name).backoff(backoff::of_watch());
    changes.inspect(move |change| log.record(change.as_ref().err()))
}

/// Logs that a watch is interrupted, and that it continues.
struct Log {
    resource: String,
    is_interrupted: bool,
}

impl Log {
    fn new(resource: String) -> Self {
        Self { resource, is_interrupted: false }
    }

    fn record(&mut self, error: Option<&watcher::Error>) {
        let was_interrupted = std::mem::replace(&mut self.is_interrupted, error.is_some());
        match error.map(|error| chain(error)) {
            Some(error) if was_interrupted => {
                tracing::debug!(resource = self.resource, error, "watch is still interrupted");
            }
            Some(error) => tracing::warn!(resource = self.resource, error, "watch interrupted"),
            None if was_interrupted => tracing::info!(resource = self.resource, "watch continues"),
            None => {}
        }
    }
}

/// An object of one of the project's own kinds as the watch shows it. One that does not fit its type keeps its metadata and never
/// stops the watch ([`Received`]).
///
/// It is shared and not copied, because every reader of the table takes one out. Two are equal when they are the same version of
/// the same object. It is [`slim`].
#[derive(Debug)]
pub struct Object<K>(pub Result<Arc<K>, Arc<InvalidObject>>);

/// Objects in a page of a list, of a kind whose objects are large.
const LARGE_OBJECTS: u32 = 100;

/// What kubectl notes of an object that it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object without managed fields and kubectl's copy of what was applied: no reader needs them, and they are more than half of an
/// object's size.
pub fn slim<K: Resource>(mut object: K) -> K {
    let metadata = object.meta_mut();
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    object
}

impl<K: Resource> Object<K> {
    /// An object as the API server answered it.
    pub fn new(object: K) -> Self {
        Self(Ok(Arc::new(slim(object))))
    }

    /// Its metadata, also when the rest does not fit.
    pub fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    /// The object, if it fits its type.
    pub fn ok(&self) -> Option<&Arc<K>> {
        self.0.as_ref().ok()
    }

    pub fn name(&self) -> String {
        self.meta().name.clone().unwrap_or_default()
    }

    /// `namespace/name`, or the name where there are no namespaces.
    pub fn key(&self) -> String {
        key(self.meta())
    }

    /// Its UID; empty in tests only.
    pub fn uid(&self) -> String {
        self.meta().uid.clone().unwrap_or_default()
    }

    /// The value of a label, if it is set and not empty.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Resource versions are numbers wherever etcd is behind the API server; where they are not, the state that came last counts.
    fn version(&self) -> Option<u64> {
        self.meta().resource_version.as_ref()?.parse().ok()
    }
}

impl<K: Resource> From<Received<K>> for Object<K> {
    fn from(object: Received<K>) -> Self {
        Self(slim(object).0.map(Arc::new).map_err(Arc::new))
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Resource> PartialEq for Object<K> {
    fn eq(&self, other: &Self) -> bool {
        let (this, other) = (self.meta(), other.meta());
        (&this.uid, &this.resource_version) == (&other.uid, &other.resource_version)
    }
}

/// Selects all objects of a kind whose objects are large, as CustomResourceDefinitions are. A page of a list is in memory whole before its
/// objects are reduced to what is cached, so it has fewer of them.
#[must_use]
pub fn config_of_large_objects() -> watcher::Config {
    watcher::Config::default().page_size(LARGE_OBJECTS)
}

/// `namespace/name`, or the name where there are no namespaces.
#[must_use]
pub fn key(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    match &metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// All objects of one kind by [`key`].
pub type Objects<K> = Watched<String, Object<K>>;

impl<K> Objects<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// No objects yet, to be indexed by `group`.
    #[must_use]
    pub fn grouped_by(group: fn(&Object<K>) -> Option<&str>) -> Self {
        Self::new(Table::with_order(Object::version).grouped_by(group))
    }

    /// No objects yet.
    #[must_use]
    pub fn empty() -> Self {
        Self::grouped_by(|_| None)
    }

    /// No objects yet, to be indexed by their namespace.
    #[must_use]
    pub fn by_namespace() -> Self {
        Self::grouped_by(|object| object.meta().namespace.as_deref())
    }

    /// Watches all objects of the kind until the handle is dropped.
    pub fn watch(&self, client: &Client) -> AbortOnDropHandle<()> {
        self.watch_selected(client, watcher::Config::default(), |object| object)
    }

    /// Watches the objects that `config` selects until the handle is dropped; `reduce` removes what the process does not need of one.
    pub fn watch_selected(
        &self,
        client: &Client,
        config: watcher::Config,
        reduce: fn(K) -> K,
    ) -> AbortOnDropHandle<()> {
        let api: Api<Received<K>> = Api::all(client.clone());
        let row = move |object: Received<K>| {
            let object = Object::from(Received(object.0.map(reduce)));
            (object.key(), object)
        };
        supervise::<K>(self.follow(api, config, row))
    }

    /// Watches the objects that `config` selects until the handle is dropped, of which the apiserver sends the metadata only; `from` makes an
    /// object of it.
    pub fn watch_metadata(
        &self,
        client: &Client,
        config: watcher::Config,
        from: fn(ObjectMeta) -> K,
    ) -> AbortOnDropHandle<()> {
        let api: Api<PartialObjectMeta<K>> = Api::all(client.clone());
        let row = move |object: PartialObjectMeta<K>| {
            let object = Object::new(from(object.metadata));
            (object.key(), object)
        };
        supervise::<K>(self.follow(api, config, row))
    }

    /// The keys of all objects.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.read().rows().keys().cloned().collect()
    }

    /// The objects of a namespace that fit their type; of a table that is indexed [by namespace](Self::by_namespace).
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read().group(namespace).filter_map(Object::ok).cloned().collect()
    }

    /// The object with this key, if it fits its type.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<Arc<K>> {
        self.read().rows().get(key).and_then(Object::ok).cloned()
    }

    /// The objects that fit their type.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().rows().values().filter_map(Object::ok).cloned().collect()
    }

    /// The resourceVersion at which an object is cached, in words.
    #[must_use]
    pub fn describe(&self, name: &str) -> String {
        let version = self.meta(name, |metadata| metadata.resource_version.clone()).flatten();
        format!("cached at {}", version.unwrap_or_default())
    }

    /// The metadata of the object with this name, read by `part`.
    pub fn meta<T>(&self, name: &str, part: impl FnOnce(&ObjectMeta) -> T) -> Option<T> {
        self.read().rows().get(name).map(|object| part(object.meta()))
    }
}

/// Follows the changes of a kind; a panic ends the process.
fn supervise<K: Resource<DynamicType = ()>>(
    changes: impl Stream<Item: Send> + Send + 'static,
) -> AbortOnDropHandle<()> {
    let name = format!("watch of {}", K::plural(&()));
    let follows = async move { task::supervised(&name, changes.for_each(async |_| ())).await };
    AbortOnDropHandle::new(tokio::spawn(follows))
}

#[cfg(test)]
mod tests;
