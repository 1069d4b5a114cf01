//! The puller's credentials, from the cluster's pull secrets. Read from the API before each pull that goes to a registry,
//! so that a pull never runs with credentials that were replaced; and what wakes those who failed when they change.
//!
//! Rule: catalogd §5.2 (with §12 row 19: nothing of an entry is dropped).

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use olm_oci::{Keyring, SharedKeyring};
use olm_runtime::pull_secrets::{self, Document, NamespacedName};
use tokio::sync::mpsc;

/// Keeps the puller's credentials up to date.
#[derive(Clone)]
pub struct Credentials {
    client: Client,
    global: Option<NamespacedName>,
    account: Option<NamespacedName>,
    keyring: SharedKeyring,
}

impl Credentials {
    /// Of the secret named by `--global-pull-secret` and of the service account that the process runs as, as far as
    /// there are any.
    #[must_use]
    pub fn new(
        client: Client,
        global: Option<NamespacedName>,
        account: Option<NamespacedName>,
        keyring: SharedKeyring,
    ) -> Self {
        Self { client, global, account, keyring }
    }

    /// Reads all secrets again and passes them to the puller; later ones win per registry.
    ///
    /// # Errors
    /// When one of them cannot be read; what the puller had stays. A secret that does not exist is none.
    pub async fn refresh(&self) -> Result<(), String> {
        let documents = pull_secrets::read(&self.client, self.global.as_ref(), self.account.as_ref())
            .await
            .map_err(|error| error.to_string())?;
        let mut keyring = Keyring::new();
        for (place, document) in documents {
            let added = match &document {
                Document::ConfigJson(bytes) => keyring.add_config_json(bytes),
                Document::DockerCfg(bytes) => keyring.add_dockercfg(bytes),
            };
            added.map_err(|error| format!("error reading pull secret {place}: {error}"))?;
        }
        self.keyring.set((!keyring.is_empty()).then_some(keyring));
        Ok(())
    }
}

/// Sends to `changed` when a pull secret (or the account that names them) changes, so that a pull refused for want of
/// credentials is retried immediately. Runs until it is dropped; only names and versions are read.
pub async fn watch(
    client: Client,
    global: Option<NamespacedName>,
    account: Option<NamespacedName>,
    changed: mpsc::Sender<()>,
) {
    let mut watches = SelectAll::new();
    if let Some(place) = &global {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &place.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
        watches.push(changes(api, config));
    }
    if let Some(place) = &account {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &place.namespace);
        watches.push(changes(api, watcher::Config::default()));
        let api: Api<PartialObjectMeta<ServiceAccount>> = Api::namespaced(client, &place.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
        watches.push(changes(api, config));
    }
    while watches.next().await.is_some() {
        // A full channel means that a wake-up is on its way already.
        let _ = changed.try_send(());
    }
}

/// One item for each change after the first listing.
fn changes<K>(api: Api<PartialObjectMeta<K>>, config: watcher::Config) -> BoxStream<'static, ()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let events =
        watcher(api, config).backoff(olm_runtime::backoff::of_watch()).filter_map(
            async |event| match event {
                Ok(Event::Apply(_)) => Some(()),
                Ok(Event::Init | Event::InitApply(_) | Event::InitDone | Event::Delete(_)) => None,
                Err(error) => {
                    tracing::debug!(%error, "watching pull secrets failed; the watch will be started again");
                    None
                }
            },
        );
    events.boxed()
}
