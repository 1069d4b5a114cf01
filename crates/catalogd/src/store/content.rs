//! One stored catalog: open files, sizes and the index, checked against its manifest.
//!
//! A content directory is written once, under its image digest, and never changed. Its `manifest.json` is written
//! last and carries its own checksum, so a directory without an intact manifest is not content. The compressed copies
//! may come later, as a directory inside with a manifest of its own (see `copies`).
//! Opening checks manifests, sizes and index; [`Content::verify`] reads everything.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Crc;
use olm_core::Digest;
use olm_fbc::{Index, IndexError};
use serde::{Deserialize, Serialize};

use super::copies::{COPIES, Copies};

/// The catalog as JSON lines.
pub(super) const CATALOG: &str = "catalog.jsonl";
/// See [`Index`].
pub(super) const INDEX: &str = "index";
/// Sizes and checksums of the others.
pub(super) const MANIFEST: &str = "manifest.json";
/// Version of the directory's layout.
const FORMAT: u32 = 2;
/// A manifest is a few hundred bytes; more is not ours.
const MANIFEST_LIMIT: u64 = 64 * 1024;
/// Bytes a checking pass reads at once.
const CHUNK: usize = 256 * 1024;

/// Where a run of bytes lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// First byte.
    pub start: u64,
    /// How many bytes.
    pub len: u64,
}

/// What the manifest says about one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileFacts {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) crc32: u32,
}

/// The manifest of a content directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) digest: String,
    pub(super) files: Vec<FileFacts>,
}

impl Manifest {
    pub(super) fn new(digest: &Digest, files: Vec<FileFacts>) -> Self {
        Self { format: FORMAT, digest: digest.to_string(), files }
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
        if manifest.format == FORMAT { Ok(manifest) } else { Err(ContentError::Format(manifest.format)) }
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
            Err(ContentError::Stranger(manifest.digest))
        }
    }

    fn facts(&self, name: &str) -> Option<&FileFacts> {
        self.files.iter().find(|facts| facts.name == name)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|facts| facts.size).sum()
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
    /// The file system says no.
    #[error("cannot read {file}: {source}")]
    Io {
        /// Which file.
        file: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Size, checksum or structure is not what was written.
    #[error("{file} is not what was stored")]
    Damaged {
        /// Which file.
        file: &'static str,
    },
    /// Written by another version of this program.
    #[error("content has layout version {0}")]
    Format(u32),
    /// The directory is named after another image.
    #[error("content belongs to {0}")]
    Stranger(String),
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
    crc32: u32,
    read: AtomicU64,
}

impl Blob {
    /// Bytes.
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
        self.file.read_exact_at(buffer, offset)
    }

    /// How many bytes have been read since the file was opened; shows that a query reads no more than its answer.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Opens a file that the manifest names, if it has the size that the manifest says.
    pub(super) fn open(dir: &Path, name: &'static str, manifest: &Manifest) -> Result<Self, ContentError> {
        let facts = manifest.facts(name).ok_or(ContentError::Damaged { file: name })?;
        let failed = |source| ContentError::Io { file: name, source };
        let file = File::open(dir.join(name)).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() || metadata.len() != facts.size {
            return Err(ContentError::Damaged { file: name });
        }
        Ok(Self { name, file, size: facts.size, crc32: facts.crc32, read: AtomicU64::new(0) })
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
        while at < self.size {
            let count = usize::try_from(self.size - at).unwrap_or(CHUNK).min(CHUNK);
            let chunk = buffer.get_mut(..count).unwrap_or_default();
            self.file.read_exact_at(chunk, at)?;
            crc.update(chunk);
            at += count as u64;
        }
        Ok(crc.sum())
    }
}

/// A stored catalog, ready to be served. Holding it keeps its files readable even after they are removed.
#[derive(Debug)]
pub struct Content {
    digest: Digest,
    dir: PathBuf,
    manifest: Manifest,
    jsonl: Blob,
    index: Index,
    copies: OnceLock<Copies>,
}

impl Content {
    /// Opens the content in `dir`: checks the manifest's own checksum, all sizes and the index. Copies that are not whole
    /// count as absent.
    ///
    /// # Errors
    /// When anything else is missing or not as it was written.
    pub(super) fn open(dir: &Path, digest: &Digest) -> Result<Self, ContentError> {
        let manifest = Manifest::read(dir, digest)?;
        let missing = |file| ContentError::Damaged { file };
        let jsonl = Blob::open(dir, CATALOG, &manifest)?;
        let index = Blob::open(dir, INDEX, &manifest)?;
        let mut bytes = vec![0; usize::try_from(index.size).map_err(|_| missing(INDEX))?];
        index.read_at(&mut bytes, 0).map_err(|source| ContentError::Io { file: INDEX, source })?;
        if index.crc32 != checksum(&bytes) {
            return Err(missing(INDEX));
        }
        let index = Index::from_bytes(&bytes)?;
        if index.size() != jsonl.size {
            return Err(missing(INDEX));
        }
        let content = Self {
            digest: digest.clone(),
            dir: dir.to_owned(),
            manifest,
            jsonl,
            index,
            copies: OnceLock::new(),
        };
        content.adopt_copies();
        Ok(content)
    }

    /// Uses the copies on disk from now on, if there are whole ones. Returns whether there are.
    pub(super) fn adopt_copies(&self) -> bool {
        if self.copies.get().is_none()
            && let Ok(copies) = Copies::open(&self.dir.join(COPIES), &self.digest)
        {
            // Whoever was first has opened the same files.
            let _ = self.copies.set(copies);
        }
        self.copies.get().is_some()
    }

    /// Whether compressed copies are worth having and not there yet.
    #[must_use]
    pub fn lacks_copies(&self) -> bool {
        self.jsonl.size >= super::COMPRESS_FROM && self.copies.get().is_none()
    }

    /// Reads every served byte and compares checksums. Slow (disk speed); not for an async thread.
    ///
    /// # Errors
    /// When a file cannot be read or its checksum differs.
    pub fn verify(&self) -> Result<(), ContentError> {
        self.jsonl.verify()?;
        self.copies.get().map_or(Ok(()), Copies::verify)
    }

    /// The image this content was made from.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Where the files lie.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The catalog as JSON lines.
    #[must_use]
    pub fn jsonl(&self) -> &Blob {
        &self.jsonl
    }

    /// The gzip copy; small catalogs have none, large ones get it some time after they are served.
    #[must_use]
    pub fn gzip(&self) -> Option<&Blob> {
        self.copies.get().map(|copies| &copies.gzip)
    }

    /// The zstd copy; it comes with the gzip copy.
    #[must_use]
    pub fn zstd(&self) -> Option<&Blob> {
        self.copies.get().map(|copies| &copies.zstd)
    }

    /// See [`Index`].
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Bytes on disk, all copies together.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.manifest.bytes() + self.copies.get().map_or(0, Copies::bytes)
    }
}
