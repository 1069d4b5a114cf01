//! Releases of a version: which of several builds of one version is newer.
//!
//! Rules: operator-controller §4.3, fbc §7. A release is written in its own field of the `olm.package` property, or, by the
//! older convention, as build metadata of the version.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::go;
use crate::version::{Version, VersionError, check_pre_identifier};

/// Longest release in characters.
const MAX_RELEASE: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid release {}: {why}", go::quote(text))]
pub struct ReleaseError {
    text: String,
    why: String,
}

/// A release: at most 20 characters of dot-separated pre-release identifiers, or empty (set, but to nothing).
///
/// Order: empty first, then identifier by identifier like pre-releases of a version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Release(semver::Prerelease);

impl Release {
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether the release is explicitly empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let refuse = |why: String| ReleaseError { text: text.to_owned(), why };
        if text.is_empty() {
            return Ok(Self(semver::Prerelease::EMPTY));
        }
        if text.len() > MAX_RELEASE {
            return Err(refuse(format!("exceeds maximum length of {MAX_RELEASE} characters")));
        }
        let problems: Vec<String> = text
            .split('.')
            .enumerate()
            .filter_map(|(index, part)| {
                check_pre_identifier(part).err().map(|why| format!("segment {index}: {why}"))
            })
            .collect();
        if !problems.is_empty() {
            return Err(refuse(problems.join("\n")));
        }
        semver::Prerelease::new(text).map(Self).map_err(|error| refuse(error.to_string()))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Release {
    fn cmp(&self, other: &Self) -> Ordering {
        // the `semver` crate puts the empty one last
        (!self.is_empty()).cmp(&!other.is_empty()).then_with(|| self.0.cmp(&other.0))
    }
}

text_form!(Release, ReleaseError, |release: Release| release.to_string());

/// Why a version and release could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionReleaseError {
    #[error("invalid version {}: {source}", go::quote(text))]
    Version { text: String, source: VersionError },
    #[error(transparent)]
    Release(#[from] ReleaseError),
}

/// A bundle's version together with its release.
///
/// Equality and order: version by precedence, then release; no release and an empty one are equal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VersionRelease {
    /// The version; build metadata is kept when it is not a release.
    pub version: Version,
    /// The release; `Some` of an empty release means that it was set explicitly to nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
}

impl VersionRelease {
    /// A version whose build metadata, if it is a valid release, becomes the release and leaves the version.
    pub fn legacy(version: Version) -> Self {
        match version.build().parse::<Release>() {
            Ok(release) if !release.is_empty() => {
                Self { version: version.without_build(), release: Some(release) }
            }
            _ => Self { version, release: None },
        }
    }

    /// Reads the pair as it is recorded for an installed bundle or written in an `olm.package` property: with a
    /// release both are taken as they are, without one the legacy rule applies.
    ///
    /// # Errors
    /// When the version is no strict semantic version or the release does not follow its grammar.
    pub fn parse(version: &str, release: Option<&str>) -> Result<Self, VersionReleaseError> {
        let parsed = version
            .parse::<Version>()
            .map_err(|source| VersionReleaseError::Version { text: version.to_owned(), source })?;
        Ok(match release {
            None => Self::legacy(parsed),
            Some(release) => Self { version: parsed, release: Some(release.parse()?) },
        })
    }

    /// The version with a non-empty release folded back into build metadata (`1.0.0` + `2` = `1.0.0+2`); this is what
    /// a skipRange is tested against and what clients that do not know releases see.
    pub fn folded(&self) -> Version {
        match &self.release {
            Some(release) if !release.is_empty() => {
                self.version.with_build(release.as_str()).unwrap_or_else(|_| self.version.clone())
            }
            _ => self.version.clone(),
        }
    }

    #[inline]
    fn release_key(&self) -> Option<&Release> {
        self.release.as_ref().filter(|release| !release.is_empty())
    }
}

impl FromStr for VersionRelease {
    type Err = VersionReleaseError;

    /// By the legacy rule.
    fn from_str(text: &str) -> Result<Self, VersionReleaseError> {
        Self::parse(text, None)
    }
}

impl fmt::Display for VersionRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folded().fmt(f)
    }
}

impl PartialEq for VersionRelease {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for VersionRelease {}

impl PartialOrd for VersionRelease {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VersionRelease {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.version.cmp(&other.version).then_with(|| self.release_key().cmp(&other.release_key()))
    }
}

impl Hash for VersionRelease {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.version.hash(state);
        self.release_key().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(version: &str, release: Option<&str>) -> String {
        match VersionRelease::parse(version, release) {
            Ok(both) => format!("{} {:?}", both.version, both.release.map(String::from)),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    #[rustfmt::skip]
    fn release_parses_with_version() {
        for (version, release, want) in [
            ("1.0.0-pre+1.alpha.2", None, r#"1.0.0-pre Some("1.alpha.2")"#),
            ("1.0.0+001", None, "1.0.0+001 None"),
            ("1.0.0+ignored", Some("2"), r#"1.0.0+ignored Some("2")"#),
            ("1.0.0+2", Some(""), r#"1.0.0+2 Some("")"#),
            ("1.0.0+a-very-long-build-metadata", None, "1.0.0+a-very-long-build-metadata None"),
            ("1.0.0", Some("001"), r#"invalid release "001": segment 0: Numeric PreRelease version must not contain leading zeroes "001""#),
            ("1.0.0", Some("012345678901234567890"), r#"invalid release "012345678901234567890": exceeds maximum length of 20 characters"#),
            ("abcd", None, r#"invalid version "abcd": No Major.Minor.Patch elements found"#),
        ] {
            assert_eq!(both(version, release), want, "{version} {release:?}");
        }
    }

    #[test]
    fn release_orders_and_folds() {
        let mut all: Vec<VersionRelease> =
            ["1.0.0-alpha+1", "0.0.1", "1.0.0-alpha+2", "1.0.0", "1.0.0+a", "1.0.0+10"]
                .map(|text| text.parse().unwrap())
                .into();
        all.sort_by(|a, b| b.cmp(a));
        let printed: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(printed, ["1.0.0+a", "1.0.0+10", "1.0.0", "1.0.0-alpha+2", "1.0.0-alpha+1", "0.0.1"]);
        let empty = VersionRelease::parse("1.0.0", Some("")).unwrap();
        assert_eq!(empty, "1.0.0".parse().unwrap());
        assert_eq!(empty.to_string(), "1.0.0");
    }
}
