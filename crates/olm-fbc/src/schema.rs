//! The four schemas that OLM understands (fbc §5), as Go decodes them. Everything else is an *other* meta and
//! stays bytes.

use std::collections::BTreeSet;

use crate::{
    decode::{Base64, Json, go_struct, read},
    property::{BUNDLE_OBJECT, CSV_METADATA, Environment, InlineCsv, PackageProperty, Property},
};

pub const PACKAGE: &str = "olm.package";
pub const CHANNEL: &str = "olm.channel";
pub const BUNDLE: &str = "olm.bundle";
pub const DEPRECATIONS: &str = "olm.deprecations";

go_struct! {
    /// An `olm.package` object (fbc §5.1).
    pub struct Package("Package", "declcfg.Package") {
        pub schema: String = "schema",
        /// Name, unique in a catalog.
        pub name: String = "name",
        /// Channel used when the user names none (OLM v0), empty if absent.
        pub default_channel: String = "defaultChannel",
        pub icon: Option<Icon> = "icon",
        /// Markdown.
        pub description: String = "description",
        /// Kept, never read.
        pub properties: Vec<Property> = "properties",
    }
    pub struct Icon("Icon", "declcfg.Icon") {
        pub data: Base64 = "base64data",
        /// Media type; it is not compared with the data.
        pub media_type: String = "mediatype",
    }
    /// An `olm.channel` object (fbc §5.2).
    pub struct Channel("Channel", "declcfg.Channel") {
        pub schema: String = "schema",
        /// Name, unique in its package.
        pub name: String = "name",
        pub package: String = "package",
        pub entries: Vec<ChannelEntry> = "entries",
        /// Internal use.
        pub properties: Vec<Property> = "properties",
    }
    /// A bundle in a channel and its edges.
    pub struct ChannelEntry("ChannelEntry", "declcfg.ChannelEntry") {
        pub name: String = "name",
        /// Bundle that this one replaces, empty if none.
        pub replaces: String = "replaces",
        pub skips: Vec<String> = "skips",
        /// Versions from which an upgrade is possible (blang syntax), empty if none.
        pub skip_range: String = "skipRange",
    }
    /// An `olm.bundle` object (fbc §5.3).
    pub struct Bundle("Bundle", "declcfg.Bundle") {
        pub schema: String = "schema",
        /// Name, unique in its package.
        pub name: String = "name",
        pub package: String = "package",
        /// Image reference, empty if the bundle is inline.
        pub image: String = "image",
        pub properties: Vec<Property> = "properties",
        /// Other images, for mirroring.
        pub related_images: Vec<RelatedImage> = "relatedImages",
    }
    pub struct RelatedImage("RelatedImage", "declcfg.RelatedImage") {
        /// Free text.
        pub name: String = "name",
        pub image: String = "image",
    }
    /// An `olm.deprecations` object (fbc §5.4).
    pub struct Deprecations("Deprecation", "declcfg.Deprecation") {
        pub schema: String = "schema",
        pub package: String = "package",
        pub entries: Vec<DeprecationEntry> = "entries",
    }
    pub struct DeprecationEntry("DeprecationEntry", "declcfg.DeprecationEntry") {
        pub reference: Reference = "reference",
        pub message: String = "message",
    }
    /// Names a package (schema alone), a channel or a bundle.
    pub struct Reference("PackageScopedReference", "declcfg.PackageScopedReference") {
        /// `olm.package`, `olm.channel` or `olm.bundle`.
        pub schema: String = "schema",
        /// Empty for the package.
        pub name: String = "name",
    }
    /// A channel whose entries are not decoded yet, so that one bad entry does not cost the channel.
    pub(crate) struct LooseChannel("Channel", "declcfg.Channel") {
        pub(crate) schema: String = "schema",
        pub(crate) name: String = "name",
        pub(crate) package: String = "package",
        pub(crate) entries: Vec<Json> = "entries",
        pub(crate) properties: Vec<Property> = "properties",
    }
}

macro_rules! from_json {
    ($($name:ident $what:literal;)*) => { $(
        impl $name {
            /// Reads normalised JSON.
            ///
            /// # Errors
            #[doc = concat!("`parse ", $what, ": <the message of Go's decoder>`.")]
            pub fn from_json(json: &[u8]) -> Result<Self, String> {
                read(json).map_err(|problem| format!(concat!("parse ", $what, ": {}"), problem))
            }
        }
    )* };
}

from_json! {
    Package "package";
    Channel "channel";
    Bundle "bundle";
    Deprecations "deprecation";
}

impl Channel {
    /// Names of the entries that no entry replaces or skips; a valid channel has one.
    pub fn heads(&self) -> Vec<&str> {
        let skipped = self.entries.iter().flat_map(|entry| entry.skips.iter().chain([&entry.replaces]));
        let named: BTreeSet<&str> = skipped.map(String::as_str).collect();
        self.entries.iter().map(|entry| entry.name.as_str()).filter(|name| !named.contains(name)).collect()
    }
}

impl Bundle {
    /// The value of the first `olm.package` property: package, version and release as text.
    ///
    /// # Errors
    /// There is none, or it does not decode.
    pub fn package_property(&self) -> Result<PackageProperty, String> {
        let mut problem = None;
        for (index, property) in self.properties.iter().enumerate() {
            if property.kind == crate::property::PACKAGE {
                match property.read(index) {
                    Ok(value) => return Ok(value),
                    Err(text) => problem = problem.or(Some(text)),
                }
            }
        }
        Err(problem
            .unwrap_or_else(|| format!("bundle {:?} has no property of type \"olm.package\"", self.name)))
    }

    /// What the bundle asks of the cluster: as `olm.csv.metadata` has it, else the first CSV among its inline manifests.
    ///
    /// # Errors
    /// As [`Property::read`], or what is wrong in the CSV.
    pub fn environment(&self) -> Result<Environment, String> {
        let mut csvs = Vec::new();
        for (index, property) in self.properties.iter().enumerate() {
            match property.kind.as_str() {
                CSV_METADATA => return property.read(index),
                BUNDLE_OBJECT => csvs.push((index, property)),
                _ => {}
            }
        }
        let found = csvs.into_iter().find_map(|(index, property)| inline_csv(property, index).transpose());
        found.map_or_else(|| Ok(Environment::default()), |csv| Ok(csv?.spec))
    }

    /// Properties of one type, in order.
    pub fn properties_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Property> {
        self.properties.iter().filter(move |property| property.kind == kind)
    }
}

/// The manifest, if it is a CSV that asks something of the cluster.
fn inline_csv(property: &Property, index: usize) -> Result<Option<InlineCsv>, String> {
    let manifest = property.manifest(index)?;
    let mentions = |word: &str| memchr::memmem::find(&manifest, word.as_bytes()).is_some();
    // most manifests need not be parsed
    if !mentions("ClusterServiceVersion") || !(mentions("minKubeVersion") || mentions("nativeAPIs")) {
        return Ok(None);
    }
    // opm writes JSON, which is read several times faster
    let csv: InlineCsv = match read(&manifest) {
        Ok(csv) => csv,
        Err(_) => {
            let mut json = Vec::new();
            olm_yaml::yaml_to_json(&manifest, &mut json, &olm_yaml::Limits::default())
                .map_err(|error| error.message)?;
            read(&json)?
        }
    };
    Ok((csv.kind == "ClusterServiceVersion").then_some(csv))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::property::GroupVersionKind;

    #[test]
    #[rustfmt::skip]
    fn bundle_environment_is_what_the_catalog_states() {
        let metadata = |value: Value| json!({"type": "olm.csv.metadata", "value": value});
        let object = |text: &str| {
            let data = base64(text.as_bytes());
            json!({"type": "olm.bundle.object", "value": {"data": data}})
        };
        let api = |group: &str, version: &str, kind: &str| GroupVersionKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        };
        let csv = "kind: ClusterServiceVersion\nspec:\n  minKubeVersion: 1.21.0\n  nativeAPIs:\n  - {group: a.io, version: v1, kind: A}\n";
        for (properties, lowest, apis) in [
            (json!([]), "", vec![]),
            (json!([metadata(json!({}))]), "", vec![]),
            (json!([metadata(json!({"minKubeVersion": "1.20.0", "displayName": "x"}))]), "1.20.0", vec![]),
            (json!([metadata(json!({"nativeAPIs": [{"group": "", "version": "v1", "kind": "Pod"}]}))]), "", vec![api("", "v1", "Pod")]),
            // the metadata replace the inline manifests
            (json!([object(csv), metadata(json!({"minKubeVersion": "1.20.0"}))]), "1.20.0", vec![]),
            (json!([object("kind: Service\n"), object(csv)]), "1.21.0", vec![api("a.io", "v1", "A")]),
            (json!([object("kind: ConfigMap\ndata: {a: ClusterServiceVersion minKubeVersion}\n")]), "", vec![]),
        ] {
            let bundle = json!({"schema": "olm.bundle", "name": "b", "properties": properties}).to_string();
            let found = Bundle::from_json(bundle.as_bytes()).unwrap().environment().unwrap();
            assert_eq!((found.min_kube_version.as_str(), found.native_apis), (lowest, apis), "{bundle}");
        }
        let bundle =
            json!({"name": "b", "properties": [metadata(json!({"minKubeVersion": 1.2}))]}).to_string();
        assert_eq!(
            Bundle::from_json(bundle.as_bytes()).unwrap().environment().unwrap_err(),
            "parse property[0] of type \"olm.csv.metadata\": json: cannot unmarshal number into Go struct field CSVMetadata.minKubeVersion of type string"
        );
    }

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let group =
                chunk.iter().chain([&0, &0]).take(3).fold(0_u32, |all, &byte| all << 8 | u32::from(byte));
            let digits = (0..4).map(|at| char::from(DIGITS[(group >> (18 - 6 * at) & 63) as usize]));
            text.extend(digits.enumerate().map(|(at, digit)| if at > chunk.len() { '=' } else { digit }));
        }
        text
    }
}
