//! A catalog image as a stream: files come in the order of the archive, one normalised line of JSON per object
//! goes out, and an index is made on the way (catalogd §6).
//!
//! Memory is a window, the largest object and one small record per file and object. What later layers remove,
//! which files `.indexignore` leaves out, and the walk order (fbc §2.1) are known only at the end, so lines go
//! to a *spool* as they come and [`Ingested::emit`] puts the segments in order. When the archive was in walk
//! order already, the spool *is* the catalog.
//!
//! Opens no files: the caller lends a [`Write`] for the spool and a [`Read`] for each file.
//!
//! ```
//! use olm_fbc::{Ingest, IngestLimits, Query};
//!
//! let mut ingest = Ingest::new(Vec::new(), IngestLimits::default());
//! ingest.file("configs/foo/z.yaml", &mut &b"schema: olm.channel\npackage: foo\nname: stable\n"[..])?;
//! ingest.file("configs/foo/a.json", &mut &br#"{"schema": "olm.package", "name": "foo"}"#[..])?;
//! ingest.file("configs/README.md", &mut &b"# not: [yaml"[..])?;
//! ingest.file("configs/.indexignore", &mut &b"README.md"[..])?;
//! let ingested = ingest.finish()?;
//!
//! // here the spool is a buffer; catalogd's is a file, and `in_order` spares it the copy
//! assert!(!ingested.in_order());
//! let mut jsonl = Vec::new();
//! let mut spool = std::io::Cursor::new(ingested.spool());
//! ingested.emit(&mut spool, &mut jsonl)?;
//! let section = &ingested.index.sections(&Query { schema: "olm.channel", ..Query::default() })[0];
//! let channel = &jsonl[section.start as usize..section.end as usize];
//! assert_eq!(channel, b"{\"name\":\"stable\",\"package\":\"foo\",\"schema\":\"olm.channel\"}\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ingested;
mod limits;

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read, Write},
    ops::Range,
    sync::Arc,
};

use olm_yaml::{Documents, ParseError, Position, ReadError};

pub(crate) use ingested::ObjectPosition;
pub use ingested::{Ingested, Summary};
pub use limits::{FileError, FileWarning, IngestError, IngestLimits, WarningKind};
use limits::{too_large, truncated};

use crate::{
    Cancellation, Head,
    index::IndexBuilder,
    indexignore::{FILE_NAME, IndexIgnore, MatchBudget, MatchError, count_patterns},
    meta::head,
};

const KEPT_WARNINGS: usize = 100;
/// How many links a path may lead through.
const LINK_HOPS: usize = 40;

#[derive(Debug, Clone)]
enum Content {
    Lines {
        spooled: Range<u64>,
        objects: Range<usize>,
        problem: Option<ParseError>,
    },
    /// Shared by hard links.
    Ignore(Arc<[u8]>),
    Link(String),
}

#[derive(Debug, Clone)]
struct Entry {
    layer: u32,
    content: Content,
}

/// A path as a key whose byte order is the walk order: NUL between components.
type WalkKey = String;

/// Takes in the files of one catalog. See the module's example.
pub struct Ingest<W> {
    spool: W,
    spooled: u64,
    limits: IngestLimits,
    layer: u32,
    entries: BTreeMap<WalkKey, Entry>,
    builder: IndexBuilder,
    positions: Vec<ObjectPosition>,
    /// Bytes of the `.indexignore` files so far.
    ignore_bytes: u64,
    cancellation: Cancellation,
    documents: Option<Documents<io::Empty>>,
    warnings: Vec<FileWarning>,
}

impl<W> fmt::Debug for Ingest<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, objects) = (self.entries.len(), self.builder.len());
        f.debug_struct("Ingest").field("files", &files).field("objects", &objects).finish_non_exhaustive()
    }
}

impl<W: Write> Ingest<W> {
    /// Lines will be written to `spool`, in pieces of one object: lend something buffered.
    pub fn new(spool: W, limits: IngestLimits) -> Self {
        Self {
            spool,
            spooled: 0,
            limits,
            layer: 0,
            entries: BTreeMap::new(),
            builder: IndexBuilder::new(),
            positions: Vec::new(),
            ignore_bytes: 0,
            cancellation: Cancellation::default(),
            documents: None,
            warnings: Vec::new(),
        }
    }

    /// Ends every call, also [`Self::finish`], with [`IngestError::Cancelled`] once this is cancelled.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// What follows belongs to the next layer of the image.
    pub fn next_layer(&mut self) {
        self.layer += 1;
    }

    /// Takes in one file. What is wrong with its content is kept for [`Self::finish`]: the file may yet be
    /// removed by a layer or left out by an `.indexignore`.
    ///
    /// # Errors
    /// The reader or the spool fails, or a limit is reached.
    pub fn file(&mut self, path: &str, reader: &mut dyn Read) -> Result<(), IngestError> {
        let key = self.arrive(path)?;
        let content = if key.rsplit('\0').next() == Some(FILE_NAME) {
            self.ignore_file(path, reader)?
        } else {
            self.lines(path, reader)?
        };
        self.entries.insert(key, Entry { layer: self.layer, content });
        Ok(())
    }

    /// A symbolic link: read through it at the end, inside the root whatever its target is.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), IngestError> {
        let key = self.arrive(path)?;
        if target.len() > self.limits.path_bytes {
            return Err(IngestError::Path(path.to_owned()));
        }
        let content = Content::Link(target.to_owned());
        self.entries.insert(key, Entry { layer: self.layer, content });
        Ok(())
    }

    /// A link that leads to no file of the catalog, and why. As with broken content, the file may yet be left out by an
    /// `.indexignore`.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn broken_link(&mut self, path: &str, why: &str) -> Result<(), IngestError> {
        let key = self.arrive(path)?;
        let (spooled, objects) = (self.spooled..self.spooled, self.builder.len()..self.builder.len());
        let problem = Some(ParseError { offset: 0, line: 1, message: truncated(why) });
        let content = Content::Lines { spooled, objects, problem };
        self.entries.insert(key, Entry { layer: self.layer, content });
        Ok(())
    }

    /// A hard link: the same content as the file at `target` has now.
    ///
    /// # Errors
    /// There is no such file, or as [`Self::file`].
    pub fn hard_link(&mut self, path: &str, target: &str) -> Result<(), IngestError> {
        let source = self.entries.get(&walk_key(target)?).cloned();
        let source = source.ok_or_else(|| IngestError::Path(target.to_owned()))?;
        if let Content::Ignore(text) = &source.content {
            self.count_ignore_bytes(path, text.len() as u64)?;
        }
        let key = self.arrive(path)?;
        self.entries.insert(key, Entry { layer: self.layer, ..source });
        Ok(())
    }

    /// A directory: takes the place of a file.
    ///
    /// # Errors
    /// The path is none.
    pub fn directory(&mut self, path: &str) -> Result<(), IngestError> {
        let key = walk_key(path)?;
        self.entries.remove(&key);
        Ok(())
    }

    /// A whiteout: removes what lower layers have at and below `path`.
    ///
    /// # Errors
    /// The path is none.
    pub fn whiteout(&mut self, path: &str) -> Result<(), IngestError> {
        let key = walk_key(path)?;
        let layer = self.layer;
        if self.entries.get(&key).is_some_and(|entry| entry.layer < layer) {
            self.entries.remove(&key);
        }
        self.remove_below(&key, |entry| entry.layer < layer);
        Ok(())
    }

    /// An opaque directory: removes what lower layers have below it. `""` is the root.
    ///
    /// # Errors
    /// The path is none.
    pub fn opaque(&mut self, directory: &str) -> Result<(), IngestError> {
        let layer = self.layer;
        if directory.trim_matches('/').is_empty() || directory == "." {
            self.entries.retain(|_, entry| entry.layer >= layer);
            return Ok(());
        }
        self.remove_below(&walk_key(directory)?, |entry| entry.layer < layer);
        Ok(())
    }

    fn remove_below(&mut self, key: &str, gone: impl Fn(&Entry) -> bool) {
        let (from, to) = (format!("{key}\0"), format!("{key}\u{1}"));
        let below = self.entries.range(from..to).filter(|(_, entry)| gone(entry));
        let below: Vec<WalkKey> = below.map(|(key, _)| key.clone()).collect();
        for key in below {
            self.entries.remove(&key);
        }
    }

    /// A file or link is about to take its place: what cannot be beside it goes.
    fn arrive(&mut self, path: &str) -> Result<WalkKey, IngestError> {
        self.check_cancelled()?;
        if path.len() > self.limits.path_bytes {
            return Err(too_large("bytes in a path", self.limits.path_bytes as u64, path));
        }
        if self.entries.len() >= self.limits.files {
            return Err(too_large("files", self.limits.files as u64, path));
        }
        let key = walk_key(path)?;
        for (at, _) in key.match_indices('\0') {
            let parent = &key[..at];
            if self.entries.get(parent).is_some_and(|entry| !matches!(entry.content, Content::Link(_))) {
                self.entries.remove(parent);
            }
        }
        self.remove_below(&key, |_| true);
        Ok(key)
    }

    fn check_cancelled(&self) -> Result<(), IngestError> {
        if self.cancellation.is_cancelled() { Err(IngestError::Cancelled) } else { Ok(()) }
    }

    fn ignore_file(&mut self, path: &str, reader: &mut dyn Read) -> Result<Content, IngestError> {
        let left = self.limits.ignore_bytes.saturating_sub(self.ignore_bytes);
        let mut text = Vec::new();
        let read = reader.take(left.saturating_add(1)).read_to_end(&mut text);
        let read = read.map_err(|source| IngestError::Read { path: path.to_owned(), source })?;
        self.count_ignore_bytes(path, read as u64)?;
        Ok(Content::Ignore(text.into()))
    }

    fn count_ignore_bytes(&mut self, path: &str, bytes: u64) -> Result<(), IngestError> {
        self.ignore_bytes = self.ignore_bytes.saturating_add(bytes);
        let limit = self.limits.ignore_bytes;
        if self.ignore_bytes > limit {
            return Err(too_large("bytes in .indexignore files", limit, path));
        }
        Ok(())
    }

    fn lines(&mut self, path: &str, reader: &mut dyn Read) -> Result<Content, IngestError> {
        let mut documents = match self.documents.take() {
            Some(kept) => kept.restart(reader),
            None => Documents::new(reader, self.limits.file),
        };
        let (start, first) = (self.spooled, self.builder.len());
        let problem = loop {
            match documents.next_with(head) {
                Ok(Some(head)) => {
                    self.check_cancelled()?;
                    let origin = documents.document().origin;
                    if let Some(line) = origin.ignored_from {
                        self.warn(path, Position { line, column: 1 }, WarningKind::NeverRead);
                    }
                    if origin.fell_back {
                        self.warn(path, origin.position, WarningKind::ReadAsYaml);
                    }
                    if let Some(position) = origin.rounded {
                        self.warn(path, position, WarningKind::Rounded);
                    }
                    let line = documents.line();
                    if line.is_empty() {
                        self.warn(path, origin.position, WarningKind::Empty);
                        continue;
                    }
                    if head.schema.is_empty() {
                        self.warn(path, origin.position, WarningKind::NoSchema);
                    }
                    self.spooled += line.len() as u64;
                    if self.spooled > self.limits.bytes {
                        return Err(too_large("bytes", self.limits.bytes, path));
                    }
                    if self.builder.len() >= self.limits.objects {
                        return Err(too_large("objects", self.limits.objects as u64, path));
                    }
                    self.spool.write_all(line).map_err(IngestError::Write)?;
                    let Head { schema, package, name } = &head;
                    self.builder.push(schema, package, name, line.len() as u64);
                    if self.builder.text_memory() > self.limits.text_memory {
                        let what = "bytes of memory for the schemas, packages and names of its objects";
                        return Err(too_large(what, self.limits.text_memory, path));
                    }
                    self.positions.push(origin.position.into());
                }
                Ok(None) => break None,
                Err(ReadError::Parse(error)) => break Some(error),
                Err(ReadError::Io(source)) => {
                    return Err(IngestError::Read { path: path.to_owned(), source });
                }
            }
        };
        self.documents = Some(documents.restart(io::empty()));
        Ok(Content::Lines { spooled: start..self.spooled, objects: first..self.builder.len(), problem })
    }

    fn warn(&mut self, path: &str, position: Position, kind: WarningKind) {
        if self.warnings.len() < KEPT_WARNINGS {
            self.warnings.push(FileWarning { path: path.to_owned(), position, kind });
        }
    }

    /// Decides which files count and in which order.
    ///
    /// # Errors
    /// [`IngestError::Files`] names every file that does not decode.
    pub fn finish(self) -> Result<Ingested<W>, IngestError> {
        let (ingested, problems) = self.finish_all()?;
        if problems.is_empty() { Ok(ingested) } else { Err(IngestError::Files(problems)) }
    }

    /// As [`Self::finish`], but what was read before a file's error counts, and the errors come beside it.
    ///
    /// # Errors
    /// The spool cannot be flushed, a limit is reached, or the work was cancelled.
    pub fn finish_all(mut self) -> Result<(Ingested<W>, Vec<FileError>), IngestError> {
        self.spool.flush().map_err(IngestError::Write)?;
        let ignore = self.ignore_patterns()?;
        let mut budget = MatchBudget::new(self.limits.match_steps, &self.cancellation);
        let (mut objects_left, mut bytes_left) = (self.limits.objects, self.limits.bytes);
        let mut problems = Vec::new();
        let mut segments: Vec<Range<u64>> = Vec::new();
        let mut order: Vec<Range<usize>> = Vec::new();
        let mut files = Vec::new();
        let mut summary = Summary::default();
        for (key, entry) in &self.entries {
            self.check_cancelled()?;
            if matches!(entry.content, Content::Ignore(_)) {
                continue;
            }
            let path = key.replace('\0', "/");
            let ignored = ignore.ignores_within(&path, &mut budget).map_err(|error| match error {
                MatchError::Steps => {
                    let what = "steps of matching files with the patterns of .indexignore files";
                    too_large(what, self.limits.match_steps, &path)
                }
                MatchError::Cancelled => IngestError::Cancelled,
            })?;
            if ignored {
                summary.ignored += 1;
                continue;
            }
            summary.files += 1;
            match self.resolve(key) {
                Ok((spooled, objects, problem)) => {
                    if let Some(error) = problem {
                        problems.push(FileError { path: path.clone(), error: error.clone() });
                    }
                    if !objects.is_empty() {
                        // links may name the same objects many times
                        objects_left = objects_left
                            .checked_sub(objects.len())
                            .ok_or_else(|| too_large("objects", self.limits.objects as u64, &path))?;
                        bytes_left = bytes_left
                            .checked_sub(spooled.end - spooled.start)
                            .ok_or_else(|| too_large("bytes", self.limits.bytes, &path))?;
                        match segments.last_mut() {
                            Some(last) if last.end == spooled.start => last.end = spooled.end,
                            _ => segments.push(spooled),
                        }
                        files.push((path, objects.len()));
                        order.push(objects);
                    }
                }
                Err(message) => {
                    let error = ParseError { offset: 0, line: 1, message: format!("open {path}: {message}") };
                    problems.push(FileError { path, error });
                }
            }
        }
        let positions = order.iter().flat_map(|range| &self.positions[range.clone()]).copied().collect();
        let index = self.builder.reorder(&order);
        summary.objects = index.len() as u64;
        summary.bytes = index.size();
        let whole = Some(0..self.spooled).filter(|whole| !whole.is_empty());
        let in_order = segments == whole.into_iter().collect::<Vec<_>>();
        let warnings = self.warnings;
        Ok((
            Ingested {
                spool: self.spool,
                index,
                summary,
                warnings,
                segments,
                in_order,
                files,
                positions,
                cancellation: self.cancellation,
            },
            problems,
        ))
    }

    fn ignore_patterns(&self) -> Result<IndexIgnore, IngestError> {
        let mut ignore = IndexIgnore::default();
        for (key, entry) in &self.entries {
            let Content::Ignore(text) = &entry.content else { continue };
            self.check_cancelled()?;
            if ignore.len() + count_patterns(text) > self.limits.ignore_patterns {
                let limit = self.limits.ignore_patterns as u64;
                return Err(too_large("patterns in .indexignore files", limit, &key.replace('\0', "/")));
            }
            let directory = key.strip_suffix(FILE_NAME).unwrap_or_default();
            ignore.add(&directory.replace('\0', "/"), text);
        }
        Ok(ignore)
    }

    /// The lines that reading `key` gives, through links.
    fn resolve(&self, key: &str) -> Result<Lines<'_>, String> {
        let mut steps: Vec<String> = key.split('\0').map(str::to_owned).collect();
        let mut hops = 0;
        'again: loop {
            for depth in 1..=steps.len() {
                let Some(entry) = self.entries.get(&steps[..depth].join("\0")) else { continue };
                match &entry.content {
                    Content::Link(target) => {
                        hops += 1;
                        if hops > LINK_HOPS {
                            return Err("too many levels of symbolic links".to_owned());
                        }
                        let rest = steps.split_off(depth);
                        let base = if target.starts_with('/') { &[][..] } else { &steps[..depth - 1] };
                        steps = follow(base, target, rest);
                        continue 'again;
                    }
                    Content::Lines { spooled, objects, problem } if depth == steps.len() => {
                        return Ok((spooled.clone(), objects.clone(), problem.as_ref()));
                    }
                    Content::Ignore(_) if depth == steps.len() => {
                        return Err("a link to an .indexignore file is not read".to_owned());
                    }
                    _ => return Err("not a directory".to_owned()),
                }
            }
            let key = steps.join("\0");
            let (from, to) = (format!("{key}\0"), format!("{key}\u{1}"));
            let directory = key.is_empty() || self.entries.range(from..to).next().is_some();
            return Err(if directory { "is a directory" } else { "no such file or directory" }.to_owned());
        }
    }
}

/// Where the lines of a file lie: in the spool, among the objects; and what ended them early.
type Lines<'a> = (Range<u64>, Range<usize>, Option<&'a ParseError>);

/// `base` / `target` / `rest` with `.` and `..` resolved, never above the root.
fn follow(base: &[String], target: &str, rest: Vec<String>) -> Vec<String> {
    let mut path: Vec<String> = base.to_vec();
    for part in target.split('/').map(str::to_owned).chain(rest) {
        match part.as_str() {
            "" | "." => {}
            ".." => {
                path.pop();
            }
            _ => path.push(part),
        }
    }
    path
}

/// A path as its key; leading `/` and `./` do not count.
fn walk_key(path: &str) -> Result<WalkKey, IngestError> {
    let refuse = || IngestError::Path(truncated(path));
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() || path.contains('\0') || parts.contains(&"..") {
        return Err(refuse());
    }
    Ok(parts.join("\0"))
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
