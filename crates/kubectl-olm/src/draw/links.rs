//! Edges for the formats without own layout (DOT, Mermaid): one edge for all channels that have it.

use std::collections::{BTreeMap, BTreeSet};

use super::scene::{Presence, Scene};
use super::{counted, listed, plain, shortened};

/// Longest text of a label line, in characters.
const MAX_LINE: usize = 60;
const MAX_CHANNELS: usize = 4;

/// The kind of an edge; the order decides which edges are drawn if there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Replaces,
    SkipRange,
    Skips,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EdgeSource<'a> {
    /// Index in `Scene::nodes`.
    Node(usize),
    /// The text of a skipRange, which is a node of its own.
    Range(&'a str),
}

/// An edge from older to newer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edge<'a> {
    pub(super) kind: Kind,
    pub(super) from: EdgeSource<'a>,
    /// Index in `Scene::nodes`.
    pub(super) to: usize,
    /// The channels that have it, if not all that have an entry for `to`.
    pub(super) only_in: Option<String>,
}

/// All edges of a scene, at most `most` of them.
#[derive(Debug, Default)]
pub(super) struct Links<'a> {
    pub(super) edges: Vec<Edge<'a>>,
    /// Distinct texts of skipRanges among the edges, sorted.
    pub(super) ranges: Vec<&'a str>,
    /// Number of edges beyond the limit.
    pub(super) left_out: usize,
}

impl<'a> Links<'a> {
    pub(super) fn new(scene: &'a Scene, most: usize) -> Self {
        let mut lanes_of: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut all: BTreeMap<(Kind, usize, EdgeSource<'a>), BTreeSet<usize>> = BTreeMap::new();
        for (lane, channel) in scene.channels.iter().enumerate() {
            for entry in &channel.entries {
                lanes_of.entry(entry.node).or_default().insert(lane);
                let replaced =
                    entry.replaces.map(|node| (Kind::Replaces, entry.node, EdgeSource::Node(node)));
                let skipped =
                    entry.skips.iter().map(|&node| (Kind::Skips, entry.node, EdgeSource::Node(node)));
                let range = entry
                    .skip_range
                    .as_ref()
                    .map(|cover| (Kind::SkipRange, entry.node, EdgeSource::Range(cover.range.as_str())));
                for edge in replaced.into_iter().chain(range).chain(skipped) {
                    all.entry(edge).or_default().insert(lane);
                }
            }
        }
        let left_out = all.len().saturating_sub(most);
        let edges: Vec<Edge<'a>> = all
            .into_iter()
            .take(most)
            .map(|((kind, to, from), lanes)| {
                let everywhere = lanes_of.get(&to).is_none_or(|all| *all == lanes);
                let names = || lanes.iter().map(|&lane| scene.channels[lane].name.as_str());
                Edge { kind, from, to, only_in: (!everywhere).then(|| listed(names(), MAX_CHANNELS)) }
            })
            .collect();
        let ranges: BTreeSet<&str> = edges
            .iter()
            .filter_map(|edge| match edge.from {
                EdgeSource::Range(text) => Some(text),
                EdgeSource::Node(_) => None,
            })
            .collect();
        Self { edges, ranges: ranges.into_iter().collect(), left_out }
    }

    /// A notice about the edges that are left out.
    pub(super) fn missing(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!("{} left out: narrow the picture down with --channel", counted(self.left_out, "edge"))
        })
    }
}

/// The lines of a node's label.
pub(super) fn lines(scene: &Scene, at: usize) -> Vec<String> {
    let node = &scene.nodes[at];
    let mut lines = vec![scene.label(at).to_owned()];
    lines.extend(scene.unusual_name(at).map(str::to_owned));
    let mut heads = Vec::new();
    let mut members = Vec::new();
    for lane in &scene.channels {
        match lane.entry(at).map(|entry| entry.head) {
            Some(true) => heads.push(lane.name.as_str()),
            Some(false) => members.push(lane.name.as_str()),
            None => {}
        }
    }
    if !heads.is_empty() {
        lines.push(format!("head of {}", listed(heads.into_iter(), MAX_CHANNELS)));
    }
    if !members.is_empty() && scene.channels.len() > 1 {
        lines.push(format!("in {}", listed(members.into_iter(), MAX_CHANNELS)));
    }
    lines.extend(node.reach.mark("next"));
    match node.presence {
        Presence::Bundle => {}
        Presence::NoVersion(_) => lines.push("no readable version".to_owned()),
        Presence::Mentioned => lines.push("not in the catalog".to_owned()),
    }
    if node.deprecated.is_some() {
        lines.push("deprecated".to_owned());
    }
    lines.iter().map(|line| plain(&shortened(line, MAX_LINE))).collect()
}
