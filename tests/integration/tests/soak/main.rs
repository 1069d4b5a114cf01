//! Churn for half an hour: catalogs are pushed, extensions come, change and go, programs are killed; every few minutes the
//! system must become steady and hold exactly the expected state, in the cluster, on disk, in memory.
//!
//! ```text
//! make soak MINUTES=30 SEED=7
//! ```
//!
//! `OLM_SOAK_MINUTES` sets the duration; without it only the checks themselves are tested. `OLM_SOAK_SEED` repeats the choices (not
//! their instants). `OLM_SOAK_BREAK` does damage once, to see that it is found: `secret` leaves a Secret behind, `file` a
//! folder in catalogd's store, `writes` keeps a program's account writing.

mod check;
mod damage;
mod operations;
mod report;
mod sampler;
mod shelf;
mod target;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::check::Checks;
use crate::damage::Damage;
use crate::operations::{Kills, Operation};
use crate::target::Want;
use crate::world::World;

/// Between two operations.
const MAX_PAUSE: Duration = Duration::from_millis(2500);
/// After an operation without a suitable target.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// The part of the time in which programs are killed, at its end all of them; later only the registry is.
const KILL_SHARE: f64 = 0.5;
/// How long operator-controller may keep bundles after the last extension has gone.
const CACHE_EXPIRY: Duration = Duration::from_secs(240);

/// What was done so far.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) operations: BTreeMap<Operation, usize>,
    pub(crate) checks: Checks,
    pub(crate) kills: Vec<String>,
    pub(crate) took: Duration,
    pub(crate) seed: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_churn_leaves_nothing_behind() -> Result<()> {
    let Ok(minutes) = std::env::var("OLM_SOAK_MINUTES") else {
        report::log("SKIPPED: the soak takes minutes; run it by `make soak`");
        return Ok(());
    };
    let minutes: f64 =
        minutes.parse().with_context(|| format!("OLM_SOAK_MINUTES: {minutes:?} is no number"))?;
    let seed = std::env::var("OLM_SOAK_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let total = Duration::from_secs_f64(minutes.clamp(0.3, 24.0 * 60.0) * 60.0);
    report::log(&format!("{minutes} minutes, SEED={seed}"));
    let mut world = World::start().await?;
    let watching = world.sampler.watch();
    let mut summary = Summary { seed, ..Summary::default() };
    let outcome = run(&mut world, &mut summary, total).await;
    watching.abort();
    let ended = world.end();
    report::print(&world, &summary);
    outcome.map_err(|error| {
        let ends: Vec<String> = world.logs().iter().map(|log| olm_kit::tail(log, 0, 40)).collect();
        anyhow::anyhow!("{error:#}\nSEED={seed}\n--- ends of the logs:\n{}", ends.join("\n---\n"))
    })?;
    ended
}

async fn run(world: &mut World, summary: &mut Summary, total: Duration) -> Result<()> {
    let mut dice = StdRng::seed_from_u64(summary.seed);
    let mut damage = Damage::from_environment()?;
    summary.checks = Checks::begin(world).await?;
    report::log("at rest; churn begins");
    let began = Instant::now();
    let churn = (total / 10).clamp(Duration::from_secs(15), Duration::from_secs(150));
    let every = (total / 8).min(Duration::from_secs(120));
    let mut kills = Kills::new(every, began + total.mul_f64(KILL_SHARE));
    let mut reported = Instant::now();
    while began.elapsed() < total {
        let until = Instant::now() + churn;
        while Instant::now() < until {
            let operation = Operation::random(&mut dice)?;
            let done = operation.done(world, &mut dice).await.with_context(|| format!("{operation:?}"))?;
            if done {
                *summary.operations.entry(operation).or_default() += 1;
            }
            if let Some(what) = kills.strike(world, &mut dice).await? {
                report::log(&format!("{:>6.1} s: killed: {what}", began.elapsed().as_secs_f64()));
            }
            summary.kills.clone_from(&kills.done);
            let pause = if done { MAX_PAUSE.mul_f64(dice.random_range(0.0..1.0)) } else { MIN_PAUSE };
            tokio::time::sleep(pause).await;
            if reported.elapsed() > Duration::from_secs(60) {
                reported = Instant::now();
                report::progress(world, summary, began);
            }
        }
        damage.strike(world).await?;
        summary.checks.all(world).await?;
        summary.took = began.elapsed();
        report::progress(world, summary, began);
    }
    for at in 0..world.targets.len() {
        if world.targets[at].want != Want::Nothing {
            (world.targets[at].want, world.targets[at].paused) = (Want::Nothing, false);
            world.apply_target(at).await?;
        }
    }
    summary.checks.all(world).await.context("when everything was deleted")?;
    summary.checks.empty(world, CACHE_EXPIRY).await?;
    summary.took = began.elapsed();
    Ok(())
}
