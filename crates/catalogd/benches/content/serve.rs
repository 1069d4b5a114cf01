//! Serving: the real catalogd and a static file server, asked alternately for the same bytes over TLS.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use olm_fbc::testing::Format;
use tokio_rustls::TlsConnector;

use crate::Plan;
use crate::anchor::Anchor;
use crate::api::Api;
use crate::catalog::generated;
use crate::load::{self, Ask, Measured};
use crate::measure::{cpu, median, memory, percentile};
use crate::process::{Catalogd, preload};
use crate::table::{Table, mib};

/// Resident memory with 64 connections.
const MEMORY_GOAL: u64 = 48 << 20;
/// Resident memory of a process that serves and is not asked.
const STEADY_GOAL: u64 = 20 << 20;
const CONNECTIONS: [usize; 3] = [1, 8, 64];

/// The same thing asked of both.
struct Scenario {
    name: String,
    goal: f64,
    ours: Ask,
    theirs: Ask,
    connections: Vec<usize>,
}

pub(crate) async fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    let dir = tempfile::tempdir_in(crate::catalog::folder())?;
    let api = Api::start().await?;
    let (large, small) = (if plan.full { 130_000_000 } else { 10_000_000 }, 10_000_000);
    let (large, small) = (generated(large, Format::Json)?, generated(small, Format::Json)?);
    preload(&api, dir.path(), &[("large", &large), ("small", &small)])?;
    let mut ours = Catalogd::start(&api, dir.path())?;
    ours.wait_ready()?;
    let connector = load::connector()?;
    // the background check of the content reads all of it; it belongs to the start
    settle(ours.pid()).await?;
    let (steady, _) = memory(ours.pid())?;

    let files = dir.path().join("files");
    std::fs::create_dir(&files)?;
    let mut scenarios = scenarios(&ours, plan);
    let identity = olm_kit::Ca::shared()?.server(&olm_kit::unique("anchor"), &[])?;
    let mut made = Vec::new();
    for scenario in &mut scenarios {
        // what catalogd answers is what the other server gets as a file
        if scenario.ours.status == 200 {
            let answer = load::once(&connector, &scenario.ours).await?;
            let gzip = answer.header("content-encoding") == Some("gzip");
            let file = format!("{}{}", scenario.theirs.target, if gzip { ".gz" } else { "" });
            std::fs::write(files.join(file.trim_start_matches('/')), &answer.body)?;
            made.push((scenario.name.clone(), answer.body.len()));
        }
    }
    // the ratios that `make bench` checks are to the same server everywhere
    let anchor = Anchor::start(plan.full, &files, dir.path(), &identity)?;
    wait_listening(&anchor).await?;
    table.remark(format!(
        "Serving: {} is the anchor; TLS 1.3 with AES-256-GCM and HTTP/1.1 on both sides, connections kept, access log of catalogd on.",
        anchor.name
    ));
    for scenario in &mut scenarios {
        scenario.theirs.address = anchor.address;
        same(&connector, scenario).await.with_context(|| scenario.name.clone())?;
    }

    #[rustfmt::skip]
    let head = [
        "request", "bytes", "connections", "CPU to anchor", "CPU ms", "anchor, CPU ms", "requests/s",
        "anchor, requests/s", "p50 ms", "p99 ms", "anchor, p50 ms", "anchor, p99 ms",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for scenario in &scenarios {
        let mut worst: f64 = 0.0;
        let bytes = made.iter().find(|(name, _)| *name == scenario.name).map_or(0, |(_, bytes)| *bytes);
        for &connections in &scenario.connections {
            let (mut mine, mut other) = (Vec::new(), Vec::new());
            for _ in 0..plan.rounds() {
                mine.push(measure_round(plan, &connector, &scenario.ours, ours.pid(), connections).await?);
                other.push(
                    measure_round(plan, &connector, &scenario.theirs, anchor.pid(), connections).await?,
                );
            }
            let cost = |all: &[Cost]| median(all.iter().map(|cost| cost.cpu));
            let ratio = cost(&mine) / cost(&other);
            worst = worst.max(ratio);
            let mut row = vec![scenario.name.clone(), bytes.to_string(), connections.to_string()];
            row.push(format!("{ratio:.2}×"));
            row.extend([cost(&mine), cost(&other)].map(|cpu| format!("{:.3}", cpu * 1e3)));
            row.extend([&mine, &other].map(|all| format!("{:.0}", median(all.iter().map(|cost| cost.rate)))));
            for all in [&mine, &other] {
                row.extend([50, 99].map(|percent| {
                    format!(
                        "{:.2}",
                        1e3 * median(all.iter().map(|cost| percentile(cost.latencies.clone(), percent)))
                    )
                }));
            }
            eprintln!("  {}", row.join(" | "));
            rows.push(row);
        }
        println!("figure: {worst:.4} CPU of a request: {}", scenario.name);
        let measured = format!("{worst:.2}× (worst of {:?} connections)", scenario.connections);
        let goal = format!("≤ {:.1}× anchor", scenario.goal);
        table.row(
            &format!("CPU of a request: {}", scenario.name),
            &goal,
            &measured,
            Some(worst <= scenario.goal),
        );
    }
    table.detail("Serving (CPU of the server's process for one request, median of the rounds; latencies are the client's, on the same two cores):", rows);
    rss(table, &connector, &scenarios, &ours, steady).await?;
    ours.stop()
}

fn scenarios(ours: &Catalogd, plan: &Plan) -> Vec<Scenario> {
    let at = |catalog: &str, rest: &str| format!("/catalogs/{catalog}/api/v1/{rest}");
    let make = |name: &str, goal, target: String, file: &str, connections: &[usize]| Scenario {
        name: name.to_owned(),
        goal,
        ours: Ask::get(ours.content, &target),
        theirs: Ask::get(ours.content, file),
        connections: connections.to_vec(),
    };
    let with = |mut scenario: Scenario, name: &'static str, value: &str, status: u16| {
        for ask in [&mut scenario.ours, &mut scenario.theirs] {
            *ask = ask.clone().header(name, value);
            ask.status = status;
        }
        scenario
    };
    let later = "Fri, 01 Jan 2100 00:00:00 GMT";
    let package = at("small", "metas?package=operator-0001");
    let bundle = at("small", "metas?schema=olm.bundle&name=operator-0001.v1.2.0");
    let mut all = vec![
        make("`all`, identity", 1.0, at("small", "all"), "/all", &CONNECTIONS),
        with(
            make("`all`, gzip", 1.0, at("small", "all"), "/allz", &CONNECTIONS),
            "Accept-Encoding",
            "gzip",
            200,
        ),
        with(
            make("`all`, 304", 2.0, at("small", "all"), "/all", &CONNECTIONS),
            "If-Modified-Since",
            later,
            304,
        ),
        make("`metas`, one package", 1.3, package.clone(), "/package", &CONNECTIONS),
        make("`metas`, one bundle", 1.3, bundle.clone(), "/bundle", &CONNECTIONS),
        with(
            make("`metas`, one package, gzip", 1.3, package, "/packagez", &CONNECTIONS),
            "Accept-Encoding",
            "gzip",
            200,
        ),
        with(
            make("`metas`, one bundle, gzip", 1.3, bundle, "/bundlez", &CONNECTIONS),
            "Accept-Encoding",
            "gzip",
            200,
        ),
    ];
    if plan.full {
        all.push(make("`all` of 130 MB, identity", 1.0, at("large", "all"), "/large", &[1, 8]));
        let gzip = make("`all` of 130 MB, gzip", 1.0, at("large", "all"), "/largez", &[1, 8]);
        all.push(with(gzip, "Accept-Encoding", "gzip", 200));
    }
    all
}

/// Waits until the process has used no processor time for a while.
pub(crate) async fn settle(pid: u32) -> Result<()> {
    let mut before = cpu(pid)?;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = cpu(pid)?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
}

async fn wait_listening(anchor: &Anchor) -> Result<()> {
    olm_kit::eventually("the anchor listens", Duration::from_secs(20), || async {
        Ok(tokio::net::TcpStream::connect(anchor.address).await.map(drop)?)
    })
    .await
}

/// Both must send the same bytes.
async fn same(connector: &TlsConnector, scenario: &Scenario) -> Result<()> {
    let (ours, theirs) =
        (load::once(connector, &scenario.ours).await?, load::once(connector, &scenario.theirs).await?);
    ensure!(ours.body == theirs.body, "the servers send different bytes");
    ensure!(ours.header("content-encoding") == theirs.header("content-encoding"), "encodings differ");
    Ok(())
}

/// One round.
struct Cost {
    /// seconds of the server a request
    cpu: f64,
    /// requests a second
    rate: f64,
    latencies: Vec<f64>,
}

async fn measure_round(
    plan: &Plan,
    connector: &TlsConnector,
    ask: &Ask,
    server: u32,
    connections: usize,
) -> Result<Cost> {
    let length = Duration::from_millis(if plan.full { 1000 } else { 300 });
    let clients = load::warm(connector, ask, connections).await?;
    let before = cpu(server)?;
    let Measured { latencies, wall, .. } = load::drive(clients, ask, length).await?;
    let used = cpu(server)? - before;
    let count = latencies.len() as f64;
    Ok(Cost { cpu: used.as_secs_f64() / count, rate: count / wall.as_secs_f64(), latencies })
}

/// Memory with 64 connections that are all in the middle of a large answer, and after everything.
async fn rss(
    table: &mut Table,
    connector: &TlsConnector,
    scenarios: &[Scenario],
    ours: &Catalogd,
    steady: u64,
) -> Result<()> {
    let mut most = 0;
    for scenario in scenarios
        .iter()
        .filter(|scenario| scenario.ours.target.ends_with("/all") && scenario.ours.status == 200)
    {
        let clients = load::warm(connector, &scenario.ours, 64).await?;
        let driving = tokio::spawn({
            let ask = scenario.ours.clone();
            async move { load::drive(clients, &ask, Duration::from_secs(2)).await }
        });
        while !driving.is_finished() {
            most = most.max(memory(ours.pid())?.0);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        driving.await??;
    }
    let (after, peak) = memory(ours.pid())?;
    let text = |bytes| format!("{} MiB", mib(bytes));
    table.row(
        "RSS of a process that serves two catalogs, before requests",
        "≤ 20 MiB",
        &text(steady),
        Some(steady <= STEADY_GOAL),
    );
    table.row(
        "RSS with 64 connections",
        "≤ 48 MiB",
        &text(most.max(peak)),
        Some(most.max(peak) <= MEMORY_GOAL),
    );
    table.row("RSS after all requests", "", &text(after), None);
    Ok(())
}
