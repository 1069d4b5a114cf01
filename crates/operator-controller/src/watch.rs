//! Watches of our own kinds: a cache that a reconciler reads, and a stream of what changed.
//!
//! An object that does not fit its type arrives as an error value of its own ([`DeserializeGuard`]) and never stops
//! the watch. Managed fields are dropped: nobody here reads them, and they are half of an object's size.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher as _};

use futures::{Stream, StreamExt as _};
use kube::api::{ApiResource, DynamicObject};
use kube::core::{DeserializeGuard, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

/// A cache of all objects of one cluster-scoped kind, and the stream that fills it while it is polled.
pub struct Watch<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    /// The cache.
    pub store: Store<DeserializeGuard<K>>,
    /// Objects as they are added, changed or deleted. Ends only with the process.
    pub changes: futures::stream::BoxStream<'static, DeserializeGuard<K>>,
}

/// Starts to watch all objects of kind `K`.
pub fn all<K>(client: &Client) -> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    let changes = watcher(api, watcher::Config::default())
        .default_backoff()
        .modify(|object: &mut DeserializeGuard<K>| object.managed_fields_mut().clear())
        .reflect(writer)
        .touched_objects()
        .filter_map(|event| async move {
            event.inspect_err(|error| tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted")).ok()
        })
        .boxed();
    Watch { store, changes }
}

/// Groups of APIs that appear, change or go: the group of each CRD and APIService that the watch tells of, at its start of all.
/// Nothing is kept.
pub fn api_groups(client: &Client) -> futures::stream::BoxStream<'static, String> {
    let groups = |group: &str, kind: &'static str, plural: &str| {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
        watcher(api, watcher::Config::default()).default_backoff().touched_objects().filter_map(
            move |event| async move {
                let object =
                    event.inspect_err(|error| tracing::warn!(kind, %error, "watch interrupted")).ok()?;
                // `<plural>.<group>` and `<version>.<group>`
                object.name_any().split_once('.').map(|(_, group)| group.to_owned())
            },
        )
    };
    let crds = groups("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions");
    let services = groups("apiregistration.k8s.io", "APIService", "apiservices");
    futures::stream::select(crds, services).boxed()
}

/// Lets an object pass only when `key` of it differs from the last time, so that a controller does not wake for its own writes.
/// Memory: one number for each object that ever passed.
pub fn when_changed<K, H>(
    changes: impl Stream<Item = DeserializeGuard<K>> + Send + 'static,
    key: impl Fn(&DeserializeGuard<K>) -> H + Send + 'static,
) -> impl Stream<Item = DeserializeGuard<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Send + 'static,
    H: Hash,
{
    let mut seen: HashMap<String, u64> = HashMap::new();
    changes.filter(move |object| {
        let mut hasher = DefaultHasher::new();
        key(object).hash(&mut hasher);
        object.meta().deletion_timestamp.is_some().hash(&mut hasher);
        let now = hasher.finish();
        let before = seen.insert(object.uid().unwrap_or_default(), now);
        std::future::ready(before != Some(now))
    })
}
