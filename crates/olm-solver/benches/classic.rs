//! The resolver beside that of OLM Classic, in one run; fails if a figure is above its bound. `make bench-classic` sets `OLM_TOOLS`.
//!
//! The reference has its catalogs read, as a running controller has, and its figure is processor time. Ours is elapsed time of one thread,
//! which is never less; the median of five, so that it counts little of what else runs on the machine.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and panics if it cannot continue"
)]
#![expect(clippy::disallowed_methods, reason = "a bench takes time")]

mod made;

use std::path::Path;
use std::time::{Duration, Instant};

use olm_solver::testing::oracle::{Agreement, Oracle, agreement};
use olm_solver::testing::{Case, agreement_key, generate, render_answer};
use olm_solver::{Limits, Namespace, SolveError, solve};
use serde_json::Value;

const SEED: u64 = 1;
/// How many times more processor time the reference takes.
const MIN_RATIO: f64 = 20.0;
const MAX_TIME: Duration = Duration::from_millis(20);
const MAX_MEMORY: u64 = 64 << 20;

/// The median time of some resolutions.
fn time(namespace: &Namespace) -> Duration {
    let one = || {
        let started = Instant::now();
        std::hint::black_box(solve(namespace, Limits::default()).is_ok());
        started.elapsed()
    };
    let mut times = [(); 5].map(|()| one());
    times.sort();
    times[times.len() / 2]
}

/// The least power of two that is enough for a limit.
fn enough(namespace: &Namespace, limits: impl Fn(u64) -> Limits) -> u64 {
    let is_enough =
        |limit: &u64| !matches!(solve(namespace, limits(*limit)), Err(SolveError::TooMuchWork { .. }));
    (0..).map(|power| 1 << power).find(is_enough).unwrap()
}

/// The most bytes that this process has had, if the system reports that.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

fn largest() {
    let namespace = made::largest();
    let took = time(&namespace);
    let solved = solve(&namespace, Limits::default()).unwrap();
    assert_eq!(solved.bundles.len(), made::BUNDLES_TO_INSTALL);
    let memory = peak_memory();
    let steps = enough(&namespace, |steps| Limits { steps, ..Limits::default() });
    println!(
        "classic: five Subscriptions over 24,000 bundles: {:.1} ms (at most {} ms), {} MiB (at most {} MiB), at most {steps} steps",
        took.as_secs_f64() * 1e3,
        MAX_TIME.as_millis(),
        memory.map_or_else(|| "unknown".to_owned(), |bytes| (bytes >> 20).to_string()),
        MAX_MEMORY >> 20,
    );
    assert!(took <= MAX_TIME, "{took:?}");
    assert!(memory.is_none_or(|bytes| bytes <= MAX_MEMORY), "{memory:?} bytes");
}

/// `examine`: whether a case whose answers differ is asked in more orders, and fails if they still do. Of a large case that takes
/// minutes; `make oracle-classic` has smaller ones of the same kinds.
fn compare(program: &Path, title: &str, examine: bool, cases: impl Iterator<Item = Value>) {
    let mut oracle = Oracle::start(program, &["-times"]).unwrap();
    let (mut count, mut entries, mut ours, mut theirs) = (0, Vec::new(), 0.0, 0.0);
    let (mut decisions, mut chance, mut gone_back, mut other) = (0, 0, 0, 0);
    for raw in cases {
        let text = raw.to_string();
        let case = Case::parse(&text).unwrap();
        let answer = oracle.ask(&text).unwrap();
        let own = render_answer(&case.id, &solve(&case.namespace, Limits::default()));
        if agreement_key(&own) != agreement_key(&answer) {
            // the times of different work do not compare
            if !examine {
                other += 1;
                continue;
            }
            let found = agreement(program, &raw, &own, &answer).unwrap();
            assert_ne!(found, Agreement::Different, "{raw}\n  ours: {own}\n  reference: {answer}");
            chance += usize::from(found == Agreement::Chance);
            gone_back += usize::from(found == Agreement::GoneBack);
            continue;
        }
        count += 1;
        decisions =
            decisions.max(enough(&case.namespace, |decisions| Limits { decisions, ..Limits::default() }));
        entries.push(raw.pointer("/catalogs").map_or(0, entries_of));
        ours += time(&case.namespace).as_secs_f64();
        theirs += answer["cpu"].as_f64().unwrap_or_default();
    }
    let ratio = theirs / ours;
    println!(
        "classic: {count} {title} cases, {} to {} entries: {:.3} ms each, the reference {:.2} ms, ratio {ratio:.0} (at least {MIN_RATIO}); \
         at most {decisions} decisions; left out: {chance} that chance decides in the reference, {gone_back} that differ as decided, {other} not examined",
        entries.iter().min().unwrap(),
        entries.iter().max().unwrap(),
        ours / f64::from(count) * 1e3,
        theirs / f64::from(count) * 1e3,
    );
    assert!(ratio >= MIN_RATIO, "{title}: {ratio}");
}

/// Entries of all channels.
fn entries_of(catalogs: &Value) -> usize {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(catalogs).into_iter().flat_map(|it| list(&it["packages"]));
    packages.flat_map(|it| list(&it["channels"])).map(|it| list(&it["entries"]).len()).sum()
}

fn main() {
    // first, so that nothing else has used memory
    largest();
    let tools = std::env::var_os("OLM_TOOLS")
        .expect("OLM_TOOLS is the folder of the tools; run `make bench-classic`");
    let program = Path::new(&tools).join("oracle-classic-resolver");
    let large = (0..).map(|number| generate::large_case(SEED, number));
    let large = large.filter(|it| (300..=700).contains(&entries_of(&it["catalogs"])));
    compare(&program, "large", false, large.take(6));
    let small = (0..).map(|number| generate::case(SEED, number));
    compare(&program, "small", true, small.filter(|it| it["profile"] != "large").take(400));
}
