//! Errors of the resolver. The text is the one that conditions carry (rule: operator-controller §4.1, §4.3, §4.9, §4.10);
//! what helps a person beyond it is the hint.

use std::fmt;

use crate::environment::{self, UnmetConstraint};
use olm_core::{BundleName, CatalogName, ChannelName, PackageName, RangeError, Version, go};

/// Longest help in characters that a condition message may carry after the text itself.
const MAX_HELP: usize = 200;

/// When it is worth to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// When the extension or a catalog changes; a slow retry is enough otherwise.
    OnChange,
    /// Soon, with backoff: something that may pass by itself.
    Backoff,
}

/// Why the content of a selected catalog is not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogReadError {
    /// Its `Serving` condition is not True.
    NotServing,
    NotCached,
    Fetch(String),
    Content(String),
    /// Anything else, in full.
    Other(String),
}

impl CatalogReadError {
    /// The error as a message (rule: operator-controller §4.1).
    pub fn describe(&self, catalog: &CatalogName, package: &PackageName) -> String {
        let catalog = go::quote(catalog.as_str());
        match self {
            Self::NotServing => format!("catalog {catalog} is not being served"),
            Self::NotCached => format!("cache for catalog {catalog} not found"),
            Self::Fetch(why) => format!("error retrieving cache for catalog {catalog}: {why}"),
            Self::Content(why) => format!("error loading package {}: {why}", go::quote(package.as_str())),
            Self::Other(text) => text.clone(),
        }
    }
}

/// Why there is no bundle to install.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("desired version range {} is invalid: {error}", go::quote(text))]
    Range { text: String, error: Box<RangeError> },
    /// What is recorded about the installed bundle does not parse.
    #[error("error walking catalogs: error finding upgrade edges: {text}")]
    Installed { text: String },
    /// A catalog that must be read first cannot be read.
    #[error(
        "error walking catalogs: error getting package {} from catalog {}: {}",
        go::quote(package.as_str()),
        go::quote(catalog.as_str()),
        problem.describe(catalog, package)
    )]
    Catalog {
        package: PackageName,
        /// The first such catalog by name.
        catalog: CatalogName,
        problem: CatalogReadError,
        help: Option<String>,
    },
    #[error("{}", asked.message(&[]))]
    NoMatch {
        asked: Box<Asked>,
        /// What would have matched, or what to change.
        help: Option<String>,
    },
    /// Bundles of several catalogs are equally good.
    #[error("{}", asked.message(catalogs))]
    Ambiguous {
        asked: Box<Asked>,
        /// The tied catalogs, sorted.
        catalogs: Vec<CatalogName>,
    },
    /// The best bundle has no readable version.
    #[error("error getting resolved bundle version for bundle {}: {why}", go::quote(bundle.as_str()))]
    Version { bundle: BundleName, why: String },
    /// The cluster does not meet the constraints of the best bundle, and such bundles are refused.
    #[error("bundle {bundle} of catalog {catalog} is refused: {}", environment::describe(unmet))]
    Environment { bundle: BundleName, catalog: CatalogName, unmet: Vec<UnmetConstraint> },
    /// The bundle declares a dependency and dependencies are refused.
    #[error(
        "validating bundle {bundle}: bundle {bundle} has a dependency declared via property {} which is currently not \
         supported",
        go::quote(property),
        bundle = go::quote(bundle.as_str())
    )]
    Dependency {
        bundle: BundleName,
        /// The property type that declares it.
        property: String,
    },
}

/// The request as far as it appears in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub package: PackageName,
    pub range: Option<String>,
    /// The channels in the order asked.
    pub channels: Vec<ChannelName>,
    /// The installed version without release.
    pub installed: Option<Version>,
}

impl Asked {
    /// The message grammar of operator-controller §4.10.
    fn message(&self, catalogs: &[CatalogName]) -> String {
        let mut text = String::new();
        if let Some(installed) = &self.installed {
            let installed = go::quote(&installed.to_string());
            text.push_str(&format!("error upgrading from currently installed version {installed}: "));
        }
        let found = if catalogs.len() > 1 { "found bundles" } else { "no bundles found" };
        text.push_str(&format!("{found} for package {} ", go::quote(self.package.as_str())));
        if let Some(range) = &self.range {
            text.push_str(&format!("matching version {} ", go::quote(range)));
        }
        if !self.channels.is_empty() {
            text.push_str(&format!("in channels [{}] ", join(&self.channels)));
        }
        if catalogs.len() > 1 {
            text.push_str(&format!("in multiple catalogs with the same priority [{}] ", join(catalogs)));
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }
}

fn join<T: fmt::Display>(names: &[T]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

impl ResolveError {
    /// What to change, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Range { error, .. } => match (error.word(), error.hint()) {
                (Some(word), Some(hint)) => Some(format!("at {}: {hint}", go::quote(word))),
                (Some(word), None) => Some(format!("{} cannot be read", go::quote(word))),
                (None, hint) => hint.map(str::to_owned),
            },
            Self::Catalog { help, .. } | Self::NoMatch { help, .. } => help.clone(),
            Self::Ambiguous { .. } => Some(
                "give one catalog a higher spec.priority, or narrow spec.source.catalog.selector to one catalog".to_owned(),
            ),
            Self::Environment { .. } => Some(
                "narrow spec.source.catalog.version or channels to bundles that fit the cluster".to_owned(),
            ),
            Self::Installed { .. } | Self::Version { .. } | Self::Dependency { .. } => None,
        }
    }

    /// The text for a condition: the message, then `; ` and at most 200 characters of help.
    pub fn condition_message(&self) -> String {
        let mut text = self.to_string();
        if let Some(hint) = self.hint() {
            text.push_str("; ");
            if hint.chars().count() <= MAX_HELP {
                text.push_str(&hint);
            } else {
                text.extend(hint.chars().take(MAX_HELP - 1));
                text.push('…');
            }
        }
        text
    }

    /// When it is worth to try again.
    pub fn retry(&self) -> Retry {
        if matches!(self, Self::Catalog { .. }) { Retry::Backoff } else { Retry::OnChange }
    }
}
