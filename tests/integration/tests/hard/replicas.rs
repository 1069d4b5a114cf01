//! Two replicas: the leader dies, stops or freezes in the middle of a rollout. The other takes over; nothing is applied
//! twice, and after the takeover only the new leader writes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use olm_kit::{Request, eventually};
use rand::Rng as _;

use crate::kills::{Moment, Operation, check_creations, make_widget, serve, touched, undisturbed};
use crate::package::{LIMIT, Package};
use crate::runs::Case;
use crate::site::{Site, is_bookkeeping, lines, replica_of};

/// How the leader leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// KILL: its lease has to run out.
    Killed,
    /// STOP, and CONT once another leads: it believes to be the leader still.
    Frozen,
    /// TERM: it gives the lease back.
    Stopped,
}

/// Which replica leads, by their logs since their last start.
fn leader(site: &Site) -> Option<usize> {
    site.controllers.iter().position(|process| process.log_text().contains("became leader"))
}

async fn until_led(site: &Site, not_by: Option<usize>) -> Result<usize> {
    eventually("a replica leads", Duration::from_secs(60), || async {
        let others = site.controllers.iter().enumerate().filter(|(replica, _)| Some(*replica) != not_by);
        let mut leading = others.filter(|(_, process)| process.log_text().contains("became leader"));
        leading.next().map(|(replica, _)| replica).context("none does")
    })
    .await
}

#[tokio::test]
async fn fault_failover_applies_once_and_stops_the_old_leader() -> Result<()> {
    let mut case = Case::random("leader killed, frozen or stopped during install, upgrade, uninstall", 18);
    let mut dice = case.dice();
    let mut site = Site::with_replicas().await?;
    until_led(&site, None).await?;
    let client = site.client().await?;
    let package = Package::new(&site, "failover").await?;
    serve(&site, &package).await?;
    let usual = undisturbed(&site, &package, &client).await?;
    let ends = [End::Killed, End::Frozen, End::Stopped];
    let first = dice.random_range(0..ends.len());

    for run in 0..case.runs() {
        let at = usize::try_from(run)?;
        let usual = &usual[at % usual.len()];
        let end = ends[(first + at + at / ends.len()) % ends.len()];
        let old = leader(&site).context("no replica leads")?;
        let moment = Moment::random(&mut dice, usual);
        case.log(&format!("run {run}: {:?}, leader {old} {end:?} at {moment:?}", usual.operation));
        let mut tail = site.cluster.audit_tail()?;
        let mut seen = Vec::new();
        usual.operation.begin(&package).await?;
        moment.come(&mut tail, &mut seen).await?;
        let since = Instant::now();
        match end {
            End::Killed => site.controllers[old].kill9(),
            End::Frozen => site.controllers[old].freeze(),
            End::Stopped => ensure!(site.controllers[old].stop(), "the leader does not stop in order"),
        }
        let new = until_led(&site, Some(old)).await?;
        if end == End::Frozen {
            site.controllers[old].thaw();
            // it must notice that it leads no more, and end
            let child = site.controllers[old].child();
            ensure!(child.wait(Duration::from_secs(20)), "the old leader continues");
        }
        let about = || format!("run {run}: {:?}, {end:?} at {moment:?}", usual.operation);
        usual.operation.done(&package).await.with_context(about)?;
        let reached = usual.left.reached(&client, LIMIT).await.map_err(|error| site.explain(error));
        reached.with_context(about)?;
        case.converged(since);

        seen.extend(tail.more()?);
        check_writers(&seen, old, new).with_context(about)?;
        check_creations(&seen, &package).with_context(about)?;
        let now = touched(&seen, &package);
        for (what, times) in &now {
            // a write whose answer was lost may be asked for again only if it changes nothing: the object's own content decides
            let usually = usual.touched.get(what).copied().unwrap_or_default();
            let (about, lines) = (about(), lines(&seen));
            ensure!(*times <= usually, "{about}: {what}: {times} times instead of {usually}\n{lines}");
        }
        site.controllers[old].relaunch()?;
        site.controllers[old].wait_ready().await?;
        if usual.operation == Operation::Install {
            make_widget(&site, &package).await?;
        }
    }
    Ok(())
}

/// No successful write of the old leader comes after the new one took the lease.
fn check_writers(seen: &[Request], old: usize, new: usize) -> Result<()> {
    let taken = seen.iter().find(|request| {
        request.resource == "leases"
            && request.writes()
            && request.code < 300
            && replica_of(request) == Some(new)
    });
    let Some(taken) = taken else { bail!("no one took the lease:\n{}", lines(seen)) };
    let late: Vec<Request> = seen
        .iter()
        .filter(|request| replica_of(request) == Some(old) && request.received > taken.received)
        .filter(|request| request.writes() && !is_bookkeeping(request))
        .cloned()
        .collect();
    ensure!(late.is_empty(), "writes of the old leader after {}:\n{}", taken.received, lines(&late));
    let early: Vec<Request> = seen
        .iter()
        .filter(|request| replica_of(request) == Some(new) && request.received < taken.received)
        .filter(|request| request.writes() && !is_bookkeeping(request))
        .cloned()
        .collect();
    ensure!(early.is_empty(), "writes of the new leader before {}:\n{}", taken.received, lines(&early));
    Ok(())
}
