//! Reading `olm.maxOpenShiftVersion` from a bundle's properties, as Go's code reads it. Rule: cluster-operator §6.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::Stream;

pub const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";

/// The last minor version that a bundle runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub stream: Stream,
    /// A number from 4.1 to 4.9. In YAML an unquoted 4.20 becomes the number 4.2, so the author may have meant another version.
    pub suspicious: bool,
}

/// Why a limit cannot be read. Such a bundle blocks, because its author may have meant any limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The properties are no JSON list of properties.
    #[error("could not convert olm.properties: failed to unmarshal properties annotation: {0}")]
    Properties(String),
    /// One or two things are wrong with the property, one a line.
    #[error("{0}")]
    Value(String),
}

/// The limit that a bundle's properties (the text of its annotation `olm.properties`) declare, if they do.
///
/// # Errors
/// If the text is no list of properties, if the value is no `major.minor`, and if there are two limits, be they equal.
pub fn limit(properties: &str) -> Result<Option<Limit>, LimitError> {
    read(properties, value)
}

/// As [`limit`] for a ClusterServiceVersion of OLM Classic, which may also declare `v4.18` or `4.18.0`.
///
/// # Errors
/// As [`limit`].
pub(super) fn csv_limit(properties: &str) -> Result<Option<Limit>, LimitError> {
    read(properties, |raw| value(raw).or_else(|strict| full(raw).ok_or(strict)))
}

/// A whole version without patch and pre-release, with or without quotes and `v`.
fn full(raw: &str) -> Option<Limit> {
    let text = raw.trim_matches('"').trim_start_matches('v');
    let stream = match text.split_once('+').map_or(text, |(version, _)| version).strip_suffix(".0") {
        Some(short) if short.contains('.') => Stream::short(short),
        Some(_) | None => Stream::short(text),
    };
    stream.map(|stream| Limit { stream, suspicious: false })
}

fn read(
    properties: &str,
    value: impl Fn(&str) -> Result<Limit, String>,
) -> Result<Option<Limit>, LimitError> {
    // the values as they are written: 4.20 as a number is not 4.2
    let listed: Option<Vec<Option<BTreeMap<String, &RawValue>>>> =
        serde_json::from_str(properties).map_err(|error| LimitError::Properties(error.to_string()))?;
    let mut found: Option<Result<Limit, String>> = None;
    for (index, property) in listed.into_iter().flatten().enumerate() {
        let Some(property) = property else { continue };
        let kind: Option<String> = match property.get("type") {
            Some(kind) => serde_json::from_str(kind.get())
                .map_err(|_| LimitError::Properties(format!("the type of property {index} is no string")))?,
            None => None,
        };
        if kind.as_deref() != Some(MAX_OPENSHIFT_VERSION) {
            continue;
        }
        let twice = "more than one olm.maxOpenShiftVersion found in bundle";
        match found {
            None => found = Some(value(property.get("value").map_or("", |value| value.get()))),
            Some(Ok(_)) => return Err(LimitError::Value(twice.to_owned())),
            Some(Err(first)) => return Err(LimitError::Value(format!("{first}\n{twice}"))),
        }
    }
    found.transpose().map_err(LimitError::Value)
}

/// The limit of one value, given as JSON text.
fn value(raw: &str) -> Result<Limit, String> {
    let fail = |cause: &str| format!("error converting to semver for version {raw}: {cause}");
    if raw.starts_with('"') {
        let text: String = serde_json::from_str(raw).map_err(|error| fail(&error.to_string()))?;
        return string(&text).map(|stream| Limit { stream, suspicious: false }).map_err(fail);
    }
    if raw.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        // the literal text counts: `[1-9][0-9]*` `.` `(0|[1-9][0-9]*)`
        let number = Stream::short(raw).filter(|stream| stream.major > 0);
        let stream = number.ok_or_else(|| fail("a number must be written as major.minor"))?;
        let suspicious = stream.major == 4 && (1..=9).contains(&stream.minor);
        return Ok(Limit { stream, suspicious });
    }
    Err(fail("it must be a string such as \"4.20\""))
}

/// Go's tolerant reading of a version with two parts.
fn string(text: &str) -> Result<Stream, &'static str> {
    const FORM: &str = "it must be major.minor such as 4.20";
    if text.starts_with('v') {
        return Err("it must not begin with v");
    }
    if text.matches('.').count() != 1 {
        return Err(FORM);
    }
    let trimmed = text.trim();
    let trimmed = trimmed.strip_prefix('v').unwrap_or(trimmed);
    let (major, minor) = trimmed.split_once('.').ok_or(FORM)?;
    let part = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    };
    match (part(major), part(minor)) {
        (Some(major), Some(minor)) => Ok(Stream::new(major, minor)),
        _ => Err(FORM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> String {
        let text = format!(r#"[{{"type":"other"}},{{"type":"olm.maxOpenShiftVersion","value":{value}}}]"#);
        match limit(&text) {
            Ok(Some(limit)) => limit.stream.to_string(),
            Ok(None) => "none".to_owned(),
            Err(LimitError::Value(text)) => text,
            Err(LimitError::Properties(_)) => "no properties".to_owned(),
        }
    }

    #[test]
    fn limit_accepts_each_form_of_a_value() {
        for (value, want) in [
            (r#""4.18""#, "4.18"),
            (r#""5.0""#, "5.0"),
            (r#""4.018""#, "4.18"),
            (r#""04.18""#, "4.18"),
            (r#"" 4.18 ""#, "4.18"),
            (r#"" v4.18""#, "4.18"),
            (r#""0.5""#, "0.5"),
            (r#""4.00""#, "4.0"),
            (r#""4\u002e18""#, "4.18"),
            ("4.18", "4.18"),
            ("5.0", "5.0"),
            ("4.20", "4.20"),
            ("4.180", "4.180"),
            ("4.2", "4.2"),
        ] {
            assert_eq!(read(value), want, "{value}");
        }
        for value in [
            r#""4.18.0""#,
            r#""v4.18""#,
            r#""4""#,
            r#""""#,
            r#""4.""#,
            r#"".18""#,
            r#""4.x""#,
            r#""4. 18""#,
            r#""4.18-rc1""#,
            r#""4.18-rc.1""#,
            r#""4.18+b""#,
            r#""+4.18""#,
            r#""-4.18""#,
            r#""vv4.18""#,
            r#""4.99999999999999999999""#,
            "5.00",
            "4.019",
            "4.19e1",
            "4e1",
            "4",
            "0.5",
            "-4.18",
            "true",
            "null",
            "[]",
            r#"["4.18"]"#,
            "{}",
        ] {
            let want = format!("error converting to semver for version {value}: ");
            assert!(read(value).starts_with(&want), "{value}: {}", read(value));
        }
        // not JSON at all
        assert_eq!(read("04.18"), "no properties");
    }

    #[test]
    fn csv_limit_accepts_whole_versions() {
        for (value, want) in [
            (r#""4.18""#, Some((4, 18))),
            ("4.18", Some((4, 18))),
            (r#""v4.18""#, Some((4, 18))),
            (r#""4.18.0""#, Some((4, 18))),
            (r#""4.18.0+b""#, Some((4, 18))),
            (r#""4.10.0""#, Some((4, 10))),
            (r#""4.18.1""#, None),
            (r#""4.18.0-rc1""#, None),
            (r#""""#, None),
            ("true", None),
        ] {
            let text = format!(r#"[{{"type":"olm.maxOpenShiftVersion","value":{value}}}]"#);
            let want = want.map(|(major, minor)| Stream::new(major, minor));
            assert_eq!(csv_limit(&text).ok().flatten().map(|limit| limit.stream), want, "{value}");
        }
    }

    #[test]
    fn limit_reads_lists_of_properties() {
        for (text, want) in [
            ("[]", "Ok(None)"),
            ("null", "Ok(None)"),
            (" [ null , {} ] ", "Ok(None)"),
            (r#"[{"type":null,"value":1}]"#, "Ok(None)"),
            (r#"[{"type":"olm.maxOpenshiftVersion","value":"4.18"}]"#, "Ok(None)"),
            (r#"[{"value":"4.18"},{"type":"olm.gvk","value":{"kind":"A"},"more":1}]"#, "Ok(None)"),
        ] {
            assert_eq!(format!("{:?}", limit(text)), want, "{text}");
        }
        for text in ["", "abcd", "{}", "[1]", "[[]]", r#"[{"type":1}]"#, "[] []", r#"{"type":"x"}"#, "\"\""] {
            let error = limit(text).unwrap_err().to_string();
            let want = "could not convert olm.properties: failed to unmarshal properties annotation: ";
            assert!(error.starts_with(want), "{text}: {error}");
        }
    }

    #[test]
    fn limit_may_be_absent_but_not_repeated() {
        let property = |value: &str| format!(r#"{{"type":"olm.maxOpenShiftVersion"{value}}}"#);
        let error = limit(&format!("[{}]", property(""))).unwrap_err().to_string();
        assert!(error.starts_with("error converting to semver for version : "), "{error}");
        let twice = "more than one olm.maxOpenShiftVersion found in bundle";
        let good = property(r#","value":"4.18""#);
        assert_eq!(limit(&format!("[{good},{good}]")).unwrap_err().to_string(), twice);
        let error = limit(&format!("[{},{good}]", property(r#","value":"x""#))).unwrap_err().to_string();
        let (first, second) = error.split_once('\n').unwrap();
        assert!(first.starts_with("error converting to semver for version \"x\": "), "{first}");
        assert_eq!(second, twice);
    }

    #[test]
    fn limit_rejects_unquoted_yaml_numbers() {
        let suspicious = |value: &str| {
            let text = format!(r#"[{{"type":"olm.maxOpenShiftVersion","value":{value}}}]"#);
            limit(&text).unwrap().unwrap().suspicious
        };
        for (value, want) in [("4.2", true), ("4.20", false), ("\"4.2\"", false), ("5.0", false)] {
            assert_eq!(suspicious(value), want, "{value}");
        }
    }
}
