//! The dependency check: meanings of constraints from update-graph §7.2, cut down to what is already there.

use std::collections::BTreeSet;

use olm_core::CatalogName;
use olm_resolver::{
    DependencyFacts, DependencyReport, GvkRef, InstalledPackage, PackageGraph, Property, dependencies, needed,
};
use serde_json::{Value, json};

use crate::common::Pkg;

fn gvk(kind: &str, version: &str) -> GvkRef {
    GvkRef { group: "example.com".into(), version: version.into(), kind: kind.into() }
}

fn provides(kind: &str, version: &str) -> Value {
    json!({"group": "example.com", "version": version, "kind": kind})
}

fn package(
    name: &str,
    version: &str,
    provides: Option<Vec<GvkRef>>,
    properties: &[(&str, &str)],
) -> InstalledPackage {
    InstalledPackage {
        package: name.parse().unwrap(),
        version: version.parse().unwrap(),
        provides,
        properties: properties
            .iter()
            .map(|(kind, value)| Property { kind: (*kind).into(), value: (*value).into() })
            .collect(),
    }
}

/// Checks bundle red 1.0.0 with these properties.
fn check(
    properties: &[(&str, Value)],
    facts: &DependencyFacts,
    catalogs: &[(CatalogName, &PackageGraph)],
) -> DependencyReport {
    let mut all = vec![json!({"type": "olm.package", "value": {"packageName": "red", "version": "1.0.0"}})];
    all.extend(properties.iter().map(|(kind, value)| json!({"type": kind, "value": value})));
    let graph = Pkg::new("red").bundle("1.0.0", Value::Array(all)).graph();
    dependencies(&graph, graph.find_bundle("red.v1.0.0").unwrap(), facts, catalogs)
}

fn constraint(value: Value) -> (&'static str, Value) {
    ("olm.constraint", value)
}

fn needs_package(name: &str, range: &str) -> Value {
    json!({"packageName": name, "versionRange": range})
}

#[test]
#[rustfmt::skip]
fn dependencies_are_met_by() {
    let blue = |version: &str, apis: Vec<GvkRef>| DependencyFacts {
        apis: BTreeSet::new(),
        installed: vec![package("blue", version, Some(apis), &[])],
    };
    let served =
        |apis: &[GvkRef]| DependencyFacts { apis: apis.iter().cloned().collect(), installed: vec![] };
    let nothing = DependencyFacts::default();
    let all = |parts: Value| constraint(json!({"all": {"constraints": parts}}));
    let any = |parts: Value| constraint(json!({"any": {"constraints": parts}}));
    let blue_or = any(
        json!([{"gvk": provides("Blue", "v1beta1")}, {"gvk": provides("Blue", "v1beta2")}, {"gvk": provides("Blue", "v1")}]),
    );
    let blue_and_green =
        all(json!([{"package": needs_package("blue", ">=1.0.0")}, {"gvk": provides("Green", "v1")}]));
    let blue_not_green = all(json!([
        {"package": needs_package("blue", ">=1.0.0")}, {"not": {"constraints": [{"gvk": provides("Green", "v1alpha1")}]}}
    ]));
    let versions = any(json!([
        {"all": {"constraints": [{"package": needs_package("blue", ">=1.0.0")}, {"gvk": provides("Blue", "v1")}]}},
        {"all": {"constraints": [{"package": needs_package("blue", "<1.0.0")}, {"gvk": provides("Blue", "v1beta1")}]}},
    ]));
    let certified = constraint(json!({"cel": {"rule": "properties.exists(p, p.type == \"certified\")"}}));
    let both = constraint(
        json!({"cel": {"rule": "properties.exists(p, p.type == 'certified') && properties.exists(p, p.type == 'stable')"}}),
    );
    let recent = constraint(
        json!({"cel": {"rule": "properties.exists(p, p.type == 'x' && semver_compare(p.value, '1.0.0') >= 0)"}}),
    );
    let with = |installed: Vec<InstalledPackage>| DependencyFacts { apis: BTreeSet::new(), installed };
    let green = |properties: &[(&str, &str)]| package("green", "1.0.0", Some(vec![]), properties);
    for (case, need, facts, met) in [
        ("an API that is served", ("olm.gvk.required", provides("Foo", "v1")), served(&[gvk("Foo", "v1")]), true),
        ("another version of it", ("olm.gvk.required", provides("Foo", "v1")), served(&[gvk("Foo", "v2")]), false),
        ("nothing there", ("olm.gvk.required", provides("Foo", "v1")), nothing.clone(), false),
        ("D7: version range", ("olm.package.required", needs_package("blue", ">0.27.0")), blue("0.28.0", vec![]), true),
        ("D7b: too old", ("olm.package.required", needs_package("blue", ">0.27.0")), blue("0.27.0", vec![]), false),
        ("D9: not the same bundle", blue_and_green.clone(),
            with(vec![package("blue", "1.0.0", Some(vec![]), &[]), package("green", "1.0.0", Some(vec![gvk("Green", "v1")]), &[])]), false),
        ("D9b: the same bundle", blue_and_green.clone(), blue("1.0.0", vec![gvk("Green", "v1")]), true),
        ("D10: any", blue_or.clone(), blue("1.0.0", vec![gvk("Blue", "v1beta2")]), true),
        ("D10c: none of any", blue_or, blue("1.0.0", vec![gvk("Blue", "v1alpha1")]), false),
        ("D11: not", blue_not_green.clone(), blue("1.0.0", vec![]), true),
        ("D11: not, but it does", blue_not_green, blue("1.1.0", vec![gvk("Green", "v1alpha1")]), false),
        ("D11c: a bare not is met by the bundle itself",
            constraint(json!({"not": {"constraints": [{"gvk": provides("Green", "v1alpha1")}]}})), nothing.clone(), true),
        ("D12: nested", versions.clone(), blue("1.0.0", vec![gvk("Blue", "v1")]), true),
        ("D12b: the other branch", versions.clone(), blue("0.9.0", vec![gvk("Blue", "v1beta1")]), true),
        ("D12c: neither", versions, blue("0.9.0", vec![gvk("Blue", "v1")]), false),
        ("D13: cel", certified.clone(), with(vec![green(&[("certified", "true")])]), true),
        ("D13b: none", certified, nothing.clone(), false),
        ("D14: cel over one bundle", both.clone(), with(vec![green(&[("certified", "1"), ("stable", "1")])]), true),
        ("D14b: not over two", both, with(vec![green(&[("certified", "1")]), package("blue", "1.0.0", Some(vec![]), &[("stable", "1")])]),
            false),
        ("D15c: semver_compare", recent.clone(), with(vec![green(&[("x", "\"1.2\"")])]), true),
        ("D15c: too old", recent, with(vec![green(&[("x", "\"0.9.0\"")])]), false),
        ("D28: itself", ("olm.package.required", needs_package("red", ">=1.0.0")), nothing.clone(), true),
        ("provided APIs unknown: the cluster's stand in", blue_and_green,
            DependencyFacts { apis: [gvk("Green", "v1")].into(), installed: vec![package("blue", "1.0.0", None, &[])] }, true),
        ("D17: other properties", ("my.property", json!({"x": 1})), nothing, true),
    ] {
        let report = check(&[need], &facts, &[]);
        assert_eq!(report.unmet.is_empty(), met, "{case}: {report:?}");
    }
}

#[test]
fn dependencies_read_from_properties() {
    let properties = json!([
        {"type": "olm.package", "value": {"packageName": "red", "version": "1.0.0"}},
        {"type": "olm.gvk.required", "value": provides("Blue", "v1")},
        {"type": "olm.package.required", "value": needs_package("green", ">=1.0.0")},
        {"type": "olm.constraint", "value": {"all": {"constraints": [
            {"any": {"constraints": [{"gvk": provides("Green", "v2")}]}},
            {"not": {"constraints": [{"package": needs_package("black", "1.0.0")}]}},
        ]}}},
        {"type": "olm.constraint", "value": {"nonsense": 1}},
    ]);
    let graph = Pkg::new("red").bundle("1.0.0", properties).graph();
    let found = needed(&graph, graph.find_bundle("red.v1.0.0").unwrap());
    assert_eq!(found.apis, BTreeSet::from([gvk("Blue", "v1"), gvk("Green", "v2")]));
    assert_eq!(found.packages, BTreeSet::from(["black".to_owned(), "green".to_owned()]));
    assert!(!found.opaque);
    let rule = json!([{"type": "olm.constraint", "value": {"cel": {"rule": "true"}}}]);
    let graph = Pkg::new("red").bundle("1.0.0", rule).graph();
    assert!(needed(&graph, graph.find_bundle("red.v1.0.0").unwrap()).opaque);
}

#[test]
#[rustfmt::skip]
fn dependencies_that_are_malformed_are_unmet() {
    let huge = |size: usize| json!({"failureMessage": "x".repeat(size), "gvk": provides("Foo", "v1")});
    for (property, want) in [
        (constraint(json!({"package": {"name": "blue", "versionRange": ">=1.0.0"}})),
            r#"parse olm.constraint: json: unknown field "name"; did you mean "packageName"?"#),
        (constraint(json!({"failureMessage": "x"})), "parse olm.constraint: constraint is empty"),
        (constraint(json!({"cel": {"rule": "1"}})), "parse olm.constraint: cel expressions must have type Bool"),
        (constraint(json!({"cel": {"rule": "properties.exists("}})), "parse olm.constraint: exists() in cel rule needs a name first"),
        (constraint(json!([])), "parse olm.constraint: json: expected an object, found a list"),
        (constraint(huge(140_000)), "olm.constraint value is greater than max constraint size 131072 bytes"),
        (
            ("olm.package.required", needs_package("blue", "~1.0.0")),
            r#"parse olm.package.required: invalid versionRange "~1.0.0": Could not parse Range "~1.0.0": Could not parse comparator "~" in "~1.0.0"; there is no ~ here: write >=1.0.0 <1.1.0"#,
        ),
        (("olm.package.required", json!({"versionRange": "1.0.0"})), "parse olm.package.required: packageName must be set"),
        (("olm.package.required", json!({"packageName": "blue", "version": ">1.0.0"})),
            r#"parse olm.package.required: json: unknown field "version"; did you mean "versionRange"?"#),
        (("olm.gvk.required", json!({"kind": "Foo"})), "parse olm.gvk.required: an API needs group, version and kind"),
        (("olm.gvk.required", Value::Null), "parse olm.gvk.required: json: expected an object, found null"),
    ] {
        let report = check(&[property], &DependencyFacts::default(), &[]);
        assert_eq!(report.unmet.iter().map(|unmet| unmet.need.as_str()).collect::<Vec<_>>(), [want]);
    }
    let facts = DependencyFacts { apis: [gvk("Foo", "v1")].into(), installed: vec![] };
    let report = check(&[constraint(huge(70_000))], &facts, &[]);
    assert!(report.unmet.is_empty(), "larger than documented, but taken");
    assert!(report.warnings[0].contains("larger than the documented 65536"), "{:?}", report.warnings);
}

/// A constraint of 60,000 bytes that is read takes a third of what there is, and a rule up to 200,000 steps.
#[test]
fn work_for_the_dependencies_of_a_bundle_is_limited() {
    let list = format!("[{}]", ["1"; 60].join(","));
    let rule = format!("{list}.all(a, {list}.all(b, {list}.all(c, a + b + c > 0))) && false");
    let rule = constraint(json!({"cel": {"rule": rule}}));
    let met =
        constraint(json!({"failureMessage": "m".repeat(60_000), "package": needs_package("red", ">=1.0.0")}));
    for (large, rules, unmet, is_within) in
        [(3, 0, 0, true), (4, 0, 1, false), (3, 2, 2, true), (3, 9, 5, false)]
    {
        let needs = [vec![met.clone(); large], vec![rule.clone(); rules]].concat();
        let report = check(&needs, &DependencyFacts::default(), &[]);
        assert_eq!(report.unmet.len(), unmet, "{large} {rules}");
        let want = "its constraints take more work than the limit of 10000000 steps; the bundle must have fewer or simpler ones";
        let is_limited = report.unmet.last().is_some_and(|unmet| unmet.need == want);
        assert_eq!(is_limited, !is_within, "{large} {rules}");
    }
}

#[test]
fn dependencies_error_names_missing_and_providers() {
    let provider = |name: &str, versions: &[&str]| {
        let mut package = Pkg::new(name);
        for version in versions {
            package = package.bundle(
                version,
                json!([{"type": "olm.package", "value": {"packageName": name, "version": version}}, {"type": "olm.gvk", "value": provides("Foo", "v1")}]),
            );
        }
        package.graph()
    };
    let (foo, bar) = (provider("foo", &["1.0.0", "1.1.0"]), provider("bar", &["3.0.0"]));
    let catalogs =
        [("z".parse().unwrap(), &*foo), ("a".parse().unwrap(), &*bar), ("a".parse().unwrap(), &*foo)];
    let needs = [
        ("olm.gvk.required", provides("Foo", "v1")),
        ("olm.package.required", needs_package("foo", "<1.1.0")),
        constraint(json!({"failureMessage": "needs certs", "gvk": provides("Certificate", "v1")})),
    ];
    let report = check(&needs, &DependencyFacts::default(), &catalogs);
    assert_eq!(
        report.error_message("red.v1.0.0").unwrap(),
        "bundle \"red.v1.0.0\" has dependencies that are not met: API Foo (example.com/v1), provided by bar 3.0.0 of catalog a, \
         foo 1.1.0 of catalog a, foo 1.1.0 of catalog z; package \"foo\" in range \"<1.1.0\", provided by foo 1.0.0 of catalog a, \
         foo 1.0.0 of catalog z; needs certs (API Certificate (example.com/v1))"
    );
    assert_eq!(check(&[], &DependencyFacts::default(), &catalogs).error_message("red.v1.0.0"), None);
}
