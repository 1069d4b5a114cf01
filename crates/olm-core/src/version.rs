//! Bundle versions: strict semantic versions, read exactly as OLM's Go library (blang semver v4) reads them.
//!
//! Rule: fbc §12.1. This module does not know releases (see `release`) nor ranges (see `range`).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use semver::{BuildMetadata, Prerelease};
use serde::{Deserialize, Serialize};

use crate::go;

/// Why a text is no version. The text is the Go library's, because it ends up in conditions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VersionError(String);

impl VersionError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A strict semantic version: `MAJOR.MINOR.PATCH[-pre][+build]`.
///
/// `Display` prints build metadata. Equality, order and hash follow semver precedence and **ignore** build metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version(semver::Version);

impl Version {
    /// Reads a version tolerantly, as blang's `ParseTolerant`: surrounding space, a leading `v`, leading zeros and missing numbers are
    /// accepted.
    ///
    /// # Errors
    /// When it is no version then either.
    pub fn tolerant(text: &str) -> Result<Self, VersionError> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['-', '+'])) {
            return Err(VersionError::new("Short version cannot contain PreRelease/Build meta data"));
        }
        for part in &mut parts {
            let stripped = part.trim_start_matches('0');
            if stripped.len() < part.len() {
                let digit_follows = stripped.starts_with(|c: char| c.is_ascii_digit());
                *part = if digit_follows { stripped.to_owned() } else { format!("0{stripped}") };
            }
        }
        parts.resize(3, "0".to_owned());
        parts.join(".").parse()
    }

    pub fn major(&self) -> u64 {
        self.0.major
    }

    pub fn minor(&self) -> u64 {
        self.0.minor
    }

    pub fn patch(&self) -> u64 {
        self.0.patch
    }

    /// Dot-joined pre-release identifiers, empty for a release version.
    pub fn pre(&self) -> &str {
        self.0.pre.as_str()
    }

    /// Dot-joined build metadata, empty if there is none.
    pub fn build(&self) -> &str {
        self.0.build.as_str()
    }

    pub fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }

    /// The same version with its build metadata removed.
    #[must_use]
    pub fn without_build(&self) -> Self {
        Self(semver::Version { build: BuildMetadata::EMPTY, ..self.0.clone() })
    }

    /// The same version with other build metadata.
    ///
    /// # Errors
    /// When `build` is not dot-separated `[0-9A-Za-z-]+`.
    pub(crate) fn with_build(&self, build: &str) -> Result<Self, VersionError> {
        Ok(Self(semver::Version { build: parse_build(build)?, ..self.0.clone() }))
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        if text.is_empty() {
            return Err(VersionError::new("Version string empty"));
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(VersionError::new("No Major.Minor.Patch elements found"));
        };
        let major = parse_number(major, "major", "Major")?;
        let minor = parse_number(minor, "minor", "Minor")?;
        let (rest, build) = split_optional(rest, '+');
        let (patch, pre) = split_optional(rest, '-');
        let patch = parse_number(patch, "patch", "Patch")?;
        let pre = pre.map_or(Ok(Prerelease::EMPTY), parse_pre)?;
        let build = build.map_or(Ok(BuildMetadata::EMPTY), parse_build)?;
        Ok(Self(semver::Version { major, minor, patch, pre, build }))
    }
}

/// Splits at the first `separator`, if there is one.
pub(crate) fn split_optional(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator).map_or((text, None), |(head, tail)| (head, Some(tail)))
}

/// Checks one pre-release identifier; also the rule for one segment of a release.
pub(crate) fn check_pre_identifier(identifier: &str) -> Result<(), VersionError> {
    if identifier.is_empty() {
        return Err(VersionError::new("Prerelease is empty"));
    }
    if identifier.bytes().all(|byte| byte.is_ascii_digit()) {
        if identifier.len() > 1 && identifier.starts_with('0') {
            return Err(VersionError::new(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                go::quote(identifier)
            )));
        }
        return parse_uint(identifier).map(drop);
    }
    if identifier.bytes().all(is_identifier_byte) {
        Ok(())
    } else {
        Err(VersionError::new(format!("Invalid character(s) found in prerelease {}", go::quote(identifier))))
    }
}

fn parse_pre(text: &str) -> Result<Prerelease, VersionError> {
    text.split('.').try_for_each(check_pre_identifier)?;
    Prerelease::new(text).map_err(|error| VersionError::new(error.to_string()))
}

fn parse_build(text: &str) -> Result<BuildMetadata, VersionError> {
    for identifier in text.split('.') {
        if identifier.is_empty() {
            return Err(VersionError::new("Build meta data is empty"));
        }
        if !identifier.bytes().all(is_identifier_byte) {
            return Err(VersionError::new(format!(
                "Invalid character(s) found in build meta data {}",
                go::quote(identifier)
            )));
        }
    }
    BuildMetadata::new(text).map_err(|error| VersionError::new(error.to_string()))
}

fn parse_number(text: &str, lower: &str, upper: &str) -> Result<u64, VersionError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(VersionError::new(format!(
            "Invalid character(s) found in {lower} number {}",
            go::quote(text)
        )));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(VersionError::new(format!(
            "{upper} number must not contain leading zeroes {}",
            go::quote(text)
        )));
    }
    parse_uint(text)
}

/// Parses a text of digits only, with the texts of Go's `strconv.ParseUint`.
fn parse_uint(text: &str) -> Result<u64, VersionError> {
    let problem = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    text.parse()
        .map_err(|_| VersionError::new(format!("strconv.ParseUint: parsing {}: {problem}", go::quote(text))))
}

pub(crate) fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Version {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    /// As `semver::Version::cmp_precedence`, which is no inline function: the resolver compares the version of each bundle several times.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |Self(version): &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| self.0.pre.cmp(&other.0.pre))
    }
}

impl Hash for Version {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.major, self.0.minor, self.0.patch, self.0.pre.as_str()).hash(state);
    }
}

text_form!(Version, VersionError, |version: Version| version.to_string());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn version_error_has_the_library_text() {
        for (text, want) in [
            ("", "Version string empty"),
            ("1", "No Major.Minor.Patch elements found"),
            ("1.0", "No Major.Minor.Patch elements found"),
            ("v1.0.0", r#"Invalid character(s) found in major number "v1""#),
            ("1. 0.0", r#"Invalid character(s) found in minor number " 0""#),
            ("1.0.0 ", r#"Invalid character(s) found in patch number "0 ""#),
            ("1.0.0.0", r#"Invalid character(s) found in patch number "0.0""#),
            ("01.0.0", r#"Major number must not contain leading zeroes "01""#),
            ("1.00.0", r#"Minor number must not contain leading zeroes "00""#),
            ("1.0.01-", r#"Patch number must not contain leading zeroes "01""#),
            (".0.0", r#"strconv.ParseUint: parsing "": invalid syntax"#),
            ("18446744073709551616.0.0", r#"strconv.ParseUint: parsing "18446744073709551616": value out of range"#),
            ("1.0.0-", "Prerelease is empty"),
            ("1.0.0-a..b", "Prerelease is empty"),
            ("1.0.0-01", r#"Numeric PreRelease version must not contain leading zeroes "01""#),
            ("1.0.0-a_b", r#"Invalid character(s) found in prerelease "a_b""#),
            ("1.0.0-99999999999999999999", r#"strconv.ParseUint: parsing "99999999999999999999": value out of range"#),
            ("1.0.0+", "Build meta data is empty"),
            ("1.0.0+a_b", r#"Invalid character(s) found in build meta data "a_b""#),
            ("1.0.0+a+b", r#"Invalid character(s) found in build meta data "a+b""#),
        ] {
            assert_eq!(text.parse::<Version>().unwrap_err().to_string(), want, "{text:?}");
        }
    }

    #[test]
    fn version_is_read_tolerantly() {
        for (text, want) in [
            ("1.2.3", Some("1.2.3")),
            (" v1.2 ", Some("1.2.0")),
            ("1", Some("1.0.0")),
            ("01.02.003-rc.1+x", Some("1.2.3-rc.1+x")),
            ("00.0.00", Some("0.0.0")),
            ("1.2-rc.1", None),
            ("", None),
            ("vv1.0.0", None),
        ] {
            let version = Version::tolerant(text).ok().map(|version| version.to_string());
            assert_eq!(version.as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn version_prints_as_parsed() {
        for text in [
            "0.0.0",
            "1.2.3-rc.1+001.x",
            "18446744073709551615.0.0",
            "1.0.0--",
            "1.0.0-0a",
            "1.0.0+-",
            "1.0.0-a-b+c-d",
        ] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn version_order_ignores_build_metadata() {
        let sorted = [
            "0.9.9",
            "1.0.0-1",
            "1.0.0-9",
            "1.0.0-10",
            "1.0.0-A",
            "1.0.0-a",
            "1.0.0-a.b",
            "1.0.0-a10",
            "1.0.0-a9",
            "1.0.0",
            "1.0.1",
        ];
        for pair in sorted.windows(2) {
            let (low, high): (Version, Version) = (pair[0].parse().unwrap(), pair[1].parse().unwrap());
            assert!(low < high, "{low} < {high}");
        }
        let (a, b): (Version, Version) = ("1.0.0+1".parse().unwrap(), "1.0.0+2".parse().unwrap());
        assert_eq!(a, b);
    }
}
