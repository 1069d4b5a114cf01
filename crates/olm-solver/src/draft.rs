//! Packages for a [`crate::Catalog`] from the content of a file-based catalog.

use olm_fbc::PackageContents;
use olm_resolver::Property;
use serde::Deserialize;

use crate::namespace::{BundleDraft, ChannelDraft, PackageDraft};

/// What registries derive from a bundle's ClusterServiceVersion. It decides nothing, and is most of the bytes.
const CSV_METADATA: &str = "olm.csv.metadata";

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
}

fn bundle(bundle: olm_fbc::Bundle) -> BundleDraft {
    let kept = bundle.properties.iter().filter(|it| it.kind != CSV_METADATA);
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
