//! The objects that the built-in issuer watches: its Secrets, and what calls webhooks of extensions. Every object is reduced as it
//! arrives; a change wakes the extension that it belongs to.

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use olm_api::labels;
use olm_bundle::CaTarget;
use olm_runtime::controller::Waker;
use olm_runtime::task;
use olm_runtime::watched::{Change, Watched, config_of_large_objects};
use tokio::task::JoinSet;

use super::caller::{Caller, Kind};
use super::needs::SecretRef;

/// The first listings may take this long; then the pass fails and is retried.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// The Secrets and webhook callers of the cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    secrets: Watched<SecretRef, Secret>,
    callers: [Watched<CaTarget, Caller>; Kind::ALL.len()],
}

impl Cluster {
    pub(super) fn start(client: &Client, wake: &Waker, tasks: &mut JoinSet<()>) -> Self {
        let issued = format!("{}={}", labels::WEBHOOK_CERTIFICATE, labels::WEBHOOK_CERTIFICATE_BUILT_IN);
        let secrets: Watched<SecretRef, Secret> = Watched::default();
        let changes = secrets.follow(
            Api::<Secret>::all(client.clone()),
            watcher::Config::default().labels(&issued),
            |mut secret: Secret| {
                secret.metadata.managed_fields = None;
                (secret_ref(&secret), secret)
            },
        );
        let wakes = wake_owners(changes, wake.clone(), owner);
        tasks.spawn(task::supervised("watch of webhook certificates", wakes));
        let callers = Kind::ALL.map(|kind| {
            let callers: Watched<CaTarget, Caller> = Watched::default();
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
            let owned = format!("{}={}", labels::OWNER_KIND, labels::OWNER_KIND_CLUSTER_EXTENSION);
            let owned = config_of_large_objects().labels(&owned);
            let row =
                move |object: DynamicObject| (kind.target(object.name_any()), Caller::read(kind, &object));
            let changes = callers.follow(api, owned, row);
            let wakes = wake_owners(changes, wake.clone(), |caller| &caller.extension);
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

    /// A Secret of the issuer.
    pub(super) fn secret(&self, secret: &SecretRef) -> Option<Secret> {
        self.secrets.get(secret)
    }

    /// The Secrets of the issuer that are marked as an extension's, in the order of their names.
    pub(super) fn secrets_of(&self, extension: &str) -> Vec<Secret> {
        let table = self.secrets.read();
        table.rows().values().filter(|secret| owner(secret) == extension).cloned().collect()
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
        let (kind, _) = Kind::split(target);
        Kind::ALL.iter().zip(&self.callers).find_map(|(one, callers)| (*one == kind).then_some(callers))
    }
}

/// Namespace and name of a Secret.
pub(super) fn secret_ref(secret: &Secret) -> SecretRef {
    (secret.namespace().unwrap_or_default(), secret.name_any())
}

/// Name of the extension that a Secret belongs to, empty without the label.
fn owner(secret: &Secret) -> &str {
    secret.labels().get(labels::OWNER_NAME).map(String::as_str).unwrap_or_default()
}

/// Wakes the extensions that own the object, before the change and after it.
async fn wake_owners<K, V>(
    changes: impl Stream<Item = Change<K, V>>,
    wake: Waker,
    owner: impl Fn(&V) -> &str,
) {
    let mut changes = pin!(changes);
    while let Some(change) = changes.next().await {
        change.states().for_each(|object| wake.wake(owner(object)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Apiserver, assert_panic_exits, panics_at};

    #[tokio::test(start_paused = true)]
    async fn certificate_watch_lists_crds_in_small_pages() {
        let (apiserver, mut tasks) = (Apiserver::new(|_, _| (404, json!({}))), JoinSet::new());
        let _cluster = Cluster::start(&apiserver.client(), &Waker::default(), &mut tasks);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut lists = apiserver.requests();
        lists.retain(|it| it.contains("/customresourcedefinitions?"));
        assert!(lists.len() == 1 && lists[0].contains("limit=100"), "{lists:?}");
    }

    #[test]
    fn certificate_watch_panic_exits() {
        for (task, path) in [
            ("watch of webhook certificates", "/secrets"),
            ("watch of webhook callers", "/customresourcedefinitions"),
        ] {
            assert_panic_exits(module_path!(), "certificate_watch_panic_exits", task, async || {
                let mut tasks = JoinSet::new();
                Cluster::start(&panics_at(path), &Waker::default(), &mut tasks);
                tasks.detach_all();
            });
        }
    }
}
