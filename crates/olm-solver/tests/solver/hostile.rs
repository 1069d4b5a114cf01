//! Invalid and hostile input: an error that names object, field and fix, within the limits.

use olm_solver::{ErrorKind, Limits, Property, SolveError, solve};
use proptest::prelude::*;
use serde_json::json;

use crate::common::{Space, api, constraint, needs, needs_package, pkg, property, provides, space};

#[test]
#[rustfmt::skip]
fn hostile_properties_name_bundle_field_and_fix() {
    let raw = |kind: &str, value: &str| Property { kind: kind.into(), value: value.into() };
    for (property, want) in [
        (needs_package("b", "~1.0.0"), r#"parse olm.package.required: invalid versionRange "~1.0.0""#),
        (needs_package("", "1.0.0"), "parse olm.package.required: packageName must be set"),
        (raw("olm.gvk.required", "5"), "parse olm.gvk.required: json: expected an object, found a number"),
        (raw("olm.gvk.required", "{"), "parse olm.gvk.required: EOF while parsing"),
        (constraint(json!({"nope": 1})), r#"parse olm.constraint: json: unknown field "nope""#),
        (constraint(json!({"failureMessage": "x"})), "parse olm.constraint: constraint is empty"),
        (constraint(json!({"cel": {"rule": "1"}})), "parse olm.constraint: cel expressions must have type Bool"),
        (constraint(json!({"cel": {"rule": "true &&"}})), "parse olm.constraint: cel rule ends too early"),
        (constraint(json!({"gvk": api("Foo")["gvk"], "failureMessage": "x".repeat(140_000)})),
            "olm.constraint value is greater than max constraint size 131072 bytes"),
    ] {
        // also on a candidate that would not be chosen
        let package = pkg("p", "1.0.0; 1.1.0 r 1.0.0").with_properties("1.0.0", &[property]);
        let (kind, text) = space().catalog("own", [package]).subscribe("p").error();
        assert_eq!(kind, ErrorKind::Other, "{want}");
        assert!(text.starts_with(&format!("bundle own/ns/stable/p.v1.0.0: {want}")), "{text}");
        assert!(text.ends_with("; publish the bundle with a property that can be read"), "{text}");
    }
}

#[test]
fn hostile_catalogs_and_channels_name_the_fix() {
    let mut gone = space().catalog("own", [pkg("p", "1.0.0")]).catalog("bad", []).subscribe("p");
    gone.0.catalogs[1].content = Err("connection refused".to_owned());
    let text = "error using catalogsource ns/bad: connection refused; fix or delete the CatalogSource";
    assert_eq!(gone.error(), (ErrorKind::Other, text.to_owned()));
    // the channel of a dependency, although one entry would do
    let broken =
        pkg("foo", "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.0.0").with_properties("1.2.0", &[provides("Foo")]);
    let (kind, text) =
        space().catalog("own", [pkg("a", "1.0.0").all(&[needs("Foo")]), broken]).subscribe("a").error();
    assert_eq!(kind, ErrorKind::Ambiguous);
    assert_eq!(
        text,
        "catalogsource ns/own: a unique replacement chain within a channel is required to determine the relative order between \
         channel entries, but 2 replacement chains were found in channel \"stable\" of package \"foo\": \
         foo.v1.1.0...foo.v1.0.0, foo.v1.2.0...foo.v1.0.0; fix the channel in the catalog"
    );
}

/// Pigeons that each need a hole of their own, and one hole too few: hard for every SAT solver without cardinalities.
fn pigeons(holes: usize) -> Space {
    let hole = |at: usize| format!("Hole{at}");
    let pigeon = |at: usize| {
        let versions: Vec<String> = (0..holes).map(|hole| format!("1.{hole}.0")).collect();
        let entry = |(at, version): (usize, &String)| match at {
            0 => version.clone(),
            _ => format!("{version} r {}", versions[at - 1]),
        };
        let entries: Vec<String> = versions.iter().enumerate().map(entry).collect();
        let package = pkg(&format!("pigeon{at}"), &entries.join("; "));
        versions
            .iter()
            .enumerate()
            .fold(package, |package, (at, version)| package.with_properties(version, &[provides(&hole(at))]))
    };
    let space = space().catalog("own", (0..=holes).map(pigeon));
    (0..=holes).fold(space, |space, at| space.subscribe(&format!("pigeon{at}")))
}

#[test]
fn hostile_conflicts_end_within_the_limits() {
    let (kind, text) = pigeons(4).error();
    assert_eq!(kind, ErrorKind::Unsatisfiable, "{text}");
    let limits = Limits { decisions: 20_000, ..Limits::default() };
    let error = solve(&pigeons(12).0, limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "resolution of namespace \"ns\" was given up after 20000 steps with 156 candidates; resolve fewer Subscriptions in one \
         namespace, or fewer catalogs"
    );
    assert_eq!(error.kind(), ErrorKind::Other);
}

#[test]
fn hostile_rules_end_within_the_limits() {
    let nested =
        "properties.all(a, properties.all(b, properties.all(c, properties.all(d, a == b || c == d))))";
    let rule = constraint(json!({"cel": {"rule": nested}}));
    let properties: Vec<Property> = (0..200).map(|at| property("t", json!(at))).collect();
    let many: Vec<_> = (0..100).map(|at| pkg(&format!("p{at}"), "1.0.0").all(&properties)).collect();
    let packages = [pkg("a", "1.0.0").all(&[rule])].into_iter().chain(many);
    let space = space().catalog("own", packages).subscribe("a");
    let limits = Limits { steps: 1_000_000, ..Limits::default() };
    assert!(matches!(solve(&space.0, limits), Err(SolveError::TooMuchWork { steps: 1_000_000, .. })));
}

/// The least limit with which the namespace is resolved, or its conflict explained.
fn least(space: &Space, limits: impl Fn(u64) -> Limits) -> u64 {
    let is_enough =
        |limit: u64| !matches!(solve(&space.0, limits(limit)), Err(SolveError::TooMuchWork { .. }));
    let (mut low, mut high) = (0, 1 << 40);
    while low < high {
        let middle = (low + high) / 2;
        if is_enough(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

#[test]
fn hostile_limits_count_steps_and_decisions_exactly() {
    let steps = |steps: u64| Limits { steps, ..Limits::default() };
    let decisions = |decisions: u64| Limits { decisions, ..Limits::default() };
    let chain = |bundles: usize| {
        let entry = |at: usize| match at {
            0 => "1.0.0".to_owned(),
            _ => format!("1.{at}.0 r 1.{}.0", at - 1),
        };
        let entries: Vec<String> = (0..bundles).map(entry).collect();
        space()
            .catalog("own", [pkg("p", &entries.join("; ")).all(&[needs_package("p", ">=1.0.0")])])
            .subscribe("p")
    };
    let pigeons = pigeons(4);
    for (space, least, limits) in [
        (&chain(1), least(&chain(1), steps), steps as fn(u64) -> Limits),
        (&chain(200), least(&chain(200), steps), steps),
        (&pigeons, least(&pigeons, decisions), decisions),
    ] {
        assert!(least > 0);
        assert!(
            !matches!(solve(&space.0, limits(least)), Err(SolveError::TooMuchWork { .. })),
            "{least} are enough"
        );
        let error = solve(&space.0, limits(least - 1)).unwrap_err();
        assert!(matches!(error, SolveError::TooMuchWork { steps, .. } if steps == least - 1), "{error}");
    }
    // the work grows with the content, not with its square
    let (small, large) = (least(&chain(100), steps), least(&chain(200), steps));
    assert!(large < 3 * small, "{small}, {large}");
}

#[test]
fn hostile_cycles_of_dependencies_end() {
    let ring = (0..50).map(|at| {
        let needed = needs_package(&format!("p{}", (at + 1) % 50), ">=1.0.0");
        pkg(&format!("p{at}"), "1.0.0; 1.1.0 r 1.0.0").all(&[needed])
    });
    let got = space().catalog("own", ring).subscribe("p0").outcome();
    assert_eq!(got.split(", ").count(), 50, "{got}");
    assert!(got.split(", ").all(|name| name.ends_with(".v1.1.0")), "{got}");
}

/// Bundles of three packages that need and provide a few APIs and packages.
fn any_space() -> impl Strategy<Value = Space> {
    let api = || (0..4_u8).prop_map(|at| format!("K{at}"));
    let property = prop_oneof![
        api().prop_map(|it| provides(&it)),
        api().prop_map(|it| needs(&it)),
        (0..4_u8, prop_oneof![Just(">=1.1.0"), Just("<1.1.0"), Just("garbage"), Just("1.x")])
            .prop_map(|(at, range)| needs_package(&format!("p{at}"), range)),
        Just(property("olm.deprecated", json!({}))),
        ".{0,12}".prop_map(|value| Property { kind: "olm.constraint".into(), value: value.into() }),
    ];
    let package = prop::collection::vec(prop::collection::vec(property, 0..3), 3);
    (prop::collection::vec(package, 3), prop::collection::vec(0..4_u8, 1..4), any::<bool>()).prop_map(
        |(packages, subscribed, is_installed)| {
            let packages = packages.into_iter().enumerate().map(|(at, bundles)| {
                let package = pkg(&format!("p{at}"), "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0");
                let versions = ["1.0.0", "1.1.0", "1.2.0"];
                versions
                    .iter()
                    .zip(bundles)
                    .fold(package, |package, (version, it)| package.with_properties(version, &it))
            });
            let mut space = space().catalog("own", packages);
            if is_installed {
                space = space.installed("p0", "1.0.0", &[provides("K0")]);
            }
            subscribed.into_iter().enumerate().fold(space, |space, (at, package)| {
                space.subscribe_to(&format!("p{package}"), |it| {
                    it.name = format!("s{at}");
                    it.installed_csv =
                        if is_installed && package == 0 { "p0.v1.0.0".to_owned() } else { String::new() };
                })
            })
        },
    )
}

proptest! {
    /// What is chosen is one bundle of a package at most; errors have a text; the same input has the same answer.
    #[test]
    fn hostile_namespaces_have_one_answer(space in any_space()) {
        let (one, other) = (solve(&space.0, Limits::default()), solve(&space.0, Limits::default()));
        prop_assert_eq!(&one, &other);
        match one {
            Ok(solution) => {
                let mut packages: Vec<_> = solution.bundles.iter().map(|it| it.package.clone()).collect();
                packages.dedup();
                prop_assert_eq!(packages.len(), solution.bundles.len());
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
