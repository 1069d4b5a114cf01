//! Any scenario, any constraint: no panic, and an end.

use olm_resolver::scenario::{Scenario, run};
use olm_resolver::{DependencyFacts, dependencies};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::Pkg;

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        "(package p|channel a|channel b|catalog c( priority -?[0-9]{1,3})?|deprecated bundle [0-9].0.0)",
        "  [0-9]\\.[0-9]\\.0( replaces [0-9]\\.[0-9]\\.0)?( skips [0-9]\\.0\\.0,[0-9]\\.1\\.0)?( skipRange \"[<>=]{1,2}[0-9]\\.0\\.0\")?",
        "(v1|classic|both|walk v1|walk classic|paths)( installed [0-9]\\.[0-9]\\.0)?( channels (a|b|a,b))?( to ([0-9]\\.0\\.0|head))?( policy SelfCertified)?",
        "[a-z =>\"#]{0,20}",
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scenarios_survive(lines in prop::collection::vec(line(), 0..25)) {
        let text = format!("package p\nchannel a\n  1.0.0\n{}", lines.join("\n"));
        for text in [text, lines.iter().filter(|line| Scenario::parse(&format!("package p\nchannel a\n{line}")).is_ok()).fold(
            "package p\nchannel a\n".to_owned(), |text, line| format!("{text}{line}\n"))] {
            if let Ok(scenario) = Scenario::parse(&text) {
                // an error has a message, which is fine
                if let Ok(answers) = run(&scenario, &|_, _| Err("no loader".to_owned())) {
                    prop_assert_eq!(answers.len(), scenario.questions.len());
                }
            }
        }
    }

    #[test]
    fn rules_survive(rule in prop_oneof![
        "[a-z0-9.()\\[\\]{}&|!<>=+*/%?:,'\"\\\\ -]{0,60}",
        "properties(\\.(exists|all|map|filter)\\(p, p\\.(type|value)( == '[a-z]')?\\)|\\[[0-9]\\]|\\.size\\(\\) [<>=]{1,2} [0-9]){0,3}",
        any::<String>(),
    ]) {
        let graph = Pkg::new("p").bundle("1.0.0", json!([
            {"type": "olm.package", "value": {"packageName": "p", "version": "1.0.0"}},
            {"type": "olm.constraint", "value": {"cel": {"rule": rule}}},
        ])).graph();
        let bundle = graph.find_bundle("p.v1.0.0").unwrap();
        prop_assert!(dependencies(&graph, bundle, &DependencyFacts::default(), &[]).unmet.len() <= 1);
    }

    #[test]
    fn constraints_survive(value in any_json()) {
        for kind in ["olm.constraint", "olm.gvk.required", "olm.package.required"] {
            let graph = Pkg::new("p").bundle("1.0.0", json!([
                {"type": "olm.package", "value": {"packageName": "p", "version": "1.0.0"}}, {"type": kind, "value": value},
            ])).graph();
            let bundle = graph.find_bundle("p.v1.0.0").unwrap();
            prop_assert!(dependencies(&graph, bundle, &DependencyFacts::default(), &[]).unmet.len() <= 1);
        }
    }
}

/// JSON that looks a little like constraints.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z0-9.<>= ]{0,8}".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        #[rustfmt::skip]
        let key = prop::sample::select(vec![
            "gvk", "package", "all", "any", "not", "cel", "rule", "constraints", "kind", "version",
            "packageName", "versionRange", "x",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// An entry without a bundle is a finding: many of them must not fill memory and log.
#[test]
fn findings_of_a_package_are_limited() {
    let findings_of = |entries: usize| {
        let versions: Vec<String> = (0..entries).map(|at| format!("{at}.0.0")).collect();
        let names: Vec<&str> = versions.iter().map(String::as_str).collect();
        Pkg::new("p").channel("stable", &names).graph().findings().to_vec()
    };
    let findings = findings_of(3_000);
    assert_eq!(findings.len(), 1_001);
    assert_eq!(findings[1_000].message, "has 2000 more findings");
    assert_eq!(findings_of(1_000).len(), 1_000);
}
