//! `major.minor` of OpenShift, and which one follows which. Rule: cluster-operator §5.3, §7.

use std::fmt;
use std::str::FromStr;

use crate::{Version, go};

/// The Y-stream of an OpenShift version: patch, pre-release and build do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    pub major: u64,
    pub minor: u64,
}

/// Why a text names no version of OpenShift.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("{} is no version of OpenShift such as 4.19.3: {cause}", go::quote(text))]
    Version { text: String, cause: String },
    /// `major.minor` or a full version is required.
    #[error(
        "{} is neither a minor version of OpenShift such as 4.20 nor a full one such as 4.20.1",
        go::quote(text)
    )]
    Target { text: String },
}

/// 4.23 and 5.0 are two names of one release.
const LAST_OF_FOUR: Stream = Stream::new(4, 23);
const FIRST_OF_FIVE: Stream = Stream::new(5, 0);

impl Stream {
    #[must_use]
    pub const fn new(major: u64, minor: u64) -> Self {
        Self { major, minor }
    }

    /// The stream of a full version. Spaces around it do not matter; otherwise all three numbers are demanded and a leading `v`
    /// is refused. `4.19.0-rc.1` belongs to 4.19.
    ///
    /// # Errors
    /// If it is no semantic version.
    pub fn of_version(text: &str) -> Result<Self, StreamError> {
        let version = Version::from_str(text.trim())
            .map_err(|error| StreamError::Version { text: text.to_owned(), cause: error.to_string() })?;
        Ok(Self::new(version.major(), version.minor()))
    }

    /// The stream that a person means by `4.20`, or by a full version.
    ///
    /// # Errors
    /// If it is neither.
    pub fn of_target(text: &str) -> Result<Self, StreamError> {
        match Self::short(text.trim()) {
            Some(stream) => Ok(stream),
            None => Self::of_version(text).map_err(|_| StreamError::Target { text: text.to_owned() }),
        }
    }

    /// `major.minor`, numbers without leading zeros.
    pub(super) fn short(text: &str) -> Option<Self> {
        let number = |part: &str| {
            let plain = part.bytes().all(|byte| byte.is_ascii_digit());
            let plain = plain && (part == "0" || !part.starts_with('0'));
            plain.then(|| part.parse().ok()).flatten()
        };
        let (major, minor) = text.split_once('.')?;
        Some(Self::new(number(major)?, number(minor)?))
    }

    /// The stream that limits are compared with: 4.23 counts as 5.0.
    #[must_use]
    pub const fn effective(self) -> Self {
        match self {
            Self { major: 4, minor: 23 } => FIRST_OF_FIVE,
            other => other,
        }
    }

    /// Where a minor update leads: 5.1 from 4.23, else the next minor.
    #[must_use]
    pub const fn next(self) -> Self {
        let Self { major, minor } = self.effective();
        Self::new(major, minor.saturating_add(1))
    }

    /// The last stream before an update to this one. Before the first minor of a major version (other than 5) every stream of
    /// the major version before counts, as its last one is unknown.
    #[must_use]
    pub const fn before(self) -> Self {
        match self.effective() {
            FIRST_OF_FIVE => Self::new(LAST_OF_FOUR.major, LAST_OF_FOUR.minor - 1),
            Self { major, minor: 0 } => Self::new(major.saturating_sub(1), u64::MAX),
            Self { major, minor } => Self::new(major, minor - 1),
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_reads_versions_strictly() {
        for (text, want) in [
            ("4.18.0", Some("4.18")),
            ("4.18.57", Some("4.18")),
            (" 4.18.0\n", Some("4.18")),
            ("4.18.0-rc1", Some("4.18")),
            ("4.18.0-0.nightly-2026-01-01-000000", Some("4.18")),
            ("4.18.0+build", Some("4.18")),
            ("0.0.1-snapshot", Some("0.0")),
            ("4.18", None),
            ("v4.18.0", None),
            ("4.018.0", None),
            ("4.18.0.1", None),
            ("abc", None),
            ("", None),
        ] {
            let got = Stream::of_version(text).ok().map(|stream| stream.to_string());
            assert_eq!(got.as_deref(), want, "{text:?}");
        }
        let error = Stream::of_version("4.18").unwrap_err().to_string();
        assert!(error.starts_with("\"4.18\" is no version of OpenShift such as 4.19.3: "), "{error}");
    }

    #[test]
    fn stream_target_may_be_short() {
        for (text, want) in [
            ("4.20", Some("4.20")),
            ("4.20.3", Some("4.20")),
            ("4.20.0-ec.1", Some("4.20")),
            ("5.0", Some("5.0")),
            ("4", None),
            ("4.", None),
            ("4.020", None),
            ("v4.20", None),
            ("+4.20", None),
            ("4.x", None),
            ("99999999999999999999.1", None),
        ] {
            assert_eq!(Stream::of_target(text).ok().map(|s| s.to_string()).as_deref(), want, "{text:?}");
        }
        assert_eq!(
            Stream::of_target("latest").unwrap_err().to_string(),
            "\"latest\" is neither a minor version of OpenShift such as 4.20 nor a full one such as 4.20.1"
        );
    }

    #[test]
    fn stream_has_successor_and_predecessor() {
        for (stream, next, before) in [
            (Stream::new(4, 9), "4.10", "4.8"),
            (Stream::new(4, 22), "4.23", "4.21"),
            (Stream::new(4, 23), "5.1", "4.22"),
            (Stream::new(5, 0), "5.1", "4.22"),
            (Stream::new(5, 1), "5.2", "5.0"),
            (Stream::new(6, 0), "6.1", "5.18446744073709551615"),
            (Stream::new(0, 0), "0.1", "0.18446744073709551615"),
        ] {
            assert_eq!(stream.next().to_string(), next, "after {stream}");
            assert_eq!(stream.before().to_string(), before, "before {stream}");
        }
    }
}
