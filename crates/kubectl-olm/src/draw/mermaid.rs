//! The graph as a Mermaid flowchart, for Markdown pages. Names of nodes are generated; every foreign text is a quoted
//! label in which the special characters of Mermaid and HTML are written as character codes.

use super::links::{EdgeSource, Kind, Links, lines};
use super::plain;
use super::scene::{Presence, Reach, Scene};

/// Most edges: Mermaid rejects more than 500 unless it is configured otherwise.
const MAX_EDGES: usize = 480;
const MAX_NODES: usize = 400;

pub(crate) fn mermaid(scene: &Scene) -> String {
    let mut links = Links::new(scene, usize::MAX);
    let shown = scene.nodes.len().min(MAX_NODES);
    links
        .edges
        .retain(|edge| edge.to < shown && !matches!(edge.from, EdgeSource::Node(node) if node >= shown));
    let missing_edges = links.edges.len().saturating_sub(MAX_EDGES);
    links.edges.truncate(MAX_EDGES);

    let mut text = String::from("flowchart BT\n");
    let mut line = |line: String| text += &format!("    {line}\n");
    line(format!("title[\"{}: {}\"]:::title", label(&scene.package), label(&scene.summary())));
    for at in 0..shown {
        let lines: Vec<String> = lines(scene, at).iter().map(|text| label(text)).collect();
        line(format!("n{at}[\"{}\"]{}", lines.join("<br/>"), class(scene, at)));
    }
    let used: Vec<&str> = links
        .ranges
        .iter()
        .copied()
        .filter(|&range| links.edges.iter().any(|edge| edge.from == EdgeSource::Range(range)))
        .collect();
    for (number, range) in used.iter().enumerate() {
        line(format!("r{number}([\"{}\"]):::range", label(range)));
    }
    for edge in &links.edges {
        let from = match edge.from {
            EdgeSource::Node(node) => format!("n{node}"),
            EdgeSource::Range(range) => format!("r{}", used.binary_search(&range).unwrap_or_default()),
        };
        let (connector, word) = match edge.kind {
            Kind::Replaces => ("-->", None),
            Kind::Skips => ("-.->", Some("skips")),
            Kind::SkipRange => ("-.->", Some("skipRange")),
        };
        let words: Vec<String> =
            word.map(str::to_owned).into_iter().chain(edge.only_in.as_deref().map(label)).collect();
        let words = if words.is_empty() { String::new() } else { format!("|\"{}\"|", words.join(": ")) };
        line(format!("{from} {connector}{words} n{}", edge.to));
    }
    for (kind, color) in [(Kind::Skips, "#c2570c"), (Kind::SkipRange, "#6d28d9")] {
        let of_kind = links.edges.iter().enumerate().filter(|(_, edge)| edge.kind == kind);
        let numbers: Vec<String> = of_kind.map(|(number, _)| number.to_string()).collect();
        if !numbers.is_empty() {
            line(format!("linkStyle {} stroke:{color}", numbers.join(",")));
        }
    }
    let missing_nodes = scene.nodes.len() - shown;
    if missing_nodes + missing_edges > 0 {
        line(format!(
            "missing[\"not drawn: the {missing_nodes} lowest versions and {missing_edges} more edges; narrow the picture \
             down with --channel\"]:::title"
        ));
    }
    for (name, style) in [
        ("title", "fill:none,stroke:none"),
        ("range", "fill:#f5f3ff,stroke:#6d28d9,stroke-dasharray:2 2"),
        ("head", "stroke-width:3px"),
        ("deprecated", "fill:#fde68a"),
        ("reachable", "fill:#dcfce7"),
        ("next", "fill:#86efac"),
        ("installed", "fill:#bfdbfe"),
        ("mentioned", "fill:#f1f5f9,stroke-dasharray:4 3"),
    ] {
        line(format!("classDef {name} {style}"));
    }
    text
}

/// The class of a node, the most specific first.
fn class(scene: &Scene, at: usize) -> &'static str {
    let node = &scene.nodes[at];
    match (node.reach, &node.presence) {
        (Reach::Installed, _) => ":::installed",
        (Reach::Next, _) => ":::next",
        (_, Presence::Mentioned) => ":::mentioned",
        _ if node.deprecated.is_some() => ":::deprecated",
        (Reach::Hops(_), _) => ":::reachable",
        (Reach::No, _) if scene.is_head(at) => ":::head",
        (Reach::No, _) => "",
    }
}

/// A foreign text inside `"…"`: letters, digits and harmless signs stay, all else becomes `#code;`.
fn label(text: &str) -> String {
    let mut label = String::new();
    for c in plain(text).chars() {
        if c.is_alphanumeric() || matches!(c, ' ' | '.' | '-' | '_' | '+' | ',' | ':' | '/' | '(' | ')' | '=')
        {
            label.push(c);
        } else {
            label += &format!("#{};", u32::from(c));
        }
    }
    label
}
