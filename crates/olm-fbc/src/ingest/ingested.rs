//! The result of an ingest: an index, and the content in segments of the spool.

use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    ops::Range,
};

use olm_yaml::Position;

use super::FileWarning;
use crate::{Cancellation, Index};

/// Where an object begins in its file; small, for there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectPosition {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl From<Position> for ObjectPosition {
    fn from(position: Position) -> Self {
        let small = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: small(position.line), column: small(position.column) }
    }
}

/// What a catalog holds, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    pub files: u64,
    /// Files left out by `.indexignore`.
    pub ignored: u64,
    pub objects: u64,
    /// Bytes of `catalog.jsonl`.
    pub bytes: u64,
}

/// A catalog taken in: its lines lie in the spool, in segments.
#[derive(Debug)]
pub struct Ingested<W> {
    pub(super) spool: W,
    /// Where each object lies in the *emitted* content.
    pub index: Index,
    pub summary: Summary,
    /// Findings; at most a hundred, also of files that do not count in the end.
    pub warnings: Vec<FileWarning>,
    pub(super) segments: Vec<Range<u64>>,
    pub(super) in_order: bool,
    pub(super) files: Vec<(String, usize)>,
    pub(super) positions: Vec<ObjectPosition>,
    pub(super) cancellation: Cancellation,
}

impl<W> Ingested<W> {
    /// As [`super::Ingest::cancellation`]: for what is done with the content next.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Whether the spool already is `catalog.jsonl`, byte for byte.
    pub fn in_order(&self) -> bool {
        self.in_order
    }

    /// The ranges of the spool that make up `catalog.jsonl`, in this order.
    pub fn segments(&self) -> &[Range<u64>] {
        &self.segments
    }

    pub fn spool(&self) -> &W {
        &self.spool
    }

    pub fn into_spool(self) -> W {
        self.spool
    }

    /// Writes `catalog.jsonl`. `from` reads what was written to the spool. Returns the bytes written.
    ///
    /// # Errors
    /// Reading or writing fails; a spool that ends early is `UnexpectedEof`.
    pub fn emit(&self, from: &mut (impl Read + Seek), to: &mut impl Write) -> io::Result<u64> {
        let mut written = 0;
        for segment in &self.segments {
            from.seek(SeekFrom::Start(segment.start))?;
            let length = segment.end - segment.start;
            if io::copy(&mut from.by_ref().take(length), to)? != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            written += length;
        }
        Ok(written)
    }

    /// The files, each with the number of its objects, and where each object begins, in content order.
    pub(crate) fn origins(&self) -> (Vec<(String, usize)>, Vec<ObjectPosition>) {
        (self.files.clone(), self.positions.clone())
    }
}
