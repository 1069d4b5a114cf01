//! Properties of bundles (fbc §6): a type and any JSON value. Known types can be decoded, the rest stays raw.

use std::collections::BTreeMap;

use crate::decode::{Base64, GoStruct, Json, go_struct};

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
    pub struct PackageProperty("Package", "property.Package") {
        pub package_name: String = "packageName",
        /// Version, strict semver.
        pub version: String = "version",
        /// Release, if given (maybe empty).
        pub release: Option<String> = "release",
    }
    pub struct Gvk("GVK", "property.GVK") {
        pub group: String = "group",
        pub kind: String = "kind",
        pub version: String = "version",
    }
    pub struct GvkRequired("GVKRequired", "property.GVKRequired") {
        pub group: String = "group",
        pub kind: String = "kind",
        pub version: String = "version",
    }
    pub struct PackageRequired("PackageRequired", "property.PackageRequired") {
        pub package_name: String = "packageName",
        /// blang range.
        pub version_range: String = "versionRange",
    }
    struct ChannelProperty("Channel", "property.Channel") {
        channel_name: String = "channelName",
        priority: i64 = "priority",
    }
    pub struct BundleObject("BundleObject", "property.BundleObject") {
        /// A manifest, YAML or JSON.
        pub data: Base64 = "data",
    }
    /// Value of `olm.csv.metadata`.
    pub struct CsvMetadata("CSVMetadata", "property.CSVMetadata") {
        pub(crate) annotations: BTreeMap<String, String> = "annotations",
        pub(crate) api_service_definitions: ApiServices = "apiServiceDefinitions",
        pub crd_descriptions: Crds = "crdDescriptions",
        /// Markdown.
        pub description: String = "description",
        pub display_name: String = "displayName",
        /// Which namespaces it can watch.
        pub install_modes: Vec<InstallMode> = "installModes",
        pub keywords: Vec<String> = "keywords",
        pub(crate) labels: BTreeMap<String, String> = "labels",
        pub links: Vec<Link> = "links",
        pub maintainers: Vec<Maintainer> = "maintainers",
        /// Such as `stable` or `alpha`.
        pub maturity: String = "maturity",
        /// Lowest Kubernetes version.
        pub min_kube_version: String = "minKubeVersion",
        pub(crate) native_apis: Vec<GroupVersionKind> = "nativeAPIs",
        pub provider: Link = "provider",
    }
    /// The part of `olm.csv.metadata` that names and describes an operator; cheap to read.
    pub(crate) struct CsvTitle("CSVMetadata", "property.CSVMetadata") {
        pub(crate) description: String = "description",
        pub(crate) keywords: Vec<String> = "keywords",
        pub(crate) display_name: String = "displayName",
        pub(crate) provider: Link = "provider",
    }
    /// What a CSV, or the part of it that a catalog has, asks of the cluster; cheap to read.
    pub struct Environment("CSVMetadata", "property.CSVMetadata") {
        /// Lowest Kubernetes version, empty for any.
        pub min_kube_version: String = "minKubeVersion",
        /// APIs that the cluster has to serve.
        pub native_apis: Vec<GroupVersionKind> = "nativeAPIs",
    }
    /// A manifest, as far as it may be a CSV.
    pub(crate) struct InlineCsv("ClusterServiceVersion", "v1alpha1.ClusterServiceVersion") {
        pub(crate) kind: String = "kind",
        pub(crate) spec: Environment = "spec",
    }
    /// The kind of a manifest; cheap to read.
    pub(crate) struct ManifestKind("TypeMeta", "v1.TypeMeta") {
        pub(crate) kind: String = "kind",
    }
    pub struct GroupVersionKind("GroupVersionKind", "v1.GroupVersionKind") {
        pub group: String = "group",
        pub version: String = "version",
        pub kind: String = "kind",
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
        pub version: String = "version",
        pub kind: String = "kind",
        pub(crate) display_name: String = "displayName",
        pub(crate) description: String = "description",
        pub(crate) resources: Vec<ApiResource> = "resources",
        pub(crate) status_descriptors: Vec<Descriptor> = "statusDescriptors",
        pub(crate) spec_descriptors: Vec<Descriptor> = "specDescriptors",
        pub(crate) action_descriptors: Vec<Descriptor> = "actionDescriptors",
    }
    pub(crate) struct ApiServices("APIServiceDefinitions", "v1alpha1.APIServiceDefinitions") {
        pub(crate) owned: Vec<ApiService> = "owned",
        pub(crate) required: Vec<ApiService> = "required",
    }
    pub(crate) struct ApiService("APIServiceDescription", "v1alpha1.APIServiceDescription") {
        pub(crate) name: String = "name",
        pub(crate) group: String = "group",
        pub(crate) version: String = "version",
        pub(crate) kind: String = "kind",
        pub(crate) deployment_name: String = "deploymentName",
        pub(crate) container_port: i32 = "containerPort",
        pub(crate) display_name: String = "displayName",
        pub(crate) description: String = "description",
        pub(crate) resources: Vec<ApiResource> = "resources",
        pub(crate) status_descriptors: Vec<Descriptor> = "statusDescriptors",
        pub(crate) spec_descriptors: Vec<Descriptor> = "specDescriptors",
        pub(crate) action_descriptors: Vec<Descriptor> = "actionDescriptors",
    }
    pub(crate) struct ApiResource("APIResourceReference", "v1alpha1.APIResourceReference") {
        pub(crate) name: String = "name",
        pub(crate) kind: String = "kind",
        pub(crate) version: String = "version",
    }
    pub(crate) struct Descriptor("SpecDescriptor", "v1alpha1.SpecDescriptor") {
        pub(crate) path: String = "path",
        pub(crate) display_name: String = "displayName",
        pub(crate) description: String = "description",
        pub(crate) x_descriptors: Vec<String> = "x-descriptors",
        pub(crate) value: Option<Json> = "value",
    }
    /// One way of installing.
    pub struct InstallMode("InstallMode", "v1alpha1.InstallMode") {
        /// Such as `AllNamespaces`.
        pub kind: String = "type",
        pub supported: bool = "supported",
    }
    /// A named address; only the name of a provider is required.
    pub struct Link("AppLink", "v1alpha1.AppLink") {
        pub name: String = "name",
        pub url: String = "url",
    }
    /// A person or team to write to.
    pub struct Maintainer("Maintainer", "v1alpha1.Maintainer") {
        pub name: String = "name",
        pub email: String = "email",
    }
}

impl Property {
    /// Decodes the value. `index` is the property's place in its list, for the message.
    ///
    /// # Errors
    /// `parse property[i] of type "T": …` (fbc §6).
    pub fn read<T: GoStruct>(&self, index: usize) -> Result<T, String> {
        self.decode_value().map_err(|problem| {
            format!("parse property[{index}] of type {}: {problem}", olm_core::go::quote(&self.kind))
        })
    }

    /// The manifest in a property of type [`BUNDLE_OBJECT`].
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn manifest(&self, index: usize) -> Result<Vec<u8>, String> {
        let value = self.value.as_ref().map_or("", Json::as_str);
        let data = value.strip_prefix(r#"{"data":""#).and_then(|rest| rest.strip_suffix(r#""}"#));
        // what decodes has no quotes and no escapes, so it need not be read as JSON before
        match data.map(olm_yaml::decode_base64) {
            Some(Ok(manifest)) => Ok(manifest),
            Some(Err(_)) | None => Ok(self.read::<BundleObject>(index)?.data.0),
        }
    }

    /// As [`Self::read`], with the bare message of Go's decoder.
    pub(crate) fn decode_value<T: GoStruct>(&self) -> Result<T, String> {
        self.value.as_ref().ok_or_else(|| "unexpected end of JSON input".to_owned())?.read()
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
            // without a value every type gives the same error
            _ => self.read::<Gvk>(index).map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_manifest_is_what_its_json_has() {
        let (long, wrong) = ("QUJD".repeat(40), format!("{}!{}", "QUJD".repeat(30), "QUJD".repeat(9)));
        for value in [
            r#"{"data":"QUJD"}"#,
            r#"{"data":""}"#,
            r#"{"data":"QUI="}"#,
            r#"{"data":"QU\nJD"}"#,
            r#"{"data":"QUJD","more":"QUJD"}"#,
            r#"{"data":"QUJD","data":"QUI="}"#,
            r#"{ "Data" : "QUJD" }"#,
            r#"{"data":"QUJ"}"#,
            r#"{"data":5}"#,
            r#"{"data":null}"#,
            "{}",
            "[]",
            &format!(r#"{{"data":"{long}"}}"#),
            &format!(r#"{{"data":"{wrong}"}}"#),
        ] {
            let json = format!(r#"{{"type":"olm.bundle.object","value":{value}}}"#);
            let property: Property = crate::decode::read(json.as_bytes()).unwrap();
            let want = property.read::<BundleObject>(3).map(|object| object.data.0);
            assert_eq!(property.manifest(3), want, "{value}");
        }
        let none = Property { kind: BUNDLE_OBJECT.to_owned(), value: None };
        let want = "parse property[3] of type \"olm.bundle.object\": unexpected end of JSON input";
        assert_eq!(none.manifest(3).unwrap_err(), want);
    }
}
