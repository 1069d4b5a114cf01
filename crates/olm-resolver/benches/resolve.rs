//! Speed of resolution from a warm graph, and of building one.
//!
//! The package is a large real one in shape: 160 bundles in one chain with skipRanges, twelve channels, some long
//! `skips` lists. The aim is 10,000 resolutions a second on one core; that is 100 µs each. Measured is the time that
//! the thread had a processor (Linux), so that a busy machine does not blur the figures.
#![expect(clippy::unwrap_used, reason = "a bench that cannot go on shall say so")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, criterion_group, criterion_main};
use olm_resolver::{
    BundleDraft, CatalogSource, ChannelDraft, DeprecatedScope, EntryDraft, GraphDraft, Installed,
    PackageGraph, Policy, ReleaseField, Request, parse_range, resolve,
};

/// Processor time of this thread.
struct ProcessorTime;

impl ProcessorTime {
    fn now() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
    }
}

impl Measurement for ProcessorTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        Self::now()
    }

    fn end(&self, start: Duration) -> Duration {
        Self::now() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn version(at: usize) -> String {
    format!("{}.{}.{}", 1 + at / 40, at % 40 / 4, at % 4)
}

fn name(at: usize) -> String {
    format!("example-operator.v{}", version(at))
}

fn draft(bundles: usize) -> GraphDraft {
    let channel = |number: usize| ChannelDraft {
        name: format!("stable-{number}"),
        entries: (0..bundles)
            .filter(|at| number == 0 || at % 12 >= number)
            .map(|at| EntryDraft {
                name: name(at),
                replaces: if at == 0 { String::new() } else { name(at - 1) },
                skips: if at % 8 == 7 { (0..at.saturating_sub(1)).map(name).collect() } else { Vec::new() },
                skip_range: format!(">=1.0.0 <{}", version(at)),
            })
            .collect(),
    };
    GraphDraft {
        package: "example-operator".into(),
        default_channel: "stable-0".into(),
        channels: (0..12).map(channel).collect(),
        bundles: (0..bundles)
            .map(|at| BundleDraft {
                name: name(at),
                image: format!("quay.io/example/operator-bundle@sha256:{}", "0".repeat(64)),
                version: Ok((version(at), None)),
                properties: vec![],
            })
            .collect(),
        deprecations: (0..bundles / 8)
            .map(|at| (DeprecatedScope::Bundle(name(at).into()), "out of support".to_owned()))
            .collect(),
        findings: vec![],
    }
}

fn source(catalog: &str, graph: &Arc<PackageGraph>) -> CatalogSource {
    CatalogSource { name: catalog.parse().unwrap(), priority: 0, content: Ok(graph.clone()) }
}

fn request(range: &str, channels: &[&str], installed: Option<usize>) -> Request {
    Request {
        package: "example-operator".parse().unwrap(),
        channels: channels.iter().map(|name| name.parse().unwrap()).collect(),
        range: parse_range(range).unwrap(),
        policy: Policy::CatalogProvided,
        installed: installed.map(|at| Installed::parse(&name(at), &version(at), None).unwrap()),
    }
}

fn benches(criterion: &mut Criterion<ProcessorTime>) {
    let graph = Arc::new(draft(160).build(ReleaseField::Counts));
    let four: Vec<CatalogSource> = ["a", "b", "c", "d"]
        .into_iter()
        .map(|name| CatalogSource { priority: if name == "c" { 1 } else { 0 }, ..source(name, &graph) })
        .collect();
    let one = &four[2..3];

    let install = request(">=1.0.0 <4.0.0", &["stable-0"], None);
    assert!(resolve(&install, one).result.is_ok());
    criterion.bench_function("first install, range and channel", |bench| {
        bench.iter(|| resolve(black_box(&install), one))
    });

    let upgrade = request("", &[], Some(80));
    assert!(resolve(&upgrade, one).result.is_ok());
    criterion
        .bench_function("upgrade, all channels", |bench| bench.iter(|| resolve(black_box(&upgrade), one)));

    let settled = request("^4", &["stable-0", "stable-3"], Some(159));
    assert!(resolve(&settled, one).result.is_ok());
    criterion.bench_function("nothing new, two channels", |bench| {
        bench.iter(|| resolve(black_box(&settled), one))
    });
    criterion.bench_function("nothing new, four catalogs", |bench| {
        bench.iter(|| resolve(black_box(&settled), &four))
    });

    let refused = request(">9.0.0", &["stable-0"], Some(80));
    assert!(resolve(&refused, one).result.is_err());
    criterion
        .bench_function("refusal with its hint", |bench| bench.iter(|| resolve(black_box(&refused), one)));

    criterion.bench_function("build the graph", |bench| {
        bench.iter_batched(
            || draft(160),
            |draft| draft.build(ReleaseField::Counts),
            criterion::BatchSize::SmallInput,
        );
    });
}

criterion_group! {
    name = resolution;
    config = Criterion::default().with_measurement(ProcessorTime);
    targets = benches
}
criterion_main!(resolution);
