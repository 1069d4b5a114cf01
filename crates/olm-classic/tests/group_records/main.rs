//! Operator groups, operator conditions, Operators and packages against what the reference was recorded to do.
//!
//! Each snapshot of each recorded scenario is derived again: groups and CSVs come from the input of the scenario, the functions of the crate
//! decide, and the outcome is compared with the recorded objects. Rules: classic-apis §7, §8, §10.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic, and prints what it skips"
)]

mod components;
mod groups;
#[path = "../lab/mod.rs"]
mod lab;
mod observed;
mod packages;
mod scenario;

use std::collections::BTreeMap;

use serde_json::Value;

/// What was compared, what differed, and what could not be derived.
#[derive(Default)]
pub(crate) struct Comparison {
    counts: BTreeMap<&'static str, usize>,
    differences: Vec<String>,
    underived: BTreeMap<String, Vec<String>>,
}

impl Comparison {
    /// Compares one object or set of objects of a kind.
    pub(crate) fn compare(&mut self, kind: &'static str, place: &str, got: &Value, recorded: &Value) {
        *self.counts.entry(kind).or_default() += 1;
        if got != recorded {
            self.differences.push(format!("{kind}, {place}:\n    ours     {got}\n    recorded {recorded}"));
        }
    }

    /// Compares objects by their keys; each key counts as one.
    pub(crate) fn compare_all(
        &mut self,
        kind: &'static str,
        place: &str,
        got: &BTreeMap<String, Value>,
        recorded: &BTreeMap<String, Value>,
    ) {
        let keys: std::collections::BTreeSet<&String> = got.keys().chain(recorded.keys()).collect();
        for key in keys {
            let of = |all: &BTreeMap<String, Value>| all.get(key).cloned().unwrap_or_default();
            self.compare(kind, &format!("{place} {key}"), &of(got), &of(recorded));
        }
    }

    /// Notes that something recorded has no derived counterpart.
    pub(crate) fn underived(&mut self, place: &str, reason: &str) {
        self.underived.entry(reason.to_owned()).or_default().push(place.to_owned());
    }
}

#[test]
fn group_records_are_derived_again() {
    let Some(scenarios) = scenario::load() else { return };
    let mut comparison = Comparison::default();
    for scenario in &scenarios {
        for (index, snapshot) in scenario.snapshots.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|index| scenario.snapshots.get(index));
            groups::compare(&mut comparison, scenario, snapshot, before);
            components::compare(&mut comparison, scenario, snapshot);
        }
        packages::compare(&mut comparison, scenario);
    }
    println!("{} scenarios", scenarios.len());
    for (kind, count) in &comparison.counts {
        println!("compared: {count:4} {kind}");
    }
    for (reason, places) in &comparison.underived {
        println!("not derived: {reason}: {}", places.join(", "));
    }
    let differences = &comparison.differences;
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
    let least = [
        ("annotations and check of a CSV", 50),
        ("API roles", 200),
        ("copies of CSVs", 10),
        ("group roles", 300),
        ("group annotation", 100),
        ("group status", 100),
        ("namespace labels", 100),
        ("Operator", 90),
        ("OperatorCondition", 100),
        ("OperatorCondition roles", 200),
        ("PackageManifest", 1),
        ("rights in target namespaces", 4),
        ("upgrade gate", 1),
    ];
    for (kind, least) in least {
        let count = comparison.counts.get(kind).copied().unwrap_or_default();
        assert!(count >= least, "{kind}: {count} records were compared, not {least}");
    }
}
