//! Phase B (fbc §8.2): what the model as a whole must be like.

use std::collections::{BTreeMap, BTreeSet};

use olm_core::{Range, go};

use super::{
    convert::{ChannelModel, Model, PackageModel},
    graph::{Shape, problem},
};
use crate::{
    ChannelEntry, Finding, Subject,
    schema::{BUNDLE, CHANNEL, PACKAGE},
};

const SILENT: &str = "invalid deprecation: message must be set";

struct Report<'a> {
    findings: &'a mut Vec<Finding>,
    path: Vec<String>,
    subject: Subject,
}

impl Report<'_> {
    fn error(&mut self, rule: &'static str, message: impl Into<String>) -> &mut Finding {
        self.findings.push(Finding::error(rule, self.subject.clone(), message).below(&self.path));
        let last = self.findings.len() - 1;
        &mut self.findings[last]
    }

    fn within(&mut self, level: &str, schema: &str, name: &str) -> Report<'_> {
        let mut path = self.path.clone();
        path.push(format!("invalid {level} {}", go::quote(name)));
        let subject = Subject { schema: schema.to_owned(), name: name.to_owned(), ..self.subject.clone() };
        Report { findings: self.findings, path, subject }
    }
}

pub(super) fn check(model: &Model, findings: &mut Vec<Finding>) {
    for (name, package) in &model.packages {
        let path = vec![format!("invalid package {}", go::quote(name))];
        let subject = Subject { package: name.clone(), schema: PACKAGE.to_owned(), name: name.clone() };
        check_package(package, &mut Report { findings, path, subject });
    }
}

fn check_package(package: &PackageModel, report: &mut Report<'_>) {
    if package.default_channel.is_empty() {
        let names: Vec<&str> = package.channels.keys().map(String::as_str).collect();
        let finding = report.error("default-channel", "default channel must be set");
        if !names.is_empty() {
            finding.hint = Some(format!("set \"defaultChannel\" to one of {}", names.join(", ")));
        }
    }
    if package.channels.is_empty() {
        report.error("channels", "package must contain at least one channel");
    }
    for (name, channel) in &package.channels {
        check_channel(package, channel, &mut report.within("channel", CHANNEL, name));
    }
    let listed = package.channels.values().flat_map(|channel| &channel.entries);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in listed {
        if let Some(version) = package.bundles.get(&entry.name).and_then(|bundle| bundle.version.as_deref()) {
            versions.entry(version).or_default().insert(&entry.name);
        }
    }
    let duplicates: Vec<String> = versions
        .iter()
        .filter(|(_, names)| names.len() > 1)
        .map(|(version, names)| {
            format!("{{{version}: [{}]}}", names.iter().copied().collect::<Vec<_>>().join(", "))
        })
        .collect();
    if !duplicates.is_empty() {
        let message = format!("duplicate versions found in bundles: [{}]", duplicates.join(" "));
        report.error("duplicate-version", message);
    }
    if package.silent_deprecation {
        report.error("deprecation-message", SILENT);
    }
}

fn check_channel(package: &PackageModel, channel: &ChannelModel, report: &mut Report<'_>) {
    if channel.unknown {
        return;
    }
    if channel.entries.is_empty() {
        report.error("channel-empty", "channel must contain at least one bundle");
    } else if let Some(shape) = problem(&channel.entries) {
        let (rule, message, hint) = match shape {
            Shape::NoHead => (
                "channel-head",
                "no channel head found in graph".to_owned(),
                "every entry is replaced or skipped by another one; the newest must not be",
            ),
            Shape::Heads(names) => (
                "channel-head",
                format!("multiple channel heads found in graph: {}", names.join(", ")),
                "let the newest replace or skip the others",
            ),
            Shape::Cycle(names) => (
                "channel-cycle",
                format!("detected cycle in replaces chain of upgrade graph: {}", names.join(" -> ")),
                "let each entry replace an older one",
            ),
            Shape::Stranded(names) => (
                "channel-stranded",
                format!("channel contains one or more stranded bundles: {}", names.join(", ")),
                "nothing leads from them to the head: let an entry replace or skip them",
            ),
        };
        report.error(rule, message).hint = Some(hint.to_owned());
    }
    for entry in &channel.entries {
        check_entry(package, entry, &mut report.within("bundle", BUNDLE, &entry.name));
    }
    if channel.silent_deprecation {
        report.error("deprecation-message", SILENT);
    }
}

fn check_entry(package: &PackageModel, entry: &ChannelEntry, report: &mut Report<'_>) {
    if entry.name.is_empty() {
        report.error("bundle-name", "name must be set");
    }
    let bundle = package.bundles.get(&entry.name);
    if let Some(bundle) = bundle.filter(|bundle| bundle.has_release && bundle.normal_name != entry.name) {
        let (name, normal) = (go::quote(&entry.name), go::quote(&bundle.normal_name));
        report.error("bundle-name", format!("name {name} does not match normalized name {normal}"));
    }
    for (index, skip) in entry.skips.iter().enumerate() {
        if skip.is_empty() {
            report.error("skip-empty", format!("skip[{index}] is empty"));
        }
    }
    if !entry.skip_range.is_empty()
        && let Err(problem) = Range::blang(&entry.skip_range)
    {
        let hint = problem.hint().map(str::to_owned);
        let message = format!("invalid skipRange {}: {problem}", go::quote(&entry.skip_range));
        let finding = report.error("skip-range", message);
        finding.hint = hint;
        // the reference reads this range and fails when it is used
        if problem.to_string().starts_with("Empty element between") {
            finding.severity = crate::Severity::Warning;
        }
    }
    let Some(bundle) = bundle else { return };
    if !bundle.has_image {
        report.error("bundle-image", "bundle image must be set");
    }
    if bundle.silent_deprecation {
        report.error("deprecation-message", SILENT);
    }
    if bundle.has_release && bundle.has_build {
        report.error("release-build", "cannot use build metadata in version with a release version");
    }
}
