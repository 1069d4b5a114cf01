//! Bounds on one catalog, why it is rejected, and what looks wrong in it.

use std::{fmt, io};

use olm_yaml::{ParseError, Position};
use thiserror::Error;

/// Bounds on one catalog. Links count as often as they name a file.
///
/// Memory for 250,000 objects (the default limit): 32 bytes each in the index and 8 for the position, and as much again
/// while they are put into walk order, 20 MiB; besides, [`Self::text_memory`] and the largest object. The largest public catalogs
/// have about 15,000 objects and a handful of patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestLimits {
    /// Bounds on each file and each object.
    pub file: olm_yaml::Limits,
    pub files: usize,
    /// Bytes written to the spool.
    pub bytes: u64,
    pub path_bytes: usize,
    /// Bytes of all `.indexignore` files.
    pub ignore_bytes: u64,
    /// Patterns in all `.indexignore` files.
    pub ignore_patterns: usize,
    /// Steps to match all files with all patterns; a step is one pattern component or character that is compared, and takes
    /// a few nanoseconds.
    pub match_steps: u64,
    pub objects: usize,
    /// Bytes of memory for the distinct schemas, packages and names of all objects: for each, twice its length and 128.
    pub text_memory: u64,
}

impl Default for IngestLimits {
    /// Objects of 8 MiB, 200,000 files, 1 GiB written, 4,096 bytes a path; 1 MiB, 10,000 patterns and 10^8 steps for `.indexignore` files;
    /// 250,000 objects, 16 MiB for their names.
    fn default() -> Self {
        Self {
            file: olm_yaml::Limits { document_bytes: 8 << 20, ..olm_yaml::Limits::default() },
            files: 200_000,
            bytes: 1 << 30,
            path_bytes: 4096,
            ignore_bytes: 1 << 20,
            ignore_patterns: 10_000,
            match_steps: 100_000_000,
            objects: 250_000,
            text_memory: 16 << 20,
        }
    }
}

impl IngestLimits {
    /// Sets the limit of this name, as the flag `--limit` has it; `false` when there is none.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        let count = usize::try_from(value).unwrap_or(usize::MAX);
        match name {
            "catalog-files" => self.files = count,
            "catalog-bytes" => self.bytes = value,
            "catalog-objects" => self.objects = count,
            "catalog-name-bytes" => self.text_memory = value,
            "catalog-object-bytes" => self.file.document_bytes = count,
            "catalog-object-nodes" => self.file.document_nodes = value,
            "catalog-ignore-bytes" => self.ignore_bytes = value,
            "catalog-ignore-patterns" => self.ignore_patterns = count,
            "catalog-match-steps" => self.match_steps = value,
            _ => return false,
        }
        true
    }
}

/// A file of the catalog that cannot be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{error}; in file {path:?}, line {line}, byte {offset}", error = error.message, line = error.line, offset = error.offset)]
pub struct FileError {
    /// Path from the root of the image or directory.
    pub path: String,
    pub error: ParseError,
}

/// Why a catalog could not be taken in.
#[derive(Debug, Error)]
pub enum IngestError {
    /// At least one file does not decode; in walk order.
    #[error("{}{}", .0.first().map(ToString::to_string).unwrap_or_default(), more(.0.len()))]
    Files(Vec<FileError>),
    /// The bytes of a file could not be had (a broken layer, a digest that is wrong).
    #[error("cannot read {path:?}")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    /// The spool does not take what is written.
    #[error("cannot write the catalog's content")]
    Write(#[source] io::Error),
    /// A bound of [`IngestLimits`].
    #[error("the catalog has more than {limit} {what}; in file {path:?}")]
    TooLarge {
        what: &'static str,
        limit: u64,
        /// The file with which the bound was exceeded.
        path: String,
    },
    /// A path that no file of a catalog can have.
    #[error("the path {0:?} is not a path inside the catalog")]
    Path(String),
    #[error("reading the catalog was cancelled")]
    Cancelled,
}

fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more files)", count - 1) } else { String::new() }
}

/// The error for a bound that `path` exceeds.
pub(super) fn too_large(what: &'static str, limit: u64, path: &str) -> IngestError {
    IngestError::TooLarge { what, limit, path: truncated(path) }
}

/// A path as an error shows it.
pub(super) fn truncated(path: &str) -> String {
    path.chars().take(200).collect()
}

impl IngestError {
    /// Whether trying again with the same content would end the same way.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Files(_) | Self::TooLarge { .. } | Self::Path(_))
    }
}

/// Something that works as in the reference and is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileWarning {
    pub path: String,
    pub position: Position,
    pub kind: WarningKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningKind {
    /// Content after the first node of a YAML document is never read (fbc §3.2).
    NeverRead,
    /// Broken JSON was read as YAML (fbc §3.1).
    ReadAsYaml,
    /// An object without a schema: no query finds it.
    NoSchema,
    /// A YAML document without content, such as a comment before the first `---`.
    Empty,
    /// An integer that a double cannot hold (fbc §4.2).
    Rounded,
}

impl fmt::Display for WarningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverRead => {
                "what follows here is never read: separate documents by a line of `---`"
            }
            Self::ReadAsYaml => "this is broken JSON and was read as YAML",
            Self::NoSchema => "the object has no schema",
            Self::Empty => "a document without content, which `opm validate` refuses",
            Self::Rounded => {
                "the integer is beyond 2^53 and loses its last digits when the catalog is served: write it as a string"
            }
        })
    }
}

impl fmt::Display for FileWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.position.line, self.kind)
    }
}
