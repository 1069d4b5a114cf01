//! Patches of `tests/simulation/without_fixes`: the simulation has to find what each brings back.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::exercises;

pub(super) const FOLDER: &str = "tests/simulation/without_fixes";
/// Processor time within which a defect has to be found, seconds.
const LIMIT: &str = "120";
/// Less optimised than the simulation: each fix is a build of its own.
const PROFILE: &str = "without-fixes";

/// Builds the simulation without each fix, and runs it until it fails. Prints the rows of the table in the simulation page.
pub(crate) fn run(root: &Path, only: &[&str]) -> Result<()> {
    let names = super::chosen(root, FOLDER, only)?;
    let mut missed = Vec::new();
    for name in &names {
        let copy = super::copy_without(root, FOLDER, name)?;
        let printed = simulate(&copy).with_context(|| name.clone())?;
        match Found::read(&printed) {
            Some(Found { seed, violation, schedules, seconds }) => {
                writeln!(std::io::stdout(), "| {name} | {seed} | {schedules} | {seconds} | {violation} |")?;
            }
            None => missed.push(name.as_str()),
        }
    }
    ensure!(missed.is_empty(), "not found within {LIMIT} CPU seconds: {}", missed.join(", "));
    Ok(())
}

/// Builds the simulation of the copy, and returns what it prints.
fn simulate(copy: &Path) -> Result<String> {
    let mut cargo = super::cargo(copy, None);
    cargo.args(["build", "--locked", "--profile", PROFILE, "-p", "olm-simulation", "--bin", "simulate"]);
    ensure!(cargo.status()?.success(), "the build failed");
    let simulate = Command::new(exercises::build_folder(copy).join(PROFILE).join("simulate"))
        .args(["--seeds", "1000000", "--jobs", "1", "--cpu-seconds", LIMIT])
        .output()
        .context("cannot start the simulation")?;
    Ok(String::from_utf8(simulate.stdout)?)
}

/// The first seed that failed.
#[derive(Debug, PartialEq, Eq)]
struct Found<'a> {
    seed: &'a str,
    violation: &'a str,
    schedules: &'a str,
    seconds: &'a str,
}

impl<'a> Found<'a> {
    /// Reads what the simulation prints; `None` if no seed failed.
    fn read(printed: &'a str) -> Option<Self> {
        let mut lines = printed.lines();
        let (seed, violation) = lines.find_map(|line| line.strip_prefix("seed ")?.split_once(": "))?;
        let total = lines.find_map(|line| line.split_once(" schedules in "))?;
        let seconds = total.1.split(" and ").nth(1)?.split(" CPU s").next()?;
        Some(Self { seed, violation, schedules: total.0, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_fixes_reads_what_the_simulation_prints() {
        let total = "17 schedules in 1.5 s and 1.4 CPU s (730 a minute and core): 1.0 simulated hours, 2 requests, 3 writes";
        let printed = format!("seed 17: at 3.1 s: a: b\n{total}, 1 failed\nseed 17, the shortest\n");
        let found = Found { seed: "17", violation: "at 3.1 s: a: b", schedules: "17", seconds: "1.4" };
        assert_eq!(Found::read(&printed), Some(found));
        assert_eq!(Found::read(&format!("{total}, 0 failed\n")), None);
    }
}
