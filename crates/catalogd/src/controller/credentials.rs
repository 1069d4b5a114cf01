//! The puller's credentials, from the cluster's pull secrets. Read from the API before each pull that goes to a registry,
//! so that a pull never runs with credentials that were replaced; and what wakes those who failed when they change.
//!
//! Rule: catalogd §5.2 (with §12 row 19: nothing of an entry is dropped).

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use olm_oci::{Keyring, SharedKeyring};
use olm_runtime::pull_secrets::{self, Document, NamespacedName};
use olm_runtime::watched::Watched;
use serde::de::DeserializeOwned;
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
/// credentials is retried immediately. The first listing counts: it may differ from what an attempt before it read. Runs until it is
/// dropped; only names and versions are read.
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

/// The first listing, if there is anything, and each change, also one while the watch was interrupted. A deletion gives no credentials.
fn changes<K>(api: Api<PartialObjectMeta<K>>, config: watcher::Config) -> BoxStream<'static, ()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let row = |object: PartialObjectMeta<K>| (object.name_any(), (object.uid(), object.resource_version()));
    let changes = Watched::default().follow(api, config, row);
    changes.filter_map(async |change| change.after.map(|_| ())).boxed()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::Duration;

    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    /// An apiserver that lists one Secret, at each listing with the next version, and whose watches end in an error.
    fn apiserver(versions: &[&'static str]) -> Client {
        let versions = Arc::new(Mutex::new(VecDeque::from(versions.to_vec())));
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let version = versions.lock().front().copied();
            let answer: Option<Value> = if is_watch {
                // the version changes while nothing is watched
                versions.lock().pop_front();
                Some(
                    json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "status": "Failure"}}),
                )
            } else {
                version.map(|version| {
                    let metadata = json!({"name": "name", "uid": "u", "resourceVersion": version});
                    let secret = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
                    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": version},
                        "items": [secret]})
                })
            };
            async move {
                // after the last version no listing is answered
                let Some(answer) = answer else { return std::future::pending().await };
                Ok::<_, tower::BoxError>(http::Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        Client::new(server, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_change_between_two_watches_are_noticed() {
        let secret = NamespacedName { namespace: "ns".to_owned(), name: "name".to_owned() };
        for (versions, expected) in [(&["1", "2"][..], 2), (&["1", "1", "1"], 1)] {
            let (changed, mut received) = mpsc::channel(8);
            let watching = watch(apiserver(versions), Some(secret.clone()), None, changed);
            let ended = tokio::time::timeout(Duration::from_secs(3600), watching).await;
            assert!(ended.is_err(), "the watch has ended");
            let count = std::iter::from_fn(|| received.try_recv().ok()).count();
            assert_eq!(count, expected, "{versions:?}");
        }
    }
}
