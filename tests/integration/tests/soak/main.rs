//! Churn for half an hour: catalogs are pushed, extensions come, change and go, programs are killed; every few minutes the
//! system must come to rest and hold exactly what is wanted, in the cluster, on disk, in memory.
//!
//! ```text
//! make soak MINUTES=30 SEED=7
//! ```
//!
//! `OLM_SOAK_MINUTES` says for how long; without it only what judges is tested. `OLM_SOAK_SEED` repeats the choices (not
//! their instants). `OLM_SOAK_BREAK` does harm once, to see that it is found: `secret` leaves a Secret behind, `file` a
//! folder in catalogd's store, `writes` keeps a program's account writing.

mod check;
mod deeds;
mod harm;
mod meter;
mod report;
mod shelf;
mod wish;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::check::Checks;
use crate::deeds::{Deed, Kills};
use crate::harm::Harm;
use crate::wish::Want;
use crate::world::World;

/// Between two deeds, at most.
const PAUSE: Duration = Duration::from_millis(2500);
/// After a deed that nothing was fit for.
const BREATH: Duration = Duration::from_millis(20);
/// The part of the time in which programs are killed, at its end all of them; later only the registry is.
const KILLING: f64 = 0.5;
/// How long operator-controller may keep bundles after the last extension has gone.
const FORGETTING: Duration = Duration::from_secs(240);

/// What was done so far.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) deeds: BTreeMap<Deed, usize>,
    pub(crate) checks: Checks,
    pub(crate) kills: Vec<String>,
    pub(crate) took: Duration,
    pub(crate) seed: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn churn_leaves_nothing_behind() -> Result<()> {
    let Ok(minutes) = std::env::var("OLM_SOAK_MINUTES") else {
        report::say("SKIPPED: the soak takes minutes; run it by `make soak`");
        return Ok(());
    };
    let minutes: f64 =
        minutes.parse().with_context(|| format!("OLM_SOAK_MINUTES: {minutes:?} is no number"))?;
    let seed = std::env::var("OLM_SOAK_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let total = Duration::from_secs_f64(minutes.clamp(0.3, 24.0 * 60.0) * 60.0);
    report::say(&format!("{minutes} minutes, SEED={seed}"));
    let mut world = World::start().await?;
    let watching = world.meter.watch();
    let mut story = Story { seed, ..Story::default() };
    let outcome = run(&mut world, &mut story, total).await;
    watching.abort();
    let ended = world.end();
    report::print(&world, &story);
    outcome.map_err(|error| {
        let ends: Vec<String> = world.logs().iter().map(|log| olm_kit::tail(log, 0, 40)).collect();
        anyhow::anyhow!("{error:#}\nSEED={seed}\n--- ends of the logs:\n{}", ends.join("\n---\n"))
    })?;
    ended
}

async fn run(world: &mut World, story: &mut Story, total: Duration) -> Result<()> {
    let mut dice = StdRng::seed_from_u64(story.seed);
    let mut harm = Harm::wanted()?;
    story.checks = Checks::begin(world).await?;
    report::say("at rest; churn begins");
    let began = Instant::now();
    let churn = (total / 10).clamp(Duration::from_secs(15), Duration::from_secs(150));
    let every = (total / 8).min(Duration::from_secs(120));
    let mut kills = Kills::new(every, began + total.mul_f64(KILLING));
    let mut told = Instant::now();
    while began.elapsed() < total {
        let until = Instant::now() + churn;
        while Instant::now() < until {
            let deed = Deed::random(&mut dice)?;
            let done = deed.done(world, &mut dice).await.with_context(|| format!("{deed:?}"))?;
            if done {
                *story.deeds.entry(deed).or_default() += 1;
            }
            if let Some(what) = kills.strike(world, &mut dice).await? {
                report::say(&format!("{:>6.1} s: killed: {what}", began.elapsed().as_secs_f64()));
            }
            story.kills.clone_from(&kills.done);
            let pause = if done { PAUSE.mul_f64(dice.random_range(0.0..1.0)) } else { BREATH };
            tokio::time::sleep(pause).await;
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                report::progress(world, story, began);
            }
        }
        harm.strike(world).await?;
        story.checks.all(world).await?;
        story.took = began.elapsed();
        report::progress(world, story, began);
    }
    for at in 0..world.wishes.len() {
        if world.wishes[at].want != Want::Nothing {
            (world.wishes[at].want, world.wishes[at].paused) = (Want::Nothing, false);
            world.wish(at).await?;
        }
    }
    story.checks.all(world).await.context("when everything was deleted")?;
    story.checks.empty(world, FORGETTING).await?;
    story.took = began.elapsed();
    Ok(())
}
