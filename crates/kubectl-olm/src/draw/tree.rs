//! The graph as text: each channel from its head down the chain, then what is off the chain.

use std::collections::BTreeSet;

use super::scene::{Lane, Link, Presence, Reach, Scene};
use super::{listed, plain, shortened};

/// Longest deprecation message shown, in characters.
const MAX_MESSAGE: usize = 100;
/// Most skipped names listed one by one.
const MAX_SKIPS: usize = 8;

pub(crate) fn tree(scene: &Scene) -> String {
    let mut page = Page { scene, text: String::new() };
    page.line(&format!("package {}: {}", plain(&scene.package), plain(&scene.summary())));
    page.deprecated("", scene.deprecated.as_deref());
    for lane in &scene.channels {
        page.channel(lane);
    }
    page.outside();
    if !scene.findings.is_empty() {
        page.line("\nfindings");
        for finding in &scene.findings {
            page.line(&format!("  - {}", plain(finding)));
        }
    }
    page.line("\n◉ head  ● entry  ◌ skipped  ○ mentioned, no entry");
    page.text
}

struct Page<'a> {
    scene: &'a Scene,
    text: String,
}

impl Page<'_> {
    fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    fn deprecated(&mut self, indent: &str, message: Option<&str>) {
        if let Some(message) = message {
            self.line(&format!("{indent}deprecated: {}", plain(&shortened(message, MAX_MESSAGE))));
        }
    }

    fn channel(&mut self, lane: &Lane) {
        let default = if lane.default { " (default)" } else { "" };
        let count = super::counted(lane.entries.len(), "entry").replace("entrys", "entries");
        self.line(&format!("\nchannel {}{default}: {count}", plain(&lane.name)));
        self.deprecated("  ", lane.deprecated.as_deref());
        // the chain of each head, then whatever no head leads to, in the order of versions
        let mut printed: BTreeSet<usize> = BTreeSet::new();
        let entry_of = |node: usize| lane.entries.iter().position(|entry| entry.node == node);
        let heads = lane.entries.iter().enumerate().filter(|(_, entry)| entry.head);
        let others = lane.entries.iter().enumerate().filter(|(_, entry)| !entry.head);
        let mut first = true;
        for (start, entry) in heads.chain(others) {
            if printed.contains(&start) {
                continue;
            }
            if !entry.head && first {
                self.line("  no head");
            } else if !entry.head && !entry.skipped {
                self.line("  not below a head");
            } else if !entry.head {
                self.line("  beside the chain");
            }
            first = false;
            let mut at = Some(start);
            while let Some(index) = at {
                let entry = &lane.entries[index];
                if !printed.insert(index) {
                    let back = if index == start { "back to" } else { "joins" };
                    self.line(&format!("  ↻ {back} {}", plain(self.scene.label(entry.node))));
                    break;
                }
                self.entry(entry);
                at = match entry.replaces.map(|node| (node, entry_of(node))) {
                    None => None,
                    Some((_, Some(next))) => Some(next),
                    Some((node, None)) => {
                        self.node(node, "○", &["no entry here"]);
                        None
                    }
                };
            }
        }
    }

    fn entry(&mut self, entry: &Link) {
        let marks = [("head", entry.head), ("skipped", entry.skipped)].into_iter();
        let marks: Vec<&str> = marks.filter(|(_, holds)| *holds).map(|(mark, _)| mark).collect();
        let sign = match (entry.head, entry.skipped) {
            (true, _) => "◉",
            (false, true) => "◌",
            (false, false) => "●",
        };
        self.node(entry.node, sign, &marks);
        if let Some(cover) = &entry.skip_range {
            self.line(&format!("  │     skipRange {}", plain(&cover.range)));
        }
        if !entry.skips.is_empty() {
            let names = listed(entry.skips.iter().map(|&at| self.scene.label(at)), MAX_SKIPS);
            self.line(&format!("  │     skips {}", plain(&names)));
        }
    }

    fn node(&mut self, at: usize, sign: &str, marks: &[&str]) {
        let node = &self.scene.nodes[at];
        let mut marks: Vec<String> = marks.iter().map(|&mark| mark.to_owned()).collect();
        marks.extend(node.reach.mark("next"));
        match &node.presence {
            Presence::Bundle => {}
            Presence::NoVersion(why) => marks.push(format!("no version: {why}")),
            Presence::Mentioned => marks.push("no such bundle".to_owned()),
        }
        if let Some(message) = &node.deprecated {
            marks.push(format!("deprecated: {}", shortened(message, MAX_MESSAGE)));
        }
        let name = self.scene.unusual_name(at).map(|name| format!("  {}", plain(name))).unwrap_or_default();
        let marks =
            if marks.is_empty() { String::new() } else { format!("  [{}]", plain(&marks.join("; "))) };
        self.line(&format!("  {sign} {}{name}{marks}", plain(self.scene.label(at))));
    }

    /// Bundles that no channel shown has an entry for.
    fn outside(&mut self) {
        let inside: BTreeSet<usize> =
            self.scene.channels.iter().flat_map(|lane| lane.entries.iter().map(|entry| entry.node)).collect();
        let outside: Vec<usize> = (0..self.scene.nodes.len())
            .filter(|at| !inside.contains(at))
            .filter(|&at| {
                let node = &self.scene.nodes[at];
                node.presence != Presence::Mentioned || node.reach == Reach::Installed
            })
            .collect();
        if !outside.is_empty() {
            self.line("\nin none of these channels");
            for at in outside {
                let sign = if self.scene.nodes[at].presence == Presence::Mentioned { "○" } else { "●" };
                self.node(at, sign, &[]);
            }
        }
    }
}
