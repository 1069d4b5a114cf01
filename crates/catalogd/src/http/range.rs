//! `Range: bytes=…` on files of known size: none, one or several parts, as static file servers answer it.

use crate::store::Section;

/// More parts than this in one request are not served as parts: the whole file is.
const MAX_PARTS: usize = 64;

/// What a `Range` header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ranges {
    /// The whole file: an empty file, or parts that together exceed it.
    Whole,
    /// These parts, in the order asked for.
    Parts(Vec<Section>),
    /// 416: no part lies within the file.
    Beyond,
    /// 416: not a range of bytes.
    Malformed,
}

/// Reads a `Range` header for a file of `size` bytes.
#[must_use]
pub(super) fn parse(header: &str, size: u64) -> Ranges {
    let Some(list) = header.strip_prefix("bytes=") else { return Ranges::Malformed };
    let mut parts = Vec::new();
    let mut beyond = false;
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let Some((first, last)) = item.split_once('-') else { return Ranges::Malformed };
        let (first, last) = (first.trim(), last.trim());
        let (start, end) = match (number(first), number(last)) {
            _ if first.is_empty() => match number(last) {
                Some(suffix) => (size.saturating_sub(suffix), size),
                None => return Ranges::Malformed,
            },
            (Some(start), _) if last.is_empty() => (start, size),
            (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(size)),
            _ => return Ranges::Malformed,
        };
        if start >= size {
            // A suffix of zero bytes overlaps nothing either.
            beyond = true;
            continue;
        }
        parts.push(Section { start, len: end - start });
    }
    let total = parts.iter().fold(0_u64, |total, part| total.saturating_add(part.len));
    match (parts.is_empty(), beyond) {
        (true, true) if size > 0 => Ranges::Beyond,
        (true, _) => Ranges::Whole,
        (false, _) if total > size || parts.len() > MAX_PARTS => Ranges::Whole,
        (false, _) => Ranges::Parts(parts),
    }
}

/// Digits only: no sign, no space.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_headers_become_parts() {
        let parts = |parts: &[(u64, u64)]| {
            Ranges::Parts(parts.iter().map(|&(start, len)| Section { start, len }).collect())
        };
        for (header, want) in [
            ("bytes=0-9", parts(&[(0, 10)])),
            ("bytes=90-", parts(&[(90, 10)])),
            ("bytes=-10", parts(&[(90, 10)])),
            ("bytes=-1000", parts(&[(0, 100)])),
            ("bytes=0-1,5-6", parts(&[(0, 2), (5, 2)])),
            ("bytes= 5-6 , 0-1", parts(&[(5, 2), (0, 2)])),
            ("bytes=95-1000", parts(&[(95, 5)])),
            ("bytes=0-1,500-600", parts(&[(0, 2)])),
            ("bytes=100-", Ranges::Beyond),
            ("bytes=99999999-", Ranges::Beyond),
            ("bytes=-0", Ranges::Beyond),
            ("bytes=0-99,0-99", Ranges::Whole),
            ("bytes=", Ranges::Whole),
            ("bytes=5-4", Ranges::Malformed),
            ("bytes=a-b", Ranges::Malformed),
            ("bytes=+1-2", Ranges::Malformed),
            ("bytes=5", Ranges::Malformed),
            ("bytes=-", Ranges::Malformed),
            ("bytes=--5", Ranges::Malformed),
            ("lines=0-1", Ranges::Malformed),
            ("bytes=99999999999999999999999-", Ranges::Beyond),
        ] {
            assert_eq!(parse(header, 100), want, "{header}");
        }
        assert_eq!(parse("bytes=0-9", 0), Ranges::Whole, "an empty file has no parts to miss");
    }
}
