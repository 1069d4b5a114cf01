//! A package with its catalog, namespace and extension, all of one name.

use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use olm_api::{ClusterExtension, condition};
use olm_integration::extension::current;
pub(crate) use olm_integration::package::LIMIT;
use olm_integration::package::{self, entries};
use olm_kit::{BundleImage, Crd, Package as Content, Registry, Wait};
use serde_json::{Value, json};

use crate::site::Site;

/// See the top of this file.
pub(crate) struct Package(package::Package);

impl Deref for Package {
    type Target = package::Package;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Package {
    /// A unique name and a namespace.
    pub(crate) async fn new(site: &Site, prefix: &str) -> Result<Self> {
        let package = Self::without_namespace(site, prefix).await?;
        package.make_namespace(&site.cluster).await?;
        Ok(package)
    }

    /// A unique name, and nothing yet.
    pub(crate) async fn without_namespace(site: &Site, prefix: &str) -> Result<Self> {
        let log = site.controllers.first().map(olm_kit::Process::log);
        Ok(Self(package::Package::new(site.client().await?, prefix, log)))
    }

    /// The CRD of kind Widget in a group of the package's own.
    pub(crate) fn crd(&self) -> Crd {
        Crd::new("Widget", &format!("{}.example.com", self.name))
    }

    /// Pushes bundles and a catalog in which each replaces the one before, and waits until that is served.
    pub(crate) async fn serve<const N: usize>(
        &self,
        registry: &Registry,
        bundles: [(&str, BundleImage); N],
    ) -> Result<()> {
        let mut content =
            Content::new(&self.name).channel("stable", entries(bundles.iter().map(|(version, _)| *version)));
        for (version, bundle) in &bundles {
            content = content.bundle(version, &self.push(registry, version, bundle).await?);
        }
        self.serve_packages(registry, &[content]).await
    }

    /// Creates the extension, or requests another version.
    pub(crate) async fn want(&self, version: &str) -> Result<()> {
        self.want_with(json!({}), json!({"version": version})).await
    }

    /// Waits until the message of Progressing contains this, for the present generation; gives the extension.
    pub(crate) async fn progressing_names(&self, text: &str) -> Result<ClusterExtension> {
        let matches = |extension: &ClusterExtension| {
            current(extension, condition::PROGRESSING).is_some_and(|found| found.message.contains(text))
        };
        self.until(&format!("Progressing has {text:?}"), matches).await
    }

    /// Deletes the extension without waiting.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.extensions.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// ConfigMaps of the namespace.
    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// The name of the ConfigMap that every bundle has.
    pub(crate) fn config(&self) -> String {
        format!("{}-config", self.name)
    }

    /// Waits until the ConfigMap of the bundle has this version.
    pub(crate) async fn config_has(&self, version: &str, within: Duration) -> Result<ConfigMap> {
        let (maps, name) = (self.maps(), self.config());
        let matches =
            |map: &ConfigMap| version_of(map) == Some(version) && map.metadata.deletion_timestamp.is_none();
        Wait::new(&maps, &name).within(within).until(&format!("has {version}"), matches).await
    }

    /// Deletes that ConfigMap and waits until it is there again.
    pub(crate) async fn heals(&self, version: &str) -> Result<()> {
        let (maps, name) = (self.maps(), self.config());
        let uid = maps.get(&name).await?.metadata.uid;
        maps.delete(&name, &DeleteParams::default()).await?;
        let recreated = |map: &ConfigMap| map.metadata.uid != uid && version_of(map) == Some(version);
        Wait::new(&maps, &name).within(Duration::from_secs(20)).until("is made again", recreated).await?;
        Ok(())
    }
}

/// `data.version`.
pub(crate) fn version_of(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("version").map(String::as_str)
}

/// Data for a merge patch of a ConfigMap.
pub(crate) fn version_data(version: &str) -> Value {
    json!({"data": {"version": version}})
}
