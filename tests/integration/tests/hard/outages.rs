//! catalogd or the registry is unavailable: installed extensions stay, drift is still corrected, conditions name the outage, and
//! everything continues afterwards.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use olm_api::condition;

use crate::package::{LIMIT, Package};
use crate::runs::Case;
use crate::site::Site;
use olm_integration::extension::{current, installed_version, status_and_message};

#[tokio::test]
async fn fault_catalogd_outage_stops_only_what_needs_it() -> Result<()> {
    let mut case = Case::once("catalogd killed and started again");
    let mut site = Site::start().await?;
    let old = Package::new(&site, "known").await?;
    let new = Package::new(&site, "unseen").await?;
    for package in [&old, &new] {
        let bundles = [("1.0.0", package.bundle("1.0.0")), ("1.1.0", package.bundle("1.1.0"))];
        package.serve(&site.registry, bundles).await?;
    }
    old.install("1.0.0").await?;

    site.catalogd.kill9();
    old.heals("1.0.0").await?;
    // content that was read before is still known, also to a process that has just started
    site.controller()?.kill9();
    site.controller()?.restart().await?;
    old.heals("1.0.0").await?;
    old.install("1.1.0").await?;
    // what was never read cannot be installed, and the condition names the catalog
    new.want("1.1.0").await?;
    let named = |(_, message): (String, String)| message.contains("catalog") && message.contains(&new.name);
    let waiting = new
        .until("Progressing names the catalog", |found| {
            status_and_message(found, condition::PROGRESSING).is_ok_and(named)
        })
        .await?;
    let (status, message) = status_and_message(&waiting, condition::PROGRESSING)?;
    ensure!(status == "True", "{status}: {message}");
    ensure!(
        status_and_message(&waiting, condition::INSTALLED)?.0 == "False"
            && status_and_message(&waiting, condition::READY)?.0 == "False"
    );
    let still = old.installed("1.1.0").await?;
    ensure!(status_and_message(&still, condition::INSTALLED)?.0 == "True");

    site.catalogd.restart().await?;
    let since = Instant::now();
    new.installed("1.1.0").await?;
    case.converged(since);
    Ok(())
}

#[tokio::test]
async fn fault_registry_outage_stops_only_what_needs_it() -> Result<()> {
    let mut case = Case::once("registry killed and started again");
    let mut site = Site::start().await?;
    let package = Package::new(&site, "registry").await?;
    let bundles = [("1.0.0", package.bundle("1.0.0")), ("1.1.0", package.bundle("1.1.0"))];
    package.serve(&site.registry, bundles).await?;
    package.install("1.0.0").await?;

    site.registry.child()?.kill();
    package.heals("1.0.0").await?;
    package.want("1.1.0").await?;
    let waiting = package.progressing_names(site.registry.address()).await?;
    ensure!(installed_version(&waiting) == Some("1.0.0"));
    let (status, message) = status_and_message(&waiting, condition::PROGRESSING)?;
    ensure!(status == "True" && message.starts_with("error for resolved bundle"), "{status}: {message}");
    ensure!(status_and_message(&waiting, condition::INSTALLED)?.0 == "True");
    ensure!(status_and_message(&waiting, condition::READY)?.0 == "False");
    package.heals("1.0.0").await?;
    // retries back off: few requests to the apiserver, and none that writes (except the correction, recorded late)
    let mark = site.mark()?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let meanwhile = site.about(&package.name, mark)?;
    ensure!(meanwhile.len() <= 10, "{}", crate::site::lines(&meanwhile));
    let writes = meanwhile.iter().filter(|request| request.writes() && request.resource != "configmaps");
    ensure!(writes.count() <= 1, "{}", crate::site::lines(&meanwhile));

    site.registry.start_again().await?;
    let since = Instant::now();
    package.installed("1.1.0").await?;
    package.config_has("1.1.0", LIMIT).await?;
    case.converged(since);
    // and the status is about the desired version, not about the outage
    let done = package.installed("1.1.0").await?;
    ensure!(current(&done, condition::PROGRESSING).is_some_and(|found| found.reason == "Succeeded"));
    Ok(())
}
