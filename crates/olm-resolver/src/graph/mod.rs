//! One package of one catalog, made ready for questions: who can follow whom, in which channel, by which edge.
//!
//! Built once per (catalog content, package) and shared; names are numbers inside, versions and ranges are parsed
//! once, the order of preference is computed once. What is wrong in a catalog is left out and kept as a `Finding`;
//! nothing here refuses a catalog (rule: decision 26).

mod build;
mod contents;

pub use build::{BundleDraft, ChannelDraft, EnvironmentDraft, GraphDraft, ReleaseField};

use std::cell::Cell;

use olm_core::{BundleName, Range, Version, VersionRelease};
use serde::Deserialize;

use crate::environment::{ClusterFacts, Needs, UnmetConstraint};

/// Number of a bundle in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleIndex(pub(crate) u32);

/// Number of a channel in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelIndex(pub(crate) u32);

/// Number of a name; numbers are ordered as the names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NameId(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NeedsId(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RangeId(pub(crate) u32);

/// Who follows one name, and by which edge.
pub(crate) type Followers = Box<[(BundleIndex, Edge)]>;

/// A package's bundles, channels and edges.
#[derive(Debug, Default, PartialEq)]
pub struct PackageGraph {
    pub(crate) package: Box<str>,
    pub(crate) default_channel: Option<Box<str>>,
    /// All names of bundles, real or only mentioned, sorted.
    pub(crate) names: Box<[Box<str>]>,
    /// Sorted by name.
    pub(crate) channels: Box<[Channel]>,
    /// Sorted by name.
    pub(crate) bundles: Box<[Bundle]>,
    /// All bundles, best first: undeprecated, then version and release descending, then name.
    pub(crate) order: Box<[BundleIndex]>,
    /// For each name, who replaces or skips it: (bundle, edge), sorted.
    pub(crate) followers: Box<[Followers]>,
    /// The distinct skipRanges; entries share them, because channels mostly repeat each other.
    pub(crate) ranges: Box<[Range]>,
    /// The distinct constraints on the cluster; most bundles of a package share them.
    pub(crate) needs: Box<[Needs]>,
    pub(crate) deprecations: Box<[(DeprecatedScope, Box<str>)]>,
    pub(crate) findings: Box<[Finding]>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Channel {
    pub(crate) name: Box<str>,
    /// In the catalog's order.
    pub(crate) entries: Box<[Entry]>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: NameId,
    /// The bundle of that name, if the catalog has it.
    pub(crate) bundle: Option<BundleIndex>,
    pub(crate) replaces: Option<NameId>,
    pub(crate) skips: Box<[NameId]>,
    pub(crate) skip_range: Option<RangeId>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Bundle {
    pub(crate) name: NameId,
    pub(crate) version: Result<VersionRelease, Box<str>>,
    pub(crate) image: Box<str>,
    /// Places in channels: (channel, entry).
    pub(crate) places: Box<[(ChannelIndex, u32)]>,
    /// The skipRange, or none, that its entries in all channels have; `None` if they differ.
    pub(crate) common_range: Option<Option<RangeId>>,
    pub(crate) deprecated: bool,
    pub(crate) needs: Option<NeedsId>,
    pub(crate) provides: Box<[GvkRef]>,
    pub(crate) properties: Box<[Property]>,
}

/// An API that a bundle provides or that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GvkRef {
    /// API group, empty for the core group.
    pub group: Box<str>,
    pub version: Box<str>,
    pub kind: Box<str>,
}

/// A property of a bundle that declares a dependency, or that a constraint may look at; the value is JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// For example `olm.package.required`.
    pub kind: Box<str>,
    /// JSON text.
    pub value: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeprecatedScope {
    Package,
    Channel(Box<str>),
    Bundle(Box<str>),
}

/// Something in a catalog that was left out, or that does not do what its author meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where: `bundle "a.v1.0.0"`, `channel "stable" entry "a.v1.0.0"`, …
    pub place: String,
    /// What is wrong and, if known, what to do.
    pub message: String,
}

/// An entry of a channel, for readers.
#[derive(Debug, Clone)]
pub struct EntryView<'a> {
    pub name: &'a str,
    /// The bundle, if the catalog has it.
    pub bundle: Option<BundleIndex>,
    pub replaces: Option<&'a str>,
    pub skips: Vec<&'a str>,
    /// Versions that it covers; `None` also when the catalog's text does not parse.
    pub skip_range: Option<&'a Range>,
}

olm_core::words! {
    /// As catalogs write it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum EdgeKind {
        Replaces = "replaces",
        Skips = "skips",
        SkipRange = "skipRange",
    }
}

/// An edge and the channel that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// By which word of the entry.
    pub kind: EdgeKind,
    pub channel: ChannelIndex,
}

/// The installed bundle in the terms of one graph.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) name: Option<NameId>,
    pub(crate) version: Option<&'a Version>,
}

impl PackageGraph {
    /// The graph of a package that the catalog does not hold.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Whether both hold the same, in every word: versions are equal if they differ in build metadata only, so their text counts.
    pub fn is_same(&self, other: &Self) -> bool {
        let versions = |graph: &Self| -> Vec<String> {
            let versions = graph.bundles.iter().filter_map(|bundle| bundle.version.as_ref().ok());
            versions.map(ToString::to_string).collect()
        };
        self == other && versions(self) == versions(other)
    }

    /// Whether the catalog has nothing about the package.
    pub fn is_empty(&self) -> bool {
        self.bundles.is_empty()
            && self.channels.is_empty()
            && self.deprecations.is_empty()
            && self.package.is_empty()
    }

    /// Name of the package, empty if the graph is.
    pub fn package(&self) -> &str {
        &self.package
    }

    /// The default channel; means nothing to the resolver.
    pub fn default_channel(&self) -> Option<&str> {
        self.default_channel.as_deref()
    }

    pub fn bundles(&self) -> impl ExactSizeIterator<Item = BundleIndex> + use<> {
        (0..u32::try_from(self.bundles.len()).unwrap_or(u32::MAX)).map(BundleIndex)
    }

    pub fn channels(&self) -> impl ExactSizeIterator<Item = ChannelIndex> + use<> {
        (0..u32::try_from(self.channels.len()).unwrap_or(u32::MAX)).map(ChannelIndex)
    }

    pub fn find_bundle(&self, name: &str) -> Option<BundleIndex> {
        let found = self.bundles.binary_search_by(|bundle| self.name(bundle.name).cmp(name)).ok()?;
        u32::try_from(found).ok().map(BundleIndex)
    }

    pub fn find_channel(&self, name: &str) -> Option<ChannelIndex> {
        let found = self.channels.binary_search_by(|channel| (*channel.name).cmp(name)).ok()?;
        u32::try_from(found).ok().map(ChannelIndex)
    }

    pub fn bundle_name(&self, bundle: BundleIndex) -> &str {
        self.name(self.bundle(bundle).name)
    }

    pub fn channel_name(&self, channel: ChannelIndex) -> &str {
        &self.channel(channel).name
    }

    /// Version and release of a bundle, or why there is none.
    ///
    /// # Errors
    /// With the reason, when the catalog gives no readable version.
    pub fn version(&self, bundle: BundleIndex) -> Result<&VersionRelease, &str> {
        self.bundle(bundle).version.as_ref().map_err(|why| &**why)
    }

    /// Image of a bundle, as the catalog writes it.
    pub fn image(&self, bundle: BundleIndex) -> &str {
        &self.bundle(bundle).image
    }

    /// Whether the bundle itself (not its channel or package) is deprecated.
    pub fn is_deprecated(&self, bundle: BundleIndex) -> bool {
        self.bundle(bundle).deprecated
    }

    /// Channels that have an entry for the bundle, by name.
    pub fn channels_of(&self, bundle: BundleIndex) -> impl Iterator<Item = ChannelIndex> {
        let mut last = None;
        self.bundle(bundle)
            .places
            .iter()
            .filter_map(move |&(channel, _)| (last.replace(channel) != Some(channel)).then_some(channel))
    }

    /// What the catalog states that the bundle asks of the cluster, if anything.
    pub fn needs(&self, bundle: BundleIndex) -> Option<&Needs> {
        self.bundle(bundle).needs.map(|id| &self.needs[id.0 as usize])
    }

    /// Whether a bundle asks something of the cluster.
    pub fn has_needs(&self) -> bool {
        !self.needs.is_empty()
    }

    /// The constraints of a bundle that the cluster does not meet.
    pub fn unmet(&self, bundle: BundleIndex, cluster: &ClusterFacts) -> Vec<UnmetConstraint> {
        self.needs(bundle).map(|needs| needs.unmet(cluster).collect()).unwrap_or_default()
    }

    /// The distinct constraints of bundles that the cluster does not meet, sorted.
    pub(crate) fn unmet_needs(&self, cluster: &ClusterFacts) -> impl Iterator<Item = NeedsId> {
        let unmet = (0..).map(NeedsId).zip(&self.needs);
        unmet.filter(move |(_, needs)| needs.unmet(cluster).next().is_some()).map(|(id, _)| id)
    }

    pub fn provides(&self, bundle: BundleIndex) -> &[GvkRef] {
        &self.bundle(bundle).provides
    }

    /// Properties of the bundle that declare dependencies or that constraints may look at.
    pub fn properties(&self, bundle: BundleIndex) -> &[Property] {
        &self.bundle(bundle).properties
    }

    /// The first property type of a bundle that declares a dependency.
    pub fn first_dependency(&self, bundle: BundleIndex) -> Option<&str> {
        let declares =
            |kind: &str| matches!(kind, "olm.package.required" | "olm.gvk.required" | "olm.constraint");
        self.properties(bundle).iter().map(|property| &*property.kind).find(|kind| declares(kind))
    }

    /// Entries of a channel in the catalog's order.
    pub fn entries(&self, channel: ChannelIndex) -> impl ExactSizeIterator<Item = EntryView<'_>> {
        self.channel(channel).entries.iter().map(|entry| EntryView {
            name: self.name(entry.name),
            bundle: entry.bundle,
            replaces: entry.replaces.map(|name| self.name(name)),
            skips: entry.skips.iter().map(|&name| self.name(name)).collect(),
            skip_range: entry.skip_range.map(|range| self.range(range)),
        })
    }

    /// Deprecation entries in the catalog's order: what they are about, and the message.
    pub fn deprecations(&self) -> impl Iterator<Item = (&DeprecatedScope, &str)> {
        self.deprecations.iter().map(|(scope, message)| (scope, &**message))
    }

    /// What was left out of the catalog, and why.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// About how many bytes the graph takes, for caches that are bounded by size.
    pub fn memory(&self) -> usize {
        let texts =
            |texts: &[Box<str>]| texts.iter().map(|text| size_of_val(text) + text.len()).sum::<usize>();
        let entry = |entry: &Entry| size_of_val(entry) + size_of_val(&*entry.skips);
        let channel =
            |channel: &Channel| channel.name.len() + channel.entries.iter().map(entry).sum::<usize>();
        let property =
            |property: &Property| size_of_val(property) + property.kind.len() + property.value.len();
        let gvk = |gvk: &GvkRef| size_of_val(gvk) + gvk.group.len() + gvk.version.len() + gvk.kind.len();
        let bundle = |bundle: &Bundle| {
            size_of_val(bundle)
                + bundle.image.len()
                + size_of_val(&*bundle.places)
                + bundle.properties.iter().map(property).sum::<usize>()
                + bundle.provides.iter().map(gvk).sum::<usize>()
        };
        size_of::<Self>()
            + texts(&self.names)
            + self.channels.iter().map(channel).sum::<usize>()
            + self.bundles.iter().map(bundle).sum::<usize>()
            + self.followers.iter().map(|list| size_of_val(list) + size_of_val(&**list)).sum::<usize>()
            + self.ranges.iter().map(Range::memory).sum::<usize>()
            + self.needs.iter().map(Needs::memory).sum::<usize>()
            + self.deprecations.iter().map(|(_, message)| message.len() + 32).sum::<usize>()
            + self
                .findings
                .iter()
                .map(|finding| finding.place.len() + finding.message.len() + 48)
                .sum::<usize>()
    }

    /// Bundles, best first: undeprecated, then version and release descending, then name; unreadable versions last.
    pub fn preference(&self) -> &[BundleIndex] {
        &self.order
    }

    /// The best edge (by kind, then channel) that leads from a bundle of this name and version to another one in the
    /// channels asked for. The package need not have the first.
    pub fn edge(
        &self,
        name: &BundleName,
        version: &VersionRelease,
        to: BundleIndex,
        asked: impl Fn(ChannelIndex) -> bool,
    ) -> Option<Edge> {
        let folded = version.folded();
        let origin = Origin { name: self.name_id(name.as_str()), version: Some(&folded) };
        self.places(to)
            .filter(|&(channel, _)| asked(channel))
            .filter_map(|(channel, entry)| Some(Edge { kind: self.follows(entry, origin)?, channel }))
            .min()
    }

    /// How an entry may follow, the plainest word first.
    pub(crate) fn follows(&self, entry: &Entry, from: Origin<'_>) -> Option<EdgeKind> {
        if let Some(name) = from.name {
            if entry.replaces == Some(name) {
                return Some(EdgeKind::Replaces);
            }
            if entry.skips.contains(&name) {
                return Some(EdgeKind::Skips);
            }
        }
        let range = self.range(entry.skip_range?);
        from.version.is_some_and(|version| range.contains(version)).then_some(EdgeKind::SkipRange)
    }

    pub(crate) fn range(&self, id: RangeId) -> &Range {
        &self.ranges[id.0 as usize]
    }

    pub(crate) fn places(&self, bundle: BundleIndex) -> impl Iterator<Item = (ChannelIndex, &Entry)> {
        self.bundle(bundle)
            .places
            .iter()
            .map(|&(channel, entry)| (channel, &self.channel(channel).entries[entry as usize]))
    }

    pub(crate) fn name_id(&self, name: &str) -> Option<NameId> {
        let found = self.names.binary_search_by(|known| (**known).cmp(name)).ok()?;
        u32::try_from(found).ok().map(NameId)
    }

    pub(crate) fn name(&self, id: NameId) -> &str {
        &self.names[id.0 as usize]
    }

    pub(crate) fn bundle(&self, index: BundleIndex) -> &Bundle {
        &self.bundles[index.0 as usize]
    }

    pub(crate) fn channel(&self, index: ChannelIndex) -> &Channel {
        &self.channels[index.0 as usize]
    }
}

/// All edges that leave one origin, found together: named ones through the index, skipRanges once each.
#[derive(Debug)]
pub(crate) struct Leaving<'a> {
    graph: &'a PackageGraph,
    version: &'a Version,
    /// The best named edge to each bundle from `first` on.
    named: Vec<Option<Edge>>,
    /// The first bundle that a named edge leads to.
    first: u32,
    /// Which distinct skipRanges hold the version, as far as asked.
    held: Vec<Cell<Option<bool>>>,
}

impl<'a> Leaving<'a> {
    pub(crate) fn new(
        graph: &'a PackageGraph,
        name: Option<NameId>,
        version: &'a Version,
        asked: impl Fn(ChannelIndex) -> bool,
    ) -> Self {
        // sorted by bundle, then by edge
        let followers = name.map(|name| &*graph.followers[name.0 as usize]).unwrap_or_default();
        let first = followers.first().map_or(0, |(bundle, _)| bundle.0);
        let mut named = vec![None; followers.last().map_or(0, |(last, _)| (last.0 - first) as usize + 1)];
        for &(bundle, edge) in followers {
            let best = &mut named[(bundle.0 - first) as usize];
            if best.is_none() && asked(edge.channel) {
                *best = Some(edge);
            }
        }
        Self { graph, version, named, first, held: vec![Cell::new(None); graph.ranges.len()] }
    }

    /// The best edge to a bundle in the channels asked for.
    pub(crate) fn edge_to(&self, bundle: BundleIndex, asked: impl Fn(ChannelIndex) -> bool) -> Option<Edge> {
        let named = bundle.0.checked_sub(self.first).and_then(|at| *self.named.get(at as usize)?);
        named.or_else(|| {
            // mostly decides without reading the entries
            let common = self.graph.bundle(bundle).common_range;
            if common.is_some_and(|range| range.is_none_or(|range| !self.holds(range))) {
                return None;
            }
            self.graph
                .places(bundle)
                .find(|&(channel, entry)| {
                    asked(channel) && entry.skip_range.is_some_and(|range| self.holds(range))
                })
                .map(|(channel, _)| Edge { kind: EdgeKind::SkipRange, channel })
        })
    }

    fn holds(&self, range: RangeId) -> bool {
        let known = &self.held[range.0 as usize];
        known.get().unwrap_or_else(|| {
            let holds = self.graph.range(range).contains(self.version);
            known.set(Some(holds));
            holds
        })
    }
}
