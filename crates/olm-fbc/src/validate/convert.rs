//! Phase A (fbc §8.1): puts the parts of each package together and reports what does not fit.

use std::collections::{BTreeMap, BTreeSet};

use olm_core::{Release, Version, dns, go};

use super::{image, load::Loaded};
use crate::{
    Bundle, ChannelEntry, Finding, Reference, Subject,
    package::nameless_channel,
    property,
    schema::{BUNDLE, CHANNEL, DEPRECATIONS, PACKAGE},
};

/// A catalog as the graph rules see it.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) packages: BTreeMap<String, PackageModel>,
}

#[derive(Debug, Default)]
pub(super) struct PackageModel {
    pub(super) default_channel: String,
    pub(super) channels: BTreeMap<String, ChannelModel>,
    pub(super) bundles: BTreeMap<String, BundleModel>,
    /// Whether the package is deprecated without a message.
    pub(super) silent_deprecation: bool,
}

#[derive(Debug, Default)]
pub(super) struct ChannelModel {
    pub(super) entries: Vec<ChannelEntry>,
    pub(super) silent_deprecation: bool,
    /// An object of this name did not decode; nothing is known about the channel.
    pub(super) unknown: bool,
}

#[derive(Debug, Default)]
pub(super) struct BundleModel {
    /// Version and release as one text, if they parse.
    pub(super) version: Option<String>,
    pub(super) has_release: bool,
    pub(super) has_build: bool,
    /// `<package>-v<version>-<release>`.
    pub(super) normal_name: String,
    pub(super) has_image: bool,
    pub(super) silent_deprecation: bool,
}

fn subject(package: &str, schema: &str, name: &str) -> Subject {
    Subject { package: package.to_owned(), schema: schema.to_owned(), name: name.to_owned() }
}

pub(super) fn convert(loaded: &Loaded, findings: &mut Vec<Finding>) -> Model {
    let mut model = Model::default();
    packages(loaded, &mut model, findings);
    channels(loaded, &mut model, findings);
    bundles(loaded, &mut model, findings);
    entries_without_bundle(loaded, &model, findings);
    for (name, package) in &mut model.packages {
        let default_channel = package.default_channel.clone();
        if !default_channel.is_empty() {
            let undecoded =
                loaded.undecoded.contains(&(CHANNEL.to_owned(), name.clone(), default_channel.clone()));
            let default = || ChannelModel { unknown: undecoded, ..ChannelModel::default() };
            package.channels.entry(default_channel).or_insert_with(default);
        }
    }
    deprecations(loaded, &mut model, findings);
    model
}

fn packages(loaded: &Loaded, model: &mut Model, findings: &mut Vec<Finding>) {
    for package in &loaded.packages {
        let name = &package.name;
        let about = subject("", PACKAGE, name);
        let position = || package.position.clone();
        if name.is_empty() {
            findings.push(Finding::error("A1", about, "config contains package with no name").at(position()));
            continue;
        }
        if model.packages.contains_key(name) {
            findings.push(
                Finding::error("A2", about, format!("duplicate package {}", go::quote(name))).at(position()),
            );
            continue;
        }
        let reasons = label_problems(name);
        if !reasons.is_empty() {
            let message = format!("invalid package name {}: [{}]", go::quote(name), reasons.join(" "));
            findings.push(Finding::error("A3", about, message).at(position()));
        }
        let default_channel = package.default_channel.clone();
        model.packages.insert(name.clone(), PackageModel { default_channel, ..PackageModel::default() });
    }
}

/// Why a text is no DNS-1123 label.
fn label_problems(name: &str) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    if name.len() > 63 {
        reasons.push("must be no more than 63 characters");
    }
    if !dns::is_label(name) {
        reasons.push(if dns::is_subdomain(name) {
            "must not contain dots"
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        });
    }
    reasons
}

fn channels(loaded: &Loaded, model: &mut Model, findings: &mut Vec<Finding>) {
    for (channel, meta) in &loaded.channels {
        let (owner, name) = (&channel.package, &channel.name);
        let about = subject(owner, CHANNEL, name);
        let position = || channel.position.clone();
        let (p, c) = (go::quote(owner), go::quote(name));
        let Some(package) = model.packages.get_mut(owner) else {
            if !known_but_undecoded(loaded, owner) {
                findings.push(
                    Finding::error("A4", about, format!("unknown package {p} for channel {c}"))
                        .at(position()),
                );
            }
            continue;
        };
        if name.is_empty() {
            findings.push(nameless_channel(meta).at(position()));
            continue;
        }
        if package.channels.contains_key(name) {
            findings.push(
                Finding::error("A6", about, format!("package {p} has duplicate channel {c}")).at(position()),
            );
            continue;
        }
        let mut seen = BTreeSet::new();
        let mut entries = Vec::new();
        for entry in &channel.entries {
            if seen.insert(&entry.name) {
                entries.push(entry.clone());
            } else {
                let e = go::quote(&entry.name);
                let message = format!("invalid package {p}, channel {c}: duplicate entry {e}");
                findings.push(Finding::error("A7", about.clone(), message).at(position()));
            }
        }
        package.channels.insert(name.clone(), ChannelModel { entries, ..ChannelModel::default() });
    }
}

/// Whether the package object itself did not decode.
fn known_but_undecoded(loaded: &Loaded, package: &str) -> bool {
    loaded.undecoded.contains(&(PACKAGE.to_owned(), String::new(), package.to_owned()))
}

fn bundles(loaded: &Loaded, model: &mut Model, findings: &mut Vec<Finding>) {
    for bundle in &loaded.bundles {
        let (owner, name) = (&bundle.package, &bundle.name);
        let about = subject(owner, BUNDLE, name);
        let position = || bundle.position.clone();
        let (p, b) = (go::quote(owner), go::quote(name));
        if owner.is_empty() {
            findings.push(
                Finding::error("A8", about, format!("package name must be set for bundle {b}"))
                    .at(position()),
            );
            continue;
        }
        let Some(package) = model.packages.get_mut(owner) else {
            if !known_but_undecoded(loaded, owner) {
                findings.push(
                    Finding::error("A9", about, format!("unknown package {p} for bundle {b}")).at(position()),
                );
            }
            continue;
        };
        if package.bundles.contains_key(name) {
            findings.push(
                Finding::error("A10", about, format!("package {p} has duplicate bundle {b}")).at(position()),
            );
            continue;
        }
        let mut report = |rule, message: String| {
            findings.push(Finding::error(rule, about.clone(), message).at(position()))
        };
        let mut found = BundleModel::default();
        properties(bundle, &mut found, &mut report);
        let mut check_image = |rule, place: &str, text: &str| {
            if let Some(problem) = image::problem(text).filter(|_| !text.is_empty()) {
                let image = go::quote(text);
                let why = format!("invalid image pull spec {image}: {problem}");
                report(rule, format!("package {p} bundle {b} {place}: {why}"));
            }
        };
        check_image("A14", "image", &bundle.image);
        for (index, related) in bundle.related_images.iter().enumerate() {
            check_image("A15", &format!("relatedImages[{index}].image"), &related.image);
        }
        let listed =
            package.channels.values().flat_map(|channel| &channel.entries).any(|entry| entry.name == *name);
        let undecoded_channel =
            loaded.undecoded.iter().any(|(schema, package, _)| schema == CHANNEL && package == owner);
        if !listed && !undecoded_channel {
            report("A18", format!("package {p}, bundle {b} not found in any channel entries"));
        }
        found.has_image =
            !bundle.image.is_empty() || bundle.properties_of(property::BUNDLE_OBJECT).next().is_some();
        package.bundles.insert(name.clone(), found);
    }
}

/// A11–A13, A16, A17.
fn properties(bundle: &Bundle, found: &mut BundleModel, report: &mut impl FnMut(&'static str, String)) {
    let (p, b) = (go::quote(&bundle.package), go::quote(&bundle.name));
    let mut broken = false;
    for (index, property) in bundle.properties.iter().enumerate() {
        if let Err(problem) = property.check(index) {
            report("A11", format!("parse properties for bundle {b}: {problem}"));
            broken |= property.kind == property::PACKAGE;
        }
    }
    let count = bundle.properties_of(property::PACKAGE).count();
    if count != 1 {
        let rule = "must have exactly 1 \"olm.package\" property";
        report("A12", format!("package {p} bundle {b} {rule}, found {count}"));
        return;
    }
    if broken {
        return;
    }
    let Ok(package) = bundle.package_property() else { return };
    if package.package_name != bundle.package {
        let q = go::quote(&package.package_name);
        report("A13", format!("package {p} does not match \"olm.package\" property {q}"));
    }
    let version = package.version.parse::<Version>().map_err(|problem| {
        let text = go::quote(&package.version);
        report("A16", format!("error parsing bundle {b} version {text}: {problem}"));
    });
    let release = package.release.filter(|text| !text.is_empty()).and_then(|text| {
        let release = text.parse::<Release>().map_err(|problem| {
            let text = go::quote(&text);
            report("A17", format!("error parsing bundle {b} release version {text}: {problem}"));
        });
        release.ok()
    });
    if let Ok(version) = version {
        found.has_build = !version.build().is_empty();
        found.has_release = release.is_some();
        let whole = match &release {
            Some(release) => format!("{version}-{release}"),
            None => version.to_string(),
        };
        found.normal_name = format!("{}-v{whole}", bundle.package);
        found.version = Some(whole);
    }
}

/// A19, for every channel (the reference looks at the last one only).
fn entries_without_bundle(loaded: &Loaded, model: &Model, findings: &mut Vec<Finding>) {
    for (name, package) in &model.packages {
        for (channel_name, channel) in &package.channels {
            let undecoded = |bundle: &String| {
                loaded.undecoded.contains(&(BUNDLE.to_owned(), name.clone(), bundle.clone()))
            };
            let missing: BTreeSet<&str> = channel
                .entries
                .iter()
                .filter(|entry| !package.bundles.contains_key(&entry.name) && !undecoded(&entry.name))
                .map(|entry| entry.name.as_str())
                .collect();
            if !missing.is_empty() {
                let missing: Vec<&str> = missing.into_iter().collect();
                let message = format!(
                    "no olm.bundle blobs found in package {} for olm.channel entries [{}]",
                    go::quote(name),
                    missing.join(" ")
                );
                findings.push(Finding::error("A19", subject(name, CHANNEL, channel_name), message));
            }
        }
    }
}

fn deprecations(loaded: &Loaded, model: &mut Model, findings: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for (index, deprecation) in loaded.deprecations.iter().enumerate() {
        let owner = &deprecation.package;
        let about = subject(owner, DEPRECATIONS, "");
        let position = || deprecation.position.clone();
        let p = go::quote(owner);
        if owner.is_empty() {
            let message = format!("package name must be set for deprecation item {index}");
            findings.push(Finding::error("A21", about, message).at(position()));
            continue;
        }
        let Some(package) = model.packages.get_mut(owner) else {
            if !known_but_undecoded(loaded, owner) {
                let message = format!("cannot apply deprecations to an unknown package {p}");
                findings.push(Finding::error("A22", about, message).at(position()));
            }
            continue;
        };
        if !seen.insert(owner) {
            let message = format!("expected a maximum of one deprecation per package: {p}");
            findings.push(Finding::error("A23", about, message).at(position()));
            continue;
        }
        let mut references: Vec<&Reference> = Vec::new();
        for (index, entry) in deprecation.entries.iter().enumerate() {
            let reference = &entry.reference;
            let silent = entry.message.is_empty();
            let mut report = |rule, message: String| {
                findings.push(Finding::error(rule, about.clone(), message).at(position()))
            };
            let shown = format!(
                "declcfg.PackageScopedReference{{Schema:{}, Name:{}}}",
                go::quote(&reference.schema),
                go::quote(&reference.name)
            );
            if reference.schema.is_empty() {
                report("A24", format!("schema must be set for deprecation entry [{index}] for package {p}"));
                continue;
            }
            if references.contains(&reference) {
                report("A25", format!("duplicate deprecation entry {shown} for package {p}"));
                continue;
            }
            references.push(reference);
            let name = &reference.name;
            let n = go::quote(name);
            let undecoded =
                |schema: &str| loaded.undecoded.contains(&(schema.to_owned(), owner.clone(), name.clone()));
            match reference.schema.as_str() {
                BUNDLE => match package.bundles.get_mut(name) {
                    Some(bundle) => bundle.silent_deprecation = silent,
                    None if undecoded(BUNDLE) => {}
                    None => report(
                        "A26",
                        format!("cannot deprecate bundle {n} for package {p}: bundle not found"),
                    ),
                },
                CHANNEL => match package.channels.get_mut(name) {
                    Some(channel) => channel.silent_deprecation = silent,
                    None if undecoded(CHANNEL) => {}
                    None => report(
                        "A27",
                        format!("cannot deprecate channel {n} for package {p}: channel not found"),
                    ),
                },
                PACKAGE if name.is_empty() => package.silent_deprecation = silent,
                PACKAGE => report(
                    "A28",
                    format!("package name must be empty for deprecated package {p} (specified {n})"),
                ),
                _ => report(
                    "A29",
                    format!(
                        "cannot deprecate object {shown} referenced by entry {index} for package {p}: object schema unknown"
                    ),
                ),
            }
        }
    }
}
