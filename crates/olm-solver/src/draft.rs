//! Packages for a [`crate::Catalog`] from the content of a file-based catalog.

use olm_fbc::PackageContents;
use olm_resolver::Property;
use serde::Deserialize;

use crate::namespace::{BundleDraft, ChannelDraft, PackageDraft};

/// Manifests, and what registries derive from a bundle's ClusterServiceVersion. They decide nothing, registries do not list them, and they are
/// most of the bytes.
const CONTENT: [&str; 2] = ["olm.bundle.object", "olm.csv.metadata"];

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
}
