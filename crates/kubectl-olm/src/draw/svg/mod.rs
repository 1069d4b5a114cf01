//! The graph as one SVG picture that needs nothing else: no script, no font, no other file.
//!
//! Like a timetable: a row for each version, the newest above; a lane for each channel, its entries as signs on a
//! line. `replaces` is the line itself, or a line beside it where entries lie between; `skips` are dashed on the left;
//! a skipRange is a dotted bar on the right, from its lowest version up to the entries that have it. Everything has
//! a tooltip.

mod layout;
mod xml;

use std::collections::BTreeSet;

use self::layout::{Beside, LaneLayout, Layout, ROW, Rows, SIGN, TRACK, What};
use self::xml::Xml;
use super::scene::{Node, Presence, Reach, Scene};
use super::{counted, shortened};

/// Space around everything.
const MARGIN: usize = 24;
/// Widest label of a row and widest note, in characters.
const MAX_LABEL: usize = 40;
const MAX_NOTE: usize = 76;
/// Longest tooltip, in characters.
const MAX_TOOLTIP: usize = 1_000;
/// Most findings below the picture.
const MAX_FINDINGS: usize = 8;
/// Narrowest picture, so that title and legend fit.
const MIN_WIDTH: usize = 560;

const SHEET: &str = "\
text{font-family:Verdana,'DejaVu Sans',Geneva,sans-serif;font-size:12px;fill:#1e293b}\
.title{font-size:20px;font-weight:bold}.sub{fill:#475569}.warn{fill:#b45309}.note{font-size:11px;fill:#64748b}\
.gone{fill:#94a3b8;font-style:italic}.old{fill:#92400e;text-decoration:line-through}\
.here{font-weight:bold;fill:#1d4ed8}.go{font-weight:bold;fill:#15803d}.strong{font-weight:bold}\
.lane{fill:#f8fafc;stroke:#e2e8f0}.band{fill:#f1f5f9}.mine{fill:#dbeafe}\
.r,.s,.c,.down{fill:none;stroke-width:2}.r{stroke:#334155}.s{stroke:#c2570c;stroke-dasharray:5 3;stroke-width:1.5}\
.c{stroke:#6d28d9;stroke-dasharray:2 3}.down{stroke:#dc2626}\
.e{fill:#fff;stroke:#334155;stroke-width:2}.head{fill:#334155;stroke:#334155;stroke-width:2}\
.ring{fill:none;stroke:#334155;stroke-width:1.5}.dep{fill:#fbbf24}.reach{fill:#bbf7d0}.next{fill:#16a34a}\
.inst{fill:#2563eb;stroke:#1e3a8a;stroke-width:2}.ghost{fill:#fff;stroke:#64748b;stroke-width:1.5;stroke-dasharray:2 2}";

pub(crate) fn svg(scene: &Scene) -> String {
    Page::new(scene).draw()
}

struct Page<'a> {
    scene: &'a Scene,
    layout: Layout,
    notes: Vec<(String, String)>,
    /// Left edge of the lanes.
    lanes_at: usize,
    /// Left edge of the notes.
    notes_at: usize,
    /// Upper edge of the first row.
    rows_at: usize,
    /// Whether the names of channels stand slantwise.
    slanted: bool,
    width: usize,
}

/// About how wide a text of 12 pixels is.
fn wide(characters: usize) -> usize {
    characters * 15 / 2
}

fn length(text: &str) -> usize {
    text.chars().count()
}

impl<'a> Page<'a> {
    fn new(scene: &'a Scene) -> Self {
        let layout = Layout::new(scene);
        let labels = layout.rows.iter().map(|&node| length(scene.label(node)).min(MAX_LABEL));
        let lanes_at = MARGIN + wide(labels.max().unwrap_or(0).max(8)) + 20;
        let notes_at = lanes_at + layout.width + 24;
        let notes: Vec<(String, String)> = layout.rows.iter().map(|&node| notes(scene, node)).collect();
        let note_width = notes.iter().map(|(short, _)| length(short)).max().unwrap_or(0) * 7;
        let names = layout.lanes.iter().map(|lane| (lane, length(&lane_name(scene, lane))));
        let slanted = names
            .clone()
            .any(|(lane, name)| layout.lanes.len() > 1 && wide(name) > lane.right - lane.left + 20);
        let longest = names.clone().map(|(_, name)| wide(name)).max().unwrap_or(0);
        // slantwise by 40 degrees: up by 0.65 of the length, and to the right by 0.77 of it
        let header = if slanted { longest * 13 / 20 + 24 } else { 34 };
        let overhang = names
            .map(|(lane, name)| lane.center + if slanted { wide(name) * 4 / 5 } else { wide(name) / 2 + 8 })
            .max()
            .unwrap_or(0);
        let subtitles = 1 + usize::from(scene.deprecated.is_some()) + usize::from(layout.more_lanes > 0);
        let rows_at = MARGIN + 24 + subtitles * 20 + header;
        let title = length(&scene.package).min(60) * 13;
        let width = [
            notes_at + note_width,
            lanes_at + overhang,
            MARGIN + title,
            MARGIN + wide(length(&scene.summary())),
            MIN_WIDTH,
        ];
        let width = width.into_iter().max().unwrap_or(MIN_WIDTH) + MARGIN;
        Self { scene, layout, notes, lanes_at, notes_at, rows_at, slanted, width }
    }

    fn draw(&self) -> String {
        let mut body = Xml::default();
        self.title(&mut body);
        self.rows(&mut body);
        for lane in &self.layout.lanes {
            self.lane(&mut body, lane);
        }
        let legend = self.legend(&mut body, self.rows_end() + 16);
        let end = self.findings(&mut body, legend + 8);
        let mut page = Xml::default();
        let (width, height) = (self.width, end + MARGIN - 8);
        let view = format!("0 0 {width} {height}");
        let attributes: [xml::Attribute<'_>; 5] = [
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("width", &width),
            ("height", &height),
            ("viewBox", &view),
            ("role", &"img"),
        ];
        page.element("svg", &attributes, |page| {
            page.leaf("title", &[], &format!("Upgrade graph of {}", self.scene.package));
            page.leaf("desc", &[], &self.scene.summary());
            page.style(SHEET);
            page.empty("rect", &[("width", &width), ("height", &height), ("fill", &"#ffffff")]);
            page.append(body);
        });
        page.finish()
    }

    /// Upper edge of a row.
    fn top(&self, row: usize) -> usize {
        self.rows_at + row * ROW
    }

    fn middle(&self, row: usize) -> usize {
        self.top(row) + ROW / 2
    }

    fn rows_end(&self) -> usize {
        self.top(self.layout.rows.len() + usize::from(self.layout.gathered > 0))
    }

    fn title(&self, xml: &mut Xml) {
        let title = shortened(&self.scene.package, 60);
        xml.leaf("text", &[("x", &MARGIN), ("y", &(MARGIN + 16)), ("class", &"title")], &title);
        let mut lines = vec![("sub", self.scene.summary())];
        let deprecated = self.scene.deprecated.as_ref();
        lines.extend(deprecated.map(|message| ("warn", shortened(&format!("deprecated: {message}"), 100))));
        if self.layout.more_lanes > 0 {
            let more = counted(self.layout.more_lanes, "more channel");
            lines.push(("warn", format!("not drawn: {more}; choose with --channel")));
        }
        for (number, (class, line)) in lines.iter().enumerate() {
            let y = MARGIN + 38 + number * 20;
            xml.leaf("text", &[("x", &MARGIN), ("y", &y), ("class", class)], line);
        }
    }

    /// Bands, labels and notes.
    fn rows(&self, xml: &mut Xml) {
        let (left, width) = (MARGIN - 8, self.width - 2 * MARGIN + 16);
        let mut shaded = false;
        let mut series = None;
        for (row, &at) in self.layout.rows.iter().enumerate() {
            let node = &self.scene.nodes[at];
            let of = minor(node);
            if row > 0 && series != of {
                shaded = !shaded;
            }
            series = of;
            let band = if node.reach == Reach::Installed { "mine" } else { "band" };
            if shaded || band == "mine" {
                let (x, y) = (left, self.top(row));
                xml.empty(
                    "rect",
                    &[("x", &x), ("y", &y), ("width", &width), ("height", &ROW), ("class", &band)],
                );
            }
            let class = match (node.reach, &node.deprecated, &node.presence) {
                (Reach::Installed, _, _) => "here",
                (Reach::Next, _, _) => "go",
                (_, Some(_), _) => "old",
                (_, None, Presence::Mentioned) => "gone",
                (_, None, _) => "",
            };
            let (x, y) = (self.lanes_at - 16, self.middle(row) + 4);
            let label = shortened(self.scene.label(at), MAX_LABEL);
            let (short, tooltip) = &self.notes[row];
            xml.element("g", &[], |xml| {
                xml.leaf("title", &[], tooltip);
                xml.leaf("text", &[("x", &x), ("y", &y), ("text-anchor", &"end"), ("class", &class)], &label);
                if !short.is_empty() {
                    xml.leaf("text", &[("x", &self.notes_at), ("y", &y), ("class", &"note")], short);
                }
            });
        }
        if self.layout.gathered > 0 {
            let y = self.middle(self.layout.rows.len()) + 4;
            let what = format!(
                "not drawn: {}; narrow the picture down with --channel",
                counted(self.layout.gathered, "lower version")
            );
            xml.leaf("text", &[("x", &MARGIN), ("y", &y), ("class", &"warn")], &what);
        }
    }

    fn lane(&self, xml: &mut Xml, lane: &LaneLayout) {
        let channel = &self.scene.channels[lane.channel];
        let (left, center) = (self.lanes_at + lane.left, self.lanes_at + lane.center);
        let width = lane.right - lane.left;
        let (top, bottom) = (self.top(lane.rows.0), self.top(lane.rows.1 + 1));
        if !lane.entries.is_empty() {
            let (x, y, height) = (left, top + 1, bottom - top - 2);
            xml.empty(
                "rect",
                &[
                    ("x", &x),
                    ("y", &y),
                    ("width", &width),
                    ("height", &height),
                    ("rx", &8),
                    ("class", &"lane"),
                ],
            );
        }
        self.header(xml, lane);
        for &(older, newer) in &lane.straight {
            let class = if newer < older { "r" } else { "down" };
            let (from, to) = (self.middle(older), self.middle(newer));
            let path = format!("M{center} {from}V{to}");
            let newest = if older < newer { from.max(to) - SIGN } else { to + SIGN };
            xml.empty("path", &[("d", &path), ("class", &class)]);
            xml.empty("path", &[("d", &arrowhead(center, newest, newer < older)), ("class", &class)]);
        }
        for edge in &lane.beside {
            self.beside(xml, center, edge);
        }
        for &row in &lane.ghosts {
            let y = self.middle(row);
            let label = self.scene.label(self.layout.rows[row]);
            xml.element("g", &[], |xml| {
                xml.leaf("title", &[], &format!("{label}: mentioned in channel {}, no entry", channel.name));
                xml.empty("circle", &[("cx", &center), ("cy", &y), ("r", &4), ("class", &"ghost")]);
            });
        }
        for &(row, number) in &lane.entries {
            let entry = &channel.entries[number];
            let node = &self.scene.nodes[entry.node];
            let mut tooltip = format!("{} in channel {}", self.scene.label(entry.node), channel.name);
            for (yes, word) in [(entry.head, ": head"), (entry.skipped, ": skipped")] {
                tooltip.push_str(if yes { word } else { "" });
            }
            let y = self.middle(row);
            xml.element("g", &[], |xml| {
                xml.leaf("title", &[], &tooltip);
                sign(xml, center, y, sign_class(node, entry.head), entry.head);
            });
        }
    }

    fn header(&self, xml: &mut Xml, lane: &LaneLayout) {
        let channel = &self.scene.channels[lane.channel];
        let (x, y) = (self.lanes_at + lane.center, self.rows_at - 12);
        let class = match (&channel.deprecated, channel.default) {
            (Some(_), _) => "old",
            (None, true) => "strong",
            (None, false) => "",
        };
        let tooltip = match &channel.deprecated {
            Some(message) => format!("channel {}, deprecated: {message}", channel.name),
            None => format!("channel {}", channel.name),
        };
        let turn = if self.slanted { format!("rotate(-40 {x} {y})") } else { String::new() };
        let anchor = if self.slanted { "start" } else { "middle" };
        xml.element("g", &[], |xml| {
            xml.leaf("title", &[], &shortened(&tooltip, MAX_TOOLTIP));
            let place: [xml::Attribute<'_>; 5] =
                [("x", &x), ("y", &y), ("text-anchor", &anchor), ("class", &class), ("transform", &turn)];
            let place = if turn.is_empty() { &place[..4] } else { &place[..] };
            xml.leaf("text", place, &lane_name(self.scene, lane));
        });
    }

    /// A line beside the lane with a branch for each row that it touches.
    fn beside(&self, xml: &mut Xml, center: usize, edge: &Beside) {
        let (class, left) = match edge.what {
            What::Replaces => ("r", false),
            What::Down => ("down", false),
            What::Skips => ("s", true),
            What::SkipRange => ("c", false),
        };
        let off = SIGN + 2 + edge.track * TRACK;
        let (line, near) =
            if left { (center - off, center - SIGN + 3) } else { (center + off, center + SIGN - 3) };
        let (top, bottom) = edge.extent();
        let (above, below) = (self.middle(top), self.middle(bottom));
        let mut path = String::new();
        let mut rows: BTreeSet<usize> = edge.to.clone();
        match &edge.from {
            Rows::Each(from) => rows.extend(from),
            Rows::Span(first, _) => {
                // bars at both ends of what is covered
                for end in [self.top(*first) + 5, self.top(bottom) + ROW - 5] {
                    path.push_str(&format!("M{} {end}H{}", line - 3, line + 3));
                }
            }
            Rows::Nowhere => path.push_str(&format!("M{line} {above}V{}", above + ROW / 2 - 2)),
        }
        let end = match &edge.from {
            Rows::Span(..) => self.top(bottom) + ROW - 5,
            Rows::Each(_) | Rows::Nowhere => below,
        };
        if top == bottom && edge.what == What::Down {
            // it replaces itself
            path.push_str(&format!(
                "M{near} {}C{} {} {} {} {near} {}",
                above - 5,
                line + 14,
                above - 9,
                line + 14,
                above + 9,
                above + 5
            ));
        } else {
            for &row in &rows {
                let y = self.middle(row);
                path.push_str(&format!("M{near} {y}H{line}"));
            }
            if end > above {
                path.push_str(&format!("M{line} {above}V{end}"));
            }
        }
        xml.element("g", &[], |xml| {
            xml.leaf("title", &[], &shortened(&edge.tooltip, MAX_TOOLTIP));
            xml.empty("path", &[("d", &path), ("class", &class)]);
            for &row in &edge.to {
                let y = self.middle(row);
                let (tip, back) = if left { (near + 1, near - 4) } else { (near - 1, near + 4) };
                let head = format!("M{back} {}L{tip} {y}L{back} {}", y - 3, y + 3);
                xml.empty("path", &[("d", &head), ("class", &class), ("style", &"stroke-dasharray:none")]);
            }
        });
    }

    /// The legend of the signs that occur. Returns the lower edge.
    fn legend(&self, xml: &mut Xml, top: usize) -> usize {
        let entries = || {
            self.layout.lanes.iter().flat_map(|lane| {
                lane.entries.iter().map(|&(_, number)| &self.scene.channels[lane.channel].entries[number])
            })
        };
        let node =
            |matches: &dyn Fn(&Node) -> bool| entries().any(|entry| matches(&self.scene.nodes[entry.node]));
        let line = |kind: What| {
            self.layout.lanes.iter().any(|lane| {
                lane.beside.iter().any(|edge| edge.what == kind)
                    || lane.straight.iter().any(|(older, newer)| match kind {
                        What::Replaces => newer < older,
                        What::Down => newer > older,
                        What::Skips | What::SkipRange => false,
                    })
            })
        };
        let reaches = |reach: fn(Reach) -> bool| node(&|node| reach(node.reach));
        let mentioned = self.layout.lanes.iter().any(|lane| !lane.ghosts.is_empty())
            || node(&|node| node.presence == Presence::Mentioned);
        let signs = [
            (entries().any(|entry| entry.head), "head", "head of the channel"),
            (entries().any(|entry| !entry.head), "e", "entry"),
            (node(&|node| node.deprecated.is_some()), "e dep", "deprecated"),
            (reaches(|reach| reach == Reach::Installed), "inst", "installed"),
            (reaches(|reach| reach == Reach::Next), "e next", "next upgrade"),
            (reaches(|reach| matches!(reach, Reach::Hops(_))), "e reach", "reachable from installed"),
            (mentioned, "ghost", "mentioned, no entry"),
        ];
        let lines = [
            (line(What::Replaces), "r", "replaces"),
            (line(What::Down), "down", "replaces a higher version"),
            (line(What::Skips), "s", "skips"),
            (line(What::SkipRange), "c", "skipRange: all versions along the line"),
        ];
        let (mut x, mut y) = (MARGIN, top);
        let limit = self.width - MARGIN;
        let mut advance = |text: &str| {
            let needed = 32 + wide(length(text));
            if x > MARGIN && x + needed > limit {
                (x, y) = (MARGIN, y + 20);
            }
            let at = (x, y);
            x += needed + 8;
            at
        };
        for (_, class, text) in signs.into_iter().filter(|(occurs, ..)| *occurs) {
            let (x, y) = advance(text);
            match class {
                "ghost" => xml.empty("circle", &[("cx", &(x + 8)), ("cy", &y), ("r", &4), ("class", &class)]),
                _ => sign(xml, x + 8, y, class, class == "head"),
            }
            xml.leaf("text", &[("x", &(x + 22)), ("y", &(y + 4)), ("class", &"sub")], text);
        }
        for (_, class, text) in lines.into_iter().filter(|(occurs, ..)| *occurs) {
            let (x, y) = advance(text);
            let path = format!("M{x} {y}h18");
            xml.empty("path", &[("d", &path), ("class", &class)]);
            xml.leaf("text", &[("x", &(x + 22)), ("y", &(y + 4)), ("class", &"sub")], text);
        }
        y + 12
    }

    /// Returns the lower edge.
    fn findings(&self, xml: &mut Xml, top: usize) -> usize {
        let most = (self.width - 2 * MARGIN) / 7;
        let mut lines: Vec<String> = self
            .scene
            .findings
            .iter()
            .take(MAX_FINDINGS)
            .map(|finding| shortened(&format!("! {finding}"), most))
            .collect();
        if let Some(more @ 1..) = self.scene.findings.len().checked_sub(MAX_FINDINGS) {
            lines.push(format!("! and {}", counted(more, "more finding")));
        }
        for (number, line) in lines.iter().enumerate() {
            let y = top + 14 + number * 18;
            xml.leaf("text", &[("x", &MARGIN), ("y", &y), ("class", &"note")], line);
        }
        top + lines.len() * 18
    }
}

/// The class of an entry's sign.
fn sign_class(node: &Node, head: bool) -> &'static str {
    match (node.reach, node.deprecated.is_some(), &node.presence) {
        (Reach::Installed, _, _) => "inst",
        (Reach::Next, _, _) => "e next",
        (_, true, _) => "e dep",
        (Reach::Hops(_), false, _) => "e reach",
        (Reach::No, false, Presence::Mentioned) => "ghost",
        (Reach::No, false, _) if head => "head",
        (Reach::No, false, _) => "e",
    }
}

fn sign(xml: &mut Xml, x: usize, y: usize, class: &str, head: bool) {
    if head {
        xml.empty("circle", &[("cx", &x), ("cy", &y), ("r", &8), ("class", &"ring")]);
    }
    if class == "inst" {
        let (x, y) = (x - 5, y - 5);
        xml.empty("rect", &[("x", &x), ("y", &y), ("width", &10), ("height", &10), ("class", &class)]);
    } else {
        xml.empty("circle", &[("cx", &x), ("cy", &y), ("r", &5), ("class", &class)]);
    }
}

/// The head at the end of a vertical line.
fn arrowhead(x: usize, y: usize, up: bool) -> String {
    let back = if up { y + 5 } else { y - 5 };
    format!("M{} {back}L{x} {y}L{} {back}", x - 4, x + 4)
}

fn lane_name(scene: &Scene, lane: &LaneLayout) -> String {
    let channel = &scene.channels[lane.channel];
    let default = if channel.default { " (default)" } else { "" };
    format!("{}{default}", shortened(&channel.name, MAX_LABEL))
}

/// Major and minor number of a node, to shade versions that belong together.
fn minor(node: &Node) -> Option<(u64, u64)> {
    let version: olm_core::Version = node.version.as_ref()?.parse().ok()?;
    Some((version.major(), version.minor()))
}

/// The note beside a row, and its tooltip.
fn notes(scene: &Scene, at: usize) -> (String, String) {
    let node = &scene.nodes[at];
    let mut notes = Vec::new();
    notes.extend(node.reach.mark("next upgrade"));
    match &node.presence {
        Presence::Bundle => {}
        Presence::NoVersion(why) => notes.push(format!("no version: {why}")),
        Presence::Mentioned => notes.push("not in the catalog".to_owned()),
    }
    if let Some(message) = &node.deprecated {
        notes.push(format!("deprecated: {message}"));
    }
    let ranges: BTreeSet<&str> = scene
        .channels
        .iter()
        .filter_map(|lane| Some(lane.entry(at)?.skip_range.as_ref()?.range.as_str()))
        .collect();
    notes.extend(ranges.iter().map(|range| format!("skipRange {range}")));
    notes.extend(scene.unusual_name(at).map(str::to_owned));
    let tooltip =
        std::iter::once(node.name.clone()).chain(notes.iter().cloned()).collect::<Vec<_>>().join("\n");
    (shortened(&notes.join(" · "), MAX_NOTE), shortened(&tooltip, MAX_TOOLTIP))
}
