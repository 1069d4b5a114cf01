//! The four schemas that OLM understands (fbc §5), as Go decodes them. Everything else is an *other* meta and
//! stays bytes.

use crate::{
    decode::{Base64, Json, go_struct, read},
    property::{PackageProperty, Property},
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

    /// Properties of one type, in order.
    pub fn properties_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Property> {
        self.properties.iter().filter(move |property| property.kind == kind)
    }
}
