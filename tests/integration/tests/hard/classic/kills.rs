//! The controller, or the apiserver, is killed during an install or an upgrade through a Subscription. Afterwards the cluster holds what an
//! undisturbed run leaves, made by as many creations.
//!
//! `OLM_HARD=all` kills after each write of the controller, the first to the last.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DeleteParams;
use kube::{Api, Client};
use olm_integration::classic::Package;
use olm_integration::inventory::Inventory;
use olm_kit::{Request, Wait, eventually};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::site::{Site, crds};
use super::state::{reached, settled, state};
use crate::control_plane::establish;
use crate::kills::Moment;
use crate::package::LIMIT;
use crate::runs::Case;
use crate::site::{is_bookkeeping, lines, replica_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Install,
    Upgrade,
}

impl Operation {
    const ALL: [Self; 2] = [Self::Install, Self::Upgrade];

    fn version(self) -> &'static str {
        match self {
            Self::Install => "1.0.0",
            Self::Upgrade => "1.1.0",
        }
    }

    async fn done(self, package: &Package) -> Result<()> {
        package.installed(self.version()).await?;
        match self {
            Self::Install => Ok(()),
            Self::Upgrade => {
                let old = package.csv("1.0.0");
                Wait::new(&package.csvs, &old).within(LIMIT).to_be_gone().await
            }
        }
    }
}

/// An operation without a fault.
struct Undisturbed {
    operation: Operation,
    /// What the cluster holds afterwards.
    left: Inventory,
    took: Duration,
    /// Writes of the controller.
    writes: usize,
}

/// Both operations without a fault, and what an uninstall after them leaves.
async fn undisturbed(
    site: &Site,
    package: &Package,
    client: &Client,
) -> Result<(Vec<Undisturbed>, Inventory)> {
    let mut all = Vec::new();
    for operation in Operation::ALL {
        let mut tail = site.cluster.audit_tail()?;
        let started = Instant::now();
        package.subscribe(operation.version()).await?;
        operation.done(package).await?;
        let took = started.elapsed();
        let left = settled(client, package).await?;
        let requests = tail.more()?;
        let writes = requests.iter().filter(|it| replica_of(it).is_some() && it.writes()).count();
        all.push(Undisturbed { operation, left, took, writes });
    }
    reset(package).await?;
    Ok((all, settled(client, package).await?))
}

/// Removes what a user removes, CRDs too.
async fn reset(package: &Package) -> Result<()> {
    package.uninstall().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(package.client.clone());
    for crd in crds(package) {
        definitions.delete(&crd.name(), &DeleteParams::default()).await?;
        Wait::new(&definitions, &crd.name()).within(LIMIT).to_be_gone().await?;
    }
    // the garbage collector does its part
    eventually("nothing that the CSVs owned is left", LIMIT, || async {
        let state = state(&package.client, package).await?;
        let owned =
            ["OperatorCondition ", "Role ", "RoleBinding ", "Deployment ", "InstallPlan ", "Service "];
        let left: Vec<&str> =
            state.keys().filter(|key| owned.iter().any(|kind| key.starts_with(kind))).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}

/// Nothing is made twice.
fn check_creations(seen: &[Request]) -> Result<()> {
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    let ours = seen.iter().filter(|it| replica_of(it).is_some() && it.verb == "create" && it.code < 300);
    for request in ours.filter(|it| !is_bookkeeping(it) && !it.name.is_empty()) {
        let what = format!("{} {}/{}", request.resource, request.namespace, request.name);
        *made.entry(what).or_default() += 1;
    }
    made.retain(|_, times| *times > 1);
    ensure!(made.is_empty(), "made twice: {made:?}\n{}", writes(seen));
    Ok(())
}

/// When to strike in a run: after each write once, then at random instants.
fn moment(dice: &mut StdRng, case: &Case, run: u32, usual: &Undisturbed) -> Moment {
    let number = run as usize + 1;
    if case.runs() as usize >= usual.writes && number <= usual.writes {
        Moment::Write(number)
    } else if dice.random_bool(0.5) {
        Moment::Write(dice.random_range(1..=usual.writes.max(1)))
    } else {
        Moment::After(usual.took.mul_f64(dice.random_range(0.0..1.1)))
    }
}

#[tokio::test]
async fn fault_classic_kill_leaves_the_undisturbed_result() -> Result<()> {
    let mut case = Case::random("classic-controller killed (KILL) during install and upgrade", 100);
    let mut dice = case.dice();
    let mut site = Site::start().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served("kill").await?;
    let (_, left) = undisturbed(&site, &package, &client).await?;
    let (usual, again) = undisturbed(&site, &package, &client).await?;
    left.is(&again).context("what two uninstalls leave")?;
    for usual in &usual {
        case.log(&format!("{:?}: {:?}, {} writes", usual.operation, usual.took, usual.writes));
    }
    for run in 0..case.runs() {
        let mut since = Instant::now();
        for usual in &usual {
            let mut tail = site.cluster.audit_tail()?;
            let mut seen = Vec::new();
            let moment = moment(&mut dice, &case, run, usual);
            case.log(&format!("run {run}: {:?}, killed at {moment:?}", usual.operation));
            package.subscribe(usual.operation.version()).await?;
            moment.come(&mut tail, &mut seen).await?;
            site.controller.kill9();
            since = Instant::now();
            if dice.random_bool(0.3) {
                // what was pulled is lost, too
                std::fs::remove_dir_all(site.controller.cache()).context("removing the cache")?;
            }
            site.controller.relaunch()?;
            let about = || format!("run {run}: {:?}, killed at {moment:?}", usual.operation);
            usual.operation.done(&package).await.with_context(about)?;
            let ended = reached(&usual.left, &client, &package, LIMIT).await;
            seen.extend(tail.more()?);
            ended.with_context(|| writes(&seen)).with_context(about)?;
            check_creations(&seen).with_context(about)?;
        }
        case.converged(since);
        reset(&package).await?;
        reached(&left, &client, &package, LIMIT).await.with_context(|| format!("run {run}: uninstall"))?;
        foreign.check().await?;
    }
    Ok(())
}

fn writes(seen: &[Request]) -> String {
    let writes = seen.iter().filter(|it| replica_of(it).is_some() && it.writes());
    lines(&writes.cloned().collect::<Vec<_>>())
}

#[tokio::test]
async fn fault_classic_apiserver_kill_leaves_the_undisturbed_result() -> Result<()> {
    let mut case = Case::random("apiserver killed during install and upgrade of OLM Classic", 15);
    let mut dice = case.dice();
    let mut site = Site::start().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served("apiserver").await?;
    let (usual, left) = undisturbed(&site, &package, &client).await?;
    for run in 0..case.runs() {
        let mut helped = false;
        let mut since = Instant::now();
        for usual in &usual {
            let mut tail = site.cluster.audit_tail()?;
            let mut seen = Vec::new();
            let moment = moment(&mut dice, &case, run, usual);
            let pause = Duration::from_millis(dice.random_range(0..3_000));
            let about =
                || format!("run {run}: {:?}, apiserver killed at {moment:?} for {pause:?}", usual.operation);
            case.log(&about());
            package.subscribe(usual.operation.version()).await?;
            moment.come(&mut tail, &mut seen).await?;
            let plane = site.cluster.plane().context("the control plane is not ours")?;
            plane.outage(pause).await?;
            since = Instant::now();
            let ended = async {
                usual.operation.done(&package).await?;
                reached(&usual.left, &client, &package, LIMIT).await
            };
            let ended = tokio::select! {
                ended = ended => ended,
                never = establish(&case, &client, &mut helped) => match never {},
            };
            seen.extend(tail.more()?);
            ended.with_context(|| writes(&seen)).with_context(about)?;
            check_creations(&seen).with_context(about)?;
            ensure!(site.controller.child().exited().is_none(), "{}: the controller ended", about());
        }
        case.converged(since);
        if helped {
            case.helped();
        }
        reset(&package).await?;
        reached(&left, &client, &package, LIMIT).await.with_context(|| format!("run {run}: uninstall"))?;
        foreign.check().await?;
    }
    Ok(())
}
