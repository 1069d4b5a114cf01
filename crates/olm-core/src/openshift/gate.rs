//! The bundles that count, and the report about all of them. Rule: cluster-operator §5, §7, §8; decision 17.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::limit::{Limit, LimitError, MAX_OPENSHIFT_VERSION, csv_limit, limit};
use super::stream::Stream;
use crate::{dns_subdomain, go};

/// Whether a revision of an extension is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// It is, or is about to be.
    Active,
    Archived,
}

/// A revision of an extension, read from its labels and annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub extension: String,
    /// Its number, higher for newer ones.
    pub number: i64,
    pub lifecycle: Lifecycle,
    pub bundle: String,
    /// The bundle's properties as JSON text, if it has some.
    pub properties: Option<String>,
}

/// The object that stands for an installed bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The ClusterExtension of this name.
    Extension(String),
    /// A ClusterServiceVersion of OLM Classic, as `namespace/name`.
    Csv(String),
}

impl Owner {
    /// Its name, with the namespace if it has one.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Extension(name) | Self::Csv(name) => name,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Extension(_) => "ClusterExtension",
            Self::Csv(_) => "ClusterServiceVersion",
        }
    }

    /// As error messages name it.
    fn title(&self) -> String {
        match self {
            Self::Extension(name) => format!("cluster extension {name}"),
            Self::Csv(name) => format!("ClusterServiceVersion {name}"),
        }
    }

    fn limit(&self, properties: &str) -> Result<Option<Limit>, LimitError> {
        match self {
            Self::Extension(_) => limit(properties),
            Self::Csv(_) => csv_limit(properties),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    pub owner: Owner,
    pub name: String,
    /// Its properties as JSON text, if it has some.
    pub properties: Option<String>,
}

/// The annotation in which OLM Classic records the properties that a catalog has for a bundle, as `{"properties": […]}`.
pub const RECORDED_PROPERTIES: &str = "operatorframework.io/properties";
/// The annotation in which an author writes properties of a bundle, as a list.
const OWN_PROPERTIES: &str = "olm.properties";

#[derive(serde::Deserialize)]
struct Recorded<'a> {
    #[serde(borrow)]
    properties: &'a RawValue,
}

impl Bundle {
    /// A ClusterServiceVersion. Of the properties that its catalog has and those of its author the first count that name a limit.
    #[must_use]
    pub fn from_csv<'a>(
        namespace: &str,
        name: &str,
        annotation: impl Fn(&str) -> Option<&'a String>,
    ) -> Self {
        let recorded = annotation(RECORDED_PROPERTIES).map(|text| {
            serde_json::from_str::<Recorded<'_>>(text).map_or(text.as_str(), |it| it.properties.get())
        });
        let own = annotation(OWN_PROPERTIES).map(String::as_str);
        let properties = recorded.filter(|text| text.contains(MAX_OPENSHIFT_VERSION)).or(own);
        Self {
            owner: Owner::Csv(format!("{namespace}/{name}")),
            name: name.to_owned(),
            properties: properties.map(str::to_owned),
        }
    }
}

/// The bundles that count: of each extension (its name and the installed bundle of its status, if there is one) the newest revision in
/// force, and beside it the one of the installed bundle while that is another. An extension without a revision in force has none.
/// Sorted by extension, the newest first.
#[must_use]
pub fn counted<'a>(
    extensions: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    revisions: impl IntoIterator<Item = &'a Revision>,
) -> Vec<Bundle> {
    let mut in_force: BTreeMap<&str, Vec<&Revision>> = BTreeMap::new();
    for revision in revisions {
        match revision.lifecycle {
            Lifecycle::Active => in_force.entry(&revision.extension).or_default().push(revision),
            Lifecycle::Archived => {}
        }
    }
    let mut extensions: Vec<_> = extensions.into_iter().collect();
    extensions.sort_unstable();
    let mut counted = Vec::new();
    for (extension, installed) in extensions {
        let Some(revisions) = in_force.get(extension) else { continue };
        let newest = revisions.iter().max_by_key(|revision| revision.number);
        let installed = revisions
            .iter()
            .filter(|revision| installed == Some(&*dns_subdomain(&revision.bundle)))
            .max_by_key(|revision| revision.number)
            .filter(|revision| newest.is_none_or(|newest| newest.bundle != revision.bundle));
        counted.extend(newest.into_iter().chain(installed).map(|revision| Bundle {
            owner: Owner::Extension(revision.extension.clone()),
            name: revision.bundle.clone(),
            properties: revision.properties.clone(),
        }));
    }
    counted
}

/// A bundle that does not run on the next version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocking {
    pub owner: Owner,
    pub bundle: String,
    /// The last version that it runs on.
    pub limit: Limit,
}

/// A bundle whose limit cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub owner: Owner,
    pub bundle: String,
    pub message: String,
}

/// The answer about all bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The version of which it is asked whether all run on it.
    pub target: Stream,
    /// Those that do not, sorted as the message lists them.
    pub blocking: Vec<Blocking>,
    /// Bundles whose limit cannot be read, by extension.
    pub unreadable: Vec<Unreadable>,
    /// Those that declare a limit and run on it, by extension.
    pub fitting: Vec<Blocking>,
    /// How many declare no limit.
    pub unlimited: usize,
}

/// Reports whether all bundles run on `target` when the cluster is at `current`: a limit must be above the cluster's own stream,
/// where 4.23 counts as 5.0. One unreadable bundle hides no other.
#[must_use]
pub fn judge(current: Stream, target: Stream, bundles: &[Bundle]) -> Report {
    let current = current.effective();
    let mut report =
        Report { target, blocking: Vec::new(), unreadable: Vec::new(), fitting: Vec::new(), unlimited: 0 };
    for Bundle { owner, name, properties } in bundles {
        let found = properties.as_deref().map_or(Ok(None), |properties| owner.limit(properties));
        let entry = |limit| Blocking { owner: owner.clone(), bundle: name.clone(), limit };
        match found {
            Ok(None) => report.unlimited += 1,
            Ok(Some(limit)) if limit.stream > current => report.fitting.push(entry(limit)),
            Ok(Some(limit)) => report.blocking.push(entry(limit)),
            Err(error) => {
                let head = match error {
                    LimitError::Properties(_) => "error",
                    LimitError::Value(_) => "error(s)",
                };
                report.unreadable.push(Unreadable {
                    owner: owner.clone(),
                    bundle: name.clone(),
                    message: format!("{head} with {}: error in bundle {name}: {error}", owner.title()),
                });
            }
        }
    }
    report.sort();
    report
}

impl Blocking {
    /// As the message names it.
    fn item(&self) -> String {
        let Self { owner, bundle, .. } = self;
        format!("bundle {} for {} {}", go::quote(bundle), owner.kind(), go::quote(owner.name()))
    }
}

impl Report {
    /// Adds what could not be read at all.
    pub fn add_unreadable(&mut self, more: impl IntoIterator<Item = Unreadable>) {
        self.unreadable.extend(more);
        self.sort();
    }

    #[must_use]
    pub fn is_open(&self) -> bool {
        self.blocking.is_empty() && self.unreadable.is_empty()
    }

    /// One word for what stands in the way.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match (self.blocking.is_empty(), self.unreadable.is_empty()) {
            (true, true) => None,
            (false, _) => Some("IncompatibleOperatorsInstalled"),
            (true, false) => Some("FailureGettingExtensionMetadata"),
        }
    }

    /// The errors, one a line; nothing if there are none.
    #[must_use]
    pub fn errors(&self) -> String {
        let lines: Vec<&str> = self.unreadable.iter().map(|one| one.message.as_str()).collect();
        lines.join("\n")
    }

    /// What stands in the way, in the words that tests and alerts match on. Limits and what to do follow, in at
    /// most `help` bytes (0 for none).
    #[must_use]
    pub fn message(&self, help: usize) -> Option<String> {
        if self.is_open() {
            return None;
        }
        if self.blocking.is_empty() {
            return Some(self.errors());
        }
        let items: Vec<String> = self.blocking.iter().map(Blocking::item).collect();
        let mut message = format!(
            "Found {} that require upgrades prior to upgrading cluster to version {}: {}.{}",
            self.kinds(),
            self.target,
            items.join(","),
            self.help(help)
        );
        if !self.unreadable.is_empty() {
            message.push_str(
                "\n Additionally the following errors were encountered while getting extension metadata: ",
            );
            message.push_str(&self.errors());
        }
        Some(message)
    }

    fn kinds(&self) -> &'static str {
        let has = |kind: &str| self.blocking.iter().any(|one| one.owner.kind() == kind);
        match (has("ClusterExtension"), has("ClusterServiceVersion")) {
            (true, true) => "ClusterExtensions and ClusterServiceVersions",
            (false, true) => "ClusterServiceVersions",
            (_, false) => "ClusterExtensions",
        }
    }

    /// Who declares which limit and what to do; limits with numbers only where the names do not fit.
    fn help(&self, max_length: usize) -> String {
        let one_each = self.blocking.iter().map(|one| format!("{} {}", one.bundle, one.limit.stream));
        let mut by_limit: BTreeMap<Stream, usize> = BTreeMap::new();
        for one in &self.blocking {
            *by_limit.entry(one.limit.stream).or_default() += 1;
        }
        let counts = by_limit.iter().map(|(stream, count)| format!("{stream} ({count})"));
        let what = if self.blocking.len() == 1 { "it" } else { "them" };
        let text = |limits: Vec<String>| {
            format!(" Declared to run on at most: {}; upgrade or remove {what}", limits.join(", "))
        };
        let texts = [text(one_each.collect()), text(counts.collect())];
        texts.into_iter().find(|text| text.len() <= max_length).unwrap_or_default()
    }

    fn sort(&mut self) {
        self.blocking.sort_by_cached_key(Blocking::item);
        self.fitting.sort_by(|a, b| (&a.owner, &a.bundle).cmp(&(&b.owner, &b.bundle)));
        self.unreadable.sort_by(|a, b| (&a.owner, &a.bundle).cmp(&(&b.owner, &b.bundle)));
    }
}

#[cfg(test)]
mod tests;
