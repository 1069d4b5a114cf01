//! The layout: a row for each version, the newest above, and a lane for each channel. Edges that do not
//! fit between two neighbours run beside the lane, in tracks: skips to its left, all others to its right.

use std::collections::{BTreeMap, BTreeSet};

use crate::draw::scene::{Lane, Reach, Scene};

/// Most rows; the rest is gathered in one row at the bottom.
const MAX_ROWS: usize = 300;
const MAX_LANES: usize = 40;
/// Most tracks on one side of a lane; what does not fit shares the outermost.
const MAX_TRACKS: usize = 24;

/// Height of a row.
pub(super) const ROW: usize = 24;
/// Half the width of an entry's sign, with a little air.
pub(super) const SIGN: usize = 10;
/// Distance of tracks.
pub(super) const TRACK: usize = 6;
/// Empty space between lanes.
const GAP: usize = 22;

#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Nodes by row.
    pub(super) rows: Vec<usize>,
    /// Nodes that share the row below the last.
    pub(super) gathered: usize,
    pub(super) lanes: Vec<LaneLayout>,
    /// Number of channels beyond the limit.
    pub(super) more_lanes: usize,
    pub(super) width: usize,
}

/// A lane; all numbers of rows are places in `Layout::rows`, or its length for the gathered row.
#[derive(Debug, Default)]
pub(super) struct LaneLayout {
    /// Place in `Scene::channels`.
    pub(super) channel: usize,
    /// Left edge of the lane's strip.
    pub(super) left: usize,
    /// Where the signs stand.
    pub(super) center: usize,
    /// Right edge of the lane's strip.
    pub(super) right: usize,
    /// First and last row.
    pub(super) rows: (usize, usize),
    /// Entries: row and place in the channel's entries.
    pub(super) entries: Vec<(usize, usize)>,
    /// Rows whose names the channel mentions without an entry.
    pub(super) ghosts: Vec<usize>,
    /// `replaces` between neighbours: (older, newer).
    pub(super) straight: Vec<(usize, usize)>,
    /// Edges beside the lane.
    pub(super) beside: Vec<Beside>,
}

/// Edges that share one line beside a lane.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) what: What,
    /// Track, counted from the lane outwards.
    pub(super) track: usize,
    pub(super) from: Rows,
    /// Rows that the edges lead to.
    pub(super) to: BTreeSet<usize>,
    /// Shown on hover.
    pub(super) tooltip: String,
}

/// Rows that edges come from.
#[derive(Debug)]
pub(super) enum Rows {
    /// Each of these.
    Each(BTreeSet<usize>),
    /// All from the first to the second.
    Span(usize, usize),
    /// None that is drawn.
    Nowhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Replaces,
    /// A `replaces` that leads to a lower version.
    Down,
    Skips,
    SkipRange,
}

impl Beside {
    /// First and last row that the line touches.
    pub(super) fn extent(&self) -> (usize, usize) {
        let first = |rows: &BTreeSet<usize>| rows.first().copied();
        let last = |rows: &BTreeSet<usize>| rows.last().copied();
        let (low, high) = match &self.from {
            Rows::Each(rows) => (first(rows), last(rows)),
            Rows::Span(top, bottom) => (Some(*top), Some(*bottom)),
            Rows::Nowhere => (None, None),
        };
        let top = low.into_iter().chain(first(&self.to)).min().unwrap_or_default();
        let bottom = high.into_iter().chain(last(&self.to)).max().unwrap_or_default();
        (top, bottom)
    }
}

impl Layout {
    pub(super) fn new(scene: &Scene) -> Self {
        let kept = rows(scene);
        let row_of: BTreeMap<usize, usize> =
            kept.iter().enumerate().map(|(row, &node)| (node, row)).collect();
        let gathered = scene.nodes.len() - kept.len();
        let mut layout = Self { rows: kept, gathered, ..Self::default() };
        let last = layout.rows.len();
        let row = |node: usize| row_of.get(&node).copied().unwrap_or(last);
        let mut at = 0;
        for (channel, lane) in scene.channels.iter().enumerate().take(MAX_LANES) {
            let mut made = place(scene, lane, last, &row);
            made.channel = channel;
            let side = |left: bool| {
                let tracks = made.beside.iter().filter(|edge| (edge.what == What::Skips) == left);
                tracks.map(|edge| edge.track + 1).max().unwrap_or(0) * TRACK
            };
            let (to_left, to_right) = (side(true), side(false));
            made.left = at;
            made.center = at + to_left + SIGN + 2;
            made.right = made.center + SIGN + 2 + to_right;
            at = made.right + GAP;
            layout.lanes.push(made);
        }
        layout.more_lanes = scene.channels.len().saturating_sub(MAX_LANES);
        layout.width = at.saturating_sub(GAP);
        layout
    }
}

/// The nodes that get a row of their own, in their order.
fn rows(scene: &Scene) -> Vec<usize> {
    if scene.nodes.len() <= MAX_ROWS {
        return (0..scene.nodes.len()).collect();
    }
    let heads = scene.channels.iter().flat_map(|lane| lane.entries.iter().filter(|entry| entry.head));
    let heads: BTreeSet<usize> = heads.map(|entry| entry.node).collect();
    let marked = |at: &usize| matches!(scene.nodes[*at].reach, Reach::Installed | Reach::Next);
    let mut kept: BTreeSet<usize> = (0..scene.nodes.len()).filter(marked).collect();
    let candidates = heads.into_iter().chain(0..scene.nodes.len());
    for at in candidates {
        if kept.len() >= MAX_ROWS {
            break;
        }
        kept.insert(at);
    }
    kept.into_iter().collect()
}

fn place(scene: &Scene, lane: &Lane, last: usize, row: &dyn Fn(usize) -> usize) -> LaneLayout {
    let mut made = LaneLayout::default();
    let mut own: BTreeSet<usize> = BTreeSet::new();
    let mut mentioned: BTreeSet<usize> = BTreeSet::new();
    for (number, entry) in lane.entries.iter().enumerate() {
        let at = row(entry.node);
        if at < last {
            made.entries.push((at, number));
        }
        own.insert(at);
        mentioned.extend(entry.replaces.into_iter().chain(entry.skips.iter().copied()).map(row));
    }
    made.ghosts = mentioned.difference(&own).copied().filter(|&at| at < last).collect();
    let all: BTreeSet<usize> = own.union(&mentioned).copied().collect();
    made.rows = (all.first().copied().unwrap_or_default(), all.last().copied().unwrap_or_default());

    let mut lines = Lines::default();
    for entry in &lane.entries {
        let to = row(entry.node);
        let tooltip = |what: &str| format!("{} {what}", scene.label(entry.node));
        if let Some(older) = entry.replaces {
            let from = row(older);
            let (top, bottom) = (from.min(to), from.max(to));
            let neighbours = all.range(top + 1..bottom.max(top + 1)).next().is_none();
            if from == to && from == last {
                // both are in the gathered row
            } else if from != to && neighbours {
                made.straight.push((from, to));
            } else {
                let key = Key::Named(What::Replaces, to >= from, BTreeSet::from([from]));
                lines.add(key, to, tooltip(&format!("replaces {}", scene.label(older))));
            }
        }
        let skipped: BTreeSet<usize> = entry.skips.iter().map(|&node| row(node)).collect();
        let gathered = to == last && skipped.first() == Some(&last);
        if !skipped.is_empty() && !gathered {
            let names: Vec<&str> = entry.skips.iter().take(20).map(|&node| scene.label(node)).collect();
            let down = skipped.first().is_some_and(|&first| to >= first);
            lines.add(
                Key::Named(What::Skips, down, skipped),
                to,
                tooltip(&format!("skips {}", names.join(", "))),
            );
        }
        let Some(cover) = entry.skip_range.as_ref().filter(|_| to < last) else { continue };
        let tooltip = tooltip(&format!("skipRange {}", cover.range));
        let key = match cover.ends.map(|(first, last)| (row(first), row(last))) {
            Some((_, bottom)) if cover.gapless => Key::Foot(bottom),
            Some((top, bottom)) => Key::Span(top, bottom),
            None => Key::Nowhere(to),
        };
        lines.add(key, to, tooltip);
    }
    let mut beside = lines.finish();
    choose_tracks(&mut beside);
    made.beside = beside;
    made
}

/// Edges with an equal key share a line.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Kind, whether it leads down, and the rows that are named.
    Named(What, bool, BTreeSet<usize>),
    /// A skipRange that holds everything from below its entry down to this row.
    Foot(usize),
    /// A skipRange that begins further down.
    Span(usize, usize),
    /// A skipRange of this row's entry that holds nothing.
    Nowhere(usize),
}

/// Lines with the rows that they lead to, and their tooltips.
#[derive(Debug, Default)]
struct Lines(BTreeMap<Key, (BTreeSet<usize>, Vec<String>)>);

impl Lines {
    fn add(&mut self, key: Key, to: usize, tooltip: String) {
        let (rows, texts) = self.0.entry(key).or_default();
        rows.insert(to);
        texts.push(tooltip);
    }

    fn finish(self) -> Vec<Beside> {
        let line = |(key, (to, texts)): (Key, (BTreeSet<usize>, Vec<String>))| {
            let tooltip = texts.into_iter().take(20).collect::<Vec<_>>().join("\n");
            let (what, from) = match key {
                Key::Named(what, down, rows) => {
                    (if down && what == What::Replaces { What::Down } else { what }, Rows::Each(rows))
                }
                Key::Foot(foot) => {
                    let top = to.first().map_or(foot, |first| first + 1).min(foot);
                    (What::SkipRange, Rows::Span(top, foot))
                }
                Key::Span(top, bottom) => (What::SkipRange, Rows::Span(top, bottom)),
                Key::Nowhere(_) => (What::SkipRange, Rows::Nowhere),
            };
            Beside { what, track: 0, from, to, tooltip }
        };
        self.0.into_iter().map(line).collect()
    }
}

/// Short lines near the lane, long ones outside, so that they do not cross more than they must.
fn choose_tracks(beside: &mut [Beside]) {
    beside.sort_by_key(|edge| {
        let (top, bottom) = edge.extent();
        (bottom - top, top)
    });
    let mut taken: [Vec<Vec<(usize, usize)>>; 2] = [Vec::new(), Vec::new()];
    for edge in beside {
        let (top, bottom) = edge.extent();
        let tracks = &mut taken[usize::from(edge.what == What::Skips)];
        let free = |spans: &Vec<(usize, usize)>| spans.iter().all(|&(t, b)| bottom < t || b < top);
        let track = tracks.iter().position(free).unwrap_or(tracks.len()).min(MAX_TRACKS - 1);
        if track == tracks.len() {
            tracks.push(Vec::new());
        }
        tracks[track].push((top, bottom));
        edge.track = track;
    }
}
