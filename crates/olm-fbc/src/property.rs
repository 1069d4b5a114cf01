//! Properties of bundles (fbc §6): a type and any JSON value. Known types can be decoded, the rest stays raw.

use std::collections::BTreeMap;

use crate::decode::{Base64, Json, go_struct};

/// Package name and version of the bundle; exactly one.
pub const PACKAGE: &str = "olm.package";
/// An API the bundle provides.
pub const GVK: &str = "olm.gvk";
/// An API the bundle needs.
pub const GVK_REQUIRED: &str = "olm.gvk.required";
/// A package the bundle needs.
pub const PACKAGE_REQUIRED: &str = "olm.package.required";
/// A compound need.
pub const CONSTRAINT: &str = "olm.constraint";
/// Internal.
pub const CHANNEL: &str = "olm.channel";
/// A manifest, inline.
pub const BUNDLE_OBJECT: &str = "olm.bundle.object";
/// What a user interface shows.
pub const CSV_METADATA: &str = "olm.csv.metadata";
/// OpenShift: the last version it runs on.
pub const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";

go_struct! {
    pub struct Property("Property", "property.Property") {
        /// The type, such as `olm.gvk`.
        pub kind: String = "type",
        /// The value; absent (not even `null`) is `None`.
        pub value: Option<Json> = "value",
    }
    /// Value of `olm.package`.
    pub struct PackageProperty("Package", "property.Package") {
        pub package_name: String = "packageName",
        /// Version, strict semver.
        pub version: String = "version",
        /// Release, if given (maybe empty).
        pub release: Option<String> = "release",
    }
    /// Value of `olm.gvk`.
    pub struct Gvk("GVK", "property.GVK") {
        /// API group.
        pub group: String = "group",
        pub kind: String = "kind",
        /// API version.
        pub version: String = "version",
    }
    /// Value of `olm.gvk.required`.
    pub struct GvkRequired("GVKRequired", "property.GVKRequired") {
        /// API group.
        pub group: String = "group",
        pub kind: String = "kind",
        /// API version.
        pub version: String = "version",
    }
    /// Value of `olm.package.required`.
    pub struct PackageRequired("PackageRequired", "property.PackageRequired") {
        pub package_name: String = "packageName",
        /// blang range.
        pub version_range: String = "versionRange",
    }
    /// Value of `olm.channel`.
    pub struct ChannelProperty("Channel", "property.Channel") {
        pub channel_name: String = "channelName",
        /// Internal.
        pub priority: i64 = "priority",
    }
    /// Value of `olm.bundle.object`.
    pub struct BundleObject("BundleObject", "property.BundleObject") {
        /// A manifest, YAML or JSON.
        pub data: Base64 = "data",
    }
    /// Value of `olm.csv.metadata`.
    pub struct CsvMetadata("CSVMetadata", "property.CSVMetadata") {
        pub annotations: BTreeMap<String, String> = "annotations",
        /// Aggregated APIs.
        pub api_service_definitions: ApiServices = "apiServiceDefinitions",
        /// Custom resources.
        pub crd_descriptions: Crds = "crdDescriptions",
        /// Markdown.
        pub description: String = "description",
        /// Name for users.
        pub display_name: String = "displayName",
        /// Which namespaces it can watch.
        pub install_modes: Vec<InstallMode> = "installModes",
        /// Words to search by.
        pub keywords: Vec<String> = "keywords",
        pub labels: BTreeMap<String, String> = "labels",
        /// Links for users.
        pub links: Vec<Link> = "links",
        /// Who to ask.
        pub maintainers: Vec<Maintainer> = "maintainers",
        /// Such as `alpha`.
        pub maturity: String = "maturity",
        /// Lowest Kubernetes version.
        pub min_kube_version: String = "minKubeVersion",
        /// APIs that must be there.
        pub native_apis: Vec<GroupVersionKind> = "nativeAPIs",
        /// Who makes it.
        pub provider: Link = "provider",
    }
    /// The part of `olm.csv.metadata` that names an operator; cheap to read.
    pub struct CsvTitle("CSVMetadata", "property.CSVMetadata") {
        /// Name for users.
        pub display_name: String = "displayName",
        /// Who makes it.
        pub provider: Link = "provider",
    }
    pub struct Crds("CustomResourceDefinitions", "v1alpha1.CustomResourceDefinitions") {
        /// Provided.
        pub owned: Vec<Crd> = "owned",
        /// Needed.
        pub required: Vec<Crd> = "required",
    }
    /// One custom resource of a CSV.
    pub struct Crd("CRDDescription", "v1alpha1.CRDDescription") {
        /// `<plural>.<group>`.
        pub name: String = "name",
        /// API version.
        pub version: String = "version",
        pub kind: String = "kind",
        /// Name for users.
        pub display_name: String = "displayName",
        /// Text for users.
        pub description: String = "description",
        /// What it makes.
        pub resources: Vec<ApiResource> = "resources",
        /// For user interfaces.
        pub status_descriptors: Vec<Descriptor> = "statusDescriptors",
        /// For user interfaces.
        pub spec_descriptors: Vec<Descriptor> = "specDescriptors",
        /// For user interfaces.
        pub action_descriptors: Vec<Descriptor> = "actionDescriptors",
    }
    /// Aggregated APIs of a CSV.
    pub struct ApiServices("APIServiceDefinitions", "v1alpha1.APIServiceDefinitions") {
        /// Provided.
        pub owned: Vec<ApiService> = "owned",
        /// Needed.
        pub required: Vec<ApiService> = "required",
    }
    /// One aggregated API of a CSV.
    pub struct ApiService("APIServiceDescription", "v1alpha1.APIServiceDescription") {
        /// Plural name.
        pub name: String = "name",
        pub group: String = "group",
        pub version: String = "version",
        pub kind: String = "kind",
        /// Who serves it.
        pub deployment_name: String = "deploymentName",
        /// Where.
        pub container_port: i32 = "containerPort",
        /// Name for users.
        pub display_name: String = "displayName",
        /// Text for users.
        pub description: String = "description",
        /// What it makes.
        pub resources: Vec<ApiResource> = "resources",
        /// For user interfaces.
        pub status_descriptors: Vec<Descriptor> = "statusDescriptors",
        /// For user interfaces.
        pub spec_descriptors: Vec<Descriptor> = "specDescriptors",
        /// For user interfaces.
        pub action_descriptors: Vec<Descriptor> = "actionDescriptors",
    }
    /// A kind of object that a custom resource leads to.
    pub struct ApiResource("APIResourceReference", "v1alpha1.APIResourceReference") {
        /// Plural name, may be empty.
        pub name: String = "name",
        pub kind: String = "kind",
        pub version: String = "version",
    }
    /// A field of a custom resource, for user interfaces.
    pub struct Descriptor("SpecDescriptor", "v1alpha1.SpecDescriptor") {
        /// Path of the field.
        pub path: String = "path",
        /// Name for users.
        pub display_name: String = "displayName",
        /// Text for users.
        pub description: String = "description",
        /// How to show it.
        pub x_descriptors: Vec<String> = "x-descriptors",
        /// Any.
        pub value: Option<Json> = "value",
    }
    /// One way of installing.
    pub struct InstallMode("InstallMode", "v1alpha1.InstallMode") {
        /// Such as `AllNamespaces`.
        pub kind: String = "type",
        /// Whether it works.
        pub supported: bool = "supported",
    }
    /// A name and an address.
    pub struct Link("AppLink", "v1alpha1.AppLink") {
        pub name: String = "name",
        /// Address.
        pub url: String = "url",
    }
    /// A person.
    pub struct Maintainer("Maintainer", "v1alpha1.Maintainer") {
        pub name: String = "name",
        /// Mail address.
        pub email: String = "email",
    }
    /// An API.
    pub struct GroupVersionKind("GroupVersionKind", "v1.GroupVersionKind") {
        /// API group.
        pub group: String = "group",
        /// API version.
        pub version: String = "version",
        pub kind: String = "kind",
    }
}

/// A property value that can be decoded.
pub trait PropertyValue: sealed::Sealed {}

mod sealed {
    pub trait Sealed: Sized {
        fn decode(json: &crate::Json) -> Result<Self, String>;
    }
}

macro_rules! values {
    ($($name:ident $owner:literal;)*) => { $(
        impl sealed::Sealed for $name {
            fn decode(json: &Json) -> Result<Self, String> {
                json.read($owner)
            }
        }
        impl PropertyValue for $name {}
    )* };
}
values! {
    PackageProperty "Package";
    Gvk "GVK";
    GvkRequired "GVKRequired";
    ChannelProperty "Channel";
    PackageRequired "PackageRequired";
    BundleObject "BundleObject";
    CsvMetadata "CSVMetadata";
    CsvTitle "CSVMetadata";
}

impl Property {
    /// Decodes the value. `index` is the property's place in its list, for the message.
    ///
    /// # Errors
    /// `parse property[i] of type "T": …` (fbc §6).
    pub fn read<T: PropertyValue>(&self, index: usize) -> Result<T, String> {
        self.decode_value::<T>().map_err(|problem| {
            format!("parse property[{index}] of type {}: {problem}", olm_core::go::quote(&self.kind))
        })
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// The message of Go's decoder.
    pub(crate) fn decode_value<T: PropertyValue>(&self) -> Result<T, String> {
        match &self.value {
            Some(value) => T::decode(value),
            None => Err("unexpected end of JSON input".to_owned()),
        }
    }

    /// Decodes the value if the type is a known one; of the others only the presence of a value counts.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn check(&self, index: usize) -> Result<(), String> {
        match self.kind.as_str() {
            PACKAGE => self.read::<PackageProperty>(index).map(drop),
            GVK => self.read::<Gvk>(index).map(drop),
            GVK_REQUIRED => self.read::<GvkRequired>(index).map(drop),
            PACKAGE_REQUIRED => self.read::<PackageRequired>(index).map(drop),
            CHANNEL => self.read::<ChannelProperty>(index).map(drop),
            BUNDLE_OBJECT => self.read::<BundleObject>(index).map(drop),
            CSV_METADATA => self.read::<CsvMetadata>(index).map(drop),
            _ if self.value.is_some() => Ok(()),
            kind => Err(format!(
                "parse property[{index}] of type {}: unexpected end of JSON input",
                olm_core::go::quote(kind)
            )),
        }
    }
}
