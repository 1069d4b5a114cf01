//! From the objects of a catalog to a graph. Bad pieces are left out and reported, the rest stays usable.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map};

use olm_core::{Range, Version, VersionRelease, go, lowest_kubernetes};
use olm_fbc::{ChannelEntry, property};

use super::{
    Bundle, BundleIndex, Channel, ChannelIndex, DeprecatedScope, Edge, EdgeKind, Entry, Finding, Followers,
    GvkRef, NameId, NeedsId, PackageGraph, Property, RangeId,
};
use crate::environment::Needs;

/// Findings of a package that are kept; of the others the number is.
const MAX_FINDINGS: usize = 1_000;

/// A package in plain values, before anything is parsed.
#[derive(Debug, Clone, Default)]
pub struct GraphDraft {
    pub package: String,
    /// Default channel, empty for none.
    pub default_channel: String,
    /// Channels in the catalog's order. Of two with one name the later counts, as in the reference's cache.
    pub channels: Vec<ChannelDraft>,
    /// Bundles in the catalog's order. Of two with one name the later counts.
    pub bundles: Vec<BundleDraft>,
    /// Deprecation entries of the package's deprecations blob.
    pub deprecations: Vec<(DeprecatedScope, String)>,
    /// What is known to be wrong already.
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, Default)]
pub struct ChannelDraft {
    pub name: String,
    /// Entries in the catalog's order.
    pub entries: Vec<ChannelEntry>,
}

#[derive(Debug, Clone)]
pub struct BundleDraft {
    pub name: String,
    pub image: String,
    /// Version and release as texts from the `olm.package` property, or why there are none.
    pub version: Result<(String, Option<String>), String>,
    /// Properties: type and JSON text.
    pub properties: Vec<(String, String)>,
    /// What it asks of the cluster, or why that cannot be read.
    pub environment: Result<EnvironmentDraft, String>,
}

/// What a bundle asks of the cluster, in plain values.
#[derive(Debug, Clone, Default)]
pub struct EnvironmentDraft {
    /// `minKubeVersion`, empty for any.
    pub lowest: String,
    /// `nativeAPIs`
    pub apis: Vec<GvkRef>,
}

impl Default for BundleDraft {
    fn default() -> Self {
        let version = Err("no package property found".to_owned());
        let environment = Ok(EnvironmentDraft::default());
        Self { name: String::new(), image: String::new(), version, properties: Vec::new(), environment }
    }
}

/// What the `release` member of `olm.package` means (gate `BundleReleaseSupport`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleaseField {
    /// It is the release; only without it build metadata may be one.
    #[default]
    Counts,
    /// It is ignored; build metadata may be the release.
    Ignored,
}

impl GraphDraft {
    pub fn build(self, release: ReleaseField) -> PackageGraph {
        let mut findings = Findings::default();
        findings.extend(self.findings);
        let mut report = |place: String, message: String| findings.extend([Finding { place, message }]);

        let named = self.bundles.into_iter().map(|it| (it.name.clone(), it));
        let bundles = by_name(named, ("bundle", "has no name"), place_of_bundle, &mut report);
        let named = self.channels.into_iter().map(|it| (it.name.clone(), it));
        let nameless = ("channel", "has no name (is it written as channel: instead of name:?)");
        let channels = by_name(named, nameless, place_of_channel, &mut report);

        // those of the bundles first, so that each has the number of its bundle until they are sorted
        let mut names = Names::default();
        for name in bundles.keys() {
            names.id(name);
        }
        let deprecated: BTreeSet<&str> = self
            .deprecations
            .iter()
            .filter_map(|(scope, _)| match scope {
                DeprecatedScope::Bundle(name) => Some(&**name),
                DeprecatedScope::Package | DeprecatedScope::Channel(_) => None,
            })
            .collect();

        let mut places: Vec<Vec<(ChannelIndex, u32)>> = vec![Vec::new(); bundles.len()];
        let mut ranges = Ranges::default();
        let mut built_channels = Vec::with_capacity(channels.len());
        for (at, channel) in channels.values().enumerate() {
            let Some(at) = number(at) else { break };
            let mut entries = Vec::with_capacity(channel.entries.len());
            for entry in &channel.entries {
                let place =
                    || format!("{} entry {}", place_of_channel(&channel.name), go::quote(&entry.name));
                let Some(name) = names.id(&entry.name) else {
                    report(place_of_channel(&channel.name), "has an entry without name".to_owned());
                    continue;
                };
                let bundle = ((name.0 as usize) < bundles.len()).then_some(BundleIndex(name.0));
                if bundle.is_none() {
                    report(place(), "has no bundle of that name".to_owned());
                }
                let skip_range = match entry.skip_range.as_str() {
                    "" => None,
                    text => match ranges.id(text) {
                        Ok(range) => Some(range),
                        Err(why) => {
                            report(place(), why.clone());
                            None
                        }
                    },
                };
                if entry.skips.iter().any(String::is_empty) {
                    report(place(), "skips an empty name".to_owned());
                }
                if let (Some(bundle), Some(position)) = (bundle, number(entries.len())) {
                    places[bundle.0 as usize].push((ChannelIndex(at), position));
                }
                let replaces = names.id(&entry.replaces);
                let mut skips = Vec::with_capacity(entry.skips.len());
                skips.extend(entry.skips.iter().filter_map(|skip| names.id(skip)));
                entries.push(Entry { name, bundle, replaces, skips: skips.into(), skip_range });
            }
            built_channels.push(Channel { name: channel.name.as_str().into(), entries: entries.into() });
        }

        let (names, places_of_names) = names.sorted();
        let sorted = |name: &mut NameId| *name = places_of_names[name.0 as usize];
        for entry in built_channels.iter_mut().flat_map(|channel| &mut channel.entries) {
            sorted(&mut entry.name);
            entry.replaces.iter_mut().for_each(sorted);
            entry.skips.iter_mut().for_each(sorted);
        }

        let mut built = Vec::with_capacity(bundles.len());
        let mut all_needs: BTreeMap<Needs, NeedsId> = BTreeMap::new();
        for ((bundle, places), &name) in bundles.values().zip(places).zip(&places_of_names) {
            let version = read_version(bundle, release);
            if let Err(why) = &version {
                report(place_of_bundle(&bundle.name), why.to_string());
            }
            let needs = read_needs(bundle).unwrap_or_else(|why| {
                report(place_of_bundle(&bundle.name), why);
                Needs::default()
            });
            let next = number(all_needs.len()).map(NeedsId).filter(|_| !needs.is_empty());
            let needs = next.map(|next| *all_needs.entry(needs).or_insert(next));
            built.push(Bundle {
                name,
                version,
                image: bundle.image.as_str().into(),
                common_range: common_range(&places, &built_channels),
                places: places.into(),
                deprecated: deprecated.contains(bundle.name.as_str()),
                needs,
                provides: provided(&bundle.properties),
                properties: kept_properties(&bundle.properties),
            });
        }

        let followers = followers(names.len(), &built, &built_channels);
        let mut order: Vec<BundleIndex> =
            (0..built.len()).filter_map(|at| number(at).map(BundleIndex)).collect();
        // stable, so that equal versions stay in the order of their names
        order.sort_by(|a, b| {
            let (a, b) = (&built[a.0 as usize], &built[b.0 as usize]);
            a.deprecated
                .cmp(&b.deprecated)
                .then_with(|| b.version.as_ref().ok().cmp(&a.version.as_ref().ok()))
        });
        PackageGraph {
            package: self.package.into(),
            default_channel: (!self.default_channel.is_empty()).then(|| self.default_channel.into()),
            names,
            channels: built_channels.into(),
            bundles: built.into(),
            order: order.into(),
            followers,
            ranges: ranges.parsed.into(),
            needs: by_number(all_needs),
            deprecations: self
                .deprecations
                .into_iter()
                .map(|(scope, message)| (scope, message.into()))
                .collect(),
            findings: findings.into(),
        }
    }
}

/// What is wrong with one package: the first findings, and the number of the others.
#[derive(Default)]
struct Findings {
    first: BTreeSet<Finding>,
    others: usize,
}

impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, more: I) {
        for finding in more {
            if self.first.len() < MAX_FINDINGS || self.first.contains(&finding) {
                self.first.insert(finding);
            } else {
                self.others += 1;
            }
        }
    }
}

impl From<Findings> for Box<[Finding]> {
    fn from(findings: Findings) -> Self {
        let others = (findings.others > 0).then(|| Finding {
            place: "package".to_owned(),
            message: format!("has {} more findings", findings.others),
        });
        findings.first.into_iter().chain(others).collect()
    }
}

/// Distinct names, numbered as they are found: long lists of skips repeat them.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, NameId>);

impl<'a> Names<'a> {
    /// `None` for the empty name.
    fn id(&mut self, name: &'a str) -> Option<NameId> {
        if name.is_empty() {
            return None;
        }
        let next = number(self.0.len())?;
        Some(*self.0.entry(name).or_insert(NameId(next)))
    }

    /// The names in order, and the place there of each number.
    fn sorted(self) -> (Box<[Box<str>]>, Vec<NameId>) {
        let mut names: Vec<(&str, NameId)> = self.0.into_iter().collect();
        names.sort_unstable();
        let mut places = vec![NameId(0); names.len()];
        for (place, (_, id)) in (0..).map(NameId).zip(&names) {
            places[id.0 as usize] = place;
        }
        (names.into_iter().map(|(name, _)| name.into()).collect(), places)
    }
}

/// Distinct skipRanges; the same text is parsed once.
#[derive(Default)]
struct Ranges {
    known: HashMap<String, Result<RangeId, String>>,
    parsed: Vec<Range>,
}

impl Ranges {
    fn id(&mut self, text: &str) -> Result<RangeId, &String> {
        if !self.known.contains_key(text) {
            let id = match (Range::blang(text), number(self.parsed.len())) {
                (Ok(range), Some(id)) => {
                    self.parsed.push(range);
                    Ok(RangeId(id))
                }
                (Ok(_), None) => Err("there are too many skipRanges".to_owned()),
                (Err(error), _) => {
                    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                    Err(format!("invalid skipRange {}: {error}{hint}", go::quote(text)))
                }
            };
            self.known.insert(text.to_owned(), id);
        }
        self.known[text].as_ref().copied()
    }
}

/// Bundles or channels by their names; of two with one name the later counts. `nameless` is what is reported about one without a name.
fn by_name<T>(
    all: impl Iterator<Item = (String, T)>,
    (kind, nameless): (&str, &str),
    place: fn(&str) -> String,
    report: &mut impl FnMut(String, String),
) -> BTreeMap<String, T> {
    let mut found = BTreeMap::new();
    for (name, one) in all {
        if name.is_empty() {
            report(kind.to_owned(), nameless.to_owned());
            continue;
        }
        match found.entry(name) {
            btree_map::Entry::Vacant(new) => {
                new.insert(one);
            }
            btree_map::Entry::Occupied(mut earlier) => {
                report(place(earlier.key()), "is there twice; the later one counts".to_owned());
                earlier.insert(one);
            }
        }
    }
    found
}

/// The skipRange, or none, that the entries at all these places have; `None` if they differ.
fn common_range(places: &[(ChannelIndex, u32)], channels: &[Channel]) -> Option<Option<RangeId>> {
    let range = |&(channel, at): &(ChannelIndex, u32)| -> Option<RangeId> {
        channels.get(channel.0 as usize)?.entries.get(at as usize)?.skip_range
    };
    let first = range(places.first()?);
    places.iter().all(|place| range(place) == first).then_some(first)
}

/// For each name, who replaces or skips it.
fn followers(names: usize, bundles: &[Bundle], channels: &[Channel]) -> Box<[Followers]> {
    let mut followers: Vec<Vec<(BundleIndex, Edge)>> = vec![Vec::new(); names];
    for (at, bundle) in bundles.iter().enumerate() {
        let Some(index) = number(at).map(BundleIndex) else { break };
        let entries = bundle
            .places
            .iter()
            .map(|&(channel, at)| (channel, &channels[channel.0 as usize].entries[at as usize]));
        // in the order of the edges, so that each list is sorted
        for (channel, entry) in entries.clone() {
            if let Some(name) = entry.replaces {
                followers[name.0 as usize].push((index, Edge { kind: EdgeKind::Replaces, channel }));
            }
        }
        for (channel, entry) in entries {
            for name in &entry.skips {
                followers[name.0 as usize].push((index, Edge { kind: EdgeKind::Skips, channel }));
            }
        }
    }
    followers
        .into_iter()
        .map(|mut list| {
            list.dedup();
            list.into()
        })
        .collect()
}

fn number(at: usize) -> Option<u32> {
    u32::try_from(at).ok()
}

fn place_of_bundle(name: &str) -> String {
    format!("bundle {}", go::quote(name))
}

fn place_of_channel(name: &str) -> String {
    format!("channel {}", go::quote(name))
}

/// Version and release (rule: operator-controller §4.3).
fn read_version(bundle: &BundleDraft, field: ReleaseField) -> Result<VersionRelease, Box<str>> {
    let (text, release) = bundle.version.as_ref().map_err(|why| why.as_str())?;
    let version: Version =
        text.parse().map_err(|error| format!("error parsing version {}: {error}", go::quote(text)))?;
    match release.as_deref().filter(|_| field == ReleaseField::Counts) {
        None => Ok(VersionRelease::legacy(version)),
        Some(release) => match release.parse() {
            Ok(release) => Ok(VersionRelease { version, release: Some(release) }),
            Err(error) => Err(format!("error parsing release {}: {error}", go::quote(release)).into()),
        },
    }
}

/// What the bundle asks of the cluster; what cannot be read asks nothing (decision 26).
fn read_needs(bundle: &BundleDraft) -> Result<Needs, String> {
    let environment =
        bundle.environment.as_ref().map_err(|why| format!("what it asks of the cluster: {why}"))?;
    let lowest = match environment.lowest.trim() {
        "" => None,
        text => Some(lowest_kubernetes(text).map_err(|error| format!("minKubeVersion: {error}"))?),
    };
    let mut apis = environment.apis.clone();
    apis.sort();
    apis.dedup();
    Ok(Needs { lowest, apis: apis.into() })
}

fn by_number(all: BTreeMap<Needs, NeedsId>) -> Box<[Needs]> {
    let mut all: Vec<(NeedsId, Needs)> = all.into_iter().map(|(needs, id)| (id, needs)).collect();
    all.sort_unstable_by_key(|(id, _)| *id);
    all.into_iter().map(|(_, needs)| needs).collect()
}

fn provided(properties: &[(String, String)]) -> Box<[GvkRef]> {
    let mut gvks: Vec<GvkRef> = properties
        .iter()
        .filter(|(kind, _)| kind == property::GVK)
        .filter_map(|(_, value)| GvkRef::from_text(value))
        .collect();
    gvks.sort();
    gvks.dedup();
    gvks.into()
}

impl GvkRef {
    /// As [`Self::from_json`], from JSON text.
    fn from_text(text: &str) -> Option<Self> {
        // mostly it has the three members and no others, and is read without a value; the derived reader takes lists too
        let plain = text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
        plain.or_else(|| Self::from_json(&serde_json::from_str(text).ok()?))
    }

    /// Reads `{"group", "version", "kind"}`; absent members are empty.
    pub fn from_json(value: &serde_json::Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        value.is_object().then(|| Self {
            group: text("group").into(),
            version: text("version").into(),
            kind: text("kind").into(),
        })
    }
}

/// Types whose values are big, or which are kept in another form.
const NOT_KEPT: [&str; 4] =
    [property::BUNDLE_OBJECT, property::CSV_METADATA, property::GVK, property::PACKAGE];

fn kept_properties(properties: &[(String, String)]) -> Box<[Property]> {
    properties
        .iter()
        .filter(|(kind, _)| !NOT_KEPT.contains(&kind.as_str()))
        .map(|(kind, value)| Property { kind: kind.as_str().into(), value: value.as_str().into() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_reads_provided_apis_as_json_has_them() {
        let gvk = |group: &str, version: &str, kind: &str| GvkRef {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        };
        for (text, want) in [
            (r#"{"group":"a.io","kind":"A","version":"v1"}"#, Some(gvk("a.io", "v1", "A"))),
            (r#"{"group":"a.io","kind":"\u0041","version":"v1"}"#, Some(gvk("a.io", "v1", "A"))),
            (r#" {"kind":"A"}"#, Some(gvk("", "", "A"))),
            (r#"{"group":"a.io","kind":"A","version":"v1","more":{}}"#, Some(gvk("a.io", "v1", "A"))),
            (r#"{"group":"a.io","kind":"A","version":"v1","kind":"B"}"#, Some(gvk("a.io", "v1", "B"))),
            (r#"{"group":"a.io","Kind":"A","version":1}"#, Some(gvk("a.io", "", ""))),
            (r#"["a.io","v1","A"]"#, None),
            ("null", None),
            ("{", None),
        ] {
            assert_eq!(GvkRef::from_text(text), want, "{text}");
        }
    }
}
