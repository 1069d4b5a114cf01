//! The members of one object while it is written: where each begins and ends in the output, and the one
//! permutation that sorts them (by the UTF-8 bytes of the key; of equal keys the last one stays).

use std::{borrow::Cow, cmp::Ordering, ops::Range};

use crate::text::unescape_json;

/// One member of an object in normalised output: `"key":value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Offset of the key's opening quote.
    pub(crate) start: usize,
    /// Offset of the value's first byte; the colon is just before it.
    pub(crate) value: usize,
    /// One past the value's last byte.
    pub(crate) end: usize,
}

impl Member {
    /// Where the key's text lies, without its quotes, still escaped.
    pub fn key(&self) -> Range<usize> {
        self.start + 1..self.value - 2
    }

    pub fn value(&self) -> Range<usize> {
        self.value..self.end
    }

    pub fn key_text<'a>(&self, json: &'a [u8]) -> Cow<'a, [u8]> {
        unescape_json(json.get(self.key()).unwrap_or_default())
    }
}

/// Orders two encoded keys by their decoded text. Normalised escapes are unique, so equal text means equal
/// bytes.
pub(crate) fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    let escaped = |key| memchr::memchr(b'\\', key).is_some();
    if escaped(a) || escaped(b) { unescape_json(a).cmp(&unescape_json(b)) } else { a.cmp(b) }
}

/// Closes an object: sorts `members` (which fill `out` from `body` to its end, separated by commas) and drops
/// all but the last of equal keys. `scratch` is lent so that it need not be allocated each time.
pub(crate) fn sort_members(
    members: &mut Vec<Member>,
    first: usize,
    body: usize,
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) {
    let own = &mut members[first..];
    {
        let key = |m: &Member| &out[m.key()];
        own.sort_by(|a, b| compare_keys(key(a), key(b)));
    }
    scratch.clear();
    let mut kept = first;
    for at in first..members.len() {
        let member = members[at].clone();
        let next_is_equal = members.get(at + 1).is_some_and(|next| out[next.key()] == out[member.key()]);
        if next_is_equal {
            continue;
        }
        if !scratch.is_empty() {
            scratch.push(b',');
        }
        let start = body + scratch.len();
        scratch.extend_from_slice(&out[member.start..member.end]);
        members[kept] =
            Member { start, value: start + (member.value - member.start), end: body + scratch.len() };
        kept += 1;
    }
    members.truncate(kept);
    out.truncate(body);
    out.extend_from_slice(scratch);
}
