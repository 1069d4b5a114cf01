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
/// A manifest, inline.
pub const BUNDLE_OBJECT: &str = "olm.bundle.object";
/// What a user interface shows.
pub const CSV_METADATA: &str = "olm.csv.metadata";
/// OpenShift: the last version it runs on.
pub const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";

go_struct! {
    /// One property.
    pub struct Property("Property", "property.Property") {
        /// The type, such as `olm.gvk`.
        pub kind: String = "type",
        /// The value; absent (not even `null`) is `None`.
        pub value: Option<Json> = "value",
    }
    /// Value of `olm.package`.
    pub struct PackageProperty("Package", "property.Package") {
        /// Name of the package.
        pub package_name: String = "packagename",
        /// Version, strict semver.
        pub version: String = "version",
        /// Release, if given (maybe empty).
        pub release: Option<String> = "release",
    }
    /// Value of `olm.gvk` and `olm.gvk.required`.
    pub struct Gvk("GVK", "property.GVK") {
        /// API group.
        pub group: String = "group",
        /// Kind.
        pub kind: String = "kind",
        /// API version.
        pub version: String = "version",
    }
    /// Value of `olm.package.required`.
    pub struct PackageRequired("PackageRequired", "property.PackageRequired") {
        /// Name of the package.
        pub package_name: String = "packagename",
        /// blang range.
        pub version_range: String = "versionrange",
    }
    /// Value of `olm.bundle.object`.
    pub struct BundleObject("BundleObject", "property.BundleObject") {
        /// A manifest, YAML or JSON.
        pub data: Base64 = "data",
    }
    /// The part of `olm.csv.metadata` that lists and look-ups need.
    pub struct CsvMetadata("CSVMetadata", "property.CSVMetadata") {
        /// Annotations of the CSV.
        pub annotations: BTreeMap<String, String> = "annotations",
        /// Custom resources.
        pub crd_descriptions: ApiDescriptions = "crddescriptions",
        /// Aggregated APIs.
        pub api_service_definitions: ApiDescriptions = "apiservicedefinitions",
        /// Name for users.
        pub display_name: String = "displayname",
        /// Markdown.
        pub description: String = "description",
        /// Words to search by.
        pub keywords: Vec<String> = "keywords",
        /// Lowest Kubernetes version.
        pub min_kube_version: String = "minkubeversion",
        /// Who makes it.
        pub provider: Provider = "provider",
    }
    /// Owned and required APIs of a CSV.
    pub struct ApiDescriptions("CustomResourceDefinitions", "v1alpha1.CustomResourceDefinitions") {
        /// Provided.
        pub owned: Vec<ApiDescription> = "owned",
        /// Needed.
        pub required: Vec<ApiDescription> = "required",
    }
    /// One API of a CSV.
    pub struct ApiDescription("CRDDescription", "v1alpha1.CRDDescription") {
        /// `<plural>.<group>` of a CRD.
        pub name: String = "name",
        /// Group, for aggregated APIs.
        pub group: String = "group",
        /// API version.
        pub version: String = "version",
        /// Kind.
        pub kind: String = "kind",
    }
    /// Who makes an operator.
    pub struct Provider("AppLink", "v1alpha1.AppLink") {
        /// Name.
        pub name: String = "name",
        /// Web page.
        pub url: String = "url",
    }
}

/// A property value that can be decoded.
pub trait PropertyValue: sealed::Sealed {}

mod sealed {
    pub trait Sealed: Sized {
        fn of(json: &crate::Json) -> Result<Self, String>;
    }
}

macro_rules! values {
    ($($name:ident $owner:literal;)*) => { $(
        impl sealed::Sealed for $name {
            fn of(json: &Json) -> Result<Self, String> {
                json.read($owner)
            }
        }
        impl PropertyValue for $name {}
    )* };
}
values! {
    PackageProperty "Package";
    Gvk "GVK";
    PackageRequired "PackageRequired";
    BundleObject "BundleObject";
    CsvMetadata "CSVMetadata";
}

impl Property {
    /// Decodes the value. `index` is the property's place in its list, for the message.
    ///
    /// # Errors
    /// `parse property[i] of type "T": …` (fbc §6).
    pub fn read<T: PropertyValue>(&self, index: usize) -> Result<T, String> {
        let decoded = match &self.value {
            Some(value) => T::of(value),
            None => Err("unexpected end of JSON input".to_owned()),
        };
        decoded.map_err(|problem| {
            format!("parse property[{index}] of type {}: {problem}", olm_core::go_quote(&self.kind))
        })
    }
}
