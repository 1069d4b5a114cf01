//! The CEL rules of the schemas: expressions and messages in one place, so that tests and error texts can name them.
//!
//! Only text; the apiserver evaluates it. Regular expressions are RE2 *searches*, so each anchors itself.
//!
//! Rule: operator-controller §1.1 (XV1–XV15), §1.2; catalogd §3.3 (U1, P1, R1–R8, B1, B2); decision 3 for the version.

use kube::core::Rule;

/// One version in a range: up to three numbers, the last of which may be a wildcard, then prerelease and build. What follows a
/// wildcard is ignored by the range library, nonsense included, and so it is here.
macro_rules! version {
    () => {
        concat!(
            r"v?([0-9]+(\.[0-9]+){0,2}|([0-9]+\.){0,2}[xX*]|([0-9]+\.)?[xX*]\.[0-9xX*|]+|[xX*](\.[0-9xX*|]+){2})",
            r"(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
        )
    };
}

/// A version with an optional operator before it.
macro_rules! simple {
    () => {
        concat!(r"(=|!=|>|<|>=|=>|<=|=<|~|~>|\^)?\s*", version!())
    };
}

/// A simple comparator, or a hyphen range, behind which the library needs no separator.
macro_rules! comparator {
    () => {
        concat!("(", simple!(), "|", version!(), r"\s+-\s+", version!(), "(", simple!(), ")*)")
    };
}

/// A lower-case DNS label.
pub(crate) const DNS1123_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Lower-case DNS labels joined by dots.
pub(crate) const DNS1123_SUBDOMAIN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// What the reference takes for a version range. It has stray characters (`\*]`, `|` in a class) and is kept byte for byte,
/// because everything that it accepts must stay accepted.
pub(crate) const VERSION_RANGE_OF_REFERENCE: &str = concat!(
    r"^(\s*(=||!=|>|<|>=|=>|<=|=<|~|~>|\^)\s*(v?(0|[1-9]\d*|[x|X|\*])(\.(0|[1-9]\d*|x|X|\*]))?(\.(0|[1-9]\d*|x|X|\*))?",
    r"(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?)\s*)",
    r"((?:\s+|,\s*|\s*\|\|\s*)(=||!=|>|<|>=|=>|<=|=<|~|~>|\^)\s*(v?(0|[1-9]\d*|x|X|\*])(\.(0|[1-9]\d*|x|X|\*))?(\.(0|[1-9]\d*|x|X|\*]))?",
    r"(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?)\s*)*$",
);
/// What the range library itself parses, so that hyphen ranges and wildcards in any place work too (decision 3).
pub(crate) const VERSION_RANGE: &str =
    concat!(r"^\s*", comparator!(), r"((\s*\|\|\s*|\s*,\s*|\s+)", comparator!(), r")*\s*$");

/// A version as `status.install.bundle.version` may hold it. Not anchored at the end, as in the reference.
pub const BUNDLE_VERSION: &str = r"^([0-9]+)(\.[0-9]+)?(\.[0-9]+)?(-([-0-9A-Za-z]+(\.[-0-9A-Za-z]+)*))?(\+([-0-9A-Za-z]+(-\.[-0-9A-Za-z]+)*))?";
/// A bundle release: empty, or dot-separated identifiers.
pub const BUNDLE_RELEASE: &str =
    r"^$|^(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*$";

const BAD_SUBDOMAIN: &str = "must be a valid DNS1123 subdomain. It must contain only lowercase alphanumeric characters, hyphens (-) or periods (.), start and end with an alphanumeric character, and be no longer than 253 characters";

fn rule(expression: impl Into<String>, message: &str) -> Rule {
    Rule::new(expression).message(message)
}

/// `self.matches(<pattern>)`; a JSON string is a CEL string too.
fn matches(pattern: &str) -> String {
    format!("self.matches({})", serde_json::Value::from(pattern))
}

pub(crate) fn unchanged(message: &str) -> Rule {
    rule("self == oldSelf", message)
}

/// The list `field` may be filled, and then not be changed.
pub(crate) fn filled_once(field: &str) -> Rule {
    rule("self == oldSelf || oldSelf.size() == 0", &format!("{field} is immutable"))
}

pub(crate) fn subdomain(field: &str) -> Rule {
    rule(matches(DNS1123_SUBDOMAIN), &format!("{field} {BAD_SUBDOMAIN}"))
}

/// `<parent>` must have its only `<member>`.
pub(crate) fn only_member(parent: &str, member: &str) -> Rule {
    let message = format!("at least one of [{member}] are required when {parent} is specified");
    rule(format!("has(self.{member})"), &message)
}

/// `<member>` must be there exactly when `<tag>` is `<value>`.
pub(crate) fn member(tag: &str, value: &str, member: &str) -> Rule {
    rule(
        format!("has(self.{tag}) && self.{tag} == '{value}' ? has(self.{member}) : !has(self.{member})"),
        &format!("{member} is required when {tag} is {value}, and forbidden otherwise"),
    )
}

// ClusterExtension

pub(crate) fn namespace_label() -> Rule {
    rule(matches(DNS1123_LABEL), "namespace must be a valid DNS1123 label")
}

pub(crate) fn version_range() -> Rule {
    rule(
        format!("{} || {}", matches(VERSION_RANGE_OF_REFERENCE), matches(VERSION_RANGE)),
        "invalid version expression",
    )
}

/// The rule of one item of `channels`, as JSON for a hand-written item schema.
pub(crate) fn channel_subdomain() -> Rule {
    rule(matches(DNS1123_SUBDOMAIN), "channels entries must be valid DNS1123 subdomains")
}

pub(crate) fn bundle_version() -> Rule {
    rule(matches(BUNDLE_VERSION), "version must be well-formed semver")
}

pub(crate) fn bundle_release() -> Rule {
    rule(
        matches(BUNDLE_RELEASE),
        "release must be empty or consist of dot-separated identifiers (numeric without leading zeros, or alphanumeric)",
    )
}

// ClusterObjectSet

pub(crate) fn lifecycle_one_way() -> Rule {
    rule("oldSelf == 'Active' || oldSelf == 'Archived' && oldSelf == self", "cannot un-archive")
}

pub(crate) fn phase_name() -> Rule {
    rule(
        matches(DNS1123_LABEL),
        "the value must consist of only lowercase alphanumeric characters and hyphens, and must start and end with an alphanumeric character.",
    )
}

pub(crate) fn object_or_ref() -> Rule {
    rule(
        "[has(self.object),has(self.ref)].filter(x,x==true).size() == 1",
        "exactly one of the fields in [object ref] must be set",
    )
}

pub(crate) fn one_selector() -> Rule {
    rule(
        "(has(self.matchExpressions) && !has(self.matchLabels)) || (!has(self.matchExpressions) && has(self.matchLabels))",
        "exactly one of matchLabels or matchExpressions must be set",
    )
}

pub(crate) fn field_path() -> Rule {
    rule(
        matches(r"^[a-zA-Z0-9]+(?:\.[a-zA-Z0-9]+)*$"),
        r#"must contain a valid field path. valid fields contain upper or lower-case alphanumeric characters separated by the "." character."#,
    )
}

pub(crate) fn phase_digest() -> Rule {
    rule(matches("^[a-z0-9]+:[a-f0-9]+$"), "digest must be in the format '<algorithm>:<hex>'")
}

// ClusterCatalog

pub(crate) fn catalog_source_member() -> Rule {
    rule(
        "has(self.type) && self.type == 'Image' ? has(self.image) : !has(self.image)",
        "image is required when source type is Image, and forbidden otherwise",
    )
}

pub(crate) fn poll_needs_tag() -> Rule {
    rule(
        r#"self.ref.find('(@.*:)') != "" ? !has(self.pollIntervalMinutes) : true"#,
        "cannot specify pollIntervalMinutes while using digest-based image",
    )
}

pub(crate) fn ref_domain() -> Rule {
    rule(
        r"self.matches('^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])((\\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+)?(:[0-9]+)?\\b')",
        r#"must start with a valid domain. valid domains must be alphanumeric characters (lowercase and uppercase) separated by the "." character."#,
    )
}

pub(crate) fn ref_name() -> Rule {
    rule(
        r#"self.find('(\\/[a-z0-9]+((([._]|__|[-]*)[a-z0-9]+)+)?((\\/[a-z0-9]+((([._]|__|[-]*)[a-z0-9]+)+)?)+)?)') != """#,
        r#"a valid name is required. valid names must contain lowercase alphanumeric characters separated only by the ".", "_", "__", "-" characters."#,
    )
}

pub(crate) fn ref_tag_or_digest() -> Rule {
    rule(r#"self.find('(@.*:)') != "" || self.find(':.*$') != """#, "must end with a digest or a tag")
}

pub(crate) fn ref_digest() -> Rule {
    rule(r#"self.find('(@.*:)') != """#, "must end with a digest")
}

pub(crate) fn ref_tag_length() -> Rule {
    rule(
        r#"self.find('(@.*:)') == "" ? (self.find(':.*$') != "" ? self.find(':.*$').substring(1).size() <= 127 : true) : true"#,
        "tag is invalid. the tag must not be more than 127 characters",
    )
}

pub(crate) fn ref_tag_characters() -> Rule {
    rule(
        r#"self.find('(@.*:)') == "" ? (self.find(':.*$') != "" ? self.find(':.*$').matches(':[\\w][\\w.-]*$') : true) : true"#,
        r#"tag is invalid. valid tags must begin with a word character (alphanumeric + "_") followed by word characters or ".", and "-" characters"#,
    )
}

pub(crate) fn ref_digest_algorithm() -> Rule {
    rule(
        r#"self.find('(@.*:)') != "" ? self.find('(@.*:)').matches('(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*[:])') : true"#,
        r#"digest algorithm is not valid. valid algorithms must start with an uppercase or lowercase alpha character followed by alphanumeric characters and may contain the "-", "_", "+", and "." characters."#,
    )
}

pub(crate) fn ref_digest_length() -> Rule {
    rule(
        r#"self.find('(@.*:)') != "" ? self.find(':.*$').substring(1).size() >= 32 : true"#,
        "digest is not valid. the encoded string must be at least 32 characters",
    )
}

pub(crate) fn ref_digest_hex() -> Rule {
    rule(
        r#"self.find('(@.*:)') != "" ? self.find(':.*$').matches(':[0-9A-Fa-f]*$') : true"#,
        "digest is not valid. the encoded string must only contain hex characters (A-F, a-f, 0-9)",
    )
}

pub(crate) fn base_is_url() -> Rule {
    rule("isURL(self)", "must be a valid URL")
}

pub(crate) fn base_scheme() -> Rule {
    rule(
        r#"isURL(self) ? (url(self).getScheme() == "http" || url(self).getScheme() == "https") : true"#,
        "scheme must be either http or https",
    )
}
