//! Upgrade and rollback of the programs on a live system, against another commit: `make test-upgrade FROM=<commit>`.
//!
//! 20 extensions from 5 catalogs are installed by the old programs. Then today's programs replace them one at a time, in place and
//! side by side, and the old ones return in the same two ways. From the steady state on no program may write an object, pull a
//! catalog again, change a condition or issue a certificate. Today's CRDs are installed from the beginning.
//!
//! What the old programs write when they are merely restarted is no effect of an upgrade. They are restarted once at first, and a
//! later write request passes if that restart made the same one. It must still leave its object as it is.
//!
//! `OLM_UPGRADE_FROM` is the folder of the old programs; without it only the comparing functions are tested.
//! `OLM_UPGRADE_SECONDS` (60) is how long both versions run side by side. `OLM_UPGRADE_BREAK` injects one fault during the first
//! replacement, which must fail the run: `object` changes a managed object, `condition` the status of an extension, `cache` removes
//! catalogd's cache folder, `certificate` deletes the Secret of a webhook certificate.

#![expect(clippy::print_stdout, reason = "the person who runs it reads the table")]

mod conditions;
mod content;
mod requests;
mod snapshot;
mod steps;
mod system;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use steps::{Checks, Step};
use system::{PROGRAMS, System, Version};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrade_and_rollback_write_nothing() -> Result<()> {
    let Some(old) = std::env::var_os("OLM_UPGRADE_FROM").filter(|folder| !folder.is_empty()) else {
        println!(
            "SKIPPED: the upgrade needs the programs of another commit; run it by `make test-upgrade FROM=<commit>`"
        );
        return Ok(());
    };
    let seconds = std::env::var("OLM_UPGRADE_SECONDS").unwrap_or_else(|_| "60".to_owned());
    let seconds =
        seconds.parse().with_context(|| format!("OLM_UPGRADE_SECONDS: {seconds:?} is not a number"))?;
    let began = Instant::now();
    let mut system = System::start(&PathBuf::from(old)).await?;
    let mut checks = Checks::default();
    let outcome = run(&mut system, &mut checks, Duration::from_secs(seconds)).await;
    checks.print(began.elapsed());
    outcome.map_err(|error| anyhow::anyhow!("{error:#}\n{}", system.log_ends()))?;
    if !checks.findings.is_empty() {
        bail!("{} findings:\n{}\n{}", checks.findings.len(), checks.findings.join("\n"), system.log_ends());
    }
    Ok(())
}

async fn run(system: &mut System, checks: &mut Checks, beside: Duration) -> Result<()> {
    let fault = std::env::var("OLM_UPGRADE_BREAK").unwrap_or_default();
    content::install(system).await?;
    checks.begin(system).await?;
    for program in PROGRAMS {
        system.replace(program, Version::Old, async |_: &System| Ok(())).await?;
    }
    checks.compare(system, "old restarted, for comparison", &Step::Reference).await?;
    for to in [Version::New, Version::Old] {
        for program in PROGRAMS {
            let first = to == Version::New;
            let took = system
                .replace(program, to, async |system: &System| {
                    if first { steps::inject(&fault, program, system).await } else { Ok(()) }
                })
                .await?;
            let title = format!("{program}: {} in place", to.direction());
            checks.compare(system, &title, &Step::Replaced(program, took)).await?;
        }
    }
    for to in [Version::New, Version::Old] {
        // the first of these has an empty cache folder, as a new pod has
        for program in PROGRAMS {
            system.add(program, to).await?;
        }
        let title = format!("{} beside {}, {} s", to.name(), to.other().name(), beside.as_secs());
        checks.compare(system, &title, &Step::Beside(beside)).await?;
        for program in PROGRAMS {
            let took = system.replace(program, to, async |_: &System| Ok(())).await?;
            let title = format!("{program}: {} by failover", to.direction());
            checks.compare(system, &title, &Step::Replaced(program, took)).await?;
        }
    }
    checks.end(system)
}
