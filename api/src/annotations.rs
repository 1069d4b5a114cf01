//! Annotation keys that are part of the wire contract, and the values that they may have.
//!
//! [`ANNOTATIONS`] has a row for each: docs/reference/annotations.md is made from it, and the admission policy
//! `olm-annotation-values` is checked against it. Rule: operator-controller §1.4; what the reference does not have are
//! additions (decisions 8, 11, 31, 32, 36, 46, 47 and 51).

/// On revisions and managed objects: the package of the bundle.
pub const PACKAGE_NAME: &str = "olm.operatorframework.io/package-name";
/// On revisions: the name of the bundle.
pub const BUNDLE_NAME: &str = "olm.operatorframework.io/bundle-name";
/// On revisions and managed objects: the version of the bundle.
pub const BUNDLE_VERSION: &str = "olm.operatorframework.io/bundle-version";
/// On revisions: the release of the bundle; an empty value means that the bundle has none, absence that it is unknown.
pub const BUNDLE_RELEASE: &str = "olm.operatorframework.io/bundle-release";
/// On revisions: the bundle's image reference as the catalog gives it.
pub const BUNDLE_REFERENCE: &str = "olm.operatorframework.io/bundle-reference";
/// On revisions: the bundle's properties as a JSON array.
pub const PROPERTIES: &str = "olm.properties";
/// On managed objects: the number of the revision that last applied them.
pub const REVISION: &str = "olm.operatorframework.io/revision";
/// On generated CRDs: which variant of the API they hold.
pub(crate) const GENERATOR: &str = "olm.operatorframework.io/generator";
/// On objects of a Helm release of the reference: the release.
pub const HELM_RELEASE_NAME: &str = "meta.helm.sh/release-name";
/// On objects of a Helm release of the reference: the release's namespace.
pub(crate) const HELM_RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// On a ClusterExtension or one managed object's manifest: value `keep` leaves objects in place on uninstall (decision 11).
///
/// On object-data Secrets: the policy of the ClusterExtension. It counts when the revision has no ClusterExtension any more.
pub const DELETION_POLICY: &str = "olm.operatorframework.io/deletion-policy";
/// Value of [`DELETION_POLICY`].
pub const DELETION_POLICY_KEEP: &str = "keep";

/// Whether these annotations ask for [`DELETION_POLICY_KEEP`].
#[must_use]
pub fn keeps_objects(annotations: &std::collections::BTreeMap<String, String>) -> bool {
    annotations.get(DELETION_POLICY).map(String::as_str) == Some(DELETION_POLICY_KEEP)
}
/// On a ClusterExtension: value `true` refuses an uninstall that would delete custom resources (decision 11).
pub const PROTECT_CUSTOM_RESOURCES: &str = "olm.operatorframework.io/protect-custom-resources";
/// On a ClusterExtension or ClusterCatalog: any new value asks for an immediate retry (decision 31).
pub const REQUESTED_AT: &str = "olm.operatorframework.io/requested-at";
/// On a ClusterExtension: value `true` suspends it; nothing is resolved, applied or corrected until it goes away.
pub const PAUSED: &str = "olm.operatorframework.io/paused";
/// On a ClusterExtension: whether the next major version is installed without being asked for, `Hold` or `Automatic`. It wins over
/// the flag `--major-updates` (decision 32).
pub const MAJOR_UPDATES: &str = "olm.operatorframework.io/major-updates";
/// On a ClusterExtension: whether roles for users of the provided APIs are made, `None` or `Aggregate`. It wins over the flag
/// `--user-roles` (decision 47).
pub const USER_ROLES: &str = "olm.operatorframework.io/user-roles";
/// On a ClusterExtension: what a missing dependency leads to, `Enforce`, `Warn`, `Ignore` or `Refuse`. It wins over the flag
/// `--dependency-check` (decision 25).
pub const DEPENDENCY_CHECK: &str = "olm.operatorframework.io/dependency-check";
/// On a ClusterExtension: accepts what CRD upgrade safety finds in one bundle, `<bundle name>@<digest of its image>`, optionally with
/// the CRDs or checks to which it is limited: ` <CRD>[/<check>] …`. Used up once the newest revision has installed that bundle (decision 12).
pub const ACCEPT_CRD_CHANGE: &str = "olm.operatorframework.io/accept-crd-change";
/// On a ClusterCatalog: a template of the image, by the version of Kubernetes; it is used in place of the spec's while it resolves. The name is
/// that of OLM Classic.
pub const CATALOG_IMAGE_TEMPLATE: &str = "olm.catalogImageTemplate";
/// On a ClusterCatalog: value `true` makes a Service of its name, an address of the gRPC registry (decision 51).
pub const GRPC_SERVICE: &str = "olm.operatorframework.io/grpc-service";
/// On object-data Secrets: the account that the ClusterExtension names, as `namespace/name`. It counts when the revision has no
/// ClusterExtension any more.
pub const SERVICE_ACCOUNT: &str = "olm.operatorframework.io/service-account";
/// On object-data Secrets: a digest of what the objects were rendered from, so that equal inputs are recognised after a restart.
pub const RENDER_INPUTS: &str = "olm.operatorframework.io/render-inputs";

/// The component or person that sets an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    /// You.
    User,
    /// The author of a bundle.
    Author,
    /// A controller; changes of others have no effect or are undone.
    Controller,
    /// The manifests that are shipped.
    Manifests,
    /// Helm, in clusters of the reference.
    Helm,
}

impl SetBy {
    /// As a person reads it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "you",
            Self::Author => "the bundle's author",
            Self::Controller => "the controller",
            Self::Manifests => "the shipped manifests",
            Self::Helm => "Helm",
        }
    }
}

/// What an annotation may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// One of these; the shipped admission policy rejects all others on ClusterExtensions.
    OneOf(&'static [&'static str]),
    /// Text of this meaning.
    Text(&'static str),
}

/// One annotation on one kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnotationSpec {
    /// One of the constants above.
    pub key: &'static str,
    /// The objects that have it.
    pub on: &'static str,
    /// Who sets it.
    pub set_by: SetBy,
    /// What it may hold.
    pub values: Values,
    /// The effect, in Markdown.
    pub meaning: &'static str,
}

/// [`AnnotationSpec::on`] of what the admission policy checks.
pub const ON_EXTENSION: &str = "ClusterExtension";
const ON_CATALOG: &str = "ClusterCatalog";
const ON_EITHER: &str = "ClusterExtension, ClusterCatalog";
const ON_REVISION: &str = "ClusterObjectSet";
const ON_REVISION_AND_OBJECTS: &str = "ClusterObjectSet, objects of the bundle";
const ON_OBJECTS: &str = "objects of the bundle";
const ON_SECRETS: &str = "content Secrets";
const BOOL: Values = Values::OneOf(&["true", "false"]);

/// Every annotation.
pub const ANNOTATIONS: &[AnnotationSpec] = &[
    AnnotationSpec {
        key: PAUSED,
        on: ON_EXTENSION,
        set_by: SetBy::User,
        values: BOOL,
        meaning: "`true` suspends the extension: nothing is resolved, applied or corrected. `false` is the same as none.",
    },
    AnnotationSpec {
        key: REQUESTED_AT,
        on: ON_EITHER,
        set_by: SetBy::User,
        values: Values::Text("any text, usually a time"),
        meaning: "A new value asks for an immediate retry, and lifts a quarantine.",
    },
    AnnotationSpec {
        key: MAJOR_UPDATES,
        on: ON_EXTENSION,
        set_by: SetBy::User,
        values: Values::OneOf(&["Hold", "Automatic"]),
        meaning: "Whether the next major version is installed while `spec.source.catalog.version` is not set. It wins over the flag \
                  `--major-updates`.",
    },
    AnnotationSpec {
        key: USER_ROLES,
        on: ON_EXTENSION,
        set_by: SetBy::User,
        values: Values::OneOf(&["None", "Aggregate"]),
        meaning: "Whether ClusterRoles for users of the provided APIs are made, aggregated to `admin`, `edit` and `view`. It wins over the \
                  flag `--user-roles`.",
    },
    AnnotationSpec {
        key: DEPENDENCY_CHECK,
        on: ON_EXTENSION,
        set_by: SetBy::User,
        values: Values::OneOf(&["Enforce", "Warn", "Ignore", "Refuse"]),
        meaning: "What a missing dependency of the bundle leads to. It wins over the flag `--dependency-check`.",
    },
    AnnotationSpec {
        key: ACCEPT_CRD_CHANGE,
        on: ON_EXTENSION,
        set_by: SetBy::User,
        values: Values::Text(
            "`<bundle name>@<digest of its image>`, optionally followed by ` <CRD>[/<check>]` once or more",
        ),
        meaning: "Accepts what CRD upgrade safety finds in this bundle, until it is installed.",
    },
    AnnotationSpec {
        key: DELETION_POLICY,
        on: ON_EXTENSION,
        set_by: SetBy::User,
        values: Values::OneOf(&[DELETION_POLICY_KEEP]),
        meaning: "`keep` leaves the objects of the bundle in place when the extension is deleted.",
    },
    AnnotationSpec {
        key: PROTECT_CUSTOM_RESOURCES,
        on: ON_EXTENSION,
        set_by: SetBy::User,
        values: BOOL,
        meaning: "`true` holds the uninstall of the extension as long as it would delete custom resources. `false` is the same as none.",
    },
    AnnotationSpec {
        key: CATALOG_IMAGE_TEMPLATE,
        on: ON_CATALOG,
        set_by: SetBy::User,
        values: Values::Text(
            "an image reference with `{kube_major_version}`, `{kube_minor_version}` or `{kube_patch_version}`",
        ),
        meaning: "The image to use in place of the spec's while the template resolves. The name is that of OLM Classic.",
    },
    AnnotationSpec {
        key: GRPC_SERVICE,
        on: ON_CATALOG,
        set_by: SetBy::User,
        values: BOOL,
        meaning: "`true` makes a Service of the catalog's name, through which clients of OLM Classic read it over gRPC, if catalogd's flag \
                  `--grpc-bind-address` is set. `false` is the same as none.",
    },
    AnnotationSpec {
        key: DELETION_POLICY,
        on: ON_OBJECTS,
        set_by: SetBy::Author,
        values: Values::OneOf(&[DELETION_POLICY_KEEP]),
        meaning: "`keep` leaves this object in place when the extension is deleted. Checked by no policy; another value has no effect.",
    },
    AnnotationSpec {
        key: PACKAGE_NAME,
        on: ON_REVISION_AND_OBJECTS,
        set_by: SetBy::Controller,
        values: Values::Text("a name"),
        meaning: "The package of the bundle.",
    },
    AnnotationSpec {
        key: BUNDLE_NAME,
        on: ON_REVISION,
        set_by: SetBy::Controller,
        values: Values::Text("a name"),
        meaning: "The name of the bundle.",
    },
    AnnotationSpec {
        key: BUNDLE_VERSION,
        on: ON_REVISION_AND_OBJECTS,
        set_by: SetBy::Controller,
        values: Values::Text("a semantic version"),
        meaning: "The version of the bundle.",
    },
    AnnotationSpec {
        key: BUNDLE_RELEASE,
        on: ON_REVISION,
        set_by: SetBy::Controller,
        values: Values::Text("a release, or empty"),
        meaning: "The release of the bundle. Empty: the bundle has none. Absent: unknown.",
    },
    AnnotationSpec {
        key: BUNDLE_REFERENCE,
        on: ON_REVISION,
        set_by: SetBy::Controller,
        values: Values::Text("an image reference"),
        meaning: "The bundle's image as the catalog gives it.",
    },
    AnnotationSpec {
        key: PROPERTIES,
        on: ON_REVISION,
        set_by: SetBy::Controller,
        values: Values::Text("a JSON array"),
        meaning: "The bundle's properties.",
    },
    AnnotationSpec {
        key: REVISION,
        on: ON_OBJECTS,
        set_by: SetBy::Controller,
        values: Values::Text("a number"),
        meaning: "The revision that last applied the object.",
    },
    AnnotationSpec {
        key: DELETION_POLICY,
        on: ON_SECRETS,
        set_by: SetBy::Controller,
        values: Values::OneOf(&[DELETION_POLICY_KEEP]),
        meaning: "The policy of the ClusterExtension. It counts when the revision has no ClusterExtension any more.",
    },
    AnnotationSpec {
        key: SERVICE_ACCOUNT,
        on: ON_SECRETS,
        set_by: SetBy::Controller,
        values: Values::Text("`namespace/name`"),
        meaning: "The account that the ClusterExtension names. It counts when the revision has no ClusterExtension any more.",
    },
    AnnotationSpec {
        key: RENDER_INPUTS,
        on: ON_SECRETS,
        set_by: SetBy::Controller,
        values: Values::Text("a digest"),
        meaning: "What the objects were rendered from, so that a restart renders nothing again.",
    },
    AnnotationSpec {
        key: GENERATOR,
        on: "CustomResourceDefinitions of OLM",
        set_by: SetBy::Manifests,
        values: Values::OneOf(&["standard", "experimental"]),
        meaning: "The variant of the API that the CRD holds.",
    },
    AnnotationSpec {
        key: HELM_RELEASE_NAME,
        on: ON_OBJECTS,
        set_by: SetBy::Helm,
        values: Values::Text("a name"),
        meaning: "The Helm release that the reference installed the object with; the first revision after a migration adopts it.",
    },
    AnnotationSpec {
        key: HELM_RELEASE_NAMESPACE,
        on: ON_OBJECTS,
        set_by: SetBy::Helm,
        values: Values::Text("a namespace"),
        meaning: "The namespace of that release.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Every constant of this file that is a key has a row, and every row a key.
    #[test]
    fn annotations_table_has_every_key() {
        let source = include_str!("annotations.rs");
        let mut keys: Vec<&str> = source
            .lines()
            .filter_map(|line| {
                let constant = line.strip_prefix("pub const ").or(line.strip_prefix("pub(crate) const "))?;
                constant.split_once(": &str = \"")?.1.strip_suffix("\";")
            })
            .filter(|value| value.contains('.'))
            .collect();
        keys.sort_unstable();
        let mut rows: Vec<&str> = ANNOTATIONS.iter().map(|row| row.key).collect();
        rows.sort_unstable();
        rows.dedup();
        assert!(keys.len() > 15, "the constants are found: {keys:?}");
        assert_eq!(rows, keys);
    }
}
