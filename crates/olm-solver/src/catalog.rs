//! The content of a catalog, made for look-ups: which entries are of a package, which provide an API.
//!
//! A [`Catalog`] is made once for each version of the content and shared by all namespaces.

use std::collections::HashMap;

use olm_core::{Range, Version};
use olm_resolver::{ChainLink, ChannelOrderError, GvkRef, chain};

use crate::content::Content;
use crate::namespace::PackageDraft;

/// Place of an entry in its catalog.
pub(crate) type EntryIndex = u32;
/// Place of a channel in its catalog.
pub(crate) type ChannelIndex = u32;

#[derive(Debug, Default)]
pub struct Catalog {
    pub(crate) channels: Vec<Channel>,
    entries: Vec<Entry>,
    contents: Vec<Content>,
    by_package: HashMap<Box<str>, Vec<EntryIndex>>,
    by_gvk: HashMap<GvkRef, Vec<EntryIndex>>,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) package: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) is_default: bool,
    entries: Vec<EntryIndex>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) channel: ChannelIndex,
    content: u32,
    pub(crate) replaces: Option<Box<str>>,
    pub(crate) skips: Vec<Box<str>>,
    /// `None` also if it cannot be read.
    pub(crate) skip_range: Option<Range>,
}

impl Catalog {
    /// Entries without a bundle do not exist, nor do bundles without an entry.
    pub fn new(packages: impl IntoIterator<Item = PackageDraft>) -> Self {
        let mut catalog = Self::default();
        for package in packages {
            catalog.add_package(package);
        }
        catalog
    }

    /// A catalog of installed CSVs: each is the only entry of a channel without a name, and has no edges.
    pub(crate) fn from_installed(contents: impl IntoIterator<Item = Content>) -> Self {
        let mut catalog = Self::default();
        for content in contents {
            let (channel, content_index) = (catalog.channels.len(), catalog.contents.len());
            let package = content.packages.first().cloned().unwrap_or_default();
            catalog.contents.push(content);
            let channel_of = Channel { package, name: "".into(), is_default: false, entries: Vec::new() };
            catalog.channels.push(channel_of);
            catalog.add_entry(Entry {
                channel: index(channel),
                content: index(content_index),
                replaces: None,
                skips: Vec::new(),
                skip_range: None,
            });
        }
        catalog
    }

    fn add_package(&mut self, package: PackageDraft) {
        let mut by_name: HashMap<Box<str>, u32> = HashMap::new();
        for bundle in package.bundles {
            if let Some(content) = Content::from_bundle(&package.name, bundle) {
                by_name.insert(content.name.clone(), index(self.contents.len()));
                self.contents.push(content);
            }
        }
        for channel in package.channels {
            let channel_index = index(self.channels.len());
            self.channels.push(Channel {
                package: package.name.as_str().into(),
                is_default: channel.name == package.default_channel,
                name: channel.name.into(),
                entries: Vec::new(),
            });
            for entry in channel.entries {
                let Some(&content) = by_name.get(entry.name.as_str()) else { continue };
                self.add_entry(Entry {
                    channel: channel_index,
                    content,
                    replaces: non_empty(&entry.replaces),
                    skips: entry.skips.iter().map(|name| name.as_str().into()).collect(),
                    skip_range: Range::blang(&entry.skip_range).ok(),
                });
            }
        }
    }

    fn add_entry(&mut self, entry: Entry) {
        let at = index(self.entries.len());
        self.channels[entry.channel as usize].entries.push(at);
        let content = &self.contents[entry.content as usize];
        for package in content.package_names() {
            self.by_package.entry(package.into()).or_default().push(at);
        }
        for gvk in &content.provides {
            self.by_gvk.entry(gvk.clone()).or_default().push(at);
        }
        self.entries.push(entry);
    }

    pub(crate) fn entry(&self, at: EntryIndex) -> &Entry {
        &self.entries[at as usize]
    }

    pub(crate) fn content(&self, at: EntryIndex) -> &Content {
        &self.contents[self.entry(at).content as usize]
    }

    pub(crate) fn channel(&self, at: EntryIndex) -> &Channel {
        &self.channels[self.entry(at).channel as usize]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> u32 {
        index(self.entries.len())
    }

    /// Entries with an `olm.package` property of this name, and those that the package publishes.
    pub(crate) fn of_package(&self, package: &str) -> &[EntryIndex] {
        self.by_package.get(package).map_or(&[], Vec::as_slice)
    }

    /// Whether a channel of a package has an entry of this name; without a channel, whether any has.
    pub fn has_entry(&self, package: &str, channel: &str, name: &str) -> bool {
        self.entries_of(package, channel).any(|at| *self.content(at).name == *name)
    }

    /// The names of the entries with an upgrade edge from what is installed, in a channel of a package; without a channel, in any. A `version`
    /// that cannot be read is in no range.
    pub fn upgrades(
        &self,
        package: &str,
        channel: &str,
        (installed, version): (&str, &str),
    ) -> impl Iterator<Item = &str> {
        let version = Version::tolerant(version).ok();
        let entries = self.entries_of(package, channel);
        entries
            .filter(move |&at| self.follows(at, installed, version.as_ref()))
            .map(move |at| &*self.content(at).name)
    }

    fn entries_of(&self, package: &str, channel: &str) -> impl Iterator<Item = EntryIndex> {
        self.of_package(package).iter().copied().filter(move |&at| {
            let of = self.channel(at);
            *of.package == *package && (channel.is_empty() || *of.name == *channel)
        })
    }

    /// Whether an entry has an edge from what is installed.
    pub(crate) fn follows(&self, at: EntryIndex, installed: &str, version: Option<&Version>) -> bool {
        let entry = self.entry(at);
        let mut names = entry.replaces.iter().chain(&entry.skips);
        let in_range =
            || entry.skip_range.as_ref().zip(version).is_some_and(|(range, version)| range.contains(version));
        names.any(|name| **name == *installed) || in_range()
    }

    pub(crate) fn providers(&self, gvk: &GvkRef) -> &[EntryIndex] {
        self.by_gvk.get(gvk).map_or(&[], Vec::as_slice)
    }

    /// The channel from head to tail, without skipped entries.
    pub(crate) fn channel_in_order(
        &self,
        channel: ChannelIndex,
    ) -> Result<Vec<EntryIndex>, ChannelOrderError> {
        let channel = &self.channels[channel as usize];
        let entries: Vec<(&Self, EntryIndex)> = channel.entries.iter().map(|&entry| (self, entry)).collect();
        let order = in_order(&entries, &channel.package, &channel.name)?;
        Ok(order.into_iter().map(|at| channel.entries[at]).collect())
    }
}

/// The places in `entries` from head to tail, without skipped entries.
pub(crate) fn in_order(
    entries: &[(&Catalog, EntryIndex)],
    package: &str,
    channel: &str,
) -> Result<Vec<usize>, ChannelOrderError> {
    let skips: Vec<Vec<&str>> = entries
        .iter()
        .map(|&(catalog, at)| catalog.entry(at).skips.iter().map(|name| &**name).collect())
        .collect();
    let links: Vec<ChainLink<'_, &str>> = entries
        .iter()
        .zip(&skips)
        .map(|(&(catalog, at), skips)| ChainLink {
            name: &*catalog.content(at).name,
            replaces: catalog.entry(at).replaces.as_deref(),
            skips,
        })
        .collect();
    chain(&links, |name| name, (package, channel))
}

fn non_empty(text: &str) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}

/// Places are 32 bits; so many entries do not fit into memory.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
