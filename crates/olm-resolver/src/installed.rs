//! The bundle that is installed now, as it was recorded or as a person names it.

use olm_core::{BundleName, VersionRelease};

use crate::error::ResolveError;
use crate::graph::{BundleIndex, PackageGraph};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub name: BundleName,
    pub version: VersionRelease,
}

impl Installed {
    /// Reads what was recorded about an installed bundle (rule: operator-controller §4.3).
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
        let installed = VersionRelease::parse(text, None).ok()?;
        let same = |bundle: &&BundleIndex| {
            graph.version(**bundle).is_ok_and(|found| {
                *found == installed || (installed.release.is_none() && found.version == installed.version)
            })
        };
        let found = graph.preference().iter().find(same).copied().and_then(known);
        found.or_else(|| Self::parse(&format!("{}.v{text}", graph.package()), text, None).ok())
    }
}
