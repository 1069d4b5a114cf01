//! Recorded answers of OLM Classic, each case compared with ours.

use std::collections::BTreeMap;

use olm_solver::testing::{agreement_key, recorded_cases, render_answer};
use olm_solver::{Limits, Namespace, solve};
use serde_json::Value;

/// Cases that are answered otherwise, with the row of decision 50. `dependency_differs_from_classic_as_decided` has their namespaces.
const DIFFERENT: [(&str, &str); 4] = [
    ("X13-dup-gvk", "counts once"),
    ("X13b-dup-package", "counts once"),
    ("X14-slash-channel", "a slash in a channel"),
    ("X15-name-twice", "bundles of one name"),
];

/// Conflicts whose clauses are those of the record, of those whose text is the same in every run of Classic; decision 50 has the
/// figure.
const EQUAL_CLAUSES: (usize, usize) = (234, 258);

fn clauses(answer: &Value) -> Vec<String> {
    let texts = answer["clauses"].as_array().into_iter().flatten();
    let mut clauses: Vec<String> = texts.map(ToString::to_string).collect();
    clauses.sort();
    clauses
}

#[test]
fn recorded_answers_agree() {
    let Some(cases) = recorded_cases() else { return };
    let (mut differences, mut equal) = (BTreeMap::new(), (0, 0));
    for case in &cases {
        let expect = case.expect.as_ref().unwrap();
        let got = render_answer(&case.id, &solve(&case.namespace, Limits::default()));
        if agreement_key(&got) != agreement_key(expect) {
            differences.insert(case.id.as_str(), format!("{got}\n  instead of {expect}"));
        }
        if expect["kind"] == "unsatisfiable" && expect["textStable"] == true {
            equal.1 += 1;
            equal.0 += usize::from(clauses(&got) == clauses(expect));
        }
    }
    let known: Vec<&str> = DIFFERENT.iter().map(|(id, _)| *id).collect();
    let unknown: Vec<_> = differences.iter().filter(|(id, _)| !known.contains(id)).collect();
    assert!(unknown.is_empty(), "{} of {} cases: {unknown:#?}", unknown.len(), cases.len());
    assert_eq!(differences.len(), known.len(), "a case of DIFFERENT agrees: {differences:?}");
    assert_eq!(equal, EQUAL_CLAUSES, "clauses as recorded");
}

/// The same namespace with its lists the other way round, where their order means nothing.
fn reversed(namespace: &Namespace) -> Namespace {
    let mut namespace = namespace.clone();
    namespace.catalogs.reverse();
    namespace.subscriptions.reverse();
    namespace.installed.reverse();
    namespace
}

#[test]
fn recorded_answers_do_not_depend_on_order() {
    let Some(cases) = recorded_cases() else { return };
    for case in &cases {
        let (one, other) =
            (solve(&case.namespace, Limits::default()), solve(&reversed(&case.namespace), Limits::default()));
        assert_eq!(render_answer(&case.id, &one), render_answer(&case.id, &other), "{}", case.id);
    }
}
