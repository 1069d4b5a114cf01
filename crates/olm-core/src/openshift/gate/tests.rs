//! The case table of cluster-operator §15, as far as it needs no cluster: the numbers are the table's.

use super::*;

fn list(values: &[&str]) -> String {
    let one = |value: &&str| format!(r#"{{"type":"olm.maxOpenShiftVersion","value":{value}}}"#);
    format!("[{}]", values.iter().map(one).collect::<Vec<_>>().join(","))
}

fn bundle(extension: &str, name: &str, properties: Option<&str>) -> Bundle {
    Bundle {
        owner: Owner::Extension(extension.to_owned()),
        name: name.to_owned(),
        properties: properties.map(str::to_owned),
    }
}

fn report(cluster: &str, bundles: &[Bundle]) -> Report {
    let current = Stream::of_version(cluster).unwrap();
    judge(current, current.next(), bundles)
}

/// Case, cluster, properties, reason (none for open), what the message contains.
type Case = (&'static str, &'static str, Option<String>, Option<&'static str>, Vec<&'static str>);

const INC: Option<&str> = Some("IncompatibleOperatorsInstalled");
const FAIL: Option<&str> = Some("FailureGettingExtensionMetadata");

fn one_bundle_cases() -> Vec<Case> {
    let max = |value: &str| Some(list(&[value]));
    #[rustfmt::skip]
    let mut cases: Vec<Case> = vec![
        ("2", "4.17.0", None, None, vec![]),
        ("3", "4.17.0", Some("[]".into()), None, vec![]),
        ("4", "4.17.0", Some(r#"[{"type":"olm.gvk","value":{"kind":"K"}}]"#.into()), None, vec![]),
        ("5", "4.17.0", max("\"4.18\""), None, vec![]),
        ("6", "4.17.0", max("\"4.17\""), INC, vec!["version 4.18:", "bundle \"b.v1\" for ClusterExtension \"e\"."]),
        ("7", "4.18.9", max("\"4.17\""), INC, vec!["version 4.19:"]),
        ("8", "4.18.0-rc1", max("\"4.18\""), INC, vec!["version 4.19:"]),
        ("9", "4.18.0-rc1", max("\"4.19\""), None, vec![]),
        ("10", "4.18.57", max("\"4.18\""), INC, vec!["version 4.19:"]),
        ("11", "4.19.0", max("4.20"), None, vec![]),
        ("12", "4.19.0", max("4.2"), INC, vec!["b.v1 4.2;"]),
        ("13", "4.9.0", max("\"4.10\""), None, vec![]),
        ("14a", "4.22.0", max("\"4.23\""), None, vec![]),
        ("14b", "4.22.0", max("\"5.0\""), None, vec![]),
        ("14c", "4.22.0", max("\"5.1\""), None, vec![]),
        ("15", "4.22.0", max("\"4.22\""), INC, vec!["version 4.23:"]),
        ("16a", "4.23.0", max("\"4.23\""), INC, vec!["version 5.1:"]),
        ("16b", "4.23.0", max("\"5.0\""), INC, vec!["version 5.1:"]),
        ("16c", "4.23.0", max("\"4.24\""), INC, vec!["version 5.1:"]),
        ("17", "4.23.0", max("\"5.1\""), None, vec![]),
        ("18a", "5.0.0", max("\"4.23\""), INC, vec!["version 5.1:"]),
        ("18b", "5.0.0", max("\"5.0\""), INC, vec!["version 5.1:"]),
        ("19", "5.0.0", max("\"5.1\""), None, vec![]),
        ("20", "5.1.0", max("\"5.1\""), INC, vec!["version 5.2:"]),
        ("21", "4.17.0", Some(String::new()), FAIL,
            vec!["error with cluster extension e: error in bundle b.v1: could not convert olm.properties: failed to unmarshal"]),
        ("22a", "4.17.0", Some("abcd".into()), FAIL, vec!["could not convert olm.properties"]),
        ("22b", "4.17.0", Some("{}".into()), FAIL, vec!["could not convert olm.properties"]),
        ("23", "4.17.0", Some("null".into()), None, vec![]),
        ("24", "4.17.0", max("\"4.18.0\""), FAIL,
            vec!["error(s) with cluster extension e: error in bundle b.v1: error converting to semver for version \"4.18.0\": "]),
        ("26", "4.17.0", Some(list(&["\"4.18\"", "\"4.18\""])), FAIL, vec!["more than one olm.maxOpenShiftVersion found in bundle"]),
        ("27", "4.17.0", Some(list(&["\"4.18\"", "\"4.19\""])), FAIL, vec!["more than one olm.maxOpenShiftVersion found in bundle"]),
    ];
    for raw in ["\"v4.18\"", "\"4\"", "\"\"", "true", "null", "4.19e1", "5.00"] {
        cases.push(("25", "4.17.0", max(raw), FAIL, vec![raw]));
    }
    cases
}

#[test]
fn cases_2_to_27_one_bundle() {
    for (case, cluster, properties, reason, parts) in one_bundle_cases() {
        let report = report(cluster, &[bundle("e", "b.v1", properties.as_deref())]);
        let message = report.message(200);
        assert_eq!(report.reason(), reason, "case {case}: {message:?}");
        assert_eq!(message.is_some(), reason.is_some(), "case {case}");
        for part in parts {
            let message = message.clone().unwrap_or_default();
            assert!(message.contains(part), "case {case}: {part:?} is not in {message:?}");
        }
    }
}

#[test]
fn case_1_nothing_installed() {
    let report = report("4.17.0", &[]);
    assert!(report.is_open());
    assert_eq!((report.reason(), report.message(200)), (None, None));
}

#[test]
fn case_10_the_patch_does_not_count() {
    let bundles = [bundle("e", "b.v1", Some(&list(&["\"4.18\""])))];
    assert_eq!(report("4.18.57", &bundles).message(200), report("4.18.0", &bundles).message(200));
    assert_eq!(report("4.18.0-rc1", &bundles).message(200), report("4.18.0", &bundles).message(200));
}

#[test]
fn cases_28_to_31_several_extensions() {
    let (now, later) = (list(&["\"4.17\""]), list(&["\"4.18\""]));
    let message = |bundles: &[Bundle]| report("4.17.0", bundles).message(0).unwrap_or_default();
    let head = "Found ClusterExtensions that require upgrades prior to upgrading cluster to version 4.18: ";
    assert_eq!(
        message(&[bundle("e1", "z.v1", Some(&now)), bundle("e2", "a.v1", Some(&now))]),
        format!(
            "{head}bundle \"a.v1\" for ClusterExtension \"e2\",bundle \"z.v1\" for ClusterExtension \"e1\"."
        ),
        "case 28"
    );
    assert_eq!(
        message(&[bundle("e1", "b.v1", Some(&now)), bundle("e2", "b.v1", Some(&later))]),
        format!("{head}bundle \"b.v1\" for ClusterExtension \"e1\"."),
        "case 29"
    );
    let mixed = [bundle("e2", "b.v1", Some("x")), bundle("e1", "b.v1", Some(&now))];
    let text = message(&mixed);
    let parts = "bundle \"b.v1\" for ClusterExtension \"e1\".\n Additionally the following errors were encountered \
                 while getting extension metadata: error with cluster extension e2: error in bundle b.v1: could not";
    assert!(text.contains(parts), "case 30: {text}");
    assert_eq!(report("4.17.0", &mixed).reason(), INC, "case 30");
    assert_eq!(
        message(&[bundle("e2", "b.v1", Some(&now)), bundle("e1", "b.v1", Some(&now))]),
        format!(
            "{head}bundle \"b.v1\" for ClusterExtension \"e1\",bundle \"b.v1\" for ClusterExtension \"e2\"."
        ),
        "case 31"
    );
}

#[test]
fn gate_errors_are_sorted_by_name() {
    let bundles = ["c", "a", "b"].map(|name| bundle(name, "x.v1", Some("x")));
    let message = report("4.17.0", &bundles).message(200).unwrap();
    let names: Vec<_> = message.lines().map(|line| &line[.."error with cluster extension a".len()]).collect();
    assert_eq!(names, ["a", "b", "c"].map(|name| format!("error with cluster extension {name}")));
}

#[test]
fn gate_message_ends_with_limits_and_fix() {
    let both =
        [bundle("e1", "a.v1", Some(&list(&["\"4.17\""]))), bundle("e2", "b.v1", Some(&list(&["\"4.9\""])))];
    let one = report("4.17.0", &both[..1]).message(200).unwrap();
    assert!(one.ends_with("\"e1\". Declared to run on at most: a.v1 4.17; upgrade or remove it"), "{one}");
    let two = report("4.17.0", &both).message(200).unwrap();
    assert!(
        two.ends_with(" Declared to run on at most: a.v1 4.17, b.v1 4.9; upgrade or remove them"),
        "{two}"
    );
    let tight = report("4.17.0", &both).message(70).unwrap();
    assert!(
        tight.ends_with(" Declared to run on at most: 4.9 (1), 4.17 (1); upgrade or remove them"),
        "{tight}"
    );
}

#[test]
fn case_50_many_extensions() {
    let bundles: Vec<Bundle> = (0..500)
        .rev()
        .map(|n| {
            let limit = if n < 100 { "\"4.17\"" } else { "\"4.30\"" };
            bundle(&format!("e{n:03}"), &format!("b{n:03}.v1"), Some(&list(&[limit])))
        })
        .collect();
    let report = report("4.17.0", &bundles);
    let message = report.message(200).unwrap();
    assert_eq!((report.blocking.len(), report.fitting.len()), (100, 400));
    let found: Vec<usize> = (0..100).map(|n| message.find(&format!("\"e{n:03}\"")).unwrap()).collect();
    assert!(found.is_sorted());
    assert!(message.ends_with("Declared to run on at most: 4.17 (100); upgrade or remove them"), "{message}");
}

fn revision(extension: &str, number: i64, lifecycle: Lifecycle, bundle: &str) -> Revision {
    Revision {
        extension: extension.to_owned(),
        number,
        lifecycle,
        bundle: bundle.to_owned(),
        properties: None,
    }
}

#[test]
#[rustfmt::skip]
fn cases_34_to_37_which_revision_counts() {
    use Lifecycle::{Active, Archived};
    let revisions = |all: &[(i64, Lifecycle, &str)]| -> Vec<Revision> {
        all.iter().map(|(number, lifecycle, bundle)| revision("e", *number, *lifecycle, bundle)).collect()
    };
    for (case, all, installed, want) in [
        ("34: archived ones do not count", vec![(1, Archived, "b.v1"), (2, Active, "b.v2")], Some("b.v2"), vec!["b.v2"]),
        ("34, the status is late", vec![(1, Archived, "b.v1"), (2, Active, "b.v2")], Some("b.v1"), vec!["b.v2"]),
        ("35: the newest counts, and the installed one too", vec![(2, Active, "b.v2"), (3, Active, "b.v3")], Some("b.v2"),
            vec!["b.v3", "b.v2"]),
        ("35: nothing is installed", vec![(2, Active, "b.v2"), (3, Active, "b.v3")], None, vec!["b.v3"]),
        ("given in another order", vec![(3, Active, "b.v3"), (2, Active, "b.v2")], Some("b.v3"), vec!["b.v3"]),
        ("ten is more than nine", vec![(9, Active, "b.v9"), (10, Active, "b.v10")], None, vec!["b.v10"]),
        ("two revisions of one bundle", vec![(1, Active, "b.v1"), (2, Active, "b.v1")], Some("b.v1"), vec!["b.v1"]),
        ("a superseded rollout between them", vec![(1, Active, "b.v1"), (2, Active, "b.v2"), (3, Active, "b.v3")], Some("b.v1"),
            vec!["b.v3", "b.v1"]),
        ("36: all archived", vec![(1, Archived, "b.v1")], Some("b.v1"), vec![]),
        ("none", vec![], None, vec![]),
    ] {
        let all = revisions(&all);
        let counted = counted([("e", installed)], &all);
        let names: Vec<&str> = counted.iter().map(|bundle| bundle.name.as_str()).collect();
        assert_eq!(names, want, "{case}");
    }
    // 37, and a revision that outlives its extension
    let without_extension = [revision("", 1, Active, "b.v1"), revision("gone", 1, Active, "b.v1")];
    assert_eq!(counted([("e", None)], &without_extension), []);
}

#[test]
fn gate_accepts_any_target() {
    for (target, limit, open) in [
        ("4.20", "4.20", true),
        ("4.20", "4.19", false),
        ("4.23", "4.23", true),
        ("5.0", "4.23", true),
        ("5.0", "4.22", false),
        ("5.1", "5.0", false),
        ("5.1", "5.1", true),
        ("6.0", "5.9", false),
    ] {
        let target = Stream::of_target(target).unwrap();
        let bundles = [bundle("e", "b", Some(&list(&[&format!("\"{limit}\"")])))];
        assert_eq!(judge(target.before(), target, &bundles).is_open(), open, "{limit} on {target}");
    }
}

#[test]
fn gate_counts_bundles_of_olm_classic() {
    let csv = |name: &str, value: &str| Bundle {
        owner: Owner::Csv(format!("ns/{name}")),
        name: name.to_owned(),
        properties: Some(list(&[value])),
    };
    let message = |bundles: &[Bundle]| report("4.18.0", bundles).message(0).unwrap_or_default();
    assert_eq!(message(&[csv("a.v1", "\"4.19.0\""), csv("b.v1", "\"v4.19\"")]), "");
    let one = message(&[csv("a.v1", "\"4.18.0\"")]);
    assert!(one.starts_with("Found ClusterServiceVersions that require upgrades"), "{one}");
    assert!(one.ends_with("version 4.19: bundle \"a.v1\" for ClusterServiceVersion \"ns/a.v1\"."), "{one}");
    let both = message(&[csv("a.v1", "\"4.18\""), bundle("e", "b.v1", Some(&list(&["\"4.18\""])))]);
    assert!(both.starts_with("Found ClusterExtensions and ClusterServiceVersions that"), "{both}");
    let unreadable = message(&[csv("a.v1", "true")]);
    assert!(
        unreadable.starts_with("error(s) with ClusterServiceVersion ns/a.v1: error in bundle a.v1: "),
        "{unreadable}"
    );
}

#[test]
fn gate_reads_both_annotations_of_a_csv() {
    let own = list(&["\"4.18\""]);
    let recorded = format!("{{\"properties\":{}}}", list(&["\"4.19\""]));
    let other = r#"{"properties":[{"type":"olm.gvk","value":{}}]}"#;
    for (recorded, own, want) in [
        (None, None, None),
        (None, Some(&*own), Some("4.18")),
        (Some(other), Some(&*own), Some("4.18")),
        (Some(&*recorded), None, Some("4.19")),
        (Some(&*recorded), Some(&*own), Some("4.19")),
    ] {
        let annotations: BTreeMap<&str, String> = [(RECORDED_PROPERTIES, recorded), (OWN_PROPERTIES, own)]
            .into_iter()
            .filter_map(|(key, text)| Some((key, text?.to_owned())))
            .collect();
        let bundle = Bundle::from_csv("ns", "a.v1", |key| annotations.get(key));
        let limit = bundle.properties.and_then(|text| csv_limit(&text).ok().flatten());
        assert_eq!(limit.map(|limit| limit.stream.to_string()).as_deref(), want, "{annotations:?}");
    }
}
