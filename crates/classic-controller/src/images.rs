//! Images of catalogs and bundles: pulled in the process with the credentials of a catalog and of the process, kept on disk by digest.
//!
//! Rule: classic-apis §2.1 (`secrets`), decision 53.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use olm_api::classic::CatalogSource;
use olm_bundle::BundleLimits;
use olm_catalog::CatalogImages;
use olm_core::Digest;
use olm_install::BundleFetcher;
use olm_oci::{Config, Keyring, Limits, Puller, SharedKeyring, Store, StoreError};
use olm_runtime::error_text::chain;
use olm_runtime::pull_secrets::{self, Document, NamespacedName};
use olm_runtime::watched::{self, Objects};
use parking_lot::Mutex;

use crate::collection::GRACE_PERIOD;
use crate::image_source::ImagesInUse;

/// Access to images.
pub(crate) struct Images {
    client: Client,
    /// Pulls without credentials of its own; its connections and certificates are used again.
    anonymous: Puller,
    /// Without credentials.
    catalogs: CatalogImages,
    /// Without credentials.
    bundles: BundleFetcher,
    accounts: Objects<ServiceAccount>,
    /// The Secret of `--global-pull-secret`.
    global: Option<NamespacedName>,
    /// The account that the process runs as.
    own_account: Option<NamespacedName>,
    /// The pull secrets of the process as they were read last.
    of_process: Mutex<Vec<Document>>,
    /// Catalogs on disk that the last collection found unused.
    unused: Arc<Mutex<BTreeSet<Digest>>>,
}

impl Images {
    /// Keeps images below `cache`.
    ///
    /// # Errors
    /// When the signature policy or the directories cannot be used.
    pub(crate) fn open(
        client: Client,
        cache: &Path,
        config: Config,
        limits: (Limits, BundleLimits),
    ) -> anyhow::Result<Self> {
        let store = |name: &str| Store::open(&cache.join(name)).context("cannot open the cache of images");
        let anonymous = Puller::new(config);
        anonymous.check_policy()?;
        let bundles = BundleFetcher::new(anonymous.clone(), store("bundles")?);
        Ok(Self {
            client,
            catalogs: CatalogImages::new(anonymous.clone(), store("catalogs")?),
            anonymous,
            bundles: bundles.with_limits(limits.0, limits.1).quarantining(),
            accounts: Objects::by_namespace(),
            global: None,
            own_account: None,
            of_process: Mutex::default(),
            unused: Arc::default(),
        })
    }

    /// Uses the pull secrets of these accounts.
    #[must_use]
    pub(crate) fn with_accounts(self, accounts: Objects<ServiceAccount>) -> Self {
        Self { accounts, ..self }
    }

    /// Uses this Secret and the pull secrets of the account that the process runs as, for every catalog.
    #[must_use]
    pub(crate) fn with_secrets_of_process(
        self,
        global: Option<NamespacedName>,
        own_account: Option<NamespacedName>,
    ) -> Self {
        Self { global, own_account, ..self }
    }

    /// Reads catalogs with the credentials of a catalog.
    ///
    /// # Errors
    /// When its secrets cannot be read.
    pub(crate) async fn catalogs(&self, source: &CatalogSource) -> Result<CatalogImages, String> {
        Ok(self.catalogs.with_puller(self.puller(source).await?))
    }

    /// Reads bundles with the credentials of their catalog.
    ///
    /// # Errors
    /// When its secrets cannot be read.
    pub(crate) async fn bundles(&self, source: &CatalogSource) -> Result<BundleFetcher, String> {
        Ok(self.bundles.with_puller(self.puller(source).await?))
    }

    /// Removes images from the disk that are not in use. What cannot be removed is logged.
    pub(crate) async fn remove_unused(&self, in_use: ImagesInUse) {
        let (catalogs, bundles) = (self.catalogs.clone(), self.bundles.clone());
        let unused = Arc::clone(&self.unused);
        let removing = tokio::task::spawn_blocking(move || {
            let catalogs = catalogs.collect(&in_use.catalogs, &mut unused.lock())?;
            Ok::<_, StoreError>((catalogs, bundles.collect(&in_use.bundles, GRACE_PERIOD)?))
        });
        match removing.await {
            Ok(Ok((0, 0))) => {}
            Ok(Ok((catalogs, bundles))) => tracing::info!(catalogs, bundles, "unused images were removed"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot remove unused images"),
            Err(error) => tracing::warn!(%error, "the removal of unused images did not end"),
        }
    }

    /// The pull secrets of a catalog: those that it names, else those of the ServiceAccount of its name, as Kubernetes gives them to a pod of
    /// that account.
    fn secrets(&self, source: &CatalogSource) -> Vec<String> {
        let named: Vec<String> =
            source.spec.secrets.iter().filter(|name| !name.is_empty()).cloned().collect();
        if !named.is_empty() {
            return named;
        }
        self.secrets_of_account(&watched::key(&source.metadata))
    }

    /// The pull secrets of a ServiceAccount, `namespace/name`.
    fn secrets_of_account(&self, key: &str) -> Vec<String> {
        let account = self.accounts.find(key);
        let secrets = account.iter().flat_map(|account| account.image_pull_secrets.iter().flatten());
        secrets.map(|secret| secret.name.clone()).collect()
    }

    /// The pull secrets of the process. Most catalogs need none of them: one that cannot be read counts as it was read before, or is passed
    /// over.
    async fn documents_of_process(&self) -> Vec<Document> {
        let mut places: Vec<NamespacedName> = self.global.iter().cloned().collect();
        if let Some(account) = &self.own_account {
            let secrets = self.secrets_of_account(&account.to_string()).into_iter();
            places.extend(secrets.map(|name| NamespacedName { namespace: account.namespace.clone(), name }));
        }
        let before = self.of_process.lock().clone();
        let mut documents = Vec::new();
        for place in places {
            match pull_secrets::documents(&self.client, vec![place.clone()]).await {
                Ok(read) => documents.extend(read),
                Err(error) => {
                    tracing::warn!(error = chain(&error), "pulls use the credentials that were read before");
                    documents.extend(before.iter().find(|document| *document.parts().0 == place).cloned());
                }
            }
        }
        *self.of_process.lock() = documents.clone();
        documents
    }

    /// The credentials for a catalog: those of the process, which its own secrets override.
    async fn keyring(&self, source: &CatalogSource) -> Result<Keyring, String> {
        let mut keyring = Keyring::new();
        for document in self.documents_of_process().await {
            if let Err(error) = keyring.add_pull_secret(document.parts()) {
                tracing::warn!(error = chain(&error), "a pull secret of the process is passed over");
            }
        }
        let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
        let own = self.secrets(source).into_iter();
        let places = own.map(|name| NamespacedName { namespace: namespace.to_owned(), name }).collect();
        let documents = pull_secrets::documents(&self.client, places).await.map_err(|error| chain(&error))?;
        for document in &documents {
            keyring.add_pull_secret(document.parts()).map_err(|error| chain(&error))?;
        }
        Ok(keyring)
    }

    /// Of the namespace of a catalog: what others have pulled with their secrets is not for it.
    async fn puller(&self, source: &CatalogSource) -> Result<Puller, String> {
        let keyring = self.keyring(source).await?;
        let anonymous = self.anonymous.in_scope(source.metadata.namespace.as_deref().unwrap_or_default());
        if keyring.is_empty() {
            return Ok(anonymous);
        }
        let shared = SharedKeyring::default();
        shared.set(Some(keyring));
        Ok(anonymous.with_keyring(shared))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use olm_oci::{Credential, SignaturePolicy};
    use serde_json::{Value, json};

    use super::*;
    use crate::image_source::ImageSource as _;
    use crate::testing::{Apiserver, failure, put};

    #[tokio::test]
    async fn pull_secrets_are_named_or_those_of_the_account() {
        let client = Apiserver::new(|_, _| (404, json!({}))).client();
        let cache = tempfile::tempdir().unwrap();
        let accounts: Objects<ServiceAccount> = Objects::by_namespace();
        for namespace in ["ns", "other"] {
            let metadata = json!({"namespace": namespace, "name": "main"});
            let secrets = json!([{"name": format!("of-{namespace}")}]);
            put(&accounts, json!({"metadata": metadata, "imagePullSecrets": secrets}));
        }
        let limits = (Limits::bundle(), BundleLimits::default());
        let images =
            Images::open(client, cache.path(), Config::default(), limits).unwrap().with_accounts(accounts);
        let secrets = |name: &str, secrets: Value| {
            let spec = json!({"sourceType": "grpc", "image": "i", "secrets": secrets});
            let source = json!({"metadata": {"namespace": "ns", "name": name}, "spec": spec});
            images.secrets(&serde_json::from_value(source).unwrap())
        };
        assert_eq!(secrets("main", json!([])), ["of-ns"]);
        assert_eq!(secrets("main", json!(["mine", ""])), ["mine"]);
        assert_eq!(secrets("another", json!([""])), Vec::<String>::new());
    }

    fn login(host: &str, user: &str) -> String {
        json!({"auths": {host: {"username": user, "password": "p"}}}).to_string()
    }

    /// What an apiserver answers that has a Secret with this document.
    fn secret(document: &str) -> (u16, Value) {
        let data = [(".dockerconfigjson".to_owned(), ByteString(document.as_bytes().to_vec()))].into();
        (200, serde_json::to_value(Secret { data: Some(data), ..Secret::default() }).unwrap())
    }

    fn source_in(namespace: &str, image: &str) -> CatalogSource {
        let metadata = json!({"namespace": namespace, "name": "main"});
        let source = json!({"metadata": metadata, "spec": {"sourceType": "grpc", "image": image}});
        serde_json::from_value(source).unwrap()
    }

    /// Images of a cluster that has no Secrets.
    fn without_secrets(cache: &Path) -> Images {
        let client = Apiserver::new(|_, _| (404, json!({}))).client();
        let limits = (Limits::bundle(), BundleLimits::default());
        Images::open(client, cache, Config::default(), limits).unwrap()
    }

    fn place(name: &str) -> Option<NamespacedName> {
        Some(NamespacedName { namespace: "olm".to_owned(), name: name.to_owned() })
    }

    #[tokio::test]
    async fn pull_secret_of_the_process_that_is_bad_is_passed_over() {
        let next = Arc::new(Mutex::new((200, String::new())));
        let answers = Arc::clone(&next);
        let apiserver = Apiserver::new(move |_, uri| match (uri, answers.lock().clone()) {
            ("/api/v1/namespaces/olm/secrets/global", (200, document)) => secret(&document),
            ("/api/v1/namespaces/olm/secrets/global", (code, _)) => {
                let reason = if code == 404 { "NotFound" } else { "X" };
                failure(code, reason)
            }
            ("/api/v1/namespaces/ns/secrets/bad", _) => secret("{"),
            _ => secret(&login("own.test", "mine")),
        });
        let cache = tempfile::tempdir().unwrap();
        let limits = (Limits::bundle(), BundleLimits::default());
        let images = Images::open(apiserver.client(), cache.path(), Config::default(), limits).unwrap();
        let images = images.with_secrets_of_process(place("global"), None);
        let source = |secret: &str| -> CatalogSource {
            let spec = json!({"sourceType": "grpc", "image": "i", "secrets": [secret]});
            let metadata = json!({"namespace": "ns", "name": "main"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        for (code, document, is_used) in [
            (403, String::new(), false),
            (200, "{".to_owned(), false),
            (200, login("global.test", "global"), true),
            (500, String::new(), true),
            (404, String::new(), false),
        ] {
            *next.lock() = (code, document.clone());
            let keyring = images.keyring(&source("mine")).await.unwrap();
            assert!(keyring.lookup("own.test", "c").is_some(), "{code} {document}");
            assert_eq!(keyring.lookup("global.test", "c").is_some(), is_used, "{code} {document}");
        }
        let error = images.keyring(&source("bad")).await.unwrap_err();
        assert!(error.starts_with("error reading pull secret ns/bad: "), "{error}");
    }

    #[tokio::test]
    async fn pull_secrets_of_the_process_count_for_every_catalog() {
        let apiserver = Apiserver::new(move |_, uri| match uri {
            "/api/v1/namespaces/olm/secrets/global" => secret(&login("global.test", "global")),
            "/api/v1/namespaces/olm/secrets/account" => secret(&login("account.test", "account")),
            "/api/v1/namespaces/ns/secrets/mine" => secret(&login("account.test", "mine")),
            _ => failure(404, "NotFound"),
        });
        let accounts: Objects<ServiceAccount> = Objects::by_namespace();
        let metadata = json!({"namespace": "olm", "name": "controller"});
        put(&accounts, json!({"metadata": metadata, "imagePullSecrets": [{"name": "account"}]}));
        let cache = tempfile::tempdir().unwrap();
        let limits = (Limits::bundle(), BundleLimits::default());
        let images = Images::open(apiserver.client(), cache.path(), Config::default(), limits).unwrap();
        let images =
            images.with_accounts(accounts).with_secrets_of_process(place("global"), place("controller"));
        for (secrets, of_account) in
            [(json!([]), "account"), (json!(["mine"]), "mine"), (json!(["absent"]), "account")]
        {
            let spec = json!({"sourceType": "grpc", "image": "i", "secrets": secrets});
            let source = json!({"metadata": {"namespace": "ns", "name": "main"}, "spec": spec});
            let source: CatalogSource = serde_json::from_value(source).unwrap();
            let keyring = images.keyring(&source).await.unwrap();
            for (registry, user) in [("global.test", "global"), ("account.test", of_account)] {
                let want = Credential::Basic { username: user.to_owned(), password: "p".to_owned() };
                assert_eq!(keyring.lookup(registry, "c"), Some(&want), "{registry} {secrets}");
            }
        }
    }

    #[tokio::test]
    async fn signature_policy_applies_to_catalogs_and_bundles() {
        let client = Apiserver::new(|_, _| (404, json!({}))).client();
        let cache = tempfile::tempdir().unwrap();
        let file = cache.path().join("policy.json");
        let open = || {
            let signature_policy = SignaturePolicy::File(file.clone());
            let config = Config { signature_policy, ..Config::default() };
            Images::open(client.clone(), cache.path(), config, (Limits::bundle(), BundleLimits::default()))
        };
        let error = open().err().unwrap().to_string();
        assert!(error.contains("policy.json: "), "the process does not start: {error}");
        std::fs::write(&file, r#"{"default":[{"type":"reject"}]}"#).unwrap();
        let images = open().unwrap();
        let image = format!("registry.test/c@sha256:{}", "1".repeat(64));
        let source = source_in("ns", &image);
        let error = images.catalog(&source, &image).await.err().unwrap();
        assert!(error.message.contains("is rejected by policy"), "{error}");
        assert!(!error.is_final, "another policy may accept it");
        let error = images.bundle(&source, &image).await.err().unwrap();
        assert!(error.message.contains("is rejected by policy"), "{error}");
        assert!(!error.is_final, "another policy may accept it");
    }

    /// The registry cannot be reached: what a namespace has used before stays, and others have no use of it.
    #[tokio::test]
    async fn stored_images_are_of_the_namespaces_that_used_them() {
        let cache = tempfile::tempdir().unwrap();
        let images = without_secrets(cache.path());
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let digest: Digest = format!("sha256:{}", "1".repeat(64)).parse().unwrap();
        let image = format!("{unused}/c@{digest}");
        for store in ["catalogs", "bundles"] {
            let store = Store::open(&cache.path().join(store)).unwrap();
            store.begin(&digest).unwrap().commit().unwrap();
            store.record_use("ns", &digest).unwrap();
        }
        for (namespace, is_pulled) in [("ns", false), ("other", true)] {
            let source = source_in(namespace, &image);
            // what is stored has no files
            let catalog = images.catalog(&source, &image).await.err().unwrap().message;
            let bundle = images.bundle(&source, &image).await.err().unwrap().message;
            for error in [catalog, bundle] {
                assert_eq!(error.contains("error creating image source"), is_pulled, "{namespace}: {error}");
            }
        }
    }

    #[tokio::test]
    async fn unused_catalogs_are_removed_from_the_disk() {
        let cache = tempfile::tempdir().unwrap();
        let images = without_secrets(cache.path());
        let digest = |digit: &str| -> Digest { format!("sha256:{}", digit.repeat(64)).parse().unwrap() };
        let store = Store::open(&cache.path().join("catalogs")).unwrap();
        for digit in ["1", "2"] {
            store.begin(&digest(digit)).unwrap().commit().unwrap();
        }
        let catalogs = [("ns".to_owned(), format!("registry.test/c@{}", digest("1")))].into();
        let in_use = ImagesInUse { catalogs, ..ImagesInUse::default() };
        for left in [2, 1] {
            images.remove_unused(in_use.clone()).await;
            assert_eq!(store.digests().unwrap().len(), left);
        }
        assert_eq!(store.digests().unwrap(), [digest("1")]);
    }
}
