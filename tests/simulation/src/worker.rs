//! A process that runs seeds, each in a copy of itself: what all seeds have in common is read once.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use olm_determinism::{Fork, fork};
use serde_json::{Value, json};

use crate::command::{Scenario, print};

/// The worker, as the process that started it has it. It ends when this is dropped.
pub(crate) struct Worker {
    scenario: Scenario,
    process: Child,
    /// `None` when it is to end.
    seeds: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts a worker for a scenario.
    pub(crate) fn start(scenario: Scenario) -> Result<Self> {
        let mut command = simulate(scenario)?;
        command.arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().context("cannot start a simulation")?;
        let seeds = process.stdin.take();
        let answers = process.stdout.take().context("a simulation has no output")?;
        Ok(Self { scenario, process, seeds, answers: BufReader::new(answers).lines() })
    }

    /// Runs a seed without the steps at `without`: its outcome as JSON.
    pub(crate) fn run(&mut self, seed: u64, without: &BTreeSet<usize>) -> Result<Value> {
        let seeds = self.seeds.as_mut().context("the worker ends")?;
        writeln!(seeds, "{}", json!([seed, without])).context("a worker has ended")?;
        let mut outcome = Value::Null;
        loop {
            let line = self.answers.next().context("a worker has ended")??;
            let answer: Value = serde_json::from_str(&line).unwrap_or_default();
            match answer.get("ended") {
                None => outcome = answer,
                Some(_) if outcome.is_object() => return Ok(outcome),
                Some(status) => return alone(self.scenario, seed, without, status),
            }
        }
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.seeds = None;
        let _ = self.process.wait();
    }
}

/// The program of this process, in an environment in which it is fast.
fn simulate(scenario: Scenario) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--scenario", scenario.name()]);
    // one thread allocates, and the process ends soon: from one arena, which grows in large steps and never shrinks
    command.envs([
        ("MALLOC_ARENA_MAX", "1"),
        ("MALLOC_TOP_PAD_", "33554432"),
        ("MALLOC_TRIM_THRESHOLD_", "1073741824"),
        // what is freed is used again as it is, and pages come 512 at a time: a fifth less time
        ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=60000:glibc.malloc.hugetlb=1"),
    ]);
    Ok(command)
}

/// Repeats a seed whose process ended without an outcome, in a process of its own: for its log.
fn alone(scenario: Scenario, seed: u64, without: &BTreeSet<usize>, status: &Value) -> Result<Value> {
    let mut command = simulate(scenario)?;
    command.arg("--seed").arg(seed.to_string());
    if !without.is_empty() {
        let without: Vec<String> = without.iter().map(usize::to_string).collect();
        command.arg("--without").arg(without.join(","));
    }
    let output = command.stdin(Stdio::null()).output().context("cannot start a simulation")?;
    let log = String::from_utf8_lossy(&output.stderr);
    let text = format!("the process ended with {status}; repeated, with {}: {}", output.status, log.trim());
    Ok(json!({"violation": text, "seconds": 0.0, "writes": 0, "requests": 0}))
}

/// Reads seeds from standard input, and runs each in a copy of this process, one after another.
pub(crate) fn serve(run: impl FnOnce(u64, BTreeSet<usize>) -> Result<bool>) -> Result<bool> {
    for line in std::io::stdin().lines() {
        let (seed, without) = serde_json::from_str(&line?)?;
        match fork()? {
            Fork::Copy => return run(seed, without),
            Fork::Original(copy) => print(&json!({"ended": copy.wait()?.to_string()}).to_string()),
        }
    }
    Ok(true)
}

/// The CPU time of a worker and of the copies that have ended.
pub(crate) fn cpu_of_worker(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    // utime, stime, cutime and cstime, in ticks of 10 ms
    let ticks: u64 = fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
