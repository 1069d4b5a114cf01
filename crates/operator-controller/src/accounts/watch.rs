//! Wakes extensions whose account lacked rights as soon as accounts, roles or bindings change.
//!
//! The watches (metadata only) run only while an extension waits, because on most clusters none ever does: the last that is
//! settled ends them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use olm_runtime::controller::Waker;
use olm_runtime::task;
use olm_runtime::watched::Watched;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;

/// Changes within this time are one wake-up: roles and bindings are mostly applied together.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// How long the first listings may take together; one that may not be listed must not hide the changes of the others.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Who waits for rights. Cheap to clone.
#[derive(Clone)]
pub struct Rights {
    client: Client,
    waiting: Arc<Mutex<Waiting>>,
    waker: Waker,
}

#[derive(Default)]
struct Waiting {
    extensions: BTreeSet<String>,
    watching: Option<AbortHandle>,
}

impl Rights {
    /// No extension waits yet. The stream gives the names of extensions to reconcile.
    #[must_use]
    pub fn new(client: Client) -> (Self, BoxStream<'static, String>) {
        let waker = Waker::default();
        let names = waker.names().boxed();
        (Self { client, waiting: Arc::default(), waker }, names)
    }

    /// The extension is woken by every change of rights that is [watched](Self::watch) until it has
    /// [`settled`](Self::settled).
    pub(super) fn wait(&self, extension: &str) {
        self.waiting.lock().extensions.insert(extension.to_owned());
    }

    /// Starts to watch, if no watch runs. All that wait are woken once when that has begun, so that nothing is missed which
    /// happened before.
    pub(super) fn watch(&self) {
        let mut waiting = self.waiting.lock();
        if waiting.watching.is_none() && !waiting.extensions.is_empty() {
            let follows = task::supervised("watch of accounts and roles", self.clone().follow());
            waiting.watching = Some(tokio::spawn(follows).abort_handle());
        }
    }

    /// The extension waits no more. When it was the last, the watches end.
    pub fn settled(&self, extension: &str) {
        let mut waiting = self.waiting.lock();
        waiting.extensions.remove(extension);
        if waiting.extensions.is_empty()
            && let Some(task) = waiting.watching.take()
        {
            task.abort();
        }
    }

    /// Watches until it is aborted. The first listings are one change, however long each of them takes.
    async fn follow(self) {
        let (listed, watches): (Vec<_>, Vec<_>) = [
            changes_of::<ServiceAccount>(&self.client),
            changes_of::<ClusterRole>(&self.client),
            changes_of::<ClusterRoleBinding>(&self.client),
            changes_of::<Role>(&self.client),
            changes_of::<RoleBinding>(&self.client),
        ]
        .into_iter()
        .unzip();
        let mut changes = futures::stream::select_all(watches);
        let all_listed = tokio::time::timeout(LIST_TIMEOUT, futures::future::join_all(listed));
        let mut listing = std::pin::pin!(changes.by_ref().for_each(async |()| {}));
        tokio::select! {
            () = &mut listing => return,
            _ = all_listed => {}
        }
        loop {
            tokio::time::sleep(DEBOUNCE).await;
            while let Some(Some(())) = changes.next().now_or_never() {}
            self.waiting.lock().extensions.iter().for_each(|name| self.waker.wake(name));
            if changes.next().await.is_none() {
                return;
            }
        }
    }
}

/// Resolves when all objects of a kind are listed; changes of them.
fn changes_of<K>(client: &Client) -> (BoxFuture<'static, ()>, BoxStream<'static, ()>)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client.clone());
    let row = |object: PartialObjectMeta<K>| {
        ((object.namespace(), object.name_any()), (object.uid(), object.resource_version()))
    };
    let watched = Watched::default();
    let changes = watched.follow(api, watcher::Config::default(), row).map(|_| ()).boxed();
    (async move { watched.wait_until_listed().await }.boxed(), changes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{assert_panic_exits, client, panics_at};

    #[test]
    fn account_watch_panic_exits() {
        let task = "watch of accounts and roles";
        assert_panic_exits(module_path!(), "account_watch_panic_exits", task, async || {
            let (rights, _woken) = Rights::new(panics_at("/clusterroles"));
            rights.wait("a");
            rights.watch();
        });
    }

    /// An apiserver with one object of each kind, whose listings take 0 to 2 seconds, and in which nothing changes.
    fn slow_apiserver() -> Client {
        client(|request| async move {
            let query = request.uri().query().unwrap_or_default();
            if query.contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let kinds = ["serviceaccounts", "clusterroles", "clusterrolebindings", "roles", "rolebindings"];
            let position = kinds.iter().position(|kind| request.uri().path().ends_with(&format!("/{kind}")));
            tokio::time::sleep(Duration::from_millis(500) * u32::try_from(position.unwrap()).unwrap()).await;
            let items = json!([{"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}}]);
            (200, json!({"metadata": {"resourceVersion": "9"}, "items": items}))
        })
    }

    #[tokio::test(start_paused = true)]
    async fn rights_wake_once_for_slow_first_listings() {
        let (rights, woken) = Rights::new(slow_apiserver());
        rights.wait("a");
        rights.watch();
        let woken = woken.take_until(tokio::time::sleep(Duration::from_secs(60)));
        assert_eq!(woken.collect::<Vec<_>>().await, ["a"]);
    }

    #[tokio::test]
    async fn rights_watch_ends_with_the_last_that_waits() {
        olm_runtime::tls::install_provider();
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let (rights, _woken) = Rights::new(Client::try_from(nowhere).unwrap());
        rights.watch();
        rights.wait("a");
        rights.wait("b");
        assert!(rights.waiting.lock().watching.is_none(), "no extension was rejected yet");
        rights.watch();
        let task = rights.waiting.lock().watching.clone().unwrap();
        rights.settled("a");
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
        rights.settled("b");
        assert!(rights.waiting.lock().watching.is_none());
        let ended = async {
            while !task.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    }
}
