//! Constraints of Masterminds semver v3.5.0: parser and check. Rule: fbc §13.
//!
//! The library works with regular expressions over the whole text. Their effect is reproduced by scanning: all of
//! them are unambiguous, because no version contains a separator. Its special cases are kept, among them the stray bar
//! in the class of a version part, the textual rewrite of hyphen ranges, and `^*` that matches 0.0.0 only.

use std::cmp::Ordering;

use super::RangeError;
use super::loose::{LooseVersion, Tested};
use crate::go;

/// Longest constraint in bytes.
const MAX_CONSTRAINT: usize = 512;
const MAX_GROUPS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Constraints(Box<[Group]>);

/// Terms that must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    terms: Box<[Term]>,
    /// Whether some term has a pre-release; otherwise tested pre-releases are refused.
    prereleases: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    operator: Operator,
    numbers: [u64; 3],
    pre: Box<str>,
    /// First part that is missing or a wildcard.
    open: Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    AtLeast,
    AtMost,
    Tilde,
    Caret,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    None,
    Patch,
    Minor,
    Major,
}

impl Constraints {
    #[inline]
    pub(super) fn check(&self, version: &Tested<'_>) -> bool {
        self.0.iter().any(|group| {
            (group.prereleases || version.pre.is_empty())
                && group.terms.iter().all(|term| term.check(version))
        })
    }
}

impl Constraints {
    pub(super) fn memory(&self) -> usize {
        self.0.iter().map(|group| size_of_val(group) + size_of_val(&*group.terms)).sum()
    }
}

impl Term {
    #[inline]
    fn check(&self, version: &Tested<'_>) -> bool {
        let [major, minor, patch] = version.numbers;
        let [c_major, c_minor, c_patch] = self.numbers;
        let order = version.compare(Tested { numbers: self.numbers, pre: &self.pre });
        let same_major = major == c_major;
        let same_minor = same_major && minor == c_minor;
        match (self.operator, self.open) {
            (Operator::Equal, Open::None) => order == Ordering::Equal,
            (Operator::NotEqual, Open::None | Open::Major) => order != Ordering::Equal,
            (Operator::NotEqual, Open::Minor) => !same_major,
            // on the same minor the library looks at pre-releases only, and only if there are any
            (Operator::NotEqual, Open::Patch) => !same_minor || *version.pre != *self.pre,
            (Operator::Greater, Open::None) => order == Ordering::Greater,
            (Operator::Greater, Open::Patch) => (major, minor) > (c_major, c_minor),
            (Operator::Greater, Open::Minor) => major > c_major,
            (Operator::Greater, Open::Major) => major > 0 || order == Ordering::Greater,
            (Operator::Less, _) => order == Ordering::Less,
            (Operator::AtLeast, _) => order != Ordering::Less,
            (Operator::AtMost, Open::None) => order != Ordering::Greater,
            (Operator::AtMost, Open::Patch | Open::Major) => (major, minor) <= (c_major, c_minor),
            (Operator::AtMost, Open::Minor) => major <= c_major,
            // ~0.0.0 and ~0.0.0-pre have no upper end
            (Operator::Tilde, Open::None) if self.numbers == [0; 3] => order != Ordering::Less,
            (Operator::Tilde, Open::None) | (Operator::Equal | Operator::Tilde, Open::Patch) => {
                order != Ordering::Less && same_minor
            }
            (Operator::Equal | Operator::Tilde, Open::Minor) => order != Ordering::Less && same_major,
            (Operator::Equal | Operator::Tilde, Open::Major) => order != Ordering::Less,
            (Operator::Caret, open) => {
                order != Ordering::Less
                    && same_major
                    && (c_major > 0
                        || open == Open::Minor
                        || (minor == c_minor && (c_minor > 0 || open == Open::Patch || patch == c_patch)))
            }
        }
    }
}

pub(super) fn parse(text: &str) -> Result<Constraints, RangeError> {
    if text.len() > MAX_CONSTRAINT {
        return Err(RangeError::new(
            format!("constraint string is too long (max {MAX_CONSTRAINT} bytes)"),
            text,
            text.floor_char_boundary(MAX_CONSTRAINT)..text.len(),
        ));
    }
    let rewritten = rewrite_hyphens(text);
    let source = Source { text, rewritten: rewritten.as_deref() };
    let body = rewritten.as_deref().unwrap_or(text);
    let groups: Vec<&str> = body.split("||").collect();
    if groups.len() > MAX_GROUPS {
        return Err(RangeError::new(
            format!("too many constraint groups (max {MAX_GROUPS})"),
            text,
            0..text.len(),
        ));
    }
    let mut parsed = Vec::with_capacity(groups.len());
    let mut start = 0;
    for group in groups {
        let terms = scan_group(group)
            .map_err(|bad| source.improper(group, start, bad))?
            .into_iter()
            .map(|scanned| parse_term(&scanned).ok_or_else(|| source.unacceptable(start, &scanned)))
            .collect::<Result<Box<[Term]>, RangeError>>()?;
        let prereleases = terms.iter().any(|term| !term.pre.is_empty());
        parsed.push(Group { terms, prereleases });
        start += group.len() + 2;
    }
    Ok(Constraints(parsed.into()))
}

/// One `operator version` of a group, as written.
struct Scanned<'a> {
    operator: Operator,
    version: &'a str,
    /// Byte offset of the version in the group.
    offset: usize,
}

/// Where and why a group is invalid.
struct GroupError {
    start: usize,
    end: usize,
    hint: Option<String>,
}

fn scan_group(group: &str) -> Result<Vec<Scanned<'_>>, GroupError> {
    let mut terms = Vec::new();
    let mut at = skip_space(group, 0);
    let malformed = |start, end, hint: &str| GroupError { start, end, hint: Some(hint.to_owned()) };
    if at == group.len() {
        return Err(malformed(
            0,
            group.len(),
            "there is nothing here: write a version or range, for example >=1.0.0",
        ));
    }
    loop {
        let operator_start = at;
        let operator_text = &group[at..at + run(&group[at..], |byte| b"=<>!~^".contains(&byte))];
        let offset = skip_space(group, at + operator_text.len());
        let version = &group[offset..offset + run(&group[offset..], |byte| byte != b',' && !is_space(byte))];
        let Some(operator) = operator_of(operator_text) else {
            return Err(GroupError {
                start: operator_start,
                end: operator_start + operator_text.len(),
                hint: operator_hint(operator_text),
            });
        };
        if version_prefix(version) != Some(version.len()) || version.is_empty() {
            return Err(GroupError {
                start: offset,
                end: (offset + version.len().max(1)).min(group.len().max(offset)),
                hint: version_hint(version),
            });
        }
        terms.push(Scanned { operator, version, offset });
        let end = offset + version.len();
        at = skip_space(group, end);
        if at == group.len() {
            return Ok(terms);
        }
        if group.as_bytes().get(at) == Some(&b',') {
            let comma = at;
            at = skip_space(group, at + 1);
            if at == group.len() {
                return Err(malformed(comma, comma + 1, "remove the comma at the end"));
            }
            if group.as_bytes().get(at) == Some(&b',') {
                return Err(malformed(comma, at + 1, "one comma between two terms is enough"));
            }
        }
    }
}

fn operator_of(text: &str) -> Option<Operator> {
    Some(match text {
        "" | "=" => Operator::Equal,
        "!=" => Operator::NotEqual,
        ">" => Operator::Greater,
        "<" => Operator::Less,
        ">=" | "=>" => Operator::AtLeast,
        "<=" | "=<" => Operator::AtMost,
        "~" | "~>" => Operator::Tilde,
        "^" => Operator::Caret,
        _ => return None,
    })
}

fn operator_hint(text: &str) -> Option<String> {
    let replacement = match text {
        "==" | "===" => "=",
        "!" | "!==" | "<>" | "><" => "!=",
        "~=" | "=~" | "~~" => "~",
        "^=" | "=^" | "^^" => "^",
        _ => {
            return Some(format!(
                "{} is no operator: use one of = != > < >= <= ~ ^ before a version",
                go::quote(text)
            ));
        }
    };
    Some(format!("write {replacement} instead of {text}"))
}

fn version_hint(version: &str) -> Option<String> {
    if version.is_empty() {
        return Some("a version must follow the operator".to_owned());
    }
    if let Some(rest) = version.strip_prefix('V')
        && version_prefix(rest) == Some(rest.len())
    {
        return Some(format!("write the v in lower case: v{rest}"));
    }
    let prefix = version_prefix(version).unwrap_or(0);
    let rest = &version[prefix..];
    Some(if prefix == 0 {
        format!("{} is no version: write major.minor.patch, for example 1.2.3", go::quote(version))
    } else if rest.starts_with(['<', '>', '=', '!', '~', '^']) {
        format!("put a space or comma before {}", go::quote(rest))
    } else if rest.starts_with('.') {
        "a version has at most three numbers".to_owned()
    } else {
        format!("{} does not belong to a version", go::quote(rest))
    })
}

fn parse_term(scanned: &Scanned<'_>) -> Option<Term> {
    let text = scanned.version.strip_prefix('v').unwrap_or(scanned.version);
    let numbers_end = text.find(['-', '+']).unwrap_or(text.len());
    let mut parts = text[..numbers_end].split('.');
    let pre_end = text.find('+').unwrap_or(text.len());
    let pre = text.get(numbers_end..pre_end).unwrap_or_default();
    let wild = |part: Option<&str>| matches!(part, None | Some("x" | "X" | "*"));
    let (major, minor, patch) = (parts.next(), parts.next(), parts.next());
    // what stands behind the first wildcard is ignored, the pre-release is not
    let (open, strict) = match (major, minor, patch) {
        (major, _, _) if wild(major) => (Open::Major, format!("0.0.0{pre}")),
        (Some(major), minor, _) if wild(minor) => (Open::Minor, format!("{major}.0.0{pre}")),
        (Some(major), Some(minor), patch) if wild(patch) => (Open::Patch, format!("{major}.{minor}.0{pre}")),
        _ => (Open::None, scanned.version.to_owned()),
    };
    let version: LooseVersion = strict.parse().ok()?;
    let tested = Tested::from(&version);
    Some(Term { operator: scanned.operator, numbers: tested.numbers, pre: tested.pre.into(), open })
}

/// The text given and what became of it, for positions in errors.
struct Source<'a> {
    text: &'a str,
    rewritten: Option<&'a str>,
}

impl Source<'_> {
    fn error(&self, message: String, start: usize, end: usize) -> RangeError {
        // positions in a rewritten text mean nothing to the reader
        let position = if self.rewritten.is_some() { 0..self.text.len() } else { start..end };
        RangeError::new(message, self.text, position)
    }

    fn improper(&self, group: &str, start: usize, bad: GroupError) -> RangeError {
        let hint = match self.rewritten {
            Some(rewritten) => Some(format!("the hyphen range was read as {}", go::quote(rewritten))),
            None => bad.hint,
        };
        self.error(format!("improper constraint: {}", go::quote(group)), start + bad.start, start + bad.end)
            .hinted(hint)
    }

    fn unacceptable(&self, start: usize, scanned: &Scanned<'_>) -> RangeError {
        let from = start + scanned.offset;
        let numbers = scanned.version.split(['-', '+']).next().unwrap_or_default();
        let is_invalid = |part: &str| !part.bytes().all(|byte| byte.is_ascii_digit());
        let hint = if numbers.trim_start_matches('v').split('.').any(is_invalid) {
            "a part is either a number or exactly one of x X *"
        } else if scanned.version.len() > 256 {
            "a version has at most 256 bytes"
        } else if scanned.version.contains('-') {
            "a numeric pre-release identifier must not begin with 0, and numbers must fit 64 bits"
        } else {
            "numbers must fit 64 bits"
        };
        self.error("constraint parser error".to_owned(), from, from + scanned.version.len())
            .hinted(hint.to_owned())
    }
}

/// Rewrites every `V - V` to `>= V, <= V `; `None` if there is none.
///
/// The library finds all matches first and then replaces, for each, the first place where the same text occurs.
fn rewrite_hyphens(text: &str) -> Option<String> {
    let mut rewritten: Option<String> = None;
    let mut at = 0;
    while let Some(found) = find_hyphen_range(text, at) {
        let now = format!(">= {}, <= {} ", &text[found.first], &text[found.second]);
        let current = rewritten.as_deref().unwrap_or(text);
        rewritten = Some(current.replacen(&text[found.start..found.end], &now, 1));
        at = found.end;
    }
    rewritten
}

struct HyphenRange {
    start: usize,
    end: usize,
    first: std::ops::Range<usize>,
    second: std::ops::Range<usize>,
}

/// The leftmost match of `\s*(V)\s+-\s+(V)\s*` from `from` on. A match may begin inside a version.
fn find_hyphen_range(text: &str, from: usize) -> Option<HyphenRange> {
    let bytes = text.as_bytes();
    (from..text.len()).filter(|&start| text.is_char_boundary(start)).find_map(|start| {
        let first = skip_space(text, start);
        // a version holds no space, so the first one can only end at the next space
        let first_end = first + run(&text[first..], |byte| !is_space(byte));
        if first == first_end || version_prefix(&text[first..first_end]) != Some(first_end - first) {
            return None;
        }
        let hyphen = skip_space(text, first_end);
        let second = skip_space(text, hyphen + 1);
        if hyphen == first_end || bytes.get(hyphen) != Some(&b'-') || second == hyphen + 1 {
            return None;
        }
        let second_end = second + version_prefix(&text[second..])?;
        Some(HyphenRange {
            start,
            end: skip_space(text, second_end),
            first: first..first_end,
            second: second..second_end,
        })
    })
}

/// Length of the longest version at the beginning of a text: optional `v`, one to three parts of `0-9xX*|`, optional
/// pre-release and build.
fn version_prefix(text: &str) -> Option<usize> {
    let part = |at: usize| {
        text.get(at..)
            .map_or(0, |rest| run(rest, |byte| matches!(byte, b'0'..=b'9' | b'x' | b'X' | b'*' | b'|')))
    };
    let byte_at = |at: usize| text.as_bytes().get(at).copied();
    let mut at = usize::from(text.starts_with('v'));
    match part(at) {
        0 => return None,
        length => at += length,
    }
    for _ in 0..2 {
        match part(at + 1) {
            length if length > 0 && byte_at(at) == Some(b'.') => at += 1 + length,
            _ => break,
        }
    }
    for mark in [b'-', b'+'] {
        if byte_at(at) == Some(mark) {
            at += identifiers_prefix(&text[at + 1..]).map_or(0, |length| length + 1);
        }
    }
    Some(at)
}

/// Length of the longest dot-separated list of `[0-9A-Za-z-]+` at the beginning of a text.
fn identifiers_prefix(text: &str) -> Option<usize> {
    let identifier = |at: usize| {
        text.get(at..).map_or(0, |rest| run(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'-'))
    };
    let mut at = identifier(0);
    if at == 0 {
        return None;
    }
    while text.as_bytes().get(at) == Some(&b'.') && identifier(at + 1) > 0 {
        at += 1 + identifier(at + 1);
    }
    Some(at)
}

fn run(text: &str, accepts: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|&byte| accepts(byte)).count()
}

fn skip_space(text: &str, at: usize) -> usize {
    at + text.get(at..).map_or(0, |rest| run(rest, is_space))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}
