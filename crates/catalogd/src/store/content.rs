//! One stored catalog: open files, sizes and the index, checked against its manifest.
//!
//! A content directory is written once, under its image digest, and never changed. The compressed copies may come later, in
//! directories inside, each with a manifest of its own (see `copies`).
//! Opening checks manifests, sizes and index; [`Content::verify`] reads everything.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use olm_core::Digest;
use olm_fbc::Index;

use super::copies::{COPIES, Coding, Copies, ZSTD_COPY};
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
    gzip: OnceLock<Blob>,
    zstd: OnceLock<Blob>,
    /// A client has asked for a zstd copy.
    zstd_requested: AtomicBool,
    /// It was found damaged and removed.
    is_condemned: AtomicBool,
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
        let content = Self {
            digest: digest.clone(),
            dir: dir.to_owned(),
            jsonl,
            index,
            gzip: OnceLock::new(),
            zstd: OnceLock::new(),
            zstd_requested: AtomicBool::new(false),
            is_condemned: AtomicBool::new(false),
        };
        content.adopt_copies();
        Ok(content)
    }

    /// Uses the whole copies on disk from now on.
    pub(super) fn adopt_copies(&self) {
        for directory in [COPIES, ZSTD_COPY] {
            let Ok(copies) = Copies::open(&self.dir.join(directory), &self.digest) else { continue };
            // another caller has opened the same files
            let _ = copies.gzip.map(|gzip| self.gzip.set(gzip));
            let _ = copies.zstd.map(|zstd| self.zstd.set(zstd));
        }
    }

    /// The copies that are worth having and not there yet.
    pub(super) fn missing_copies(&self) -> Vec<Coding> {
        if self.jsonl.size() < super::COMPRESS_FROM {
            return Vec::new();
        }
        let gzip = self.gzip.get().is_none().then_some(Coding::Gzip);
        let requested = self.zstd_requested.load(Ordering::Relaxed);
        let zstd = (requested && self.zstd.get().is_none()).then_some(Coding::Zstd);
        gzip.into_iter().chain(zstd).collect()
    }

    /// Whether compressed copies are worth having and not there yet.
    #[must_use]
    pub fn lacks_copies(&self) -> bool {
        !self.missing_copies().is_empty()
    }

    /// Records that a client wants the zstd copy. Returns whether it is the first.
    pub(super) fn request_zstd(&self) -> bool {
        !self.zstd_requested.swap(true, Ordering::Relaxed)
    }

    /// From now on it is not served under any name.
    pub(super) fn condemn(&self) {
        self.is_condemned.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_condemned(&self) -> bool {
        self.is_condemned.load(Ordering::Relaxed)
    }

    /// Reads every served byte and compares checksums. Slow (disk speed); not for an async thread.
    ///
    /// # Errors
    /// When a file cannot be read or its checksum differs.
    pub fn verify(&self) -> Result<(), ContentError> {
        self.jsonl.verify()?;
        self.gzip().into_iter().chain(self.zstd()).try_for_each(Blob::verify)
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
        self.gzip.get()
    }

    /// The zstd copy; large catalogs get it some time after the first client asked for it.
    #[must_use]
    pub fn zstd(&self) -> Option<&Blob> {
        self.zstd.get()
    }

    /// See [`Index`].
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }
}
