//! The controller, or the apiserver, is killed during an install with a dependency, an upgrade, and a removal. Afterwards the cluster holds
//! what an undisturbed run leaves, copies in another namespace included, made by as many creations.
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
use crate::site::{is_bookkeeping, is_step, lines, replica_of};

/// One after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Install,
    Upgrade,
    Removal,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Install, Self::Upgrade, Self::Removal];

    async fn begin(self, package: &Package) -> Result<()> {
        match self {
            Self::Install => package.subscribe("1.0.0").await,
            Self::Upgrade => package.subscribe("1.1.0").await,
            Self::Removal => package.delete().await,
        }
    }

    async fn done(self, package: &Package) -> Result<()> {
        match self {
            Self::Install => package.installed("1.0.0").await.map(drop),
            Self::Upgrade => {
                package.installed("1.1.0").await?;
                let old = package.csv("1.0.0");
                Wait::new(&package.csvs, &old).within(LIMIT).to_be_gone().await
            }
            Self::Removal => package.gone().await,
        }
    }
}

/// An operation without a fault.
struct Undisturbed {
    operation: Operation,
    /// What the cluster holds afterwards.
    left: Inventory,
    took: Duration,
    /// Writes of the controller, without events.
    writes: usize,
}

/// All operations without a fault, and what is there after them, without the CRDs.
async fn undisturbed(
    site: &Site,
    package: &Package,
    client: &Client,
    case: &Case,
) -> Result<(Vec<Undisturbed>, Inventory)> {
    let mut all = Vec::new();
    for operation in Operation::ALL {
        let mut tail = site.cluster.audit_tail()?;
        let started = Instant::now();
        operation.begin(package).await?;
        operation.done(package).await?;
        let took = started.elapsed();
        let left = settled(client, package).await?;
        let writes = tail.more()?.iter().filter(|request| is_step(request)).count();
        case.log(&format!("{operation:?}: {took:?}, {writes} writes"));
        all.push(Undisturbed { operation, left, took, writes });
    }
    delete_crds(package).await?;
    Ok((all, settled(client, package).await?))
}

/// Deletes the CRDs, which a removal leaves, and waits until the garbage collector has done its part.
async fn delete_crds(package: &Package) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(package.client.clone());
    for crd in crds(package) {
        definitions.delete(&crd.name(), &DeleteParams::default()).await?;
    }
    for crd in crds(package) {
        Wait::new(&definitions, &crd.name()).within(LIMIT).to_be_gone().await?;
    }
    eventually("nothing that the CSVs owned is left", LIMIT, || async {
        let state = state(&package.client, package).await?;
        let owned =
            ["OperatorCondition ", "Role ", "RoleBinding ", "Deployment ", "InstallPlan ", "Service "];
        // roles for the kinds go with the CRDs
        let group = format!(".{}.kit.test", package.name);
        let is_owned = |key: &&str| owned.iter().any(|kind| key.starts_with(kind)) || key.contains(&group);
        let left: Vec<&str> = state.keys().filter(is_owned).collect();
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

/// When to strike in a run: after each write once if there are as many runs, else at a random instant.
fn moment(dice: &mut StdRng, case: &Case, run: u32, usual: &Undisturbed) -> Moment {
    let number = run as usize + 1;
    if case.runs() as usize >= usual.writes && number <= usual.writes {
        Moment::Write(number)
    } else {
        random_moment(dice, usual)
    }
}

fn random_moment(dice: &mut StdRng, usual: &Undisturbed) -> Moment {
    if dice.random_bool(0.5) {
        Moment::Write(dice.random_range(1..=usual.writes.max(1)))
    } else {
        Moment::After(usual.took.mul_f64(dice.random_range(0.0..1.1)))
    }
}

#[tokio::test]
async fn fault_classic_kill_leaves_the_undisturbed_result() -> Result<()> {
    let name = "classic-controller killed (KILL) during install, upgrade, removal";
    let mut case = Case::sampled(name, 2, 250);
    let mut dice = case.dice();
    let mut site = Site::start().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served_with_dependency("kill").await?;
    let (usual, left) = undisturbed(&site, &package, &client, &case).await?;
    case.at_most(usual.iter().map(|usual| usual.writes).max().unwrap_or_default());
    for run in 0..case.runs() {
        let mut since = Instant::now();
        for usual in &usual {
            let mut tail = site.cluster.audit_tail()?;
            let mut seen = Vec::new();
            let mut moments = vec![moment(&mut dice, &case, run, usual)];
            if dice.random_bool(0.2) {
                // again while it recovers
                moments.push(random_moment(&mut dice, usual));
            }
            let about = format!("run {run}: {:?}, killed at {moments:?}", usual.operation);
            case.log(&about);
            usual.operation.begin(&package).await?;
            for moment in moments {
                moment.come(&mut tail, &mut seen).await?;
                site.controller.kill9();
                since = Instant::now();
                if dice.random_bool(0.3) {
                    // what was pulled is lost, too
                    std::fs::remove_dir_all(site.controller.cache()).context("removing the cache")?;
                }
                site.controller.relaunch()?;
            }
            let about = || about.clone();
            usual.operation.done(&package).await.with_context(about)?;
            let ended = reached(&usual.left, &client, &package, LIMIT).await;
            seen.extend(tail.more()?);
            ended.with_context(|| writes(&seen)).with_context(about)?;
            check_creations(&seen).with_context(about)?;
        }
        case.converged(since);
        delete_crds(&package).await?;
        reached(&left, &client, &package, LIMIT).await.with_context(|| format!("run {run}: CRDs deleted"))?;
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
    let mut case = Case::random("apiserver killed during install, upgrade, removal of OLM Classic", 15);
    let mut dice = case.dice();
    let mut site = Site::start().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served_with_dependency("apiserver").await?;
    let (usual, left) = undisturbed(&site, &package, &client, &case).await?;
    for run in 0..case.runs() {
        let usual = &usual[usize::try_from(run)? % usual.len()];
        let mut helped = false;
        let mut tail = site.cluster.audit_tail()?;
        let mut seen = Vec::new();
        let moment = random_moment(&mut dice, usual);
        let pause = Duration::from_millis(dice.random_range(0..3_000));
        let about =
            || format!("run {run}: {:?}, apiserver killed at {moment:?} for {pause:?}", usual.operation);
        case.log(&about());
        usual.operation.begin(&package).await?;
        moment.come(&mut tail, &mut seen).await?;
        let plane = site.cluster.plane().context("the control plane is not ours")?;
        plane.outage(pause).await?;
        let since = Instant::now();
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
        case.converged(since);
        if helped {
            case.helped();
        }
        if usual.operation == Operation::Removal && run + 1 < case.runs() {
            delete_crds(&package).await?;
            reached(&left, &client, &package, LIMIT)
                .await
                .with_context(|| format!("run {run}: CRDs deleted"))?;
        }
        foreign.check().await?;
    }
    Ok(())
}
