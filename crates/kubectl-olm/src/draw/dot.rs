//! The graph for Graphviz: `dot -Tsvg`. Every foreign text is in a quoted string.

use super::links::{EdgeSource, Kind, Links, lines};
use super::plain;
use super::scene::{Presence, Reach, Scene};

/// Most edges; `dot` takes minutes for more.
const MAX_EDGES: usize = 5_000;

/// The graph in the DOT language.
pub(crate) fn dot(scene: &Scene) -> String {
    let links = Links::new(scene, MAX_EDGES);
    let mut text = String::new();
    let title = format!("{}: {}", scene.package, scene.summary());
    let mut line = |line: String| text += &format!("{line}\n");
    line(format!("digraph {} {{", quoted(&[&scene.package])));
    line(format!("  graph [rankdir=BT, labelloc=t, fontname=Helvetica, label={}];", quoted(&[&title])));
    line(
        "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=Helvetica, fontsize=11];"
            .to_owned(),
    );
    line("  edge [fontname=Helvetica, fontsize=9];".to_owned());
    for at in 0..scene.nodes.len() {
        let label = lines(scene, at);
        let label: Vec<&str> = label.iter().map(String::as_str).collect();
        line(format!("  n{at} [label={}{}];", quoted(&label), style(scene, at)));
    }
    for (number, range) in links.ranges.iter().enumerate() {
        line(format!("  r{number} [shape=note, style=dotted, label={}];", quoted(&["skipRange", range])));
    }
    for edge in &links.edges {
        let from = match edge.from {
            EdgeSource::Node(node) => format!("n{node}"),
            EdgeSource::Range(range) => {
                format!("r{}", links.ranges.binary_search(&range).unwrap_or_default())
            }
        };
        let mut words = Vec::new();
        words.extend(match edge.kind {
            Kind::Replaces => None,
            Kind::Skips => Some("style=dashed, color=\"#c2570c\"".to_owned()),
            Kind::SkipRange => Some("style=dotted, color=\"#6d28d9\"".to_owned()),
        });
        words.extend(edge.only_in.as_ref().map(|channels| format!("label={}", quoted(&[channels]))));
        let words = if words.is_empty() { String::new() } else { format!(" [{}]", words.join(", ")) };
        line(format!("  {from} -> n{}{words};", edge.to));
    }
    if let Some(missing) = links.missing() {
        line(format!("  missing [shape=plaintext, style=\"\", label={}];", quoted(&[&missing])));
    }
    line("}".to_owned());
    text
}

fn style(scene: &Scene, at: usize) -> String {
    let node = &scene.nodes[at];
    let fill = match (node.reach, &node.deprecated, &node.presence) {
        (Reach::Installed, _, _) => Some("#bfdbfe"),
        (Reach::Next, _, _) => Some("#86efac"),
        (Reach::Hops(_), None, _) => Some("#dcfce7"),
        (_, Some(_), _) => Some("#fde68a"),
        (Reach::No, None, Presence::Mentioned) => Some("#f1f5f9"),
        (Reach::No, None, _) => None,
    };
    let mut style = fill.map(|fill| format!(", fillcolor=\"{fill}\"")).unwrap_or_default();
    if scene.is_head(at) {
        style.push_str(", penwidth=2.5");
    }
    if node.presence == Presence::Mentioned {
        style.push_str(", style=\"rounded,filled,dashed\"");
    }
    style
}

/// A quoted string of these lines. DOT itself has only the escape `\"`; labels have more.
fn quoted(lines: &[&str]) -> String {
    let escape = |line: &&str| plain(line).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", lines.iter().map(escape).collect::<Vec<_>>().join("\\n"))
}
