//! D1 to D30 of the page update-graph, and further rules about dependencies.

use olm_solver::{ErrorKind, Limits, solve};
use serde_json::{Value, json};

use crate::common::{
    GLOBAL, Pkg, Space, api, constraint, going_back, needs, needs_package, package, pkg, property, provides,
    space,
};

/// Package `a`, which needs this, subscribed in catalog `own` among others.
fn a(property: olm_solver::Property, others: impl IntoIterator<Item = Pkg>) -> Space {
    let own = [pkg("a", "1.0.0").all(&[property])].into_iter().chain(others);
    space().catalog("own", own).subscribe("a")
}

fn foo(name: &str) -> Pkg {
    pkg(name, "1.0.0").all(&[provides("Foo")])
}

fn all(parts: &[Value]) -> olm_solver::Property {
    constraint(json!({"all": {"constraints": parts}}))
}

fn any(parts: &[Value]) -> olm_solver::Property {
    constraint(json!({"any": {"constraints": parts}}))
}

fn not(parts: &[Value]) -> Value {
    json!({"not": {"constraints": parts}})
}

fn rule(rule: &str) -> olm_solver::Property {
    constraint(json!({"cel": {"rule": rule}, "failureMessage": "words"}))
}

fn certified() -> olm_solver::Property {
    property("certified", json!(true))
}

fn check(rows: impl IntoIterator<Item = (&'static str, Space, &'static str)>) {
    for (row, space, want) in rows {
        let got = space.outcome().replace(".v", " ");
        println!("| {row} | {got} |");
        let is_equal =
            if want == "E" { got.starts_with("E constraints not satisfiable: ") } else { got == want };
        assert!(is_equal, "{row}: {got}, not {want}");
    }
}

#[test]
fn dependency_prefers_catalogs_then_channels() {
    let wanting = || a(needs("Foo"), []);
    let newer = pkg("foo", "1.2.0").channel("fast", "1.3.0").all(&[provides("Foo")]);
    let second = pkg("foo", "1.2.0").channel("fast", "1.3.0").channel("beta", "1.4.0");
    let second = second
        .with_properties("1.3.0", &[provides("Foo/v2")])
        .with_properties("1.4.0", &[provides("Foo/v2")]);
    let chain = || pkg("foo", "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0");
    let skipped = pkg("foo", "1.0.0; 2.0.0 s 1.0.0").with_properties("1.0.0", &[provides("Foo")]);
    let old = pkg("foo", "1.0.0; 1.1.0 r 1.0.0; 2.0.0 r 1.1.0")
        .with_properties("1.0.0", &[provides("Foo")])
        .with_properties("1.1.0", &[provides("Foo")])
        .with_properties("2.0.0", &[provides("Foo/v2")]);
    #[rustfmt::skip]
    check([
        ("D1", a(needs("Foo"), [foo("foo")]).catalog_in("ns", "b", 50, [foo("fooalt")]), "a 1.0.0, foo 1.0.0"),
        ("D2", wanting().catalog_in("ns", "b", 50, [foo("foo")]).catalog_in("ns", "c", 100, [foo("fooalt")]), "fooalt 1.0.0, a 1.0.0"),
        ("D2b", wanting().catalog("zed", [foo("foo")]).catalog("bee", [foo("fooalt")]), "fooalt 1.0.0, a 1.0.0"),
        ("D2c", wanting().catalog_in("ns", "b", -400, [foo("foo")]).catalog("c", [foo("fooalt")]), "fooalt 1.0.0, a 1.0.0"),
        ("D2d", wanting().catalog_in(GLOBAL, "aaa", 0, [foo("foo")]).catalog("zzz", [foo("fooalt")]), "a 1.0.0, fooalt 1.0.0"),
        ("D3", a(needs("Foo"), [newer]), "a 1.0.0, foo 1.2.0"),
        ("D4", a(needs("Foo/v2"), [second]), "foo 1.4.0, a 1.0.0"),
        ("D5", a(needs("Foo"), [chain().all(&[provides("Foo")])]), "a 1.0.0, foo 1.2.0"),
        ("D6", a(needs("Foo"), [old]), "a 1.0.0, foo 1.1.0"),
        ("D6b", a(needs("Foo"), [skipped]), "E"),
        ("D30",
            a(needs_package("c", ">=0.1.0"), [pkg("c", "1.0.0").all(&[needs_package("absent", ">=1.0.0")])]).catalog("other",
                [pkg("c", "1.0.0")]),
            "c 1.0.0, a 1.0.0"),
        ("default channels before packages",
            a(needs("Foo"),
                [pkg("zfoo", "1.0.0").all(&[provides("Foo")]), pkg("afoo", "").channel("fast", "1.0.0").all(&[provides("Foo")])]),
            "a 1.0.0, zfoo 1.0.0"),
    ]);
}

#[test]
fn dependency_constraints() {
    let blue = |properties: &[olm_solver::Property]| pkg("blue", "1.0.0").all(properties);
    let etcd = || pkg("etcd", "3.2.0");
    let one = [package("blue", ">=1.0.0"), api("Green")];
    let versions = [api("Blue/v1beta1"), api("Blue/v1beta2"), api("Blue/v1")];
    let or = [
        json!({"all": {"constraints": [package("blue", ">=1.0.0"), api("Blue")]}}),
        json!({"all": {"constraints": [package("blue", "<1.0.0"), api("Blue/v1beta1")]}}),
    ];
    let two = |first: &str, second: &str| {
        pkg("blue", "0.9.0; 1.0.0 r 0.9.0")
            .with_properties("0.9.0", &[provides(first)])
            .with_properties("1.0.0", &[provides(second)])
    };
    let newer = pkg("blue", "1.0.0; 1.1.0 r 1.0.0").with_properties("1.1.0", &[provides("Green/v1alpha1")]);
    let and_not = || all(&[package("blue", ">=1.0.0"), not(&[api("Green/v1alpha1")])]);
    let green = |properties: &[olm_solver::Property]| pkg("green", "1.0.0").all(properties);
    let is = "properties.exists(p, p.type == 'certified')";
    let both = "properties.exists(p, p.type == 'certified') && properties.exists(p, p.type == 'stable')";
    let stable = || property("stable", json!(true));
    let prometheus = || pkg("prometheus", "0.27.0; 0.28.0 r 0.27.0");
    let x = |version: &str| property("x", json!(version));
    #[rustfmt::skip]
    check([
        ("D7", a(needs_package("prometheus", ">0.27.0"), [prometheus()]), "a 1.0.0, prometheus 0.28.0"),
        ("D7b", a(needs_package("prometheus", ">0.27.0"), [pkg("prometheus", "0.27.0")]), "E"),
        ("D8",
            space().subscribe("a").catalog("own",
                [pkg("a", "1.0.0").all(&[needs_package("etcd", ">3.1.0"), needs("Etcd")]), etcd(),
                    pkg("other", "1.0.0").all(&[provides("Etcd")])]),
            "a 1.0.0, etcd 3.2.0, other 1.0.0"),
        ("D8b", a(all(&[package("etcd", ">3.1.0"), api("Etcd")]), [etcd(), pkg("other", "1.0.0").all(&[provides("Etcd")])]), "E"),
        ("D8c", a(all(&[package("etcd", ">3.1.0"), api("Etcd")]), [etcd().all(&[provides("Etcd")])]), "a 1.0.0, etcd 3.2.0"),
        ("D9", a(all(&one), [blue(&[provides("Blue")]), green(&[provides("Green")])]), "E"),
        ("D9b", a(all(&one), [blue(&[provides("Green")])]), "a 1.0.0, blue 1.0.0"),
        ("D10", a(any(&versions), [blue(&[provides("Blue/v1beta2")])]), "a 1.0.0, blue 1.0.0"),
        ("D10b", a(any(&versions), [two("Blue/v1beta1", "Blue")]), "a 1.0.0, blue 1.0.0"),
        ("D10c", a(any(&versions), [blue(&[provides("Blue/v1alpha1")])]), "E"),
        ("D11", a(and_not(), [newer]), "a 1.0.0, blue 1.0.0"),
        ("D11b", a(and_not(), [blue(&[]), green(&[provides("Green/v1alpha1")])]).subscribe("green"), "a 1.0.0, blue 1.0.0, green 1.0.0"),
        ("D11c", a(constraint(not(&[api("Green/v1alpha1")])), [blue(&[])]), "a 1.0.0"),
        ("D12", a(any(&or), [two("Blue/v1beta1", "Blue")]), "a 1.0.0, blue 1.0.0"),
        ("D12b", a(any(&or), [two("Blue/v1beta1", "Blue/v1beta1")]), "a 1.0.0, blue 0.9.0"),
        ("D12c", a(any(&or), [pkg("blue", "0.9.0").all(&[provides("Blue")])]), "E"),
        ("D13", a(rule(is), [green(&[certified()]), blue(&[])]), "a 1.0.0, green 1.0.0"),
        ("D13b", a(rule(is), [blue(&[])]), "E"),
        ("D14", a(rule(both), [blue(&[certified()]), green(&[certified(), stable()])]), "a 1.0.0, green 1.0.0"),
        ("D14b", a(rule(both), [blue(&[certified()]), green(&[stable()])]), "E"),
        ("D15c",
            a(rule("properties.exists(p, p.type == 'x' && semver_compare(p.value, '1.0.0') >= 0)"),
                [blue(&[x("0.9.0")]), green(&[x("1.2")])]),
            "a 1.0.0, green 1.0.0"),
        ("D16c", a(constraint(json!({"gvk": api("Foo")["gvk"], "failureMessage": "x".repeat(70_000)})), [foo("foo")]),
            "a 1.0.0, foo 1.0.0"),
        ("D17", a(property("unknown", json!(1)), []), "a 1.0.0"),
        ("D28", a(provides("Foo"), []).catalog("b", [foo("foo")]), "a 1.0.0"),
        ("empty all", a(all(&[]), [blue(&[])]), "a 1.0.0"),
        ("empty not", a(constraint(not(&[])), [blue(&[])]), "a 1.0.0"),
        ("empty any", a(any(&[]), [blue(&[])]), "E"),
    ]);
    let itself = pkg("p", "1.0.0").all(&[provides("Foo"), needs("Foo")]);
    #[rustfmt::skip]
    check([
        ("D13c", space().catalog("own", [pkg("red", "1.0.0").all(&[certified(), rule(is)])]).subscribe("red"), "red 1.0.0"),
        ("D28", space().catalog("own", [itself, foo("foo")]).subscribe("p"), "p 1.0.0"),
        ("D21",
            space().subscribe("a").catalog("own",
                [pkg("a", "1.0.0").all(&[needs("My"), needs_package("testop", ">=1.0.1")]),
                    pkg("testop", "1.0.0; 1.0.1 r 1.0.0").all(&[provides("My")])]),
            "a 1.0.0, testop 1.0.1"),
        ("label",
            a(property("olm.label.required", json!({"label": "gpu"})),
                [blue(&[]), green(&[property("olm.label", json!({"label": "gpu"}))])]),
            "a 1.0.0, green 1.0.0"),
    ]);
}

/// A Subscription to what is installed.
fn upgrading(space: Space, package: &str, properties: &[olm_solver::Property]) -> Space {
    space
        .installed(package, "1.0.0", properties)
        .subscribe_to(package, |it| it.installed_csv = format!("{package}.v1.0.0"))
}

#[test]
fn dependency_moves_what_is_installed_together() {
    let next = |name: &str, properties: &[olm_solver::Property]| {
        pkg(name, &format!("{name} r 1.0.0").replace(name, "2.0.0")).all(properties)
    };
    let provider = [provides("A"), needs("B")];
    let other = [provides("B"), needs("A")];
    let (a2, b2) = (next("a", &[provides("A2"), needs("B2")]), next("b", &[provides("B2"), needs("A2")]));
    let both = |catalog: Space| upgrading(upgrading(catalog, "a", &provider), "b", &other);
    let own = |packages: Vec<Pkg>| space().catalog("own", packages);
    #[rustfmt::skip]
    check([
        ("D18", upgrading(upgrading(own(vec![pkg("a", "1.0.0"), next("b", &[provides("C")])]), "a", &provider), "b", &[provides("B")]),
            "—"),
        ("D18, without a Subscription",
            upgrading(own(vec![next("b", &[provides("C")])]).installed("a", "1.0.0", &provider), "b", &[provides("B")]), "—"),
        ("D19", both(own(vec![a2.clone(), b2.clone()])), "a 2.0.0, b 2.0.0"),
        ("D19b", both(own(vec![a2.clone(), pkg("b", "1.0.0").all(&other)])), "—"),
        ("D19c", own(vec![a2, b2]).subscribe("a"), "a 2.0.0, b 2.0.0"),
        ("D22", a(needs("Foo"), [pkg("foo", "2.0.0").all(&[provides("Foo")])]).installed("foo", "1.0.0", &[provides("Foo")]), "a 1.0.0"),
        ("D23", upgrading(upgrading(own(vec![pkg("a", "1.0.0"), next("b", &[])]), "a", &[needs_package("b", "<2.0.0")]), "b", &[]), "—"),
        (
            "D24",
            own(vec![
                pkg("p", "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0")
                    .with_properties("1.2.0", &[needs_package("absent", ">=1.0.0")]),
            ])
            .subscribe("p"),
            "p 1.1.0",
        ),
        ("D24b",
            upgrading(own(vec![pkg("p", "1.0.0; 1.1.0 r 1.0.0").with_properties("1.1.0", &[needs_package("absent", ">=1.0.0")])]), "p",
                &[]),
            "—"),
        ("D25",
            own(vec![pkg("p", "1.0.0; 1.1.0 r 1.0.0").with_properties("1.1.0", &[property("olm.deprecated", json!({}))])]).subscribe("p"),
            "p 1.0.0"),
        ("one hop for a dependency",
            upgrading(own(vec![pkg("a", "1.0.0").all(&[needs_package("b", ">=2.0.0")]), next("b", &[])]).subscribe("a"), "b", &[]),
            "a 1.0.0, b 2.0.0"),
        (
            "the earlier list wins",
            own(vec![
                pkg("a", "1.0.0; 2.0.0 r 1.0.0").with_properties("2.0.0", &[needs_package("b", "1.0.0")]),
                pkg("b", "1.0.0; 2.0.0 r 1.0.0"),
            ])
            .subscribe("a")
            .subscribe("b"),
            "a 2.0.0, b 1.0.0",
        ),
    ]);
}

#[test]
#[rustfmt::skip]
fn dependency_conflicts_are_explained() {
    let channels = pkg("p", "").channel("a", "1.0.0").channel("b", "2.0.0");
    let twice = space()
        .catalog("own", [channels])
        .subscribe_to("p", |it| (it.name, it.channel) = ("s1".to_owned(), "a".to_owned()))
        .subscribe_to("p", |it| (it.name, it.channel) = ("s2".to_owned(), "b".to_owned()));
    let missing = |change: fn(&mut olm_solver::Subscription)| {
        space().catalog("own", [foo("p")]).subscribe_to("p", change)
    };
    let gone = "constraints not satisfiable: clusterserviceversion x.v1.0.0 exists and is not referenced by a subscription";
    for (row, space, want) in [
        (
            "D20",
            twice,
            "own/ns/a/p.v1.0.0 and own/ns/b/p.v2.0.0 originate from package p, subscription s1 exists, \
             subscription s1 requires own/ns/a/p.v1.0.0, subscription s2 exists, subscription s2 requires own/ns/b/p.v2.0.0",
        ),
        (
            "D20b",
            space().catalog("own", [foo("p"), foo("q")]).subscribe("p").subscribe("q"),
            "own/ns/stable/p.v1.0.0 and own/ns/stable/q.v1.0.0 provide Foo (g/v1), subscription sub-p exists, \
             subscription sub-p requires own/ns/stable/p.v1.0.0, subscription sub-q exists, \
             subscription sub-q requires own/ns/stable/q.v1.0.0",
        ),
        ("D26", missing(|it| it.catalog = "missing".to_owned()),
            "no operators found from catalog missing in namespace ns referenced by subscription sub-p, subscription sub-p exists"),
        ("D26", missing(|it| it.package = "missing".to_owned()),
            "no operators found in package missing in the catalog referenced by subscription sub-p, subscription sub-p exists"),
        (
            "several candidates",
            space()
                .catalog(
                    "own",
                    [pkg("p", "1.0.0; 1.1.0 r 1.0.0")
                        .all(&[all(&[api("Foo"), not(&[package("q", "1.x")])])])],
                )
                .subscribe("p"),
            "bundle p.v1.0.0 requires an operator providing an API with group: g, version: v1, kind: Foo and not with package: q \
             and with version in range: 1.x, bundle p.v1.1.0 requires an operator providing an API with group: g, version: v1, \
             kind: Foo and not with package: q and with version in range: 1.x, subscription sub-p exists, \
             subscription sub-p requires at least one of own/ns/stable/p.v1.1.0 or own/ns/stable/p.v1.0.0",
        ),
        (
            "deprecated",
            upgrading(
                space().catalog("own", [pkg("p", "1.0.0")]),
                "p",
                &[property("olm.deprecated", json!({}))],
            ),
            "bundle @existing/ns//p.v1.0.0 is deprecated, subscription sub-p exists, \
             subscription sub-p requires @existing/ns//p.v1.0.0",
        ),
        (
            "rule",
            a(rule("false"), []),
            "bundle a.v1.0.0 requires an operator with constraint: \"false\" and message: \"words\", subscription sub-a exists, \
             subscription sub-a requires own/ns/stable/a.v1.0.0",
        ),
    ] {
        let (kind, text) = space.error();
        println!("| {row} | E {text} |");
        assert_eq!(
            (kind, text),
            (ErrorKind::Unsatisfiable, format!("constraints not satisfiable: {want}")),
            "{row}"
        );
    }
    let free = space().installed("x", "1.0.0", &[needs_package("absent", "1.0.0")]);
    assert!(!free.error().1.starts_with(gone), "clauses are in the order of their texts");
    assert!(free.error().1.ends_with("x.v1.0.0 exists and is not referenced by a subscription"));
}

#[test]
#[rustfmt::skip]
fn dependency_facts_of_the_wrong_shape_do_not_count() {
    let (number, text) = (json!({"group": "g", "version": "v1", "kind": 5}), json!("text"));
    let of = |name: &str| property("olm.package", json!({"packageName": name, "version": "1.0.0"}));
    let only = |name: &str, properties: Vec<olm_solver::Property>| {
        let mut package = pkg(name, "1.0.0");
        package.0.bundles[0].properties = properties;
        package
    };
    let q = |of: olm_solver::Property| a(needs_package("q", ">=0.1.0"), [only("q", vec![of])]);
    let two = |properties: &[olm_solver::Property]| {
        space().catalog("own", [pkg("p", "1.0.0").all(properties), pkg("q", "1.0.0").all(properties)])
    };
    let twice = [
        property("olm.gvk", number),
        property("olm.gvk", text.clone()),
        property("olm.package", text.clone()),
    ];
    check([
        ("no provider twice", two(&twice).subscribe("p").subscribe("q"), "p 1.0.0, q 1.0.0"),
        // the package that publishes a bundle counts, too
        ("no package at all", q(property("olm.package", text)), "a 1.0.0, q 1.0.0"),
        ("another package", q(of("z")), "a 1.0.0, q 1.0.0"),
        ("the other package", a(needs_package("z", ">=0.1.0"), [only("q", vec![of("z")])]), "a 1.0.0, q 1.0.0"),
        ("Subscription", space().catalog("own", [only("p", vec![of("z")])]).subscribe("p"), "p 1.0.0"),
    ]);
}

#[test]
#[rustfmt::skip]
fn dependency_errors_of_content() {
    let long =
        |length: usize| constraint(json!({"gvk": api("Foo")["gvk"], "failureMessage": "x".repeat(length)}));
    let named = json!({"package": {"name": "blue", "versionRange": ">=1.0.0"}});
    let parse = "bundle own/ns/stable/a.v1.0.0: parse olm.constraint: ";
    let anywhere = |it: &mut olm_solver::Subscription| {
        (it.catalog, it.catalog_namespace) = (String::new(), String::new());
    };
    let two = space()
        .catalog("own", [pkg("p", "1.0.0")])
        .catalog("other", [pkg("p", "2.0.0")])
        .subscribe_to("p", anywhere);
    for (row, space, kind, want) in [
        ("D15", a(rule("true &&"), []), ErrorKind::Other, format!("{parse}cel rule ends too early")),
        ("D15", a(rule("1"), []), ErrorKind::Other, format!("{parse}cel expressions must have type Bool")),
        ("D16", a(all(&[named]), [pkg("blue", "1.0.0")]), ErrorKind::Other, format!("{parse}json: unknown field \"name\"")),
        ("D16b", a(constraint(json!({"failureMessage": "x"})), []), ErrorKind::Other, format!("{parse}constraint is empty")),
        ("D16d", a(long(140_000), [foo("blue")]), ErrorKind::Other,
            "bundle own/ns/stable/a.v1.0.0: olm.constraint value is greater than max constraint size 131072 bytes".to_owned()),
        (
            "D29",
            two,
            ErrorKind::Ambiguous,
            "a unique replacement chain within a channel is required to determine the relative order between channel entries, but 2 \
             replacement chains were found"
                .to_owned(),
        ),
    ] {
        let (got, text) = space.error();
        println!("| {row} | E {text} |");
        assert_eq!(got, kind, "{row}");
        assert!(text.starts_with(&want), "{row}: {text}, not {want}");
    }
}

#[test]
fn dependency_differs_from_classic_as_decided() {
    // decision 50: an API without a kind is an error that names the bundle; in OLM Classic nothing provides it
    let (kind, text) = a(property("olm.gvk.required", json!({"group": "g", "version": "v1"})), []).error();
    assert_eq!(kind, ErrorKind::Other);
    assert!(text.starts_with(
        "bundle own/ns/stable/a.v1.0.0: parse olm.gvk.required: an API needs group, version and kind"
    ));
    // decision 50: an API or a package that a bundle names twice counts once
    let twice = [
        provides("Foo"),
        provides("Foo"),
        property("olm.package", json!({"packageName": "p", "version": "1.1.0"})),
    ];
    let package = pkg("p", "1.0.0; 1.1.0 r 1.0.0").with_properties("1.1.0", &twice);
    assert_eq!(space().catalog("own", [package]).subscribe("p").outcome(), "p.v1.1.0");
    // a channel may have a slash in its name
    let mut package = pkg("p", "").channel("a/b", "1.0.0");
    package.0.default_channel = "a/b".to_owned();
    let space_of = |packages: Vec<Pkg>, channel: &str| {
        space().catalog("own", packages).subscribe_to("p", |it| it.channel = channel.to_owned())
    };
    assert_eq!(space_of(vec![package], "a/b").outcome(), "p.v1.0.0");
    // two packages of a catalog may have bundles of one name
    let mut other = pkg("q", "1.0.0");
    other.0.bundles[0].name = "p.v1.0.0".to_owned();
    other.0.channels[0].entries[0].name = "p.v1.0.0".to_owned();
    assert_eq!(space_of(vec![pkg("p", "1.0.0"), other], "stable").outcome(), "p.v1.0.0");
    // a choice that is taken back leaves the lists before it as they were: hazel comes from the preferred catalog, and kelp stays. OLM
    // Classic continues a list where it stood: at hazel of the other catalog, or beyond the only alternative of kelp
    let solution = solve(&going_back().0, Limits::default()).unwrap();
    let chosen: Vec<String> =
        solution.bundles.iter().map(|it| format!("{} {}", it.catalog, it.name)).collect();
    assert_eq!(chosen, ["operators hazel.v3.2.0", "operators kelp.v1.1.0", "own ochre.v0.0.1"]);
}
