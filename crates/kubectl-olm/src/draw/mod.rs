//! Pictures of a package's upgrade graph: a [`Scene`] has the content, and each drawer turns it into text.
//!
//! Pure: from a `PackageGraph` to a `String`, in four forms (text tree, Mermaid, Graphviz DOT, SVG) and as JSON. The
//! edges come from the resolver's graph and what can be reached from the resolver itself; nothing is decided here.
//! Foreign texts are escaped by each drawer, in one function of it. What does not fit on a page is left out, and the
//! picture has a notice about it (rule: update-graph §11).

mod dot;
mod links;
mod mermaid;
mod scene;
mod svg;
mod tree;

#[cfg(test)]
mod tests;

pub(crate) use dot::dot;
pub(crate) use mermaid::mermaid;
pub(crate) use scene::Scene;
pub(crate) use svg::svg;
pub(crate) use tree::tree;

use crate::cmd::output::counted;

/// The beginning of a long text; never more than `most` characters.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The first `most` names, and the number of the others.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let shown = names.take(most).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// A foreign text on one line, without characters that steer a terminal, turn the direction of writing or are not
/// allowed in XML.
fn plain(text: &str) -> String {
    text.chars().map(|c| if crate::terminal::steers(c) { '\u{fffd}' } else { c }).collect()
}
