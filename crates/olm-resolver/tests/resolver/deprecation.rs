//! Values of the deprecation conditions: the table of operator-controller §5.2, and decision 7 about their source.

use olm_resolver::{
    DeprecationState as State, Deprecations, Installed, PackageGraph, deprecation_source, deprecations,
};

use crate::common::{Pkg, broken, catalog, without_package};

fn values(graph: Option<&PackageGraph>, channels: &[&str], installed: Option<&str>) -> Deprecations {
    let channels: Vec<_> = channels.iter().map(|name| name.parse().unwrap()).collect();
    let installed = installed.map(|name| name.parse().unwrap());
    deprecations(graph, &channels, installed.as_ref())
}

fn yes(text: &str) -> State {
    State::Deprecated(text.into())
}

#[test]
#[rustfmt::skip]
fn deprecation_table() {
    let no = || State::NotDeprecated;
    let plain = Pkg::new("p").bundles(&["1.0.0", "2.0.0"]);
    let channel = plain.clone().deprecate("olm.channel", "old", "channel is old");
    let all = channel.clone().deprecate("olm.package", "", "use q").deprecate_bundles(&["1.0.0"]);
    for (case, package, channels, installed, want) in [
        ("no data, nothing installed", None, &[][..], None, [State::Unknown, State::Unknown, State::Absent, State::Unknown]),
        ("no data, bundle installed", None, &[], Some("p.v1.0.0"), [State::Unknown, State::Unknown, State::Unknown, State::Unknown]),
        ("data, no entries", Some(&plain), &[], None, [no(), no(), State::Absent, no()]),
        ("deprecated channel, channels unset", Some(&channel), &[], None,
            [no(), yes("channel is old"), State::Absent, yes("channel is old")]),
        ("deprecated channel, another one selected", Some(&channel), &["new"], None, [no(), no(), State::Absent, no()]),
        ("package, selected channel and installed bundle", Some(&all), &["old"], Some("p.v1.0.0"),
            [yes("use q"), yes("channel is old"), yes("1.0.0 is deprecated"), yes("use q\nchannel is old\n1.0.0 is deprecated")]),
        ("after the upgrade", Some(&all), &["new"], Some("p.v2.0.0"), [yes("use q"), no(), no(), yes("use q")]),
    ] {
        let graph = package.map(Pkg::graph);
        let got = values(graph.as_deref(), channels, installed);
        assert_eq!([got.package, got.channel, got.bundle, got.rollup], want, "{case}");
    }
}

#[test]
fn messages_are_joined_and_empty_ones_count_for_nothing() {
    let package = Pkg::new("p")
        .bundles(&["1.0.0"])
        .deprecate("olm.channel", "b", "second")
        .deprecate("olm.channel", "a", "")
        .deprecate("olm.channel", "c", "third")
        .deprecate("olm.package", "", "");
    let got = values(Some(&package.graph()), &[], None);
    assert_eq!(
        (got.package, got.channel),
        (State::NotDeprecated, yes("second\nthird")),
        "in the catalog's order"
    );
}

#[test]
fn deprecation_values_have_their_catalog() {
    let one = Pkg::new("p").bundles(&["1.0.0"]);
    let two = Pkg::new("p").bundles(&["2.0.0"]);
    let sources = [
        broken("a", 9, "gone"),
        without_package("b"),
        catalog("c", 1, &one),
        catalog("d", 5, &two),
        catalog("e", 5, &two),
    ];
    let named = |chosen: Option<&str>, installed: Option<&str>| {
        let chosen = chosen.map(|name| name.parse().unwrap());
        let installed =
            installed.map(|version| Installed::parse(&format!("p.v{version}"), version, None).unwrap());
        let found = deprecation_source(&sources, chosen.as_ref(), installed.as_ref()).unwrap();
        let source = sources
            .iter()
            .find(|source| source.content.as_ref().is_ok_and(|graph| std::sync::Arc::ptr_eq(graph, found)));
        source.unwrap().name.to_string()
    };
    assert_eq!(named(Some("c"), None), "c", "the chosen one");
    assert_eq!(named(None, None), "d", "highest priority, then by name");
    assert_eq!(named(None, Some("1.0.0")), "c", "the one that has the installed bundle");
    assert!(deprecation_source(&sources[..2], None, None).is_none());
}
