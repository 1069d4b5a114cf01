use std::collections::BTreeSet;

use super::*;
use crate::operator_group::copies::{self, CopySettings, ObservedCsv};

/// rule: classic-apis §7.8
#[test]
fn copies_are_written_when_they_differ() {
    let mut source = csv("ns", &ALL_MODES, &["A"]);
    let text = |pairs: &[(&str, &str)]| -> Option<BTreeMap<String, String>> {
        Some(pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect())
    };
    source.metadata.labels = text(&[("operators.coreos.com/demo.ns", ""), ("mine", "1")]);
    source.metadata.annotations =
        text(&[(keys::TARGET_NAMESPACES, "a"), (keys::LAST_APPLIED, "{}"), ("note", "x")]);
    let copy = copies::copied_csv(&source, "a");
    assert_eq!(copy.metadata.labels, text(&[("mine", "1"), (keys::COPIED_FROM, "ns")]));
    assert_eq!(copy.metadata.annotations, text(&[("note", "x")]));
    let status = copy.status.as_ref().unwrap();
    assert_eq!((status.phase.as_str(), status.reason.as_str()), ("Succeeded", "Copied"));
    assert_eq!(status.message, "The operator is running in ns but is managing this namespace");

    let all: BTreeSet<String> = ["a", "b", "ns"].map(str::to_owned).into();
    let open = CopySettings::default();
    let closed = CopySettings { is_disabled: true, protected: BTreeSet::from(["b".to_owned()]) };
    let names = |targets: &[&str]| targets.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    let observe = |csvs: &[&ClusterServiceVersion]| {
        csvs.iter().map(|csv| ObservedCsv::from_csv(csv)).collect::<Vec<_>>()
    };
    let mut edited = copy.clone();
    edited.spec.display_name = "changed".to_owned();
    let mut stale = copy.clone();
    stale.status.as_mut().unwrap().phase = "Pending".to_owned();
    let mut foreign = csv("a", &[], &[]);
    foreign.spec.display_name = "foreign".to_owned();
    let mut failing = source.clone();
    failing.status.as_mut().unwrap().reason = "InterOperatorGroupOwnerConflict".to_owned();
    let mut new = source.clone();
    new.status = None;
    let mut content_failed = source.clone();
    content_failed.status.as_mut().unwrap().phase = "Failed".to_owned();
    type Writes = Vec<(&'static str, bool, bool, bool)>;
    type Case<'a> = (
        &'static str,
        &'a ClusterServiceVersion,
        Vec<String>,
        Vec<ObservedCsv>,
        &'a CopySettings,
        Writes,
        Vec<&'static str>,
    );
    #[rustfmt::skip]
    let cases: Vec<Case<'_>> = vec![
        ("own namespace only", &source, names(&["ns"]), vec![], &open, vec![], vec![]),
        ("a new copy", &source, names(&["a", "ns", "not-there"]), vec![], &open, vec![("a", true, true, true)], vec![]),
        ("the same copy", &source, names(&["a"]), observe(&[&copy]), &open, vec![], vec![]),
        ("an edited copy", &source, names(&["a"]), observe(&[&edited]), &open, vec![("a", false, true, false)], vec![]),
        ("an old status", &source, names(&["a"]), observe(&[&stale]), &open, vec![("a", false, false, true)], vec![]),
        ("another CSV of the name", &source, names(&["a"]), observe(&[&foreign]), &open, vec![], vec![]),
        ("no target any more", &source, names(&["ns"]), observe(&[&copy]), &open, vec![], vec!["a"]),
        ("no group any more", &source, vec![], observe(&[&copy]), &open, vec![], vec!["a"]),
        ("failed for its group", &failing, names(&["a", "b"]), observe(&[&edited]), &open, vec![], vec![]),
        ("failed otherwise", &content_failed, names(&["b"]), vec![], &open, vec![("b", true, true, true)], vec![]),
        ("without phase", &new, names(&["a"]), vec![], &open, vec![], vec![]),
        ("a copy is not copied", &copy, names(&["b"]), vec![], &open, vec![], vec![]),
        ("global", &source, names(&[""]), observe(&[&copy]), &open, vec![("b", true, true, true)], vec![]),
        ("global, disabled", &source, names(&[""]), observe(&[&copy]), &closed, vec![("b", true, true, true)], vec!["a"]),
        ("not global, disabled", &source, names(&["a"]), vec![], &closed, vec![("a", true, true, true)], vec![]),
    ];
    for (name, csv, targets, observed, settings, write, delete) in cases {
        let plan = copies::plan(csv, &targets, &all, &observed, settings);
        let got: Vec<_> = plan
            .write
            .iter()
            .map(|it| (it.copy.metadata.namespace.as_deref().unwrap(), it.create, it.content, it.status))
            .collect();
        assert_eq!((got, plan.delete), (write, names(&delete)), "{name}");
    }
}

/// rule: classic-apis §10
#[test]
#[rustfmt::skip]
fn copies_condition_reports_what_is_there() {
    let source = csv("ns", &ALL_MODES, &["A"]);
    let copy = ObservedCsv::from_csv(&copies::copied_csv(&source, "a"));
    let all: BTreeSet<String> = ["a", "ns"].map(str::to_owned).into();
    let config = |disabled: Value| {
        let object = json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OLMConfig", "metadata": { "name": "cluster" },
            "spec": { "features": { "disableCopiedCSVs": disabled } },
        });
        CopySettings::new(Some(&serde_json::from_value(object).unwrap()), BTreeSet::new())
    };
    assert_eq!(CopySettings::new(None, BTreeSet::new()), CopySettings::default());
    assert_eq!(config(json!(null)), CopySettings::default());
    for (settings, observed, status, reason, message) in [
        (config(json!(true)), vec![], "True", "CopiedCSVsDisabled",
            "Copied CSVs are disabled and no unexpected copied CSVs were found for operators installed in AllNamespace mode"),
        (config(json!(true)), vec![copy.clone()], "False", "CopiedCSVsDisabled",
            "Copied CSVs are disabled and at least one unexpected copied CSV was found for an operator installed in AllNamespace mode"),
        (config(json!(false)), vec![copy], "False", "CopiedCSVsEnabled", "Copied CSVs are enabled and present across the cluster"),
        (config(json!(false)), vec![], "False", "CopiedCSVsEnabled", "Copied CSVs are enabled and at least one copied CSVs is missing"),
    ] {
        let got = copies::condition(std::slice::from_ref(&source), &all, &observed, &settings);
        assert_eq!((got.status.as_str(), got.reason, got.message.as_str()), (status, reason, message));
    }
    assert_eq!(copies::disabled_message(&source), "CSV copying disabled for ns/demo.v1");
}
