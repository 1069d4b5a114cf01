//! The report beside the answer: rules, nearest misses, ways, findings.

use olm_resolver::resolve;
use serde_json::json;

use crate::common::{Ask, Pkg, broken, catalog, without_package};

fn chain() -> Pkg {
    Pkg::new("p")
        .bundles(&["1.1.0", "1.2.0", "1.3.0", "1.4.0"])
        .channel("stable", &["1.1.0", "1.2.0 r 1.1.0", "1.3.0 r 1.2.0", "1.4.0 r 1.2.0 s 1.3.0"])
        .channel("fast", &["1.4.0 r 1.1.0"])
}

#[test]
#[rustfmt::skip]
fn report_nearest_misses_name_rule_and_fix() {
    let wide = Pkg::new("p").bundles(&["2.0.0"]).channel("stable", &["2.0.0 sr >=1.0.0 <3.0.0"]);
    let pre = Pkg::new("p").bundles(&["1.0.0", "2.0.0-rc.1"]);
    let ask = Ask::default();
    for (ask, package, want) in [
        (
            Ask { installed: Some("1.1.0"), range: "1.4.0", channels: &["stable"], ..ask },
            chain(),
            "1.4.0 matches but no entry in channel stable replaces, skips or covers 1.1.0; 1.2.0 does: go through it, or use SelfCertified",
        ),
        (Ask { installed: Some("1.3.0"), range: ">1.4.0", channels: &["stable"], ..ask }, chain(),
            "there are 4 versions from 1.1.0 to 1.4.0"),
        (
            Ask { installed: Some("1.0.0"), range: "1.4.0", channels: &["stable"], ..ask },
            chain(),
            "1.4.0 matches but no entry in channel stable replaces, skips or covers 1.0.0; upgradeConstraintPolicy: SelfCertified would allow it",
        ),
        (Ask { installed: Some("1.1.0"), range: "1.4.0", channels: &["stable2", "stable"], ..ask },
            Pkg::new("p").bundles(&["1.1.0", "1.4.0"]).channel("stable", &["1.4.0"]).channel("fast", &["1.4.0 r 1.1.0"]),
            "1.4.0 matches but no entry in the channels asked for replaces, skips or covers 1.1.0; channel fast does: add it to channels"),
        (Ask { installed: Some("2.5.0"), ..ask }, wide,
            "2.0.0 covers 2.5.0 by its skipRange but is lower; upgradeConstraintPolicy: SelfCertified allows going down"),
        (Ask { channels: &["nosuch"], ..ask }, chain(), "the package has no such channel, only \"fast\", \"stable\""),
        (Ask { range: "1.3.0", channels: &["fast"], ..ask }, chain(), "1.3.0 matches but is in channel \"stable\""),
        (Ask { range: ">=1.5.0", ..ask }, pre,
            "2.0.0-rc.1 is a pre-release, which a range only takes if it has one itself, as in >=1.0.0-0"),
        (Ask { range: "9", ..ask }, Pkg::new("p").bundles(&["1.0.0"]), "the only version is 1.0.0"),
        (Ask { range: "1", ..ask }, Pkg::new("p").bundle("x", json!([])),
            "bundle p.vx has no version: no package property found in bundle \"p.vx\""),
    ] {
        let outcome = resolve(&ask.request("p"), &[catalog("a", 0, &package)]);
        let error = outcome.result.unwrap_err();
        assert_eq!(error.hint().as_deref(), Some(want), "{error}");
        assert!(error.condition_message().starts_with(&error.to_string()));
    }
    let nothing = |sources: &[_]| resolve(&ask.request("p"), sources).result.unwrap_err().hint().unwrap();
    assert_eq!(nothing(&[]), "no available catalog matches spec.source.catalog.selector");
    assert_eq!(nothing(&[without_package("a")]), "the selected catalog a does not hold the package");
    let want = "none of the 2 selected catalogs holds the package";
    assert_eq!(nothing(&[without_package("a"), without_package("b")]), want);
}

#[test]
fn report_has_the_shortest_way() {
    let ask = Ask { installed: Some("1.1.0"), range: "1.4.0", channels: &["stable"], ..Ask::default() };
    let report = resolve(&ask.request("p"), &[catalog("a", 0, &chain())]).report;
    let steps: Vec<String> = report
        .upgrade_path()
        .unwrap()
        .iter()
        .map(|step| format!("{} {} {}", step.version, step.by, step.channel))
        .collect();
    assert_eq!(steps, ["1.2.0 replaces stable", "1.4.0 replaces stable"]);
}

#[test]
fn report_is_complete() {
    let package = chain()
        .bundle("bad", json!([{"type": "olm.package", "value": {"packageName": "p", "version": "1.0"}}]))
        .channel("odd", &["9.9.9", "1.2.0 sr ^1.0.0"])
        .deprecate_bundles(&["1.4.0"]);
    let ask = Ask { installed: Some("1.1.0"), range: ">=1.1.0 <1.4.0", ..Ask::default() };
    let sources = [
        catalog("one", 0, &package),
        catalog("two", -1, &chain()),
        broken("three", 0, "connection refused"),
        without_package("four"),
    ];
    insta::assert_yaml_snapshot!(resolve(&ask.request("p"), &sources).report.view());
}
