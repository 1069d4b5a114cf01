//! What the built-in issuer watches: its Secrets, and what calls webhooks of extensions. Every object is reduced as it
//! arrives; a change wakes the extension that it belongs to.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use olm_api::labels;
use olm_bundle::CaTarget;
use olm_runtime::task;
use olm_runtime::watched::{Change, Watched};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::caller::{Caller, Kind};
use super::needs::Place;

/// The first listings may take this long; then the pass fails and is retried.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Extensions that are to be looked at, each once however often it is woken. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Wake(Arc<(Mutex<BTreeSet<String>>, Notify)>);

impl Wake {
    /// Looks at the extension of this name soon.
    pub fn extension(&self, name: &str) {
        self.0.0.lock().insert(name.to_owned());
        self.0.1.notify_one();
    }

    fn take(&self) -> Option<String> {
        self.0.0.lock().pop_first()
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

/// The Secrets and webhook callers of the cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    secrets: Watched<Place, Secret>,
    callers: [Watched<CaTarget, Caller>; Kind::ALL.len()],
}

impl Cluster {
    /// Starts to watch.
    pub(super) fn start(client: &Client, wake: &Wake, tasks: &mut JoinSet<()>) -> Self {
        let labelled = |key, value| watcher::Config::default().labels(&format!("{key}={value}"));
        let secrets: Watched<Place, Secret> = Watched::default();
        let changes = secrets.follow(
            Api::<Secret>::all(client.clone()),
            labelled(labels::WEBHOOK_CERTIFICATE, labels::WEBHOOK_CERTIFICATE_BUILT_IN),
            |mut secret: Secret| {
                secret.metadata.managed_fields = None;
                (place(&secret), secret)
            },
        );
        let wakes = wake_owners(changes, wake.clone());
        tasks.spawn(task::supervised("watch of webhook certificates", wakes));
        let callers = Kind::ALL.map(|kind| {
            let callers: Watched<CaTarget, Caller> = Watched::default();
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
            let owned = labelled(labels::OWNER_KIND, labels::OWNER_KIND_CLUSTER_EXTENSION);
            let row =
                move |object: DynamicObject| (kind.target(object.name_any()), Caller::of(kind, &object));
            let wakes = wake_owners(callers.follow(api, owned, row), wake.clone());
            tasks.spawn(task::supervised("watch of webhook callers", wakes));
            callers
        });
        Self { secrets, callers }
    }

    /// Waits for the first listings.
    pub(super) async fn synced(&self) -> Result<(), String> {
        let all = async {
            self.secrets.wait_until_listed().await;
            for callers in &self.callers {
                callers.wait_until_listed().await;
            }
        };
        tokio::time::timeout(LIST_TIMEOUT, all)
            .await
            .map_err(|_| "Secrets, webhook configurations or CRDs could not be listed yet".to_owned())
    }

    /// A Secret of ours.
    pub(super) fn secret(&self, place: &Place) -> Option<Secret> {
        self.secrets.get(place)
    }

    /// The Secrets of ours that are marked as an extension's, in the order of their names.
    pub(super) fn secrets_of(&self, extension: &str) -> Vec<Secret> {
        let table = self.secrets.read();
        table.rows().values().filter(|secret| secret.extension() == extension).cloned().collect()
    }

    /// A caller, if it is an object of that extension.
    pub(super) fn caller(&self, target: &CaTarget, extension: &str) -> Option<Caller> {
        let found = self.callers_like(target)?.get(target);
        found.filter(|caller| caller.extension == extension)
    }

    /// Takes in what the apiserver answered to a write.
    pub(super) fn put_caller(&self, caller: Caller) {
        if let Some(callers) = self.callers_like(&caller.target) {
            callers.put(caller.target.clone(), caller);
        }
    }

    fn callers_like(&self, target: &CaTarget) -> Option<&Watched<CaTarget, Caller>> {
        let kind = Kind::of(target);
        Kind::ALL.iter().zip(&self.callers).find_map(|(one, callers)| (*one == kind).then_some(callers))
    }
}

/// Where a Secret is.
pub(super) fn place(secret: &Secret) -> Place {
    (secret.namespace().unwrap_or_default(), secret.name_any())
}

/// An object that belongs to an extension.
pub(super) trait Owned {
    /// Name of the extension, empty without the label.
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

/// Wakes the extensions that own the object, before the change and after it.
async fn wake_owners<K, V: Owned>(changes: impl Stream<Item = Change<K, V>>, wake: Wake) {
    let mut changes = pin!(changes);
    while let Some(change) = changes.next().await {
        change.states().for_each(|object| wake.extension(&object.extension()));
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
