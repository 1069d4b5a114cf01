//! The request: the values that a ClusterExtension, its installed bundle and the selected catalogs come down to.

use std::sync::Arc;

use olm_core::{CatalogName, ChannelName, PackageName, Range, VersionRelease};

use crate::environment::Environment;
use crate::error::{CatalogReadError, ResolveError};
use crate::graph::PackageGraph;
use crate::installed::Installed;

olm_core::words! {
    /// Which bundles may follow the installed one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Policy {
        /// The catalog: only successors by `replaces`, `skips` or `skipRange`, and the installed version itself.
        #[default]
        CatalogProvided = "CatalogProvided",
        /// The user: any bundle that matches, also an older one.
        SelfCertified = "SelfCertified",
    }
}

/// The annotation of a ClusterExtension with a value of [`MajorUpdates`].
pub const MAJOR_UPDATES: &str = "olm.operatorframework.io/major-updates";

olm_core::words! {
    /// Whether the installed bundle may be followed by one of a higher major version without being asked (decision 32).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum MajorUpdates {
        /// Not along the catalog's edges while the request has no range.
        #[default]
        Hold = "Hold",
        /// Like any other, as the reference does.
        Automatic = "Automatic",
    }
}

#[derive(Debug, Clone)]
pub struct Request {
    pub package: PackageName,
    /// Channels to take bundles and edges from; empty means all. Names that do not exist are ignored.
    pub channels: Vec<ChannelName>,
    /// Versions to take, in the Masterminds dialect; `None` means all, pre-releases included.
    pub range: Option<Range>,
    /// Whether edges are needed to move on from the installed bundle.
    pub policy: Policy,
    pub major_updates: MajorUpdates,
    pub environment: Environment,
    pub installed: Option<Installed>,
}

impl Request {
    /// Any version from any channel, with nothing installed.
    #[must_use]
    pub fn new(package: PackageName) -> Self {
        Self {
            package,
            channels: Vec::new(),
            range: None,
            policy: Policy::default(),
            major_updates: MajorUpdates::default(),
            environment: Environment::default(),
            installed: None,
        }
    }
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

/// The range of this version and all later ones of its major version.
pub(crate) fn range_from(version: &VersionRelease) -> String {
    let mut text = version.version.to_string();
    text.truncate(text.find('+').unwrap_or(text.len()));
    format!("^{text}")
}

/// One selected catalog whose `availabilityMode` is not `Unavailable`.
#[derive(Debug, Clone)]
pub struct CatalogSource {
    pub name: CatalogName,
    /// `spec.priority`; larger wins.
    pub priority: i32,
    /// What the catalog holds of the package ([`PackageGraph::empty`] if nothing), the last known content if it cannot
    /// be read now, or why there is none.
    pub content: Result<Arc<PackageGraph>, CatalogReadError>,
}
