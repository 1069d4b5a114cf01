//! The content of a catalog at one time: what the solver needs in memory, manifests where they come from.
//!
//! Rule: classic-apis §2.4, update-graph §7.1.

use std::collections::BTreeMap;
use std::sync::Arc;

use olm_catalog::registry::Registry;
use olm_classic::subscription::PackageDeprecations;
use olm_core::Object;
use olm_fbc::PackageContents;
use olm_registry::proto;
use olm_resolver::{ChannelEntry, DeprecatedScope, GvkRef, Property};
use olm_solver::{BundleDraft, Catalog, ChannelDraft, ChosenBundle, PackageDraft};

use super::config_map::ConfigMapCatalog;
use crate::compute::compute;
use crate::image_source::CatalogContent;

/// Where manifests come from.
#[derive(Clone)]
pub(crate) enum Origin {
    Image(Arc<dyn CatalogContent>),
    Registry(Registry),
    ConfigMap(Arc<ConfigMapCatalog>),
}

/// Deprecations by package.
type Deprecations = BTreeMap<String, Vec<(DeprecatedScope, String)>>;

/// The content.
pub(crate) struct Snapshot {
    pub(crate) catalog: Arc<Catalog>,
    deprecations: Deprecations,
    origin: Origin,
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
    /// Reads everything that resolution may need.
    ///
    /// # Errors
    /// When the catalog cannot be read to its end.
    pub(crate) async fn read(origin: Origin) -> Result<Self, String> {
        let (drafts, deprecations) = match &origin {
            Origin::Image(image) => {
                let image = Arc::clone(image);
                let read = compute(move || read_image(&*image)).await;
                read.map_err(|error| format!("reading the catalog did not end: {error}"))??
            }
            Origin::Registry(registry) => read_registry(registry).await?,
            Origin::ConfigMap(catalog) => (catalog.packages.clone(), Deprecations::new()),
        };
        let made = compute(move || Catalog::new(drafts)).await;
        let catalog = Arc::new(made.map_err(|error| format!("reading the catalog did not end: {error}"))?);
        Ok(Self { catalog, deprecations, origin })
    }

    /// The deprecations of a package.
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
                let (image, chosen) = (Arc::clone(image), chosen.clone());
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

fn read_image(image: &dyn CatalogContent) -> Result<(Vec<PackageDraft>, Deprecations), String> {
    let (mut drafts, mut deprecations) = (Vec::new(), Deprecations::new());
    for name in image.packages() {
        let contents = package(image, &name)?;
        let entries = contents.deprecations.iter().flat_map(|it| &it.entries);
        let entries: Vec<_> = entries
            .filter_map(|entry| {
                Some((DeprecatedScope::from_reference(&entry.reference)?, entry.message.clone()))
            })
            .collect();
        if !entries.is_empty() {
            deprecations.insert(name, entries);
        }
        drafts.extend(PackageDraft::from_contents(contents));
    }
    Ok((drafts, deprecations))
}

fn image_bundle(image: &dyn CatalogContent, chosen: &ChosenBundle) -> Result<BundleContent, String> {
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
    let object = |text: &String| {
        let value = serde_json::from_str(text).map_err(|error| error.to_string());
        value.and_then(|value| Object::from_value(value).map_err(|error| error.to_string()))
    };
    let read: Result<Vec<Object>, String> = texts.iter().map(object).collect();
    read.map_err(|error| format!("bundle {bundle}: a manifest is no object: {error}"))
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
    packages: BTreeMap<String, PackageDraft>,
    deprecations: Deprecations,
}

impl Listing {
    /// A bundle comes once for each of its channels.
    fn add(&mut self, bundle: proto::Bundle) {
        let package = self
            .packages
            .entry(bundle.package_name.clone())
            .or_insert_with(|| PackageDraft { name: bundle.package_name.clone(), ..PackageDraft::default() });
        let entry = ChannelEntry {
            name: bundle.csv_name.clone(),
            replaces: bundle.replaces,
            skips: bundle.skips,
            skip_range: bundle.skip_range,
        };
        match package.channels.iter_mut().find(|it| it.name == bundle.channel_name) {
            Some(channel) => channel.entries.push(entry),
            None => {
                package.channels.push(ChannelDraft { name: bundle.channel_name, entries: vec![entry] });
            }
        }
        if package.bundles.iter().any(|it| it.name == bundle.csv_name) {
            return;
        }
        if let Some(deprecation) = bundle.deprecation {
            let scope = DeprecatedScope::Bundle(bundle.csv_name.as_str().into());
            let of_package = self.deprecations.entry(bundle.package_name).or_default();
            of_package.push((scope, deprecation.message));
        }
        let api = |it: proto::GroupVersionKind| GvkRef {
            group: it.group.into(),
            version: it.version.into(),
            kind: it.kind.into(),
        };
        let dependency = |it: proto::Dependency| Property { kind: it.r#type.into(), value: it.value.into() };
        package.bundles.push(BundleDraft {
            name: bundle.csv_name,
            version: bundle.version,
            properties: bundle.properties.into_iter().map(property).collect(),
            dependencies: bundle.dependencies.into_iter().map(dependency).collect(),
            provided_apis: bundle.provided_apis.into_iter().map(api).collect(),
            required_apis: bundle.required_apis.into_iter().map(api).collect(),
        });
    }
}

async fn read_registry(registry: &Registry) -> Result<(Vec<PackageDraft>, Deprecations), String> {
    let mut listing = Listing::default();
    let listed = registry.list_bundles(|bundle| listing.add(bundle)).await;
    listed.map_err(|error| error.to_string())?;
    let packages = registry.packages().await.map_err(|error| error.to_string())?;
    for package in packages {
        let of_package = listing.deprecations.entry(package.name.clone()).or_default();
        if let Some(deprecation) = package.deprecation {
            of_package.push((DeprecatedScope::Package, deprecation.message));
        }
        for channel in package.channels {
            if let Some(deprecation) = channel.deprecation {
                of_package.push((DeprecatedScope::Channel(channel.name.into()), deprecation.message));
            }
        }
        if let Some(draft) = listing.packages.get_mut(&package.name) {
            draft.default_channel = package.default_channel_name;
        }
    }
    listing.deprecations.retain(|_, entries| !entries.is_empty());
    Ok((listing.packages.into_values().collect(), listing.deprecations))
}

#[cfg(test)]
mod tests {
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
        let package = &listing.packages["p"];
        let channels: Vec<(&str, usize)> =
            package.channels.iter().map(|it| (it.name.as_str(), it.entries.len())).collect();
        assert_eq!(channels, [("a", 2), ("b", 1)]);
        assert_eq!(package.bundles.len(), 2);
        assert_eq!(listing.deprecations["p"], [(DeprecatedScope::Bundle("p.v1".into()), "old".to_owned())]);
    }

    #[test]
    fn registry_bundle_is_inline_or_an_image() {
        let inline = proto::Bundle { object: vec![r#"{"kind":"A"}"#.to_owned()], ..bundle("p.v2", "a") };
        assert_eq!(registry_bundle(inline.clone()).unwrap().objects.len(), 1);
        let image = proto::Bundle { bundle_path: "r.test/p".to_owned(), ..inline.clone() };
        let content = registry_bundle(image).unwrap();
        assert_eq!((content.image.as_str(), content.objects.len()), ("r.test/p", 0));
        let bad = proto::Bundle { object: vec!["[]".to_owned()], ..inline };
        assert!(registry_bundle(bad).unwrap_err().starts_with("bundle p.v2: a manifest is no object"));
    }
}
