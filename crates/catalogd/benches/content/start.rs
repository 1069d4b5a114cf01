//! Starts and polls of the real process.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use olm_fbc::testing::Format;
use serde_json::json;

use crate::Plan;
use crate::api::{Api, text};
use crate::catalog::generated;
use crate::ingest::WRITTEN_GOAL;
use crate::load::{self, Ask};
use crate::measure::{cpu, median, memory, written};
use crate::process::{Catalogd, preload};
use crate::registry::Registry;
use crate::table::{Table, mib};

const LIMIT: Duration = Duration::from_secs(120);
/// Processor seconds of 130 MB until they are served, and of the copy after that.
const SERVING_GOAL: f64 = 0.7;
const COPY_GOAL: f64 = 1.2;

/// From the start of the process to ready, and to the first answer with content.
pub(crate) async fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    let rounds = plan.rounds() + 4;
    let sizes: &[u64] = if plan.full { &[0, 1_000_000, 300_000_000] } else { &[0, 1_000_000, 10_000_000] };
    for &size in sizes {
        let dir = tempfile::tempdir_in(crate::catalog::folder())?;
        let api = Api::start().await?;
        let mut ask = None;
        if size > 0 {
            preload(&api, dir.path(), &[("cat", &generated(size, Format::Json)?)])?;
        }
        let connector = load::connector()?;
        let (mut ready, mut served) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let mut process = Catalogd::start(&api, dir.path())?;
            let ask = ask.insert(Ask::get(process.content, "/catalogs/cat/api/v1/metas?schema=olm.package"));
            let answered = async {
                while size > 0 && load::once(&connector, ask).await.is_err() {
                    ensure!(process.began.elapsed() < LIMIT, "content is not served");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                anyhow::Ok(process.began.elapsed())
            }
            .await?;
            let was_ready = process.wait_ready()?;
            if round > 0 {
                // the first round writes the status that the others find
                served.push(answered.as_secs_f64() * 1e3);
                ready.push(was_ready.max(answered).as_secs_f64() * 1e3);
            }
            process.stop()?;
        }
        let times = |all: &[f64]| format!("{:.0} ms", median(all.iter().copied()));
        if size == 0 {
            let met = median(ready.iter().copied()) < 50.0;
            table.row("start without content: ready", "< 50 ms", &times(&ready), Some(met));
        } else {
            let met = median(ready.iter().copied()) < 200.0;
            let what = format!("restart with {} MB on disk: ready and serving", size / 1_000_000);
            let measured = format!("{}; first answer {}", times(&ready), times(&served));
            table.row(&what, "< 200 ms", &measured, Some(met));
        }
    }
    Ok(())
}

/// A pull by the real process, then polls that find nothing new.
pub(crate) async fn measure_polls(plan: &Plan, table: &mut Table) -> Result<()> {
    let catalog = generated(130_000_000, Format::Json)?;
    let registry = Registry::start(&catalog.layer, &catalog.digest.to_string()).await?;
    let dir = tempfile::tempdir_in(crate::catalog::folder())?;
    let api = Api::start().await?;
    let mut process = Catalogd::start(&api, dir.path())?;
    process.wait_ready()?;
    let (idle, _) = memory(process.pid())?;
    let (before, written_before) = (cpu(process.pid())?, written(process.pid())?);
    api.put("cat", &format!("{}/cat:1", registry.address));
    let is_serving = || {
        let object = api.catalog("cat");
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Serving" && one["status"] == "True")
    };
    let began = Instant::now();
    while !is_serving() {
        ensure!(began.elapsed() < LIMIT, "not served: {}", api.catalog("cat"));
        // the copies cost processor time from here on
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let serving = cpu(process.pid())? - before;
    let copies = dir.path().join("cache/content").join(
        text(&api.catalog("cat"), "/status/resolvedSource/image/ref")?.rsplit('@').next().unwrap_or_default(),
    );
    olm_kit::eventually("the copies are made", LIMIT, || async {
        ensure!(copies.join("copies").exists(), "no copies");
        Ok(())
    })
    .await?;
    let copying = cpu(process.pid())? - before - serving;
    let bytes = written(process.pid())? - written_before;
    let (after, peak) = memory(process.pid())?;
    let above = peak - idle;
    let size = catalog.bytes as f64 / 1e6;
    table.row(
        &format!("process: pull over TLS, ingest, gzip copy of {size:.0} MB JSON"),
        "peak RSS ≤ 20 MiB above idle",
        &format!("{} MiB above {} MiB; {} MiB afterwards", mib(above), mib(idle), mib(after)),
        Some(above <= 20 << 20),
    );
    for (what, used, goal) in [
        ("the same, until Serving", serving, SERVING_GOAL),
        ("the same, from Serving to the copy", copying, COPY_GOAL),
    ] {
        let used = used.as_secs_f64();
        table.row(what, &format!("≤ {goal} CPU s"), &format!("{used:.2} CPU s"), Some(used <= goal));
    }
    table.row(
        "the same, written in all",
        &format!("≤ {:.0} MB", WRITTEN_GOAL * size),
        &format!("{:.1} MB", bytes as f64 / 1e6),
        Some(bytes as f64 / 1e6 <= WRITTEN_GOAL * size),
    );
    registry.take_log();

    let polls = if plan.full { 100 } else { 30 };
    let mut log = Vec::new();
    let before = cpu(process.pid())?;
    for poll in 0..polls {
        api.change("cat", |object| {
            object["metadata"]["annotations"] =
                json!({"olm.operatorframework.io/requested-at": format!("{poll}")});
        });
        let asked = log.len();
        olm_kit::eventually("the registry is asked", LIMIT, || {
            log.extend(registry.take_log());
            let more = log.len() > asked;
            async move {
                ensure!(more, "not asked");
                Ok(())
            }
        })
        .await?;
    }
    let used = (cpu(process.pid())? - before).as_secs_f64() * 1e3 / f64::from(polls);
    log.extend(registry.take_log());
    println!("figure: {:.4} requests of a poll", log.len() as f64 / f64::from(polls));
    let only_manifests = log.iter().all(|line| line == "HEAD /v2/cat/manifests/1");
    let measured = format!(
        "{used:.1} CPU ms, {} requests for {polls} polls, all `HEAD` of the manifest: {only_manifests}",
        log.len()
    );
    table.row(
        "poll with an unchanged digest",
        "one manifest request, ≤ 10 CPU ms",
        &measured,
        Some(used <= 10.0 && only_manifests && log.len() == usize::try_from(polls)?),
    );
    let (steady, _) = memory(process.pid())?;
    table.row(
        &format!("RSS of the process after that ({size:.0} MB JSON served)"),
        "≤ 20 MiB",
        &format!("{} MiB", mib(steady)),
        Some(steady <= 20 << 20),
    );
    process.stop()
}
