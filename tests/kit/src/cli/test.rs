//! `test`: cargo's tests with one control plane for all test programs, and an honest summary.
//!
//! Passing tests may print lines that begin with `SKIPPED`: what they could not check, and why. They are shown and counted
//! (cargo itself hides what passing tests print).

use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use olm_kit::{Cluster, Tools, repository};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::{Group, interruption, say};

pub(crate) async fn run(arguments: Vec<String>) -> Result<ExitCode> {
    let started = Instant::now();
    let signal = interruption();
    let work = async {
        let tools = Tools::locate()?;
        let cluster = Cluster::start().await?;
        say(format_args!("one control plane for all tests: up in {:.1} s", started.elapsed().as_secs_f64()));
        let mut command = cargo(arguments);
        command.env("OLM_TOOLS", tools.bin()).env("OLM_TEST_CLUSTER", cluster.dir());
        let outcome = follow(command).await;
        drop(cluster);
        outcome
    };
    let (tally, success) = tokio::select! {
        outcome = work => outcome?,
        // dropping `work` ends cargo and the test program that it runs
        signal = signal => return Ok(ExitCode::from(128 + signal?.0)),
    };
    for line in &tally.skips {
        say(line);
    }
    say(format_args!("elapsed: {} s", started.elapsed().as_secs()));
    say(tally.summary(success));
    Ok(if success && tally.failed == 0 && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cargo(arguments: Vec<String>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("test").current_dir(repository());
    if arguments.is_empty() {
        command.args(["--workspace", "--no-fail-fast"]);
    }
    let split = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    command.args(&arguments[..split]).args(["--", "--show-output"]);
    command.args(arguments.iter().skip(split + 1));
    command
}

async fn follow(mut command: Command) -> Result<(Tally, bool)> {
    let mut group = Group::spawn(command.stdout(Stdio::piped())).context("cannot run cargo")?;
    let mut tally = Tally::default();
    let mut lines = BufReader::new(group.stdout()?).split(b'\n');
    while let Some(line) = lines.next_segment().await? {
        let line = String::from_utf8_lossy(&line);
        if tally.read(&line) {
            say(line.trim_end());
        }
    }
    Ok((tally, group.wait().await?.success()))
}

/// Sums up the output of test programs.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    ignored: usize,
    programs: usize,
    failures: Vec<String>,
    skips: Vec<String>,
    /// between `successes:` and what follows: the output of passing tests
    in_successes: bool,
}

impl Tally {
    /// Takes a line in; false when it is not worth showing.
    fn read(&mut self, line: &str) -> bool {
        let text = line.trim_end();
        if text == "successes:" {
            self.in_successes = true;
        } else if text == "failures:" || text.starts_with("test result: ") {
            self.in_successes = false;
        }
        if let Some(at) = text.find("SKIPPED").filter(|&at| text[..at].trim().is_empty()) {
            self.skips.push(text[at..].to_owned());
        }
        if let Some(name) = text.strip_prefix("test ").and_then(|it| it.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        if let Some(counts) = text.strip_prefix("test result: ") {
            self.programs += 1;
            let count = |what: &str| {
                counts
                    .split([';', '.'])
                    .find_map(|part| part.trim().strip_suffix(what)?.trim().parse::<usize>().ok())
                    .unwrap_or_default()
            };
            self.passed += count("passed");
            self.failed += count("failed");
            self.ignored += count("ignored");
        }
        !self.in_successes
    }

    fn summary(&self, success: bool) -> String {
        let mut text = String::new();
        for name in &self.failures {
            text += &format!("FAILED: {name}\n");
        }
        let word = if success && self.failed == 0 && self.passed > 0 { "ok" } else { "FAILED" };
        let passed = self.passed.saturating_sub(self.skips.len());
        text += &format!(
            "test result: {word}. {passed} passed; {} failed; {} skipped; {} test programs",
            self.failed,
            self.ignored + self.skips.len(),
            self.programs
        );
        if !success && self.failed == 0 {
            text += " (cargo failed: see above)";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> (Tally, Vec<&str>) {
        let mut tally = Tally::default();
        let shown = output.lines().filter(|line| tally.read(line)).collect();
        (tally, shown)
    }

    #[test]
    fn results_are_summed_and_skips_are_not_passes() {
        let (tally, shown) = tally(
            "running 2 tests\ntest a ... ok\ntest b ... ok\n\nsuccesses:\n\n---- b stdout ----\nSKIPPED: no shared data\n\n\
             successes:\n    a\n    b\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        assert_eq!(tally.summary(true), "test result: ok. 4 passed; 0 failed; 2 skipped; 2 test programs");
        assert_eq!(tally.skips, ["SKIPPED: no shared data"]);
        assert!(!shown.iter().any(|line| line.contains("stdout")), "{shown:?}");
    }

    #[test]
    fn failures_are_named_and_shown() {
        let (tally, shown) = tally(
            "test a ... FAILED\n\nsuccesses:\n    b\n\nfailures:\n\n---- a stdout ----\nboom\n\nfailures:\n    a\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(
            tally.summary(false),
            "FAILED: a\ntest result: FAILED. 1 passed; 1 failed; 0 skipped; 1 test programs"
        );
        assert!(shown.contains(&"boom"));
    }

    #[test]
    fn nothing_run_and_a_build_that_fails_are_failures() {
        assert!(Tally::default().summary(true).contains("FAILED. 0 passed"));
        let (tally, _) = tally(
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s",
        );
        assert_eq!(
            tally.summary(false),
            "test result: FAILED. 1 passed; 0 failed; 0 skipped; 1 test programs (cargo failed: see above)"
        );
    }
}
