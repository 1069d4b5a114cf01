//! The order of a channel in OLM Classic: from the head along `replaces`.
//!
//! Rule: update-graph §2, step 3. `skipRange` has no part in it, and versions have none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use olm_core::go;

/// An entry of a channel by its name, with the names below it.
#[derive(Debug, Clone)]
pub struct ChainLink<'a, Name> {
    pub name: Name,
    pub replaces: Option<Name>,
    pub skips: &'a [Name],
}

/// Why entries have no order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelOrderError {
    /// Every entry is replaced or skipped.
    #[error(
        "no channel heads (entries not replaced by another entry) found in channel {} of package {}",
        go::quote(channel),
        go::quote(package)
    )]
    NoHead { channel: String, package: String },
    /// The chain below a head comes back to itself.
    #[error(
        "a cycle exists in the chain of replacement beginning with {} in channel {} of package {}",
        go::quote(head),
        go::quote(channel),
        go::quote(package)
    )]
    Cycle { head: String, channel: String, package: String },
    /// Several chains, each as `head...tail`.
    #[error(
        "a unique replacement chain within a channel is required to determine the relative order between channel entries, \
         but {} replacement chains were found in channel {} of package {}: {}",
        chains.len(),
        go::quote(channel),
        go::quote(package),
        chains.join(", ")
    )]
    Heads { chains: Vec<String>, channel: String, package: String },
}

/// The places in `links` of the head and of what follows it, without skipped entries. `print` gives the text of a name;
/// channel and package appear in errors only.
///
/// # Errors
/// Unless there is exactly one chain.
pub fn chain<Name: Ord + Copy, Text: fmt::Display>(
    links: &[ChainLink<'_, Name>],
    print: impl Fn(Name) -> Text,
    (package, channel): (&str, &str),
) -> Result<Vec<usize>, ChannelOrderError> {
    let skipped = sorted(links.iter().flat_map(|link| link.skips.iter().copied()));
    let replaced = sorted(links.iter().filter_map(|link| link.replaces));
    let has = |names: &[Name], name: &Name| names.binary_search(name).is_ok();
    let mut by_name: BTreeMap<Name, usize> = BTreeMap::new();
    // of several entries with one name only the first can be below another
    let mut heads: Vec<usize> = Vec::new();
    for (at, link) in links.iter().enumerate() {
        let is_first = *by_name.entry(link.name).or_insert(at) == at;
        if !is_first || !has(&skipped, &link.name) && !has(&replaced, &link.name) {
            heads.push(at);
        }
    }
    // the tail below each entry seen, so that chains that run together are walked once
    let mut tails: BTreeMap<Name, Name> = BTreeMap::new();
    let mut chains: Vec<(Name, Name)> = Vec::new();
    let mut first_chain: Vec<usize> = Vec::new();
    for at in heads {
        let head = &links[at];
        let mut walked = vec![at];
        let mut seen = BTreeSet::from([head.name]);
        let mut tail = head.name;
        while let Some(&next) = walked.last().and_then(|&at| by_name.get(&links[at].replaces?)) {
            let name = links[next].name;
            if let Some(&known) = tails.get(&name) {
                tail = known;
                break;
            }
            if !seen.insert(name) {
                let (channel, package) = (channel.to_owned(), package.to_owned());
                return Err(ChannelOrderError::Cycle {
                    head: print(head.name).to_string(),
                    channel,
                    package,
                });
            }
            tail = name;
            walked.push(next);
        }
        tails.extend(seen.into_iter().map(|name| (name, tail)));
        chains.push((head.name, tail));
        if chains.len() == 1 {
            first_chain = walked;
        }
    }
    match chains.len() {
        0 => Err(ChannelOrderError::NoHead { channel: channel.to_owned(), package: package.to_owned() }),
        1 => Ok(first_chain.into_iter().filter(|&at| !has(&skipped, &links[at].name)).collect()),
        _ => {
            let text = |&(head, tail): &(Name, Name)| match head == tail {
                true => print(head).to_string(),
                false => format!("{}...{}", print(head), print(tail)),
            };
            Err(ChannelOrderError::Heads {
                chains: chains.iter().map(text).collect(),
                channel: channel.to_owned(),
                package: package.to_owned(),
            })
        }
    }
}

/// The distinct names, in order.
fn sorted<Name: Ord>(names: impl Iterator<Item = Name>) -> Vec<Name> {
    let mut names: Vec<Name> = names.collect();
    names.sort();
    names.dedup();
    names
}
