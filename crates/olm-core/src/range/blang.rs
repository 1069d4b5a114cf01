//! Ranges of blang semver v4.0.0: parser and check. Rule: fbc §12.2.
//!
//! Only the space separates and `||` must stand alone; there are no carets, tildes, commas, stars or short versions.
//! Pre-releases compare by plain precedence. Wildcards are rewritten before parsing, with the library's corners: any
//! token with an `x` in it is rewritten, `!=1.2.x` becomes something that never holds, `~1.x` becomes `1.0.0`.

use super::RangeError;
use crate::go;
use crate::version::Version;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges(Box<[Box<[Comparison]>]>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparison {
    operator: Operator,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    AtLeast,
    Less,
    AtMost,
}

impl Ranges {
    pub(super) fn contains(&self, version: &Version) -> bool {
        self.0.iter().any(|group| group.iter().all(|comparison| comparison.holds(version)))
    }

    pub(super) fn memory(&self) -> usize {
        self.0.iter().map(|group| size_of_val(group) + size_of_val(&**group)).sum()
    }

    pub(super) fn is_unbound(&self) -> bool {
        use Operator::{AtLeast, AtMost, Equal, Greater, Less};
        self.0.iter().any(|group| {
            let has = |operators: [Operator; 2]| {
                group.iter().any(|comparison| {
                    comparison.operator == Equal || operators.contains(&comparison.operator)
                })
            };
            !has([Greater, AtLeast]) || !has([Less, AtMost])
        })
    }
}

impl Comparison {
    fn holds(&self, version: &Version) -> bool {
        let order = version.cmp(&self.version);
        match self.operator {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Greater => order.is_gt(),
            Operator::AtLeast => order.is_ge(),
            Operator::Less => order.is_lt(),
            Operator::AtMost => order.is_le(),
        }
    }
}

/// A token, its inner spaces removed, with the place in the source where it was found.
struct Token {
    text: String,
    start: usize,
    end: usize,
}

pub(super) fn parse(text: &str) -> Result<Ranges, RangeError> {
    let tokens = tokens(text);
    let groups = split_groups(text, &tokens)?;
    // wildcards of all tokens are rewritten before any token is parsed
    let mut rewritten: Vec<Vec<(String, &Token)>> = Vec::with_capacity(groups.len());
    for group in groups {
        let mut parts = Vec::with_capacity(group.len());
        for token in group {
            if token.text.contains('x') {
                parts.extend(rewrite_wildcard(text, token)?.into_iter().map(|part| (part, token)));
            } else {
                parts.push((token.text.clone(), token));
            }
        }
        rewritten.push(parts);
    }
    let groups = rewritten
        .iter()
        .map(|parts| parts.iter().map(|(part, token)| comparison(text, part, token)).collect())
        .collect::<Result<_, RangeError>>()?;
    Ok(Ranges(groups))
}

/// A space ends a token unless the last other byte was one of `> < =`. Tokens of fewer than two bytes vanish.
fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut last = 0;
    let mut push = |start: usize, end: usize| {
        if end >= start + 2 {
            found.push(Token { text: text[start..end].replace(' ', ""), start, end });
        }
    };
    for (at, byte) in text.bytes().enumerate() {
        if byte != b' ' {
            last = byte;
        } else if !matches!(last, b'>' | b'<' | b'=') {
            push(start, at);
            start = at + 1;
        }
    }
    push(start, text.len());
    found
}

fn split_groups<'a>(text: &str, tokens: &'a [Token]) -> Result<Vec<&'a [Token]>, RangeError> {
    if let Some(first) = tokens.first().filter(|token| token.text == "||") {
        return Err(RangeError::new("First element in range is '||'", text, first.start..first.end)
            .hinted("remove the || at the beginning".to_owned()));
    }
    match tokens.last() {
        None => {
            return Err(RangeError::new("Last element in range is '||'", text, 0..text.len())
                .hinted("there is no version here: write for example >=1.0.0 <1.2.0".to_owned()));
        }
        Some(last) if last.text == "||" => {
            return Err(RangeError::new("Last element in range is '||'", text, last.start..last.end)
                .hinted("remove the || at the end".to_owned()));
        }
        Some(_) => {}
    }
    let groups: Vec<&[Token]> = tokens.split(|token| token.text == "||").collect();
    if groups.iter().any(|group| group.is_empty()) {
        // the library accepts this and crashes when it gets there
        return Err(RangeError::new("Empty element between two '||' in range", text, 0..text.len())
            .hinted("remove one of the two ||".to_owned()));
    }
    Ok(groups)
}

/// Operator and version of a token: the version begins at the first digit.
fn split_operator<'a>(text: &str, part: &'a str, token: &Token) -> Result<(&'a str, &'a str), RangeError> {
    match part.find(is_digit) {
        Some(at) => Ok((part[..at].trim(), &part[at..])),
        None => {
            let hint = match part.chars().next() {
                Some('<' | '>' | '=' | '!') if token.text.contains('x') && token.text != part => {
                    Some(format!(
                        "{} contains an x and is read as a wildcard; use >= or < with such a pre-release",
                        go::quote(&token.text)
                    ))
                }
                Some('*') => Some("there is no *: leave the range out, or write >=0.0.0".to_owned()),
                _ => None,
            };
            Err(RangeError::new(
                format!("Could not get version from string: {}", go::quote(part)),
                text,
                token.start..token.end,
            )
            .hinted(hint))
        }
    }
}

fn comparison(text: &str, part: &str, token: &Token) -> Result<Comparison, RangeError> {
    let (operator_text, version_text) = split_operator(text, part, token)?;
    let refuse = |why: String, hint: Option<String>| {
        RangeError::new(
            format!("Could not parse Range {}: {why}", go::quote(part)),
            text,
            token.start..token.end,
        )
        .hinted(hint)
    };
    let joined = format!("{operator_text}{version_text}");
    let operator = match operator_text {
        "" | "=" | "==" => Operator::Equal,
        "!" | "!=" => Operator::NotEqual,
        ">" => Operator::Greater,
        ">=" => Operator::AtLeast,
        "<" => Operator::Less,
        "<=" => Operator::AtMost,
        _ => {
            let why =
                format!("Could not parse comparator {} in {}", go::quote(operator_text), go::quote(&joined));
            return Err(refuse(why, operator_hint(operator_text, version_text)));
        }
    };
    let version = version_text.parse().map_err(|problem| {
        let why = format!(
            "Could not parse version {} in {}: {problem}",
            go::quote(version_text),
            go::quote(&joined)
        );
        refuse(why, version_hint(operator_text, version_text))
    })?;
    Ok(Comparison { operator, version })
}

fn operator_hint(operator: &str, version: &str) -> Option<String> {
    let replacement = match operator {
        "=>" => ">=",
        "=<" => "<=",
        "<>" => "!=",
        "===" => "=",
        "~" | "~>" | "^" => {
            let parsed: Version = version.parse().ok()?;
            let (major, minor) = (parsed.major(), parsed.minor());
            let upper = match (operator, major) {
                ("^", 1..) => format!("{}.0.0", major.checked_add(1)?),
                _ => format!("{major}.{}.0", minor.checked_add(1)?),
            };
            return Some(format!("there is no {operator} here: write >={version} <{upper}"));
        }
        _ => {
            let stripped = operator.strip_suffix('v')?;
            return Some(format!("leave out the v: {stripped}{version}"));
        }
    };
    Some(format!("write {replacement} instead of {operator}"))
}

fn version_hint(operator: &str, version: &str) -> Option<String> {
    if let Some((first, rest)) = version.split_once(',') {
        let rest = if rest.is_empty() { "" } else { " " };
        return Some(format!("use a space instead of the comma: {operator}{first}{rest}…"));
    }
    if version.contains("||") {
        return Some("put spaces around ||".to_owned());
    }
    if let Some(at) = version.find(['<', '>', '=', '!']) {
        return Some(format!("put a space before {}", go::quote(&version[at..])));
    }
    if let Some(wild) = version.strip_suffix(".*").or_else(|| version.strip_suffix(".X")) {
        return Some(format!("wildcards are written as a lower-case x: {operator}{wild}.x"));
    }
    let parts = version.split('.').count();
    (parts < 3 && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
        .then(|| format!("write all three numbers: {operator}{version}{}", ".0".repeat(3 - parts)))
}

/// What a token with an `x` stands for. Increments that fail leave an empty version, which is then refused.
fn rewrite_wildcard(text: &str, token: &Token) -> Result<Vec<String>, RangeError> {
    let (operator, version) = split_operator(text, &token.text, token)?;
    let flat = flatten(version);
    let parts: Vec<&str> = version.split('.').collect();
    let raised = || {
        let index = match parts.as_slice() {
            [_, "x"] => 0,
            [_, _, "x"] => 1,
            _ => return String::new(),
        };
        raise(&flat, index).unwrap_or_default()
    };
    Ok(match operator {
        "" | "=" | "==" => vec![format!(">={flat}"), format!("<{}", raised())],
        "!" | "!=" => vec![format!("<{flat}"), format!(">={}", raised())],
        ">" => vec![format!(">={}", raised())],
        ">=" => vec![format!(">={flat}")],
        "<" => vec![format!("<{flat}")],
        "<=" => vec![format!("<{}", raised())],
        _ => vec![flat],
    })
}

fn flatten(version: &str) -> String {
    let flat = version.replacen(".x.x", ".x", 1).replacen(".x", ".0", 1);
    if flat.split('.').count() == 2 { format!("{flat}.0") } else { flat }
}

/// Adds one to a part, in signed 64 bits that wrap.
fn raise(version: &str, index: usize) -> Option<String> {
    let mut parts: Vec<String> = version.split('.').map(str::to_owned).collect();
    let part = parts.get_mut(index)?;
    let number: i64 = part.parse().ok()?;
    *part = number.wrapping_add(1).to_string();
    Some(parts.join("."))
}

/// A decimal digit of any script, as Go's `unicode.IsDigit` sees it.
fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
        || (!c.is_ascii() && DIGIT_ZEROS.iter().any(|&zero| (zero..zero + 10).contains(&(c as u32))))
}

/// The zero of every other script's ten digits.
const DIGIT_ZEROS: &[u32] = &[
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50,
    0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066, 0x110f0,
    0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50,
    0x11d50, 0x11da0, 0x11f50, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6,
    0x1e140, 0x1e2f0, 0x1e4f0, 0x1e950, 0x1fbf0,
];
