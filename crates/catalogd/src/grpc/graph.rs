//! The content of a catalog that requests search, without its bundles: packages, channels, edges, deprecations; and the providers of each API.
//!
//! Both are made of stored content, one package or one bundle at a time, and hold each name once.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

use olm_fbc::{Bundle, Located, PackageContents, property, schema};

use crate::store::Content;

/// Entries, names that these skip, and deprecations of one catalog. The largest known catalog has about 60,000.
pub(super) const MAX_EDGES: usize = 400_000;
/// APIs that the bundles of one catalog provide, once for each bundle. The largest known catalog has about 77,000.
pub(super) const MAX_PROVIDED: usize = 400_000;
/// Bytes of the channels and deprecations of one catalog, and of the names in them; and of the names of its bundles and of the APIs that
/// these provide. The largest known catalog has about 4.5 MB of each (an estimate).
pub(super) const MAX_BYTES: u64 = 48 << 20;
/// About how many bytes of memory a name takes beside its letters.
const NAME_BYTES: u64 = 64;

/// A name, once in memory.
pub(super) type Name = Arc<str>;

/// Why a catalog cannot be searched.
#[derive(Debug, thiserror::Error)]
pub(super) enum GraphError {
    #[error("cannot read catalog content: {0}")]
    Read(#[from] io::Error),
    /// The same content gives the same error.
    #[error("{0}")]
    TooLarge(String),
}

/// The packages of a catalog.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) packages: BTreeMap<Name, Package>,
}

#[derive(Debug, Default)]
pub(super) struct Package {
    pub(super) default_channel: Name,
    pub(super) deprecation: Option<Name>,
    pub(super) channels: BTreeMap<Name, Channel>,
    /// Messages by bundle.
    pub(super) deprecated_bundles: BTreeMap<Name, Name>,
}

#[derive(Debug, Default)]
pub(super) struct Channel {
    /// The only entry that none replaces or skips; `None` in an invalid channel.
    pub(super) head: Option<Name>,
    pub(super) deprecation: Option<Name>,
    /// Sorted by bundle.
    pub(super) entries: Vec<Entry>,
}

/// A bundle in a channel and its edges. Empty names are absent ones.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) bundle: Name,
    pub(super) replaces: Name,
    pub(super) skips: Vec<Name>,
    pub(super) skip_range: Name,
}

impl Channel {
    /// The entries of a bundle: one in a valid channel, if any.
    pub(super) fn entries_of(&self, bundle: &str) -> &[Entry] {
        let start = self.entries.partition_point(|entry| *entry.bundle < *bundle);
        let rest = self.entries.get(start..).unwrap_or_default();
        let count = rest.iter().take_while(|entry| *entry.bundle == *bundle).count();
        rest.get(..count).unwrap_or_default()
    }
}

impl Entry {
    /// Names that it skips and does not replace, in catalog order.
    pub(super) fn other_skips(&self) -> impl Iterator<Item = &Name> {
        self.skips.iter().filter(|skipped| **skipped != self.replaces)
    }
}

/// Names that were met before, and about how many bytes of memory they take.
#[derive(Default)]
struct Names {
    known: HashSet<Name>,
    bytes: u64,
}

impl Names {
    fn get(&mut self, text: &str) -> Name {
        if let Some(name) = self.known.get(text) {
            return Arc::clone(name);
        }
        let name: Name = text.into();
        self.known.insert(Arc::clone(&name));
        self.bytes += NAME_BYTES + text.len() as u64;
        name
    }
}

pub(super) fn read(content: &Content, object: &Located<'_>) -> io::Result<Vec<u8>> {
    let mut line = vec![0; usize::try_from(object.length).map_err(io::Error::other)?];
    content.jsonl().read_at(&mut line, object.offset)?;
    Ok(line)
}

impl Graph {
    /// Reads all objects but bundles. Slow for large catalogs; not for an async thread. Packages without an `olm.package` object,
    /// and objects that do not decode, are left out.
    ///
    /// # Errors
    /// When the content cannot be read, or has more than `limit` entries, skipped names and deprecations, or more than `max_bytes` of them.
    pub(super) fn read(content: &Content, limit: usize, max_bytes: u64) -> Result<Self, GraphError> {
        let mut by_package: BTreeMap<&str, Vec<Located<'_>>> = BTreeMap::new();
        let mut bytes = 0;
        for object in content.index().objects() {
            let owner = match object.schema {
                schema::PACKAGE => object.name,
                schema::CHANNEL | schema::DEPRECATIONS => {
                    bytes += object.length;
                    object.package
                }
                _ => continue,
            };
            by_package.entry(owner).or_default().push(object);
        }
        if bytes > max_bytes {
            return Err(GraphError::TooLarge(format!(
                "the catalog has more than the limit of {max_bytes} bytes in channels and deprecations"
            )));
        }
        let (mut graph, mut names, mut edges) = (Self::default(), Names::default(), 0);
        for (name, objects) in by_package {
            let mut failed = None;
            let lines = objects.iter().map_while(|object| match read(content, object) {
                Ok(line) => Some(line),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            });
            let decoded = PackageContents::from_lines(name, lines);
            if let Some(error) = failed {
                return Err(error.into());
            }
            let (contents, _) = decoded.map_err(|error| GraphError::TooLarge(error.to_string()))?;
            edges += size(&contents);
            if edges > limit {
                return Err(GraphError::TooLarge(format!(
                    "the catalog has more than the limit of {limit} entries, skipped names and deprecations"
                )));
            }
            if let Some(package) = Package::new(&contents, &mut names) {
                graph.packages.insert(names.get(name), package);
            }
            if names.bytes > max_bytes {
                return Err(GraphError::TooLarge(format!(
                    "the catalog has more than the limit of {max_bytes} bytes in the names of channels and deprecations"
                )));
            }
        }
        Ok(graph)
    }
}

fn size(contents: &PackageContents) -> usize {
    let entries = contents.channels.iter().flat_map(|channel| &channel.entries);
    let deprecations = contents.deprecations.iter().map(|found| found.entries.len());
    entries.map(|entry| 1 + entry.skips.len()).sum::<usize>() + deprecations.sum::<usize>()
}

impl Package {
    fn new(contents: &PackageContents, names: &mut Names) -> Option<Self> {
        let object = contents.package.as_ref()?;
        let mut package = Self { default_channel: names.get(&object.default_channel), ..Self::default() };
        for channel in &contents.channels {
            let mut entries: Vec<Entry> = channel
                .entries
                .iter()
                .map(|entry| Entry {
                    bundle: names.get(&entry.name),
                    replaces: names.get(&entry.replaces),
                    skips: entry.skips.iter().map(|name| names.get(name)).collect(),
                    skip_range: names.get(&entry.skip_range),
                })
                .collect();
            entries.sort_by(|a, b| a.bundle.cmp(&b.bundle));
            let head = match channel.heads().as_slice() {
                [head] => Some(names.get(head)),
                _ => None,
            };
            package.channels.insert(names.get(&channel.name), Channel { head, deprecation: None, entries });
        }
        for entry in contents.deprecations.iter().flat_map(|found| &found.entries) {
            let (name, message) = (&entry.reference.name, names.get(&entry.message));
            match entry.reference.schema.as_str() {
                schema::PACKAGE => package.deprecation = Some(message),
                schema::CHANNEL => {
                    if let Some(channel) = package.channels.get_mut(name.as_str()) {
                        channel.deprecation = Some(message);
                    }
                }
                schema::BUNDLE => {
                    package.deprecated_bundles.insert(names.get(name), message);
                }
                _ => {}
            }
        }
        Some(package)
    }
}

/// An API: group, version and kind.
pub(super) type Api = (Name, Name, Name);

/// Which bundles provide an API, as package and bundle; sorted. A set for each API would take 400 bytes more.
#[derive(Debug, Default)]
pub(super) struct Providers(Vec<(Api, Name, Name)>);

impl Providers {
    /// Reads all bundles, one at a time. Slow for large catalogs; not for an async thread. What does not decode is left out.
    ///
    /// # Errors
    /// When the content cannot be read, or its bundles provide more than `limit` APIs, or more than `max_bytes` of names.
    pub(super) fn read(content: &Content, limit: usize, max_bytes: u64) -> Result<Self, GraphError> {
        let (mut providers, mut names, mut provided) = (Self::default(), Names::default(), 0);
        for object in content.index().objects().filter(|object| object.schema == schema::BUNDLE) {
            let Ok(bundle) = Bundle::from_json(&read(content, &object)?) else { continue };
            let (package, name) = (names.get(object.package), names.get(object.name));
            for (index, found) in bundle.properties.iter().enumerate() {
                if found.kind != property::GVK {
                    continue;
                }
                let Ok(property::Gvk { group, kind, version }) = found.read(index) else { continue };
                provided += 1;
                if provided > limit {
                    return Err(GraphError::TooLarge(format!(
                        "the catalog has more than the limit of {limit} APIs that bundles provide"
                    )));
                }
                let api = (names.get(&group), names.get(&version), names.get(&kind));
                if names.bytes > max_bytes {
                    return Err(GraphError::TooLarge(format!(
                        "the catalog has more than the limit of {max_bytes} bytes in the names of bundles and of the APIs that they provide"
                    )));
                }
                providers.0.push((api, Arc::clone(&package), Arc::clone(&name)));
            }
        }
        providers.0.sort_unstable();
        Ok(providers)
    }

    /// Whether a bundle provides an API.
    pub(super) fn provides(&self, api: &Api, package: &Name, bundle: &Name) -> bool {
        let searched = (api, package, bundle);
        self.0.binary_search_by(|row| (&row.0, &row.1, &row.2).cmp(&searched)).is_ok()
    }
}
