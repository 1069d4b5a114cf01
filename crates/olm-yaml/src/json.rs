//! One pass from JSON bytes to normalised JSON (fbc §4.2): parse and write in one pass, no tree in between.
//!
//! Strings are copied run by run, an object is permuted only if its keys did not already ascend, integers
//! of up to 15 digits are copied (of up to 64 bits with [`Normaliser::exact`]), other numbers go through a
//! double. Nesting lives on an explicit stack, so depth costs no call stack. Error messages are Go's.

use olm_core::go;

use crate::{
    Limits, ParseError,
    members::{Member, sort_members},
    scalar::loses_digits,
    text::{plain_run, push_char, replace_invalid},
};

/// Why a value could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueError {
    /// The bytes end inside the value (or before it).
    End,
    /// More nodes than [`Limits::document_nodes`], at this offset.
    Nodes { at: usize },
    /// A key longer than [`Limits::key_bytes`], at this offset.
    LongKey { at: usize, message: String },
    /// Something else, at this offset.
    Bad { at: usize, message: String },
}

type Step<T> = Result<T, ValueError>;

fn bad<T>(at: usize, message: impl Into<String>) -> Step<T> {
    Err(ValueError::Bad { at, message: message.into() })
}

/// `invalid character 'x' <context>` for the byte at `at`, or [`ValueError::End`] if there is none.
fn unexpected<T>(input: &[u8], at: usize, context: &str) -> Step<T> {
    match input.get(at) {
        None => Err(ValueError::End),
        Some(&byte) => bad(at, format!("invalid character {} {context}", go::quote_byte(byte))),
    }
}

/// What is open: an object, or an array (`None`).
type Frame = Option<Body>;

#[derive(Debug, Clone, Copy)]
struct Body {
    /// Where the inside of the object begins in the output.
    start: usize,
    first_member: usize,
    ascending: bool,
}

/// The normaliser with its reusable buffers. One serves any number of values.
#[derive(Debug, Default)]
pub struct Normaliser {
    frames: Vec<Frame>,
    pub(crate) members: Vec<Member>,
    pub(crate) scratch: Vec<u8>,
    lossless: Vec<u8>,
    /// Nodes of the value read last, also when that failed.
    pub(crate) nodes: u64,
    /// Where in its input the first integer lies that a double cannot hold.
    pub(crate) rounded: Option<usize>,
    /// Integers that fit an `i64` keep all digits.
    pub(crate) exact_integers: bool,
}

impl Normaliser {
    pub fn new() -> Self {
        Self::default()
    }

    /// A normaliser that keeps all digits of integers that fit an `i64`, as Kubernetes reads objects. For others these are doubles,
    /// too, as in catalogs (fbc §4.2).
    pub fn exact() -> Self {
        Self { exact_integers: true, ..Self::default() }
    }

    /// The members of the object written last, sorted by key; offsets are into the buffer that was written
    /// to. Empty if the value was no object.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Releases memory that one very large object needed.
    pub(crate) fn shrink(&mut self, keep: usize) {
        self.scratch.clear();
        self.scratch.shrink_to(keep);
        self.lossless.clear();
        self.lossless.shrink_to(keep);
    }

    /// Reads one JSON value at the head of `input` (after white space), appends it to `out` normalised,
    /// and returns how many bytes of the input it took. On failure `out` is as before.
    ///
    /// The output is at most six times as long as the value.
    ///
    /// # Errors
    /// [`ParseError`] with Go's message; input that ends too early is `unexpected EOF`.
    pub fn value(&mut self, input: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<usize, ParseError> {
        self.partial(input, true, out, limits).map_err(|failure| failure.in_input(input, limits))
    }

    /// As [`Self::value`], for a window: without `last`, a value that could continue after the end of `input`
    /// is [`ValueError::End`].
    pub(crate) fn partial(
        &mut self,
        input: &[u8],
        last: bool,
        out: &mut Vec<u8>,
        limits: &Limits,
    ) -> Step<usize> {
        let start = out.len();
        let result = self.run(input, last, out, limits).and_then(|used| {
            if simdutf8::basic::from_utf8(&input[..used]).is_err() {
                // rare: bytes that are not UTF-8 (only ever inside strings) become U+FFFD, then once more
                let mut clean = std::mem::take(&mut self.lossless);
                clean.clear();
                replace_invalid(&input[..used], &mut clean);
                out.truncate(start);
                // offsets are those of `input`
                let rounded = self.rounded;
                let again = self.run(&clean, true, out, limits);
                self.lossless = clean;
                self.rounded = rounded;
                again?;
            }
            Ok(used)
        });
        if result.is_err() {
            out.truncate(start);
            self.members.clear();
        }
        result
    }

    fn run(&mut self, input: &[u8], last: bool, out: &mut Vec<u8>, limits: &Limits) -> Step<usize> {
        self.frames.clear();
        self.members.clear();
        self.nodes = 0;
        self.rounded = None;
        let mut at = 0;
        loop {
            at = skip_space(input, at);
            if at < input.len() {
                self.count(at, limits)?;
            }
            match input.get(at) {
                Some(&bracket @ (b'{' | b'[')) => {
                    let object = bracket == b'{';
                    self.open(at, object, out, limits)?;
                    at = skip_space(input, at + 1);
                    if input.get(at) != Some(if object { &b'}' } else { &b']' }) {
                        if object {
                            at = self.key(input, at, out, limits)?;
                        }
                        continue;
                    }
                    at += 1;
                    self.close(out);
                }
                Some(b'"') => at = string(input, at + 1, out)?.0,
                Some(b't') => at = literal(input, at, b"true", out)?,
                Some(b'f') => at = literal(input, at, b"false", out)?,
                Some(b'n') => at = literal(input, at, b"null", out)?,
                Some(b'-' | b'0'..=b'9') => {
                    at = number(input, at, last, out, self.exact_integers, &mut self.rounded)?;
                }
                _ => return unexpected(input, at, "looking for beginning of value"),
            }
            // a value has ended
            loop {
                let Some(frame) = self.frames.last() else { return Ok(at) };
                at = skip_space(input, at);
                let object = frame.is_some();
                if object && let Some(member) = self.members.last_mut() {
                    member.end = out.len();
                }
                match (input.get(at), object) {
                    (Some(b','), _) => {
                        out.push(b',');
                        at += 1;
                        if object {
                            at = self.key(input, skip_space(input, at), out, limits)?;
                        }
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        at += 1;
                        self.close(out);
                    }
                    (_, true) => return unexpected(input, at, "after object key:value pair"),
                    (_, false) => return unexpected(input, at, "after array element"),
                }
            }
        }
    }

    fn count(&mut self, at: usize, limits: &Limits) -> Step<()> {
        self.nodes += 1;
        if self.nodes > limits.document_nodes { Err(ValueError::Nodes { at }) } else { Ok(()) }
    }

    fn open(&mut self, at: usize, object: bool, out: &mut Vec<u8>, limits: &Limits) -> Step<()> {
        if self.frames.len() >= limits.depth {
            return bad(at, "exceeded max depth");
        }
        out.push(if object { b'{' } else { b'[' });
        let body = Body { start: out.len(), first_member: self.members.len(), ascending: true };
        self.frames.push(object.then_some(body));
        Ok(())
    }

    /// Reads `"key":`, notes the member and whether keys still ascend.
    fn key(&mut self, input: &[u8], at: usize, out: &mut Vec<u8>, limits: &Limits) -> Step<usize> {
        if input.get(at) != Some(&b'"') {
            return unexpected(input, at, "looking for beginning of object key string");
        }
        self.count(at, limits)?;
        let start = out.len();
        let (end, escaped) = string(input, at + 1, out)?;
        if let Some(message) = limits.too_long_key(&out[start + 1..out.len() - 1]) {
            return Err(ValueError::LongKey { at, message });
        }
        let at = skip_space(input, end);
        if input.get(at) != Some(&b':') {
            return unexpected(input, at, "after object key");
        }
        out.push(b':');
        let member = Member { start, value: out.len(), end: out.len() };
        if let Some(Some(body)) = self.frames.last_mut() {
            if escaped {
                body.ascending = false;
            } else if body.ascending && self.members.len() > body.first_member {
                body.ascending = self.members.last().is_none_or(|prior| out[prior.key()] < out[member.key()]);
            }
        }
        self.members.push(member);
        Ok(at + 1)
    }

    /// Ends the innermost object or array. The members of the outermost object stay noted.
    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(Some(body)) = self.frames.pop() else { return out.push(b']') };
        if !body.ascending {
            sort_members(&mut self.members, body.first_member, body.start, out, &mut self.scratch);
        }
        if !self.frames.is_empty() {
            self.members.truncate(body.first_member);
        }
        out.push(b'}');
    }
}

impl ValueError {
    pub(crate) fn in_input(self, input: &[u8], limits: &Limits) -> ParseError {
        let (at, message) = match self {
            Self::End => (input.len(), "unexpected EOF".to_owned()),
            Self::Nodes { at } => (at, limits.too_many_nodes()),
            Self::LongKey { at, message } | Self::Bad { at, message } => (at, message),
        };
        let newlines = memchr::memchr_iter(b'\n', input.get(..at).unwrap_or(input)).count();
        ParseError { offset: at as u64, line: newlines as u64 + 1, message }
    }
}

/// Reads one JSON value at the head of `input`, appends it normalised to `out`, returns the bytes taken.
///
/// # Errors
/// As [`Normaliser::value`], whose buffers are worth keeping when there is more than one value.
pub fn normalise_json(input: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<usize, ParseError> {
    Normaliser::new().value(input, out, limits)
}

pub(crate) fn skip_space(input: &[u8], mut at: usize) -> usize {
    loop {
        match input.get(at) {
            Some(b' ' | b'\n' | b'\t' | b'\r') => at += 1,
            _ => return at,
        }
        while input.get(at..at + 8) == Some(b"        ") {
            at += 8;
        }
    }
}

/// Reads a string whose opening quote is just before `at`. Returns where it ends and whether its output
/// holds a backslash.
fn string(input: &[u8], mut at: usize, out: &mut Vec<u8>) -> Step<(usize, bool)> {
    // most escapes are written as they were read, so they stay in the run that is copied
    let mut run = at - 1;
    let mut escaped = false;
    loop {
        at += plain_run(&input[at..]);
        match input.get(at) {
            None => return Err(ValueError::End),
            Some(b'"') => {
                out.extend_from_slice(&input[run..=at]);
                return Ok((at + 1, escaped));
            }
            Some(b'\\') => match input.get(at + 1) {
                Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => {
                    escaped = true;
                    at += 2;
                }
                Some(b'/') => {
                    out.extend_from_slice(&input[run..at]);
                    run = at + 1;
                    at += 2;
                }
                Some(b'u') => {
                    out.extend_from_slice(&input[run..at]);
                    let (next, c) = unicode_escape(input, at + 2)?;
                    push_char(c, out);
                    escaped |= matches!(c, '\0'..='\u{1f}' | '"' | '\\' | '\u{2028}' | '\u{2029}');
                    at = next;
                    run = at;
                }
                _ => return unexpected(input, at + 1, "in string escape code"),
            },
            Some(0xE2) => match input.get(at + 1..at + 3) {
                Some([0x80, last @ (0xA8 | 0xA9)]) => {
                    out.extend_from_slice(&input[run..at]);
                    out.extend_from_slice(if *last == 0xA8 { b"\\u2028" } else { b"\\u2029" });
                    escaped = true;
                    at += 3;
                    run = at;
                }
                _ => at += 1,
            },
            Some(_) => return unexpected(input, at, "in string literal"),
        }
    }
}

/// Reads the four digits after `\u` and, for the first half of a pair, the second half. A half alone is
/// U+FFFD.
fn unicode_escape(input: &[u8], at: usize) -> Step<(usize, char)> {
    let first = hex4(input, at)?;
    let at = at + 4;
    if let Some(c) = char::from_u32(first) {
        return Ok((at, c));
    }
    if first < 0xDC00 && input.get(at..at + 2) == Some(b"\\u") {
        let second = hex4(input, at + 2)?;
        if (0xDC00..0xE000).contains(&second) {
            let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            return Ok((at + 6, char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)));
        }
    }
    Ok((at, char::REPLACEMENT_CHARACTER))
}

fn hex4(input: &[u8], at: usize) -> Step<u32> {
    let mut code = 0;
    for at in at..at + 4 {
        match input.get(at).and_then(|&digit| (digit as char).to_digit(16)) {
            Some(digit) => code = code << 4 | digit,
            None => return unexpected(input, at, r"in \u hexadecimal character escape"),
        }
    }
    Ok(code)
}

fn literal(input: &[u8], at: usize, word: &'static [u8], out: &mut Vec<u8>) -> Step<usize> {
    for (offset, &want) in word.iter().enumerate() {
        if input.get(at + offset) != Some(&want) {
            let context =
                format!("in literal {} (expecting '{}')", String::from_utf8_lossy(word), want as char);
            return unexpected(input, at + offset, &context);
        }
    }
    out.extend_from_slice(word);
    Ok(at + word.len())
}

fn number(
    input: &[u8],
    start: usize,
    last: bool,
    out: &mut Vec<u8>,
    exact_integers: bool,
    rounded: &mut Option<usize>,
) -> Step<usize> {
    let digits =
        |at: usize| at + input[at..].iter().position(|b| !b.is_ascii_digit()).unwrap_or(input.len() - at);
    let mut at = start + usize::from(input.get(start) == Some(&b'-'));
    let whole = at;
    at = match input.get(at) {
        Some(b'0') => at + 1,
        Some(b'1'..=b'9') => digits(at),
        _ => return unexpected(input, at, "in numeric literal"),
    };
    let mut integer = true;
    if input.get(at) == Some(&b'.') {
        integer = false;
        let end = digits(at + 1);
        if end == at + 1 {
            return unexpected(input, end, "after decimal point in numeric literal");
        }
        at = end;
    }
    if let Some(b'e' | b'E') = input.get(at) {
        integer = false;
        let sign = usize::from(matches!(input.get(at + 1), Some(b'+' | b'-')));
        let end = digits((at + 1 + sign).min(input.len()));
        if end == at + 1 + sign {
            return unexpected(input, end, "in exponent of numeric literal");
        }
        at = end;
    }
    if at == input.len() && !last {
        return Err(ValueError::End);
    }
    let text = &input[start..at];
    let is_exact = || std::str::from_utf8(text).is_ok_and(|text| text.parse::<i64>().is_ok());
    if integer && (at - whole <= 15 || (exact_integers && is_exact())) {
        out.extend_from_slice(text);
        return Ok(at);
    }
    if integer && rounded.is_none() && std::str::from_utf8(text).is_ok_and(loses_digits) {
        *rounded = Some(start);
    }
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    match parsed.filter(|number| number.is_finite()) {
        Some(number) => out.extend_from_slice(go::json_number(number).as_bytes()),
        None => {
            let text = String::from_utf8_lossy(text);
            return bad(start, format!("json: cannot unmarshal number {text} into Go value of type float64"));
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalise(input: &[u8]) -> Result<String, String> {
        let mut out = Vec::new();
        normalise_json(input, &mut out, &Limits::default())
            .map(|_| String::from_utf8(out).unwrap())
            .map_err(|error| format!("{}: {}", error.offset, error.message))
    }

    #[test]
    fn json_values_of_fbc_4_2() {
        for (input, want) in [
            (&br#" { } "#[..], "{}"),
            (br#"[ ]"#, "[]"),
            (br#"{"z":[1, {"b":null,"a":true}],"a":false}"#, r#"{"a":false,"z":[1,{"a":true,"b":null}]}"#),
            (
                "{\"é\":1,\"~\":1,\"aa\":1,\"a\":1,\"_\":1,\"Z\":1,\"9\":1,\"10\":1}".as_bytes(),
                "{\"10\":1,\"9\":1,\"Z\":1,\"_\":1,\"a\":1,\"aa\":1,\"~\":1,\"é\":1}",
            ),
            (br#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
            (br#"{"a":1,"\u0061":2}"#, r#"{"a":2}"#),
            (br#"{"a\nb":1,"a\u000bb":2,"a b":3,"a\u000ab":4}"#, r#"{"a\nb":4,"a\u000bb":2,"a b":3}"#),
            (br#"{"a\"":1,"a#":2,"a!":3}"#, r##"{"a!":3,"a\"":1,"a#":2}"##),
            (
                br#""\/\u00e9\u003c<>&\u2028\ud83d\ude00\ud83d\ud83dx\udc00""#,
                "\"/é<<>&\\u2028😀\u{fffd}\u{fffd}x\u{fffd}\"",
            ),
            ("\"\u{2028}\u{2029}\u{2026}\u{7f}\"".as_bytes(), "\"\\u2028\\u2029\u{2026}\u{7f}\""),
            (br#""\u0000\u001f\u0008\u000C""#, r#""\u0000\u001f\b\f""#),
            (b"\"a\xffb\xe2\x82\"", "\"a\u{fffd}b\u{fffd}\u{fffd}\""),
            (b"{\"a\xff\":1,\"a\xfe\":2}", "{\"a\u{fffd}\":2}"),
            (b"1.0", "1"),
            (b"-0", "-0"),
            (b"1E5", "100000"),
            (b"9007199254740993", "9007199254740992"),
            (b"18446744073709551615", "18446744073709552000"),
            (b"100000000000000000000000", "1e+23"),
            (b"0.0000009", "9e-7"),
        ] {
            assert_eq!(normalise(input), Ok(want.to_owned()), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn json_exact_integers_have_all_digits() {
        for (input, want) in [
            ("9007199254740993", "9007199254740993"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9223372036854775808", "9223372036854776000"),
            ("-9223372036854775809", "-9223372036854776000"),
            ("18446744073709551615", "18446744073709552000"),
            ("9007199254740993.0", "9007199254740992"),
            ("9007199254740993e0", "9007199254740992"),
            ("1E18", "1000000000000000000"),
            ("-0", "-0"),
        ] {
            let mut out = Vec::new();
            let used = Normaliser::exact().value(input.as_bytes(), &mut out, &Limits::default());
            assert_eq!(used, Ok(input.len()));
            assert_eq!(String::from_utf8_lossy(&out), want, "{input}");
        }
    }

    #[test]
    fn json_errors_are_those_of_go() {
        for (input, want) in [
            (&br#"{"a":1"#[..], "6: unexpected EOF"),
            (b"", "0: unexpected EOF"),
            (br#"{"a":1,}"#, "7: invalid character '}' looking for beginning of object key string"),
            (br#"{"a" 1}"#, "5: invalid character '1' after object key"),
            (br#"{"a":1 "b"}"#, "7: invalid character '\"' after object key:value pair"),
            (br#"[1 2]"#, "3: invalid character '2' after array element"),
            (br#"[1,]"#, "3: invalid character ']' looking for beginning of value"),
            (b"garbage", "0: invalid character 'g' looking for beginning of value"),
            (b"trua", "3: invalid character 'a' in literal true (expecting 'e')"),
            (b"[-]", "2: invalid character ']' in numeric literal"),
            (b"[1.]", "3: invalid character ']' after decimal point in numeric literal"),
            (b"[1e+]", "4: invalid character ']' in exponent of numeric literal"),
            (b"[01]", "2: invalid character '1' after array element"),
            (br#""\x""#, "2: invalid character 'x' in string escape code"),
            (br#""\u12g4""#, "5: invalid character 'g' in \\u hexadecimal character escape"),
            (b"\"a\nb\"", "2: invalid character '\\n' in string literal"),
            (b"1E400", "0: json: cannot unmarshal number 1E400 into Go value of type float64"),
            (b"'a'", "0: invalid character '\\'' looking for beginning of value"),
        ] {
            assert_eq!(normalise(input), Err(want.to_owned()), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn json_depth_is_bounded_and_needs_no_stack() {
        let deep = |depth: usize| {
            let mut text = vec![b'['; depth];
            text.resize(2 * depth, b']');
            text
        };
        assert!(normalise(&deep(10_000)).is_ok());
        assert_eq!(normalise(&deep(10_001)), Err("10000: exceeded max depth".to_owned()));
    }

    #[test]
    fn json_prefix_of_a_value_needs_more() {
        let text =
            "{\"b\":[1.5e3,true,\"\\ud83d\\ude00 – \u{2028}\\n\"],\"a\":{\"y\":-12,\"x\":null}}".as_bytes();
        let mut normaliser = Normaliser::new();
        for end in 0..text.len() {
            let mut out = b"kept".to_vec();
            let got = normaliser.partial(&text[..end], false, &mut out, &Limits::default());
            assert_eq!(got, Err(ValueError::End), "prefix of {end}");
            assert_eq!(out, b"kept");
        }
        let mut out = Vec::new();
        assert_eq!(normaliser.partial(text, false, &mut out, &Limits::default()), Ok(text.len()));
        let keys: Vec<_> = normaliser.members().iter().map(|m| m.key_text(&out).into_owned()).collect();
        assert_eq!(keys, [b"a", b"b"]);
        assert_eq!(&out[normaliser.members()[0].value()], br#"{"x":null,"y":-12}"#);
    }
}
