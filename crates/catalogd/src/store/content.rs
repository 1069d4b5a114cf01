//! One stored catalog: open files, sizes and the index, checked against its manifest.
//!
//! A content directory is written once, under its image digest, and never changed. The compressed copies may come later, as a
//! directory inside with a manifest of its own (see `copies`).
//! Opening checks manifests, sizes and index; [`Content::verify`] reads everything.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use olm_core::Digest;
use olm_fbc::Index;

use super::copies::{COPIES, Copies};
use super::files::{Blob, ContentError, Manifest};

/// The catalog as JSON lines.
pub(super) const CATALOG: &str = "catalog.jsonl";
/// See [`Index`].
pub(super) const INDEX: &str = "index";
/// Where a run of bytes lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// First byte.
    pub start: u64,
    /// How many bytes.
    pub len: u64,
}

/// A stored catalog, ready to be served. Holding it keeps its files readable even after they are removed.
#[derive(Debug)]
pub struct Content {
    digest: Digest,
    dir: PathBuf,
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
        let jsonl = Blob::open(dir, CATALOG, &manifest)?;
        let index = Index::from_bytes(&Blob::open(dir, INDEX, &manifest)?.whole()?)?;
        if index.size() != jsonl.size() {
            return Err(ContentError::Damaged { file: INDEX });
        }
        let content =
            Self { digest: digest.clone(), dir: dir.to_owned(), jsonl, index, copies: OnceLock::new() };
        content.adopt_copies();
        Ok(content)
    }

    /// Uses the copies on disk from now on, if there are whole ones. Returns whether there are.
    pub(super) fn adopt_copies(&self) -> bool {
        if self.copies.get().is_none()
            && let Ok(copies) = Copies::open(&self.dir.join(COPIES), &self.digest)
        {
            // The first caller has opened the same files.
            let _ = self.copies.set(copies);
        }
        self.copies.get().is_some()
    }

    /// Whether compressed copies are worth having and not there yet.
    #[must_use]
    pub fn lacks_copies(&self) -> bool {
        self.jsonl.size() >= super::COMPRESS_FROM && self.copies.get().is_none()
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
}
