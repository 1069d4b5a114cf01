//! Namespaces with catalogs that cannot be read.

use olm_solver::{BundleDraft, CatalogSource, ChannelDraft, ChannelEntry, Namespace, PackageDraft, Property};

use super::*;
use crate::subscription::resolve;

/// A package with one version, which depends on another package if that is named.
pub(super) fn package(name: &str, depends_on: Option<&str>) -> PackageDraft {
    let bundle = format!("{name}.v1");
    let property = |package: &str, key: &str, value: &str| Property {
        kind: (if key == "version" { "olm.package" } else { "olm.package.required" }).into(),
        value: json!({"packageName": package, key: value}).to_string().into(),
    };
    let mut properties = vec![property(name, "version", "1.0.0")];
    properties.extend(depends_on.map(|package| property(package, "versionRange", ">=1.0.0")));
    PackageDraft {
        name: name.to_owned(),
        default_channel: "stable".to_owned(),
        channels: vec![ChannelDraft {
            name: "stable".to_owned(),
            entries: vec![ChannelEntry { name: bundle.clone(), ..ChannelEntry::default() }],
        }],
        bundles: vec![BundleDraft {
            name: bundle,
            version: "1.0.0".to_owned(),
            properties,
            ..BundleDraft::default()
        }],
    }
}

/// A catalog of the global namespace; without packages it cannot be read.
fn catalog(name: &str, priority: i32, packages: Vec<PackageDraft>) -> CatalogSource {
    let content =
        if packages.is_empty() { Err("down".to_owned()) } else { Ok(Arc::new(Catalog::new(packages))) };
    CatalogSource { name: name.to_owned(), namespace: "olm".to_owned(), priority, content }
}

/// Subscriptions to packages of their own name, with their catalogs.
fn namespace(subscriptions: &[(&str, &str)], catalogs: Vec<CatalogSource>) -> Namespace {
    let subscription = |&(package, catalog): &(&str, &str)| olm_solver::Subscription {
        name: package.to_owned(),
        package: package.to_owned(),
        channel: "stable".to_owned(),
        catalog: catalog.to_owned(),
        catalog_namespace: if catalog.is_empty() { String::new() } else { "olm".to_owned() },
        ..olm_solver::Subscription::default()
    };
    Namespace {
        name: "ns".to_owned(),
        global_namespace: Some("olm".to_owned()),
        catalogs,
        subscriptions: subscriptions.iter().map(subscription).collect(),
        ..Namespace::default()
    }
}

const DOWN: &str = "error using catalogsource olm/dead: down; fix or delete the CatalogSource";

#[test]
#[rustfmt::skip]
fn unreadable_catalog_stops_only_what_needs_it() {
    let (own, needs) = (|| package("a", None), || package("a", Some("b")));
    let dead = |priority| catalog("dead", priority, Vec::new());
    for (case, subscriptions, catalogs, want) in [
        ("another catalog", &[("a", "main")][..], vec![catalog("main", 0, vec![own()]), dead(100)], Ok((vec!["a.v1"], vec![]))),
        ("one of two", &[("a", "main"), ("z", "dead")], vec![catalog("main", 0, vec![own()]), dead(0)],
            Ok((vec!["a.v1"], vec![("z", DOWN)]))),
        ("the only one", &[("z", "dead")], vec![catalog("main", 0, vec![own()]), dead(0)], Err(DOWN)),
        ("every catalog", &[("a", "")], vec![catalog("main", 0, vec![own()]), dead(0)], Err(DOWN)),
        ("a dependency of the same catalog", &[("a", "main")], vec![catalog("main", 0, vec![needs(), package("b", None)]), dead(100)],
            Ok((vec!["a.v1", "b.v1"], vec![]))),
        ("a dependency of a preferred catalog", &[("a", "main")],
            vec![catalog("main", 0, vec![needs()]), catalog("third", 200, vec![package("b", None)]), dead(100)],
            Ok((vec!["a.v1", "b.v1"], vec![]))),
        ("a dependency that it may have", &[("a", "main")],
            vec![catalog("main", 0, vec![needs()]), catalog("third", 50, vec![package("b", None)]), dead(100)], Err(DOWN)),
        ("a dependency with a Subscription", &[("a", "main"), ("b", "third")],
            vec![catalog("main", 0, vec![needs()]), catalog("third", 50, vec![package("b", None)]), dead(100)],
            Ok((vec!["a.v1", "b.v1"], vec![]))),
        ("unsatisfiable without it", &[("a", "main")], vec![catalog("main", 0, vec![needs()]), dead(0)], Err(DOWN)),
    ] {
        let got = resolve(&namespace(subscriptions, catalogs), Limits::default());
        let got = got.map_err(|error| error.to_string());
        let names = got.as_ref().map(|it| {
            let bundles: Vec<&str> = it.solution.bundles.iter().map(|bundle| bundle.name.as_str()).collect();
            let left_out = it.left_out.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
            (bundles, left_out)
        });
        assert_eq!(names.map_err(String::as_str), want, "{case}");
    }
}

#[test]
fn left_out_csv_stays_installed() {
    let mut namespace = namespace(
        &[("a", "main"), ("z", "dead")],
        vec![catalog("main", 0, vec![package("a", Some("z"))]), catalog("dead", 0, Vec::new())],
    );
    let of_z = json!([{"type": "olm.package", "value": {"packageName": "z", "version": "1.0.0"}}]);
    let property = Property { kind: "olm.package".into(), value: of_z[0]["value"].to_string().into() };
    namespace.installed = vec![olm_solver::InstalledCsv {
        name: "z.v1".to_owned(),
        version: "1.0.0".to_owned(),
        phase: "Succeeded".to_owned(),
        properties: Some(vec![property]),
        ..olm_solver::InstalledCsv::default()
    }];
    namespace.subscriptions[1].installed_csv = "z.v1".to_owned();
    let resolution = resolve(&namespace, Limits::default()).unwrap();
    let names: Vec<_> = resolution.solution.bundles.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a.v1"], "what is installed meets the dependency");
    assert_eq!(resolution.left_out.keys().collect::<Vec<_>>(), ["z"]);
}

#[test]
fn left_out_subscription_reports_its_catalog() {
    let other = |name: &str| {
        let mut subscription = subscription(Value::Null);
        subscription.metadata.name = Some(name.to_owned());
        subscription
    };
    let cluster = cluster(vec![other("a"), other("z")]);
    let left_out = [("z".to_owned(), DOWN.to_owned())].into();
    cluster.with_facts(|facts| {
        let outcome = PassOutcome {
            facts,
            resolution: &ResolutionFact::Resolved,
            left_out: &left_out,
            unpack: &UnpackFact::None,
            made: None,
        };
        let failure = |index: usize| {
            let status = next_status(&facts.subscriptions[index], None, &outcome, None, at(9)).unwrap();
            let failed = status.conditions.into_iter().find(|it| it.type_ == "ResolutionFailed");
            failed.map(|it| (it.reason, it.message))
        };
        assert_eq!(failure(0), None);
        assert_eq!(failure(1), Some(("ErrorPreventedResolution".to_owned(), DOWN.to_owned())));
    });
}
