//! T1 to T18 of the page update-graph, in the columns of Classic. `none` is nothing installed, `—` no change.

use olm_solver::{Catalog, InstalledCsv, Limits, solve};

use crate::common::{Pkg, pkg, property, space};
use serde_json::json;

/// The version that the Subscription to a channel moves to, or the error.
fn next(package: Pkg, channel: &str, installed: &str, starting: &str) -> String {
    let mut space = space().catalog("own", [package]).subscribe_to("p", |it| {
        it.channel = channel.to_owned();
        if installed != "none" {
            it.installed_csv = format!("p.v{installed}");
        }
        if !starting.is_empty() {
            it.starting_csv = format!("p.v{starting}");
        }
    });
    if installed != "none" {
        space = space.installed("p", installed, &[]);
    }
    space.outcome().replace("p.v", "")
}

/// Rows of `installed` and the expected result, which may be the beginning of an error.
fn check(table: &str, package: &Pkg, channel: &str, rows: &[(&str, &str)]) {
    for (installed, want) in rows {
        let got = next(package.clone(), channel, installed, "");
        println!("| {table} | {channel} | {installed} | {got} |");
        let is_equal = if want.starts_with("E ") { got.starts_with(want) } else { got == *want };
        assert!(is_equal, "{table}, channel {channel:?}, installed {installed}: {got}, not {want}");
    }
}

const CHAIN: &str = "1.0.0; 1.0.1 r 1.0.0; 1.0.2 r 1.0.1";
const TWO_CHAINS: &str = "E a unique replacement chain within a channel is required";
const NO_HEAD: &str = "E no channel heads";
const CYCLE: &str = "E a cycle exists in the chain of replacement beginning with \"1.2.0\"";

#[test]
#[rustfmt::skip]
fn graph_of_one_channel() {
    let jump = "1.0.0; 1.0.1 r 1.0.0; 1.0.2 r 1.0.1; 1.0.3 r 1.0.2 sr >=1.0.0 <1.0.3";
    let nearest = "1.0.0; 1.1.0 r 1.0.0 sr >=0.9.0 <1.1.0; 1.2.0 r 1.1.0; 1.3.0 r 1.2.0 sr >=1.0.0 <1.2.0";
    for (table, entries, rows) in [
        ("T1", CHAIN, &[("none", "1.0.2"), ("1.0.0", "1.0.1"), ("1.0.1", "1.0.2"), ("1.0.2", "—"), ("0.9.0", "—")][..]),
        ("T2", "1.0.1 r 1.0.0", &[("none", "1.0.1"), ("1.0.0", "1.0.1"), ("1.0.1", "—")]),
        ("T2 gone", "2.0.0", &[("1.0.0", "—")]),
        ("T3 A", "1.0.3 r 1.0.0 s 1.0.1, 1.0.2", &[("none", "1.0.3"), ("1.0.1", "1.0.3"), ("1.0.2", "1.0.3"), ("0.9.0", "—")]),
        ("T3 B", "1.0.0; 1.0.1 r 1.0.0; 1.0.2 r 1.0.1; 1.0.3 r 1.0.0 s 1.0.1, 1.0.2",
            &[("none", "1.0.3"), ("1.0.0", "1.0.3"), ("1.0.1", "1.0.3"), ("1.0.2", "1.0.3"), ("1.0.3", "—")]),
        ("T4", "1.0.3 sr >=1.0.0 <1.0.3",
            &[("none", "1.0.3"), ("1.0.1", "1.0.3"), ("0.9.0", "—"), ("1.0.0-rc.1", "—"), ("1.0.3-rc.1", "1.0.3")]),
        ("T4 left", "1.0.0; 1.0.1; 1.0.3 sr >=1.0.0 <1.0.3", &[("none", TWO_CHAINS), ("1.0.0", TWO_CHAINS)]),
        ("T5", jump, &[("none", "1.0.3"), ("1.0.0", "1.0.3"), ("1.0.2", "1.0.3")]),
        ("T6", "3.0.0 s 2.0.0; 2.0.0 sr >=1.0.0 <2.0.0", &[("none", "3.0.0"), ("1.0.0", "—"), ("2.0.0", "3.0.0")]),
        ("T6 stranded", "1.0.0; 2.0.0 r 1.0.0; 3.0.0 r 2.0.0 s 2.0.0", &[("1.0.0", "—")]),
        ("T6 late", "1.0.0; 2.0.0 r 1.0.0; 3.0.0 r 1.0.0 s 2.0.0", &[("1.0.0", "3.0.0")]),
        ("T7 A", nearest, &[("1.0.0", "1.3.0"), ("0.9.5", "1.1.0"), ("1.1.0", "1.3.0"), ("1.2.0", "1.3.0")]),
        ("T7 B", "1.0.0; 1.5.0 r 1.0.0; 1.2.9 r 1.5.0 sr >=1.0.0 <1.2.9", &[("none", "1.2.9"), ("1.0.0", "1.2.9"), ("1.5.0", "1.2.9")]),
        ("T10", "2.0.0 sr >=1.0.0 <3.0.0", &[("2.5.0", "2.0.0")]),
        ("T10 itself", "2.0.0 sr >=1.0.0 <=2.0.0", &[("2.0.0", "2.0.0")]),
        ("T12 skip, old", "0.6.1; 0.9.0 r 0.6.1; 0.9.1 r 0.9.0; 0.9.2 r 0.9.1",
            &[("none", "0.9.2"), ("0.6.1", "0.9.0"), ("0.9.0", "0.9.1"), ("0.9.1", "0.9.2"), ("0.9.2", "—")]),
        ("T12 skip, new", "0.6.1; 0.9.0 r 0.6.1; 0.9.1; 0.9.2 r 0.9.0 s 0.9.1",
            &[("none", "0.9.2"), ("0.6.1", "0.9.0"), ("0.9.0", "0.9.2"), ("0.9.1", "0.9.2")]),
        ("T12 z, new", "0.6.1; 0.9.0 r 0.6.1; 0.9.3 r 0.9.0 s 0.9.1, 0.9.2",
            &[("none", "0.9.3"), ("0.6.1", "0.9.0"), ("0.9.1", "0.9.3"), ("0.9.2", "0.9.3"), ("0.9.3", "—")]),
        ("T12 late", "1.2.3; 1.2.4 r 1.2.3; 1.3.0 r 1.2.3 s 1.2.4", &[("none", "1.3.0"), ("1.2.3", "1.3.0"), ("1.2.4", "1.3.0")]),
        ("T12 late, no skip", "1.2.3; 1.2.4 r 1.2.3; 1.3.0 r 1.2.3", &[("none", TWO_CHAINS), ("1.2.3", TWO_CHAINS)]),
        ("T14 two heads", "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.0.0", &[("none", TWO_CHAINS)]),
        ("T14 cycle", "1.0.0 r 1.1.0; 1.1.0 r 1.0.0", &[("none", NO_HEAD), ("1.0.0", NO_HEAD)]),
        ("T14 cycle under a head", "1.0.0 r 1.1.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0", &[("none", CYCLE), ("1.1.0", CYCLE)]),
        ("T14 itself", "1.0.0 r 1.0.0; 1.1.0 r 1.0.0", &[("none", "E a cycle exists")]),
        ("T14 gap", "1.0.0; 1.2.0 r 1.1.0", &[("none", TWO_CHAINS)]),
        ("T14 bridged", "1.0.0; 1.2.0 r 1.1.0 s 1.0.0", &[("none", "1.2.0"), ("1.0.0", "1.2.0")]),
        ("T14 stranded", "1.0.0; 2.0.0 r 1.0.0; 3.0.0 s 2.0.0", &[("none", "3.0.0"), ("1.0.0", "—"), ("2.0.0", "3.0.0")]),
        ("T14 bad skipRange", "1.1.0 sr garbage", &[("1.0.0", "—"), ("none", "1.1.0")]),
        ("T15 major", "1.9.0; 2.0.0 r 1.9.0", &[("1.9.0", "2.0.0")]),
        ("T15 pre-release", "1.0.0; 1.1.0-rc.1 r 1.0.0", &[("none", "1.1.0-rc.1"), ("1.0.0", "1.1.0-rc.1")]),
        ("T18", "2.0.0; 2.0.0+1; 2.1.0 r 2.0.0; 2.2.0 r 2.1.0 s 2.0.0+1", &[("2.0.0", "2.1.0"), ("2.0.0+1", "2.2.0")]),
    ] {
        check(table, &pkg("p", entries), "stable", rows);
    }
}

#[test]
fn graph_of_several_channels() {
    let crossing = pkg("p", "1.1.0; 1.2.0 r 1.1.0")
        .channel("repl", "2.0.0 r 1.1.0")
        .channel("skip", "2.1.0 s 1.1.0")
        .channel("srange", "2.2.0 sr >=1.0.0 <2.0.0")
        .channel("none", "2.9.0")
        .channel("old", "1.0.0; 1.1.0 r 1.0.0");
    for (channel, want) in [
        ("repl", "2.0.0"),
        ("skip", "2.1.0"),
        ("srange", "2.2.0"),
        ("none", "—"),
        ("stable", "1.2.0"),
        ("old", "—"),
    ] {
        check("T8", &crossing, channel, &[("1.1.0", want)]);
    }
    let missing = "E constraints not satisfiable: no operators found in channel nope of package p in the catalog referenced by \
                   subscription sub-p, subscription sub-p exists";
    check("T8", &crossing, "nope", &[("1.1.0", missing)]);

    let promoted = pkg("p", "0.4.0 r 0.1.0 s 0.2.0, 0.3.0")
        .channel("alpha", "0.1.0; 0.2.0 r 0.1.0; 0.3.0 r 0.2.0; 0.4.0 r 0.3.0; 0.5.0 r 0.4.0; 0.6.0 r 0.5.0")
        .channel("beta", "0.2.0 r 0.1.0; 0.4.0 r 0.2.0; 0.6.0 r 0.4.0");
    let rows: [(&str, [&str; 7]); 3] = [
        ("alpha", ["0.6.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "—"]),
        ("beta", ["0.6.0", "0.2.0", "0.4.0", "—", "0.6.0", "—", "—"]),
        ("stable", ["0.4.0", "0.4.0", "0.4.0", "0.4.0", "—", "—", "—"]),
    ];
    for (channel, wants) in rows {
        let installed = ["none", "0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0"];
        let rows: Vec<(&str, &str)> = installed.into_iter().zip(wants).collect();
        check("T9", &promoted, channel, &rows);
    }

    let mut two = pkg("p", "")
        .channel("alpha", "0.1.1; 0.1.2 r 0.1.1")
        .channel("beta", "0.1.1; 0.1.2 r 0.1.1; 0.1.3 r 0.1.2");
    two.0.default_channel = "alpha".to_owned();
    check("T11", &two, "alpha", &[("none", "0.1.2"), ("0.1.1", "0.1.2"), ("0.1.2", "—"), ("0.1.3", "—")]);
    check("T11", &two, "beta", &[("none", "0.1.3"), ("0.1.1", "0.1.2"), ("0.1.2", "0.1.3"), ("0.1.3", "—")]);
    check("T11", &two, "", &[("none", "0.1.2"), ("0.1.1", "0.1.2"), ("0.1.2", "0.1.3")]);
}

#[test]
fn upgrades_are_entries_with_an_edge() {
    let package = pkg("p", "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0 s 1.0.1 sr >=0.9.0 <1.0.0");
    let catalog = Catalog::new([package.0]);
    for (channel, installed, want) in [
        ("stable", "1.0.0", &["p.v1.1.0"][..]),
        ("", "1.0.0", &["p.v1.1.0"]),
        ("beta", "1.0.0", &[]),
        ("stable", "1.0.1", &["p.v1.2.0"]),
        ("stable", "0.9.5", &["p.v1.2.0"]),
        ("stable", "1.1", &[]),
        ("stable", "1.2.0", &[]),
    ] {
        let name = format!("p.v{installed}");
        let found: Vec<&str> = catalog.upgrades("p", channel, (name.as_str(), installed)).collect();
        assert_eq!(found, want, "from {name} in {channel:?}");
    }
}

#[test]
fn graph_starting_csv_counts_on_first_install() {
    for (entries, installed, starting, want) in [
        (CHAIN, "none", "1.0.0", "1.0.0"),
        (CHAIN, "1.0.0", "1.0.0", "1.0.1"),
        ("1.0.0; 1.0.1; 1.0.3 sr >=1.0.0 <1.0.3", "none", "1.0.0", "1.0.0"),
        (
            "1.0.3 r 1.0.0 s 1.0.1, 1.0.2",
            "none",
            "1.0.1",
            "E constraints not satisfiable: no operators found with name 1.0.1",
        ),
    ] {
        let got = next(pkg("p", entries), "stable", installed, starting);
        assert!(got.starts_with(want), "{entries} from {installed} starting at {starting}: {got}");
    }
}

#[test]
fn graph_of_several_catalogs() {
    let other = || pkg("p", "1.9.0 sr >=1.0.0 <1.9.0");
    for (row, own, source, want) in [
        ("1", "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0 sr >=1.0.0 <1.2.0", "own", "p.v1.2.0"),
        ("2", "1.0.0; 1.1.0 r 1.0.0", "own", "p.v1.1.0"),
        ("3", "1.0.0", "own", "—"),
        ("empty source", "1.0.0", "", TWO_CHAINS),
    ] {
        let space = space().catalog("own", [pkg("p", own)]).catalog_in("ns", "oth", 100, [other()]);
        let space = space.installed("p", "1.0.0", &[]).subscribe_to("p", |it| {
            it.installed_csv = "p.v1.0.0".to_owned();
            if source.is_empty() {
                (it.catalog, it.catalog_namespace) = (String::new(), String::new());
            }
        });
        let got = space.outcome();
        assert!(got.starts_with(want), "T13 {row}: {got}");
    }
}

#[test]
fn graph_of_a_package_in_several_catalogs() {
    // as OLM Classic answers; `*` marks the default channel, `/` parts the catalogs
    for (channel, catalogs, want) in [
        ("stable", "*stable: 1.0.0 / *stable: 1.1.0 r 1.0.0", "1.1.0"),
        ("stable", "*stable: 1.0.0; 1.1.0 r 1.0.0 / *stable: 1.0.0", TWO_CHAINS),
        ("stable", "*stable: 1.0.0; 1.1.0 s 1.0.0 / *stable: 1.0.0", TWO_CHAINS),
        ("stable", "*stable: 1.1.0 r 1.0.0 / *stable: 1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0", TWO_CHAINS),
        ("stable", "*stable: 1.0.0 / stable: 1.1.0 r 1.0.0", "1.1.0"),
        ("stable", "*stable: 1.0.0 / stable: 1.1.0", TWO_CHAINS),
        ("", "*stable: 1.0.0, alpha: 2.0.0 / *alpha: 3.0.0 r 2.0.0, stable: 1.1.0 r 1.0.0", "3.0.0"),
        ("", "*stable: 1.0.0, alpha: 2.0.0 / *stable: 1.1.0 r 1.0.0, alpha: 3.0.0 r 2.0.0", "1.1.0"),
        ("", "*alpha: 2.0.0, stable: 1.0.0 / alpha: 3.0.0 r 2.0.0, stable: 1.1.0 r 1.0.0", "3.0.0"),
        // the channel of the head comes after another one
        ("", "*zeta: 2.0.0, stable: 1.0.0 / zeta: 3.0.0 r 2.0.0, stable: 1.1.0 r 1.0.0", "2.0.0"),
        ("", "zeta: 2.0.0, stable: 1.0.0 / *zeta: 3.0.0 r 2.0.0, stable: 1.1.0 r 1.0.0", "3.0.0"),
    ] {
        let mut space = space().subscribe_to("p", |it| {
            (it.catalog, it.catalog_namespace) = (String::new(), String::new());
            it.channel = channel.to_owned();
        });
        for (at, text) in catalogs.split(" / ").enumerate() {
            let mut package = pkg("p", "");
            package.0.channels.clear();
            package.0.default_channel = "none".to_owned();
            for text in text.split(", ") {
                let (name, entries) = text.split_once(": ").unwrap();
                if let Some(name) = name.strip_prefix('*') {
                    package.0.default_channel = name.to_owned();
                }
                package = package.channel(name.trim_start_matches('*'), entries);
            }
            space = space.catalog(&format!("catalog-{at}"), [package]);
        }
        let got = space.outcome().replace("p.v", "");
        println!("| merged | {channel} | {catalogs} | {got} |");
        assert!(
            if want.starts_with("E ") { got.starts_with(want) } else { got == want },
            "{catalogs}: {got}, not {want}"
        );
    }
}

#[test]
fn graph_solution_names_what_is_replaced() {
    // 1.0.0 is not what the entry replaces
    let package = pkg("p", "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0 sr >=1.0.0 <1.2.0");
    let space = space().catalog("own", [package]);
    for (installed, want) in [("none", "p.v1.1.0"), ("1.0.0", "p.v1.0.0"), ("1.1.0", "p.v1.1.0")] {
        let mut space = space.clone().subscribe("p");
        if installed != "none" {
            space.0.subscriptions[0].installed_csv = format!("p.v{installed}");
            space = space.installed("p", installed, &[]);
        }
        let solution = solve(&space.0, Limits::default()).unwrap();
        let found: Vec<_> = solution.bundles.iter().map(|it| (&*it.name, &*it.replaces)).collect();
        assert_eq!(found, [("p.v1.2.0", want)], "installed: {installed}");
    }
}

#[test]
fn graph_names_count_without_versions() {
    // T15: same version, other name; T14: a version that cannot be read
    let mut package = pkg("p", "1.0.0; next r 1.0.0");
    package.0.bundles[1].properties =
        vec![property("olm.package", json!({"packageName": "p", "version": "1.0.0"}))];
    check("T15", &package, "stable", &[("1.0.0", "next"), ("none", "next")]);
}

#[test]
#[rustfmt::skip]
fn graph_fail_forward_hides_what_failed_replaces() {
    let csv = |version: &str, replaces: &str, phase: &str| {
        let package = json!({"packageName": "p", "version": version});
        InstalledCsv {
            name: format!("p.v{version}"),
            version: version.to_owned(),
            replaces: replaces.to_owned(),
            phase: phase.to_owned(),
            properties: Some(vec![property("olm.package", package)]),
            ..InstalledCsv::default()
        }
    };
    let two = "constraints not satisfiable: @existing/ns//p.v1.0.0";
    for (fail_forward, old, new, want) in [
        (true, ("", "Replacing"), "Failed", "p.v1.2.0"),
        (false, ("", "Replacing"), "Failed", two),
        (true, ("", "Replacing"), "Pending", two),
        (true, ("", "Succeeded"), "Failed", "csv p.v1.0.0 in phase Succeeded instead of Replacing, although p.v1.1.0 replaces it"),
        (true, ("p.v1.1.0", "Replacing"), "Replacing", "csv p.v1.1.0 replaces itself"),
    ] {
        let entries = "1.0.0; 1.1.0 r 1.0.0; 1.2.0 r 1.1.0";
        let mut space = space()
            .catalog("own", [pkg("p", entries)])
            .subscribe_to("p", |it| it.installed_csv = "p.v1.1.0".to_owned());
        space.0.fail_forward = fail_forward;
        space.0.installed = vec![csv("1.0.0", old.0, old.1), csv("1.1.0", "p.v1.0.0", new)];
        let got = space.outcome();
        assert!(got.trim_start_matches("E ").starts_with(want), "{fail_forward} {old:?} {new}: {got}");
    }
}
