//! One kind as a table: what is known of each object, and whether the table is complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{BoxStream, StreamExt as _};
use kube::api::{ApiResource, DynamicObject};
use kube::core::{DynamicResourceScope, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use olm_api::openshift::CLUSTER_OPERATOR;
use olm_runtime::controller::Waker;
use olm_runtime::watched::{self, Watched};
use serde_json::Value;

/// The state of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State<T> {
    /// Not listed yet.
    Unknown,
    /// The cluster does not have it.
    NotServed,
    /// Every object, by name, with the namespace for [`Scope::Labelled`].
    Complete(BTreeMap<String, T>),
}

/// One kind. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Table<T> {
    rows: Watched<String, T>,
    /// The kind was not served when that was last known, and has not been listed since.
    is_absent: Arc<AtomicBool>,
    waker: Waker,
}

impl<T: Clone + PartialEq + Send + Sync + 'static> Table<T> {
    pub(super) fn new(waker: &Waker) -> Self {
        Self { rows: Watched::default(), is_absent: Arc::default(), waker: waker.clone() }
    }

    pub(crate) fn state(&self) -> State<T> {
        let rows = self.rows.read();
        if rows.is_listed() {
            State::Complete(rows.rows().clone())
        } else if self.is_absent.load(Ordering::Acquire) {
            State::NotServed
        } else {
            State::Unknown
        }
    }

    /// Stores an object that this process has just written over `before`, until the watch delivers it. If the row is another one
    /// meanwhile, the watch has delivered this write or a later one, and does not deliver that again.
    pub(crate) fn put(&self, name: String, before: Option<&T>, fact: T) {
        let is_current = {
            let rows = self.rows.read();
            rows.is_listed() && rows.rows().get(&name) == before
        };
        if is_current && self.rows.put(name, fact).is_some() {
            self.waker.wake(CLUSTER_OPERATOR);
        }
    }
}

/// Which objects of a kind.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    /// All of a kind that a definition brings.
    All,
    /// Those that this label selector selects, of a namespaced kind that a definition brings. The apiserver sends their metadata only.
    Labelled(&'static str),
    /// The one of this name, of a kind that a definition brings.
    Named(&'static str),
    /// All in this namespace, of a kind that every cluster has.
    BuiltIn(String),
}

/// Where a table is filled from.
pub(super) struct Source {
    pub(super) client: Client,
    pub(super) resource: ApiResource,
    pub(super) scope: Scope,
}

impl Source {
    /// Keeps the table up to date while it is polled.
    pub(super) async fn follow<T>(&self, table: &Table<T>, fact: fn(&DynamicObject) -> T)
    where
        T: Clone + PartialEq + Send + Sync + 'static,
    {
        let key: fn(&DynamicObject) -> String = match self.scope {
            Scope::Labelled(_) => |it| format!("{}/{}", it.namespace().unwrap_or_default(), it.name_any()),
            Scope::All | Scope::Named(_) | Scope::BuiltIn(_) => |it| it.name_any(),
        };
        let row = move |object: DynamicObject| (key(&object), fact(&object));
        let of_metadata = move |object: PartialObjectMeta<DynamicObject>| row(from_metadata(object));
        let mut served = self.served();
        while let Some(is_served) = served.next().await {
            if is_served {
                let changes = match self.scope {
                    Scope::Labelled(_) => {
                        let (api, config) = self.objects();
                        table.rows.follow(api, config, of_metadata).boxed()
                    }
                    Scope::All | Scope::Named(_) | Scope::BuiltIn(_) => {
                        let (api, config) = self.objects();
                        table.rows.follow(api, config, row).boxed()
                    }
                };
                let changes = changes.for_each(async |_| table.waker.wake(CLUSTER_OPERATOR));
                let listed = async {
                    table.rows.wait_until_listed().await;
                    table.waker.wake(CLUSTER_OPERATOR);
                };
                let follows = async { tokio::join!(changes, listed) };
                let absent = async { while served.next().await != Some(false) {} };
                tokio::select! {
                    _ = follows => {}
                    () = absent => {}
                }
            }
            table.rows.clear();
            table.is_absent.store(true, Ordering::Release);
            table.waker.wake(CLUSTER_OPERATOR);
        }
    }

    /// Whether the cluster has the kind, at first and whenever that may have changed.
    fn served(&self) -> BoxStream<'static, bool> {
        if let Scope::BuiltIn(_) = self.scope {
            return futures::stream::iter([true]).chain(futures::stream::pending()).boxed();
        }
        let definitions = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            "customresourcedefinitions",
        );
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &definitions);
        let name = format!("{}.{}", self.resource.plural, self.resource.group);
        let is_served = |object: Option<DynamicObject>| object.is_some_and(|it| is_established(&it));
        watched::single(api, &name)
            .filter_map(move |found| std::future::ready(found.ok().map(is_served)))
            .boxed()
    }

    fn objects<K>(&self) -> (Api<K>, watcher::Config)
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let all = || Api::all_with(self.client.clone(), &self.resource);
        match &self.scope {
            Scope::All => (all(), watcher::Config::default()),
            Scope::Labelled(selector) => (all(), watcher::Config::default().labels(selector)),
            Scope::Named(name) => {
                (all(), watcher::Config::default().fields(&format!("metadata.name={name}")))
            }
            Scope::BuiltIn(namespace) => {
                let api = Api::namespaced_with(self.client.clone(), namespace, &self.resource);
                (api, watcher::Config::default())
            }
        }
    }
}

/// The object as far as its metadata goes.
pub(super) fn from_metadata(object: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    DynamicObject { types: object.types, metadata: object.metadata, data: Value::Null }
}

/// Whether the definition is served, and not on its way out.
fn is_established(definition: &DynamicObject) -> bool {
    let conditions = definition.data.pointer("/status/conditions").and_then(Value::as_array);
    let established =
        conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True");
    established && definition.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::*;

    #[test]
    fn table_keeps_what_the_watch_delivered_after_a_write() {
        let table: Table<u32> = Table::new(&Waker::default());
        let deliver = |event: Event<u32>| drop(table.rows.apply(event, |row| ("olm".to_owned(), row)));
        let put = |before: Option<u32>, row: u32| table.put("olm".to_owned(), before.as_ref(), row);
        let row = || match table.state() {
            State::Complete(rows) => rows.get("olm").copied(),
            State::Unknown | State::NotServed => None,
        };
        put(None, 1);
        assert_eq!(row(), None, "nothing is listed yet");
        deliver(Event::InitDone);
        put(None, 1);
        assert_eq!(row(), Some(1));
        put(Some(1), 2);
        assert_eq!(row(), Some(2));
        // another program wrote 4 over 3, and the watch was faster than the answer to the write of 3
        deliver(Event::Apply(4));
        put(Some(2), 3);
        assert_eq!(row(), Some(4));
        deliver(Event::Delete(4));
        put(Some(4), 5);
        assert_eq!(row(), None, "it was deleted");
    }
}
