//! The constraints of bundles on the cluster: which bundle is chosen, and what is reported of the others (decision 34).

use std::sync::Arc;

use olm_resolver::{
    CatalogSource, ClusterFacts, End, Environment, EnvironmentConstraints, Installed, MajorUpdates,
    PackageGraph, PathQuery, Policy, Request, RuleSet, Rules, Target, path, resolve,
};
use serde_json::{Value, json};

use crate::common::{Ask, Pkg, catalog, short};

const UNMET: &str = "it needs Kubernetes 1.40.0 or later (minKubeVersion), and the cluster has 1.33.1";

/// A package whose bundles have these lowest versions of Kubernetes, in one channel in which each replaces the one before.
fn package(bundles: &[(&str, &str)]) -> Pkg {
    let properties = |version: &str, lowest: &str| -> Value {
        json!([
            {"type": "olm.package", "value": {"packageName": "p", "version": version}},
            {"type": "olm.csv.metadata", "value": {"minKubeVersion": lowest}},
        ])
    };
    let mut package = Pkg::new("p");
    let mut entries = Vec::new();
    for (at, (version, lowest)) in bundles.iter().enumerate() {
        package = package.bundle(version, properties(version, lowest));
        entries.push(match at {
            0 => (*version).to_owned(),
            _ => format!("{version} r {}", bundles[at - 1].0),
        });
    }
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    package.channel("stable", &entries)
}

fn environment(constraints: EnvironmentConstraints) -> Environment {
    let cluster = ClusterFacts { version: Some("v1.33.1".parse().unwrap()), apis: None };
    Environment { constraints, cluster: Arc::new(cluster) }
}

fn request(ask: Ask<'_>, constraints: EnvironmentConstraints) -> Request {
    Request { environment: environment(constraints), ..ask.request("p") }
}

#[test]
#[rustfmt::skip]
fn environment_decides_between_bundles() {
    use EnvironmentConstraints::{Ignore, Refuse, Skip};
    let newest = package(&[("1.0.0", ""), ("1.1.0", "1.33.0"), ("1.2.0", "1.40.0")]);
    let all = package(&[("1.0.0", "1.40.0")]);
    let lower = package(&[("1.0.0", ""), ("1.2.0", "1.40.0")]);
    let none = Ask::default();
    let installed = |version| Ask { installed: Some(version), ..none };
    let refused = format!("E: bundle p.v1.2.0 of catalog a is refused: {UNMET}");
    let no_match = "E: no bundles found for package \"p\"";
    for (package, ask, constraints, want, unfit) in [
        (&newest, none, Skip, "1.1.0@a", Some("p.v1.2.0")),
        (&newest, none, Refuse, &refused, None),
        (&newest, none, Ignore, "1.2.0@a", None),
        (&all, none, Skip, no_match, Some("p.v1.0.0")),
        // what is installed stays, whatever it needs
        (&newest, installed("1.1.0"), Skip, "1.1.0@a", Some("p.v1.2.0")),
        (&newest, installed("1.1.0"), Refuse, &refused, None),
        (&newest, installed("1.2.0"), Skip, "1.2.0@a", None),
        (&newest, installed("1.2.0"), Refuse, "1.2.0@a", None),
        // and is not replaced by a lower one, even if the catalog does not have it
        (&lower, Ask { self_certified: true, ..installed("1.1.0") }, Skip,
            "E: error upgrading from currently installed version \"1.1.0\": no bundles found for package \"p\"", Some("p.v1.2.0")),
        // but the user may ask for one
        (&newest, Ask { self_certified: true, range: "<1.1.0", ..installed("1.1.0") }, Skip, "1.0.0@a", None),
    ] {
        let outcome = resolve(&request(ask, constraints), &[catalog("a", 0, package)]);
        let found = outcome.unfit.as_ref().map(|unfit| unfit.bundle.as_str());
        assert_eq!((short(&outcome).as_str(), found), (want, unfit), "{:?} {constraints}", ask.installed);
    }
    // the cluster is not known: nothing is judged
    let unknown = resolve(&none.request("p"), &[catalog("a", 0, &newest)]);
    assert_eq!((short(&unknown).as_str(), unknown.unfit), ("1.2.0@a", None));
}

#[test]
fn environment_takes_the_next_best_of_all_catalogs() {
    let (first, second) = (package(&[("1.0.0", ""), ("1.2.0", "1.40.0")]), package(&[("1.1.0", "")]));
    for (priority, want) in [(0, "1.0.0@a"), (2, "1.1.0@b")] {
        let sources = [catalog("a", 1, &first), catalog("b", priority, &second)];
        let outcome = resolve(&request(Ask::default(), EnvironmentConstraints::Skip), &sources);
        assert_eq!(short(&outcome), want);
    }
}

#[test]
fn environment_report_names_bundle_constraint_and_cluster() {
    let package = package(&[("1.0.0", "1.40.0")]);
    let outcome =
        resolve(&request(Ask::default(), EnvironmentConstraints::Skip), &[catalog("a", 0, &package)]);
    let unfit = outcome.unfit.unwrap().to_string();
    assert_eq!(unfit, format!("bundle p.v1.0.0 of catalog a is skipped: {UNMET}"));
    let candidate = outcome.report.view().catalogs.remove(0).candidates.remove(0);
    assert_eq!((candidate.rule, candidate.why.as_str()), ("environment", UNMET));
    let want = format!("no bundles found for package \"p\"; bundle p.v1.0.0 does not fit: {UNMET}");
    assert_eq!(outcome.result.unwrap_err().condition_message(), want);
    let refused =
        resolve(&request(Ask::default(), EnvironmentConstraints::Refuse), &[catalog("a", 0, &package)]);
    let view = refused.report.view().catalogs.remove(0);
    let want =
        ("its bundle is refused because the cluster does not meet its constraints", "environment", false);
    assert_eq!((view.outcome.as_str(), view.candidates[0].rule, view.candidates[0].kept), want);
}

#[test]
fn environment_is_a_rule_of_versions_and_paths() {
    let graph = package(&[("1.0.0", ""), ("1.1.0", "1.40.0"), ("1.2.0", "")]).graph();
    let installed = Ask { installed: Some("1.0.0"), ..Ask::default() };
    let asked = request(installed, EnvironmentConstraints::Skip);
    let rules = Rules::new(&asked, &graph);
    let eligible: Vec<bool> = graph.bundles().map(|bundle| rules.eligible(bundle).is_ok()).collect();
    assert_eq!(eligible, [true, false, true]);
    let query = |constraints| PathQuery {
        graph: Arc::clone(&graph),
        from: Some(Installed::parse("p.v1.0.0", "1.0.0", None).unwrap()),
        to: Target::Version("1.2.0".parse().map(olm_core::VersionRelease::legacy).unwrap()),
        channels: vec![],
        range: None,
        policy: Policy::CatalogProvided,
        major_updates: MajorUpdates::Automatic,
        environment: environment(constraints),
    };
    for (constraints, hops, end, reached) in [
        (EnvironmentConstraints::Ignore, vec!["p.v1.1.0", "p.v1.2.0"], End::Stays, true),
        (EnvironmentConstraints::Skip, vec![], End::Stays, false),
        (
            EnvironmentConstraints::Refuse,
            vec![],
            End::Error(format!(
                "bundle p.v1.1.0 of catalog catalog is refused: {UNMET}; narrow spec.source.catalog.version or channels to bundles \
                 that fit the cluster"
            )),
            false,
        ),
    ] {
        let found = path(&query(constraints), RuleSet::V1);
        let names: Vec<&str> = found.hops.iter().map(|hop| hop.bundle.as_str()).collect();
        assert_eq!((names, &found.end, found.reached), (hops, &end, reached), "{constraints}");
    }
    let walked = path(&query(EnvironmentConstraints::Skip), RuleSet::V1);
    assert_eq!(walked.not_offered[0].why, "no entry replaces, skips or covers 1.0.0");
    assert_eq!(walked.not_offered[1].why, UNMET);
}

/// What cannot be read asks for nothing, and is a finding.
#[test]
fn environment_that_cannot_be_read_is_a_finding() {
    let package = package(&[("1.0.0", "latest")]);
    let source: CatalogSource = catalog("a", 0, &package);
    let graph: Arc<PackageGraph> = source.content.clone().unwrap();
    let findings: Vec<String> =
        graph.findings().iter().map(|it| format!("{}: {}", it.place, it.message)).collect();
    let want = [
        "bundle \"p.v1.0.0\": minKubeVersion: \"latest\" is no version of Kubernetes; write it like 1.33 or v1.33.1",
    ];
    assert_eq!(findings, want);
    let outcome = resolve(&request(Ask::default(), EnvironmentConstraints::Refuse), &[source]);
    assert_eq!(short(&outcome), "1.0.0@a");
}
