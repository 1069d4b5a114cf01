//! Wakes extensions whose account lacked rights as soon as accounts, roles or bindings change.
//!
//! The watches (metadata only) run only while an extension waits, because on most clusters none ever does: the last that is
//! settled ends them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

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

    /// Watches until it is aborted. The first listings are changes, too, and come at about the same time.
    async fn follow(self) {
        let mut changes = futures::stream::select_all([
            changes_of::<ServiceAccount>(&self.client),
            changes_of::<ClusterRole>(&self.client),
            changes_of::<ClusterRoleBinding>(&self.client),
            changes_of::<Role>(&self.client),
            changes_of::<RoleBinding>(&self.client),
        ]);
        while changes.next().await.is_some() {
            tokio::time::sleep(DEBOUNCE).await;
            while let Some(Some(())) = changes.next().now_or_never() {}
            self.waiting.lock().extensions.iter().for_each(|name| self.waker.wake(name));
        }
    }
}

fn changes_of<K>(client: &Client) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client.clone());
    let row = |object: PartialObjectMeta<K>| {
        ((object.namespace(), object.name_any()), (object.uid(), object.resource_version()))
    };
    Watched::default().follow(api, watcher::Config::default(), row).map(|_| ()).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_panic_exits, panics_at};

    #[test]
    fn account_watch_panic_exits() {
        let task = "watch of accounts and roles";
        assert_panic_exits(module_path!(), "account_watch_panic_exits", task, async || {
            let (rights, _woken) = Rights::new(panics_at("/clusterroles"));
            rights.wait("a");
            rights.watch();
        });
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
