//! Packages for a [`crate::Catalog`] from the content of a file-based catalog, and the memory that they take.

use std::collections::HashMap;

use olm_fbc::PackageContents;
use olm_resolver::{ChannelEntry, GvkRef, Property};
use serde::Deserialize;

use crate::namespace::{BundleDraft, ChannelDraft, PackageDraft};

/// Manifests, and what registries derive from a bundle's ClusterServiceVersion. They decide nothing, registries do not list them, and they are
/// most of the bytes.
const CONTENT: [&str; 2] = ["olm.bundle.object", "olm.csv.metadata"];

/// Bytes of a text besides its own: what refers to it, and its allocation.
const TEXT: usize = 32;
/// Bytes of a channel, an entry or a bundle besides its texts.
const ITEM: usize = 96;
/// Bytes of an API or package that a bundle provides, parsed and in the index.
const PROVIDED: usize = 96;
/// Bytes of an entry in the index, for each API and package.
const INDEXED: usize = 8;
/// Bytes of a parsed range for one of its text.
const RANGE: usize = 16;

#[derive(Deserialize, Default)]
#[serde(default)]
struct PackageProperty {
    version: String,
}

impl PackageDraft {
    /// `None` without an object of the package itself.
    pub fn from_contents(contents: PackageContents) -> Option<Self> {
        let package = contents.package?;
        let channel = |it: olm_fbc::Channel| ChannelDraft { name: it.name, entries: it.entries };
        Some(Self {
            name: package.name,
            default_channel: package.default_channel,
            channels: contents.channels.into_iter().map(channel).collect(),
            bundles: contents.bundles.into_iter().map(bundle).collect(),
        })
    }

    /// About how many bytes a catalog takes for it. Each entry is in the index once for all that its bundle provides, so a few bundles in
    /// many channels may take much more than their texts.
    pub fn memory(&self) -> usize {
        let provided: HashMap<&str, usize> =
            self.bundles.iter().map(|it| (it.name.as_str(), it.provided())).collect();
        let entry = |it: &ChannelEntry| {
            entry_memory(it) + INDEXED * provided.get(it.name.as_str()).copied().unwrap_or_default()
        };
        let channel = |it: &ChannelDraft| {
            // a channel has the name of its package
            ITEM + text(&it.name) + text(&self.name) + it.entries.iter().map(entry).sum::<usize>()
        };
        let channels: usize = self.channels.iter().map(channel).sum();
        let bundles: usize = self.bundles.iter().map(BundleDraft::memory).sum();
        ITEM + text(&self.name) + text(&self.default_channel) + channels + bundles
    }
}

impl BundleDraft {
    /// About how many bytes a catalog takes for it.
    pub fn memory(&self) -> usize {
        let properties = self.properties.iter().chain(&self.dependencies);
        let properties: usize = properties.map(|it| text(&it.kind) + text(&it.value)).sum();
        let apis = self.provided_apis.iter().chain(&self.required_apis);
        let apis: usize =
            apis.map(|GvkRef { group, version, kind }| text(group) + text(version) + text(kind)).sum();
        ITEM + text(&self.name) + text(&self.version) + properties + apis + PROVIDED * self.provided()
    }

    /// At most how many APIs and packages it provides.
    fn provided(&self) -> usize {
        let is_provided = |it: &&Property| matches!(&*it.kind, "olm.gvk" | "olm.package");
        self.properties.iter().filter(is_provided).count() + self.provided_apis.len() + 1
    }
}

/// About how many bytes a catalog takes for an entry, without its bundle.
pub fn entry_memory(entry: &ChannelEntry) -> usize {
    let skips: usize = entry.skips.iter().map(|it| text(it)).sum();
    ITEM + text(&entry.name) + text(&entry.replaces) + skips + RANGE * entry.skip_range.len()
}

fn text(text: &str) -> usize {
    TEXT + text.len()
}

fn bundle(bundle: olm_fbc::Bundle) -> BundleDraft {
    let kept = bundle.properties.iter().filter(|it| !CONTENT.contains(&it.kind.as_str()));
    let properties: Vec<Property> = kept.map(Property::from).collect();
    let of_package = properties.iter().find(|it| &*it.kind == "olm.package");
    let version = of_package.and_then(|it| serde_json::from_str::<PackageProperty>(&it.value).ok());
    BundleDraft {
        name: bundle.name,
        version: version.unwrap_or_default().version,
        properties,
        ..BundleDraft::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_leaves_out_the_content_of_bundles() {
        let lines = [
            r#"{"schema":"olm.package","name":"p"}"#,
            r#"{"schema":"olm.bundle","package":"p","name":"b","properties":[{"type":"olm.bundle.object","value":{"data":"e30="}},{"type":"olm.csv.metadata","value":{}},{"type":"olm.package","value":{"packageName":"p","version":"1.0.0"}}]}"#,
        ];
        let (contents, _) = PackageContents::from_lines("p", lines).unwrap();
        let draft = PackageDraft::from_contents(contents).unwrap();
        let bundle = &draft.bundles[0];
        let kinds: Vec<&str> = bundle.properties.iter().map(|it| &*it.kind).collect();
        assert_eq!((kinds, bundle.version.as_str()), (vec!["olm.package"], "1.0.0"));
    }

    fn property(kind: &str) -> Property {
        Property { kind: kind.into(), value: "{}".into() }
    }

    fn package(bundles: Vec<BundleDraft>, channels: usize) -> PackageDraft {
        let entry = || ChannelEntry { name: "p.v1".to_owned(), ..ChannelEntry::default() };
        let channel = |at| ChannelDraft { name: format!("c{at}"), entries: vec![entry()] };
        let channels = (0..channels).map(channel).collect();
        PackageDraft { name: "p".to_owned(), channels, bundles, ..PackageDraft::default() }
    }

    fn bundle(properties: Vec<Property>) -> BundleDraft {
        BundleDraft { name: "p.v1".to_owned(), properties, ..BundleDraft::default() }
    }

    #[test]
    fn memory_counts_texts_and_entries_times_apis() {
        let large = "x".repeat(1000);
        let named = |entry: ChannelEntry| entry_memory(&entry) - entry_memory(&ChannelEntry::default());
        assert_eq!(named(ChannelEntry { replaces: large.clone(), ..ChannelEntry::default() }), 1000);
        assert_eq!(
            named(ChannelEntry { skips: vec![large.clone()], ..ChannelEntry::default() }),
            1000 + TEXT
        );
        assert_eq!(
            named(ChannelEntry { skip_range: large.clone(), ..ChannelEntry::default() }),
            1000 * RANGE
        );
        let value = Property { value: large.into(), ..property("t") };
        assert!(bundle(vec![value]).memory() >= bundle(vec![property("t")]).memory() + 998);
        let memory = |apis: usize, channels: usize| {
            package(vec![bundle(vec![property("olm.gvk"); apis])], channels).memory()
        };
        let of_apis = memory(1000, 1) - memory(0, 1);
        assert!(memory(1000, 1000) >= memory(0, 1000) + of_apis + 999 * 1000 * INDEXED);
    }
}
