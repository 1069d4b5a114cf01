//! From a layer file to stored content, each time in a process of its own, beside one plain parse of the same bytes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use catalogd::ingest::Ingest;
use catalogd::store::{Content, Store};
use olm_core::Digest;
use olm_fbc::testing::Format;
use olm_oci::Limits;
use serde_json::{Value, json};

use crate::catalog::{Catalog, generated, shared};
use crate::measure::{again, median, memory, own_cpu, written};
use crate::table::{Table, mib};
use crate::{Plan, normal};

const MB: u64 = 1_000_000;

/// The aims: format, bytes, CPU seconds of the ingest and of the gzip copy after it.
const GOALS: [(Format, u64, f64, Option<f64>); 3] = [
    (Format::Json, 130 * MB, 0.45, Some(1.2)),
    (Format::Json, 522 * MB, 1.8, None),
    (Format::Yaml, 12_600_000, 0.25, None),
];
/// Memory above idle and the largest object.
const MEMORY_GOAL: u64 = 20 << 20;
/// Bytes of the gzip copy, to those that `gzip -6` makes.
const DENSITY_GOAL: f64 = 1.05;
/// Bytes that are written for a byte of the catalog: 170 MB for 130 MB.
pub(crate) const WRITTEN_GOAL: f64 = 170.0 / 130.0;

/// Everything about ingest.
pub(crate) fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    identical(table)?;
    let json: &[u64] = if plan.full { &[1, 10, 100, 130, 300, 522] } else { &[1, 10, 130] };
    let mut sizes: Vec<(Format, u64)> = json.iter().map(|size| (Format::Json, size * MB)).collect();
    sizes.push((Format::Yaml, 12_600_000));
    #[rustfmt::skip]
    let head = [
        "catalog", "layer", "to one parse", "CPU s", "MB/s", "plain parse, CPU s", "gzip copy, CPU s",
        "its bytes to those of `gzip -6`", "written, MB", "peak above idle, MiB", "largest object, MiB",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut cases = Vec::new();
    if let Some((catalog, json, yaml)) = shared()? {
        cases.push((
            "shared sample, YAML and JSON",
            catalog,
            None,
            vec![("parse-json", json), ("parse-yaml", yaml)],
        ));
    } else {
        eprintln!("SKIPPED the shared sample: neither OLM_SHARED nor ../shared is there");
    }
    for (format, bytes) in sizes {
        let catalog = generated(bytes, format)?;
        let (name, parser) =
            if format == Format::Json { ("JSON", "parse-json") } else { ("YAML", "parse-yaml") };
        let source = catalog.source.clone();
        cases.push((name, catalog, Some((format, bytes)), vec![(parser, source)]));
    }
    for (name, catalog, goal, parsers) in cases {
        let Figures { cpu, parse, gzip, density, written, above, largest } =
            rounds(plan, &catalog, &parsers)?;
        let name = format!("{:.1} MB {name}", catalog.bytes as f64 / MB as f64);
        let written_each = written / catalog.bytes as f64;
        if goal.is_some() {
            println!("figure: {:.4} ingest of {name}", cpu / parse);
        }
        if goal == Some((Format::Json, 130 * MB)) {
            println!("figure: {:.4} CPU of the gzip copy of {name}", gzip / parse);
            println!("figure: {density:.4} bytes of the gzip copy of {name}");
            println!("figure: {written_each:.4} bytes written for {name}");
        }
        rows.push(vec![
            name.clone(),
            format!("{} MiB", mib(std::fs::metadata(&catalog.layer)?.len())),
            format!("{:.2}×", cpu / parse),
            format!("{cpu:.3}"),
            format!("{:.0}", catalog.bytes as f64 / 1e6 / cpu),
            format!("{parse:.3}"),
            format!("{gzip:.3}"),
            format!("{density:.3}"),
            format!("{:.1}", written / MB as f64),
            mib(above),
            mib(largest),
        ]);
        let bound = format!("≤ {DENSITY_GOAL}× those of `gzip -6`");
        let what = format!("bytes of the gzip copy of {name}");
        table.row(&what, &bound, &format!("{density:.3}×"), Some(density <= DENSITY_GOAL));
        let goal = GOALS.iter().find(|aim| goal == Some((aim.0, aim.1)));
        if let Some((_, _, goal, copy)) = goal {
            let measured = format!("{:.2}× one plain parse, {cpu:.3} CPU s", cpu / parse);
            table.row(
                &format!("ingest of {name}"),
                &format!("≤ {goal} CPU s"),
                &measured,
                Some(cpu <= *goal),
            );
            if let Some(goal) = copy {
                let measured = format!("{:.2}× one plain parse, {gzip:.3} CPU s", gzip / parse);
                let what = format!("gzip copy of {name}");
                table.row(&what, &format!("≤ {goal} CPU s"), &measured, Some(gzip <= *goal));
                let goal = format!("≤ {:.0} MB", WRITTEN_GOAL * catalog.bytes as f64 / MB as f64);
                let measured = format!("{:.1} MB", written / MB as f64);
                let met = written_each <= WRITTEN_GOAL;
                table.row(&format!("written for {name} and its gzip copy"), &goal, &measured, Some(met));
            }
            let measured = format!("{} MiB; largest object {} MiB", mib(above), mib(largest));
            let met = above <= MEMORY_GOAL + largest;
            let what = format!("peak RSS above idle, ingest of {name}");
            table.row(&what, "≤ 20 MiB + largest object", &measured, Some(met));
        }
    }
    table.detail("Ingest (median of the rounds; memory: most of the rounds):", rows);
    Ok(())
}

struct Figures {
    cpu: f64,
    parse: f64,
    gzip: f64,
    /// bytes of the gzip copy, to those of `gzip -6`
    density: f64,
    /// bytes
    written: f64,
    above: u64,
    largest: u64,
}

fn rounds(plan: &Plan, catalog: &Catalog, parsers: &[(&str, PathBuf)]) -> Result<Figures> {
    let mut ingests = Vec::new();
    let mut parses = vec![Vec::new(); parsers.len()];
    let mut density = 0.0;
    for round in 0..plan.rounds() {
        let root = tempfile::tempdir_in(crate::catalog::folder())?;
        let digest = catalog.digest.to_string();
        ingests.push(again(&["ingest", text(&catalog.layer)?, &digest, text(root.path())?])?);
        if round == 0 {
            density = self::density(&root.path().join("content").join(&digest))?;
        }
        for ((parser, source), parses) in parsers.iter().zip(&mut parses) {
            parses.push(again(&[parser, text(source)?])?);
        }
    }
    let median_of = |all: &[Value], field: &str| median(all.iter().filter_map(|one| one[field].as_f64()));
    let most = |field: &str| ingests.iter().filter_map(|one| one[field].as_u64()).max().unwrap_or(0);
    Ok(Figures {
        cpu: median_of(&ingests, "cpu"),
        parse: parses.iter().map(|parses| median_of(parses, "cpu")).sum(),
        gzip: median_of(&ingests, "gzip"),
        density,
        written: most("written") as f64,
        above: most("above"),
        largest: most("largest"),
    })
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}

/// One measured job, in a process of its own.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let report = match arguments[..] {
        ["ingest", layer, digest, root] => ingest(Path::new(layer), &digest.parse()?, Path::new(root))?,
        ["parse-json", source] => {
            let source = std::fs::read(source)?;
            let began = own_cpu();
            let mut objects = 0;
            for value in serde_json::Deserializer::from_slice(&source).into_iter::<Value>() {
                std::hint::black_box(value?);
                objects += 1;
            }
            json!({"cpu": (own_cpu() - began).as_secs_f64(), "objects": objects})
        }
        ["parse-yaml", source] => {
            let source = std::fs::read(source)?;
            let began = own_cpu();
            let events = yaml_events(&source)?;
            json!({"cpu": (own_cpu() - began).as_secs_f64(), "events": events})
        }
        _ => bail!("unknown job {arguments:?}"),
    };
    println!("{report}");
    Ok(())
}

/// The events of all documents, with nothing made of them: the lower bound for any reader that uses this engine.
fn yaml_events(source: &[u8]) -> Result<u64> {
    let mut parser = libyaml_safer::Parser::new();
    let mut input = source;
    parser.set_input(&mut input);
    let mut events = 0;
    loop {
        let event = parser.parse()?;
        events += 1;
        if matches!(event.data, libyaml_safer::EventData::StreamEnd) {
            return Ok(events);
        }
    }
}

/// Layer to content as a pull does it, without the network.
fn ingest(layer: &Path, digest: &Digest, root: &Path) -> Result<Value> {
    let (store, _) = Store::open(root)?;
    let me = std::process::id();
    let (idle, _) = memory(me)?;
    let before = written(me)?;
    let (began, clock) = (own_cpu(), Instant::now());
    let (content, lease) = store_layer(&store, layer, digest)?;
    let (cpu, wall) = (own_cpu() - began, clock.elapsed());
    let (_, peak) = memory(me)?;
    let largest = content.index().objects().map(|object| object.length).max().unwrap_or(0);
    let began = own_cpu();
    store.compress(&content, &|| false)?;
    let gzip = own_cpu() - began;
    let written = written(me)? - before;
    let (_, peak_with_copies) = memory(me)?;
    content.verify()?;
    drop(lease);
    Ok(json!({
        "cpu": cpu.as_secs_f64(), "wall": wall.as_secs_f64(), "gzip": gzip.as_secs_f64(), "written": written,
        "above": peak.max(peak_with_copies) - idle, "idle": idle, "largest": largest,
    }))
}

/// Stores a layer file under its digest.
pub(crate) fn store_layer(
    store: &Store,
    layer: &Path,
    digest: &Digest,
) -> Result<(std::sync::Arc<Content>, catalogd::store::Lease)> {
    let file = File::open(layer)?;
    let size = file.metadata()?.len();
    let staging = store.stage(store.lease(digest))?;
    // as a pull does: on a thread of its own
    let ingest = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let visitor = Ingest::new(staging, Default::default())?;
            let layers = [(digest.clone(), size, olm_oci::bench::pieces(file))];
            let visited = olm_oci::bench::visit_layers(layers, &["configs"], &Limits::default(), visitor);
            visited.map_err(|error| match error {
                olm_oci::VisitError::Pull(error) => anyhow::Error::from(error),
                olm_oci::VisitError::Visitor(error) => error.into(),
            })
        });
        reader.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the reader panicked")))
    })?;
    Ok(ingest.commit()?)
}

/// Bytes of the gzip copy, to those that the program `gzip -6` makes.
fn density(content: &Path) -> Result<f64> {
    let plain = File::open(content.join("catalog.jsonl"))?;
    let mut gzip = Command::new("gzip").args(["-6", "-c"]).stdin(plain).stdout(Stdio::piped()).spawn()?;
    let mut packed = gzip.stdout.take().context("gzip has no output")?;
    let count = std::io::copy(&mut packed, &mut std::io::sink())?;
    anyhow::ensure!(gzip.wait()?.success(), "gzip failed");
    let copy = std::fs::metadata(content.join("copies/catalog.jsonl.gz"))?.len();
    Ok(copy as f64 / count as f64)
}

/// What is measured counts only if it is right: samples against a slow second opinion.
fn identical(table: &mut Table) -> Result<()> {
    let root = tempfile::tempdir()?;
    let (store, _) = Store::open(root.path())?;
    let json = generated(10 * MB, Format::Json)?;
    let want = normal::lines(&std::fs::read(&json.source)?)?;
    let stored = |catalog: &Catalog| -> Result<Vec<u8>> {
        let (content, _lease) = store_layer(&store, &catalog.layer, &catalog.digest)?;
        Ok(std::fs::read(content.dir().join("catalog.jsonl"))?)
    };
    ensure!(stored(&json)? == want, "catalog.jsonl is not the normal form of its source");
    // the same seed gives the same objects in both formats, until the smaller catalog ends
    let yaml = stored(&generated(2 * MB, Format::Yaml)?)?;
    ensure!(yaml.len() as u64 > MB && want.starts_with(&yaml), "YAML and JSON do not give the same lines");
    if let Some((catalog, json, _)) = shared()? {
        let got = stored(&catalog)?;
        let got: std::collections::HashSet<&[u8]> = got.split(|&byte| byte == b'\n').collect();
        let want = normal::lines(&std::fs::read(json)?)?;
        let all = want.split(|&byte| byte == b'\n').all(|line| got.contains(line));
        ensure!(all, "a JSON object of the shared sample is not stored in its normal form");
    }
    table.remark(format!(
        "`catalog.jsonl` is byte-identical to the normal form by a slow second opinion: {:.1} MB of JSON, {:.1} MB of YAML.",
        want.len() as f64 / 1e6,
        yaml.len() as f64 / 1e6
    ));
    Ok(())
}
