//! Edges for drawers that leave the layout to somebody else: one edge for all channels that have it.

use std::collections::{BTreeMap, BTreeSet};

use super::scene::{Presence, Reach, Scene};
use super::{counted, plain, shortened};

/// Longest text of a label line, in characters.
const MAX_LINE: usize = 60;

/// What an edge stands for, in the order in which edges are kept when there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Replaces,
    SkipRange,
    Skips,
}

/// Where an edge comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum From<'a> {
    /// Place in `Scene::nodes`.
    Node(usize),
    /// The text of a skipRange, which is a node of its own.
    Range(&'a str),
}

/// An edge from older to newer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edge<'a> {
    pub(super) kind: Kind,
    pub(super) from: From<'a>,
    /// Place in `Scene::nodes`.
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
    /// How many edges there was no room for.
    pub(super) left_out: usize,
}

impl<'a> Links<'a> {
    pub(super) fn new(scene: &'a Scene, most: usize) -> Self {
        let mut lanes_of: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut all: BTreeMap<(Kind, usize, From<'a>), BTreeSet<usize>> = BTreeMap::new();
        for (lane, channel) in scene.channels.iter().enumerate() {
            for entry in &channel.entries {
                lanes_of.entry(entry.node).or_default().insert(lane);
                let replaced = entry.replaces.map(|node| (Kind::Replaces, entry.node, From::Node(node)));
                let skipped = entry.skips.iter().map(|&node| (Kind::Skips, entry.node, From::Node(node)));
                let range = entry
                    .skip_range
                    .as_ref()
                    .map(|cover| (Kind::SkipRange, entry.node, From::Range(cover.range.as_str())));
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
                Edge { kind, from, to, only_in: (!everywhere).then(|| list(names())) }
            })
            .collect();
        let ranges: BTreeSet<&str> = edges
            .iter()
            .filter_map(|edge| match edge.from {
                From::Range(text) => Some(text),
                From::Node(_) => None,
            })
            .collect();
        Self { edges, ranges: ranges.into_iter().collect(), left_out }
    }

    /// A sentence about what there was no room for.
    pub(super) fn missing(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!("{} left out: narrow the picture down with --channel", counted(self.left_out, "edge"))
        })
    }
}

/// What stands in a node's box, line by line.
pub(super) fn lines(scene: &Scene, at: usize) -> Vec<String> {
    let node = &scene.nodes[at];
    let mut lines = vec![scene.label(at).to_owned()];
    lines.extend(scene.odd_name(at).map(str::to_owned));
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
        lines.push(format!("head of {}", list(heads.into_iter())));
    }
    if !members.is_empty() && scene.channels.len() > 1 {
        lines.push(format!("in {}", list(members.into_iter())));
    }
    match node.reach {
        Reach::No => {}
        Reach::Installed => lines.push("installed".to_owned()),
        Reach::Next => lines.push("next".to_owned()),
        Reach::Hops(hops) => lines.push(format!("reachable in {}", counted(hops, "hop"))),
    }
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

/// At most four names.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len().checked_sub(4) {
        Some(more @ 1..) => format!("{} and {more} more", names[..4].join(", ")),
        _ => names.join(", "),
    }
}
