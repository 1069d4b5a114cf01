//! The puller's credentials, from the cluster's pull secrets. Read from the API before each pull that goes to a registry,
//! so that a pull never runs with credentials that were replaced; and what wakes those who failed when they change.
//!
//! Rule: catalogd §5.2 (with §12 row 19: nothing of an entry is dropped).

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use olm_oci::{Keyring, SharedKeyring};
use olm_runtime::pull_secrets::{self, Document, NamespacedName};
use olm_runtime::watched::{Change, Watched};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Keeps the puller's credentials up to date.
#[derive(Clone)]
pub struct Credentials {
    client: Client,
    global: Option<NamespacedName>,
    account: Option<NamespacedName>,
    keyring: SharedKeyring,
    /// Where the secrets of the last read are, whether they exist or not; `None` before it.
    places: Arc<Mutex<Option<Vec<NamespacedName>>>>,
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
        Self { client, global, account, keyring, places: Arc::default() }
    }

    /// Reads all secrets again and passes them to the puller; later ones win per registry. A secret that does not exist is
    /// none. If one cannot be read, the puller keeps what it had: other registries need nothing of it.
    pub async fn refresh(&self) {
        let read = tokio::time::timeout(READ_TIMEOUT, self.read()).await;
        match read.unwrap_or_else(|_| Err("error reading pull secrets: no answer in time".to_owned())) {
            Ok(keyring) => self.keyring.set((!keyring.is_empty()).then_some(keyring)),
            Err(error) => tracing::warn!(error, "pulls use the credentials that were read before"),
        }
    }

    async fn read(&self) -> Result<Keyring, String> {
        let places = pull_secrets::places(&self.client, self.global.as_ref(), self.account.as_ref())
            .await
            .map_err(|error| error.to_string())?;
        *self.places.lock() = Some(places.clone());
        let documents =
            pull_secrets::documents(&self.client, places).await.map_err(|error| error.to_string())?;
        Keyring::of_pull_secrets(documents.iter().map(Document::parts)).map_err(|error| error.to_string())
    }

    /// Sends to `changed` when a pull secret (or the account that names them) changes, so that a pull refused for want of
    /// credentials is retried immediately. Other secrets of the namespace do not count once it is known which ones are read.
    /// The first listing counts: it may differ from what an attempt before it read. Runs until it is
    /// dropped; only names and versions are read.
    pub async fn watch(self, changed: mpsc::Sender<()>) {
        let mut watches = SelectAll::new();
        if let Some(place) = &self.global {
            let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(self.client.clone(), &place.namespace);
            let config = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
            watches.push(changes(api, config, |_| true));
        }
        if let Some(account) = &self.account {
            let api: Api<PartialObjectMeta<Secret>> =
                Api::namespaced(self.client.clone(), &account.namespace);
            let (places, namespace) = (Arc::clone(&self.places), account.namespace.clone());
            let is_read = move |name: &str| {
                let places = places.lock();
                let is_place = |place: &NamespacedName| place.namespace == namespace && place.name == name;
                places.as_ref().is_none_or(|places| places.iter().any(is_place))
            };
            watches.push(changes(api, watcher::Config::default(), is_read));
            let api: Api<PartialObjectMeta<ServiceAccount>> =
                Api::namespaced(self.client.clone(), &account.namespace);
            let config = watcher::Config::default().fields(&format!("metadata.name={}", account.name));
            watches.push(changes(api, config, |_| true));
        }
        while watches.next().await.is_some() {
            // A full channel means that a wake-up is on its way already.
            let _ = changed.try_send(());
        }
    }
}

/// The first listing, if there is anything, and each change, also one while the watch was interrupted, of objects whose name
/// counts. A deletion gives no credentials.
fn changes<K>(
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
    counts: impl Fn(&str) -> bool + Send + 'static,
) -> BoxStream<'static, ()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let row = |object: PartialObjectMeta<K>| (object.name_any(), (object.uid(), object.resource_version()));
    let changes = Watched::default().follow(api, config, row);
    let counted = move |change: Change<String, _>| {
        std::future::ready(change.after.filter(|_| counts(&change.key)).map(|_| ()))
    };
    changes.filter_map(counted).boxed()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use olm_runtime::testing::{self, failure};
    use serde_json::{Value, json};

    use super::*;

    fn place(name: &str) -> NamespacedName {
        NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    /// Secrets with their versions, as one listing has them.
    type Listing = &'static [(&'static str, &'static str)];

    /// An apiserver that lists Secrets, at each listing the next ones, and whose watches end in an error. Its account names the
    /// Secret `pull`, which has no content.
    fn apiserver(listings: &[Listing]) -> Client {
        let listings = Mutex::new(VecDeque::from(listings.to_vec()));
        testing::client(move |request| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let listing = listings.lock().front().copied();
            let found = match request.uri().path().rsplit('/').next() {
                Some("account") => {
                    let names = json!([{"name": "pull"}]);
                    let account =
                        json!({"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": names});
                    Some((200, account))
                }
                Some("secrets") if is_watch => {
                    // they change while nothing is watched
                    listings.lock().pop_front();
                    Some((200, json!({"type": "ERROR", "object": failure(410, "Expired").1})))
                }
                Some("secrets") => listing.map(|listing| {
                    let secret = |(name, version): &(&str, &str)| {
                        let metadata = json!({"name": name, "uid": "u", "resourceVersion": version});
                        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
                    };
                    let items: Vec<Value> = listing.iter().map(secret).collect();
                    (200, json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                        "metadata": {"resourceVersion": "1"}, "items": items}))
                }),
                // the watch of the account
                Some("serviceaccounts") => None,
                _ => Some(failure(404, "NotFound")),
            };
            async move {
                match found {
                    Some(answer) => answer,
                    // after the last version no listing is answered
                    None => std::future::pending().await,
                }
            }
        })
    }

    /// How many changes the watch reports.
    async fn changes_of(credentials: Credentials) -> usize {
        let (changed, mut received) = mpsc::channel(8);
        let ended = tokio::time::timeout(Duration::from_secs(3600), credentials.watch(changed)).await;
        assert!(ended.is_err(), "the watch has ended");
        std::iter::from_fn(|| received.try_recv().ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_change_between_two_watches_are_noticed() {
        let [one, two]: [Listing; 2] = [&[("name", "1")], &[("name", "2")]];
        for (listings, expected) in [(&[one, two][..], 2), (&[one, one, one], 1)] {
            let client = apiserver(listings);
            let credentials = Credentials::new(client, Some(place("name")), None, SharedKeyring::default());
            assert_eq!(changes_of(credentials).await, expected, "{listings:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_watch_counts_only_secrets_that_are_read() {
        let [before, other, both]: [Listing; 3] =
            [&[("other", "1")], &[("other", "2")], &[("other", "3"), ("pull", "3")]];
        for (is_read, listings, expected) in
            [(true, &[before, other][..], 0), (true, &[before, both], 1), (false, &[before, other], 2)]
        {
            let client = apiserver(listings);
            let credentials =
                Credentials::new(client, None, Some(place("account")), SharedKeyring::default());
            if is_read {
                credentials.refresh().await;
            }
            assert_eq!(changes_of(credentials).await, expected, "{is_read} {listings:?}");
        }
    }

    #[tokio::test]
    async fn credentials_stay_while_a_secret_cannot_be_read() {
        let next = Arc::new(Mutex::new((200, String::new())));
        let answers = Arc::clone(&next);
        let client = testing::client(move |_| {
            let (code, document) = answers.lock().clone();
            let bytes = k8s_openapi::ByteString(document.into_bytes());
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "name"},
                "data": {".dockerconfigjson": bytes}});
            std::future::ready(match code {
                200 => (200, secret),
                404 => failure(404, "NotFound"),
                code => failure(code, "X"),
            })
        });
        let keyring = SharedKeyring::default();
        let credentials = Credentials::new(client, Some(place("name")), None, keyring.clone());
        for (code, document, want) in [
            (403, "", None),
            (200, r#"{"auths":{"a.test":{"auth":"dTpw"}}}"#, Some("a.test")),
            (200, "{", Some("a.test")),
            (403, "", Some("a.test")),
            (200, r#"{"auths":{"broken.test":{"auth":"x"},"b.test":{"auth":"dTpw"}}}"#, Some("b.test")),
            (404, "", None),
        ] {
            *next.lock() = (code, document.to_owned());
            credentials.refresh().await;
            // it prints registries and no credentials
            let held = format!("{keyring:?}");
            for host in ["a.test", "b.test", "broken.test"] {
                assert_eq!(held.contains(host), want == Some(host), "{code} {document}: {held}");
            }
        }
    }
}
