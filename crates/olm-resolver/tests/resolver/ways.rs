//! Ways through a package: what can be reached, how people name what is installed, and that no way gets out of hand.

use std::sync::Arc;

use olm_resolver::{
    BundleDraft, ChannelDraft, ChannelEntry, End, Environment, GraphDraft, Installed, MajorUpdates,
    PackageGraph, PathQuery, Policy, ReleaseField, RuleSet, Target, path, reachable,
};

use crate::common::Pkg;

fn query(graph: &Arc<PackageGraph>, from: &str, to: Target) -> PathQuery {
    PathQuery {
        graph: graph.clone(),
        from: Installed::find(graph, from),
        to,
        channels: vec![],
        range: None,
        policy: Policy::CatalogProvided,
        major_updates: MajorUpdates::Automatic,
        environment: Environment::default(),
    }
}

/// Hops by version of everything that can be reached.
fn hops(graph: &PackageGraph, from: &str) -> Vec<(String, usize)> {
    let installed = Installed::find(graph, from).unwrap();
    reachable(graph, &installed, |_| true)
        .into_iter()
        .map(|(bundle, hops)| (graph.version(bundle).unwrap().to_string(), hops))
        .collect()
}

#[test]
fn reachable_bundles_with_their_hops() {
    let graph = Pkg::new("p")
        .bundles(&["1.0.0", "1.1.0", "1.2.0", "2.0.0", "3.0.0"])
        .channel(
            "stable",
            &["1.0.0", "1.1.0 r 1.0.0", "1.2.0 r 1.1.0 sr >=1.0.0 <1.2.0", "2.0.0 r 1.2.0", "3.0.0"],
        )
        .graph();
    let expected = |list: &[(&str, usize)]| -> Vec<(String, usize)> {
        list.iter().map(|(version, hops)| ((*version).to_owned(), *hops)).collect()
    };
    assert_eq!(hops(&graph, "1.0.0"), expected(&[("1.2.0", 1), ("1.1.0", 1), ("2.0.0", 2)]));
    assert_eq!(
        hops(&graph, "1.0.5"),
        expected(&[("1.2.0", 1), ("2.0.0", 2)]),
        "not in the catalog, but covered"
    );
    assert_eq!(hops(&graph, "2.0.0"), expected(&[]));
    let circle = Pkg::new("p")
        .bundles(&["1.0.0", "1.1.0"])
        .channel("stable", &["1.0.0 r 1.1.0", "1.1.0 r 1.0.0"])
        .graph();
    assert_eq!(hops(&circle, "1.0.0"), expected(&[("1.1.0", 1)]), "what is installed is not among them");
}

/// Two answers to one question: a bundle is reachable if and only if there is a pinned way to it, of that length.
#[test]
fn reachable_and_pinned_ways_agree() {
    let graph = Pkg::new("p")
        .bundles(&["0.9.0", "1.0.0", "1.0.1", "1.1.0", "1.2.0", "2.0.0", "2.1.0"])
        .channel("a", &["1.0.0 r 0.9.0", "1.0.1 r 1.0.0", "1.1.0 r 1.0.0 s 1.0.1", "0.9.0 sr >=1.0.0 <1.2.0"])
        .channel("b", &["1.2.0 sr >=0.9.0 <1.1.0", "2.0.0 r 1.2.0", "2.1.0"])
        .graph();
    let mut reached = 0;
    for from in graph.bundles() {
        let from = graph.version(from).unwrap().to_string();
        let found = hops(&graph, &from);
        for to in graph.bundles() {
            let version = graph.version(to).unwrap();
            if version.to_string() == from {
                continue;
            }
            let way = path(&query(&graph, &from, Target::Version(version.clone())), RuleSet::V1);
            let known = found.iter().find(|(found, _)| *found == version.to_string());
            assert_eq!(
                known.map(|(_, hops)| *hops),
                way.pinned.map(|steps| steps.len()),
                "{from} to {version}"
            );
            reached += usize::from(known.is_some());
        }
    }
    assert!(reached >= 10, "{reached} pairs are connected");
}

#[test]
fn path_starts_at_a_version_or_name() {
    let graph = Pkg::new("p").bundles(&["1.0.0", "1.0.0+2", "2.0.0"]).graph();
    for (text, want) in [
        ("2.0.0", Some(("p.v2.0.0", "2.0.0"))),
        ("p.v2.0.0", Some(("p.v2.0.0", "2.0.0"))),
        ("1.0.0", Some(("p.v1.0.0+2", "1.0.0+2"))),
        ("1.0.0+2", Some(("p.v1.0.0+2", "1.0.0+2"))),
        ("p.v1.0.0", Some(("p.v1.0.0", "1.0.0"))),
        ("1.5.0", Some(("p.v1.5.0", "1.5.0"))),
        ("latest", None),
        ("1.0", None),
        ("", None),
    ] {
        let found = Installed::find(&graph, text);
        let found = found.as_ref().map(|found| (found.name.as_str(), found.version.to_string()));
        assert_eq!(found.as_ref().map(|(name, version)| (*name, version.as_str())), want, "{text}");
    }
}

/// A target that the package does not have is reported as missing, not only out of reach.
#[test]
fn path_names_an_unknown_target() {
    let graph = Pkg::new("p").bundles(&["1.0.0"]).channel("stable", &["1.0.0"]).graph();
    let way = path(&query(&graph, "1.0.0", Target::Version("9.9.9".parse().unwrap())), RuleSet::V1);
    assert_eq!((way.reached, way.warnings), (false, vec!["the package has no version 9.9.9".to_owned()]));
}

/// The reasons of Classic name edges as those of v1 do, the text of a skipRange included.
#[test]
fn reasons_name_edge_and_channel() {
    let graph = Pkg::new("p")
        .bundles(&["1.0.0", "1.1.0", "1.2.0", "1.3.0"])
        .channel("c", &["1.0.0", "1.1.0 sr >=1.0.0 <1.1.0 ", "1.2.0 s 1.1.0", "1.3.0 r 1.2.0"])
        .channel("d", &["1.1.0 sr >=1.0.0 <1.1.0"])
        .graph();
    for rules in [RuleSet::V1, RuleSet::Classic] {
        let mut query = query(&graph, "1.0.0", Target::Anywhere);
        query.channels = vec!["d".parse().unwrap()];
        let way = path(&query, rules);
        assert_eq!(way.hops[0].why, "its skipRange >=1.0.0 <1.1.0 covers 1.0.0 in channel d", "{rules:?}");
    }
}

/// Each bundle leads to each later one: what was found is not looked at again.
#[test]
fn reachable_bundles_of_a_common_range_are_found_fast() {
    let name = |at: usize| format!("p.v1.{at}.0");
    let count = 20_000;
    let entry = |at: usize| ChannelEntry {
        name: name(at),
        skip_range: "<2.0.0".to_owned(),
        ..ChannelEntry::default()
    };
    let bundle = |at: usize| BundleDraft {
        name: name(at),
        version: Ok((format!("1.{at}.0"), None)),
        ..BundleDraft::default()
    };
    let graph = GraphDraft {
        package: "p".to_owned(),
        channels: vec![ChannelDraft { name: "c".to_owned(), entries: (0..count).map(entry).collect() }],
        bundles: (0..count).map(bundle).collect(),
        ..GraphDraft::default()
    };
    let graph = graph.build(ReleaseField::Counts);
    assert_eq!(hops(&graph, "1.0.0").len(), count - 1);
}

/// Many heads over one long chain, and long skips: the cost must not be their product.
#[test]
fn path_of_a_broad_package_is_fast() {
    let name = |at: usize| format!("p.v1.{at}.0");
    let mut entries: Vec<ChannelEntry> = (0..2_000)
        .map(|at| ChannelEntry {
            name: name(at),
            replaces: if at == 0 { String::new() } else { name(at - 1) },
            skips: (0..at.saturating_sub(1)).step_by(20).map(name).collect(),
            ..ChannelEntry::default()
        })
        .collect();
    entries.extend((2_000..4_000).map(|at| ChannelEntry {
        name: name(at),
        replaces: name(1_999),
        ..ChannelEntry::default()
    }));
    let bundle = |at: usize| BundleDraft {
        name: name(at),
        version: Ok((format!("1.{at}.0"), None)),
        ..BundleDraft::default()
    };
    let graph = GraphDraft {
        package: "p".to_owned(),
        channels: vec![ChannelDraft { name: "c".to_owned(), entries }],
        bundles: (0..4_000).map(bundle).collect(),
        ..GraphDraft::default()
    };
    let graph = Arc::new(graph.build(ReleaseField::Counts));
    let way = path(&query(&graph, "1.1998.0", Target::Anywhere), RuleSet::Classic);
    let End::Error(message) = way.end else { panic!("{:?}", way.end) };
    assert!(message.contains("but 2000 replacement chains were found"), "{}", &message[..200]);
    let way = path(&query(&graph, "1.1990.0", Target::Anywhere), RuleSet::V1);
    assert!(way.hops.len() >= 2 && way.hops.iter().all(|hop| hop.not_offered.len() <= 20));
}
