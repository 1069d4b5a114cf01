//! Conditional requests: entity tags and dates, in the order of RFC 9110 §13.2.2.
//!
//! Tags are strong and name one representation (decision 16). A date that cannot be read is ignored (decision 27).

use http::header::{self, HeaderMap, HeaderName};

/// What a representation is compared by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Validators {
    /// Entity tag with its quotes.
    pub tag: String,
    /// Seconds since 1970.
    pub modified: i64,
}

/// What the conditions of a request lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Answer in full.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Seconds since 1970 as an HTTP date.
#[must_use]
pub fn http_date(seconds: i64) -> String {
    let since = std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}

/// The first value of a date header, in seconds since 1970.
fn date(headers: &HeaderMap, name: &HeaderName) -> Option<i64> {
    let time = httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()?;
    match time.duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).ok(),
        Err(before) => i64::try_from(before.duration().as_secs()).ok().map(|seconds| -seconds),
    }
}

/// Whether a list of tags (`*`, `"a"`, `W/"b"`) names `tag`. Weak tags count only where `weak` is allowed. A header without a value is
/// none, as in Go's file server.
fn names(headers: &HeaderMap, name: &HeaderName, tag: &str, weak: bool) -> Option<bool> {
    let mut present = false;
    for value in headers.get_all(name) {
        present |= !value.is_empty();
        let mut rest = value.to_str().unwrap_or("").trim_start_matches([',', ' ', '\t']);
        while !rest.is_empty() {
            if rest.starts_with('*') {
                return Some(true);
            }
            let (is_weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |quoted| (true, quoted));
            let Some(end) = quoted.strip_prefix('"').and_then(|inner| inner.find('"')) else { break };
            let (found, behind) = quoted.split_at(end + 2);
            if found == tag && (weak || !is_weak) {
                return Some(true);
            }
            rest = behind.trim_start_matches([',', ' ', '\t']);
        }
    }
    present.then_some(false)
}

/// Evaluates `If-Match`, `If-Unmodified-Since`, `If-None-Match` and `If-Modified-Since` of a GET or HEAD.
#[must_use]
pub(super) fn evaluate(headers: &HeaderMap, validators: &Validators) -> Decision {
    match names(headers, &header::IF_MATCH, &validators.tag, false) {
        Some(false) => return Decision::Failed,
        Some(true) => {}
        None => {
            if date(headers, &header::IF_UNMODIFIED_SINCE).is_some_and(|since| validators.modified > since) {
                return Decision::Failed;
            }
        }
    }
    match names(headers, &header::IF_NONE_MATCH, &validators.tag, true) {
        Some(true) => Decision::NotModified,
        Some(false) => Decision::Proceed,
        None => match date(headers, &header::IF_MODIFIED_SINCE) {
            Some(since) if validators.modified <= since => Decision::NotModified,
            _ => Decision::Proceed,
        },
    }
}

/// Whether `If-Range` allows a partial answer; absent allows it.
#[must_use]
pub(super) fn range_allowed(headers: &HeaderMap, validators: &Validators) -> bool {
    let Some(value) = headers.get(header::IF_RANGE).filter(|value| !value.is_empty()) else { return true };
    match value.to_str() {
        Ok(text) if text.starts_with('"') => text == validators.tag,
        Ok(text) if text.starts_with("W/") => false,
        Ok(_) => date(headers, &header::IF_RANGE) == Some(validators.modified),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: &str = "Tue, 14 Nov 2023 22:13:20 GMT"; // 1_700_000_000
    const BEFORE: &str = "Mon, 01 Jan 2001 00:00:00 GMT";
    const AFTER: &str = "Fri, 01 Jan 2100 00:00:00 GMT";

    fn validators() -> Validators {
        Validators { tag: "\"d\"".to_owned(), modified: 1_700_000_000 }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn preconditions_table() {
        use Decision::{Failed, NotModified, Proceed};
        for (pairs, want) in [
            (&[][..], Proceed),
            (&[("if-modified-since", DAY)], NotModified),
            (&[("if-modified-since", AFTER)], NotModified),
            (&[("if-modified-since", BEFORE)], Proceed),
            (&[("if-modified-since", "nonsense")], Proceed),
            (&[("if-modified-since", "Tuesday, 14-Nov-23 22:13:20 GMT")], NotModified),
            (&[("if-modified-since", "Tue Nov 14 22:13:20 2023")], NotModified),
            (&[("if-unmodified-since", BEFORE)], Failed),
            (&[("if-unmodified-since", DAY)], Proceed),
            (&[("if-unmodified-since", "nonsense")], Proceed),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"d\"")], NotModified),
            (&[("if-none-match", "W/\"d\"")], NotModified),
            (&[("if-none-match", "\"a\", \"d\"")], NotModified),
            (&[("if-none-match", "\"x\"")], Proceed),
            (&[("if-none-match", "\"x\""), ("if-modified-since", AFTER)], Proceed),
            (&[("if-none-match", "d")], Proceed),
            (&[("if-match", "*")], Proceed),
            (&[("if-match", "\"d\"")], Proceed),
            (&[("if-match", "W/\"d\"")], Failed),
            (&[("if-match", "\"x\"")], Failed),
            (&[("if-match", "\"d\""), ("if-unmodified-since", BEFORE)], Proceed),
            (&[("if-match", "*"), ("if-none-match", "*")], NotModified),
            (&[("if-none-match", ", \"d\"")], NotModified),
            (&[("if-match", ",")], Failed),
            (&[("if-match", "")], Proceed),
            (&[("if-match", ""), ("if-unmodified-since", BEFORE)], Failed),
            (&[("if-none-match", ""), ("if-modified-since", DAY)], NotModified),
        ] {
            assert_eq!(evaluate(&headers(pairs), &validators()), want, "{pairs:?}");
        }
    }

    #[test]
    fn preconditions_if_range_needs_the_same_representation() {
        for (value, want) in [
            ("\"d\"", true),
            ("\"x\"", false),
            ("W/\"d\"", false),
            (DAY, true),
            (BEFORE, false),
            (AFTER, false),
            ("x", false),
            ("", true),
        ] {
            assert_eq!(range_allowed(&headers(&[("if-range", value)]), &validators()), want, "{value}");
        }
        assert!(range_allowed(&HeaderMap::new(), &validators()));
    }
}
