//! What the built-in issuer watches: its Secrets, and what calls webhooks of extensions. Every object is reduced as it
//! arrives; a change wakes the extension that it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt as _};
use olm_api::labels;
use olm_bundle::CaTarget;
use olm_runtime::task;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::caller::{Caller, Kind};
use super::needs::Place;

/// How long a first listing may take before a pass gives up (and is tried again).
const PATIENCE: Duration = Duration::from_secs(30);

/// Extensions that are to be looked at, each once however often it is woken. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Wake(Arc<(Mutex<BTreeSet<String>>, Notify)>);

impl Wake {
    /// Looks at the extension of this name soon.
    pub fn extension(&self, name: &str) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.0.1.notify_one();
    }

    fn take(&self) -> Option<String> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }

    /// The names as they come. Meant for one reader.
    pub(super) fn names(self) -> impl Stream<Item = String> + Send + 'static {
        futures::stream::unfold(self, |wake| async move {
            loop {
                let woken = wake.0.1.notified();
                if let Some(name) = wake.take() {
                    return Some((name, wake.clone()));
                }
                woken.await;
            }
        })
    }
}

/// A watch's objects, reduced.
#[derive(Debug)]
pub(super) struct Cache<V> {
    items: RwLock<BTreeMap<String, V>>,
}

impl<V: Clone> Cache<V> {
    fn new() -> Arc<Self> {
        Arc::new(Self { items: RwLock::default() })
    }

    fn get(&self, key: &str) -> Option<V> {
        self.items.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn put(&self, key: String, value: V) {
        self.items.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    fn find(&self, wanted: impl Fn(&V) -> bool) -> Vec<V> {
        let items = self.items.read().unwrap_or_else(PoisonError::into_inner);
        items.values().filter(|value| wanted(value)).cloned().collect()
    }
}

/// What is known of the cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    secrets: Arc<Cache<Secret>>,
    callers: Arc<Cache<Caller>>,
    kinds: Vec<watch::Receiver<bool>>,
}

impl Cluster {
    /// Starts to watch.
    pub(super) fn start(client: &Client, wake: &Wake, tasks: &mut JoinSet<()>) -> Self {
        let secrets = Cache::new();
        let marked = watcher::Config::default().labels(&format!(
            "{}={}",
            labels::WEBHOOK_CERTIFICATE,
            labels::WEBHOOK_CERTIFICATE_BUILT_IN
        ));
        let (state, synced) = watch::channel(false);
        let (cache, waker) = (Arc::clone(&secrets), wake.clone());
        let key = |secret: &Secret| place_key(&place(secret));
        let api = Api::<Secret>::all(client.clone());
        let follows = follow(api, marked, cache, state, waker, key, |mut secret| {
            secret.metadata.managed_fields = None;
            secret
        });
        tasks.spawn(task::supervised("watch of webhook certificates", follows));
        let callers: Arc<Cache<Caller>> = Cache::new();
        let mut kinds = vec![synced];
        for kind in Kind::ALL {
            let (state, synced) = watch::channel(false);
            kinds.push(synced);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
            let owned = watcher::Config::default().labels(&format!(
                "{}={}",
                labels::OWNER_KIND,
                labels::OWNER_KIND_CLUSTER_EXTENSION
            ));
            let (cache, waker) = (Arc::clone(&callers), wake.clone());
            let key = move |object: &DynamicObject| target_key(&kind.target(object.name_any()));
            let follows =
                follow(api, owned, cache, state, waker, key, move |object| Caller::of(kind, &object));
            tasks.spawn(task::supervised("watch of webhook callers", follows));
        }
        Self { secrets, callers, kinds }
    }

    /// Waits for the first listings.
    pub(super) async fn synced(&self) -> Result<(), String> {
        let all = async {
            for kind in &self.kinds {
                // an error means that the process ends
                let _ = kind.clone().wait_for(|synced| *synced).await;
            }
        };
        tokio::time::timeout(PATIENCE, all)
            .await
            .map_err(|_| "Secrets, webhook configurations or CRDs could not be listed yet".to_owned())
    }

    /// A Secret of ours.
    pub(super) fn secret(&self, place: &Place) -> Option<Secret> {
        self.secrets.get(&place_key(place))
    }

    /// The Secrets of ours that are marked as an extension's.
    pub(super) fn secrets_of(&self, extension: &str) -> Vec<Secret> {
        self.secrets
            .find(|secret| secret.labels().get(labels::OWNER_NAME).is_some_and(|name| name == extension))
    }

    /// A caller, if it is an object of that extension.
    pub(super) fn caller(&self, target: &CaTarget, extension: &str) -> Option<Caller> {
        self.callers.get(&target_key(target)).filter(|caller| caller.extension == extension)
    }

    /// Takes in what the apiserver answered to a write.
    pub(super) fn put_caller(&self, caller: Caller) {
        self.callers.put(target_key(&caller.target), caller);
    }
}

/// Where a Secret is.
pub(super) fn place(secret: &Secret) -> Place {
    (secret.namespace().unwrap_or_default(), secret.name_any())
}

fn place_key(place: &Place) -> String {
    format!("{}/{}", place.0, place.1)
}

fn target_key(target: &CaTarget) -> String {
    super::caller::title(target)
}

/// What a cached value tells of its extension.
pub(super) trait Owned {
    /// Name of the extension.
    fn extension(&self) -> String;
}

impl Owned for Secret {
    fn extension(&self) -> String {
        self.labels().get(labels::OWNER_NAME).cloned().unwrap_or_default()
    }
}

impl Owned for Caller {
    fn extension(&self) -> String {
        self.extension.clone()
    }
}

async fn follow<K, V>(
    api: Api<K>,
    config: watcher::Config,
    cache: Arc<Cache<V>>,
    state: watch::Sender<bool>,
    wake: Wake,
    key: impl Fn(&K) -> String + Send,
    digest: impl Fn(K) -> V + Send,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    V: Owned + Clone + PartialEq,
{
    let mut events = watcher(api, config).backoff(olm_runtime::backoff::of_watch()).boxed();
    let mut mine: BTreeSet<String> = BTreeSet::new();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    let changed = |key: &str, value: Option<V>| {
        let mut items = cache.items.write().unwrap_or_else(PoisonError::into_inner);
        let before = match value.clone() {
            Some(value) => items.insert(key.to_owned(), value),
            None => items.remove(key),
        };
        if before != value {
            before.iter().chain(&value).for_each(|one| wake.extension(&one.extension()));
        }
    };
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                let key = key(&object);
                changed(&key, Some(digest(object)));
                listed.insert(key);
            }
            Ok(watcher::Event::InitDone) => {
                for gone in mine.difference(&listed) {
                    changed(gone, None);
                }
                mine.clone_from(&listed);
                state.send_replace(true);
            }
            Ok(watcher::Event::Apply(object)) => {
                let key = key(&object);
                changed(&key, Some(digest(object)));
                mine.insert(key);
            }
            Ok(watcher::Event::Delete(object)) => {
                let key = key(&object);
                changed(&key, None);
                mine.remove(&key);
            }
            Err(error) => tracing::warn!(%error, "watch of webhook certificates failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_panic_exits, panics_at};

    #[test]
    fn certificate_watch_panic_exits() {
        for (task, path) in [
            ("watch of webhook certificates", "/secrets"),
            ("watch of webhook callers", "/customresourcedefinitions"),
        ] {
            assert_panic_exits(module_path!(), "certificate_watch_panic_exits", task, async || {
                let mut tasks = JoinSet::new();
                Cluster::start(&panics_at(path), &Wake::default(), &mut tasks);
                tasks.detach_all();
            });
        }
    }
}
