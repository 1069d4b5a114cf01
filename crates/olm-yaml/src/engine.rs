//! The YAML engine, one event at a time, with its panics turned into errors.
//!
//! libyaml-safer gives up with a panic where libyaml continues: a tag that a comma follows directly (`[!tag,]`), and wherever its
//! port met a case that it did not expect. Foreign bytes must not decide over a thread, so the panic ends here, as a syntax
//! error; the engine is not used after it.

use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libyaml_safer::{Encoding, Error, Event, Mark, Parser};

/// Bytes of one read. The engine keeps them as characters of four bytes each, so the whole input must not be one read.
const READ: usize = 16 * 1024;

/// UTF-8 that the engine reads part by part.
pub(crate) type Source<'i> = BufReader<&'i [u8]>;

pub(crate) fn source(input: &[u8]) -> Source<'_> {
    BufReader::with_capacity(READ, input)
}

pub(crate) struct Engine<'r, 'i> {
    parser: Parser<&'r mut Source<'i>>,
    last: Mark,
}

pub(crate) enum EngineError {
    Syntax(Error),
    /// The engine panicked behind this place.
    Panicked(Mark),
}

impl<'r, 'i> Engine<'r, 'i> {
    pub(crate) fn new(source: &'r mut Source<'i>) -> Self {
        let mut parser = Parser::new();
        parser.set_input(source);
        // else the engine takes any 0xEF at the head for a byte order mark
        parser.set_encoding(Encoding::Utf8);
        Self { parser, last: Mark::default() }
    }

    /// The next event. The engine may not be used after an error.
    pub(crate) fn event(&mut self) -> Result<Event, EngineError> {
        // unwind safe: what the panic may leave half done is not read
        match catch_unwind(AssertUnwindSafe(|| self.parser.parse())) {
            Ok(Ok(event)) => {
                self.last = event.end_mark;
                Ok(event)
            }
            Ok(Err(error)) => Err(EngineError::Syntax(error)),
            Err(_) => Err(EngineError::Panicked(self.last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;

    use super::{READ, source};
    use crate::{Limits, yaml_to_json};

    /// It keeps what it read as characters: of a whole file that would be four times its size, and twice that while it grows.
    #[test]
    fn engine_reads_its_input_in_parts() {
        let text = "é".repeat(READ);
        // characters of two bytes, across the end of a part
        for start in ["a: ", "aa: "] {
            let input = format!("{start}{text}\n");
            assert!(source(input.as_bytes()).fill_buf().unwrap().len() <= READ);
            let mut out = Vec::new();
            yaml_to_json(input.as_bytes(), &mut out, &Limits::default()).unwrap();
            let key = start.trim_end_matches(": ");
            assert_eq!(String::from_utf8(out).unwrap(), format!("{{\"{key}\":\"{text}\"}}"));
        }
    }

    #[test]
    fn engine_panic_becomes_a_syntax_error() {
        for (input, line) in
            [("[!a,]\n", 1), ("a: b\nc: [x, !!str,y]\n", 2), ("{!,}\n", 1), ("a: 1\n...\n[!a,]\n", 0)]
        {
            let mut out = Vec::new();
            let read = yaml_to_json(input.as_bytes(), &mut out, &Limits::default());
            let want = match line {
                // what stands behind the first document is not read
                0 => Ok(()),
                line => Err(format!(
                    "error converting YAML to JSON: yaml: line {line}: what follows cannot be read"
                )),
            };
            assert_eq!(read.map_err(|error| error.message), want, "{input:?}");
        }
    }
}
