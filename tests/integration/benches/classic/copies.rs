//! One global operator, whose ClusterServiceVersion is copied to every namespace.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, OperatorGroup, Subscription};
use olm_integration::bounds::Bounds;
use olm_integration::classic::{apply, group, phase, subscription};
use serde_json::json;

use crate::installs::{SOURCE, publish, succeeded};
use crate::plane::{Checks, Plane, Subject};

const NAME: &str = "global";
const LIMIT: Duration = Duration::from_secs(900);

/// Measures an operator in `size` namespaces beside its own.
pub(crate) async fn measure(size: usize, slower: f64, bounds: &mut Bounds) -> Result<()> {
    let mut plane = Plane::start(Subject::Own).await?;
    let client = plane.client.clone();
    let names = [NAME.to_owned()];
    publish(&plane.registry, &client, &names, &[]).await?;
    namespaces(&client, size).await?;
    let groups: Api<OperatorGroup> = Api::namespaced(client.clone(), NAME);
    apply(&groups, &group(NAME, &[])).await?;
    plane.wait_until_idle().await?;

    let mark = plane.mark()?;
    let installed = async {
        let subscriptions: Api<Subscription> = Api::namespaced(client.clone(), NAME);
        apply(&subscriptions, &subscription(NAME, NAME, SOURCE, "stable")).await?;
        succeeded(&client, &names, "1.0.0").await?;
        copied(&client, size).await
    };
    let spent = plane.measure(mark, installed).await?;
    let group = format!("a global operator in {size} namespaces");
    spent.print(&group);
    // all namespaces of the cluster have a copy, those of Kubernetes too
    let of_copies = spent.requests.iter().filter(|it| {
        it.writes() && it.resource.starts_with("clusterserviceversions") && it.namespace != NAME
    });
    let copied: BTreeSet<&str> = of_copies.clone().map(|it| it.namespace.as_str()).collect();
    let each = of_copies.count() as f64 / copied.len().max(1) as f64;
    let mut checks = Checks { bounds, group };
    checks.seconds("until all have it", spent.wall, (0.025 * size as f64).max(2.0) * slower);
    checks.seconds("CPU", spent.cpu, (0.05 + 0.000_75 * size as f64) * slower);
    checks.count("writes a namespace", each, 2.0);

    let restart = plane.restart().await?;
    restart.print(&format!("restart with a global operator in {size} namespaces"));
    checks.seconds("restart, until idle", restart.wall, 3.0);
    checks.count("restart, writes", restart.writes() as f64, 0.0);
    Ok(())
}

async fn namespaces(client: &Client, size: usize) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    let names = (0..size).map(|index| format!("copies-{index}")).chain([NAME.to_owned()]);
    let each = names.map(async |name| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        apply(&api, &namespace).await
    });
    futures::stream::iter(each).buffer_unordered(8).try_collect().await
}

/// Waits until this many namespaces of the bench have a copy with the status of the original.
async fn copied(client: &Client, size: usize) -> Result<()> {
    let mut present = BTreeSet::new();
    let csvs: Api<ClusterServiceVersion> = Api::all(client.clone());
    let copies = watcher::Config::default().labels("olm.copiedFrom");
    let mut events = watcher(csvs, copies).default_backoff().applied_objects().boxed();
    let all = async {
        while let Some(csv) = events.try_next().await? {
            let namespace = csv.namespace().unwrap_or_default();
            if phase(&csv) == "Succeeded" && namespace.starts_with("copies-") {
                present.insert(namespace);
            }
            if present.len() == size {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    match tokio::time::timeout(LIMIT, all).await {
        Ok(done) => done,
        Err(_) => bail!("{} of {size} namespaces have a copy", present.len()),
    }
}
