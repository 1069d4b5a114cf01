//! The meaning of YAML scalars: the YAML 1.1 rules as Go's library applies them (fbc §3.3).

use crate::text::{decode_base64, replace_invalid};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// Above `i64::MAX`.
    Uint(u64),
    /// May be infinite or NaN.
    Float(f64),
    Text(&'a str),
    /// `<<`: a merge when it is a mapping key, text elsewhere.
    Merge,
}

impl Scalar<'_> {
    /// The short tag that Go's messages use.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Int(_) | Self::Uint(_) => "!!int",
            Self::Float(_) => "!!float",
            Self::Text(_) => "!!str",
            Self::Merge => "!!merge",
        }
    }
}

/// Resolves a plain scalar without a tag.
pub(crate) fn resolve(text: &str) -> Scalar<'_> {
    let Some(&first) = text.as_bytes().first() else { return Scalar::Null };
    match first {
        b'~' | b'n' | b'N' | b'y' | b'Y' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'<' => word(text),
        b'.' => word(text).or_else(|| dotted(text).map(Scalar::Float), text),
        b'+' | b'-' => word(text).or_else(|| number(text), text),
        b'0'..=b'9' => number(text).unwrap_or(Scalar::Text(text)),
        _ => Scalar::Text(text),
    }
}

impl<'a> Scalar<'a> {
    fn or_else(self, other: impl FnOnce() -> Option<Scalar<'a>>, text: &'a str) -> Scalar<'a> {
        match self {
            Self::Text(_) => other().unwrap_or(Self::Text(text)),
            known => known,
        }
    }
}

fn word(text: &str) -> Scalar<'_> {
    match text {
        "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        "<<" => Scalar::Merge,
        _ => Scalar::Text(text),
    }
}

/// `.5`: here a `_` must stand between two digits.
fn dotted(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let strict = memchr::memchr_iter(b'_', bytes).all(|at| at > 0 && digit(at - 1) && digit(at + 1));
    strict.then(|| float(&text.replace('_', "")))?
}

/// An integer in Go's base-0 syntax after `_` is dropped, else a float.
fn number(text: &str) -> Option<Scalar<'static>> {
    let stripped: String;
    let plain = if text.contains('_') {
        stripped = text.replace('_', "");
        stripped.as_str()
    } else {
        text
    };
    integer(plain).or_else(|| float(plain).map(Scalar::Float))
}

fn integer(text: &str) -> Option<Scalar<'static>> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = digits.len() != text.len();
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // a second sign is let through after `0b`, nowhere else
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(digits) if radix == 2 && !signed => (true, digits),
        _ => (negative, digits.strip_prefix('+').filter(|_| radix == 2 && !signed).unwrap_or(digits)),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let size = u64::from_str_radix(digits, radix).ok()?;
    match (negative, i64::try_from(size)) {
        (false, Ok(size)) => Some(Scalar::Int(size)),
        (true, Ok(size)) => Some(Scalar::Int(-size)),
        (true, Err(_)) if size == 1 << 63 => Some(Scalar::Int(i64::MIN)),
        (true, Err(_)) => None,
        (false, Err(_)) if signed => None,
        (false, Err(_)) => Some(Scalar::Uint(size)),
    }
}

/// Whether an integer has another value as a double, as its text is written.
pub(crate) fn loses_digits(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']).trim_start_matches('0');
    digits.len() > 15
        && digits.bytes().all(|b| b.is_ascii_digit())
        && digits.parse::<f64>().is_ok_and(|number| number.to_string() != digits)
}

impl Scalar<'_> {
    /// Whether normalised JSON has another value for it; `text` is the scalar as written.
    pub(crate) fn loses_digits(&self, text: &str) -> bool {
        match self {
            Self::Int(number) => loses_digits(&number.to_string()),
            Self::Uint(number) => loses_digits(&number.to_string()),
            Self::Float(_) => loses_digits(text),
            _ => false,
        }
    }
}

/// `[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?`, finite.
pub(crate) fn float(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digits = |at: usize| bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let whole = digits(at);
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if whole + fraction == 0 {
            return None;
        }
        at += 1 + fraction;
    } else if whole == 0 {
        return None;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at.min(bytes.len()));
        if exponent == 0 {
            return None;
        }
        at += exponent;
    }
    if at != bytes.len() {
        return None;
    }
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

pub(crate) enum Tagged<'a> {
    Scalar(Scalar<'a>),
    Binary(String),
}

/// Resolves a scalar by its tag, if it has one that means something, else by its style.
pub(crate) fn tagged<'a>(tag: Option<&str>, value: &'a str, plain: bool) -> Result<Tagged<'a>, String> {
    let short = tag.map(|tag| tag.strip_prefix("tag:yaml.org,2002:").unwrap_or(tag));
    let resolved = match short {
        None if plain => resolve(value),
        None => Scalar::Text(value),
        Some("binary") => return binary(value).map(Tagged::Binary),
        Some("merge") if value == "<<" => Scalar::Merge,
        Some(tag @ ("int" | "float" | "bool" | "null")) => {
            let tag = format!("!!{tag}");
            match resolve(value) {
                scalar if scalar.tag() == tag => scalar,
                Scalar::Int(number) if tag == "!!float" => Scalar::Float(number as f64),
                scalar => {
                    return Err(format!("yaml: cannot decode {} `{value}` as a {tag}", scalar.tag()));
                }
            }
        }
        Some("timestamp") if !is_timestamp(value) => {
            return Err(format!("yaml: cannot decode {} `{value}` as a !!timestamp", resolve(value).tag()));
        }
        Some(_) => Scalar::Text(value),
    };
    Ok(Tagged::Scalar(resolved))
}

/// Roughly: a date, perhaps with a time behind it. Timestamps stay text, whatever their value.
fn is_timestamp(value: &str) -> bool {
    let date = value.split(['T', 't', ' ']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split('-').collect();
    let digits = |part: &str, most: usize| {
        (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
    };
    matches!(parts.as_slice(), [year, month, day] if year.len() == 4 && digits(year, 4) && digits(month, 2) && digits(day, 2))
}

fn binary(value: &str) -> Result<String, String> {
    let bytes =
        decode_base64(value).map_err(|_| "yaml: !!binary value contains invalid base64 data".to_owned())?;
    let mut clean = Vec::new();
    replace_invalid(&bytes, &mut clean);
    Ok(String::from_utf8_lossy(&clean).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_resolves_yaml_1_1_as_go() {
        use Scalar::{Bool, Float, Int, Merge, Null, Text, Uint};
        for (text, want) in [
            ("", Null),
            ("~", Null),
            ("null", Null),
            ("nUll", Text("nUll")),
            ("y", Bool(true)),
            ("Off", Bool(false)),
            ("tRue", Text("tRue")),
            ("0777", Int(511)),
            ("0o777", Int(511)),
            ("0xff", Int(255)),
            ("0b11", Int(3)),
            ("1_000", Int(1000)),
            ("0x_1", Int(1)),
            ("_1", Text("_1")),
            ("08", Float(8.0)),
            ("089", Float(89.0)),
            ("0x1G", Text("0x1G")),
            ("0o", Text("0o")),
            ("0b2", Text("0b2")),
            ("0b-1", Int(-1)),
            ("0b+1", Int(1)),
            ("-0b-1", Text("-0b-1")),
            ("0o-7", Text("0o-7")),
            (".5_0", Float(0.5)),
            (".5__0", Text(".5__0")),
            ("._5", Text("._5")),
            ("1e_5", Float(100000.0)),
            ("0777777777777777777777777", Float(777777777777777777777777.0)),
            ("0xfffffffffffffffffff", Text("0xfffffffffffffffffff")),
            ("+0x1", Int(1)),
            ("-0x1", Int(-1)),
            ("-0", Int(0)),
            ("-0.0", Float(-0.0)),
            ("1.10", Float(1.1)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            ("1e3", Float(1000.0)),
            ("12e03", Float(12000.0)),
            ("1e", Text("1e")),
            ("1e400", Text("1e400")),
            (".", Text(".")),
            ("-", Text("-")),
            (".inf", Float(f64::INFINITY)),
            ("-.INF", Float(f64::NEG_INFINITY)),
            ("1:30", Text("1:30")),
            ("2020-01-02", Text("2020-01-02")),
            ("18446744073709551615", Uint(u64::MAX)),
            ("18446744073709551616", Float(18446744073709551616.0)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("-9223372036854775809", Float(-9223372036854775809.0)),
            ("<<", Merge),
            ("=", Text("=")),
        ] {
            assert_eq!(resolve(text), want, "{text:?}");
        }
        assert!(matches!(resolve(".NaN"), Float(x) if x.is_nan()));
    }
}
