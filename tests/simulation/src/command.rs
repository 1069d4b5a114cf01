//! The program `simulate`: many seeds, each in a process of its own, and the shortest schedule of those that fail.
//!
//! A process for each seed: only the first runtime of a process repeats exactly (`olm_determinism`), and a background task that
//! panics ends its process. It is the copy of a process that has read what all seeds have in common ([`crate::worker`]).

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::schedule::{Step, schedule};
use crate::worker::{Worker, cpu_of_worker, serve};
use crate::{classic, harness, scenario};

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// operator-controller with extensions
    V1,
    /// classic-controller with Subscriptions
    Classic,
}

impl Scenario {
    /// The word on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::Classic => "classic",
        }
    }

    fn prepare(self) -> Result<Prepared> {
        Ok(match self {
            Self::V1 => Prepared::V1(harness::prepare()?),
            Self::Classic => Prepared::Classic(classic::harness::prepare()?),
        })
    }

    /// The steps of a schedule, as text.
    fn steps(self, seed: u64) -> Vec<String> {
        fn texts<A: std::fmt::Debug>(steps: Vec<Step<A>>) -> Vec<String> {
            let text = |Step { at, action }| format!("{:>9.3} s  {action:?}", at.as_secs_f64());
            steps.into_iter().map(text).collect()
        }
        match self {
            Self::V1 => texts(schedule(seed)),
            Self::Classic => texts(classic::schedule::schedule(seed)),
        }
    }
}

/// What all seeds of a scenario have in common.
enum Prepared {
    V1(harness::Prepared),
    Classic(classic::harness::Prepared),
}

impl Prepared {
    fn run(self, seed: u64, without: &BTreeSet<usize>) -> Result<Outcome> {
        match self {
            Self::V1(prepared) => scenario::run(prepared, seed, without),
            Self::Classic(prepared) => classic::scenario::run(prepared, seed, without),
        }
    }
}

/// Runs the controllers on a simulated apiserver, with schedules that are made from seeds.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which controllers run
    #[arg(long, value_enum, default_value_t = Scenario::V1)]
    scenario: Scenario,
    /// How many seeds to run
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many processes run at the same time; one for each core if it is not given
    #[arg(long)]
    jobs: Option<usize>,
    /// End after so many seeds that fail
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// End after so many CPU seconds
    #[arg(long)]
    cpu_seconds: Option<u64>,
    /// Run this seed alone, in this process
    #[arg(long)]
    seed: Option<u64>,
    /// Leave out these steps of the schedule
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
    /// Log what the controllers do to standard error; RUST_LOG chooses what
    #[arg(long)]
    trace: bool,
    /// Run the seeds that standard input names, each in a copy of this process
    #[arg(long, hide = true)]
    serve: bool,
}

/// Bytes of the stack of a simulation: futures of a build without optimization are large.
const STACK: usize = 64 << 20;

/// Panics of this process.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Does what the command line asks for.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let prepared = || arguments.scenario.prepare();
    let done = match arguments.seed {
        Some(seed) => prepared().and_then(|prepared| {
            run_seed(prepared, seed, arguments.without.iter().copied().collect(), arguments.trace)
        }),
        None if arguments.serve => {
            prepared().and_then(|prepared| serve(|seed, without| run_seed(prepared, seed, without, false)))
        }
        None => many(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Runs one seed; prints its outcome as JSON.
fn run_seed(prepared: Prepared, seed: u64, without: BTreeSet<usize>, trace: bool) -> Result<bool> {
    if trace {
        let filter = tracing_subscriber::EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("debug,tower=info,kube=info"));
        let log =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
        log.init();
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.lock().push(panic.to_string());
        usual(panic);
    }));
    // a thread whose hashers have no seed yet
    let thread = std::thread::Builder::new().stack_size(STACK);
    let (sender, outcome) = mpsc::channel();
    thread.spawn(move || {
        let _ = sender.send(prepared.run(seed, &without));
        // the process ends soon: to free what the allocator holds for the thread takes a hundredth of the time
        loop {
            std::thread::park();
        }
    })?;
    let mut outcome = outcome.recv().map_err(|_| anyhow::anyhow!("the simulation panicked"))??;
    if let Some(panic) = PANICS.lock().first() {
        outcome.violation.get_or_insert_with(|| format!("panic: {panic}"));
    }
    let Outcome { violation, digest, elapsed, writes, requests } = &outcome;
    let seconds = elapsed.as_secs_f64();
    let printed = json!({"violation": violation, "digest": format!("{digest:016x}"), "seconds": seconds, "writes": writes,
        "requests": requests});
    print(&printed.to_string());
    Ok(violation.is_none())
}

/// Totals over all seeds.
#[derive(Default)]
struct Totals {
    seeds: u64,
    seconds: f64,
    writes: u64,
    requests: u64,
    failed: Vec<(u64, String)>,
}

fn many(arguments: &Arguments) -> Result<bool> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(cores).max(1);
    let (next, failures) = (AtomicU64::new(arguments.first), AtomicUsize::new(0));
    let end = arguments.first.saturating_add(arguments.seeds);
    let totals = Mutex::new(Totals::default());
    let begun = Instant::now();
    let mut workers: Vec<Worker> =
        (0..jobs).map(|_| Worker::start(arguments.scenario)).collect::<Result<_>>()?;
    let processes: Vec<u32> = workers.iter().map(Worker::id).collect();
    let cpu = || processes.iter().copied().map(cpu_of_worker).sum::<Duration>();
    let work = |worker: &mut Worker| -> Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_over = arguments.cpu_seconds.is_some_and(|most| cpu().as_secs() >= most);
            if seed >= end || is_over || failures.load(Ordering::Relaxed) >= arguments.failures {
                return Ok(());
            }
            let outcome = worker.run(seed, &BTreeSet::new())?;
            let mut totals = totals.lock();
            totals.seeds += 1;
            totals.seconds += outcome["seconds"].as_f64().unwrap_or_default();
            totals.writes += outcome["writes"].as_u64().unwrap_or_default();
            totals.requests += outcome["requests"].as_u64().unwrap_or_default();
            if let Some(violation) = outcome["violation"].as_str() {
                failures.fetch_add(1, Ordering::Relaxed);
                print(&format!("seed {seed}: {violation}"));
                totals.failed.push((seed, violation.to_owned()));
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = workers.iter_mut().map(|worker| scope.spawn(|| work(worker)));
        threads.collect::<Vec<_>>().into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a worker panicked")).and_then(|done| done)
        })
    })?;
    let (elapsed, cpu) = (begun.elapsed(), cpu());
    let totals = totals.into_inner();
    for (seed, _) in &totals.failed {
        shortest(arguments.scenario, &mut workers[0], *seed)?;
    }
    let per_minute =
        f64::from(u32::try_from(totals.seeds).unwrap_or(u32::MAX)) * 60.0 / cpu.as_secs_f64().max(0.01);
    print(&format!(
        "{} schedules in {:.1} s and {:.1} CPU s ({per_minute:.0} a minute and core): {:.1} simulated hours, {} requests, {} writes, \
         {} failed",
        totals.seeds,
        elapsed.as_secs_f64(),
        cpu.as_secs_f64(),
        totals.seconds / 3_600.0,
        totals.requests,
        totals.writes,
        totals.failed.len()
    ));
    Ok(totals.failed.is_empty())
}

/// Leaves out steps one at a time as long as the seed still fails, and prints what remains.
fn shortest(scenario: Scenario, worker: &mut Worker, seed: u64) -> Result<()> {
    let steps = scenario.steps(seed);
    let mut without = BTreeSet::new();
    let mut violation = worker.run(seed, &without)?["violation"].clone();
    loop {
        let before = without.len();
        for index in (0..steps.len()).rev() {
            if without.contains(&index) {
                continue;
            }
            without.insert(index);
            match &worker.run(seed, &without)?["violation"] {
                Value::Null => _ = without.remove(&index),
                still => violation = still.clone(),
            }
        }
        if without.len() == before {
            break;
        }
    }
    let omitted: Vec<String> = without.iter().map(usize::to_string).collect();
    let violation = violation.as_str().unwrap_or_default();
    print(&format!("seed {seed}, the shortest schedule that fails: {violation}"));
    for (_, step) in steps.iter().enumerate().filter(|(index, _)| !without.contains(index)) {
        print(&format!("  {step}"));
    }
    let omitted =
        if omitted.is_empty() { String::new() } else { format!(" --without {}", omitted.join(",")) };
    print(&format!("  repeat it: simulate --scenario {} --seed {seed}{omitted} --trace", scenario.name()));
    Ok(())
}
