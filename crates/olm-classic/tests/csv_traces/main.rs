//! Recorded runs of the reference, replayed: the steps of each scenario change a cluster in memory, the phase machine runs over its CSVs until
//! it rests, and phases, reasons, messages, requirements and Deployments are those recorded.
//!
//! Without the shared records (`OLM_SHARED`, or `../shared` beside the repository) the tests print `SKIPPED`.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may panic and print")]

mod bundle;
mod compare;
#[path = "../lab/mod.rs"]
mod lab;
mod scenario;
mod world;

use std::collections::BTreeSet;

use olm_classic::csv::{Evidence, TABLE};

use scenario::Scenario;
use world::World;

/// The records with a CSV, replayed.
fn replayed() -> Option<Vec<(Scenario, World)>> {
    let scenarios = lab::records()?.into_iter().map(|record| Scenario::new(&record));
    let with_csv = scenarios.filter(|scenario| !scenario.traces().is_empty());
    let replay = |mut scenario: Scenario| {
        let world = scenario.replay();
        (scenario, world)
    };
    Some(with_csv.map(replay).collect())
}

/// Leaves out what is observed by chance, as the records do: waiting for pods, and requirements that a plan is about to make.
fn without_chance(trace: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for (index, state) in trace.iter().enumerate() {
        let is_last = index + 1 == trace.len();
        let is_chance = state == "Installing/InstallWaiting"
            || state == "Pending/RequirementsNotMet"
                && out.last().is_some_and(|it| it == "Pending/RequirementsUnknown");
        if (is_last || !is_chance) && out.last() != Some(state) {
            out.push(state.clone());
        }
    }
    out
}

#[test]
fn traces_are_those_recorded() {
    let Some(replayed) = replayed() else { return };
    let mut wrong = Vec::new();
    let mut count = 0;
    for (scenario, world) in &replayed {
        for (name, recorded) in scenario.traces() {
            let trace = world.traces.get(&name).map(|trace| without_chance(trace)).unwrap_or_default();
            count += 1;
            if trace != recorded {
                wrong.push(format!("{}: {name}\n  recorded {recorded:?}\n  replayed {trace:?}", scenario.id));
            }
        }
    }
    println!("{count} traces of {} records replayed", replayed.len());
    assert!(wrong.is_empty(), "{} of {count} traces differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((replayed.len(), count), (82, 125), "records with a CSV, and traces of CSVs");
}

#[test]
fn rows_have_the_evidence_that_they_claim() {
    let Some(replayed) = replayed() else { return };
    let reached: BTreeSet<_> = replayed.iter().flat_map(|(_, world)| world.reached.iter().copied()).collect();
    for row in TABLE {
        let is_reached = reached.contains(&(row.number, row.case));
        assert_eq!(row.evidence == Evidence::Recorded, is_reached, "row {} {:?}", row.number, row.case);
    }
    let rows: BTreeSet<u8> = TABLE.iter().map(|row| row.number).collect();
    let recorded: BTreeSet<u8> = reached.iter().map(|(number, _)| *number).collect();
    let spec_only: Vec<_> = rows.difference(&recorded).collect();
    println!(
        "rows of classic-apis §6.3: {} with a record, {} spec only {spec_only:?}; outcomes: {} with a record, {} spec only",
        recorded.len(),
        spec_only.len(),
        reached.len(),
        TABLE.len() - reached.len()
    );
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), (0..=28).collect::<Vec<_>>());
}

#[test]
fn statuses_are_those_recorded() {
    compare_all("statuses", compare::statuses);
}

#[test]
fn events_are_those_recorded() {
    compare_all("events", compare::events);
}

#[test]
fn deployments_are_those_recorded() {
    compare_all("Deployments", compare::deployments);
}

#[test]
fn serving_objects_are_those_recorded() {
    compare_all("objects around webhooks", compare::serving);
}

/// Counts what a comparison held against a record, and fails with all differences.
fn compare_all(what: &str, compare: fn(&Scenario, &World, &mut Vec<String>) -> usize) {
    let Some(replayed) = replayed() else { return };
    let mut wrong = Vec::new();
    let count: usize = replayed.iter().map(|(scenario, world)| compare(scenario, world, &mut wrong)).sum();
    println!("{count} {what} compared");
    assert!(wrong.is_empty(), "{} of {count} {what} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 0, "no {what} in the records");
}
