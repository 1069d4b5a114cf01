//! The content of a catalog at one time: what the solver needs in memory, manifests where they come from.
//!
//! Rule: classic-apis §2.4, update-graph §7.1.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use olm_catalog::registry::Registry;
use olm_classic::subscription::PackageDeprecations;
use olm_core::Object;
use olm_fbc::PackageContents;
use olm_registry::proto;
use olm_resolver::{ChannelEntry, DeprecatedScope, GvkRef, Property};
use olm_solver::{BundleDraft, Catalog, ChannelDraft, ChosenBundle, PackageDraft, entry_memory};
use parking_lot::Mutex;

use super::config_map::ConfigMapCatalog;
use super::error::CatalogError;
use super::memory::{MemoryError, Reservation};
use super::shared::Image;
use crate::compute::compute;
use crate::image_source::CatalogContent;

/// Where manifests come from.
#[derive(Clone)]
pub(crate) enum Origin {
    Image(Image),
    Registry(Registry),
    ConfigMap(Arc<ConfigMapCatalog>),
}

impl Origin {
    /// `None`: it is no image.
    pub(super) fn image(&self) -> Option<&Image> {
        match self {
            Self::Image(image) => Some(image),
            Self::Registry(_) | Self::ConfigMap(_) => None,
        }
    }
}

/// Bytes of a name in a list besides its own.
const LISTED_NAME: usize = 64;

/// Values in the manifests of an inline bundle, as many as one from an image may have: as a tree each takes up to 64 bytes.
const MAX_VALUES: usize = 2_000_000;

/// Held while a package of an image is in memory as a whole: its lines may have 64 MiB, and what is parsed of them as many again.
static WHOLE_PACKAGE: Mutex<()> = Mutex::new(());

/// Deprecations by package.
type Deprecations = BTreeMap<String, Vec<(DeprecatedScope, String)>>;

/// The content.
pub(crate) struct Snapshot {
    pub(crate) catalog: Arc<Catalog>,
    deprecations: Deprecations,
    pub(super) origin: Origin,
    /// Of the two.
    _memory: Reservation,
}

/// A bundle with its manifests, or the image that has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct BundleContent {
    pub(crate) properties: Vec<Property>,
    /// Empty for an inline bundle.
    pub(crate) image: String,
    /// In the order of the bundle; none for an image.
    pub(crate) objects: Vec<Object>,
}

impl Snapshot {
    /// Reads everything that resolution may need, into this memory.
    ///
    /// # Errors
    /// When the catalog cannot be read to its end, or does not fit.
    pub(super) async fn read(origin: Origin, mut memory: Reservation) -> Result<Self, CatalogError> {
        let (drafts, deprecations, memory) = match &origin {
            Origin::Image(image) => {
                let image = Arc::clone(&image.content);
                compute(move || read_image(&*image, memory)).await.map_err(CatalogError::interrupted)??
            }
            Origin::Registry(registry) => read_registry(registry, memory).await?,
            Origin::ConfigMap(catalog) => {
                reserve_drafts(&catalog.packages, &mut memory)?;
                (catalog.packages.clone(), Deprecations::new(), memory)
            }
        };
        let catalog = compute(move || Catalog::new(drafts)).await.map_err(CatalogError::interrupted)?;
        Ok(Self { catalog: Arc::new(catalog), deprecations, origin, _memory: memory })
    }

    pub(crate) fn deprecations(&self, package: &str) -> PackageDeprecations<'_> {
        let entries = self.deprecations.get(package).map(Vec::as_slice).unwrap_or_default();
        PackageDeprecations { catalog: &self.catalog, entries }
    }

    /// A bundle that the solver chose from this catalog.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn bundle(&self, chosen: &ChosenBundle) -> Result<BundleContent, String> {
        match &self.origin {
            Origin::Image(image) => {
                let (image, chosen) = (Arc::clone(&image.content), chosen.clone());
                let read = compute(move || image_bundle(&*image, &chosen)).await;
                read.map_err(|error| format!("reading the bundle did not end: {error}"))?
            }
            Origin::Registry(registry) => {
                let found = registry.bundle(&chosen.package, &chosen.channel, &chosen.name).await;
                registry_bundle(found.map_err(|error| error.to_string())?)
            }
            Origin::ConfigMap(catalog) => catalog
                .bundle(&chosen.name)
                .ok_or_else(|| format!("bundle {} is not in the catalog any more", chosen.name)),
        }
    }
}

fn package(image: &dyn CatalogContent, name: &str) -> Result<PackageContents, String> {
    let lines =
        image.package_lines(name).map_err(|error| format!("cannot read package {name:?}: {error}"))?;
    let read = PackageContents::from_jsonl(name, &lines);
    read.map(|(contents, _)| contents).map_err(|error| error.to_string())
}

/// What was read, and its memory.
type Read = (Vec<PackageDraft>, Deprecations, Reservation);

fn read_image(image: &dyn CatalogContent, mut memory: Reservation) -> Result<Read, CatalogError> {
    let (mut drafts, mut deprecations) = (Vec::new(), Deprecations::new());
    for name in image.packages() {
        let _whole = WHOLE_PACKAGE.lock();
        let contents = package(image, &name).map_err(CatalogError::Source)?;
        let entries = contents.deprecations.iter().flat_map(|it| &it.entries);
        let entries: Vec<_> = entries
            .filter_map(|entry| {
                Some((DeprecatedScope::from_reference(&entry.reference)?, entry.message.clone()))
            })
            .collect();
        memory.add(entries.iter().map(deprecation_memory).sum())?;
        if !entries.is_empty() {
            deprecations.insert(name, entries);
        }
        if let Some(draft) = PackageDraft::from_contents(contents) {
            memory.add(draft.memory())?;
            drafts.push(draft);
        }
    }
    Ok((drafts, deprecations, memory))
}

fn reserve_drafts(drafts: &[PackageDraft], memory: &mut Reservation) -> Result<(), MemoryError> {
    drafts.iter().try_for_each(|draft| memory.add(draft.memory()))
}

/// About how many bytes a deprecation takes.
fn deprecation_memory((scope, message): &(DeprecatedScope, String)) -> usize {
    let name = match scope {
        DeprecatedScope::Package => 0,
        DeprecatedScope::Channel(name) | DeprecatedScope::Bundle(name) => name.len(),
    };
    size_of::<(DeprecatedScope, String)>() + name + message.len()
}

fn image_bundle(image: &dyn CatalogContent, chosen: &ChosenBundle) -> Result<BundleContent, String> {
    let _whole = WHOLE_PACKAGE.lock();
    let contents = package(image, &chosen.package)?;
    let found = contents.bundles.into_iter().find(|bundle| bundle.name == chosen.name);
    let bundle = found.ok_or_else(|| format!("bundle {} is not in the catalog any more", chosen.name))?;
    let properties = bundle.properties.iter().map(Property::from).collect();
    if !bundle.image.is_empty() {
        return Ok(BundleContent { properties, image: bundle.image, objects: Vec::new() });
    }
    let manifests = bundle.manifests(None)?;
    Ok(BundleContent {
        properties,
        image: String::new(),
        objects: objects(&chosen.name, &manifests.objects)?,
    })
}

fn objects(bundle: &str, texts: &[String]) -> Result<Vec<Object>, String> {
    if texts.iter().map(|text| max_values(text)).sum::<usize>() > MAX_VALUES {
        return Err(format!(
            "bundle {bundle}: its manifests have more than the limit of {MAX_VALUES} values"
        ));
    }
    let object = |text: &String| {
        let value = serde_json::from_str(text).map_err(|error| error.to_string());
        value.and_then(|value| Object::from_value(value).map_err(|error| error.to_string()))
    };
    let read: Result<Vec<Object>, String> = texts.iter().map(object).collect();
    read.map_err(|error| format!("bundle {bundle}: a manifest is no object: {error}"))
}

/// At most how many values a JSON text has: each but the first follows one of these characters, which may be part of a string, too.
fn max_values(text: &str) -> usize {
    1 + text.bytes().filter(|byte| matches!(byte, b'[' | b'{' | b',' | b':')).count()
}

fn property(property: proto::Property) -> Property {
    Property { kind: property.r#type.into(), value: property.value.into() }
}

fn registry_bundle(bundle: proto::Bundle) -> Result<BundleContent, String> {
    let objects =
        if bundle.bundle_path.is_empty() { objects(&bundle.csv_name, &bundle.object)? } else { Vec::new() };
    let properties = bundle.properties.into_iter().map(property).collect();
    Ok(BundleContent { properties, image: bundle.bundle_path, objects })
}

/// Packages as they are being listed.
#[derive(Default)]
struct Listing {
    packages: BTreeMap<String, ListedPackage>,
    deprecations: Deprecations,
}

#[derive(Default)]
struct ListedPackage {
    draft: PackageDraft,
    /// The index of each of its channels.
    channels: HashMap<String, usize>,
    /// The names of its bundles.
    bundles: HashSet<String>,
}

impl Listing {
    /// A bundle comes once for each of its channels. Returns about how many bytes it takes here.
    fn add(&mut self, bundle: proto::Bundle) -> usize {
        let ListedPackage { draft, channels, bundles } =
            self.packages.entry(bundle.package_name.clone()).or_default();
        draft.name.clone_from(&bundle.package_name);
        let entry = ChannelEntry {
            name: bundle.csv_name.clone(),
            replaces: bundle.replaces,
            skips: bundle.skips,
            skip_range: bundle.skip_range,
        };
        let mut memory = entry_memory(&entry);
        let at = *channels.entry(bundle.channel_name).or_insert_with_key(|name| {
            // a channel has the name of its package
            memory += LISTED_NAME + 2 * name.len() + draft.name.len();
            draft.channels.push(ChannelDraft { name: name.clone(), entries: Vec::new() });
            draft.channels.len() - 1
        });
        draft.channels[at].entries.push(entry);
        if !bundles.insert(bundle.csv_name.clone()) {
            return memory;
        }
        if let Some(deprecation) = bundle.deprecation {
            let scope = DeprecatedScope::Bundle(bundle.csv_name.as_str().into());
            let of_package = self.deprecations.entry(bundle.package_name).or_default();
            memory += deprecate(of_package, scope, deprecation);
        }
        let api = |it: proto::GroupVersionKind| GvkRef {
            group: it.group.into(),
            version: it.version.into(),
            kind: it.kind.into(),
        };
        let dependency = |it: proto::Dependency| Property { kind: it.r#type.into(), value: it.value.into() };
        let listed = BundleDraft {
            name: bundle.csv_name,
            version: bundle.version,
            properties: bundle.properties.into_iter().map(property).collect(),
            dependencies: bundle.dependencies.into_iter().map(dependency).collect(),
            provided_apis: bundle.provided_apis.into_iter().map(api).collect(),
            required_apis: bundle.required_apis.into_iter().map(api).collect(),
        };
        memory += LISTED_NAME + listed.name.len() + listed.memory();
        draft.bundles.push(listed);
        memory
    }

    /// Adds what the list of bundles does not have. Returns about how many bytes it takes here.
    fn add_package(&mut self, package: proto::Package) -> usize {
        let mut memory = LISTED_NAME + package.name.len() + package.default_channel_name.len();
        let of_package = self.deprecations.entry(package.name.clone()).or_default();
        if let Some(deprecation) = package.deprecation {
            memory += deprecate(of_package, DeprecatedScope::Package, deprecation);
        }
        for channel in package.channels {
            if let Some(deprecation) = channel.deprecation {
                memory += deprecate(of_package, DeprecatedScope::Channel(channel.name.into()), deprecation);
            }
        }
        if let Some(listed) = self.packages.get_mut(&package.name) {
            listed.draft.default_channel = package.default_channel_name;
        }
        memory
    }

    /// What a catalog is made from, with its memory instead of that of the list.
    fn finish(self, mut memory: Reservation) -> Result<Read, MemoryError> {
        let Self { packages, mut deprecations } = self;
        deprecations.retain(|_, entries| !entries.is_empty());
        let drafts: Vec<PackageDraft> = packages.into_values().map(|it| it.draft).collect();
        memory.clear();
        memory.add(deprecations.values().flatten().map(deprecation_memory).sum())?;
        reserve_drafts(&drafts, &mut memory)?;
        Ok((drafts, deprecations, memory))
    }
}

fn deprecate(
    entries: &mut Vec<(DeprecatedScope, String)>,
    scope: DeprecatedScope,
    deprecation: proto::Deprecation,
) -> usize {
    let entry = (scope, deprecation.message);
    let memory = deprecation_memory(&entry);
    entries.push(entry);
    memory
}

async fn read_registry(registry: &Registry, mut memory: Reservation) -> Result<Read, CatalogError> {
    let (mut listing, mut does_not_fit) = (Listing::default(), None);
    let mut reserve =
        |bytes| memory.add(bytes).map_err(|error: MemoryError| does_not_fit.insert(error).to_string());
    let mut listed = registry.list_bundles(|bundle| reserve(listing.add(bundle))).await;
    if listed.is_ok() {
        listed = registry.packages(|package| reserve(listing.add_package(package))).await;
    }
    if let Some(error) = does_not_fit {
        return Err(error.into());
    }
    listed.map_err(|error| CatalogError::Source(error.to_string()))?;
    Ok(listing.finish(memory)?)
}

#[cfg(test)]
mod tests {
    use super::super::memory::Memory;
    use super::super::shared::SharedImages;
    use super::super::testing::package_lines;
    use super::*;

    fn bundle(name: &str, channel: &str) -> proto::Bundle {
        proto::Bundle {
            csv_name: name.to_owned(),
            package_name: "p".to_owned(),
            channel_name: channel.to_owned(),
            version: "1.0.0".to_owned(),
            deprecation: (name == "p.v1").then(|| proto::Deprecation { message: "old".to_owned() }),
            ..proto::Bundle::default()
        }
    }

    #[test]
    fn listing_merges_a_bundle_of_several_channels() {
        let mut listing = Listing::default();
        for (name, channel) in [("p.v1", "a"), ("p.v2", "a"), ("p.v1", "b")] {
            listing.add(bundle(name, channel));
        }
        let package = &listing.packages["p"].draft;
        let channels: Vec<(&str, usize)> =
            package.channels.iter().map(|it| (it.name.as_str(), it.entries.len())).collect();
        assert_eq!(channels, [("a", 2), ("b", 1)]);
        assert_eq!(package.bundles.len(), 2);
        assert_eq!(listing.deprecations["p"], [(DeprecatedScope::Bundle("p.v1".into()), "old".to_owned())]);
    }

    #[test]
    fn listing_returns_the_memory_of_all_that_it_keeps() {
        type Change<'a> = &'a dyn Fn(&mut proto::Bundle);

        let text = "x".repeat(10_000);
        let memory_after = |change: Change<'_>| {
            let mut listed = bundle("p.v2", "a");
            change(&mut listed);
            Listing::default().add(listed)
        };
        let base = memory_after(&|_| ());
        let property = proto::Property { r#type: "t".to_owned(), value: text.clone() };
        let dependency = proto::Dependency { r#type: "t".to_owned(), value: text.clone() };
        let api = proto::GroupVersionKind { kind: text.clone(), ..proto::GroupVersionKind::default() };
        let deprecation = proto::Deprecation { message: text.clone() };
        let changes: [(&str, Change<'_>); 10] = [
            ("name", &|it| it.csv_name.clone_from(&text)),
            ("package", &|it| it.package_name.clone_from(&text)),
            ("channel", &|it| it.channel_name.clone_from(&text)),
            ("version", &|it| it.version.clone_from(&text)),
            ("skips", &|it| it.skips.push(text.clone())),
            ("range", &|it| it.skip_range.clone_from(&text)),
            ("properties", &|it| it.properties.push(property.clone())),
            ("dependencies", &|it| it.dependencies.push(dependency.clone())),
            ("APIs", &|it| it.provided_apis.push(api.clone())),
            ("deprecation", &|it| it.deprecation = Some(deprecation.clone())),
        ];
        for (case, change) in changes {
            assert!(memory_after(change) >= base + text.len() - 10, "{case}");
        }
        let mut listing = Listing::default();
        let first = listing.add(bundle("p.v2", "a"));
        let second = listing.add(proto::Bundle { properties: vec![property], ..bundle("p.v2", "a") });
        assert!(0 < second && second < first, "only the entry is kept: {second}");
        let package = proto::Package {
            name: "p".to_owned(),
            deprecation: Some(deprecation),
            ..proto::Package::default()
        };
        assert!(listing.add_package(package) > text.len());
    }

    /// A few bundles in many channels.
    #[test]
    fn listing_of_entries_times_apis_is_limited() {
        let memory = Memory::default();
        let mut listing = Listing::default();
        let api = proto::Property { r#type: "olm.gvk".to_owned(), value: "{}".to_owned() };
        listing.add(proto::Bundle { properties: vec![api; 20_000], ..bundle("p.v2", "0") });
        for channel in 1..1000 {
            listing.add(bundle("p.v2", &channel.to_string()));
        }
        let error = listing.finish(memory.reserve()).err().unwrap().to_string();
        assert!(error.contains("the limit of 134217728 bytes"), "{error}");
        assert_eq!(memory.reserve().add(128 << 20), Ok(()), "the memory is free again");
    }

    /// A catalog of one package, whose bundle has properties of so many bytes.
    struct Content(usize);

    impl CatalogContent for Content {
        fn reference(&self) -> &str {
            "registry.test/c@sha256:1"
        }

        fn packages(&self) -> Vec<String> {
            vec!["p".to_owned()]
        }

        fn package_lines(&self, package: &str) -> std::io::Result<Vec<u8>> {
            Ok(package_lines(package, self.0))
        }
    }

    #[tokio::test]
    async fn snapshot_reserves_memory_until_it_is_dropped() {
        let memory = Memory::default();
        // all but 1 MiB of two catalogs
        let mut others = [memory.reserve(), memory.reserve()];
        others[0].add(128 << 20).unwrap();
        others[1].add(127 << 20).unwrap();
        let images = SharedImages::new(memory.clone());
        let read = |bytes| {
            let image = images.add(Arc::new(Content(bytes)), 0).unwrap();
            Snapshot::read(Origin::Image(image), memory.reserve())
        };
        let error = read(1 << 20).await.err().unwrap().to_string();
        assert!(error.contains("all catalogs takes more than the limit of 268435456 bytes"), "{error}");
        let small = read(600 << 10).await.unwrap();
        assert!(read(600 << 10).await.is_err(), "the first is in use");
        drop(small);
        assert!(read(600 << 10).await.is_ok());
    }

    #[test]
    fn registry_bundle_is_inline_or_an_image() {
        let inline = proto::Bundle { object: vec![r#"{"kind":"A"}"#.to_owned()], ..bundle("p.v2", "a") };
        assert_eq!(registry_bundle(inline.clone()).unwrap().objects.len(), 1);
        let image = proto::Bundle { bundle_path: "r.test/p".to_owned(), ..inline.clone() };
        let content = registry_bundle(image).unwrap();
        assert_eq!((content.image.as_str(), content.objects.len()), ("r.test/p", 0));
        for (object, want) in [
            ("[]".to_owned(), "bundle p.v2: a manifest is no object"),
            (",".repeat(MAX_VALUES - 1), "bundle p.v2: a manifest is no object"),
            (",".repeat(MAX_VALUES), "bundle p.v2: its manifests have more than the limit of 2000000 values"),
        ] {
            let bad = proto::Bundle { object: vec![object], ..inline.clone() };
            let error = registry_bundle(bad).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
