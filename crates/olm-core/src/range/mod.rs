//! Version ranges in the two dialects that OLM uses. They are two languages with two parsers; nothing here guesses
//! which of them a text is written in.
//!
//! `masterminds` is the dialect of `ClusterExtension.spec.source.catalog.version` (rule: fbc §13), `blang` that of
//! `skipRange` and of dependencies (rule: fbc §12). Both behave as the Go libraries do, special cases included, which
//! comments name where they are handled.

mod blang;
mod loose;
mod masterminds;

use std::fmt;
use std::ops;
use std::str::FromStr;

pub use loose::{LooseVersion, LooseVersionError};

use crate::Version;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Constraints of Masterminds semver v3: `^1.2`, `~1.2.3`, `>=1.0.0, <2`, `1.x || 3`.
    Masterminds,
    /// Ranges of blang semver v4: `>=1.0.0 <1.2.3`, `!1.2.1`, `1.2.x`.
    Blang,
}

/// Why a text is no range of its dialect.
///
/// `Display` is the text of the Go library, because it ends up in conditions. `position` and `hint` are for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RangeError {
    message: String,
    source_text: String,
    position: ops::Range<usize>,
    hint: Option<String>,
}

impl RangeError {
    fn new(message: impl Into<String>, source_text: &str, position: ops::Range<usize>) -> Self {
        let end = position.end.min(source_text.len());
        Self {
            message: message.into(),
            source_text: source_text.to_owned(),
            position: position.start.min(end)..end,
            hint: None,
        }
    }

    fn hinted(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Byte range of the offending characters in the text that was given.
    pub fn position(&self) -> ops::Range<usize> {
        self.position.clone()
    }

    /// The offending characters, unless they are the whole text or the hint begins with them.
    pub fn word(&self) -> Option<&str> {
        let word = self.source_text.get(self.position.clone())?.trim();
        let is_in_hint = self.hint().is_some_and(|hint| hint.starts_with(&crate::go::quote(word)));
        (!word.is_empty() && word != self.source_text.trim() && !is_in_hint).then_some(word)
    }

    /// What to write instead, or what to change.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The message, the range with the offending characters underlined, and the hint, over several lines.
    pub fn explain(&self) -> String {
        let before = self.source_text.get(..self.position.start).unwrap_or_default().chars().count();
        let width = self.source_text.get(self.position.clone()).unwrap_or_default().chars().count().max(1);
        let shown: String = self.source_text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut text = format!("{}\n  {shown}\n  {}{}", self.message, " ".repeat(before), "^".repeat(width));
        text.extend(self.hint.iter().flat_map(|hint| ["\n  ", hint.as_str()]));
        text
    }
}

/// Why a pair of texts could not be compared. `Display` is what `semver check` prints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    #[error("range-error: {0}")]
    Range(RangeError),
    #[error("version-error: {0}")]
    Version(String),
}

/// Whether a version is in a range, both as texts and both read as the dialect's library reads them: the Masterminds
/// dialect takes loose versions (`v1.2`), the blang dialect strict ones.
///
/// # Errors
/// When one of them cannot be read; the range is looked at first.
pub fn check(dialect: Dialect, range: &str, version: &str) -> Result<bool, CheckError> {
    let range = Range::parse(dialect, range).map_err(CheckError::Range)?;
    match &range.rule {
        Rule::Masterminds(constraints) => {
            let version: LooseVersion = parse_version(version)?;
            Ok(constraints.check(&(&version).into()))
        }
        Rule::Blang(ranges) => Ok(ranges.contains(&parse_version(version)?)),
    }
}

fn parse_version<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, CheckError> {
    text.parse().map_err(|error: T::Err| CheckError::Version(error.to_string()))
}

/// A parsed range. `Display` is the source text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    source: Box<str>,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Masterminds(masterminds::Constraints),
    Blang(blang::Ranges),
}

impl Range {
    /// Parses a constraint as Masterminds semver v3.5.0 does: at most 512 bytes and 32 groups between `||`.
    ///
    /// # Errors
    /// With the library's text, the position of the offending characters and, where possible, a fix.
    pub fn masterminds(text: &str) -> Result<Self, RangeError> {
        let rule = Rule::Masterminds(masterminds::parse(text)?);
        Ok(Self { source: text.into(), rule })
    }

    /// Parses a range as blang semver v4.0.0 does.
    ///
    /// One difference: an empty group between two `||`, which makes the library panic when it is reached, is an error.
    ///
    /// # Errors
    /// With the library's text, the position of the offending characters and, where possible, a fix.
    pub fn blang(text: &str) -> Result<Self, RangeError> {
        let rule = Rule::Blang(blang::parse(text)?);
        Ok(Self { source: text.into(), rule })
    }

    /// # Errors
    /// As [`Range::masterminds`] and [`Range::blang`].
    pub fn parse(dialect: Dialect, text: &str) -> Result<Self, RangeError> {
        match dialect {
            Dialect::Masterminds => Self::masterminds(text),
            Dialect::Blang => Self::blang(text),
        }
    }

    /// Whether the version is in the range. Build metadata never matters.
    #[inline]
    pub fn contains(&self, version: &Version) -> bool {
        match &self.rule {
            Rule::Masterminds(constraints) => constraints.check(&version.into()),
            Rule::Blang(ranges) => ranges.contains(version),
        }
    }

    /// The dialect in which the range is written.
    pub fn dialect(&self) -> Dialect {
        match self.rule {
            Rule::Masterminds(_) => Dialect::Masterminds,
            Rule::Blang(_) => Dialect::Blang,
        }
    }

    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// About how many bytes the range takes.
    pub fn memory(&self) -> usize {
        let rule = match &self.rule {
            Rule::Masterminds(constraints) => constraints.memory(),
            Rule::Blang(ranges) => ranges.memory(),
        };
        size_of::<Self>() + self.source.len() + rule
    }

    /// Whether the range has no lower or no upper bound in some group: such a skipRange reaches further than its
    /// author usually means. Always false for the Masterminds dialect.
    pub fn is_unbound(&self) -> bool {
        match &self.rule {
            Rule::Masterminds(_) => false,
            Rule::Blang(ranges) => ranges.is_unbound(),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.source)
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "masterminds" => Ok(Self::Masterminds),
            "blang" => Ok(Self::Blang),
            _ => Err(format!("unknown range dialect {text:?}: use masterminds or blang")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(parsed: Result<Range, RangeError>) -> (String, String) {
        let error = parsed.unwrap_err();
        let offending = error.source_text[error.position()].to_owned();
        (offending, error.hint().unwrap_or("-").to_owned())
    }

    #[test]
    #[rustfmt::skip]
    fn masterminds_errors_have_position_and_fix() {
        for (text, offending, hint) in [
            ("foobar", "foobar", r#""foobar" is no version: write major.minor.patch, for example 1.2.3"#),
            ("", "", "there is nothing here: write a version or range, for example >=1.0.0"),
            (">=1.0.0 || ", " ", "there is nothing here: write a version or range, for example >=1.0.0"),
            ("==1.11.1", "==", "write = instead of =="),
            ("> 1.0.0 !1.2.1", "!", "write != instead of !"),
            (">=1.11,,<1.13", ",,", "one comma between two terms is enough"),
            (">=1.11,", ",", "remove the comma at the end"),
            (">=1.0.0<2.0.0", "1.0.0<2.0.0", r#"put a space or comma before "<2.0.0""#),
            ("V1.2.3", "V1.2.3", "write the v in lower case: v1.2.3"),
            ("1.2.3.4", "1.2.3.4", "a version has at most three numbers"),
            (">=1.0.0 >=", "", "a version must follow the operator"),
            ("^1.1x", "1.1x", "a part is either a number or exactly one of x X *"),
            ("1.2.3-01", "1.2.3-01", "a numeric pre-release identifier must not begin with 0, and numbers must fit 64 bits"),
            (">1 - 2", ">1 - 2", r#"the hyphen range was read as ">>= 1, <= 2 ""#),
        ] {
            assert_eq!(refused(Range::masterminds(text)), (offending.into(), hint.into()), "{text:?}");
        }
        let long = "1".repeat(513);
        let error = Range::masterminds(&long).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.position()),
            ("constraint string is too long (max 512 bytes)", 512..513)
        );
        // a position never cuts a character: `ü` has the bytes 511 and 512
        let long = format!("{}ü", "1".repeat(511));
        assert_eq!(Range::masterminds(&long).unwrap_err().position(), 511..513);
        let many = vec!["1"; 33].join("||");
        assert_eq!(Range::masterminds(&many).unwrap_err().to_string(), "too many constraint groups (max 32)");
    }

    #[test]
    #[rustfmt::skip]
    fn blang_errors_have_position_and_fix() {
        for (text, offending, hint) in [
            ("", "", "there is no version here: write for example >=1.0.0 <1.2.0"),
            ("~1.11.0", "~1.11.0", "there is no ~ here: write >=1.11.0 <1.12.0"),
            ("^1.2.3", "^1.2.3", "there is no ^ here: write >=1.2.3 <2.0.0"),
            ("^0.2.3", "^0.2.3", "there is no ^ here: write >=0.2.3 <0.3.0"),
            (">=1.11, <1.13", ">=1.11,", "use a space instead of the comma: >=1.11…"),
            (">=1.0.0 <2.0", "<2.0", "write all three numbers: <2.0.0"),
            (">=v1.9.0 <v1.10.1", ">=v1.9.0", "leave out the v: >=1.9.0"),
            ("=>1.2.3", "=>1.2.3", "write >= instead of =>"),
            ("1.2.*", "1.2.*", "wildcards are written as a lower-case x: 1.2.x"),
            ("<1.0.0||>=2.0.0", "<1.0.0||>=2.0.0", "put spaces around ||"),
            (">=1.0.0<2.0.0", ">=1.0.0<2.0.0", r#"put a space before "<2.0.0""#),
            ("1.0.0 ||", "||", "remove the || at the end"),
            ("1.0.0 || || 2.0.0", "1.0.0 || || 2.0.0", "remove one of the two ||"),
            (">1.0.0-next", ">1.0.0-next", r#"">1.0.0-next" contains an x and is read as a wildcard; use >= or < with such a pre-release"#),
        ] {
            assert_eq!(refused(Range::blang(text)), (offending.into(), hint.into()), "{text:?}");
        }
    }

    #[test]
    fn range_explanation_underlines_the_fault() {
        let error = Range::masterminds("> 1.0.0 !1.2.1").unwrap_err();
        assert_eq!(
            error.explain(),
            "improper constraint: \"> 1.0.0 !1.2.1\"\n  > 1.0.0 !1.2.1\n          ^\n  write != instead of !"
        );
    }

    #[test]
    fn range_without_bound_is_recognized() {
        for (text, unbound) in [
            ("<1.0.3", true),
            (">=0.0.1", true),
            (">=1.0.0 <1.0.3", false),
            ("1.0.0", false),
            ("1.x || <3.0.0", true),
        ] {
            assert_eq!(Range::blang(text).unwrap().is_unbound(), unbound, "{text}");
        }
    }
}
