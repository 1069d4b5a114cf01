//! Recorded traces of plans, Subscriptions and catalog sources, replayed through the machines.
//!
//! The world of a scenario is made of its input: catalogs, OperatorGroup, steps. What the reference observed of others is observed here
//! too: the phases that ClusterServiceVersions reached, and the answers of the apiserver to objects that it does not accept.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may panic and print")]

mod compare;
#[path = "../lab/mod.rs"]
mod lab;
mod scenario;
mod sources;
mod world;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use olm_classic::install_plan::{PLAN_ROWS, UNPACK_ROWS};
use olm_classic::subscription::{PASS_ROWS, STATE_ROWS};
use serde_json::Value;

use crate::compare::{Counts, snapshot};
use crate::scenario::{Scenario, scenarios};
use crate::world::{Reached, World};

/// Differences that stay: scenario, the beginnings of the paths, why.
#[rustfmt::skip]
const DECIDED: [(&str, &[&str], &str); 3] = [
    ("ff-plan-off",
        &["failed: Subscription/demo/status/conditions/ResolutionFailed", "final: Subscription/demo/status/conditions/ResolutionFailed"],
        REPLACED),
    ("ip-crd-cr",
        &["failed: Subscription/demo/status/conditions/ResolutionFailed", "final: Subscription/demo/status/conditions/ResolutionFailed"],
        REPLACED),
    ("oc-blocks", &["held: Subscription/demo/status/conditions/ResolutionFailed"], REPLACED),
];

/// update-graph §2 step 7 calls it a behaviour not to copy.
const REPLACED: &str =
    "a ClusterServiceVersion that is being replaced does not make the namespace unsatisfiable";

/// Traces that cannot be replayed, with the reason.
const NOT_REPLAYED: [(&str, &str); 0] = [];

fn has_trace(scenario: &Scenario) -> bool {
    let trace = scenario.outcome["trace"].as_object();
    let mut keys = trace.into_iter().flatten().map(|(key, _)| key);
    keys.any(|key| key.starts_with("InstallPlan/") || key.starts_with("Subscription/"))
}

/// Replays a scenario; the differences from its record.
fn replay(scenario: &Scenario, counts: &mut Counts) -> (Vec<String>, Reached) {
    let mut world = World::new(scenario);
    let mut found = Vec::new();
    world.settle();
    for (index, step) in scenario.input["steps"].as_array().unwrap().iter().enumerate() {
        let (verb, argument) = step.as_object().unwrap().iter().next().unwrap();
        world.step(verb, argument);
        world.settle();
        match verb.as_str() {
            "sleep" => {
                world.now += Duration::from_secs(argument.as_u64().unwrap());
                world.settle();
            }
            "until" => found.extend(wait(&mut world, scenario, index, argument)),
            "snap" => {
                let name = argument.as_str().unwrap();
                let differences = snapshot(&world, &scenario.outcome["snapshots"][name], counts);
                found.extend(differences.into_iter().map(|it| format!("{name}: {it}")));
            }
            _ => {}
        }
    }
    if let Some(last) = scenario.outcome["snapshots"].get("final") {
        let differences = snapshot(&world, last, counts);
        found.extend(differences.into_iter().map(|it| format!("final: {it}")));
    }
    let recorded = scenario.outcome["trace"].as_object().unwrap();
    for (key, trace) in recorded.iter().filter(|(key, _)| !key.starts_with("ClusterServiceVersion/")) {
        let trace: Vec<&str> = trace.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        let ours = world.trace.remove(key).unwrap_or_default();
        if ours != trace {
            found.push(format!("trace of {key}: {ours:?} instead of {trace:?}"));
        }
    }
    found.extend(world.trace.keys().map(|key| format!("trace of {key}: is not recorded")));
    (found, world.reached)
}

/// Time goes by until what the step waits for is the case.
fn wait(world: &mut World<'_>, scenario: &Scenario, index: usize, awaited: &Value) -> Option<String> {
    let step = format!("{index:02} until");
    let mut results = scenario.outcome["steps"].as_array().into_iter().flatten();
    let result = results.find(|it| it["step"] == step.as_str()).map(|it| it["result"]["reached"] == true);
    for _ in 0..30 {
        if world.is_reached(awaited) {
            return (result == Some(false))
                .then(|| format!("{step}: {awaited} was not reached in the record"));
        }
        world.now += Duration::from_secs(5);
        world.settle();
    }
    (result == Some(true)).then(|| format!("{step}: {awaited} is not reached"))
}

#[test]
fn traces_of_plans_and_subscriptions_are_those_recorded() {
    let Some(scenarios) = scenarios() else { return };
    let mut counts = Counts::default();
    let (mut wrong, mut unused) = (Vec::new(), Vec::new());
    let mut replayed = 0;
    for scenario in scenarios.iter().filter(|it| has_trace(it)) {
        if NOT_REPLAYED.iter().any(|(id, _)| *id == scenario.id) {
            continue;
        }
        replayed += 1;
        let (found, _) = replay(scenario, &mut counts);
        let decided: Vec<_> = DECIDED.iter().filter(|(id, _, _)| *id == scenario.id).collect();
        let is_decided =
            |it: &&String| decided.iter().any(|(_, paths, _)| paths.iter().any(|path| it.starts_with(path)));
        for (id, paths, _) in &decided {
            let is_unused = |path: &&&str| !found.iter().any(|it| it.starts_with(**path));
            unused.extend(paths.iter().filter(is_unused).map(|path| format!("{id}: {path}")));
        }
        wrong.extend(found.iter().filter(|it| !is_decided(it)).map(|it| format!("{}: {it}", scenario.id)));
    }
    println!(
        "{replayed} scenarios replayed, {} not, {} with decided differences; {} plans with {} steps, {} Subscriptions and {} \
         objects compared; messages in our own words: {} of {} are the recorded ones",
        NOT_REPLAYED.len(),
        DECIDED.len(),
        counts.plans,
        counts.steps,
        counts.subscriptions,
        counts.objects,
        counts.equal_messages,
        counts.messages,
    );
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unused.is_empty(), "decided differences that are none: {unused:#?}");
}

fn compare_marks<Rule: Copy + Ord + Debug>(rows: &[(Rule, bool)], reached: &BTreeSet<Rule>) -> Vec<String> {
    let wrong = rows.iter().filter(|(rule, is_recorded)| reached.contains(rule) != *is_recorded);
    wrong.map(|(rule, is_recorded)| format!("{rule:?}: marked {is_recorded}")).collect()
}

#[test]
fn rows_of_the_tables_know_whether_a_record_has_them() {
    let Some(scenarios) = scenarios() else { return };
    let mut all = Reached::default();
    for scenario in scenarios.iter().filter(|it| has_trace(it)) {
        let (_, reached) = replay(scenario, &mut Counts::default());
        all.plans.extend(reached.plans);
        all.states.extend(reached.states);
        all.passes.extend(reached.passes);
        all.unpacks.extend(reached.unpacks);
    }
    let plans: Vec<_> = PLAN_ROWS.iter().map(|row| (row.rule, row.is_recorded)).collect();
    let states: Vec<_> = STATE_ROWS.iter().map(|row| (row.rule, row.is_recorded)).collect();
    let passes: Vec<_> = PASS_ROWS.iter().map(|row| (row.rule, row.is_recorded)).collect();
    let unpacks: Vec<_> = UNPACK_ROWS.iter().map(|row| (row.rule, row.is_recorded)).collect();
    let mut wrong = compare_marks(&plans, &all.plans);
    wrong.extend(compare_marks(&states, &all.states));
    wrong.extend(compare_marks(&passes, &all.passes));
    wrong.extend(compare_marks(&unpacks, &all.unpacks));
    let marks = [
        &plans.iter().map(|it| it.1).collect::<Vec<_>>(),
        &states.iter().map(|it| it.1).collect(),
        &passes.iter().map(|it| it.1).collect(),
        &unpacks.iter().map(|it| it.1).collect(),
    ];
    for (name, marks) in ["plan", "Subscription", "pass", "unpacking"].iter().zip(marks) {
        let recorded = marks.iter().filter(|is_recorded| **is_recorded).count();
        println!("{name}: {recorded} of {} rows recorded, the others spec only", marks.len());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
