//! A package with its catalog, namespace and extension, all of one name.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, condition};
use olm_integration::extension::{current, installed_version};
use olm_kit::{BundleImage, CatalogImage, Crd, Entry, Package as Content, Registry, Wait, unique};
use serde_json::{Value, json};

use crate::site::Site;

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// See the top of this file.
pub(crate) struct Package {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) extensions: Api<ClusterExtension>,
    pub(crate) sets: Api<ClusterObjectSet>,
    log: Option<PathBuf>,
}

impl Package {
    /// A unique name and a namespace.
    pub(crate) async fn new(site: &Site, prefix: &str) -> Result<Self> {
        let package = Self::without_namespace(site, prefix).await?;
        package.make_namespace(site).await?;
        Ok(package)
    }

    /// A unique name, and nothing yet.
    pub(crate) async fn without_namespace(site: &Site, prefix: &str) -> Result<Self> {
        let client = site.client().await?;
        Ok(Self {
            name: unique(prefix),
            extensions: Api::all(client.clone()),
            sets: Api::all(client.clone()),
            client,
            log: site.controllers.first().map(olm_kit::Process::log),
        })
    }

    /// The namespace.
    pub(crate) async fn make_namespace(&self, site: &Site) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}});
        site.cluster.apply(&namespace.to_string()).await.map(|_| ())
    }

    /// A bundle without CRD: a Deployment, an account with rights, the ConfigMap `<name>-config` with `data.version`.
    pub(crate) fn bundle(&self, version: &str) -> BundleImage {
        BundleImage::new(&self.name, version).crds([])
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
        let mut entries: Vec<Entry> = Vec::new();
        let mut before: Option<&str> = None;
        for (version, _) in &bundles {
            let entry = Entry::new(version);
            entries.push(before.map_or(entry.clone(), |before| entry.replaces(before)));
            before = Some(version);
        }
        let mut content = Content::new(&self.name).channel("stable", entries);
        for (version, bundle) in &bundles {
            let repository = format!("{}/bundle", self.name);
            let pushed = registry.push(&repository, &format!("v{version}"), &bundle.image()).await?;
            content = content.bundle(version, &pushed.by_digest());
        }
        let image = CatalogImage::new().package(&content).image();
        let pushed = registry.push(&format!("{}/catalog", self.name), "latest", &image).await?;
        let catalogs: Api<ClusterCatalog> = Api::all(self.client.clone());
        let catalog = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": self.name, "labels": {"test": self.name}},
            "spec": {"source": {"type": "Image", "image": {"ref": pushed.by_digest()}}},
        });
        catalogs.patch(&self.name, &PatchParams::apply("test").force(), &Patch::Apply(&catalog)).await?;
        let served = |catalog: &ClusterCatalog| {
            let Some(status) = &catalog.status else { return false };
            let image = status.resolved_source.as_ref().map(|source| source.image.reference.as_str());
            condition::is_true(&status.conditions, condition::SERVING)
                && image.is_some_and(|image| image.ends_with(&pushed.digest))
        };
        Wait::new(&catalogs, &self.name).within(LIMIT).until("is served", served).await?;
        Ok(())
    }

    /// Creates the extension, or asks it for another version.
    pub(crate) async fn want(&self, version: &str) -> Result<()> {
        let extension = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": self.name},
            "spec": {"namespace": self.name, "source": {"sourceType": "Catalog", "catalog": {
                "packageName": self.name, "version": version, "selector": {"matchLabels": {"test": self.name}},
            }}},
        });
        let params = PatchParams::apply("test").force();
        self.extensions.patch(&self.name, &params, &Patch::Apply(&extension)).await?;
        Ok(())
    }

    /// Waits for a state of the extension.
    pub(crate) async fn until(
        &self,
        what: &str,
        reached: impl FnMut(&ClusterExtension) -> bool,
    ) -> Result<ClusterExtension> {
        let mut wait = Wait::new(&self.extensions, &self.name).within(LIMIT);
        if let Some(log) = &self.log {
            wait = wait.log(log.clone());
        }
        wait.until(what, reached).await
    }

    /// Waits until this version is installed and everything is done.
    pub(crate) async fn installed(&self, version: &str) -> Result<ClusterExtension> {
        self.until(&format!("{version} is installed and Ready"), |extension| {
            installed_version(extension) == Some(version)
                && current(extension, condition::READY).is_some_and(|found| found.status.as_str() == "True")
        })
        .await
    }

    /// Waits until the message of Progressing contains this, for the present generation; gives the extension.
    pub(crate) async fn says(&self, text: &str) -> Result<ClusterExtension> {
        let said = |extension: &ClusterExtension| {
            current(extension, condition::PROGRESSING).is_some_and(|found| found.message.contains(text))
        };
        self.until(&format!("Progressing says {text:?}"), said).await
    }

    /// Deletes the extension without waiting.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.extensions.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the extension is gone.
    pub(crate) async fn gone(&self) -> Result<()> {
        let mut wait = Wait::new(&self.extensions, &self.name).within(LIMIT);
        if let Some(log) = &self.log {
            wait = wait.log(log.clone());
        }
        wait.to_be_gone().await
    }

    /// ConfigMaps of the namespace.
    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// The name of the ConfigMap that every bundle has.
    pub(crate) fn config(&self) -> String {
        format!("{}-config", self.name)
    }

    /// Waits until the ConfigMap of the bundle says this version.
    pub(crate) async fn config_says(&self, version: &str, within: Duration) -> Result<ConfigMap> {
        let (maps, name) = (self.maps(), self.config());
        let says =
            |map: &ConfigMap| version_of(map) == Some(version) && map.metadata.deletion_timestamp.is_none();
        Wait::new(&maps, &name).within(within).until(&format!("says {version}"), says).await
    }

    /// Deletes that ConfigMap and waits until it is there again.
    pub(crate) async fn heals(&self, version: &str) -> Result<()> {
        let (maps, name) = (self.maps(), self.config());
        let uid = maps.get(&name).await?.metadata.uid;
        maps.delete(&name, &DeleteParams::default()).await?;
        let anew = |map: &ConfigMap| map.metadata.uid != uid && version_of(map) == Some(version);
        Wait::new(&maps, &name).within(Duration::from_secs(20)).until("is made anew", anew).await?;
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
