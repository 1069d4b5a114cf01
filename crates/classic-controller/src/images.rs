//! Images of catalogs and bundles: pulled in the process with the credentials of a catalog, kept on disk by digest.
//!
//! Rule: classic-apis §2.1 (`secrets`), decision 53.

use std::path::Path;

use anyhow::Context as _;
use kube::Client;
use olm_api::classic::CatalogSource;
use olm_bundle::BundleLimits;
use olm_catalog::CatalogImages;
use olm_install::BundleFetcher;
use olm_oci::{CertificateDirs, Config, Credentials, Keyring, Limits, Puller, SharedKeyring, Store};
use olm_runtime::error_text::chain;
use olm_runtime::pull_secrets::{self, Document, NamespacedName};

/// Access to images.
pub(crate) struct Images {
    client: Client,
    config: Config,
    /// Pulls without credentials of its own; its connections and certificates are used again.
    anonymous: Puller,
    catalogs: Store,
    bundles: Store,
    limits: (Limits, BundleLimits),
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
        })
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

    async fn puller(&self, source: &CatalogSource) -> Result<Puller, String> {
        let mut keyring = Keyring::new();
        let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
        for name in source.spec.secrets.iter().filter(|name| !name.is_empty()) {
            let place = NamespacedName { namespace: namespace.to_owned(), name: name.clone() };
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
