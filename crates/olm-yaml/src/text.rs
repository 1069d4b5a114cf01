//! JSON string text: where a plain run ends, how a string is written (fbc §4.2) and read back.

use std::sync::LazyLock;

use base64::{
    DecodeError, Engine as _,
    engine::{DecodePaddingMode, GeneralPurposeConfig},
};

const BASE64_AS_GO: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
    .with_decode_allow_trailing_bits(true);

/// Uses vector instructions if the processor has them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static BASE64: LazyLock<base64::engine::Simd> =
    LazyLock::new(|| base64::engine::Simd::standard(BASE64_AS_GO));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static BASE64: LazyLock<base64::engine::GeneralPurpose> =
    LazyLock::new(|| base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, BASE64_AS_GO));

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Length of the run at the head of `bytes` that may be copied as it is: no `"`, `\`, control byte or 0xE2
/// (the first byte of U+2028 and U+2029, which are escaped).
#[inline]
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    // short strings: one word after the other
    while at < 32 {
        let Some(word) = bytes.get(at..at + 8).and_then(|w| <[u8; 8]>::try_from(w).ok()) else {
            return at + slow_run(&bytes[at..]);
        };
        let found = special_in(u64::from_le_bytes(word));
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    // long ones: 32 bytes at a time, folded into one flag, which the compiler turns into vector code
    let mut chunks = bytes[at..].chunks_exact(32);
    for chunk in chunks.by_ref() {
        let found = chunk
            .iter()
            .fold(false, |found, &b| found | (b == b'"') | (b == b'\\') | (b < 0x20) | (b == 0xE2));
        if found {
            return at + slow_run(chunk);
        }
        at += 32;
    }
    at + slow_run(chunks.remainder())
}

/// High bit set in the first special byte of a little-endian word (later ones may be wrong).
fn special_in(word: u64) -> u64 {
    let zero = |x: u64| x.wrapping_sub(LOW) & !x;
    let control = word.wrapping_sub(LOW * 0x20) & !word;
    (zero(word ^ (LOW * 0x22)) | zero(word ^ (LOW * 0x5C)) | zero(word ^ (LOW * 0xE2)) | control) & HIGH
}

fn slow_run(bytes: &[u8]) -> usize {
    bytes.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20 || b == 0xE2).unwrap_or(bytes.len())
}

/// Standard base64 with padding, CR and LF skipped, as Go decodes it.
///
/// # Errors
/// The byte, after CR and LF are dropped, at which it is illegal.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, usize> {
    // mostly there are no line ends
    if let Ok(decoded) = BASE64.decode(text) {
        return Ok(decoded);
    }
    let compact: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    BASE64.decode(&compact).map_err(|error| match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => at,
        _ => compact.len() / 4 * 4,
    })
}

/// Appends `text` as a JSON string with quotes, escaped as the catalogs are (`<`, `>` and `&` stay).
pub fn push_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    push_escaped(text.as_bytes(), out);
    out.push(b'"');
}

/// Appends the inside of a JSON string. `bytes` is valid UTF-8.
pub(crate) fn push_escaped(mut bytes: &[u8], out: &mut Vec<u8>) {
    loop {
        let run = plain_run(bytes);
        out.extend_from_slice(&bytes[..run]);
        bytes = &bytes[run..];
        let Some(&first) = bytes.first() else { return };
        let used = match (first, bytes.get(1), bytes.get(2)) {
            (0xE2, Some(0x80), Some(&last @ (0xA8 | 0xA9))) => {
                out.extend_from_slice(if last == 0xA8 { b"\\u2028" } else { b"\\u2029" });
                3
            }
            (0xE2, ..) => {
                out.push(first);
                1
            }
            _ => {
                push_escape(first, out);
                1
            }
        };
        bytes = &bytes[used..];
    }
}

/// Appends one ASCII byte that may need an escape.
pub(crate) fn push_escape(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x0C => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0..0x20 => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
            return;
        }
        _ => {
            out.push(byte);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Appends one character that came from an escape.
pub(crate) fn push_char(c: char, out: &mut Vec<u8>) {
    match c {
        '\u{2028}' => out.extend_from_slice(b"\\u2028"),
        '\u{2029}' => out.extend_from_slice(b"\\u2029"),
        _ if c.is_ascii() => push_escape(c as u8, out),
        _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// The text of a *normalised* JSON string, without its quotes; borrowed when nothing is escaped.
pub fn unescape_json(inside: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if memchr::memchr(b'\\', inside).is_none() {
        return inside.into();
    }
    let mut out = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (used, c) = match rest.get(at + 1) {
            Some(b'b') => (2, '\u{8}'),
            Some(b'f') => (2, '\u{c}'),
            Some(b'n') => (2, '\n'),
            Some(b'r') => (2, '\r'),
            Some(b't') => (2, '\t'),
            Some(b'u') => {
                let code = rest.get(at + 2..at + 6).and_then(|hex| std::str::from_utf8(hex).ok());
                let code = code.and_then(|hex| u32::from_str_radix(hex, 16).ok());
                (6, code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            Some(&other) => (2, other as char),
            None => (1, '\\'),
        };
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        rest = rest.get(at + used..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out.into()
}

/// Replaces every byte that is not part of valid UTF-8 by U+FFFD, one for each byte, as Go does.
pub(crate) fn replace_invalid(mut bytes: &[u8], out: &mut Vec<u8>) {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(valid) => {
                out.extend_from_slice(valid.as_bytes());
                return;
            }
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                out.extend_from_slice(valid);
                out.extend_from_slice("\u{FFFD}".as_bytes());
                bytes = &rest[1..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_run_ends_at_the_first_special_byte() {
        for special in [b'"', b'\\', 0x00, 0x1F, b'\n', 0xE2] {
            for length in 0..100 {
                let mut text = vec![b'x'; length];
                text.push(special);
                text.extend_from_slice(&[b'"'; 40]);
                assert_eq!(plain_run(&text), length, "{special:#x} at {length}");
                assert_eq!(plain_run(&text[..length]), length, "none in {length}");
            }
        }
        assert_eq!(plain_run("é~ \u{7f}<>&/\u{ffff}".as_bytes()), 12);
    }

    #[test]
    fn text_escapes_as_go_without_html() {
        let mut out = Vec::new();
        push_json_string("a\"\\/<>&\u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}\u{2029}\u{2026}é", &mut out);
        let want = "\"a\\\"\\\\/<>&\\b\\f\\n\\r\\t\\u0001\u{7f}\\u2028\\u2029\u{2026}é\"";
        assert_eq!(String::from_utf8(out.clone()).unwrap(), want);
        let back = unescape_json(&out[1..out.len() - 1]);
        assert_eq!(
            std::str::from_utf8(&back).unwrap(),
            "a\"\\/<>&\u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}\u{2029}\u{2026}é"
        );
    }

    #[test]
    fn text_replaces_each_invalid_byte() {
        let mut out = Vec::new();
        replace_invalid(b"a\xE2\x82b\xFF", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "a\u{FFFD}\u{FFFD}b\u{FFFD}");
    }
}
