//! Random operations on the system.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use olm_api::{annotations, condition};
use olm_integration::extension::{current, installed_version};
use olm_kit::Wait;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::json;

use crate::shelf::{number, objects};
use crate::target::{Target, Want};
use crate::world::{PROGRAMS, World};

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[rustfmt::skip]
pub(crate) enum Operation {
    Create, Upgrade, FollowNewest, RollBack, WantUnmatchedVersion, CreateUnknownPackage, Pause, Resume, Delete, DeleteManagedObject,
    ChangeManagedObject, PushCatalog, ReplaceCatalog,
}

/// How often each is tried, in proportion.
const SHARES: [(Operation, u32); 13] = [
    (Operation::Create, 30),
    (Operation::Upgrade, 25),
    (Operation::FollowNewest, 8),
    (Operation::RollBack, 15),
    (Operation::WantUnmatchedVersion, 6),
    (Operation::CreateUnknownPackage, 3),
    (Operation::Pause, 6),
    (Operation::Resume, 10),
    (Operation::Delete, 9),
    (Operation::DeleteManagedObject, 20),
    (Operation::ChangeManagedObject, 12),
    (Operation::PushCatalog, 12),
    (Operation::ReplaceCatalog, 1),
];

impl Operation {
    pub(crate) fn random(dice: &mut StdRng) -> Result<Self> {
        Ok(SHARES.choose_weighted(dice, |(_, share)| *share)?.0)
    }

    /// Does it to something that it can be done to; false when there is nothing.
    pub(crate) async fn done(self, world: &mut World, dice: &mut StdRng) -> Result<bool> {
        match self {
            Self::PushCatalog => return push(world, dice).await.map(|()| true),
            Self::ReplaceCatalog => return replace(world, dice).await.map(|()| true),
            Self::DeleteManagedObject | Self::ChangeManagedObject => return drift(self, world, dice).await,
            _ => {}
        }
        let fit: Vec<usize> = (0..world.targets.len()).filter(|at| self.fits(&world.targets[*at])).collect();
        let Some(&at) = fit.choose(dice) else { return Ok(false) };
        let (offers, newest) = (world.offers(&world.targets[at]), world.newest(&world.targets[at]));
        let found = world.extensions.get_opt(&world.targets[at].name).await?;
        let target = &mut world.targets[at];
        match self {
            Self::Create | Self::CreateUnknownPackage if found.is_some() => return Ok(false),
            Self::Create => {
                target.want = pinned(*offers.choose(dice).context("nothing is on offer")?, false);
                target.maybe = [None].into();
            }
            Self::CreateUnknownPackage => {
                (target.want, target.maybe) = (Want::Unknown, [None].into());
            }
            Self::Upgrade => {
                let higher: Vec<u32> = offers
                    .into_iter()
                    .filter(|one| target.highest().is_none_or(|most| *one > most))
                    .collect();
                let Some(&next) = higher.choose(dice) else { return Ok(false) };
                target.want = pinned(next, dice.random_bool(0.2));
            }
            Self::FollowNewest => target.want = Want::Version { pin: None, self_certified: false },
            Self::RollBack => {
                let lower: Vec<u32> = offers
                    .into_iter()
                    .filter(|one| target.highest().is_some_and(|most| *one < most))
                    .collect();
                let Some(&back) = lower.choose(dice) else { return Ok(false) };
                target.want = pinned(back, true);
            }
            Self::WantUnmatchedVersion => target.want = Want::Unmatched,
            Self::Pause => {
                // what comes after a pause must be certain, so only what is done is paused
                let Want::Version { pin: Some(pin), .. } = target.want else { return Ok(false) };
                let done = found.is_some_and(|found| {
                    let ready =
                        current(&found, condition::READY).is_some_and(|it| it.status.as_str() == "True");
                    ready && installed_version(&found).and_then(number) == Some(pin)
                });
                if !done {
                    return Ok(false);
                }
                (target.paused, target.maybe) = (true, [Some(pin)].into());
            }
            Self::Resume => target.paused = false,
            Self::Delete => (target.want, target.paused) = (Want::Nothing, false),
            Self::DeleteManagedObject
            | Self::ChangeManagedObject
            | Self::PushCatalog
            | Self::ReplaceCatalog => {}
        }
        if let Some(aim) = target.aim(newest) {
            target.maybe.insert(Some(aim));
        }
        world.apply_target(at).await?;
        Ok(true)
    }

    /// Can it be done to this one?
    fn fits(self, target: &Target) -> bool {
        let versioned = matches!(target.want, Want::Version { .. });
        let going = !target.paused && (versioned || target.want == Want::Unmatched);
        match self {
            Self::Create | Self::CreateUnknownPackage => target.want == Want::Nothing,
            Self::Upgrade | Self::FollowNewest | Self::RollBack => going,
            Self::WantUnmatchedVersion | Self::Pause => versioned && !target.paused,
            Self::Resume => target.paused,
            Self::Delete => target.want != Want::Nothing,
            Self::DeleteManagedObject | Self::ChangeManagedObject => versioned && target.highest().is_some(),
            Self::PushCatalog | Self::ReplaceCatalog => true,
        }
    }
}

fn pinned(version: u32, self_certified: bool) -> Want {
    Want::Version { pin: Some(version), self_certified }
}

/// New versions of some packages under the catalog's tag. Half of the time a poll is requested.
async fn push(world: &mut World, dice: &mut StdRng) -> Result<()> {
    let at = dice.random_range(0..world.shelves.len());
    let all = world.shelves[at].packages();
    let count = dice.random_range(1..=3);
    let some: Vec<String> = all.choose_multiple(dice, count).cloned().collect();
    let pins = world.pinned();
    world.shelves[at].push(&world.registry, &some, &pins).await?;
    let name = world.shelves[at].name.clone();
    for at in 0..world.targets.len() {
        let newest = world.newest(&world.targets[at]);
        if let Some(aim) = world.targets[at].aim(newest) {
            world.targets[at].maybe.insert(Some(aim));
        }
    }
    if dice.random_bool(0.5) {
        let when = format!("push {}", world.shelves[at].pushes);
        let look = json!({"metadata": {"annotations": {annotations::REQUESTED_AT: when}}});
        world.catalogs.patch(&name, &PatchParams::default(), &Patch::Merge(&look)).await?;
    }
    Ok(())
}

/// The catalog goes and comes again.
async fn replace(world: &mut World, dice: &mut StdRng) -> Result<()> {
    let at = dice.random_range(0..world.shelves.len());
    let name = world.shelves[at].name.clone();
    world.catalogs.delete(&name, &DeleteParams::default()).await?;
    Wait::new(&world.catalogs, &name).to_be_gone().await?;
    world.offer(at).await
}

/// Deletes or changes an object of an extension.
async fn drift(operation: Operation, world: &World, dice: &mut StdRng) -> Result<bool> {
    let fit: Vec<&Target> = world.targets.iter().filter(|target| operation.fits(target)).collect();
    let Some(target) = fit.choose(dice) else { return Ok(false) };
    let Some(version) = target.highest() else { return Ok(false) };
    let all = objects(&target.name, version)?;
    let candidates: Vec<_> = all
        .iter()
        .filter(|object| operation == Operation::DeleteManagedObject || object.kind() == "ConfigMap")
        .collect();
    let Some(object) = candidates.choose(dice) else { return Ok(false) };
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(object.group(), object.version(), object.kind()));
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(world.client.clone(), namespace, &kind),
        None => Api::all_with(world.client.clone(), &kind),
    };
    let outcome = if operation == Operation::DeleteManagedObject {
        api.delete(object.name(), &DeleteParams::default()).await.map(|_| ())
    } else {
        let change = json!({"data": {"version": "changed", "a": "changed"}});
        api.patch(object.name(), &PatchParams::default(), &Patch::Merge(&change)).await.map(|_| ())
    };
    match outcome {
        Ok(()) => Ok(true),
        // not there yet, or on its way out
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(false),
        Err(problem) => Err(problem.into()),
    }
}

/// When a process is killed next.
#[derive(Debug)]
pub(crate) struct Kills {
    every: Duration,
    next: Instant,
    /// Then all programs, from then on only the registry: they must live long enough for their memory to be judged.
    spared_from: Instant,
    /// What was killed or ended, and how often.
    pub(crate) done: Vec<String>,
}

impl Kills {
    /// About one in `every`.
    pub(crate) fn new(every: Duration, spared_from: Instant) -> Self {
        Self { every, next: Instant::now() + every, spared_from, done: Vec::new() }
    }

    /// Kills something if its time has come.
    pub(crate) async fn strike(&mut self, world: &mut World, dice: &mut StdRng) -> Result<Option<String>> {
        if Instant::now() < self.next {
            return Ok(None);
        }
        self.next = Instant::now() + self.every.mul_f64(dice.random_range(0.7..1.3));
        let after = Duration::from_secs_f64(dice.random_range(0.0..3.0));
        if Instant::now() >= self.spared_from && !world.full {
            world.full = true;
            for (at, program) in PROGRAMS.iter().enumerate() {
                world.restart(at, false, after).await?;
                self.done.push(format!("{program}, KILL"));
            }
            return Ok(Some("all programs, KILL".to_owned()));
        }
        let most = if world.full { 0 } else { PROGRAMS.len() };
        let at = dice.random_range(0..=most);
        let what = if at == most {
            world.registry.child()?.kill();
            tokio::time::sleep(after).await;
            world.registry.start_again().await?;
            "registry, KILL".to_owned()
        } else {
            let gently = dice.random_bool(0.25);
            world.restart(at, gently, after).await?;
            format!("{}, {}", PROGRAMS[at], if gently { "TERM" } else { "KILL" })
        };
        self.done.push(what.clone());
        Ok(Some(what))
    }
}
