//! The shape of one channel (fbc §8.3): one head, no cycle, no bundle out of reach.

use std::collections::{BTreeMap, BTreeSet};

use crate::ChannelEntry;

/// What is wrong with the graph; at most one thing, as the rules build on each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    NoHead,
    Heads(Vec<String>),
    Cycle(Vec<String>),
    Stranded(Vec<String>),
}

pub(super) fn problem(entries: &[ChannelEntry]) -> Option<Shape> {
    let by_name: BTreeMap<&str, &ChannelEntry> =
        entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let skipped: BTreeSet<&str> = entries.iter().flat_map(|entry| &entry.skips).map(String::as_str).collect();
    // an entry that replaces nothing does not name a nameless one here; below, on the walk, it does
    let replaced = entries.iter().map(|entry| entry.replaces.as_str()).filter(|name| !name.is_empty());
    let replaced: BTreeSet<&str> = replaced.collect();
    let heads: Vec<&str> =
        by_name.keys().copied().filter(|name| !skipped.contains(name) && !replaced.contains(name)).collect();
    let head = match heads.as_slice() {
        [] => return Some(Shape::NoHead),
        [head] => *head,
        _ => return Some(Shape::Heads(heads.into_iter().map(str::to_owned).collect())),
    };
    let mut walked = vec![head];
    let mut seen = BTreeSet::from([head]);
    let mut at = by_name.get(head);
    while let Some(entry) = at {
        let next = entry.replaces.as_str();
        if skipped.contains(next) || !by_name.contains_key(next) {
            break;
        }
        walked.push(next);
        if !seen.insert(next) {
            let from = walked.iter().position(|name| *name == next).unwrap_or(0);
            return Some(Shape::Cycle(walked[from..].iter().map(|&name| name.to_owned()).collect()));
        }
        at = by_name.get(next);
    }
    let stranded: Vec<String> = by_name
        .keys()
        .filter(|name| !seen.contains(*name) && !skipped.contains(*name))
        .map(|&name| name.to_owned())
        .collect();
    (!stranded.is_empty()).then_some(Shape::Stranded(stranded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_table_of_fbc_8_3() {
        let list = |names: &str| names.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let cases = [
            ("1, 2", Some(Shape::Heads(list("1 2")))),
            ("1<2, 2<1", Some(Shape::NoHead)),
            ("3<2, 2<1, 1<2", Some(Shape::Cycle(list("2 1 2")))),
            ("1<1", Some(Shape::NoHead)),
            ("2<1, 1<1", Some(Shape::Cycle(list("1 1")))),
            ("3<2 -1.5, 2, 1.5<1, 1", Some(Shape::Stranded(list("1")))),
            ("1<0", None),
            ("1 -0", None),
            ("3 -2 -1, 2<1, 1", None),
            ("", Some(Shape::NoHead)),
            ("<", Some(Shape::Cycle(list(" ")))),
        ];
        for (text, want) in cases {
            let entry = |text: &str| {
                let mut words = text.split(' ');
                let (name, replaces) = words.next().map(|w| w.split_once('<').unwrap_or((w, ""))).unwrap();
                let skips = words.map(|word| word.trim_start_matches('-').to_owned()).collect();
                ChannelEntry {
                    name: name.to_owned(),
                    replaces: replaces.to_owned(),
                    skips,
                    skip_range: String::new(),
                }
            };
            let entries: Vec<_> = text.split(", ").filter(|t| !t.is_empty()).map(entry).collect();
            assert_eq!(problem(&entries), want, "{text}");
        }
    }
}
