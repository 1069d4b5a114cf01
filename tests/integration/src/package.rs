//! A package with its catalog, namespace and extension, all of one name.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, condition};
use olm_kit::{BundleImage, CatalogImage, Cluster, Entry, Package as Content, Registry, Wait, unique};
use serde_json::{Value, json};

use crate::extension::{current, installed_version};

/// Bounds every wait for a state of a package.
pub const LIMIT: Duration = Duration::from_secs(90);

/// See the top of this file.
pub struct Package {
    /// The administrator's client.
    pub client: Client,
    /// The unique name.
    pub name: String,
    pub extensions: Api<ClusterExtension>,
    /// Revisions of the cluster.
    pub sets: Api<ClusterObjectSet>,
    pub catalogs: Api<ClusterCatalog>,
    log: Option<PathBuf>,
}

impl Package {
    /// A unique name, and no objects yet; `log` is quoted when a wait ends without success.
    pub fn new(client: Client, prefix: &str, log: Option<PathBuf>) -> Self {
        Self {
            name: unique(prefix),
            extensions: Api::all(client.clone()),
            sets: Api::all(client.clone()),
            catalogs: Api::all(client.clone()),
            client,
            log,
        }
    }

    /// Creates the namespace.
    pub async fn make_namespace(&self, cluster: &Cluster) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}});
        cluster.apply(&namespace.to_string()).await.map(|_| ())
    }

    /// A bundle without CRD: a Deployment, an account with rights, the ConfigMap `<name>-config` with `data.version`.
    pub fn bundle(&self, version: &str) -> BundleImage {
        BundleImage::new(&self.name, version).crds([])
    }

    /// Pushes a bundle; returns its reference with digest.
    pub async fn push(&self, registry: &Registry, version: &str, bundle: &BundleImage) -> Result<String> {
        push_bundle(registry, &self.name, version, bundle).await
    }

    /// Pushes a catalog with these packages, and waits until it is served.
    pub async fn serve_packages(&self, registry: &Registry, packages: &[Content]) -> Result<()> {
        let image = packages.iter().fold(CatalogImage::new(), |image, package| image.package(package));
        serve_catalog(&self.client, registry, &self.name, &image).await
    }

    /// Applies a ClusterCatalog of this image.
    pub async fn catalog(&self, reference: &str) -> Result<()> {
        apply_catalog(&self.catalogs, &self.name, reference).await
    }

    /// Applies the extension. `catalog` is merged over the package's name and selector, `spec` over the rest.
    pub async fn want_with(&self, spec: Value, catalog: Value) -> Result<()> {
        let mut extension = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": self.name},
            "spec": {"namespace": self.name, "source": {"sourceType": "Catalog", "catalog": {
                "packageName": self.name, "selector": {"matchLabels": {"test": self.name}}}}},
        });
        for (pointer, members) in [("/spec/source/catalog", catalog), ("/spec", spec)] {
            let whole = extension.pointer_mut(pointer).and_then(Value::as_object_mut);
            if let (Some(whole), Value::Object(members)) = (whole, members) {
                whole.extend(members);
            }
        }
        let params = PatchParams::apply("test").force();
        self.extensions.patch(&self.name, &params, &Patch::Apply(&extension)).await?;
        Ok(())
    }

    fn wait(&self) -> Wait<'_, ClusterExtension> {
        let wait = Wait::new(&self.extensions, &self.name).within(LIMIT);
        match &self.log {
            Some(log) => wait.log(log.clone()),
            None => wait,
        }
    }

    /// Waits for a state of the extension.
    pub async fn until(
        &self,
        what: &str,
        reached: impl FnMut(&ClusterExtension) -> bool,
    ) -> Result<ClusterExtension> {
        self.wait().until(what, reached).await
    }

    /// Waits until this version is installed and Ready.
    pub async fn installed(&self, version: &str) -> Result<ClusterExtension> {
        self.until(&format!("{version} is installed and Ready"), |extension| {
            installed_version(extension) == Some(version)
                && current(extension, condition::READY).is_some_and(|found| found.status.as_str() == "True")
        })
        .await
    }

    /// Asks for this version, and waits until it is installed and Ready.
    pub async fn install(&self, version: &str) -> Result<ClusterExtension> {
        self.want_with(json!({}), json!({"version": version})).await?;
        self.installed(version).await
    }

    /// Asks for any version, and waits until this one is installed and Ready.
    pub async fn install_any(&self, version: &str) -> Result<ClusterExtension> {
        self.want_with(json!({}), json!({})).await?;
        self.installed(version).await
    }

    /// Waits until the garbage collector watches revisions: it finds new kinds every 30 s. Before, it orphans none.
    pub async fn until_revisions_are_collected(&self) -> Result<()> {
        let name = unique("dangling");
        let owner = json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": name,
            "uid": "00000000-0000-0000-0000-000000000000"});
        let set = json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        });
        self.sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
        Wait::new(&self.sets, &name).within(LIMIT).to_be_gone().await
    }

    /// Waits until the extension is deleted.
    pub async fn gone(&self) -> Result<()> {
        self.wait().to_be_gone().await
    }
}

/// Pushes a bundle of a package; returns its reference with digest.
pub async fn push_bundle(
    registry: &Registry,
    package: &str,
    version: &str,
    bundle: &BundleImage,
) -> Result<String> {
    let pushed = registry.push(&format!("{package}/bundle"), &format!("v{version}"), &bundle.image()).await?;
    Ok(pushed.by_digest())
}

/// Entries of a channel in which each version replaces the one before.
pub fn entries<'a>(versions: impl IntoIterator<Item = &'a str>) -> Vec<Entry> {
    let mut before: Option<&str> = None;
    let entry = |version| match before.replace(version) {
        Some(before) => Entry::new(version).replaces(before),
        None => Entry::new(version),
    };
    versions.into_iter().map(entry).collect()
}

async fn apply_catalog(catalogs: &Api<ClusterCatalog>, name: &str, reference: &str) -> Result<()> {
    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name, "labels": {"test": name}},
        "spec": {"source": {"type": "Image", "image": {"ref": reference}}},
    });
    catalogs.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&catalog)).await?;
    Ok(())
}

/// Pushes a catalog, applies the ClusterCatalog of this name, with the label `test`, and waits until it serves that image.
pub async fn serve_catalog(client: &Client, to: &Registry, name: &str, image: &CatalogImage) -> Result<()> {
    let pushed = to.push(&format!("{name}/catalog"), "latest", &image.image()).await?;
    let catalogs: Api<ClusterCatalog> = Api::all(client.clone());
    apply_catalog(&catalogs, name, &pushed.by_digest()).await?;
    let served = |catalog: &ClusterCatalog| {
        let Some(status) = &catalog.status else { return false };
        let image = status.resolved_source.as_ref().map(|source| source.image.reference.as_str());
        condition::is_true(&status.conditions, condition::SERVING)
            && image.is_some_and(|image| image.ends_with(&pushed.digest))
    };
    let wait = Wait::new(&catalogs, name).within(LIMIT);
    wait.until(&format!("serves {}", pushed.digest), served).await.map(|_| ())
}

/// Pushes bundles and a catalog in whose channel `stable` each bundle replaces the one before, creates the ClusterCatalog of the
/// package's name, and waits until it is served.
pub async fn serve_package(
    cluster: &Cluster,
    registry: &Registry,
    name: &str,
    bundles: impl IntoIterator<Item = (&str, BundleImage)>,
) -> Result<()> {
    let mut content = Content::new(name);
    let mut versions = Vec::new();
    for (version, bundle) in bundles {
        content = content.bundle(version, &push_bundle(registry, name, version, &bundle).await?);
        versions.push(version);
    }
    let catalog = CatalogImage::new().package(&content.channel("stable", entries(versions)));
    serve_catalog(&cluster.client().await?, registry, name, &catalog).await
}
