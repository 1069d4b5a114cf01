//! Rules for what an object of any schema may have: a package, a name, properties. The format forbids more than `opm validate`
//! refuses (decision 26).

use olm_core::{Range, dns, go};

use crate::{
    Finding, Meta, Property, Subject,
    decode::{go_struct, read},
    property::{
        self, BUNDLE_OBJECT, CHANNEL as CHANNEL_PROPERTY, CONSTRAINT, CSV_METADATA, GVK, GVK_REQUIRED, Gvk,
        GvkRequired, MAX_OPENSHIFT_VERSION, PACKAGE_REQUIRED, PackageRequired,
    },
    schema::{BUNDLE, CHANNEL, DEPRECATIONS, PACKAGE},
};

const RESERVED: &str = "olm.";

/// Types of properties that OLM or `opm` gives a meaning, or that older catalogs have.
const PROPERTY_TYPES: [&str; 15] = [
    property::PACKAGE,
    GVK,
    GVK_REQUIRED,
    PACKAGE_REQUIRED,
    CONSTRAINT,
    CHANNEL_PROPERTY,
    BUNDLE_OBJECT,
    CSV_METADATA,
    MAX_OPENSHIFT_VERSION,
    "olm.deprecated",
    "olm.label",
    "olm.replaces",
    "olm.skips",
    "olm.skipRange",
    "olm.substitutesFor",
];

go_struct! {
    struct AnyObject("Meta", "declcfg.Meta") {
        package: Option<String> = "package",
    }
    struct AnyProperties("Meta", "declcfg.Meta") {
        properties: Vec<Property> = "properties",
    }
}

/// What is wrong with an object by itself, beside the rules of its schema.
pub(super) fn check(meta: &Meta) -> Vec<Finding> {
    let subject = || Subject::from_meta(meta);
    let mut findings = Vec::new();
    let known = [PACKAGE, CHANNEL, BUNDLE, DEPRECATIONS].contains(&meta.schema.as_str());
    if !known && meta.schema.starts_with(RESERVED) {
        let message = format!("schema {} is none of OLM's", go::quote(&meta.schema));
        findings.push(reserved(Finding::warning("reserved-schema", subject(), message)));
    }
    // these three have their own rules for it
    let checked = [CHANNEL, BUNDLE, DEPRECATIONS].contains(&meta.schema.as_str());
    let package = read::<AnyObject>(&meta.blob).ok().and_then(|object| object.package);
    if package.is_some_and(|package| package.is_empty()) && !checked {
        let finding = Finding::error("empty-package", subject(), "package is empty");
        findings.push(finding.with_hint("name the package, or leave the member out"));
    }
    if meta.schema == DEPRECATIONS && !meta.name.is_empty() {
        let message = format!("name {} has no meaning here", go::quote(&meta.name));
        let hint = "package names the package, and entries[].reference.name a channel or bundle";
        findings.push(Finding::warning("misplaced-name", subject(), message).with_hint(hint));
    }
    match read::<AnyProperties>(&meta.blob) {
        Ok(object) => {
            for (index, property) in object.properties.iter().enumerate() {
                properties(meta, index, property, &mut findings);
            }
        }
        // of the others the schema has reported it
        Err(problem) if !known => {
            let message = format!("properties are no list of properties: {problem}");
            findings.push(Finding::error("properties", subject(), message));
        }
        Err(_) => {}
    }
    findings
}

fn reserved(finding: Finding) -> Finding {
    finding.with_hint("the prefix \"olm.\" is reserved: choose another one, or check the spelling")
}

fn properties(meta: &Meta, index: usize, property: &Property, findings: &mut Vec<Finding>) {
    let subject = || Subject::from_meta(meta);
    let kind = property.kind.as_str();
    let mut report = |rule, what: &str| {
        findings.push(Finding::error(rule, subject(), format!("property[{index}] {what}")));
    };
    if kind.is_empty() {
        report("property", "has no type");
    }
    if property.value.as_ref().is_some_and(|value| value.as_str() == "null") {
        report("property", "has the value null");
        return;
    }
    let of_type = |what: String| format!("of type {}: {what}", go::quote(kind));
    // A11 is this rule for bundles
    if meta.schema != BUNDLE
        && let Err(problem) = property.check(index)
    {
        findings.push(Finding::error("property", subject(), problem));
        return;
    }
    match kind {
        GVK => {
            let Ok(api) = property.decode_value::<Gvk>() else { return };
            for problem in api_problems(&api.group, &api.version, &api.kind) {
                report("property-api", &of_type(problem));
            }
        }
        GVK_REQUIRED => {
            let Ok(api) = property.decode_value::<GvkRequired>() else { return };
            for problem in api_problems(&api.group, &api.version, &api.kind) {
                report("property-api", &of_type(problem));
            }
        }
        PACKAGE_REQUIRED => {
            let Ok(required) = property.decode_value::<PackageRequired>() else { return };
            if required.package_name.is_empty() {
                report("property-package", &of_type("packageName is empty".to_owned()));
            }
            let range = required.version_range.as_str();
            if range.is_empty() {
                let message = format!("property[{index}] {}", of_type("versionRange is empty".to_owned()));
                let finding = Finding::error("property-package", subject(), message);
                findings.push(
                    finding.with_hint("versionRange, not version, has the range; such as \">=1.0.0 <2.0.0\""),
                );
            } else if let Err(problem) = Range::blang(range) {
                let what = format!("invalid versionRange {}: {problem}", go::quote(range));
                report("property-package", &of_type(what));
            }
        }
        _ if kind.starts_with(RESERVED) && !PROPERTY_TYPES.contains(&kind) => {
            let message =
                format!("property[{index}] has the type {}, which is none of OLM's", go::quote(kind));
            findings.push(reserved(Finding::warning("reserved-property", subject(), message)));
        }
        _ => {}
    }
}

/// Why no API of a cluster can have this group, version and kind.
fn api_problems(group: &str, version: &str, kind: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut judge = |member: &str, value: &str, valid: bool, want: &str| {
        if value.is_empty() {
            problems.push(format!("{member} is empty"));
        } else if !valid {
            problems.push(format!("{member} {} is not {want}", go::quote(value)));
        }
    };
    judge("group", group, is_subdomain(group), "a DNS subdomain, such as example.com");
    judge("version", version, is_label(version), "a DNS label that starts with a letter, such as v1");
    let folded = kind.to_ascii_lowercase();
    judge("kind", kind, is_label(&folded), "made of at most 63 letters, digits and '-', such as Widget");
    problems
}

/// DNS-1123 subdomain.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && dns::is_subdomain(text)
}

/// DNS-1035 label.
fn is_label(text: &str) -> bool {
    text.len() <= 63 && dns::is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}
