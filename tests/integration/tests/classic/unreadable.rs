//! A catalog of the global namespace that cannot be read, beside one that can: first its image does not exist, then nothing listens at its
//! address.
//!
//! Rule: decision 55.

use anyhow::{Result, ensure};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use olm_api::ConditionStatus;
use olm_api::classic::{CatalogSource, ClusterServiceVersion, Subscription};
use olm_integration::classic::{Package, bundle, phase, source_is_ready, subscription};
use olm_kit::{BundleImage, CLASSIC_NAMESPACE, Registry, Wait};
use serde_json::json;

use crate::site::{LIMIT, Site};
use crate::{has_installed, is_true};

/// A version of a package whose ClusterServiceVersion needs nothing but its definition.
fn content(package: &str, version: &str) -> BundleImage {
    bundle(package, version).deployments([]).permissions([]).cluster_permissions([])
}

/// The message of a resolution that an error prevented.
fn resolution_error(subscription: &Subscription) -> Option<&str> {
    let mut conditions = subscription.status.iter().flat_map(|status| &status.conditions);
    let failed =
        conditions.find(|it| it.type_ == "ResolutionFailed" && it.status == ConditionStatus::True)?;
    (failed.reason == "ErrorPreventedResolution").then_some(failed.message.as_str())
}

/// Two packages with a catalog each, and Subscriptions to both in one namespace.
struct Pair {
    site: Site,
    good: Package,
    dead: Package,
    subscriptions: Api<Subscription>,
    csvs: Api<ClusterServiceVersion>,
}

impl Pair {
    async fn start() -> Result<Self> {
        let site = Site::start().await?;
        site.apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLASSIC_NAMESPACE}}),
        )
        .await?;
        let package = |prefix: &str| Package::new(site.client.clone(), prefix, Some(site.log()));
        let (good, dead) = (package("good"), package("dead"));
        Ok(Self { good, dead, subscriptions: site.api(), csvs: site.api(), site })
    }

    /// Subscribes to a version of the package in the namespace of the site, or moves the Subscription to it.
    async fn subscribe(&self, package: &Package, version: &str) -> Result<()> {
        self.site.apply(&subscription(&self.site.namespace, &package.name, &package.name, version)).await
    }

    fn wait<'a>(&'a self, package: &'a Package) -> Wait<'a, Subscription> {
        Wait::new(&self.subscriptions, &package.name).within(LIMIT).log(self.site.log())
    }

    /// Waits until the version is installed, and none but it.
    async fn installed(&self, package: &Package, version: &str) -> Result<ClusterServiceVersion> {
        let name = package.csv(version);
        let has_it = |it: &Subscription| has_installed(it, &name) && !is_true(it, "ResolutionFailed");
        self.wait(package).until(&format!("{name} is installed"), has_it).await?;
        let wait = Wait::new(&self.csvs, &name).within(LIMIT).log(self.site.log());
        let csv = wait.until("is Succeeded", |csv| phase(csv) == "Succeeded").await?;
        for former in self.csvs.list(&ListParams::default()).await?.iter().map(|it| it.name_any()) {
            let is_former = former.starts_with(&format!("{}.v", package.name)) && former != name;
            if is_former {
                Wait::new(&self.csvs, &former).within(LIMIT).log(self.site.log()).to_be_gone().await?;
            }
        }
        Ok(csv)
    }

    /// Waits until the Subscription to the dead catalog reports it, with a part of the message.
    async fn reported(&self, fix: &str) -> Result<Subscription> {
        let begin = format!(
            "error using catalogsource {CLASSIC_NAMESPACE}/{}: failed to list bundles: ",
            self.dead.name
        );
        let is_it = |it: &Subscription| {
            resolution_error(it).is_some_and(|message| message.starts_with(&begin) && message.contains(fix))
        };
        self.wait(&self.dead).until(&format!("the catalog is reported: {fix}"), is_it).await
    }
}

#[tokio::test]
async fn classic_unreadable_catalog_stops_only_what_needs_it() -> Result<()> {
    let (pair, registry) = tokio::try_join!(Pair::start(), Registry::start())?;
    let (good, dead) = (&pair.good, &pair.dead);
    let versions = ["1.0.0", "2.0.0", "3.0.0"];
    let bundles = |package: &Package| versions.map(|version| (version, content(&package.name, version)));
    let image = good.push(&registry, bundles(good)).await?;
    good.catalog(&image).await?;
    source_is_ready(&good.client, &good.name).await?;
    let missing = format!("{}/{}/catalog:latest", registry.address(), dead.name);
    dead.catalog(&missing).await?;

    // no Subscription names the catalog
    pair.subscribe(good, "1.0.0").await?;
    pair.installed(good, "1.0.0").await?;
    // one does
    pair.subscribe(dead, "1.0.0").await?;
    let fix = format!("correct spec.image {missing:?} of the CatalogSource");
    pair.reported(&fix).await?;
    let begin =
        format!("error using catalogsource {CLASSIC_NAMESPACE}/{}: failed to list bundles: ", dead.name);
    pair.site.event("Subscription", "Waiting", &begin).await?;
    pair.subscribe(good, "2.0.0").await?;
    pair.installed(good, "2.0.0").await?;
    let waiting = pair.reported(&fix).await?;
    ensure!(waiting.status.is_some_and(|status| status.installed_csv.is_empty()), "it has a version");

    // its image is pushed, under the tag that the CatalogSource names
    dead.push(&registry, bundles(dead)).await?;
    let installed = pair.installed(dead, "1.0.0").await?;

    // nothing listens any more
    let unused = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let sources: Api<CatalogSource> = Api::namespaced(pair.site.client.clone(), CLASSIC_NAMESPACE);
    let address = json!({"spec": {"image": null, "address": unused}});
    pair.site.merge(&sources, &dead.name, address).await?;
    pair.subscribe(dead, "2.0.0").await?;
    let fix = format!("start the registry at spec.address {unused:?} of the CatalogSource");
    pair.reported(&fix).await?;
    pair.subscribe(good, "3.0.0").await?;
    let upgraded = pair.installed(good, "3.0.0").await?;
    let waiting = pair.reported(&fix).await?;
    let kept = dead.csv("1.0.0");
    ensure!(waiting.status.is_some_and(|status| status.installed_csv == kept), "its version is not reported");
    let csv = pair.csvs.get(&kept).await?;
    ensure!(csv.uid() == installed.uid() && phase(&csv) == "Succeeded", "{:?}", csv.status);

    let image = json!({"spec": {"image": missing, "address": null}});
    pair.site.merge(&sources, &dead.name, image).await?;
    pair.installed(dead, "2.0.0").await?;
    ensure!(pair.csvs.get(&good.csv("3.0.0")).await?.uid() == upgraded.uid(), "the other was made again");
    Ok(())
}
