//! Output of the soak: a line each minute, tables at the end.

#![expect(clippy::print_stdout, reason = "who runs it reads along")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Summary;
use crate::sampler::{Life, mib};
use crate::world::{PROGRAMS, World};

/// Prints a line.
pub(crate) fn log(what: &str) {
    println!("{what}");
}

/// One line.
pub(crate) fn progress(world: &World, summary: &Summary, began: Instant) {
    let installed = world.targets.iter().filter(|target| target.want != crate::Want::Nothing).count();
    let held: Vec<String> = world
        .sampler
        .lives()
        .iter()
        .filter(|life| !life.ended)
        .filter_map(|life| {
            let held = life.samples.last()?.held;
            let (resident, allocated) = (mib(held.resident), mib(held.anonymous));
            Some(format!("{} {resident:.1} ({allocated:.1}) MiB, {} files", life.process, held.files))
        })
        .collect();
    println!(
        "{:>6.1} s: {} operations, {} kills, {} checks, {installed} extensions desired; {}",
        began.elapsed().as_secs_f64(),
        summary.operations.values().sum::<usize>(),
        summary.kills.len(),
        summary.checks.converged.len(),
        held.join("; ")
    );
}

/// All tables, as Markdown.
pub(crate) fn print(world: &World, summary: &Summary) {
    let operations: usize = summary.operations.values().sum();
    println!("\n| soak | |\n|---|---:|");
    row("seed", summary.seed);
    row("time", seconds(summary.took));
    row("operations", operations);
    for (operation, count) in &summary.operations {
        row(&format!("… {}", words(&format!("{operation:?}"))), count);
    }
    row("catalog pushes, all", world.shelves.iter().map(|shelf| shelf.pushes).sum::<u32>());
    row("kills", summary.kills.len());
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kill in &summary.kills {
        *kinds.entry(kill).or_default() += 1;
    }
    for (kind, count) in kinds {
        row(&format!("… {kind}"), count);
    }
    let mut converged = summary.checks.converged.clone();
    converged.sort();
    row("convergences", converged.len());
    row("convergence, median", converged.get(converged.len() / 2).copied().map_or_else(String::new, seconds));
    row("convergence, longest", converged.last().copied().map_or_else(String::new, seconds));
    let most = summary.checks.bundles.iter().max().copied().unwrap_or_default();
    row("bundles kept at a check, most", most);

    println!("\n| invariant | times it held |\n|---|---:|");
    for (what, times) in &summary.checks.held {
        row(what, times);
    }

    println!(
        "\n| program | lives | requests | of these writes | requests an operation | CPU | CPU an operation |\n|---|---:|---:|---:|---:|---:|---:|"
    );
    let lives = world.sampler.lives();
    for program in PROGRAMS {
        let own: Vec<&Life> = lives.iter().filter(|life| life.process == program).collect();
        let cpu: Duration = own.iter().map(|life| life.cpu).sum();
        let (requests, writes) = world.requests.get(program).copied().unwrap_or_default();
        println!(
            "| {program} | {} | {requests} | {writes} | {:.1} | {:.1} s | {:.0} ms |",
            own.len(),
            requests as f64 / operations.max(1) as f64,
            cpu.as_secs_f64(),
            cpu.as_secs_f64() * 1000.0 / operations.max(1) as f64,
        );
    }

    println!(
        "\n| life | length | RSS first | RSS last | RSS highest | allocated first | allocated last | slope of it | files at rest, first, last | threads at rest, first, last |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for life in &lives {
        life_row(life);
    }
    for log in world.logs() {
        complaints(&log);
    }
}

fn life_row(life: &Life) {
    let grown_up = life.grown_up();
    let memory = |at: Option<&crate::sampler::Sample>, of: fn(&olm_kit::Holding) -> u64| {
        at.map_or_else(String::new, |sample| format!("{:.1} MiB", mib(of(&sample.held))))
    };
    let highest = life.samples.iter().max_by_key(|sample| sample.held.resident);
    let at_rest = |of: fn(&olm_kit::Holding) -> usize| match (life.rests.first(), life.rests.last()) {
        (Some(first), Some(last)) => format!("{}, {}", of(&first.held), of(&last.held)),
        _ => String::new(),
    };
    println!(
        "| {}{} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        life.process,
        if life.late { ", from half-time" } else { "" },
        seconds(life.length()),
        memory(grown_up.first(), |held| held.resident),
        memory(grown_up.last(), |held| held.resident),
        memory(highest, |held| held.resident),
        memory(grown_up.first(), |held| held.anonymous),
        memory(grown_up.last(), |held| held.anonymous),
        life.slope().map_or_else(String::new, |slope| format!("{slope:+.1} MiB/h")),
        at_rest(|held| held.files),
        at_rest(|held| held.threads),
    );
}

/// Errors and warnings of a log, counted by message.
fn complaints(log: &std::path::Path) {
    let Ok(text) = std::fs::read_to_string(log) else { return };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines() {
        let Some(level) = ["ERROR", "WARN"].into_iter().find(|level| line.contains(level)) else { continue };
        let message: String = line
            .split(level)
            .nth(1)
            .unwrap_or_default()
            .chars()
            .filter(|it| !it.is_ascii_digit())
            .take(90)
            .collect();
        *counts.entry(format!("{level} {}", message.trim())).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    println!("\n{}:", log.file_name().unwrap_or_default().display());
    for (message, count) in counts.iter().take(12) {
        println!("{count:6} {message}");
    }
}

fn row(what: &str, value: impl std::fmt::Display) {
    println!("| {what} | {value} |");
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// `FollowNewest` as `follow newest`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[test]
fn soak_names_become_words() {
    assert_eq!(words("WantUnmatchedVersion"), "want unmatched version");
}
