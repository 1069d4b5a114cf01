//! The objects of one kind as a watch shows them, each reduced to what the process needs of it.
//!
//! [`Table`] is the state and applies events without IO. [`Watched`] is a table that several tasks share and that a watch keeps
//! up to date.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher::watcher};
use kube::{Api, Resource};
use parking_lot::{RwLock, RwLockReadGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::backoff;

/// The rows of a kind by key. A new listing replaces them when it is complete, never before.
#[derive(Debug)]
pub struct Table<K, V> {
    rows: BTreeMap<K, V>,
    listing: BTreeMap<K, V>,
    is_listed: bool,
    is_older: fn(&V, &V) -> bool,
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
}

impl<K, V> Change<K, V> {
    /// The states that are there, the earlier one first.
    pub fn states(&self) -> impl Iterator<Item = &V> {
        self.before.iter().chain(&self.after)
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self::with_order(|_, _| false)
    }
}

impl<K, V> Table<K, V> {
    /// An empty table that keeps a row rather than replace it with one that `is_older` than it.
    #[must_use]
    pub fn with_order(is_older: fn(&V, &V) -> bool) -> Self {
        Self { rows: BTreeMap::new(), listing: BTreeMap::new(), is_listed: false, is_older }
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> &BTreeMap<K, V> {
        &self.rows
    }

    /// Whether a listing was ever complete: until then an object that has no row may exist.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }
}

impl<K: Clone + Ord, V: Clone + PartialEq> Table<K, V> {
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
        if before.is_some_and(|before| *before == value || (self.is_older)(&value, before)) {
            return None;
        }
        let before = self.rows.insert(key.clone(), value.clone());
        Some(Change { key, before, after: Some(value) })
    }

    fn delete(&mut self, key: K, last: V) -> Option<Change<K, V>> {
        if self.rows.get(&key).is_some_and(|before| (self.is_older)(&last, before)) {
            return None;
        }
        self.rows.remove(&key);
        Some(Change { key, before: Some(last), after: None })
    }

    /// Removes the row of an object that the API server did not find.
    pub fn remove(&mut self, key: &K) {
        self.rows.remove(key);
    }

    fn replace(&mut self) -> Vec<Change<K, V>> {
        self.is_listed = true;
        let mut before = std::mem::take(&mut self.rows);
        let mut changes = Vec::new();
        for (key, mut value) in std::mem::take(&mut self.listing) {
            let known = before.remove(&key);
            if let Some(newer) = known.as_ref().filter(|known| (self.is_older)(&value, known)) {
                value = newer.clone();
            }
            if known.as_ref() != Some(&value) {
                changes.push(Change { key: key.clone(), before: known, after: Some(value.clone()) });
            }
            self.rows.insert(key, value);
        }
        changes.extend(before.into_iter().map(|(key, gone)| Change { key, before: Some(gone), after: None }));
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
        Self(Arc::new(Shared { table: RwLock::new(table), listed: watch::Sender::new(false) }))
    }

    /// The table, which does not change while the guard lives. Not to be held across an `await`.
    pub fn read(&self) -> RwLockReadGuard<'_, Table<K, V>> {
        self.0.table.read()
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

    /// See [`Table::put`].
    pub fn put(&self, key: K, value: V) -> Option<Change<K, V>> {
        self.0.table.write().put(key, value)
    }

    /// See [`Table::remove`].
    pub fn remove(&self, key: &K) {
        self.0.table.write().remove(key);
    }

    /// See [`Table::apply`].
    pub fn apply<O>(&self, event: Event<O>, row: impl Fn(O) -> (K, V)) -> Vec<Change<K, V>> {
        let mut table = self.0.table.write();
        let changes = table.apply(event, row);
        if table.is_listed {
            self.0.listed.send_if_modified(|listed| !std::mem::replace(listed, true));
        }
        changes
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
        let url = api.resource_url().to_owned();
        let events = watcher(api, config).backoff(backoff::of_watch());
        events.flat_map(move |event| {
            let changes = match event {
                Ok(event) => table.apply(event, &row),
                Err(error) => {
                    tracing::warn!(resource = url, %error, "watch interrupted");
                    Vec::new()
                }
            };
            futures::stream::iter(changes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Object = (&'static str, u64);

    fn applied(
        table: &mut Table<&'static str, u64>,
        events: impl IntoIterator<Item = Event<Object>>,
    ) -> Vec<String> {
        let mut changes: Vec<String> = events
            .into_iter()
            .flat_map(|event| table.apply(event, |object| object))
            .map(|Change { key, before, after }| format!("{key} {before:?} {after:?}"))
            .collect();
        changes.sort();
        changes
    }

    #[test]
    fn listing_replaces_the_rows_when_it_is_complete() {
        let mut table = Table::default();
        let first = [Event::Init, Event::InitApply(("a", 1)), Event::InitApply(("b", 1))];
        assert!(applied(&mut table, first).is_empty());
        assert!(table.rows().is_empty() && !table.is_listed());
        assert_eq!(applied(&mut table, [Event::InitDone]), ["a None Some(1)", "b None Some(1)"]);
        assert!(table.is_listed());
        // interrupted, then complete: `b` went and `c` came in between
        let second = [Event::Init, Event::InitApply(("b", 9)), Event::Init, Event::InitApply(("a", 1))];
        assert!(applied(&mut table, second).is_empty());
        assert_eq!(table.rows().len(), 2);
        let rest = [Event::InitApply(("c", 2)), Event::InitDone];
        assert_eq!(applied(&mut table, rest), ["b Some(1) None", "c None Some(2)"]);
    }

    #[test]
    fn change_is_reported_once() {
        let mut table = Table::default();
        let events = [Event::Apply(("a", 1)), Event::Apply(("a", 1)), Event::Apply(("a", 2))];
        assert_eq!(applied(&mut table, events), ["a None Some(1)", "a Some(1) Some(2)"]);
        assert_eq!(applied(&mut table, [Event::Delete(("a", 3))]), ["a Some(3) None"]);
        assert_eq!(table.put("a", 1).unwrap().states().collect::<Vec<_>>(), [&1]);
        assert!(table.put("a", 1).is_none());
    }

    #[test]
    fn newer_row_is_kept() {
        let mut table = Table::with_order(|one: &u64, other| one < other);
        table.put("a", 5);
        assert!(applied(&mut table, [Event::Apply(("a", 4)), Event::Delete(("a", 4))]).is_empty());
        assert!(table.put("a", 3).is_none());
        let listing = [Event::Init, Event::InitApply(("a", 4)), Event::InitDone];
        assert!(applied(&mut table, listing).is_empty());
        assert_eq!(table.rows()["a"], 5);
        assert_eq!(applied(&mut table, [Event::Delete(("a", 6))]), ["a Some(6) None"]);
    }

    #[tokio::test]
    async fn waiting_ends_with_the_first_listing() {
        let table: Watched<&str, u64> = Watched::default();
        let (waits, also) = (table.clone(), table.clone());
        let waiting = tokio::spawn(async move { waits.wait_until_listed().await });
        tokio::task::yield_now().await;
        table.apply(Event::Apply(("a", 1)), |object| object);
        assert!(!waiting.is_finished());
        table.apply(Event::<Object>::InitDone, |object| object);
        waiting.await.unwrap();
        also.wait_until_listed().await;
        assert!(table.get(&"a").is_none(), "it was not in the listing");
    }
}
