//! An extension whose operator runs: installed, upgraded, rolled back, uninstalled; its webhooks answer through their Service.

use std::time::Instant;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::DeleteParams;
use olm_integration::package::{Package, entries};
use olm_kit::{BundleImage, Package as Content, Wait, eventually};
use serde_json::{Value, json};

use crate::sample;
use crate::site::{LIMIT, Site, report, site};

/// A package of the sample operator.
pub(crate) struct Sample<'a> {
    pub(crate) package: &'a Package,
    /// with the CRD, and webhooks that validate and convert its objects
    pub(crate) webhooks: bool,
}

impl Sample<'_> {
    fn bundle(&self, version: &str) -> BundleImage {
        let name = &self.package.name;
        let bundle = self.package.bundle(version).deployments([sample::deployment(name, version, &[])]);
        if self.webhooks { sample::with_webhooks(bundle, name) } else { bundle }
    }

    /// Creates the namespace, pushes bundles and a catalog, and waits until it is served.
    pub(crate) async fn serve(&self, site: &Site, versions: &[&str]) -> Result<()> {
        let name = &self.package.name;
        site.node.cluster.apply(&sample::namespace(name).to_string()).await?;
        let registry = &site.node.registry;
        let mut content = Content::new(name);
        for version in versions {
            let image = self.package.push(registry, version, &self.bundle(version)).await?;
            content = content.bundle(version, &image);
        }
        let content = content.channel("stable", entries(versions.iter().copied()));
        self.package.serve_packages(registry, &[content]).await
    }

    /// Waits until the only pod of the operator is Ready and reports this version.
    pub(crate) async fn runs(&self, site: &Site, version: &str) -> Result<()> {
        sample::runs(site, &self.package.name, version).await
    }

    /// Deletes the extension, which removes its operator, and then the catalog.
    pub(crate) async fn remove(&self) -> Result<()> {
        let Package { name, client, extensions, catalogs, .. } = self.package;
        extensions.delete(name, &DeleteParams::default()).await?;
        self.package.gone().await?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), name);
        Wait::new(&deployments, &sample::deployment_name(name)).within(LIMIT).to_be_gone().await?;
        catalogs.delete(name, &DeleteParams::default()).await?;
        Wait::new(catalogs, name).within(LIMIT).to_be_gone().await
    }

    /// Stores a Widget of a size in v1, checks it in v2, and that the operator rejects one that is too large.
    async fn webhooks_answer(&self, site: &Site) -> Result<()> {
        let (cluster, name) = (&site.node.cluster, &self.package.name);
        let apply = async |size| cluster.apply(&sample::widget(name, size).to_string()).await;
        eventually("a Widget is admitted", LIMIT, || async { apply(3).await.map(drop) }).await?;
        let resource = format!("widgets.v2.{}", sample::group(name));
        let arguments = ["-n", name, "get", &resource, "w", "-o", "json"];
        let converted: Value = serde_json::from_str(&site.kubectl(&arguments).await?)?;
        assert_eq!(converted["spec"], json!({"replicas": 3}), "{converted:#}");
        let rejected = apply(11).await.err().context("a size above 10 was admitted")?;
        assert!(format!("{rejected:#}").contains(sample::TOO_LARGE), "{rejected:#}");
        Ok(())
    }
}

#[tokio::test]
async fn node_extension_is_installed_upgraded_rolled_back_removed() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    let package = Package::new(site.client().await?, "webhooks", None);
    let sample = Sample { package: &package, webhooks: true };
    let started = Instant::now();
    sample.serve(site, &["1.0.0", "1.1.0"]).await?;
    report("the catalog is served", started);

    let started = Instant::now();
    package.install("1.0.0").await?;
    sample.runs(site, "1.0.0").await?;
    report("1.0.0 is installed and runs", started);
    sample.webhooks_answer(site).await?;

    let started = Instant::now();
    package.install("1.1.0").await?;
    sample.runs(site, "1.1.0").await?;
    report("upgraded", started);
    sample.webhooks_answer(site).await?;

    let started = Instant::now();
    package
        .want_with(json!({}), json!({"version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"}))
        .await?;
    package.installed("1.0.0").await?;
    sample.runs(site, "1.0.0").await?;
    report("rolled back", started);
    sample.webhooks_answer(site).await?;

    let started = Instant::now();
    sample.remove().await?;
    report("uninstalled", started);
    Ok(())
}
