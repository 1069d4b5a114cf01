//! The files of a content directory: counted and summed while they are written, made durable, described by a manifest that is
//! written last, and read again by position.
//!
//! A manifest carries its own checksum: a directory without an intact one is not content. What the files hold is not known here.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Crc;
use olm_core::Digest;
use olm_fbc::IndexError;
use serde::{Deserialize, Serialize};

/// Sizes and checksums of the others.
const MANIFEST: &str = "manifest.json";
const FORMAT: u32 = 2;
/// The same with a file whose runs are read in another order. Only such directories have it, so that earlier versions read the others.
const FORMAT_WITH_ORDER: u32 = 3;
/// A manifest is a few hundred bytes; more is not ours.
const MANIFEST_LIMIT: u64 = 64 * 1024;
/// Bytes of one read of a checking pass.
const CHUNK: usize = 256 * 1024;

/// What the manifest records about one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileFacts {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) crc32: u32,
    /// Its parts (start, end) in the order in which they are read; none if it is read as it lies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) order: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) digest: String,
    pub(super) files: Vec<FileFacts>,
}

impl Manifest {
    pub(super) fn new(digest: &Digest, files: Vec<FileFacts>) -> Self {
        let has_order = files.iter().any(|facts| !facts.order.is_empty());
        let format = if has_order { FORMAT_WITH_ORDER } else { FORMAT };
        Self { format, digest: digest.to_string(), files }
    }

    /// JSON, a line end, and a trailer with the checksum of both.
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        let trailer = format!("crc32 {:08x}\n", checksum(&bytes));
        bytes.extend_from_slice(trailer.as_bytes());
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self, ContentError> {
        let damaged = || ContentError::Damaged { file: MANIFEST };
        let cut = bytes.len().checked_sub("crc32 00000000\n".len()).ok_or_else(damaged)?;
        let (body, trailer) = bytes.split_at(cut);
        if trailer != format!("crc32 {:08x}\n", checksum(body)).as_bytes() {
            return Err(damaged());
        }
        let manifest: Self = serde_json::from_slice(body).map_err(|_| damaged())?;
        match manifest.format {
            FORMAT | FORMAT_WITH_ORDER => Ok(manifest),
            other => Err(ContentError::Format(other)),
        }
    }

    /// Reads the manifest of a directory that belongs to `digest`.
    pub(super) fn read(dir: &Path, digest: &Digest) -> Result<Self, ContentError> {
        let failed = |source| ContentError::Io { file: MANIFEST, source };
        let path = dir.join(MANIFEST);
        if std::fs::metadata(&path).map_err(failed)?.len() > MANIFEST_LIMIT {
            return Err(ContentError::Damaged { file: MANIFEST });
        }
        let manifest = Self::decode(&std::fs::read(&path).map_err(failed)?)?;
        if manifest.digest == digest.to_string() {
            Ok(manifest)
        } else {
            Err(ContentError::OtherDigest(manifest.digest))
        }
    }

    pub(super) fn facts(&self, name: &str) -> Option<&FileFacts> {
        self.files.iter().find(|facts| facts.name == name)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Why a directory is not usable content.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The file system refused.
    #[error("cannot read {file}: {source}")]
    Io { file: &'static str, source: io::Error },
    /// Size, checksum or structure is not what was written.
    #[error("{file} is not what was stored")]
    Damaged { file: &'static str },
    /// Written by another version of this program.
    #[error("content has layout version {0}")]
    Format(u32),
    /// The directory is named after another image.
    #[error("content belongs to {0}")]
    OtherDigest(String),
    /// See [`IndexError`].
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// An open file of known size, read by position, so that any number of readers can share it.
#[derive(Debug)]
pub struct Blob {
    name: &'static str,
    file: File,
    size: u64,
    /// Bytes on disk.
    stored: u64,
    crc32: u32,
    /// Empty if it is read as it lies.
    runs: Vec<Run>,
    read: AtomicU64,
}

/// Bytes that lie together, and where they are read.
#[derive(Debug, Clone, Copy)]
struct Run {
    at: u64,
    start: u64,
    len: u64,
}

/// The runs of a file of this size and the bytes that they have together; `None` if they are not in it.
fn runs(order: &[(u64, u64)], stored: u64) -> Option<(Vec<Run>, u64)> {
    let mut at: u64 = 0;
    let mut runs = Vec::with_capacity(order.len());
    for (start, end) in order {
        let len = end.checked_sub(*start).filter(|_| *end <= stored)?;
        runs.push(Run { at, start: *start, len });
        at = at.checked_add(len)?;
    }
    Some((runs, at))
}

impl Blob {
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `buffer` from byte `offset` on.
    ///
    /// # Errors
    /// When the file cannot be read or ends before the buffer is full.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        if self.runs.is_empty() {
            return self.file.read_exact_at(buffer, offset);
        }
        let (mut rest, mut at) = (buffer, offset);
        while !rest.is_empty() {
            let next = self.runs.partition_point(|run| run.at <= at);
            let run = next.checked_sub(1).and_then(|found| self.runs.get(found));
            let Run { at: begin, start, len } = *run.ok_or(io::ErrorKind::UnexpectedEof)?;
            let left =
                usize::try_from((begin + len).saturating_sub(at)).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at_mut(left);
            if now.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.file.read_exact_at(now, start + (at - begin))?;
            at += left as u64;
            rest = later;
        }
        Ok(())
    }

    /// How many bytes have been read since the file was opened; shows that a query reads no more than its answer.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Opens a file that the manifest names, if it has the recorded size.
    pub(super) fn open(dir: &Path, name: &'static str, manifest: &Manifest) -> Result<Self, ContentError> {
        let facts = manifest.facts(name).ok_or(ContentError::Damaged { file: name })?;
        let failed = |source| ContentError::Io { file: name, source };
        let file = File::open(dir.join(name)).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() || metadata.len() != facts.size {
            return Err(ContentError::Damaged { file: name });
        }
        let (runs, ordered) = runs(&facts.order, facts.size).ok_or(ContentError::Damaged { file: name })?;
        let size = if runs.is_empty() { facts.size } else { ordered };
        let (stored, crc32) = (facts.size, facts.crc32);
        Ok(Self { name, file, size, stored, crc32, runs, read: AtomicU64::new(0) })
    }

    /// The whole file, if it has the recorded checksum; for small files.
    ///
    /// # Errors
    /// When it cannot be read or is not what was written.
    pub(super) fn whole(&self) -> Result<Vec<u8>, ContentError> {
        let damaged = ContentError::Damaged { file: self.name };
        let Ok(size) = usize::try_from(self.size) else { return Err(damaged) };
        let mut bytes = vec![0; size];
        self.read_at(&mut bytes, 0).map_err(|source| ContentError::Io { file: self.name, source })?;
        if checksum(&bytes) == self.crc32 { Ok(bytes) } else { Err(damaged) }
    }

    /// Reads all of it and compares the checksum with the manifest's.
    pub(super) fn verify(&self) -> Result<(), ContentError> {
        match self.sum() {
            Ok(sum) if sum == self.crc32 => Ok(()),
            Ok(_) => Err(ContentError::Damaged { file: self.name }),
            Err(source) => Err(ContentError::Io { file: self.name, source }),
        }
    }

    fn sum(&self) -> io::Result<u32> {
        let mut crc = Crc::new();
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < self.stored {
            let count = usize::try_from(self.stored - at).unwrap_or(CHUNK).min(CHUNK);
            let chunk = buffer.get_mut(..count).unwrap_or_default();
            self.file.read_exact_at(chunk, at)?;
            crc.update(chunk);
            at += count as u64;
        }
        Ok(crc.sum())
    }
}

/// A file being written, whose size and checksum are counted on the way.
pub struct Counted<W> {
    inner: W,
    size: u64,
    crc: Crc,
}

impl<W> std::fmt::Debug for Counted<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counted").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Counted<File> {
    pub(super) fn durable(self, name: &'static str) -> io::Result<FileFacts> {
        self.inner.sync_all()?;
        Ok(self.facts(name))
    }
}

impl<W: Write> Counted<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, size: 0, crc: Crc::new() }
    }

    /// Bytes written so far.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    fn facts(&self, name: &'static str) -> FileFacts {
        FileFacts { name: name.to_owned(), size: self.size, crc32: self.crc.sum(), order: Vec::new() }
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.size += count as u64;
        self.crc.update(bytes.get(..count).unwrap_or(bytes));
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes one durable file of the directory.
pub(super) fn write(
    dir: &Path,
    name: &'static str,
    fill: impl FnOnce(&mut Counted<File>) -> io::Result<()>,
) -> io::Result<FileFacts> {
    let mut out = Counted::new(File::create(dir.join(name))?);
    fill(&mut out)?;
    out.durable(name)
}

/// Writes the manifest, last of all, and makes the directory durable.
pub(super) fn finish(dir: &Path, manifest: &Manifest) -> io::Result<()> {
    let manifest = manifest.encode()?;
    write(dir, MANIFEST, |out| out.write_all(&manifest))?;
    sync_dir(dir)
}

/// Makes the entries of a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
