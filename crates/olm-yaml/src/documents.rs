//! A file as a stream of documents: JSON values one after the other, or YAML documents between `---` lines,
//! or the first turning into the second (fbc §3.1, §3.2).
//!
//! Reads through a sliding window; memory is the window plus the largest document. Does not know what a
//! document should contain: the caller's check decides, and its error counts as a failed document.

use std::io::{ErrorKind, Read};

use libyaml_safer::Mark;

use crate::{
    Limits, Member, Normaliser, ParseError, ReadError,
    json::{ValueError, skip_space},
    split::{Cut, cut, with_line_ends},
    yaml::convert,
};

/// Bytes of the head of a file that decide between JSON and YAML.
const SNIFFED: usize = 4096;
const FIRST_WINDOW: usize = 32 << 10;
/// A window above this is freed after its last document. Real documents are smaller; their window is used again, so that each is read once.
const LARGE_WINDOW: usize = 8 << 20;
const USUAL_WINDOW: usize = 512 << 10;
/// A reader whose window grew beyond this gives memory back between files.
const KEPT_WINDOW: usize = 2 << 20;

/// A line and a column (in characters), both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    pub line: u64,
    pub column: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// Byte offset of its first byte in the stream, from 0 (for YAML: of the chunk between separators).
    pub offset: u64,
    /// Where its value begins.
    pub position: Position,
    /// The first integer whose last digits are lost, because a double cannot hold it (fbc §4.2).
    pub rounded: Option<Position>,
    /// Read as YAML, not as JSON.
    pub yaml: bool,
    /// Line, from 1, of content in the same YAML chunk that is never read: whatever follows the first
    /// document (fbc §3.2, data loss kept for compatibility).
    pub ignored_from: Option<u64>,
    /// The document began as JSON and was read as YAML because of an error.
    pub fell_back: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The value without a line end; empty for a YAML document without content (`null`, comments only).
    pub json: &'a [u8],
    /// The members of the outermost object, sorted by key; offsets are into `json`.
    pub members: &'a [Member],
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
    /// Stream offset, line and column of `head`.
    offset: u64,
    line: u64,
    column: u64,
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
            column: 1,
            read: 0,
            decoded: 0,
            nodes: 0,
            normaliser: Normaliser::new(),
            out: Vec::new(),
            origin: Origin::default(),
        }
    }

    /// Keeps all digits of integers that fit an `i64`, as Kubernetes reads objects. Otherwise these are doubles, too, as in catalogs
    /// (fbc §4.2).
    pub fn with_exact_integers(self) -> Self {
        Self { normaliser: Normaliser::exact(), ..self }
    }

    /// Begins another stream with the buffers and the option of this one.
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
                    let rounded = self.normaliser.rounded;
                    let rounded = rounded.map(|at| self.position_after(&pending[..space + at]));
                    self.origin = Origin {
                        offset: self.offset + space as u64,
                        position: self.position_after(&pending[..space]),
                        rounded,
                        ..Origin::default()
                    };
                    return Ok(match check(&self.document()) {
                        Ok(found) => {
                            self.consume(space + used);
                            Ok(Some(found))
                        }
                        Err(message) => Err(ParseError {
                            offset: self.origin.offset,
                            line: self.origin.position.line,
                            message,
                        }),
                    });
                }
                Err(ValueError::End) if !self.ended => self.more()?,
                Err(failure) => {
                    let number =
                        matches!(&failure, ValueError::Bad { message, .. } if message.starts_with("json: "));
                    let ended = failure == ValueError::End;
                    let too_many = matches!(failure, ValueError::Nodes { .. });
                    let long_key = matches!(failure, ValueError::LongKey { .. });
                    let inner = failure.in_input(&pending[space..], &limits);
                    let newlines = memchr::memchr_iter(b'\n', &pending[..space]).count() as u64;
                    let offset = self.offset + space as u64 + inner.offset;
                    let message = if ended || number || long_key {
                        inner.message
                    } else {
                        format!("json: offset {}: {}", offset + 1, inner.message)
                    };
                    let line = self.line + newlines + inner.line - 1;
                    if too_many || long_key {
                        // as YAML it would have as many, or the same key
                        let message = if too_many { self.too_many_nodes() } else { message };
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
                    let position = |mark: Mark| Position {
                        line: self.line + mark.line,
                        column: mark.column + if mark.line == 0 { self.column } else { 1 },
                    };
                    self.origin = Origin {
                        offset: self.offset,
                        position: converted
                            .start
                            .map_or(Position { line: self.line, column: self.column }, position),
                        rounded: converted.rounded.map(position),
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
        let Position { line, column } = self.position_after(done);
        (self.line, self.column) = (line, column);
        self.offset += bytes as u64;
        self.head += bytes;
        self.release();
    }

    /// Frees the window of a huge document that was the last one, or nearly: the caller makes a tree of the document next, which is as large.
    fn release(&mut self) {
        let pending = self.tail - self.head;
        if self.window.len() > LARGE_WINDOW && pending <= FIRST_WINDOW / 2 {
            let mut window = vec![0; FIRST_WINDOW];
            window[..pending].copy_from_slice(&self.window[self.head..self.tail]);
            (self.window, self.head, self.tail) = (window, 0, pending);
        }
    }

    /// Line and column behind `bytes`, which lie at the head of the window.
    fn position_after(&self, bytes: &[u8]) -> Position {
        let newlines = memchr::memchr_iter(b'\n', bytes).count() as u64;
        let (before, rest) = match memchr::memrchr(b'\n', bytes) {
            Some(at) => (1, &bytes[at + 1..]),
            None => (self.column, bytes),
        };
        let characters = rest.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64;
        Position { line: self.line + newlines, column: before + characters }
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
mod tests;
