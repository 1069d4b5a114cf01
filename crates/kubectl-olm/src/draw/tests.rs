//! Snapshots of a small package with everything in it, and hostile ones that must come out well-formed.

use std::sync::Arc;

use olm_resolver::{
    BundleDraft, ChannelDraft, ChannelEntry, DeprecatedScope, GraphDraft, Installed, PackageGraph,
    ReleaseField,
};
use proptest::prelude::*;

use super::{Scene, dot, mermaid, svg, tree};

/// `name [r name] [s name,name] [sr range]`; names that begin with a digit are versions of package p.
fn entry(text: &str) -> ChannelEntry {
    let (text, range) = text.split_once(" sr ").unwrap_or((text, ""));
    let words: Vec<&str> = text.split(' ').collect();
    let full = |name: &str| match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("p.v{name}"),
        false => name.to_owned(),
    };
    let mut made =
        ChannelEntry { name: full(words[0]), skip_range: range.to_owned(), ..ChannelEntry::default() };
    for pair in words[1..].chunks(2) {
        match pair {
            ["r", name] => made.replaces = full(name),
            ["s", names] => made.skips = names.split(',').map(&full).collect(),
            other => panic!("bad entry {other:?}"),
        }
    }
    made
}

fn channel(name: &str, entries: &[&str]) -> ChannelDraft {
    ChannelDraft { name: name.to_owned(), entries: entries.iter().map(|text| entry(text)).collect() }
}

fn bundle(name: &str, version: &str) -> BundleDraft {
    BundleDraft {
        name: name.to_owned(),
        image: String::new(),
        version: Ok((version.to_owned(), None)),
        ..BundleDraft::default()
    }
}

fn everything() -> Arc<PackageGraph> {
    let versions = ["1.0.0", "1.0.1", "1.0.2", "1.1.0", "1.2.0", "2.0.0-rc.1"];
    let mut bundles: Vec<BundleDraft> =
        versions.iter().map(|version| bundle(&format!("p.v{version}"), version)).collect();
    bundles.push(bundle("p-nightly", "2.1.0"));
    bundles.push(BundleDraft { name: "p.vbad".to_owned(), ..BundleDraft::default() });
    let draft = GraphDraft {
        package: "p".to_owned(),
        default_channel: "stable".to_owned(),
        channels: vec![
            channel("fast", &["1.2.0 r 1.0.2", "2.0.0-rc.1 r 1.2.0 sr >=1.0.0 <2.0.0"]),
            channel(
                "stable",
                &[
                    "1.0.0 r 0.9.0",
                    "1.0.1 r 1.0.0",
                    "1.0.2 r 1.0.0 s 1.0.1 sr >=1.0.0 <1.0.2",
                    "1.1.0 r 1.0.2",
                    "1.2.0 r 1.1.0 s 1.0.1,1.0.2 sr <1.2.0",
                ],
            ),
            channel(
                "broken",
                &["1.0.0 r 1.0.1", "1.0.1 r 1.0.0", "1.1.0 r 1.1.0", "p-nightly", "p.vbad sr ^1"],
            ),
        ],
        bundles,
        deprecations: vec![
            (DeprecatedScope::Package, "use q".to_owned()),
            (DeprecatedScope::Channel("broken".into()), "it is broken".to_owned()),
            (DeprecatedScope::Bundle("p.v1.0.1".into()), "CVE-2026-1 & others".to_owned()),
        ],
        findings: vec![],
    };
    Arc::new(draft.build(ReleaseField::Counts))
}

fn scene(channels: &[&str], installed: Option<&str>) -> Scene {
    let graph = everything();
    let channels: Vec<_> = channels.iter().map(|name| name.parse().unwrap()).collect();
    let installed = installed.map(|text| Installed::find(&graph, text).unwrap());
    Scene::new(&graph, &channels, installed.as_ref())
}

#[test]
fn draw_prints_all_forms() {
    let scene = scene(&[], Some("1.0.1"));
    insta::assert_snapshot!("tree", tree(&scene));
    insta::assert_snapshot!("mermaid", mermaid(&scene));
    insta::assert_snapshot!("dot", dot(&scene));
    insta::assert_snapshot!("svg", svg(&scene));
    insta::assert_json_snapshot!("json", scene);
}

#[test]
fn draw_selects_one_channel() {
    let scene = scene(&["stable"], None);
    insta::assert_snapshot!("tree_of_one_channel", tree(&scene));
    assert_eq!(scene.channels.len(), 1);
    assert!(scene.nodes.iter().all(|node| node.name != "p-nightly"), "only what the channel mentions");
}

/// The installed bundle need not be in the catalog; it is drawn anyway.
#[test]
fn draw_shows_installed_bundle_missing_in_catalog() {
    let scene = scene(&["stable"], Some("1.1.5"));
    assert!(tree(&scene).contains("1.1.5  [installed; no such bundle]"), "{}", tree(&scene));
    assert!(tree(&scene).contains("1.2.0  [head; next]"), "its skipRange covers 1.1.5");
    assert!(svg(&scene).contains("class=\"here\">1.1.5<"));
}

/// Checks what a parser of XML would: balanced tags, quoted attributes, no stray `<` or `&`, allowed characters.
fn well_formed(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    let entities = |text: &str| {
        text.split('&').skip(1).all(|after| {
            ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|entity| after.starts_with(entity))
        })
    };
    let allowed = |c: char| matches!(c, '\n' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    if let Some(bad) = text.chars().find(|&c| !allowed(c)) {
        return Err(format!("character {bad:?}"));
    }
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        if before.contains('>') || !entities(before) {
            return Err(format!("text {before:?}"));
        }
        let end = tag.find('>').ok_or("a tag is not closed")?;
        let (inside, after) = (&tag[1..end], &tag[end + 1..]);
        rest = after;
        if let Some(name) = inside.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("closes {name}"));
            }
            continue;
        }
        let (inside, empty) = inside.strip_suffix('/').map_or((inside, false), |inside| (inside, true));
        let name_end = inside.find(' ').unwrap_or(inside.len());
        let (name, mut attributes) = inside.split_at(name_end);
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(format!("element {name:?}"));
        }
        while !attributes.is_empty() {
            let (key, value) =
                attributes[1..].split_once("=\"").ok_or(format!("attribute {attributes:?}"))?;
            let (value, after) = value.split_once('"').ok_or("a quote is not closed")?;
            let known = key.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
            if !known
                || value.contains('<')
                || !entities(value)
                || !(after.is_empty() || after.starts_with(' '))
            {
                return Err(format!("attribute {key}={value:?}"));
            }
            attributes = after;
        }
        if ["script", "foreignObject", "image", "a"].contains(&name) {
            return Err(format!("element {name}"));
        }
        if !empty {
            open.push(name);
        }
    }
    if open.is_empty() && rest.trim().is_empty() { Ok(()) } else { Err(format!("open {open:?} {rest:?}")) }
}

#[test]
fn draw_xml_check_rejects_malformed() {
    for bad in [
        "<a>",
        "<g></b>",
        "<g x=1/>",
        "<g>&nbsp;</g>",
        "<g>\u{1}</g>",
        "<script/>",
        "<g x=\"<\"/>",
        "<g>a>b</g>",
    ] {
        assert!(well_formed(bad).is_err(), "{bad}");
    }
    assert_eq!(well_formed("<g x=\"1\" y=\"&lt;\"><b/>a &amp; b</g>\n"), Ok(()));
}

/// Every drawing of a scene is well-formed.
fn check(scene: &Scene) -> Result<(), TestCaseError> {
    let picture = svg(scene);
    prop_assert_eq!(well_formed(&picture), Ok(()));
    prop_assert!(!picture.contains("href"), "nothing from elsewhere");
    let dot = dot(scene);
    for line in dot.lines() {
        let quotes = line.replace("\\\\", "").replace("\\\"", "").matches('"').count();
        prop_assert!(quotes % 2 == 0, "{}", line);
    }
    prop_assert_eq!(dot.lines().last(), Some("}"));
    let mermaid = mermaid(scene);
    for line in mermaid.lines().skip(1) {
        let ours = |c: char| c.is_alphanumeric() || " .-_+,:/()=[]\"<>|#;&".contains(c);
        prop_assert!(line.chars().all(ours), "{}", line);
        prop_assert!(line.matches('"').count() % 2 == 0, "{}", line);
        let inside = line.split('"').nth(1).unwrap_or_default().replace("<br/>", "");
        let foreign = inside.contains(['<', '>', '[', ']', '|', '&']);
        prop_assert!(!foreign, "{}", line);
    }
    let tree = tree(scene);
    prop_assert!(!tree.chars().any(|c| c.is_control() && c != '\n'), "{}", tree);
    prop_assert!(serde_json::to_string(scene).is_ok());
    Ok(())
}

/// Hostile texts: markup of every language that is written here, control characters, other scripts.
fn nasty() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (0u8..4, 0u8..3).prop_map(|(minor, patch)| format!("p.v1.{minor}.{patch}")),
        1 => "[a-c]",
        1 => prop::sample::select(vec![
            "", "end", "</text>", "<script>alert(1)</script>", "]]>", "a\"b", "a\\", "\\\"", "-->", "n1[x]", "%%", "`md`",
            "&amp;", "&", "a\nb", "\u{1b}[31m", "\u{0}", "\u{202e}rtl", "\u{ffff}", "日本", "p.v", "p.v1.0.0-", "  ", "#quot;",
        ])
        .prop_map(str::to_owned),
        1 => any::<String>().prop_map(|text| text.chars().take(20).collect()),
    ]
}

fn any_draft() -> impl Strategy<Value = GraphDraft> {
    let range = prop_oneof![
        3 => Just(String::new()),
        1 => nasty(),
        2 => (0u8..4, 0u8..4).prop_map(|(low, high)| format!(">=1.{low}.0 <1.{high}.0")),
        1 => Just("<1.2.0 || >=1.3.0".to_owned()),
    ];
    let entry = (nasty(), nasty(), prop::collection::vec(nasty(), 0..4), range)
        .prop_map(|(name, replaces, skips, skip_range)| ChannelEntry { name, replaces, skips, skip_range });
    let channel = (nasty(), prop::collection::vec(entry, 0..12))
        .prop_map(|(name, entries)| ChannelDraft { name, entries });
    let bundle = (nasty(), nasty()).prop_map(|(name, version)| {
        let version = name.strip_prefix("p.v").map_or(version, str::to_owned);
        BundleDraft { version: Ok((version, None)), name, ..BundleDraft::default() }
    });
    let deprecation = (nasty(), nasty(), 0u8..3).prop_map(|(name, message, kind)| {
        let scope = match kind {
            0 => DeprecatedScope::Package,
            1 => DeprecatedScope::Channel(name.into()),
            _ => DeprecatedScope::Bundle(name.into()),
        };
        (scope, message)
    });
    (
        prop_oneof![Just("p".to_owned()), nasty()],
        nasty(),
        prop::collection::vec(channel, 0..5),
        prop::collection::vec(bundle, 0..16),
        prop::collection::vec(deprecation, 0..3),
    )
        .prop_map(|(package, default_channel, channels, bundles, deprecations)| GraphDraft {
            package,
            default_channel,
            channels,
            bundles,
            deprecations,
            findings: vec![],
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn draw_accepts_any_package(draft in any_draft(), installed in nasty()) {
        let graph = Arc::new(draft.build(ReleaseField::Counts));
        let installed = Installed::find(&graph, &installed);
        let scene = Scene::new(&graph, &[], installed.as_ref());
        check(&scene)?;
        for channel in graph.channels() {
            let name = graph.channel_name(channel).parse().unwrap();
            check(&Scene::new(&graph, &[name], installed.as_ref()))?;
        }
        let again = Scene::new(&graph, &[], installed.as_ref());
        prop_assert_eq!(svg(&again), svg(&scene), "the same input gives the same picture");
    }
}

/// Thousands of versions and edges: the excess is left out, and the pictures have a notice about it.
#[test]
fn draw_limits_size_of_large_packages() {
    let version = |at: usize| format!("{}.{}.{}", at / 100, at % 100 / 10, at % 10);
    let name = |at: usize| format!("p.v{}", version(at));
    let entries: Vec<ChannelEntry> = (0..1_000)
        .map(|at| ChannelEntry {
            name: name(at),
            replaces: if at == 0 { String::new() } else { name(at - 1) },
            skips: (0..at.saturating_sub(1)).step_by(3).map(name).collect(),
            skip_range: format!(">=0.0.0 <{}", version(at)),
        })
        .collect();
    let graph = GraphDraft {
        package: "p".to_owned(),
        channels: (0..50)
            .map(|number| ChannelDraft {
                name: format!("channel-{number}"),
                entries: if number == 0 { entries.clone() } else { entries[..number].to_vec() },
            })
            .collect(),
        bundles: (0..1_000).map(|at| bundle(&name(at), &version(at))).collect(),
        ..GraphDraft::default()
    };
    let graph = Arc::new(graph.build(ReleaseField::Counts));
    let installed = Installed::find(&graph, "0.0.5").unwrap();
    let scene = Scene::new(&graph, &[], Some(&installed));
    check(&scene).unwrap();
    let picture = svg(&scene);
    assert!(picture.contains("not drawn: 700 lower versions; narrow the picture down with --channel"));
    assert!(picture.contains("not drawn: 10 more channels; choose with --channel"));
    assert!(picture.contains("class=\"here\">0.0.5<"), "what is installed is drawn though it is low");
    assert!(picture.len() < 4_000_000, "{} bytes", picture.len());
    assert!(mermaid(&scene).contains("not drawn: the 600 lowest versions"));
    assert!(dot(&scene).contains("edges left out: narrow the picture down with --channel"));
    assert!(tree(&scene).lines().count() < 8_000);
}
