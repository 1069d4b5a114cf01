//! The worked cases of operator-controller §4.11, by number.

use crate::common::{Ask, Pkg, broken, catalog, resolve_short, without_package};
use olm_core::{Range, VersionRelease};
use olm_resolver::{
    CatalogSource, Environment, Installed, MajorUpdates, PackageGraph, Policy, ReleaseField, Request,
    ResolveError, Skipped, parse_range, resolve,
};
use serde_json::json;

fn p() -> Pkg {
    Pkg::new("p")
        .bundles(&["0.1.0", "1.0.0", "1.0.1", "1.0.2", "2.0.0", "3.0.0"])
        .channel(
            "alpha",
            &["0.1.0", "1.0.0 sr <1.0.0", "1.0.1 sr <1.0.1", "1.0.2 sr <1.0.2", "2.0.0 sr >=1.0.0 <2.0.0"],
        )
        .channel("beta", &["0.1.0", "1.0.2 sr <1.0.2"])
        .channel("gamma", &["3.0.0 sr >=2.0.0 <3.0.0"])
        .deprecate_bundles(&["1.0.0", "1.0.1"])
}

fn q() -> Pkg {
    Pkg::new("q").bundles(&["2.0.0", "2.0.0+1", "2.1.0", "2.2.0", "2.2.1", "2.3.0", "2.4.0"]).channel(
        "stable",
        &[
            "2.0.0",
            "2.1.0 r 2.0.0",
            "2.2.0 r 2.1.0 s 2.0.0+1",
            "2.2.1",
            "2.3.0 r 2.2.0 s 2.2.1",
            "2.4.0 sr >=2.3.0 <2.4.0",
        ],
    )
}

const NO: Ask<'static> = Ask { installed: None, range: "", channels: &[], self_certified: false };

fn ask<'a>(range: &'a str) -> Ask<'a> {
    Ask { range, ..NO }
}

#[test]
fn case_01_bad_range() {
    let want = r#"desired version range "foobar" is invalid: improper constraint: "foobar""#;
    assert_eq!(parse_range("foobar").unwrap_err().to_string(), want);
}

#[test]
fn cases_02_03_unreadable_catalogs() {
    let text = r#"E: error walking catalogs: error getting package "p" from catalog "a": fake error"#;
    assert_eq!(resolve_short(NO, "p", &[broken("a", 0, "fake error")]), text);
    assert_eq!(
        resolve_short(NO, "p", &[broken("b", 0, "other"), broken("a", 0, "fake error")]),
        text,
        "first by name"
    );
}

/// The messages of operator-controller §4.1 for a catalog whose content is not at hand.
#[test]
fn catalog_problems_in_words() {
    use olm_resolver::CatalogReadError;
    for (problem, want) in [
        (CatalogReadError::NotServing, r#"catalog "a" is not being served"#),
        (CatalogReadError::NotCached, r#"cache for catalog "a" not found"#),
        (CatalogReadError::Fetch("no route".into()), r#"error retrieving cache for catalog "a": no route"#),
        (CatalogReadError::Content("bad json".into()), r#"error loading package "p": bad json"#),
    ] {
        let source = CatalogSource { name: "a".parse().unwrap(), priority: 0, content: Err(problem) };
        let want =
            format!(r#"E: error walking catalogs: error getting package "p" from catalog "a": {want}"#);
        assert_eq!(resolve_short(NO, "p", &[source]), want);
    }
}

/// Several deprecations blobs of a package: the last one counts, as in the reference's cache, with a finding.
#[test]
fn deprecation_last_of_several_blobs_counts() {
    let blob = |version: &str| {
        json!({"schema": "olm.deprecations", "package": "p", "entries":
            [{"reference": {"schema": "olm.bundle", "name": format!("p.v{version}")}, "message": "old"}]})
    };
    let bundle = |version: &str| {
        json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "image": "i", "properties":
            [{"type": "olm.package", "value": {"packageName": "p", "version": version}}]})
    };
    let lines = [bundle("1.0.0"), bundle("2.0.0"), blob("1.0.0"), blob("2.0.0")];
    let (contents, findings) =
        olm_fbc::PackageContents::from_lines("p", lines.map(|line| line.to_string())).unwrap();
    let graph = PackageGraph::new(contents, findings, ReleaseField::Counts);
    let deprecated: Vec<&str> = graph
        .bundles()
        .filter(|&bundle| graph.is_deprecated(bundle))
        .map(|bundle| graph.bundle_name(bundle))
        .collect();
    assert_eq!(deprecated, ["p.v2.0.0"]);
    assert!(graph.findings().iter().any(|finding| finding.message.contains("the last one counts")));
}

#[test]
fn cases_04_05_empty_catalogs() {
    let empty = [without_package("a"), without_package("b"), without_package("c")];
    assert_eq!(resolve_short(NO, "p", &empty), r#"E: no bundles found for package "p""#);
    let one = [without_package("a"), without_package("b"), catalog("c", 0, &p())];
    assert_eq!(resolve_short(NO, "p", &one), "3.0.0@c");
}

#[test]
fn case_06_34_dependencies_are_refused_without_a_second_choice() {
    for kind in ["olm.package.required", "olm.gvk.required", "olm.constraint"] {
        let package = Pkg::new("p").bundles(&["1.0.0"]).bundle(
            "1.1.0",
            json!([{"type": "olm.package", "value": {"packageName": "p", "version": "1.1.0"}}, {"type": kind, "value": {}}]),
        );
        let outcome = resolve(&NO.request("p"), &[catalog("a", 0, &package)]);
        let want = format!(
            r#"validating bundle "p.v1.1.0": bundle "p.v1.1.0" has a dependency declared via property "{kind}" which is currently not supported"#
        );
        assert_eq!(outcome.result.unwrap().refuse_dependencies().unwrap_err().to_string(), want);
    }
}

#[test]
fn cases_07_to_16_first_install_from_one_catalog() {
    let no = r#"E: no bundles found for package "p""#;
    for (number, range, channels, want) in [
        (7, "4.0.0", &[][..], format!(r#"{no} matching version "4.0.0""#)),
        (8, ">=1.0.0 <2.0.0", &[], "1.0.2@a".into()),
        (9, "", &["stable"], format!("{no} in channels [stable]")),
        (10, "", &["beta"], "1.0.2@a".into()),
        (11, "3.0.0", &["beta"], format!(r#"{no} matching version "3.0.0" in channels [beta]"#)),
        (12, "1.0.0", &["stable"], format!(r#"{no} matching version "1.0.0" in channels [stable]"#)),
        (13, "0.1.0", &["alpha"], "0.1.0@a".into()),
        (14, ">=0.1.0 <=1.0.0", &[], "0.1.0@a".into()),
        (15, ">=1.0.0 <=1.0.1", &[], "1.0.1@a".into()),
        (16, "", &["beta", "alpha"], "2.0.0@a".into()),
    ] {
        let ask = Ask { range, channels, ..NO };
        assert_eq!(resolve_short(ask, "p", &[catalog("a", 0, &p())]), want, "case {number}");
    }
}

#[test]
fn cases_17_to_20_deprecation_across_catalogs() {
    let one = |version: &str, deprecated: bool| {
        let package = Pkg::new("p").bundles(&[version]);
        if deprecated { package.deprecate_bundles(&[version]) } else { package }
    };
    let sources = [
        catalog("b", 0, &one("1.0.0", true)),
        catalog("c", 0, &one("1.0.1", true)),
        catalog("d", 0, &one("1.0.2", false)),
        catalog("e", 0, &one("1.0.3", true)),
        catalog("f", 0, &Pkg::new("p").bundles(&["1.0.4", "1.0.5"])),
    ];
    let several = |range: &str, names: &str| {
        format!(
            r#"E: found bundles for package "p" matching version "{range}" in multiple catalogs with the same priority [{names}]"#
        )
    };
    for (number, range, want) in [
        (17, ">=1.0.0 <=1.0.3", "1.0.2@d".to_owned()),
        (18, ">=1.0.0 <=1.0.1", several(">=1.0.0 <=1.0.1", "b c")),
        (19, ">=1.0.0 <=1.0.4", several(">=1.0.0 <=1.0.4", "d f")),
        (20, ">=1.0.4 <=1.0.5", "1.0.5@f".to_owned()),
    ] {
        assert_eq!(resolve_short(ask(range), "p", &sources), want, "case {number}");
        let mut reversed = sources.clone();
        reversed.reverse();
        assert_eq!(resolve_short(ask(range), "p", &reversed), want, "case {number} reversed");
    }
}

#[test]
#[rustfmt::skip]
fn cases_21_to_24_upgrades() {
    let from = |version: &str| {
        format!(
            r#"E: error upgrading from currently installed version "{version}": no bundles found for package "p""#
        )
    };
    for (number, installed, range, self_certified, want) in [
        (21, "0.1.0", "", false, "1.0.2@a".to_owned()),
        (22, "0.1.0", "<1.0.0 >=2.0.0", false, format!(r#"{} matching version "<1.0.0 >=2.0.0""#, from("0.1.0"))),
        (23, "1.0.2", "<1.0.2", true, "0.1.0@a".to_owned()),
        (24, "1.0.2", ">0.1.0 <1.0.0", true, format!(r#"{} matching version ">0.1.0 <1.0.0""#, from("1.0.2"))),
    ] {
        let ask = Ask { installed: Some(installed), range, channels: &[], self_certified };
        assert_eq!(resolve_short(ask, "p", &[catalog("a", 0, &p())]), want, "case {number}");
    }
}

#[test]
fn cases_25_to_30_selection_and_priority() {
    // 25, 26, 29, 30: the selector and availabilityMode decide which catalogs are handed over
    assert_eq!(resolve_short(NO, "p", &[catalog("b", 0, &p())]), "3.0.0@b", "case 25");
    let want = r#"E: no bundles found for package "p""#;
    assert_eq!(resolve_short(NO, "p", &[without_package("a")]), want, "case 26");
    let one = |version: &str| Pkg::new("p").bundles(&[version]);
    let sources = [catalog("a", 1, &one("1.0.0")), catalog("b", 0, &one("1.1.0"))];
    assert_eq!(resolve_short(NO, "p", &sources), "1.0.0@a", "case 27");
    let sources = [catalog("a", 1, &p()), catalog("b", 0, &p()), catalog("c", 1, &p())];
    assert_eq!(
        resolve_short(ask(">=1.0.0 <=1.0.1"), "p", &sources),
        r#"E: found bundles for package "p" matching version ">=1.0.0 <=1.0.1" in multiple catalogs with the same priority [a c]"#,
        "case 28; only the tied ones are listed (decision 5)"
    );
    let want = r#"E: no bundles found for package "p" matching version ">=1.0.0""#;
    assert_eq!(resolve_short(ask(">=1.0.0"), "p", &[]), want, "case 29");
    assert_eq!(resolve_short(ask(">=1.0.0"), "p", &[catalog("a", 1, &p())]), "3.0.0@a", "case 30");
}

/// Versions that may follow an installed bundle, best first.
fn allowed(package: &str, graph: &Pkg, installed: Installed) -> Vec<String> {
    let mut found = Vec::new();
    let mut request = Request {
        package: package.parse().unwrap(),
        channels: vec![],
        range: None,
        policy: Policy::CatalogProvided,
        major_updates: MajorUpdates::Automatic,
        environment: Environment::default(),
        installed: Some(installed),
    };
    // resolve repeatedly for something other than what was found
    let sources = [catalog("a", 0, graph)];
    let outcome = resolve(&request, &sources);
    for candidate in &outcome.report.catalogs[0].candidates {
        use olm_resolver::Decision;
        if matches!(candidate.decision, Decision::Kept(_) | Decision::LowerVersion | Decision::Deprecated) {
            let graph = outcome.report.catalogs[0].graph.as_ref().unwrap();
            found.push(graph.version(candidate.bundle).unwrap().to_string());
        }
    }
    // the set and the choice agree
    request.range = None;
    match outcome.result {
        Ok(resolution) => assert_eq!(resolution.version.to_string(), found[0]),
        Err(error) => assert!(found.is_empty(), "{error}"),
    }
    found
}

#[test]
fn cases_35_to_42_successors() {
    let q = q();
    let installed = |version: &str| Installed::parse(&format!("q.v{version}"), version, None).unwrap();
    for (number, version, want) in [
        (35, "2.0.0", vec!["2.1.0", "2.0.0"]),
        (36, "2.2.1", vec!["2.3.0", "2.2.1"]),
        (37, "2.3.0", vec!["2.4.0", "2.3.0"]),
        (38, "2.0.0+1", vec!["2.2.0", "2.0.0+1"]),
        (39, "9.0.0", vec![]),
    ] {
        assert_eq!(allowed("q", &q, installed(version)), want, "case {number}");
    }
    let unknown = Installed::parse("test-package.v1.0.0", "1.0.0", Some("2")).unwrap();
    assert!(allowed("q", &q, unknown).is_empty(), "case 40");
    let error = Installed::parse("q", "invalid-version", None).unwrap_err().to_string();
    assert!(
        error.starts_with("error walking catalogs: error finding upgrade edges: failed to get version and release of installed bundle: "),
        "case 41: {error}"
    );
    let error = Installed::parse("q", "1.0.0", Some("001")).unwrap_err().to_string();
    assert!(
        error.starts_with("error walking catalogs: error finding upgrade edges: failed to parse installed bundle version and release: "),
        "case 42: {error}"
    );
}

fn order(package: &Pkg) -> Vec<String> {
    let graph = package.graph();
    graph.preference().iter().map(|&bundle| graph.bundle_name(bundle).to_owned()).collect()
}

#[test]
fn cases_43_44_order() {
    let package = Pkg::new("p").bundles(&["1.0.0-alpha+1", "0.0.1", "1.0.0-alpha+2", "1.0.0"]);
    let sorted = ["p.v1.0.0", "p.v1.0.0-alpha+2", "p.v1.0.0-alpha+1", "p.v0.0.1"];
    assert_eq!(order(&package), sorted);
    let package = package
        .bundle("y", json!([{"type": "olm.package", "value": {"packageName": "p"}}]))
        .bundle("z", json!([]));
    let want: Vec<&str> = sorted.into_iter().chain(["p.vy", "p.vz"]).collect();
    assert_eq!(order(&package), want);
}

/// Version and release of a bundle with this `olm.package` value, or the error.
fn read(value: &str, field: ReleaseField) -> String {
    let value: serde_json::Value = serde_json::from_str(value).unwrap();
    let graph = Pkg::new("p").bundle("b", json!([{"type": "olm.package", "value": value}])).graph_with(field);
    let bundle = graph.find_bundle("p.vb").unwrap();
    match graph.version(bundle) {
        Ok(VersionRelease { version, release }) => {
            format!("{version} {:?}", release.as_ref().map(|release| release.as_str()))
        }
        Err(_) => "error".into(),
    }
}

#[test]
fn cases_45_to_52_versions() {
    use ReleaseField::{Counts, Ignored};
    for (number, value, field, want) in [
        (45, r#"{"version":"1.0.0-pre+1.alpha.2"}"#, Counts, r#"1.0.0-pre Some("1.alpha.2")"#),
        (46, r#"{"version":"1.0.0+001"}"#, Counts, "1.0.0+001 None"),
        (47, r#"{"version":"abcd"}"#, Counts, "error"),
        (47, r#"{"version":1}"#, Counts, "error"),
        (47, r#""text""#, Counts, "error"),
        (48, r#"{"version":"1.0.0+ignored","release":"2"}"#, Counts, r#"1.0.0+ignored Some("2")"#),
        (49, r#"{"version":"1.0.0","release":"001"}"#, Counts, "error"),
        (50, r#"{"version":"1.0.0+2","release":""}"#, Counts, r#"1.0.0+2 Some("")"#),
        (51, r#"{"version":"1.0.0+2","release":"999"}"#, Ignored, r#"1.0.0 Some("2")"#),
    ] {
        assert_eq!(read(value, field), want, "case {number}: {value}");
    }
    let reported = VersionRelease::parse("1.0.0", Some("2")).unwrap();
    assert_eq!(reported.folded().to_string(), "1.0.0+2", "case 52, gate off");
    let want = ("1.0.0".into(), "2".into());
    assert_eq!((reported.version.to_string(), reported.release.unwrap().to_string()), want);
}

#[test]
fn resolve_bundle_without_version_is_an_error() {
    let package = Pkg::new("p").bundle("z", json!([]));
    let want = r#"E: error getting resolved bundle version for bundle "p.vz": no package property found in bundle "p.vz""#;
    assert_eq!(resolve_short(NO, "p", &[catalog("a", 0, &package)]), want);
}

#[test]
fn decision_05_who_waits_for_unreadable_catalogs() {
    let good = catalog("m", 5, &p());
    let installed = Ask { installed: Some("1.0.2"), ..NO };
    for (priority, ask, want) in [
        (4, NO, "3.0.0@m"),
        (5, NO, r#"E: error walking catalogs: error getting package "p" from catalog "z": gone"#),
        (6, NO, r#"E: error walking catalogs: error getting package "p" from catalog "z": gone"#),
        (6, installed, "2.0.0@m"),
    ] {
        assert_eq!(
            resolve_short(ask, "p", &[good.clone(), broken("z", priority, "gone")]),
            want,
            "{priority}"
        );
    }
    let deprecated = catalog("m", 5, &p().deprecate_bundles(&["3.0.0", "2.0.0", "1.0.2", "0.1.0"]));
    assert_eq!(
        resolve_short(NO, "p", &[deprecated.clone(), broken("z", 4, "gone")]),
        r#"E: error walking catalogs: error getting package "p" from catalog "z": gone"#,
        "what is not deprecated would win"
    );
    assert_eq!(resolve_short(NO, "p", &[deprecated]), "3.0.0@m");
    let outcome = resolve(&NO.request("p"), &[good.clone(), broken("z", 5, "gone")]);
    let error = outcome.result.unwrap_err();
    assert!(matches!(error, ResolveError::Catalog { .. }));
    let want = r#"error walking catalogs: error getting package "p" from catalog "z": gone; a first install waits for z (priority 5): leave it out by spec.source.catalog.selector here or spec.availabilityMode: Unavailable there"#;
    assert_eq!(error.condition_message(), want);
    let only = [broken("z", 0, "gone")];
    let want = r#"E: error walking catalogs: error getting package "p" from catalog "z": gone"#;
    assert_eq!(resolve_short(installed, "p", &only), want);
    let upgrade = Ask { range: ">5", ..installed };
    let outcome = resolve(&upgrade.request("p"), &[good, broken("z", 9, "gone")]);
    let message = outcome.result.unwrap_err().condition_message();
    assert!(message.starts_with(
        r#"error upgrading from currently installed version "1.0.2": no bundles found for package "p" matching version ">5"; left out because unreadable: z"#
    ), "{message}");
}

#[test]
fn decision_22_a_skip_range_does_not_lead_down() {
    let range = Pkg::new("p").bundles(&["2.0.0"]).channel("stable", &["2.0.0 sr >=1.0.0 <3.0.0"]);
    let named = Pkg::new("p").bundles(&["2.0.0"]).channel("stable", &["2.0.0 r 2.5.0"]);
    let down = Ask { installed: Some("2.5.0"), ..NO };
    assert!(resolve_short(down, "p", &[catalog("a", 0, &range)]).starts_with("E: error upgrading"));
    assert_eq!(resolve_short(down, "p", &[catalog("a", 0, &named)]), "2.0.0@a");
    assert_eq!(
        resolve_short(Ask { self_certified: true, ..down }, "p", &[catalog("a", 0, &range)]),
        "2.0.0@a"
    );
}

#[test]
fn decision_23_the_same_bundle_twice_is_not_ambiguous() {
    let at = |image: &str, version: &str| {
        let graph = olm_resolver::GraphDraft {
            package: "p".into(),
            bundles: vec![olm_resolver::BundleDraft {
                name: "p.v1".into(),
                image: image.into(),
                version: Ok((version.into(), None)),
                ..Default::default()
            }],
            ..Default::default()
        };
        std::sync::Arc::new(graph.build(ReleaseField::Counts))
    };
    let source = |name: &str, graph: &std::sync::Arc<PackageGraph>| CatalogSource {
        name: name.parse().unwrap(),
        priority: 0,
        content: Ok(graph.clone()),
    };
    let digest = format!("quay.io/p@sha256:{}", "1".repeat(64));
    let by_digest = at(&digest, "1.0.0");
    let by_tag = at("quay.io/p:v1", "1.0.0");
    assert_eq!(resolve_short(NO, "p", &[source("b", &by_digest), source("a", &by_digest)]), "1.0.0@a");
    assert!(
        resolve_short(NO, "p", &[source("b", &by_tag), source("a", &by_tag)]).starts_with("E: found bundles")
    );
    assert!(
        resolve_short(NO, "p", &[source("b", &by_digest), source("a", &by_tag)])
            .starts_with("E: found bundles")
    );
    let other = at(&digest, "1.0.0+1");
    assert!(
        resolve_short(NO, "p", &[source("b", &by_digest), source("a", &other)])
            .starts_with("E: found bundles")
    );
    let mut request = NO.request("p");
    request.installed = Some(Installed::parse("p.v1", "1.0.0", None).unwrap());
    let outcome = resolve(&request, &[source("b", &by_tag), source("a", &by_tag)]);
    assert_eq!(crate::common::short(&outcome), "1.0.0@a", "all mean the installed bundle");
}

#[test]
fn ranges_do_not_see_releases() {
    assert!(Range::masterminds("1.0.0+1").unwrap().contains(&"1.0.0+2".parse().unwrap()));
    let package = Pkg::new("p").bundles(&["2.0.0", "2.0.0+1"]);
    assert_eq!(resolve_short(ask("2.0.0"), "p", &[catalog("a", 0, &package)]), "2.0.0+1@a");
}

#[test]
fn resolver_takes_the_installed_one_of_equal_versions() {
    let bundle = |name: &str| olm_resolver::BundleDraft {
        name: name.into(),
        image: format!("quay.io/{name}:1"),
        version: Ok(("1.0.0".into(), None)),
        ..Default::default()
    };
    let draft = olm_resolver::GraphDraft {
        package: "p".into(),
        bundles: vec![bundle("z"), bundle("a"), bundle("m")],
        ..Default::default()
    };
    let source = CatalogSource {
        name: "c".parse().unwrap(),
        priority: 0,
        content: Ok(std::sync::Arc::new(draft.build(ReleaseField::Counts))),
    };
    for installed in ["a", "m", "z"] {
        let mut request = NO.request("p");
        request.installed = Some(Installed::parse(installed, "1.0.0", None).unwrap());
        let found = resolve(&request, std::slice::from_ref(&source)).result.unwrap();
        assert_eq!(found.bundle.as_str(), installed);
    }
    assert_eq!(
        resolve(&NO.request("p"), &[source]).result.unwrap().bundle.as_str(),
        "a",
        "by name otherwise"
    );
}

/// A range that leaves the head out leads to a bundle that the head skips: CUG-41.
#[test]
fn skipped_bundle_names_what_skips_it() {
    let p = || {
        Pkg::new("p")
            .bundles(&["1.0.0", "1.1.0", "1.2.0", "1.3.0"])
            .channel("stable", &["1.0.0", "1.1.0 r 1.0.0", "1.2.0 r 1.0.0 s 1.1.0", "1.3.0 r 1.2.0"])
            .channel("fast", &["1.1.0", "1.3.0 s 1.1.0"])
            .channel("slow", &["1.0.0", "1.1.0 r 1.0.0"])
    };
    for (range, channels, want) in [
        ("<1.2.0", &[][..], Some(("p.v1.3.0", "fast"))),
        ("<1.2.0", &["stable"], Some(("p.v1.2.0", "stable"))),
        ("<1.2.0", &["slow"], None),
        ("<1.3.0", &[], None),
        ("", &[], None),
        ("", &["slow"], None),
    ] {
        let request = Request {
            range: parse_range(range).unwrap(),
            channels: channels.iter().map(|name| name.parse().unwrap()).collect(),
            ..Request::new("p".parse().unwrap())
        };
        let chosen = resolve(&request, &[catalog("a", 0, &p())]).result.unwrap();
        let found = Skipped::find(&chosen, &request.channels, request.range.as_ref());
        let found = found.as_ref().map(|it| (it.by.as_str(), it.channel.as_str()));
        assert_eq!(found, want, "{range} {channels:?}");
    }
    let request = Request { range: parse_range("<1.2.0").unwrap(), ..Request::new("p".parse().unwrap()) };
    let chosen = resolve(&request, &[catalog("a", 0, &p())]).result.unwrap();
    assert_eq!(Skipped::find(&chosen, &[], None).map(|it| it.to_string()), None, "without a range");
    assert_eq!(
        Skipped::find(&chosen, &[], request.range.as_ref()).unwrap().to_string(),
        "bundle p.v1.1.0 is skipped by p.v1.3.0 in channel fast, so its author replaced it; the range \"<1.2.0\" leaves p.v1.3.0 out: \
         widen spec.source.catalog.version to install that instead"
    );
}
