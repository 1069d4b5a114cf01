//! Where a YAML stream is cut into documents (fbc §3.2): textually, at lines that begin with `---`.

use std::borrow::Cow;

/// Where the first chunk ends, as far as the bytes read so far show.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The chunk is the first `length` bytes; `used` bytes are done with, the separator line included.
    Chunk {
        length: usize,
        used: usize,
    },
    /// Not decided; a search may continue from here.
    More {
        from: usize,
    },
    Nothing,
    /// A separator line with something else behind it, at this offset.
    Bad {
        at: usize,
        message: String,
    },
}

/// Finds the end of the chunk at the head of `pending`, which begins at a line start. With `last` there are
/// no bytes beyond. `from` is that of the [`Cut::More`] before, or 0.
pub(crate) fn cut(pending: &[u8], from: usize, last: bool) -> Cut {
    if pending.is_empty() {
        return if last { Cut::Nothing } else { Cut::More { from: 0 } };
    }
    // a separator line with nothing before it belongs to the chunk
    if from == 0 && pending.len() < 3 && !last {
        return Cut::More { from: 0 };
    }
    if from == 0 && pending.starts_with(b"---") {
        match separator(pending, 0, last) {
            Ok(Some(_)) => {}
            Ok(None) => return Cut::More { from: 0 },
            Err(message) => return Cut::Bad { at: 0, message },
        }
    }
    match memchr::memmem::find(&pending[from..], b"\n---") {
        Some(found) => {
            let line = from + found + 1;
            match separator(pending, line, last) {
                Ok(Some(used)) => Cut::Chunk { length: line, used },
                Ok(None) => Cut::More { from: from + found },
                Err(message) => Cut::Bad { at: line, message },
            }
        }
        None if last => Cut::Chunk { length: pending.len(), used: pending.len() },
        None => Cut::More { from: pending.len().saturating_sub(3) },
    }
}

/// Checks the separator line at `line`; `Some` is the offset after it, `None` a line that is not complete.
fn separator(pending: &[u8], line: usize, last: bool) -> Result<Option<usize>, String> {
    let rest = &pending[line..];
    let (text, used) = match memchr::memchr(b'\n', rest) {
        Some(end) => (&rest[..end], line + end + 1),
        None if last => (rest, pending.len()),
        None => return Ok(None),
    };
    let text = String::from_utf8_lossy(text.get(3..).unwrap_or_default());
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(Some(used));
    }
    let shown: String = text.chars().take(200).collect();
    Err(format!("invalid Yaml document separator: {shown}"))
}

/// The chunk as Go's line reader hands it on: `\n` line ends, also after the last line.
pub(crate) fn with_line_ends(chunk: &[u8]) -> Cow<'_, [u8]> {
    let ended = chunk.last() == Some(&b'\n');
    let returns = memchr::memmem::find(chunk, b"\r\n").is_some();
    if ended && !returns {
        return Cow::Borrowed(chunk);
    }
    let mut clean = Vec::with_capacity(chunk.len() + 1);
    let mut rest = chunk;
    while let Some(at) = memchr::memmem::find(rest, b"\r\n") {
        clean.extend_from_slice(&rest[..at]);
        clean.push(b'\n');
        rest = &rest[at + 2..];
    }
    clean.extend_from_slice(rest);
    if !ended {
        clean.push(b'\n');
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(mut input: &[u8]) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        loop {
            match cut(input, 0, true) {
                Cut::Chunk { length, used } => {
                    found.push(String::from_utf8_lossy(&with_line_ends(&input[..length])).into_owned());
                    input = &input[used..];
                }
                Cut::Nothing => return Ok(found),
                Cut::Bad { message, .. } => return Err(message),
                Cut::More { .. } => return Err("more?".to_owned()),
            }
        }
    }

    #[test]
    fn split_cuts_as_the_reference() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("a: 1", &["a: 1\n"]),
            ("a: 1\n---\nb: 2\n", &["a: 1\n", "b: 2\n"]),
            ("---\na: 1\n--- # two\nb: 2", &["---\na: 1\n", "b: 2\n"]),
            ("---\n---\n---\na: 1", &["---\n", "---\na: 1\n"]),
            ("a: 1\n---\n---", &["a: 1\n", "---\n"]),
            ("a: 1\r\n---\r\nb: |\r\n  x", &["a: 1\n", "b: |\n  x\n"]),
            ("a: 1\n ---\nb: 1", &["a: 1\n ---\nb: 1\n"]),
            ("a: 1\n--- \u{a0}\nb: 1", &["a: 1\n", "b: 1\n"]),
        ];
        for (input, want) in cases {
            let want: Vec<String> = want.iter().map(|&c| c.to_owned()).collect();
            assert_eq!(chunks(input.as_bytes()), Ok(want), "{input:?}");
        }
        for (input, want) in [("--- a: 1", "a: 1"), ("a: 1\n----\n", "-"), ("a: 1\n---foo", "foo")] {
            assert_eq!(chunks(input.as_bytes()), Err(format!("invalid Yaml document separator: {want}")));
        }
    }

    #[test]
    fn split_of_a_window_equals_that_of_the_whole() {
        let text = b"---\na: 1\n-- \n--- # x\nb: 2\n---\nc: 3\n";
        let whole = cut(text, 0, true);
        for end in 0..text.len() {
            if let Cut::More { from } = cut(&text[..end], 0, false) {
                assert_eq!(cut(text, from, true), whole, "after a look at {end} bytes");
            } else {
                assert_eq!(cut(&text[..end], 0, false), whole, "with {end} bytes");
            }
        }
    }
}
