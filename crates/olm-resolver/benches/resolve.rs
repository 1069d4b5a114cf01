//! Costs of resolution: building a package's graph, resolving from a warm one, and the memory that graphs take.
//!
//! Times are processor time of this thread (Linux), the median of many rounds, so that a busy machine does not blur them;
//! each is also given as a ratio to one `serde_json` parse of the same package's bytes in the same run. Packages: one that
//! is large in every way (160 bundles, twelve channels, long skips, skipRanges), one of 1,000 bundles, and the two largest
//! of the published sample if it is there (`OLM_SHARED`). The answers are Markdown, for docs/internals/benchmarks.md.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot continue panics, and it prints"
)]
#![expect(clippy::disallowed_methods, reason = "where the sample data is")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use olm_fbc::{IngestLimits, PackageContents, load_dir};
use olm_resolver::{
    CatalogSource, Environment, Installed, MajorUpdates, PackageGraph, PathQuery, Policy, ReleaseField,
    Request, RuleSet, Target, parse_range, path, resolve,
};
use serde_json::{Value, json};

/// Rounds of each measurement, and the least time of one.
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(20);
/// Bytes of graphs that are held at the same time to see what they really take.
const HELD: usize = 100_000_000;

/// Argument of the process that measures memory.
const MEMORY: &str = "--memory";

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Median time of one call.
fn measure<T>(mut work: impl FnMut() -> T) -> Duration {
    let mut calls = 1_u32;
    loop {
        let start = processor_time();
        (0..calls).for_each(|_| drop(black_box(work())));
        if processor_time() - start >= ROUND || calls > 1 << 24 {
            break;
        }
        calls *= 2;
    }
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = processor_time();
            (0..calls).for_each(|_| drop(black_box(work())));
            (processor_time() - start) / calls
        })
        .collect();
    rounds.sort();
    rounds[ROUNDS / 2]
}

/// Resident memory of this process in bytes (Linux).
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

struct Sample {
    title: String,
    /// whether `make bench` looks at its figures
    checked: bool,
    /// The package as a catalog serves it, one object a line.
    lines: Vec<Vec<u8>>,
    name: String,
}

fn version(at: usize) -> String {
    format!("{}.{}.{}", 1 + at / 40, at % 40 / 4, at % 4)
}

fn name(at: usize) -> String {
    format!("example-operator.v{}", version(at))
}

/// A package of this shape: every channel but the first leaves some bundles out, every eighth entry skips all before.
fn made(bundles: usize, channels: usize) -> Sample {
    let entry = |at: usize| {
        let mut entry = json!({"name": name(at), "skipRange": format!(">=1.0.0 <{}", version(at))});
        if at > 0 {
            entry["replaces"] = json!(name(at - 1));
        }
        if at % 8 == 7 {
            entry["skips"] = (0..at.saturating_sub(1)).rev().take(160).map(name).collect();
        }
        entry
    };
    let channel = |number: usize| {
        let entries: Vec<Value> =
            (0..bundles).filter(|at| number == 0 || at % channels >= number).map(entry).collect();
        json!({"schema": "olm.channel", "package": "example-operator", "name": format!("stable-{number}"), "entries": entries})
    };
    let bundle = |at: usize| {
        json!({
            "schema": "olm.bundle", "package": "example-operator", "name": name(at),
            "image": format!("quay.io/example/operator-bundle@sha256:{}", "0".repeat(64)),
            "properties": [
                {"type": "olm.package", "value": {"packageName": "example-operator", "version": version(at)}},
                {"type": "olm.gvk", "value": {"group": "example.com", "version": "v1", "kind": "Example"}},
                {"type": "olm.csv.metadata", "value": {"displayName": "Example", "description": "x".repeat(8_000)}},
            ],
        })
    };
    let deprecated: Vec<Value> = (0..bundles / 8)
        .map(|at| json!({"reference": {"schema": "olm.bundle", "name": name(at)}, "message": "out of support"}))
        .collect();
    let mut lines = vec![
        json!({"schema": "olm.package", "name": "example-operator", "defaultChannel": "stable-0"}),
        json!({"schema": "olm.deprecations", "package": "example-operator", "entries": deprecated}),
    ];
    lines.extend((0..channels).map(channel));
    lines.extend((0..bundles).map(bundle));
    Sample {
        title: format!("made: {bundles} bundles, {channels} channels"),
        checked: bundles == 160,
        lines: lines.iter().map(|line| line.to_string().into_bytes()).collect(),
        name: "example-operator".to_owned(),
    }
}

/// Published packages.
fn published(loudly: bool) -> Vec<Sample> {
    let shared = std::env::var_os("OLM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let folder = shared.join("data/catalog");
    if !folder.is_dir() {
        if loudly {
            println!("SKIPPED: published packages: no sample data (set OLM_SHARED)\n");
        }
        return Vec::new();
    }
    let catalog = load_dir(&folder, IngestLimits::default()).unwrap();
    ["gatekeeper-operator-product", "opendatahub-operator"]
        .into_iter()
        .map(|package| {
            let lines = catalog.package_lines(package).map(<[u8]>::to_vec).collect();
            Sample { title: package.to_owned(), checked: false, lines, name: package.to_owned() }
        })
        .collect()
}

impl Sample {
    fn graph(&self) -> PackageGraph {
        let (contents, findings) = PackageContents::from_lines(&self.name, &self.lines).unwrap();
        PackageGraph::new(contents, findings, ReleaseField::Counts)
    }

    fn parse(&self) -> Vec<Value> {
        self.lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

fn format_time(time: Duration) -> String {
    match time.as_nanos() {
        nanos @ 0..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        nanos => format!("{:.2} ms", nanos as f64 / 1e6),
    }
}

type Figures = Vec<(String, f64)>;

/// A row of the table, and its figure.
fn row(figures: &mut Figures, what: &str, time: Duration, parse: Duration) {
    let ratio = time.as_secs_f64() / parse.as_secs_f64();
    println!("| {what} | {} | {ratio:.4} |", format_time(time));
    figures.push((what.to_owned(), ratio));
}

fn figures(sample: &Sample) {
    let bytes: usize = sample.lines.iter().map(Vec::len).sum();
    let graph = Arc::new(sample.graph());
    println!("### {} ({:.1} MB of JSON)\n", sample.title, bytes as f64 / 1e6);
    println!("| | processor time | in parses |\n|---|---|---|");
    let parse = measure(|| sample.parse());
    println!("| one `serde_json` parse into values | {} | 1 |", format_time(parse));
    let mut figures = Figures::new();
    let decode = measure(|| PackageContents::from_lines(&sample.name, &sample.lines));
    row(&mut figures, "decode the package", decode, parse);
    let (contents, findings) = PackageContents::from_lines(&sample.name, &sample.lines).unwrap();
    // a graph is built from contents that it takes, so each call here needs a copy of them, which is not counted
    let copy = || (contents.clone(), findings.clone());
    let copies = measure(copy);
    let build = measure(|| {
        let (contents, findings) = copy();
        PackageGraph::new(contents, findings, ReleaseField::Counts)
    });
    row(&mut figures, "build the graph", build.saturating_sub(copies), parse);

    let source = |catalog: &str, priority| CatalogSource {
        name: catalog.parse().unwrap(),
        priority,
        content: Ok(Arc::clone(&graph)),
    };
    let one = [source("a", 0)];
    let four = [source("a", 0), source("b", 0), source("c", 1), source("d", 0)];
    let default = graph.default_channel().unwrap().to_owned();
    let mut versions: Vec<_> = graph.bundles().filter_map(|bundle| graph.version(bundle).ok()).collect();
    versions.sort();
    let (middle, newest) =
        (versions[versions.len() / 2].to_string(), versions[versions.len() - 1].to_string());
    let request = |range: &str, channels: &[&str], installed: Option<&str>| Request {
        package: sample.name.parse().unwrap(),
        channels: channels.iter().map(|name| name.parse().unwrap()).collect(),
        range: parse_range(range).unwrap(),
        policy: Policy::CatalogProvided,
        major_updates: MajorUpdates::default(),
        environment: Environment::default(),
        installed: installed.map(|text| Installed::find(&graph, text).unwrap()),
    };
    let mut slowest = Duration::ZERO;
    let mut ask = |what: &str, asked: &Request, sources: &[CatalogSource], found: bool| {
        assert_eq!(resolve(asked, sources).result.is_ok(), found, "{what}");
        let time = measure(|| resolve(asked, sources));
        slowest = slowest.max(time);
        row(&mut figures, what, time, parse);
    };
    ask("resolve: first install, channel and range", &request(">=1.0.0", &[&default], None), &one, true);
    ask("resolve: from the middle, all channels", &request("", &[], Some(&middle)), &one, true);
    // the same without the question which major version is held
    let automatic = Request { major_updates: MajorUpdates::Automatic, ..request("", &[], Some(&middle)) };
    ask("resolve: from the middle, all majors", &automatic, &one, true);
    ask("resolve: nothing new", &request("", &[], Some(&newest)), &one, true);
    ask("resolve: nothing new, four catalogs", &request("", &[], Some(&newest)), &four, true);
    ask("resolve: rejected bundle, with its help", &request(">9000.0.0", &[], Some(&middle)), &one, false);
    let query = PathQuery {
        graph: Arc::clone(&graph),
        from: Installed::find(&graph, &middle),
        to: Target::Head,
        channels: vec![],
        range: None,
        policy: Policy::CatalogProvided,
        major_updates: MajorUpdates::Automatic,
        environment: Environment::default(),
    };
    row(&mut figures, "`paths` to the head, v1", measure(|| path(&query, RuleSet::V1)), parse);

    let each = resident_each(sample);
    figures.push(("one graph, resident".to_owned(), each as f64 / bytes as f64));
    println!(
        "\nResolutions a second on one core, the slowest of these questions: {:.0}. One graph: {:.2} MB by its own count, \
         {:.2} MB resident ({:.3} of the package's bytes).\n",
        1.0 / slowest.as_secs_f64(),
        graph.memory() as f64 / 1e6,
        each as f64 / 1e6,
        each as f64 / bytes as f64
    );
    if sample.checked {
        figures.iter().for_each(|(what, ratio)| println!("figure: {ratio:.6} {what}"));
    }
}

/// Resident bytes of one graph, found by a process of its own: what was freed before would be used again.
fn resident_each(sample: &Sample) -> usize {
    let output =
        Command::new(std::env::current_exe().unwrap()).args([MEMORY, &sample.title]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// That process.
fn hold(sample: &Sample) {
    let one = sample.graph();
    let count = HELD / one.memory();
    let before = resident();
    let held: Vec<PackageGraph> = (0..count).map(|_| sample.graph()).collect();
    println!("{}", resident().saturating_sub(before) / count);
    drop(black_box(held));
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let alone = arguments.iter().position(|argument| argument == MEMORY).map(|at| &arguments[at + 1]);
    let samples = [made(160, 12), made(1_000, 20)].into_iter().chain(published(alone.is_none()));
    for sample in samples {
        match alone {
            None => figures(&sample),
            Some(title) if *title == sample.title => hold(&sample),
            Some(_) => {}
        }
    }
}
