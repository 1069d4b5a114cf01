//! The content of a picture: bundles in the order of their versions, channels with their entries, marks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use olm_core::{ChannelName, Range, Version, VersionRelease, go};
use olm_resolver::{
    CatalogSource, ClassicRequest, DeprecatedScope, Installed, PackageGraph, Request, classic_step,
    reachable, resolve,
};
use serde::Serialize;

/// A package made ready for drawing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scene {
    pub(crate) package: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_channel: Option<String>,
    /// Why the whole package is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deprecated: Option<String>,
    /// Version of what is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) installed: Option<String>,
    /// Bundles and names that are only mentioned; the newest first, what has no version last.
    pub(crate) nodes: Vec<Node>,
    /// The default channel first, then by name.
    pub(crate) channels: Vec<Lane>,
    /// What is wrong with the package or its channels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) findings: Vec<String>,
}

/// A bundle, or a name that is only mentioned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Its version; for a mentioned name the one that is in the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    pub(crate) presence: Presence,
    /// Why it is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deprecated: Option<String>,
    /// Relation to the installed bundle.
    pub(crate) reach: Reach,
}

/// Whether there is a bundle behind a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Presence {
    /// The catalog has a bundle of this name.
    Bundle,
    /// The bundle has no readable version; the reason.
    NoVersion(String),
    /// Only the name is mentioned.
    Mentioned,
}

/// The relation of a bundle to the installed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Reach {
    /// No installed bundle is given, or no path leads there.
    No,
    Installed,
    /// The next upgrade that the resolver chooses.
    Next,
    /// Reachable in this number of hops.
    Hops(usize),
}

/// A channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) default: bool,
    /// Why it is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deprecated: Option<String>,
    /// Entries, in the order of `Scene::nodes`.
    pub(crate) entries: Vec<Link>,
}

/// An entry of a channel; numbers are indexes of `Scene::nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Link {
    pub(crate) node: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) skips: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skip_range: Option<Cover>,
    /// No entry of the channel replaces or skips it.
    pub(crate) head: bool,
    /// An entry of the channel skips it.
    pub(crate) skipped: bool,
}

/// A skipRange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Cover {
    /// As the catalog writes it.
    pub(crate) range: String,
    /// The first and the last node with a lower version that it holds.
    #[serde(skip)]
    pub(crate) ends: Option<(usize, usize)>,
    /// Whether it holds everything from just below its entry down to the last.
    #[serde(skip)]
    pub(crate) gapless: bool,
}

impl Scene {
    /// The scene of these channels (all, if there are none named), relative to the installed bundle.
    pub(crate) fn new(
        graph: &Arc<PackageGraph>,
        channels: &[ChannelName],
        installed: Option<&Installed>,
    ) -> Self {
        let shown = |name: &str| channels.is_empty() || channels.iter().any(|asked| asked.as_str() == name);
        let mut shown_channels: Vec<_> =
            graph.channels().filter(|&channel| shown(graph.channel_name(channel))).collect();
        shown_channels
            .sort_by_key(|&channel| (Some(graph.channel_name(channel)) != graph.default_channel(), channel));

        let mut names: BTreeSet<&str> = BTreeSet::new();
        for &channel in &shown_channels {
            for entry in graph.entries(channel) {
                names.insert(entry.name);
                names.extend(entry.replaces);
                names.extend(entry.skips);
            }
        }
        if channels.is_empty() {
            names.extend(graph.bundles().map(|bundle| graph.bundle_name(bundle)));
        }
        names.extend(installed.map(|installed| installed.name.as_str()));

        let reach = reaches(graph, channels, installed);
        let mut nodes: Vec<(Option<VersionRelease>, Node)> =
            names.into_iter().map(|name| node(graph, name, installed, &reach)).collect();
        // the newest first; `None` is last, and equal versions are in the order of their names
        nodes.sort_by(|(a, _), (b, _)| b.cmp(a));
        let place: HashMap<&str, usize> =
            nodes.iter().enumerate().map(|(at, (_, node))| (node.name.as_str(), at)).collect();

        let versions: Vec<Option<Version>> =
            nodes.iter().map(|(version, _)| version.as_ref().map(VersionRelease::folded)).collect();
        let mut held: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
        let lanes = shown_channels
            .iter()
            .map(|&channel| {
                let name = graph.channel_name(channel);
                let mut entries = Vec::new();
                for entry in graph.entries(channel) {
                    let Some(&at) = place.get(entry.name) else { continue };
                    let skip_range = entry.skip_range.map(|range| {
                        let runs = held.entry(range.as_str()).or_insert_with(|| runs(&versions, range));
                        cover(range, runs, &versions, at)
                    });
                    let mut skips: Vec<usize> =
                        entry.skips.iter().filter_map(|name| place.get(name).copied()).collect();
                    skips.sort_unstable();
                    skips.dedup();
                    entries.push(Link {
                        node: at,
                        replaces: entry.replaces.and_then(|name| place.get(name).copied()),
                        skips,
                        skip_range,
                        head: false,
                        skipped: false,
                    });
                }
                mark_heads(&mut entries);
                entries.sort_by_key(|entry| entry.node);
                let default = graph.default_channel() == Some(name);
                let about = DeprecatedScope::Channel(name.into());
                Lane { name: name.to_owned(), default, deprecated: deprecation(graph, &about), entries }
            })
            .collect();
        let findings = findings(graph, &shown_channels, !channels.is_empty());
        Self {
            package: graph.package().to_owned(),
            default_channel: graph.default_channel().map(str::to_owned),
            deprecated: deprecation(graph, &DeprecatedScope::Package),
            installed: installed.map(|installed| installed.version.to_string()),
            nodes: nodes.into_iter().map(|(_, node)| node).collect(),
            channels: lanes,
            findings,
        }
    }

    /// The same with another bundle as the next one: what OLM Classic chooses depends on the other Subscriptions of its namespace.
    pub(crate) fn with_next(mut self, next: Option<&str>) -> Self {
        for node in &mut self.nodes {
            node.reach = match node.reach {
                Reach::Installed => Reach::Installed,
                _ if Some(node.name.as_str()) == next => Reach::Next,
                Reach::Next => Reach::Hops(1),
                reach @ (Reach::No | Reach::Hops(_)) => reach,
            };
        }
        self
    }

    /// The label of a node: its version, or its name if the version is unknown.
    pub(crate) fn label(&self, at: usize) -> &str {
        let node = &self.nodes[at];
        match (&node.version, &node.presence) {
            (Some(version), Presence::Bundle | Presence::Mentioned) => version,
            (None, _) | (Some(_), Presence::NoVersion(_)) => &node.name,
        }
    }

    /// The name of a node, if it is not the usual `<package>.v<version>`.
    pub(crate) fn unusual_name(&self, at: usize) -> Option<&str> {
        let node = &self.nodes[at];
        let usual = node.version.as_ref().is_some_and(|version| {
            node.name.strip_prefix(&self.package).and_then(|rest| rest.strip_prefix(".v")) == Some(version)
        });
        (!usual && self.label(at) != node.name).then_some(node.name.as_str())
    }

    /// Whether a node is the head of one of the channels.
    pub(crate) fn is_head(&self, at: usize) -> bool {
        self.channels.iter().any(|lane| lane.entry(at).is_some_and(|entry| entry.head))
    }

    /// The line below the title.
    pub(crate) fn summary(&self) -> String {
        let bundles = self.nodes.iter().filter(|node| node.presence != Presence::Mentioned).count();
        let mut parts =
            vec![super::counted(bundles, "version"), super::counted(self.channels.len(), "channel")];
        if let Some(default) = &self.default_channel {
            parts.push(format!("default channel {default}"));
        }
        if let Some(installed) = &self.installed {
            parts.push(format!("installed {installed}"));
        }
        parts.join(", ")
    }
}

impl Reach {
    /// The mark of a node, `next` for the next upgrade.
    pub(crate) fn mark(self, next: &str) -> Option<String> {
        match self {
            Self::No => None,
            Self::Installed => Some("installed".to_owned()),
            Self::Next => Some(next.to_owned()),
            Self::Hops(hops) => Some(format!("reachable in {}", super::counted(hops, "hop"))),
        }
    }
}

impl Lane {
    /// The channel's entry for a node; of several, one of them.
    pub(crate) fn entry(&self, node: usize) -> Option<&Link> {
        let found = self.entries.binary_search_by_key(&node, |entry| entry.node).ok()?;
        self.entries.get(found)
    }
}

/// Paths from the installed bundle: the next hop, and the number of hops by bundle name.
#[derive(Default)]
struct Reached {
    next: Option<String>,
    hops: BTreeMap<String, usize>,
}

fn reaches(graph: &Arc<PackageGraph>, channels: &[ChannelName], installed: Option<&Installed>) -> Reached {
    let Some(installed) = installed else { return Reached::default() };
    let asked = |channel| {
        channels.is_empty() || channels.iter().any(|name| name.as_str() == graph.channel_name(channel))
    };
    let hops = reachable(graph, installed, asked)
        .into_iter()
        .map(|(bundle, hops)| (graph.bundle_name(bundle).to_owned(), hops))
        .collect();
    let next = next(graph, channels, installed);
    Reached { next, hops }
}

/// The bundle that the resolver chooses without a version range.
fn next(graph: &Arc<PackageGraph>, channels: &[ChannelName], installed: &Installed) -> Option<String> {
    let mut request = Request::new(graph.package().parse().ok()?);
    request.channels = channels.to_vec();
    request.installed = Some(installed.clone());
    let source = CatalogSource { name: "catalog".parse().ok()?, priority: 0, content: Ok(graph.clone()) };
    let found = resolve(&request, &[source]).result.ok()?;
    (found.version != installed.version).then(|| found.bundle.to_string())
}

fn node(
    graph: &PackageGraph,
    name: &str,
    installed: Option<&Installed>,
    reached: &Reached,
) -> (Option<VersionRelease>, Node) {
    let (version, presence) = match graph.find_bundle(name) {
        None => {
            let of_installed = installed.filter(|installed| installed.name.as_str() == name);
            let version = of_installed.map(|installed| installed.version.clone());
            (version.or_else(|| version_in(name)), Presence::Mentioned)
        }
        Some(bundle) => match graph.version(bundle) {
            Ok(version) => (Some(version.clone()), Presence::Bundle),
            Err(why) => (None, Presence::NoVersion(why.to_owned())),
        },
    };
    let reach = if installed.is_some_and(|installed| installed.name.as_str() == name) {
        Reach::Installed
    } else if reached.next.as_deref() == Some(name) {
        Reach::Next
    } else {
        reached.hops.get(name).map_or(Reach::No, |&hops| Reach::Hops(hops))
    };
    let made = Node {
        name: name.to_owned(),
        version: version.as_ref().map(ToString::to_string),
        presence,
        deprecated: deprecation(graph, &DeprecatedScope::Bundle(name.into())),
        reach,
    };
    (version, made)
}

/// The version in a name such as `p.v1.0.0` or `p-1.0.0`.
fn version_in(name: &str) -> Option<VersionRelease> {
    let after_v = name.match_indices(".v").map(|(at, _)| at + 2);
    let after_dash = name.match_indices('-').map(|(at, _)| at + 1);
    after_v.chain(after_dash).take(16).find_map(|at| name.get(at..)?.parse().ok())
}

fn deprecation(graph: &PackageGraph, about: &DeprecatedScope) -> Option<String> {
    graph.deprecations().find(|(scope, _)| *scope == about).map(|(_, message)| message.to_owned())
}

/// The nodes that a range holds, as first and last of each run of neighbours: a few numbers, however many nodes.
fn runs(versions: &[Option<Version>], range: &Range) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, version) in versions.iter().enumerate() {
        if !version.as_ref().is_some_and(|version| range.contains(version)) {
            continue;
        }
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == at => *last = at,
            _ => runs.push((at, at)),
        }
    }
    runs
}

/// What the skipRange of the entry at a node covers: only what is lower, because it does not lead down.
fn cover(range: &Range, runs: &[(usize, usize)], versions: &[Option<Version>], at: usize) -> Cover {
    // newer ones are above, equal ones beside it
    let lower = at + versions[at..].partition_point(|version| *version >= versions[at]);
    let clipped: Vec<(usize, usize)> = runs
        .iter()
        .filter(|&&(_, last)| last >= lower && versions[at].is_some())
        .map(|&(first, last)| (first.max(lower), last))
        .collect();
    let ends = clipped.first().zip(clipped.last()).map(|(first, last)| (first.0, last.1));
    let gapless = matches!(clipped.as_slice(), [(first, _)] if *first == at + 1);
    Cover { range: range.as_str().to_owned(), ends, gapless }
}

fn mark_heads(entries: &mut [Link]) {
    let replaced: BTreeSet<usize> = entries.iter().filter_map(|entry| entry.replaces).collect();
    let skipped: BTreeSet<usize> = entries.iter().flat_map(|entry| entry.skips.iter().copied()).collect();
    for entry in entries {
        entry.skipped = skipped.contains(&entry.node);
        entry.head = !entry.skipped && !replaced.contains(&entry.node);
    }
}

/// Findings of the resolver, and channels that OLM Classic would reject.
fn findings(graph: &PackageGraph, shown: &[olm_resolver::ChannelIndex], only_shown: bool) -> Vec<String> {
    let of_channel = |place: &str| {
        let about = |channel: &olm_resolver::ChannelIndex| {
            place.starts_with(&format!("channel {}", go::quote(graph.channel_name(*channel))))
        };
        !place.starts_with("channel ") || shown.iter().any(about)
    };
    let mut found: Vec<String> = graph
        .findings()
        .iter()
        .filter(|finding| !only_shown || of_channel(&finding.place))
        .map(|finding| format!("{}: {}", finding.place, finding.message))
        .collect();
    for &channel in shown {
        let name = graph.channel_name(channel);
        let request = ClassicRequest { channel: Some(name.to_owned()), ..ClassicRequest::default() };
        if let Err(error) = classic_step(graph, &request) {
            found.push(format!("OLM Classic refuses channel {}: {error}", go::quote(name)));
        }
    }
    found
}
