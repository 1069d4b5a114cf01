//! Subscriptions in as many namespaces: installs, an upgrade, rest, a restart, and a large catalog.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use olm_api::classic::{CatalogSource, ClusterServiceVersion, OperatorGroup, Subscription};
use olm_fbc::testing::{Format, generate};
use olm_integration::bounds::Bounds;
use olm_integration::classic::{apply, bundle, group, phase, source, source_is_ready, subscription};
use olm_integration::package::push_bundle;
use olm_kit::{CLASSIC_NAMESPACE, CatalogImage, Entry, Package, Registry};
use serde_json::json;

use crate::MIB;
use crate::plane::{Checks, Plane, Subject};

/// Processor seconds of a whole control plane for an install on the machine that the bounds in seconds are for.
const CONTROL_PLANE: f64 = 1.65;
const LIMIT: Duration = Duration::from_secs(1200);
pub(crate) const SOURCE: &str = "bench";
const LARGE: &str = "large";
/// Of the generated catalog.
const SEED: u64 = 1;

/// The packages of one step.
pub(crate) fn names(step: usize, size: usize) -> Vec<String> {
    (0..size).map(|index| format!("bench-{step}-{index}")).collect()
}

/// Returns how many times slower this machine is than that of the bounds in seconds.
pub(crate) async fn measure(
    sizes: &[usize],
    rest: usize,
    catalog: usize,
    bounds: &mut Bounds,
) -> Result<f64> {
    let mut plane = Plane::start(Subject::Own).await?;
    plane.wait_until_idle().await?;
    let mut steps = vec![1];
    steps.extend(sizes);
    let packages: Vec<Vec<String>> =
        steps.iter().enumerate().map(|(step, size)| names(step, *size)).collect();
    let all: Vec<String> = packages.concat();
    publish(&plane.registry, &plane.client, &all, &[]).await?;
    furnish(&plane.client, &all).await?;
    plane.wait_until_idle().await?;

    let mut slower = 1.0;
    let mut total = 0;
    for (step, names) in packages.iter().enumerate() {
        let size = names.len();
        let mark = plane.mark()?;
        let client = plane.client.clone();
        let spent = plane.measure(mark, async {
            subscribe(&client, names).await?;
            succeeded(&client, names, "1.0.0").await
        });
        let spent = spent.await?;
        total += size;
        let title = if size == 1 { "one Subscription".to_owned() } else { format!("{size} Subscriptions") };
        spent.print(&title);
        slower = (spent.plane.as_secs_f64() / size as f64 / CONTROL_PLANE).max(1.0);
        let mut checks = Checks { bounds, group: title };
        let each = if size <= 20 { 0.5 } else { 0.8 };
        checks.seconds("until all are Succeeded", spent.wall, (each * size as f64).max(1.0) * slower);
        checks.seconds("CPU", spent.cpu, (0.025 * size as f64).max(0.03) * slower);
        checks.count("requests each", spent.requests.len() as f64 / size as f64, 50.0);
        if step != 1 {
            continue;
        }
        let mark = plane.mark()?;
        let (client, registry) = (plane.client.clone(), &plane.registry);
        publish(registry, &client, &all, names).await?;
        let upgraded = async { succeeded(&client, names, "1.1.0").await };
        let spent = plane.measure(mark, upgraded).await?;
        spent.print(&format!("upgrade of {size}"));
        checks.group = format!("upgrade of {size}");
        checks.seconds("until all are Succeeded", spent.wall, (0.6 * size as f64).max(1.0) * slower);
        checks.seconds("CPU", spent.cpu, (0.035 * size as f64).max(0.03) * slower);
        checks.count("requests each", spent.requests.len() as f64 / size as f64, 50.0);
    }
    at_rest(&mut plane, rest, total, bounds).await?;
    drop(plane);
    memory(catalog, bounds).await?;
    Ok(slower)
}

async fn at_rest(plane: &mut Plane, rest: usize, total: usize, bounds: &mut Bounds) -> Result<()> {
    plane.wait_until_at_rest().await?;
    let mut mark = plane.mark()?;
    tokio::time::sleep(Duration::from_secs(rest as u64)).await;
    let resting = plane.since(&mut mark)?;
    resting.print(&format!("{rest} s of rest with {total}"));
    let mut checks = Checks { bounds, group: format!("{rest} s of rest with {total}") };
    // a tick of the processor clock at least
    checks.seconds("CPU", resting.cpu, (0.1 * rest as f64 / 120.0).max(0.02));
    checks.count("requests", resting.requests.len() as f64, 0.0);

    let resident = plane.memory()?;
    let restart = plane.restart().await?;
    restart.print(&format!("restart with {total}"));
    checks.group = format!("restart with {total}");
    checks.seconds("until idle", restart.wall, 2.0);
    checks.seconds("CPU", restart.cpu, 0.4 * (total as f64 / 100.0).max(1.0));
    checks.count("requests", restart.requests.len() as f64, 45.0);
    checks.count("writes", restart.writes() as f64, 0.0);
    let again = plane.memory()?;
    println!(
        "classic: resident with {total}: {:.1} MiB, at most {:.1}; after the restart {:.1} MiB, at most {:.1}",
        resident.resident as f64 / MIB,
        resident.peak as f64 / MIB,
        again.resident as f64 / MIB,
        again.peak as f64 / MIB,
    );
    checks.group = format!("memory with {total}");
    checks.mib("resident", resident.resident.max(again.resident), 60.0);
    Ok(())
}

/// Memory when idle, and with a large catalog.
async fn memory(size: usize, bounds: &mut Bounds) -> Result<()> {
    let mut image = CatalogImage::new();
    generate(size as u64 * 1_000_000, Format::Json, SEED, |path, text| {
        image = std::mem::take(&mut image).file(path, text);
    });
    let mut plane = Plane::start(Subject::Own).await?;
    let pushed = plane.registry.push("bench/large", "v1", &image.image()).await?;
    drop(image);
    plane.wait_until_idle().await?;
    let idle = plane.memory()?.resident;
    let mut mark = plane.mark()?;
    let sources: Api<CatalogSource> = Api::namespaced(plane.client.clone(), CLASSIC_NAMESPACE);
    apply(&sources, &source(LARGE, &pushed.by_digest())).await?;
    source_is_ready(&plane.client, LARGE).await?;
    // it is read when a namespace is resolved
    let names = ["none".to_owned()];
    furnish(&plane.client, &names).await?;
    let subscriptions: Api<Subscription> = Api::namespaced(plane.client.clone(), &names[0]);
    apply(&subscriptions, &subscription(&names[0], &names[0], LARGE, "stable")).await?;
    plane.wait_until_idle().await?;
    let spent = plane.since(&mut mark)?;
    spent.print(&format!("a catalog of {size} MB"));
    let memory = plane.memory()?;
    println!(
        "classic: resident idle {:.1} MiB; with a catalog of {size} MB {:.1} MiB, at most {:.1}",
        idle as f64 / MIB,
        memory.resident as f64 / MIB,
        memory.peak as f64 / MIB,
    );
    let mut checks = Checks { bounds, group: "memory".to_owned() };
    checks.mib("resident, idle", idle, 30.0);
    checks.mib(&format!("resident, catalog of {size} MB"), memory.resident, 60.0);
    Ok(())
}

/// Pushes a catalog with all packages, of which `upgraded` have a second version, and points the CatalogSource to it.
pub(crate) async fn publish(
    registry: &Registry,
    client: &Client,
    all: &[String],
    upgraded: &[String],
) -> Result<()> {
    let packages = all.iter().map(|name| async move {
        let property = json!({"type": "olm.gvk", "value": {"group": format!("{name}.kit.test"), "kind": "Widget", "version": "v1"}});
        let image = push_bundle(registry, name, "1.0.0", &bundle(name, "1.0.0")).await?;
        let mut package = Package::new(name).bundle_with("1.0.0", &image, [property.clone()]);
        let mut entries = vec![Entry::new("1.0.0")];
        if upgraded.contains(name) {
            let image = push_bundle(registry, name, "1.1.0", &bundle(name, "1.1.0")).await?;
            package = package.bundle_with("1.1.0", &image, [property]);
            entries.push(Entry::new("1.1.0").replaces("1.0.0"));
        }
        anyhow::Ok(package.channel("stable", entries))
    });
    let packages: Vec<Result<Package>> = futures::stream::iter(packages).buffered(8).collect().await;
    let mut catalog = CatalogImage::new();
    for package in packages {
        catalog = catalog.package(&package?);
    }
    let tag = if upgraded.is_empty() { "v1" } else { "v2" };
    let pushed = registry.push("bench/catalog", tag, &catalog.image()).await?;
    let sources: Api<CatalogSource> = Api::namespaced(client.clone(), CLASSIC_NAMESPACE);
    apply(&sources, &source(SOURCE, &pushed.by_digest())).await?;
    source_is_ready(client, SOURCE).await
}

/// Makes namespaces with OperatorGroups that have them as targets.
pub(crate) async fn furnish(client: &Client, names: &[String]) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let each = names.iter().map(async |name| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        apply(&namespaces, &namespace).await?;
        let groups: Api<OperatorGroup> = Api::namespaced(client.clone(), name);
        apply(&groups, &group(name, &[name])).await
    });
    futures::stream::iter(each).buffer_unordered(8).try_collect().await
}

pub(crate) async fn subscribe(client: &Client, names: &[String]) -> Result<()> {
    let each = names.iter().map(async |name| {
        let subscriptions: Api<Subscription> = Api::namespaced(client.clone(), name);
        apply(&subscriptions, &subscription(name, name, SOURCE, "stable")).await
    });
    futures::stream::iter(each).buffer_unordered(8).try_collect().await
}

/// Waits until the ClusterServiceVersion of this version of each package is Succeeded.
pub(crate) async fn succeeded(client: &Client, names: &[String], version: &str) -> Result<()> {
    let mut open: BTreeSet<String> = names.iter().map(|name| format!("{name}.v{version}")).collect();
    let csvs: Api<ClusterServiceVersion> = Api::all(client.clone());
    let originals = watcher::Config::default().labels("!olm.copiedFrom");
    let mut events = watcher(csvs, originals).default_backoff().applied_objects().boxed();
    let all = async {
        while let Some(csv) = events.try_next().await? {
            if phase(&csv) == "Succeeded" {
                open.remove(&csv.name_any());
            }
            if open.is_empty() {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    match tokio::time::timeout(LIMIT, all).await {
        Ok(done) => done,
        Err(_) => bail!("{} of {} are not Succeeded: {open:?}", open.len(), names.len()),
    }
}
