//! Images of catalogs and bundles: pulled in the process with the credentials of a catalog, kept on disk by digest.
//!
//! Rule: classic-apis §2.1 (`secrets`), decision 53.

use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use olm_api::classic::CatalogSource;
use olm_bundle::BundleLimits;
use olm_catalog::CatalogImages;
use olm_install::BundleFetcher;
use olm_oci::{CertificateDirs, Config, Credentials, Keyring, Limits, Puller, SharedKeyring, Store};
use olm_runtime::error_text::chain;
use olm_runtime::pull_secrets::{self, Document, NamespacedName};
use olm_runtime::watched::{self, Objects};

/// Access to images.
pub(crate) struct Images {
    client: Client,
    config: Config,
    /// Pulls without credentials of its own; its connections and certificates are used again.
    anonymous: Puller,
    catalogs: Store,
    bundles: Store,
    limits: (Limits, BundleLimits),
    accounts: Objects<ServiceAccount>,
}

impl Images {
    /// Keeps images below `cache`. Certificates are those of `certificates`, if it is given, else of the usual places.
    ///
    /// # Errors
    /// When the directories cannot be used.
    pub(crate) fn open(
        client: Client,
        cache: &Path,
        certificates: Option<&Path>,
        limits: (Limits, BundleLimits),
    ) -> anyhow::Result<Self> {
        let mut config = Config::from_env();
        if let Some(directory) = certificates {
            config.certificates =
                CertificateDirs { every_host: Some(directory.to_owned()), ..CertificateDirs::default() };
        }
        let store = |name: &str| Store::open(&cache.join(name)).context("cannot open the cache of images");
        let anonymous = Puller::new(config.clone());
        Ok(Self {
            client,
            config,
            anonymous,
            catalogs: store("catalogs")?,
            bundles: store("bundles")?,
            limits,
            accounts: Objects::by_namespace(),
        })
    }

    /// Uses the pull secrets of these accounts.
    #[must_use]
    pub(crate) fn with_accounts(self, accounts: Objects<ServiceAccount>) -> Self {
        Self { accounts, ..self }
    }

    /// Reads catalogs with the credentials of a catalog.
    ///
    /// # Errors
    /// When its secrets cannot be read.
    pub(crate) async fn catalogs(&self, source: &CatalogSource) -> Result<CatalogImages, String> {
        Ok(CatalogImages::new(self.puller(source).await?, self.catalogs.clone()))
    }

    /// Reads bundles with the credentials of their catalog.
    ///
    /// # Errors
    /// When its secrets cannot be read.
    pub(crate) async fn bundles(&self, source: &CatalogSource) -> Result<BundleFetcher, String> {
        let fetcher = BundleFetcher::new(self.puller(source).await?, self.bundles.clone());
        let (images, bundles) = self.limits.clone();
        Ok(fetcher.with_limits(images, bundles).quarantining())
    }

    /// The pull secrets of a catalog: those that it names, else those of the ServiceAccount of its name, as Kubernetes gives them to a pod of
    /// that account.
    fn secrets(&self, source: &CatalogSource) -> Vec<String> {
        let named: Vec<String> =
            source.spec.secrets.iter().filter(|name| !name.is_empty()).cloned().collect();
        if !named.is_empty() {
            return named;
        }
        let account = self.accounts.find(&watched::key(&source.metadata));
        let secrets = account.iter().flat_map(|account| account.image_pull_secrets.iter().flatten());
        secrets.map(|secret| secret.name.clone()).collect()
    }

    async fn puller(&self, source: &CatalogSource) -> Result<Puller, String> {
        let mut keyring = Keyring::new();
        let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
        for name in self.secrets(source) {
            let place = NamespacedName { namespace: namespace.to_owned(), name };
            let documents = pull_secrets::read(&self.client, Some(&place), None).await;
            for (place, document) in documents.map_err(|error| chain(&error))? {
                let added = match &document {
                    Document::ConfigJson(bytes) => keyring.add_config_json(bytes),
                    Document::DockerCfg(bytes) => keyring.add_dockercfg(bytes),
                };
                added.map_err(|error| format!("error reading pull secret {place}: {}", chain(&error)))?;
            }
        }
        if keyring.is_empty() {
            return Ok(self.anonymous.clone());
        }
        let shared = SharedKeyring::default();
        shared.set(Some(keyring));
        let credentials = Credentials { shared: Some(shared), ..self.config.credentials.clone() };
        Ok(Puller::new(Config { credentials, ..self.config.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::Apiserver;

    #[tokio::test]
    async fn pull_secrets_are_named_or_those_of_the_account() {
        let client = Apiserver::new(|_, _| (404, json!({}))).client();
        let cache = tempfile::tempdir().unwrap();
        let accounts: Objects<ServiceAccount> = Objects::by_namespace();
        for namespace in ["ns", "other"] {
            let metadata = json!({"namespace": namespace, "name": "main"});
            let account =
                json!({"metadata": metadata, "imagePullSecrets": [{"name": format!("of-{namespace}")}]});
            let account: ServiceAccount = serde_json::from_value(account).unwrap();
            accounts.insert(watched::key(&account.metadata), watched::Object::new(account));
        }
        let limits = (Limits::bundle(), BundleLimits::default());
        let images = Images::open(client, cache.path(), None, limits).unwrap().with_accounts(accounts);
        let secrets = |name: &str, secrets: Value| {
            let spec = json!({"sourceType": "grpc", "image": "i", "secrets": secrets});
            let source = json!({"metadata": {"namespace": "ns", "name": name}, "spec": spec});
            images.secrets(&serde_json::from_value(source).unwrap())
        };
        assert_eq!(secrets("main", json!([])), ["of-ns"]);
        assert_eq!(secrets("main", json!(["mine", ""])), ["mine"]);
        assert_eq!(secrets("another", json!([""])), Vec::<String>::new());
    }
}
