//! A file as a stream of documents: JSON values one after the other, or YAML documents between `---` lines,
//! or the first turning into the second (fbc §3.1, §3.2).
//!
//! Reads through a sliding window; memory is the window plus the largest document. Does not know what a
//! document should contain: the caller's check decides, and its error counts as a failed document.

use std::io::{ErrorKind, Read};

use crate::{
    Limits, Member, Normaliser, ParseError, ReadError,
    json::{ValueError, skip_space},
    split::{Cut, cut, with_line_ends},
    yaml::convert,
};

/// Bytes of the head of a file that decide between JSON and YAML.
const SNIFFED: usize = 4096;
const FIRST_WINDOW: usize = 32 << 10;
const USUAL_WINDOW: usize = 512 << 10;
/// A reader whose window grew beyond this gives memory back between files.
const KEPT_WINDOW: usize = 2 << 20;

/// Where a document came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// Byte offset of its first byte in the stream, from 0 (for YAML: of the chunk between separators).
    pub offset: u64,
    /// Line of that byte, from 1.
    pub line: u64,
    /// Read as YAML, not as JSON.
    pub yaml: bool,
    /// Line, from 1, of content in the same YAML chunk that is never read: whatever follows the first
    /// document (fbc §3.2, data loss kept for compatibility).
    pub ignored_from: Option<u64>,
    /// The document began as JSON and was read as YAML because of an error.
    pub fell_back: bool,
}

/// One document of a stream, normalised.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The value without a line end; empty for a YAML document without content (`null`, comments only).
    pub json: &'a [u8],
    /// The members of the outermost object, sorted by key; offsets are into `json`.
    pub members: &'a [Member],
    /// Where it came from.
    pub origin: Origin,
}

impl Document<'_> {
    /// Whether the YAML document held nothing.
    pub fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    /// What Go would call the value: `object`, `array`, `string`, `number`, `bool` or `null`.
    pub fn kind(&self) -> &'static str {
        match self.json.first() {
            Some(b'{') => "object",
            Some(b'[') => "array",
            Some(b'"') => "string",
            Some(b't' | b'f') => "bool",
            None | Some(b'n') => "null",
            Some(_) => "number",
        }
    }
}

enum Mode {
    Undecided,
    Json { decoded: u64 },
    Yaml { refused: Option<ParseError> },
    Done,
}

/// The documents of one stream. Reusable: [`Documents::restart`] keeps the buffers.
pub struct Documents<R> {
    reader: R,
    limits: Limits,
    mode: Mode,
    window: Vec<u8>,
    head: usize,
    tail: usize,
    ended: bool,
    /// Stream offset and line of `head`.
    offset: u64,
    line: u64,
    read: u64,
    decoded: u64,
    nodes: u64,
    normaliser: Normaliser,
    out: Vec<u8>,
    origin: Origin,
}

impl<R> std::fmt::Debug for Documents<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Documents")
            .field("offset", &self.offset)
            .field("line", &self.line)
            .field("decoded", &self.decoded)
            .finish_non_exhaustive()
    }
}

impl<'a> Documents<&'a [u8]> {
    /// The documents of bytes in memory. Iterating skips documents without content.
    pub fn from_bytes(bytes: &'a [u8], limits: Limits) -> Self {
        Self::new(bytes, limits)
    }
}

impl<R: Read> Documents<R> {
    /// The documents that `reader` holds.
    pub fn new(reader: R, limits: Limits) -> Self {
        Self {
            reader,
            limits,
            mode: Mode::Undecided,
            window: Vec::new(),
            head: 0,
            tail: 0,
            ended: false,
            offset: 0,
            line: 1,
            read: 0,
            decoded: 0,
            nodes: 0,
            normaliser: Normaliser::new(),
            out: Vec::new(),
            origin: Origin::default(),
        }
    }

    /// Begins another stream with the buffers of this one.
    pub fn restart<S: Read>(mut self, reader: S) -> Documents<S> {
        if self.window.len() > KEPT_WINDOW {
            self.window = Vec::new();
        }
        self.out.clear();
        self.out.shrink_to(KEPT_WINDOW);
        self.normaliser.shrink(KEPT_WINDOW);
        Documents {
            window: self.window,
            normaliser: self.normaliser,
            out: self.out,
            ..Documents::new(reader, self.limits)
        }
    }

    /// The document that [`Self::next_with`] accepted last.
    pub fn document(&self) -> Document<'_> {
        let json = self.out.strip_suffix(b"\n").unwrap_or(&self.out);
        Document { json, members: self.normaliser.members(), origin: self.origin }
    }

    /// The same document as a line of a JSONL file, line end included; empty for a document without content.
    pub fn line(&self) -> &[u8] {
        &self.out
    }

    /// Nodes of all documents read so far (see [`Limits::document_nodes`]), up to where reading stopped in one that failed.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Reads the next document and asks `check` whether it will do; the answer is returned, the document is
    /// then [`Self::document`]. An error fails the document: in JSON mode it may lead to the YAML
    /// attempt of fbc §3.1.
    ///
    /// # Errors
    /// The reader's error, or where and why the stream is broken. After an error the stream has ended.
    pub fn next_with<T>(
        &mut self,
        mut check: impl FnMut(&Document<'_>) -> Result<T, String>,
    ) -> Result<Option<T>, ReadError> {
        let result = self.advance(&mut check);
        self.nodes += std::mem::take(&mut self.normaliser.nodes);
        match &result {
            Ok(Some(_)) => {
                self.decoded += 1;
                if !self.out.is_empty() {
                    self.out.push(b'\n');
                }
                if self.decoded > self.limits.documents {
                    self.mode = Mode::Done;
                    let message = format!("more documents than the limit of {}", self.limits.documents);
                    return Err(ReadError::Parse(self.error_at_head(message)));
                }
            }
            Ok(None) | Err(_) => self.mode = Mode::Done,
        }
        result
    }

    fn advance<T>(
        &mut self,
        check: &mut impl FnMut(&Document<'_>) -> Result<T, String>,
    ) -> Result<Option<T>, ReadError> {
        if let Mode::Undecided = self.mode {
            self.sniff()?;
        }
        if let Mode::Json { decoded } = self.mode {
            match self.next_json(check)? {
                Ok(found) => {
                    self.mode = Mode::Json { decoded: decoded + 1 };
                    return Ok(found);
                }
                Err(refused) if decoded > 1 => {
                    let message =
                        refused.message.strip_prefix("json: offset ").and_then(|m| m.split_once(": "));
                    let message = message.map_or(refused.message.clone(), |(_, message)| message.to_owned());
                    return Err(ParseError { message, ..refused }.into());
                }
                Err(refused) => self.fall_back(refused),
            }
        }
        match std::mem::replace(&mut self.mode, Mode::Done) {
            Mode::Yaml { refused } => {
                let fell_back = refused.is_some();
                let next = self.next_yaml(fell_back, check);
                self.mode = Mode::Yaml { refused: None };
                match (next, refused) {
                    (Err(ReadError::Parse(_)), Some(first)) => Err(first.into()),
                    (next, _) => next,
                }
            }
            _ => Ok(None),
        }
    }

    /// Looks at the head of the stream: `{` as the first character that is no space means JSON.
    fn sniff(&mut self) -> Result<(), ReadError> {
        while self.tail < SNIFFED && self.fill()? {}
        let head = &self.window[..self.tail.min(SNIFFED)];
        let text = match std::str::from_utf8(head) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
        };
        let json = text.trim_start().starts_with('{');
        self.mode = if json { Mode::Json { decoded: 0 } } else { Mode::Yaml { refused: None } };
        Ok(())
    }

    /// One JSON value. The inner error is one that a YAML attempt may avoid.
    fn next_json<T>(
        &mut self,
        check: &mut impl FnMut(&Document<'_>) -> Result<T, String>,
    ) -> Result<Result<Option<T>, ParseError>, ReadError> {
        loop {
            let pending = &self.window[self.head..self.tail];
            let space = skip_space(pending, 0);
            if space == pending.len() && self.ended {
                return Ok(Ok(None));
            }
            self.out.clear();
            let last = self.ended;
            let limits = self.document_limits();
            let read = self.normaliser.partial(&pending[space..], last, &mut self.out, &limits);
            match read {
                Ok(used) => {
                    let newlines = memchr::memchr_iter(b'\n', &pending[..space]).count() as u64;
                    self.origin = Origin {
                        offset: self.offset + space as u64,
                        line: self.line + newlines,
                        ..Origin::default()
                    };
                    return Ok(match check(&self.document()) {
                        Ok(found) => {
                            self.consume(space + used);
                            Ok(Some(found))
                        }
                        Err(message) => {
                            Err(ParseError { offset: self.origin.offset, line: self.origin.line, message })
                        }
                    });
                }
                Err(ValueError::End) if !self.ended => self.more()?,
                Err(failure) => {
                    let number =
                        matches!(&failure, ValueError::Bad { message, .. } if message.starts_with("json: "));
                    let ended = failure == ValueError::End;
                    let too_many = matches!(failure, ValueError::Nodes { .. });
                    let inner = failure.in_input(&pending[space..], &limits);
                    let newlines = memchr::memchr_iter(b'\n', &pending[..space]).count() as u64;
                    let offset = self.offset + space as u64 + inner.offset;
                    let message = if ended || number {
                        inner.message
                    } else {
                        format!("json: offset {}: {}", offset + 1, inner.message)
                    };
                    let line = self.line + newlines + inner.line - 1;
                    if too_many {
                        // as YAML it would have as many
                        let message = self.too_many_nodes();
                        return Err(ParseError { offset, line, message }.into());
                    }
                    return Ok(Err(ParseError { offset, line, message }));
                }
            }
        }
    }

    /// Continues in YAML after the last good JSON object: white space up to one line end is skipped.
    fn fall_back(&mut self, refused: ParseError) {
        let mut skipped = 0;
        while let Some(c) =
            first_char(&self.window[self.head + skipped..self.tail]).filter(|c| c.is_whitespace())
        {
            skipped += c.len_utf8();
            if c == '\n' {
                break;
            }
        }
        self.consume(skipped);
        self.mode = Mode::Yaml { refused: Some(refused) };
    }

    fn next_yaml<T>(
        &mut self,
        fell_back: bool,
        check: &mut impl FnMut(&Document<'_>) -> Result<T, String>,
    ) -> Result<Option<T>, ReadError> {
        let mut from = 0;
        loop {
            let pending = &self.window[self.head..self.tail];
            match cut(pending, from, self.ended) {
                Cut::Nothing => return Ok(None),
                Cut::More { from: next } => {
                    from = next;
                    self.more()?;
                }
                Cut::Bad { at, message } => {
                    let newlines = memchr::memchr_iter(b'\n', &pending[..at]).count() as u64;
                    let offset = self.offset + at as u64;
                    return Err(ParseError { offset, line: self.line + newlines, message }.into());
                }
                Cut::Chunk { length, used } => {
                    self.out.clear();
                    let chunk = with_line_ends(&pending[..length]);
                    let limits = self.document_limits();
                    let converted = convert(&chunk, &mut self.out, &mut self.normaliser, &limits);
                    drop(chunk);
                    let too_many = self.normaliser.nodes > limits.document_nodes;
                    let converted = converted.map_err(|error| {
                        // line ends that were changed moved what is behind them
                        let moved = memchr::memmem::find(&pending[..length], b"\r\n").is_some();
                        let offset = if moved { line_start(pending, error.line) } else { error.offset };
                        let line = self.line + error.line.saturating_sub(1);
                        let message = if too_many { self.too_many_nodes() } else { error.message };
                        ParseError { offset: self.offset + offset, line, message }
                    })?;
                    if self.out == b"null" {
                        self.out.clear();
                    }
                    self.origin = Origin {
                        offset: self.offset,
                        line: self.line,
                        yaml: true,
                        ignored_from: converted.ignored_from.map(|line| self.line + line),
                        fell_back,
                    };
                    let found = check(&self.document()).map_err(|message| ParseError {
                        offset: self.offset,
                        line: self.line,
                        message: format!("error unmarshaling JSON: while decoding JSON: {message}"),
                    })?;
                    self.consume(used);
                    return Ok(Some(found));
                }
            }
        }
    }

    /// The limits with what the stream's nodes leave for the next document.
    fn document_limits(&self) -> Limits {
        let left = self.limits.stream_nodes.saturating_sub(self.nodes);
        Limits { document_nodes: self.limits.document_nodes.min(left), ..self.limits }
    }

    fn too_many_nodes(&self) -> String {
        let limit = self.limits.stream_nodes;
        if limit.saturating_sub(self.nodes) < self.limits.document_nodes {
            format!(
                "the file has more than the limit of {limit} nodes (values and keys); split it into smaller files"
            )
        } else {
            self.limits.too_many_nodes()
        }
    }

    fn consume(&mut self, bytes: usize) {
        let done = &self.window[self.head..self.head + bytes];
        self.line += memchr::memchr_iter(b'\n', done).count() as u64;
        self.offset += bytes as u64;
        self.head += bytes;
    }

    /// Makes the pending bytes longer, or notes the end.
    fn more(&mut self) -> Result<(), ReadError> {
        let pending = self.tail - self.head;
        if pending > self.limits.document_bytes {
            let message =
                format!("the document is larger than the limit of {} bytes", self.limits.document_bytes);
            return Err(ReadError::Parse(self.error_at_head(message)));
        }
        if self.head > 0 {
            self.window.copy_within(self.head..self.tail, 0);
            self.head = 0;
            self.tail = pending;
        }
        // a window at least half full of one document doubles, so that trying again stays linear
        if pending * 2 > self.window.len() {
            self.window.resize((self.window.len() * 2).max(FIRST_WINDOW), 0);
        } else if self.window.len() < USUAL_WINDOW && self.read >= self.window.len() as u64 {
            self.window.resize(USUAL_WINDOW, 0);
        }
        while self.tail < self.window.len() && self.fill()? {}
        Ok(())
    }

    /// One read into the free end of the window. `false` at the end of the stream.
    fn fill(&mut self) -> Result<bool, ReadError> {
        if self.window.is_empty() {
            self.window.resize(FIRST_WINDOW, 0);
        }
        let count = loop {
            match self.reader.read(&mut self.window[self.tail..]) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        };
        self.tail += count;
        self.read += count as u64;
        if self.read > self.limits.stream_bytes {
            let message = format!("the file is larger than the limit of {} bytes", self.limits.stream_bytes);
            return Err(ReadError::Parse(self.error_at_head(message)));
        }
        self.ended = count == 0;
        Ok(count > 0)
    }

    fn error_at_head(&self, message: String) -> ParseError {
        ParseError { offset: self.offset, line: self.line, message }
    }
}

/// The first character, if the bytes begin with one.
fn first_char(bytes: &[u8]) -> Option<char> {
    (1..=bytes.len().min(4)).find_map(|length| std::str::from_utf8(&bytes[..length]).ok()?.chars().next())
}

/// Offset of the start of line `line` (from 1).
fn line_start(text: &[u8], line: u64) -> u64 {
    let Some(before) = line.checked_sub(2) else { return 0 };
    let before = usize::try_from(before).unwrap_or(usize::MAX);
    memchr::memchr_iter(b'\n', text).nth(before).map_or(text.len(), |at| at + 1) as u64
}

impl<R: Read> Iterator for Documents<R> {
    type Item = Result<Vec<u8>, ReadError>;

    /// The next document that holds something.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_with(|document| Ok(document.is_empty())) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => {
                    self.out.pop();
                    return Some(Ok(std::mem::take(&mut self.out)));
                }
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out one byte at a time.
    struct Drip<'a>(&'a [u8]);
    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(1).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn objects_only(document: &Document<'_>) -> Result<String, String> {
        match document.kind() {
            "object" | "null" => Ok(String::from_utf8_lossy(document.json).into_owned()),
            kind => {
                Err(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
            }
        }
    }

    fn all<R: Read>(reader: R) -> (Vec<String>, Option<String>) {
        let mut documents = Documents::new(reader, Limits::default());
        let mut found = Vec::new();
        loop {
            match documents.next_with(objects_only) {
                Ok(Some(json)) => found.push(json),
                Ok(None) => return (found, None),
                Err(ReadError::Parse(error)) => return (found, Some(error.message)),
                Err(error) => return (found, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn documents_of_fbc_3_2() {
        let array = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}";
        let cases: &[(&str, &[&str], Option<&str>)] = &[
            (r#"{"s":"a"}{"s":"b"} {"s":"c"}"#, &[r#"{"s":"a"}"#, r#"{"s":"b"}"#, r#"{"s":"c"}"#], None),
            (
                "{\"s\":\"a\"}\n---\n{\"s\":\"b\"}\n---\n{\"s\":\"c\"}",
                &[r#"{"s":"a"}"#, r#"{"s":"b"}"#, r#"{"s":"c"}"#],
                None,
            ),
            (
                "{\"s\":\"a\"}\n{\"s\":\"b\"}\n---\n{\"s\":\"c\"}",
                &[r#"{"s":"a"}"#, r#"{"s":"b"}"#],
                Some("invalid character '-' in numeric literal"),
            ),
            ("---\n{\"s\":\"a\"}\n{\"s\":\"b\"}", &[r#"{"s":"a"}"#], None),
            ("{\"s\":\"a\",}\n{\"s\":\"b\"}", &[r#"{"s":"a"}"#], None),
            ("{\"s\":\"a\"}\n{\"s\":\"b\",}", &[r#"{"s":"a"}"#, r#"{"s":"b"}"#], None),
            (
                "{\"s\":\"a\"}\n{\"s\":\"b\"}\n{\"s\":\"c\",}",
                &[r#"{"s":"a"}"#, r#"{"s":"b"}"#],
                Some("invalid character '}' looking for beginning of object key string"),
            ),
            ("s: a\n...\ns: b", &[r#"{"s":"a"}"#], None),
            ("# c\n{\"s\":\"a\"}", &[r#"{"s":"a"}"#], None),
            (
                r#"{"s":"a"} garbage"#,
                &[r#"{"s":"a"}"#],
                Some("json: offset 11: invalid character 'g' looking for beginning of value"),
            ),
            (r#"[{"s":"a"}]"#, &[], Some(array)),
            (r#"{"s":"a""#, &[], Some("unexpected EOF")),
            ("{}", &["{}"], None),
            ("", &[], None),
            ("\n", &[""], None),
            ("# only\n---\na: 1", &["", r#"{"a":1}"#], None),
            ("{\"a\":1E400}", &[r#"{"a":"1E400"}"#], None),
            ("{\"a\":\"x\ny\"}", &[r#"{"a":"x y"}"#], None),
            ("\u{feff}{\"a\":1}", &[r#"{"a":1}"#], None),
            (
                "{\"a\":1}[1]",
                &[r#"{"a":1}"#],
                Some("json: cannot unmarshal array into Go value of type map[string]interface {}"),
            ),
            ("{\"a\":1}\n#c\n", &[r#"{"a":1}"#, ""], None),
        ];
        for (input, want, error) in cases {
            let want: Vec<String> = want.iter().map(|&w| w.to_owned()).collect();
            let want = (want, error.map(str::to_owned));
            assert_eq!(all(input.as_bytes()), want, "{input}");
            assert_eq!(all(Drip(input.as_bytes())), want, "{input}, one byte at a time");
        }
    }

    #[test]
    fn documents_errors_have_a_position() {
        let mut documents = Documents::from_bytes(b"{\"a\":1}\n{\"b\":2}\n{\"c\":\n tru}", Limits::default());
        documents.next();
        documents.next();
        let Some(Err(ReadError::Parse(error))) = documents.next() else { panic!("no error") };
        assert_eq!((error.offset, error.line), (26, 4), "{error}");
        assert!(documents.next().is_none(), "the stream has ended");
        let mut documents = Documents::from_bytes(b"a: 1\n---\nb: 2\nc: : 3\n", Limits::default());
        documents.next();
        let Some(Err(ReadError::Parse(error))) = documents.next() else { panic!("no error") };
        assert_eq!((error.offset, error.line), (17, 4), "{error}");
    }

    #[test]
    fn documents_count_bytes_that_are_never_read() {
        let mut documents = Documents::from_bytes(b"---\na: 1\n...\nb: 2\n---\nc: 3\n", Limits::default());
        let mut origins = Vec::new();
        while let Some(origin) = documents.next_with(|d| Ok(d.origin)).unwrap() {
            origins.push((origin.line, origin.ignored_from));
        }
        assert_eq!(origins, [(1, Some(4)), (6, None)]);
    }

    #[test]
    fn documents_name_the_limit_that_is_exceeded() {
        let small =
            Limits { document_bytes: 40_000, documents: 2, stream_bytes: 200_000, ..Limits::default() };
        let last_error = |input: &[u8]| {
            Documents::from_bytes(input, small).filter_map(Result::err).last().map(|e| e.to_string())
        };
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(100_000));
        assert!(last_error(long.as_bytes()).unwrap().contains("larger than the limit of 40000 bytes"));
        let long = format!("a: {}", "x".repeat(100_000));
        assert!(last_error(long.as_bytes()).unwrap().contains("larger than the limit of 40000 bytes"));
        assert!(last_error(b"{}{}{}").unwrap().contains("more documents than the limit of 2"));
        let spaces = " ".repeat(300_000);
        assert!(last_error(spaces.as_bytes()).is_some());
    }

    fn nodes_of(input: &str, limits: Limits) -> (u64, Option<String>) {
        let mut documents = Documents::from_bytes(input.as_bytes(), limits);
        let error = documents.by_ref().find_map(Result::err).map(|error| error.to_string());
        (documents.nodes(), error)
    }

    #[test]
    fn limits_count_values_keys_and_expanded_aliases() {
        for (input, want) in [
            ("", 0),
            ("{}", 1),
            (r#"{"a":[1,{"b":null},"x"]}"#, 8),
            (r#"{"a":1,"a":2}"#, 5),
            ("{\"a\":\"\u{ff}\"}{\"a\":1} {}", 7),
            ("- a\n- [b, {c: d}]\n", 7),
            ("a: 1\n---\n# nothing\n---\nb: 2\n", 6),
            ("a: &x [1, 2]\nb: *x\nc: {d: *x}\n", 15),
            ("a: &x 1\n? *x\n: *x\n", 5),
            ("a: &x {b: &y [1, 2]}\nc: *y\nd: *x\n", 17),
            ("a: &x {b: 1}\nc:\n  <<: *x\n", 11),
            // read as JSON first, counted once
            ("{\"a\":1,}", 3),
        ] {
            let limits = Limits { stream_nodes: want, ..Limits::default() };
            assert_eq!(nodes_of(input, limits), (want, None), "{input:?}");
        }
    }

    #[test]
    fn limits_hold_for_documents_and_streams() {
        let json = r#"{"a":[0,0,0]}"#;
        let yaml = "a: [0, 0, 0]\n";
        let aliases = "a: &x [0]\nb: *x\n";
        let document = "the document has more than the limit of 5 nodes (values and keys); split it into smaller documents";
        let stream =
            "the file has more than the limit of 7 nodes (values and keys); split it into smaller files";
        for (input, limits, want) in [
            (json.to_owned(), (6, 7), None),
            (json.to_owned(), (5, 7), Some(format!("line 1 (byte 10): {document}"))),
            (yaml.to_owned(), (6, 7), None),
            (yaml.to_owned(), (5, 7), Some(format!("line 1 (byte 10): {document}"))),
            (aliases.to_owned(), (7, 7), None),
            (aliases.to_owned(), (5, 7), Some(format!("line 2 (byte 13): {document}"))),
            (format!("{json}{json}"), (6, 12), None),
            (format!("{json}\n{json}"), (6, 7), Some(format!("line 2 (byte 15): {stream}"))),
            (format!("{yaml}---\n{yaml}"), (6, 12), None),
            (format!("{yaml}---\n{yaml}"), (6, 7), Some(format!("line 3 (byte 17): {stream}"))),
        ] {
            let (document_nodes, stream_nodes) = limits;
            let limits = Limits { document_nodes, stream_nodes, ..Limits::default() };
            let (_, error) = nodes_of(&input, limits);
            assert_eq!(error, want, "{input:?} within {document_nodes} and {stream_nodes}");
        }
    }

    #[test]
    fn limits_default_to_500_000_nodes_a_document() {
        // an array and its numbers
        let array = |nodes: usize| format!("[{}0]", "0,".repeat(nodes - 2));
        let rejected = |nodes| nodes_of(&array(nodes), Limits::default()).1.is_some();
        assert!(!rejected(500_000));
        assert!(rejected(500_001));
    }

    /// A file that is refused as JSON is not read once more as YAML.
    #[test]
    fn limits_end_a_json_file_without_a_yaml_attempt() {
        let bomb = format!("{{\"items\":[{}0]}}", "{\"a\":0},".repeat(200_000));
        let limits = Limits { document_nodes: 1_000, ..Limits::default() };
        let mut documents = Documents::from_bytes(bomb.as_bytes(), limits);
        let error = documents.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("more than the limit of 1000 nodes"), "{error}");
        assert_eq!(documents.nodes(), 1_001);
        assert!(documents.window.len() <= FIRST_WINDOW, "{} bytes were read", documents.window.len());
    }
}
