//! The result of an ingest: an index, and the content in segments of the spool.

use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    ops::Range,
};

use super::FileWarning;
use crate::{Cancellation, Index};

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
    pub(super) lines: Vec<u32>,
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

    /// File and line (from 1) of each object, in content order.
    pub fn origins(&self) -> impl Iterator<Item = (&str, u32)> {
        let files = self.files.iter().flat_map(|(path, count)| std::iter::repeat_n(path.as_str(), *count));
        files.zip(self.lines.iter().copied())
    }
}
