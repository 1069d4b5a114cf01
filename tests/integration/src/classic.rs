//! A package of OLM Classic with its catalog, namespace, OperatorGroup and Subscription, all of one name.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use olm_api::classic::{
    CatalogSource, ClusterServiceVersion, InstallPlan, OperatorGroup, Subscription, SubscriptionStatus,
};
use olm_kit::{
    BundleImage, CLASSIC_NAMESPACE, CatalogImage, Package as Content, Registry, Wait, eventually, unique,
};
use serde_json::{Value, json};

use crate::package::{LIMIT, push_bundle};

const MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];

/// The default bundle of a package, in all install modes.
pub fn bundle(package: &str, version: &str) -> BundleImage {
    BundleImage::new(package, version).install_modes(&MODES)
}

/// A CatalogSource of an image in the namespace of classic-controller.
pub fn source(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": {"name": name, "namespace": CLASSIC_NAMESPACE},
        "spec": {"sourceType": "grpc", "image": image, "grpcPodConfig": {"securityContextConfig": "restricted"}},
    })
}

/// A Subscription of the name of its package.
pub fn subscription(namespace: &str, package: &str, source: &str, channel: &str) -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": {"name": package, "namespace": namespace},
        "spec": {"name": package, "channel": channel, "source": source, "sourceNamespace": CLASSIC_NAMESPACE},
    })
}

/// An OperatorGroup of the name of its namespace. `targets` are namespaces; none for all.
pub fn group(namespace: &str, targets: &[&str]) -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": {"name": namespace, "namespace": namespace},
        "spec": if targets.is_empty() { json!({}) } else { json!({"targetNamespaces": targets}) },
    })
}

/// Waits until the content of a CatalogSource was read.
pub async fn source_is_ready(client: &Client, name: &str) -> Result<()> {
    let sources: Api<CatalogSource> = Api::namespaced(client.clone(), CLASSIC_NAMESPACE);
    let is_ready = |source: &CatalogSource| {
        let state = source.status.as_ref().and_then(|status| status.connection_state.as_ref());
        state.is_some_and(|state| state.last_observed_state == "READY")
    };
    Wait::new(&sources, name).within(LIMIT).until("is READY", is_ready).await.map(drop)
}

/// The phase of a ClusterServiceVersion, empty before it has one.
pub fn phase(csv: &ClusterServiceVersion) -> &str {
    csv.status.as_ref().map_or("", |status| status.phase.as_str())
}

/// See the top of this file.
pub struct Package {
    /// The administrator's client.
    pub client: Client,
    /// The name of the package, its namespace, OperatorGroup, Subscription and CatalogSource.
    pub name: String,
    /// Subscriptions of its namespace.
    pub subscriptions: Api<Subscription>,
    /// ClusterServiceVersions of its namespace.
    pub csvs: Api<ClusterServiceVersion>,
    /// InstallPlans of its namespace.
    pub plans: Api<InstallPlan>,
    /// OperatorGroups of its namespace.
    pub groups: Api<OperatorGroup>,
    log: Option<PathBuf>,
}

impl Package {
    /// A unique name, and no objects yet; `log` is quoted when a wait ends without success.
    pub fn new(client: Client, prefix: &str, log: Option<PathBuf>) -> Self {
        let name = unique(prefix);
        Self {
            subscriptions: Api::namespaced(client.clone(), &name),
            csvs: Api::namespaced(client.clone(), &name),
            plans: Api::namespaced(client.clone(), &name),
            groups: Api::namespaced(client.clone(), &name),
            client,
            name,
            log,
        }
    }

    /// Pushes bundles. The channel of each has the name of its version, and those before it, so that a change of the channel is an upgrade.
    /// `properties` are further ones of each bundle in the catalog.
    pub async fn content(
        &self,
        registry: &Registry,
        bundles: impl IntoIterator<Item = (&str, BundleImage)>,
        properties: &[Value],
    ) -> Result<Content> {
        let (mut content, mut versions) = (Content::new(&self.name), Vec::new());
        for (version, bundle) in bundles {
            versions.push(version);
            let image = push_bundle(registry, &self.name, version, &bundle).await?;
            content = content
                .bundle_with(version, &image, properties.iter().cloned())
                .channel(version, crate::package::entries(versions.iter().copied()));
        }
        Ok(content)
    }

    /// Pushes a catalog. Returns its reference.
    pub async fn push_catalog(&self, registry: &Registry, content: &[Content]) -> Result<String> {
        let catalog = content.iter().fold(CatalogImage::new(), |catalog, content| catalog.package(content));
        Ok(registry.push(&format!("{}/catalog", self.name), "latest", &catalog.image()).await?.by_digest())
    }

    /// Pushes bundles, see [`Self::content`], and their catalog. Returns the reference of the catalog.
    pub async fn push(
        &self,
        registry: &Registry,
        bundles: impl IntoIterator<Item = (&str, BundleImage)>,
    ) -> Result<String> {
        let content = self.content(registry, bundles, &[]).await?;
        self.push_catalog(registry, &[content]).await
    }

    /// Applies the namespace and its OperatorGroup, which has the namespace as target.
    pub async fn furnish(&self) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}});
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        apply(&namespaces, &namespace).await?;
        apply(&self.groups, &group(&self.name, &[&self.name])).await
    }

    /// Applies the CatalogSource of an image.
    pub async fn catalog(&self, image: &str) -> Result<()> {
        let sources: Api<CatalogSource> = Api::namespaced(self.client.clone(), CLASSIC_NAMESPACE);
        apply(&sources, &source(&self.name, image)).await
    }

    /// Deletes the CatalogSource.
    pub async fn delete_catalog(&self) -> Result<()> {
        let sources: Api<CatalogSource> = Api::namespaced(self.client.clone(), CLASSIC_NAMESPACE);
        sources.delete(&self.name, &DeleteParams::default()).await?;
        Wait::new(&sources, &self.name).within(LIMIT).to_be_gone().await
    }

    /// Namespace, group and catalog with these bundles; returns when the catalog was read.
    pub async fn serve(
        &self,
        registry: &Registry,
        bundles: impl IntoIterator<Item = (&str, BundleImage)>,
    ) -> Result<()> {
        let catalog = self.push(registry, bundles).await?;
        self.furnish().await?;
        self.catalog(&catalog).await?;
        source_is_ready(&self.client, &self.name).await
    }

    /// Creates the Subscription, or moves it to the channel of another version.
    pub async fn subscribe(&self, version: &str) -> Result<()> {
        apply(&self.subscriptions, &subscription(&self.name, &self.name, &self.name, version)).await
    }

    /// The name of the ClusterServiceVersion of a version.
    pub fn csv(&self, version: &str) -> String {
        format!("{}.v{version}", self.name)
    }

    /// Waits for a state of the ClusterServiceVersion of a version.
    pub async fn csv_until(
        &self,
        version: &str,
        what: &str,
        reached: impl FnMut(&ClusterServiceVersion) -> bool,
    ) -> Result<ClusterServiceVersion> {
        let name = self.csv(version);
        let mut wait = Wait::new(&self.csvs, &name).within(LIMIT);
        if let Some(log) = &self.log {
            wait = wait.log(log.clone());
        }
        wait.until(what, reached).await.with_context(|| format!("CSV {name}"))
    }

    /// Waits for a state of the Subscription.
    pub async fn subscription_until(
        &self,
        what: &str,
        mut reached: impl FnMut(&SubscriptionStatus) -> bool,
    ) -> Result<Subscription> {
        let mut wait = Wait::new(&self.subscriptions, &self.name).within(LIMIT);
        if let Some(log) = &self.log {
            wait = wait.log(log.clone());
        }
        let reached = |it: &Subscription| it.status.as_ref().is_some_and(&mut reached);
        wait.until(what, reached).await.with_context(|| format!("Subscription {}", self.name))
    }

    /// Waits until this version is installed: its ClusterServiceVersion is Succeeded, and the Subscription has it and no later one.
    pub async fn installed(&self, version: &str) -> Result<ClusterServiceVersion> {
        let csv = self.csv_until(version, "is Succeeded", |csv| phase(csv) == "Succeeded").await?;
        let name = csv.name_any();
        self.subscription_until("is AtLatestKnown", |status| {
            status.installed_csv == name && status.state == "AtLatestKnown"
        })
        .await?;
        Ok(csv)
    }

    /// Deletes every Subscription and every ClusterServiceVersion of the namespace.
    pub async fn delete(&self) -> Result<()> {
        let (params, all) = (DeleteParams::default(), ListParams::default());
        self.subscriptions.delete_collection(&params, &all).await?;
        self.csvs.delete_collection(&params, &all).await?;
        Ok(())
    }

    /// Waits until the namespace has no Subscription and no ClusterServiceVersion.
    /// It fails when it has some for too long.
    pub async fn gone(&self) -> Result<()> {
        eventually("no Subscription and no ClusterServiceVersion is left", LIMIT, || async {
            let subscriptions = self.subscriptions.list(&ListParams::default()).await?;
            let csvs = self.csvs.list(&ListParams::default()).await?;
            let names = subscriptions.iter().map(ResourceExt::name_any);
            let left: Vec<String> = names.chain(csvs.iter().map(ResourceExt::name_any)).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    }
}

pub async fn apply<K>(api: &Api<K>, object: &Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let name = object.pointer("/metadata/name").and_then(Value::as_str).context("an object without name")?;
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await?;
    Ok(())
}
