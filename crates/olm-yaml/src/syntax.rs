//! Errors of the text itself, in the words of Go's library and of libyaml.

use libyaml_safer::{Error as Syntax, ErrorKind, Mark};

use crate::{ParseError, engine::EngineError};

pub(crate) fn converting(problem: &str) -> String {
    format!("error converting YAML to JSON: {problem}")
}

/// A problem at a mark; the line counts from 1 within the input, the offset is left to the caller.
pub(crate) fn at(mark: Mark, message: impl Into<String>) -> ParseError {
    ParseError { offset: mark.index, line: mark.line + 1, message: message.into() }
}

pub(crate) fn parse_error(error: &EngineError, input: &[u8]) -> ParseError {
    match error {
        EngineError::Syntax(error) => syntax(error, input),
        EngineError::Panicked(mark) => {
            at(*mark, converting(&format!("yaml: line {}: what follows cannot be read", mark.line + 1)))
        }
    }
}

/// A syntax error in Go's words: the line appears only if it is not the first, and for scanner errors it is
/// counted from 1.
fn syntax(error: &Syntax, input: &[u8]) -> ParseError {
    let problem = error.problem_mark().unwrap_or_default();
    let context = error.context_mark().unwrap_or_default();
    let named = match (problem.line, error.kind()) {
        (0, _) => context.line,
        (line, ErrorKind::Scanner) => line + 1,
        (line, _) => line,
    };
    let position = if named == 0 { String::new() } else { format!("line {named}: ") };
    let mark = if problem.index > 0 { problem } else { context };
    let (mut found, text) = match error.kind() {
        ErrorKind::Reader | ErrorKind::Io => (at(mark, ""), encoding_problem(input)),
        _ => (at(mark, ""), None),
    };
    let text = text.map_or(error.problem(), |(line, text)| {
        found.line = line;
        text
    });
    ParseError { message: converting(&format!("yaml: {position}{text}")), ..found }
}

pub(crate) fn is_utf16(input: &[u8]) -> bool {
    input.starts_with(b"\xFE\xFF") || input.starts_with(b"\xFF\xFE")
}

/// Text in UTF-16 with a byte order mark, which libyaml reads.
pub(crate) fn from_utf16(input: &[u8]) -> Result<String, ParseError> {
    let big = input.starts_with(b"\xFE\xFF");
    let (pairs, rest) = input[2..].as_chunks::<2>();
    let units =
        pairs.iter().map(|pair| if big { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) });
    let text: Result<String, _> = char::decode_utf16(units).collect();
    let problem = match text {
        Ok(text) if rest.is_empty() => return Ok(text),
        Ok(_) => "incomplete UTF-16 character",
        Err(error) if (0xDC00..0xE000).contains(&error.unpaired_surrogate()) => {
            "unexpected low surrogate area"
        }
        Err(_) => "expected low surrogate area",
    };
    Err(at(Mark::default(), converting(&format!("yaml: {problem}"))))
}

/// Why the bytes are not text, in libyaml's words, and the line.
fn encoding_problem(input: &[u8]) -> Option<(u64, &'static str)> {
    let error = std::str::from_utf8(input).err()?;
    let (valid, rest) = input.split_at(error.valid_up_to());
    let line = memchr::memchr_iter(b'\n', valid).count() as u64 + 1;
    let length = match rest.first()? {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF7 => 4,
        _ => return Some((line, "invalid leading UTF-8 octet")),
    };
    let problem = match rest.get(1..length) {
        None => "incomplete UTF-8 octet sequence",
        Some(trailing) if trailing.iter().any(|b| b & 0xC0 != 0x80) => "invalid trailing UTF-8 octet",
        Some(_) if rest.starts_with(b"\xED") || rest.first() >= Some(&0xF4) => "invalid Unicode character",
        Some(_) => "invalid length of a UTF-8 sequence",
    };
    Some((line, problem))
}
