//! What is asked: the values that a ClusterExtension, its installed bundle and the selected catalogs come down to.

use std::fmt;
use std::sync::Arc;

use olm_core::{BundleName, CatalogName, ChannelName, PackageName, Range, VersionRelease, go_quote};

use crate::error::ResolveError;
use crate::graph::{BundleIndex, PackageGraph};

/// Who says which bundle may follow the installed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// The catalog: only successors by `replaces`, `skips` or `skipRange`, and the installed version itself.
    #[default]
    CatalogProvided,
    /// The user: any bundle that matches, also an older one.
    SelfCertified,
}

/// The bundle that is installed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its name.
    pub name: BundleName,
    /// Its version and release.
    pub version: VersionRelease,
}

impl Installed {
    /// Reads what was recorded about an installed bundle (rule: resolution §4.3).
    ///
    /// # Errors
    /// When the name is empty, or the version or release cannot be parsed.
    pub fn parse(name: &str, version: &str, release: Option<&str>) -> Result<Self, ResolveError> {
        let what = match release {
            None => "failed to get version and release of installed bundle",
            Some(_) => "failed to parse installed bundle version and release",
        };
        let refuse = |why: String| ResolveError::Installed { text: format!("{what}: {why}") };
        let version = VersionRelease::parse(version, release).map_err(|why| refuse(why.to_string()))?;
        let name = name.parse().map_err(|_| refuse("bundle name is empty".to_owned()))?;
        Ok(Self { name, version })
    }
}

impl Installed {
    /// What a person means who names an installed bundle of a package: the name of a bundle, or a version. A version
    /// that the package has belongs to the best bundle with it, any other to `<package>.v<version>`. `None` when the
    /// text is neither.
    pub fn find(graph: &PackageGraph, text: &str) -> Option<Self> {
        let known = |bundle: BundleIndex| {
            let version = graph.version(bundle).ok()?.clone();
            Some(Self { name: graph.bundle_name(bundle).parse().ok()?, version })
        };
        if let Some(found) = graph.find_bundle(text).and_then(known) {
            return Some(found);
        }
        let wanted = VersionRelease::parse(text, None).ok()?;
        let same = |bundle: &&BundleIndex| {
            graph.version(**bundle).is_ok_and(|found| {
                *found == wanted || (wanted.release.is_none() && found.version == wanted.version)
            })
        };
        let found = graph.preference().iter().find(same).copied().and_then(known);
        found.or_else(|| Self::parse(&format!("{}.v{text}", graph.package()), text, None).ok())
    }
}

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Request {
    /// The package.
    pub package: PackageName,
    /// Channels to take bundles and edges from; empty means all. Names that do not exist are ignored.
    pub channels: Vec<ChannelName>,
    /// Versions to take, in the Masterminds dialect; `None` means all, pre-releases included.
    pub range: Option<Range>,
    /// Whether edges are needed to move on from the installed bundle.
    pub policy: Policy,
    /// The bundle that is installed now.
    pub installed: Option<Installed>,
}

/// Parses `spec.source.catalog.version`; the empty text means no range.
///
/// # Errors
/// With the text that goes into the condition.
pub fn parse_range(text: &str) -> Result<Option<Range>, ResolveError> {
    if text.is_empty() {
        return Ok(None);
    }
    Range::masterminds(text)
        .map(Some)
        .map_err(|error| ResolveError::Range { text: text.to_owned(), error: Box::new(error) })
}

/// One selected catalog whose `availabilityMode` is not `Unavailable`.
#[derive(Debug, Clone)]
pub struct CatalogSource {
    /// Name of the ClusterCatalog.
    pub name: CatalogName,
    /// `spec.priority`; larger wins.
    pub priority: i32,
    /// What the catalog holds of the package ([`PackageGraph::empty`] if nothing), the last known content if it cannot
    /// be read now, or why there is none.
    pub content: Result<Arc<PackageGraph>, CatalogProblem>,
}

/// Why the content of a selected catalog is not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogProblem {
    /// Its `Serving` condition is not True.
    NotServing,
    /// It has not been fetched yet.
    NotCached,
    /// Fetching it failed.
    Fetch(String),
    /// What was fetched cannot be read.
    Content(String),
    /// Anything else, told in full.
    Other(String),
}

impl CatalogProblem {
    /// The problem as one sentence (rule: resolution §4.1).
    pub fn describe(&self, catalog: &CatalogName, package: &PackageName) -> String {
        let catalog = go_quote(catalog.as_str());
        match self {
            Self::NotServing => format!("catalog {catalog} is not being served"),
            Self::NotCached => format!("cache for catalog {catalog} not found"),
            Self::Fetch(why) => format!("error retrieving cache for catalog {catalog}: {why}"),
            Self::Content(why) => format!("error loading package {}: {why}", go_quote(package.as_str())),
            Self::Other(text) => text.clone(),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::CatalogProvided => "CatalogProvided",
            Self::SelfCertified => "SelfCertified",
        })
    }
}
