//! Versions as Masterminds semver reads them: parts may be missing, a `v` may stand in front, zeros may lead.
//!
//! Rule: fbc §13.5. OLM itself only ever tests strict versions; this exists for authors (`semver check`) and for the
//! versions inside constraints, which the library reads by the same rule.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::go;
use crate::version::{Version, is_identifier_byte};

/// Longest version text in bytes.
const MAX_VERSION: usize = 256;

/// Why a text is no loose version; the texts are the library's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LooseVersionError {
    #[error("version string is too long (max {MAX_VERSION} bytes)")]
    TooLong,
    /// Not of the form `v?N[.N[.N]][-pre][+build]`.
    #[error("invalid semantic version")]
    Invalid,
    /// A number that does not fit 64 bits.
    #[error("error parsing version segment: strconv.ParseUint: parsing {}: value out of range", go::quote(.0))]
    Overflow(String),
    /// A numeric pre-release identifier with a leading zero.
    #[error("version segment starts with 0")]
    LeadingZero,
}

/// A version in the loose form. `Display` and `as_str` give the text that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LooseVersion {
    text: String,
    numbers: [u64; 3],
    pre: std::ops::Range<usize>,
}

impl LooseVersion {
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for LooseVersion {
    type Err = LooseVersionError;

    fn from_str(text: &str) -> Result<Self, LooseVersionError> {
        if text.len() > MAX_VERSION {
            return Err(LooseVersionError::TooLong);
        }
        let body = text.strip_prefix('v').unwrap_or(text);
        let numbers_end = body.find(['-', '+']).unwrap_or(body.len());
        let parts: Vec<&str> = body[..numbers_end].split('.').collect();
        let digits = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if parts.len() > 3 || !parts.iter().all(digits) {
            return Err(LooseVersionError::Invalid);
        }
        let rest = &body[numbers_end..];
        let build_start = rest.find('+').unwrap_or(rest.len());
        let (pre, build) = (&rest[..build_start], &rest[build_start..]);
        let identifiers =
            |text: &str| text.split('.').all(|part| !part.is_empty() && part.bytes().all(is_identifier_byte));
        if !(pre.is_empty() || identifiers(&pre[1..])) || !(build.is_empty() || identifiers(&build[1..])) {
            return Err(LooseVersionError::Invalid);
        }
        let mut numbers = [0; 3];
        for (number, part) in numbers.iter_mut().zip(&parts) {
            *number = part.parse().map_err(|_| LooseVersionError::Overflow((*part).to_owned()))?;
        }
        let zero_led = |part: &str| {
            part.len() > 1 && part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !pre.is_empty() && pre[1..].split('.').any(zero_led) {
            return Err(LooseVersionError::LeadingZero);
        }
        let numbers_end = text.len() - rest.len();
        let pre = if pre.is_empty() { 0..0 } else { numbers_end + 1..numbers_end + pre.len() };
        Ok(Self { text: text.to_owned(), numbers, pre })
    }
}

impl fmt::Display for LooseVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// What takes part in comparisons: three numbers and a pre-release, empty for none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tested<'a> {
    pub(crate) numbers: [u64; 3],
    pub(crate) pre: &'a str,
}

impl<'a> From<&'a Version> for Tested<'a> {
    fn from(version: &'a Version) -> Self {
        Self { numbers: [version.major(), version.minor(), version.patch()], pre: version.pre() }
    }
}

impl<'a> From<&'a LooseVersion> for Tested<'a> {
    fn from(version: &'a LooseVersion) -> Self {
        Self { numbers: version.numbers, pre: version.text.get(version.pre.clone()).unwrap_or_default() }
    }
}

impl Tested<'_> {
    /// Semver precedence, with the library's corner: a numeric identifier beyond 64 bits counts as alphanumeric.
    #[inline]
    pub(crate) fn compare(self, other: Tested<'_>) -> Ordering {
        // none is above any
        let release = self.pre.is_empty().cmp(&other.pre.is_empty());
        self.numbers.cmp(&other.numbers).then(release).then_with(|| compare_pre(self.pre, other.pre))
    }
}

fn compare_pre(left: &str, right: &str) -> Ordering {
    let rank = |part: &str| part.parse::<u64>().map_or((1, 0), |number| (0, number));
    let compare = |(a, b): (&str, &str)| match (rank(a), rank(b)) {
        ((1, _), (1, _)) => a.cmp(b),
        (a, b) => a.cmp(&b),
    };
    let parts = left.split('.').zip(right.split('.'));
    let first = parts.map(compare).find(|order| order.is_ne());
    first.unwrap_or_else(|| left.split('.').count().cmp(&right.split('.').count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_version_accepts() {
        for (text, numbers, pre) in [
            ("1", [1, 0, 0], ""),
            ("v1.2", [1, 2, 0], ""),
            ("01.02.03-a.b+c", [1, 2, 3], "a.b"),
            ("1-rc", [1, 0, 0], "rc"),
            ("1.2+b-c", [1, 2, 0], ""),
        ] {
            let version: LooseVersion = text.parse().unwrap();
            let tested = Tested::from(&version);
            assert_eq!((tested.numbers, tested.pre), (numbers, pre), "{text}");
        }
        for (text, want) in [
            ("V1", "invalid semantic version"),
            ("", "invalid semantic version"),
            ("1.x", "invalid semantic version"),
            ("1.2.3.4", "invalid semantic version"),
            ("1.2.3-", "invalid semantic version"),
            ("1.2.3-a..b", "invalid semantic version"),
            ("1.2.3-01", "version segment starts with 0"),
        ] {
            assert_eq!(text.parse::<LooseVersion>().unwrap_err().to_string(), want, "{text}");
        }
    }
}
