//! One kind as a table: what is known of each object, and whether the table is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt as _};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::watch_object};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

/// What is known of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State<T> {
    /// Nothing yet.
    Unknown,
    /// The cluster does not have it.
    NotServed,
    /// Every object, by name.
    Complete(BTreeMap<String, T>),
}

/// One kind. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Table<T> {
    state: Arc<Mutex<State<T>>>,
    changed: Arc<Notify>,
}

impl<T: Clone + PartialEq> Table<T> {
    pub(super) fn new(changed: &Arc<Notify>) -> Self {
        Self { state: Arc::new(Mutex::new(State::Unknown)), changed: Arc::clone(changed) }
    }

    pub(crate) fn state(&self) -> State<T> {
        self.state.lock().clone()
    }

    fn set(&self, state: State<T>) {
        let mut now = self.state.lock();
        if *now != state {
            *now = state;
            self.changed.notify_one();
        }
    }

    /// Stores an object; also one that this process has just written, before the watch delivers it.
    pub(crate) fn put(&self, name: String, fact: T) {
        if let State::Complete(all) = &mut *self.state.lock()
            && all.get(&name) != Some(&fact)
        {
            all.insert(name, fact);
            self.changed.notify_one();
        }
    }

    fn remove(&self, name: &str) {
        if let State::Complete(all) = &mut *self.state.lock()
            && all.remove(name).is_some()
        {
            self.changed.notify_one();
        }
    }
}

/// Which objects of a kind.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    /// All of a kind that a definition brings.
    All,
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
    /// Keeps the table true, for ever.
    pub(super) async fn follow<T: Clone + PartialEq>(&self, table: &Table<T>, fact: fn(&DynamicObject) -> T) {
        let mut served = self.served();
        let mut objects: Option<BoxStream<'static, Event<DynamicObject>>> = None;
        let mut filling = BTreeMap::new();
        loop {
            let event = async {
                match &mut objects {
                    Some(objects) => objects.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(served) = served.next() => {
                    if !served {
                        objects = None;
                        table.set(State::NotServed);
                    } else if objects.is_none() {
                        objects = Some(self.objects());
                    }
                }
                Some(event) = event => match event {
                    Event::Init => filling.clear(),
                    Event::InitApply(object) => {
                        filling.insert(object.name_any(), fact(&object));
                    }
                    Event::InitDone => table.set(State::Complete(std::mem::take(&mut filling))),
                    Event::Apply(object) => table.put(object.name_any(), fact(&object)),
                    Event::Delete(object) => table.remove(&object.name_any()),
                },
            }
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
        watch_object(api, &name)
            .backoff(olm_runtime::backoff::of_watch())
            .filter_map(move |found| {
                let found = found.inspect_err(|error| {
                    tracing::warn!(definition = name, %error, "watch interrupted");
                });
                std::future::ready(found.ok().map(|object| object.is_some_and(|it| is_established(&it))))
            })
            .boxed()
    }

    fn objects(&self) -> BoxStream<'static, Event<DynamicObject>> {
        let all = || Api::all_with(self.client.clone(), &self.resource);
        let (api, config): (Api<DynamicObject>, _) = match &self.scope {
            Scope::All => (all(), watcher::Config::default()),
            Scope::Named(name) => {
                (all(), watcher::Config::default().fields(&format!("metadata.name={name}")))
            }
            Scope::BuiltIn(namespace) => {
                let api = Api::namespaced_with(self.client.clone(), namespace, &self.resource);
                (api, watcher::Config::default())
            }
        };
        let kind = self.resource.kind.clone();
        watcher(api, config)
            .backoff(olm_runtime::backoff::of_watch())
            .filter_map(move |event| {
                let event = event.inspect_err(|error| tracing::warn!(kind, %error, "watch interrupted"));
                std::future::ready(event.ok())
            })
            .boxed()
    }
}

/// Whether the definition is served, and not on its way out.
fn is_established(definition: &DynamicObject) -> bool {
    let conditions = definition.data.pointer("/status/conditions").and_then(Value::as_array);
    let established =
        conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True");
    established && definition.metadata.deletion_timestamp.is_none()
}
