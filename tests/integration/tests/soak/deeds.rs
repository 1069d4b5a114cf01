//! What is done to the system, by dice.

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
use crate::wish::{Want, Wish};
use crate::world::{PROGRAMS, World};

/// One kind of deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Create,
    Upgrade,
    FollowNewest,
    RollBack,
    WantUnmatchedVersion,
    CreateUnknownPackage,
    Pause,
    Resume,
    Delete,
    DeleteManagedObject,
    ChangeManagedObject,
    PushCatalog,
    ReplaceCatalog,
}

/// How often each is tried, in proportion.
const SHARES: [(Deed, u32); 13] = [
    (Deed::Create, 30),
    (Deed::Upgrade, 25),
    (Deed::FollowNewest, 8),
    (Deed::RollBack, 15),
    (Deed::WantUnmatchedVersion, 6),
    (Deed::CreateUnknownPackage, 3),
    (Deed::Pause, 6),
    (Deed::Resume, 10),
    (Deed::Delete, 9),
    (Deed::DeleteManagedObject, 20),
    (Deed::ChangeManagedObject, 12),
    (Deed::PushCatalog, 12),
    (Deed::ReplaceCatalog, 1),
];

impl Deed {
    /// By dice.
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
        let fit: Vec<usize> = (0..world.wishes.len()).filter(|at| self.fits(&world.wishes[*at])).collect();
        let Some(&at) = fit.choose(dice) else { return Ok(false) };
        let (offers, newest) = (world.offers(&world.wishes[at]), world.newest(&world.wishes[at]));
        let found = world.extensions.get_opt(&world.wishes[at].name).await?;
        let wish = &mut world.wishes[at];
        match self {
            Self::Create | Self::CreateUnknownPackage if found.is_some() => return Ok(false),
            Self::Create => {
                wish.want = pinned(*offers.choose(dice).context("nothing is on offer")?, false);
                wish.maybe = [None].into();
            }
            Self::CreateUnknownPackage => {
                (wish.want, wish.maybe) = (Want::Unknown, [None].into());
            }
            Self::Upgrade => {
                let higher: Vec<u32> =
                    offers.into_iter().filter(|one| wish.highest().is_none_or(|most| *one > most)).collect();
                let Some(&next) = higher.choose(dice) else { return Ok(false) };
                wish.want = pinned(next, dice.random_bool(0.2));
            }
            Self::FollowNewest => wish.want = Want::Version { pin: None, self_certified: false },
            Self::RollBack => {
                let lower: Vec<u32> =
                    offers.into_iter().filter(|one| wish.highest().is_some_and(|most| *one < most)).collect();
                let Some(&back) = lower.choose(dice) else { return Ok(false) };
                wish.want = pinned(back, true);
            }
            Self::WantUnmatchedVersion => wish.want = Want::Unmatched,
            Self::Pause => {
                // what comes after a pause must be certain, so only what is done is paused
                let Want::Version { pin: Some(pin), .. } = wish.want else { return Ok(false) };
                let done = found.is_some_and(|found| {
                    let ready =
                        current(&found, condition::READY).is_some_and(|it| it.status.as_str() == "True");
                    ready && installed_version(&found).and_then(number) == Some(pin)
                });
                if !done {
                    return Ok(false);
                }
                (wish.paused, wish.maybe) = (true, [Some(pin)].into());
            }
            Self::Resume => wish.paused = false,
            Self::Delete => (wish.want, wish.paused) = (Want::Nothing, false),
            Self::DeleteManagedObject
            | Self::ChangeManagedObject
            | Self::PushCatalog
            | Self::ReplaceCatalog => {}
        }
        if let Some(aim) = wish.aim(newest) {
            wish.maybe.insert(Some(aim));
        }
        world.wish(at).await?;
        Ok(true)
    }

    /// Can it be done to this one?
    fn fits(self, wish: &Wish) -> bool {
        let versioned = matches!(wish.want, Want::Version { .. });
        let going = !wish.paused && (versioned || wish.want == Want::Unmatched);
        match self {
            Self::Create | Self::CreateUnknownPackage => wish.want == Want::Nothing,
            Self::Upgrade | Self::FollowNewest | Self::RollBack => going,
            Self::WantUnmatchedVersion | Self::Pause => versioned && !wish.paused,
            Self::Resume => wish.paused,
            Self::Delete => wish.want != Want::Nothing,
            Self::DeleteManagedObject | Self::ChangeManagedObject => versioned && wish.highest().is_some(),
            Self::PushCatalog | Self::ReplaceCatalog => true,
        }
    }
}

fn pinned(version: u32, self_certified: bool) -> Want {
    Want::Version { pin: Some(version), self_certified }
}

/// New versions of some packages under the catalog's tag. Half of the time the catalog is asked to look at once.
async fn push(world: &mut World, dice: &mut StdRng) -> Result<()> {
    let at = dice.random_range(0..world.shelves.len());
    let all = world.shelves[at].packages();
    let count = dice.random_range(1..=3);
    let some: Vec<String> = all.choose_multiple(dice, count).cloned().collect();
    let wanted = world.pinned();
    world.shelves[at].push(&world.registry, &some, &wanted).await?;
    let name = world.shelves[at].name.clone();
    for at in 0..world.wishes.len() {
        let newest = world.newest(&world.wishes[at]);
        if let Some(aim) = world.wishes[at].aim(newest) {
            world.wishes[at].maybe.insert(Some(aim));
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

/// Somebody deletes or changes what an extension has made.
async fn drift(deed: Deed, world: &World, dice: &mut StdRng) -> Result<bool> {
    let fit: Vec<&Wish> = world.wishes.iter().filter(|wish| deed.fits(wish)).collect();
    let Some(wish) = fit.choose(dice) else { return Ok(false) };
    let Some(version) = wish.highest() else { return Ok(false) };
    let all = objects(&wish.name, version)?;
    let candidates: Vec<_> = all
        .iter()
        .filter(|object| deed == Deed::DeleteManagedObject || object.kind() == "ConfigMap")
        .collect();
    let Some(object) = candidates.choose(dice) else { return Ok(false) };
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(object.group(), object.version(), object.kind()));
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(world.client.clone(), namespace, &kind),
        None => Api::all_with(world.client.clone(), &kind),
    };
    let outcome = if deed == Deed::DeleteManagedObject {
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
            world.registry.child().kill();
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
