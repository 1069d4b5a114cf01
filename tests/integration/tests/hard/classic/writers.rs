//! Other clients write ClusterServiceVersions and Subscriptions while the controllers do.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use olm_integration::classic::{Package, phase};
use olm_kit::Wait;
use serde_json::json;
use tokio::task::JoinHandle;

use super::site::Site;
use super::state::{reached, settled};
use crate::package::LIMIT;
use crate::runs::Case;
use crate::site::{lines, replica_of};

/// Between two writes of a rival.
const PAUSE: Duration = Duration::from_millis(20);
/// Requests of an install or an upgrade beside rivals, at most.
const MAX_REQUESTS: usize = 500;

struct Rival(JoinHandle<()>);

impl Drop for Rival {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes an annotation or a label, and a text of the status again and again, also before there is an object.
fn rival(package: &Package, version: &str) -> Rival {
    let (csvs, subscriptions) = (package.csvs.clone(), package.subscriptions.clone());
    let (csv, name) = (package.csv(version), package.name.clone());
    Rival(tokio::spawn(async move {
        let params = PatchParams::default();
        for count in 0_u32.. {
            let text = count.to_string();
            let annotation = Patch::Merge(json!({"metadata": {"annotations": {"example.com/rival": text}}}));
            // annotations of a CSV are those of its pods, too
            let label = Patch::Merge(json!({"metadata": {"labels": {"example.com/rival": text}}}));
            let of_csv = Patch::Merge(json!({"status": {"message": text}}));
            let of_subscription = Patch::Merge(json!({"status": {"reason": text}}));
            // what is not there yet cannot be written
            let _ = csvs.patch(&csv, &params, &label).await;
            let _ = subscriptions.patch(&name, &params, &annotation).await;
            let _ = csvs.patch_status(&csv, &params, &of_csv).await;
            let _ = subscriptions.patch_status(&name, &params, &of_subscription).await;
            tokio::time::sleep(PAUSE).await;
        }
    }))
}

#[tokio::test]
async fn fault_classic_rival_writers_only_delay_an_install() -> Result<()> {
    let mut case = Case::once("another client writes CSV and Subscription, status too, all the time");
    let site = Site::start().await?;
    let (package, foreign) = site.served("rivals").await?;
    for version in ["1.0.0", "1.1.0"] {
        let mut tail = site.cluster.audit_tail()?;
        let rival = rival(&package, version);
        let since = Instant::now();
        package.subscribe(version).await?;
        let done = package.installed(version).await;
        let mut requests = tail.more()?;
        requests.retain(|it| replica_of(it).is_some() && it.verb != "watch");
        let csv = done.with_context(|| lines(&requests))?;
        case.log(&format!("{version}: {} requests, {:?}", requests.len(), since.elapsed()));
        ensure!(requests.len() <= MAX_REQUESTS, "{}", lines(&requests));
        ensure!(csv.labels().contains_key("example.com/rival"), "{csv:?}");
        drop(rival);
        package.installed(version).await?;
        if version == "1.1.0" {
            case.converged(since);
        }
    }
    let old = package.csv("1.0.0");
    Wait::new(&package.csvs, &old).within(LIMIT).to_be_gone().await?;
    foreign.check().await
}

/// Values that a controller itself would write; each leads to the result again.
#[tokio::test]
async fn fault_classic_overwritten_status_is_restored() -> Result<()> {
    let mut case = Case::once("another client overwrites phases and states");
    let site = Site::shared().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served("status").await?;
    package.subscribe("1.0.0").await?;
    package.installed("1.0.0").await?;
    let before = settled(&client, &package).await?;
    let params = PatchParams::default();
    let name = package.csv("1.0.0");
    for status in [
        json!({"phase": "Failed", "reason": "ComponentUnhealthy"}),
        json!({"phase": "Installing", "reason": "InstallSucceeded"}),
        json!({"phase": "Pending", "reason": "RequirementsUnknown"}),
        json!({"phase": "", "reason": ""}),
    ] {
        let since = Instant::now();
        let change = Patch::Merge(json!({ "status": status }));
        package.csvs.patch_status(&name, &params, &change).await?;
        reached(&before, &client, &package, LIMIT).await.with_context(|| status.to_string())?;
        case.log(&format!("{status}: {:?}", since.elapsed()));
    }
    let since = Instant::now();
    let change = Patch::Merge(json!({"status": {"conditions": null, "state": "UpgradePending"}}));
    package.subscriptions.patch_status(&package.name, &params, &change).await?;
    reached(&before, &client, &package, LIMIT).await.context("status of the Subscription")?;
    case.converged(since);
    foreign.check().await
}

const IMAGE: &str = "/template/spec/containers/0/image";

#[tokio::test]
async fn fault_classic_edited_csv_is_installed_as_edited() -> Result<()> {
    let mut case = Case::once("CSV edited, and edited back");
    let site = Site::shared().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served("edited").await?;
    package.subscribe("1.0.0").await?;
    let csv = package.installed("1.0.0").await?;
    let before = settled(&client, &package).await?;
    let mut strategy = csv.spec.install.spec.context("the CSV has a strategy")?;
    let first = strategy.deployments.first().and_then(|it| it.spec.pointer(IMAGE)?.as_str());
    let image = first.context("the Deployment has a container")?.to_owned();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &package.name);
    let name = format!("{}-ctrl", package.name);
    let uid = deployments.get(&name).await?.uid();
    for (image, is_back) in [("example.invalid/manager:edited", false), (image.as_str(), true)] {
        let since = Instant::now();
        let place = strategy.deployments.first_mut().and_then(|it| it.spec.pointer_mut(IMAGE));
        *place.context("the Deployment has a container")? = image.into();
        let deployments_of_csv =
            json!({"spec": {"install": {"spec": {"deployments": strategy.deployments}}}});
        let change = Patch::Merge(deployments_of_csv);
        package.csvs.patch(&package.csv("1.0.0"), &PatchParams::default(), &change).await?;
        let has_it = |it: &Deployment| {
            let pod = it.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            pod.is_some_and(|pod| pod.containers.iter().any(|it| it.image.as_deref() == Some(image)))
        };
        Wait::new(&deployments, &name).within(LIMIT).until("has the image", has_it).await?;
        package.csv_until("1.0.0", "is Succeeded", |csv| phase(csv) == "Succeeded").await?;
        if is_back {
            reached(&before, &client, &package, LIMIT).await?;
            case.converged(since);
        }
    }
    ensure!(deployments.get(&name).await?.uid() == uid, "the Deployment was made again");
    foreign.check().await
}
