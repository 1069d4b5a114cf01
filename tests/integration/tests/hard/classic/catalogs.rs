//! The registry or a CatalogSource is unavailable: what is installed stays, Subscriptions report the outage, and everything continues
//! afterwards.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use olm_api::classic::SubscriptionStatus;
use olm_integration::classic::{phase, source_is_ready};

use super::site::{Site, full};
use super::state::{reached, settled};
use crate::package::LIMIT;
use crate::runs::Case;
use crate::site::{lines, replica_of};

fn condition<'a>(status: &'a SubscriptionStatus, kind: &str) -> Option<&'a str> {
    let found = status.conditions.iter().find(|it| it.type_ == kind && it.status.as_str() == "True");
    found.map(|it| it.message.as_str())
}

#[tokio::test]
async fn fault_classic_registry_outage_stops_only_what_needs_it() -> Result<()> {
    let mut case = Case::once("registry of OLM Classic's catalogs killed and started again");
    let mut site = Site::start().await?;
    let client = site.client().await?;
    let (old, foreign) = site.served("installed").await?;
    let (waiting, _) = site.served("unpacked").await?;
    let unseen = site.package("unseen").await?;
    let catalog = unseen.push(&site.registry, [("1.0.0", full(&unseen, "1.0.0"))]).await?;
    unseen.furnish().await?;
    old.subscribe("1.0.0").await?;
    let installed = old.installed("1.0.0").await?;
    let before = settled(&client, &old).await?;

    site.registry.child()?.kill();
    // its catalog was read, its bundle was not
    waiting.subscribe("1.0.0").await?;
    let address = site.registry.address().to_owned();
    waiting
        .subscription_until("a condition names the registry", |status| {
            ["BundleUnpacking", "BundleUnpackFailed"]
                .iter()
                .any(|kind| condition(status, kind).is_some_and(|message| message.contains(&address)))
        })
        .await?;
    // its catalog was not read: that concerns every namespace which may use it, as in the reference
    unseen.catalog(&catalog).await?;
    unseen.subscribe("1.0.0").await?;
    unseen
        .subscription_until("reports the catalog", |status| {
            let named = |kind: &str| condition(status, kind).is_some_and(|it| it.contains(&unseen.name));
            named("CatalogSourcesUnhealthy") || named("ResolutionFailed")
        })
        .await?;
    // retries back off
    let mut tail = site.cluster.audit_tail()?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut meanwhile = tail.more()?;
    meanwhile.retain(|it| replica_of(it).is_some() && it.verb != "watch");
    case.log(&format!("{} requests in 5 s of the outage", meanwhile.len()));
    ensure!(meanwhile.len() <= 15, "{}", lines(&meanwhile));
    let still = old.installed("1.0.0").await?;
    ensure!(still.uid() == installed.uid() && still.resource_version() == installed.resource_version());

    site.registry.start_again().await?;
    let since = Instant::now();
    waiting.installed("1.0.0").await?;
    unseen.installed("1.0.0").await?;
    case.converged(since);
    before.is(&settled(&client, &old).await?)?;
    foreign.check().await
}

#[tokio::test]
async fn fault_classic_catalog_gone_and_back_keeps_the_csv() -> Result<()> {
    let mut case = Case::once("CatalogSource deleted and made again");
    let site = Site::shared().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served("catalog").await?;
    let bundles = [("1.0.0", full(&package, "1.0.0")), ("1.1.0", full(&package, "1.1.0"))];
    let image = package.push(&site.registry, bundles).await?;
    package.subscribe("1.0.0").await?;
    let installed = package.installed("1.0.0").await?;
    let before = settled(&client, &package).await?;

    package.delete_catalog().await?;
    package
        .subscription_until("is unhealthy", |status| condition(status, "CatalogSourcesUnhealthy").is_some())
        .await?;
    package.subscribe("1.1.0").await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let still = package.csvs.get(&package.csv("1.0.0")).await?;
    ensure!(still.uid() == installed.uid() && phase(&still) == "Succeeded", "{still:?}");
    package.subscribe("1.0.0").await?;

    package.catalog(&image).await?;
    let since = Instant::now();
    source_is_ready(&client, &package.name).await?;
    reached(&before, &client, &package, LIMIT).await?;
    package.subscribe("1.1.0").await?;
    package.installed("1.1.0").await?;
    case.converged(since);
    foreign.check().await
}
