//! Reasons for what is chosen, and rules against what is not.

use olm_resolver::GvkRef;
use olm_solver::{Choice, Clause, Limits, SolveError, explain, solve};

use crate::common::{Space, going_back, needs, needs_package, pkg, property, provides, space};

/// The choices as text: candidate, reasons, and the rejected alternatives with their clauses.
fn report(space: &Space) -> String {
    let choices = explain(&space.0, Limits::default()).expect("the namespace is resolved");
    let line = |choice: &Choice| {
        let mut text = format!("{}\n", choice.candidate);
        for reason in &choice.reasons {
            text.push_str(&format!("  for {reason}\n"));
        }
        for rejected in &choice.rejected {
            let clauses: Vec<String> = rejected.clauses.iter().map(ToString::to_string).collect();
            text.push_str(&format!("  not {}: {}\n", rejected.candidate, clauses.join(", ")));
        }
        text
    };
    choices.iter().map(line).collect()
}

#[test]
fn report_names_reasons_and_rejected_alternatives() {
    let deprecated = [property("olm.deprecated", serde_json::json!({}))];
    let apis = space()
        .catalog(
            "own",
            [
                pkg("a", "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0")
                    .all(&[needs("Foo")])
                    .with_properties("1.2.0", &deprecated)
                    .with_properties("1.1.0", &[needs_package("absent", ">=1.0.0")]),
                pkg("b", "1.0.0").all(&[provides("Foo"), needs("Foo")]),
                pkg("c", "1.0.0; 1.1.0 r 1.0.0").with_properties("1.1.0", &[provides("Foo")]),
            ],
        )
        .subscribe("a")
        .subscribe("b")
        .subscribe("c");
    for (name, space, want) in [
        (
            "rules between two bundles, and a dependency that nothing meets",
            apis,
            "\
own/ns/stable/a.v1.0.0
  for subscription sub-a
  not own/ns/stable/a.v1.2.0: bundle own/ns/stable/a.v1.2.0 is deprecated
  not own/ns/stable/a.v1.1.0: bundle a.v1.1.0 requires an operator with package: absent and with version in range: >=1.0.0
own/ns/stable/b.v1.0.0
  for subscription sub-b
  for a.v1.0.0 requires an operator providing an API with group: g, version: v1, kind: Foo
  for b.v1.0.0 requires an operator providing an API with group: g, version: v1, kind: Foo
own/ns/stable/c.v1.0.0
  for subscription sub-c
  not own/ns/stable/c.v1.1.0: own/ns/stable/b.v1.0.0 and own/ns/stable/c.v1.1.0 provide Foo (g/v1)
",
        ),
        (
            "a later choice that must give up",
            going_back(),
            "\
operators/ns/stable/kelp.v1.1.0
  for subscription sub-kelp
own/ns/stable/ochre.v0.0.1
  for subscription sub-ochre
  not own/ns/stable/ochre.v0.1.0: bundle kelp.v1.1.0 requires an operator with package: hazel and with version in range: >=3.2.0, \
bundle ochre.v0.1.0 requires an operator with constraint: \"properties.exists(p, p.type == 'certified')\" and message: \"\", \
operators/ns/stable/hazel.v3.0.0, operators/ns/stable/hazel.v3.0.1, operators/ns/stable/hazel.v3.2.0 and own/ns/stable/hazel.v3.2.0 \
originate from package hazel
operators/ns/stable/hazel.v3.2.0
  for kelp.v1.1.0 requires an operator with package: hazel and with version in range: >=3.2.0
",
        ),
        (
            "what is installed",
            space()
                .catalog("own", [pkg("p", "1.0.0; 1.1.0 r 1.0.0").with_properties("1.1.0", &[needs("Foo")])])
                .installed("p", "1.0.0", &[])
                .installed("q", "1.0.0", &[])
                .subscribe_to("p", |it| it.installed_csv = "p.v1.0.0".to_owned()),
            "\
@existing/ns//q.v1.0.0
  for installed without a subscription
@existing/ns//p.v1.0.0
  for subscription sub-p
  not own/ns/stable/p.v1.1.0: bundle p.v1.1.0 requires an operator providing an API with group: g, version: v1, kind: Foo
",
        ),
    ] {
        assert_eq!(report(&space), want, "{name}");
    }
}

#[test]
fn report_has_edges_and_the_bundles_of_the_solution() {
    let space = space()
        .catalog("own", [pkg("p", "1.0.0; 1.2.0 r 1.0.0 s 1.1.0 sr >=1.0.0 <1.2.0; 1.1.0 r 1.0.0")])
        .installed("p", "1.0.0", &[])
        .subscribe_to("p", |it| it.installed_csv = "p.v1.0.0".to_owned());
    let choices = explain(&space.0, Limits::default()).unwrap();
    let [choice] = choices.as_slice() else { panic!("{choices:?}") };
    assert_eq!(
        (&*choice.skip_range, choice.skips.as_slice()),
        (">=1.0.0 <1.2.0", &["p.v1.1.0".to_owned()][..])
    );
    let solution = solve(&space.0, Limits::default()).unwrap();
    assert_eq!(choice.bundle.as_ref(), solution.bundles.first());
}

#[test]
fn report_fails_as_the_resolution_does() {
    let space = space().catalog("own", [pkg("p", "1.0.0")]).subscribe("q");
    let error: SolveError = explain(&space.0, Limits::default()).unwrap_err();
    assert_eq!(error, solve(&space.0, Limits::default()).unwrap_err());
}

#[test]
fn conflict_clauses_have_a_hint() {
    let text = |it: &str| it.to_owned();
    let gvk = GvkRef { group: "g".into(), version: "v1".into(), kind: "Foo".into() };
    for (clause, want) in [
        (Clause::SubscriptionExists { subscription: text("s") }, "Subscription s"),
        (Clause::NoOperators { problem: text("no operators found") }, "spec.source"),
        (Clause::SubscriptionRequires { subscription: text("s"), candidates: Vec::new() }, "spec.channel"),
        (Clause::Unreferenced { csv: text("p.v1") }, "ClusterServiceVersion p.v1"),
        (Clause::Requires { bundle: text("p.v1"), need: text("with package: q") }, "p.v1"),
        (Clause::Deprecated { candidate: text("c/n/stable/p.v1") }, "c/n/stable/p.v1"),
        (Clause::OnePackage { candidates: Vec::new(), package: text("p") }, "package p"),
        (Clause::OneProvider { candidates: Vec::new(), gvk }, "Foo (g/v1)"),
        (Clause::Replaces { candidate: text("p.v2"), installed: text("p.v1") }, "p.v2"),
    ] {
        assert!(clause.hint().contains(want), "{clause}: {}", clause.hint());
    }
}
