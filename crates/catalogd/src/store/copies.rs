//! The compressed copies of a catalog: one directory inside the content's own, written in private and renamed into place
//! as a whole, so that there are two copies or none.
//!
//! Catalogs are served before they have copies; until then every client gets the plain file (its answers name another
//! representation, so nothing that a client keeps becomes wrong). One pass over the catalog feeds both encoders.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

use olm_core::Digest;

use super::files::{Blob, ContentError, Counted, FileFacts, Manifest, finish};

pub(super) const COPIES: &str = "copies";
/// Precompressed copy for `Content-Encoding: gzip`.
pub(super) const GZIP: &str = "catalog.jsonl.gz";
/// Precompressed copy for `Content-Encoding: zstd`.
pub(super) const ZSTD: &str = "catalog.jsonl.zst";
/// The fastest level that still beats gzip's best on catalogs.
const ZSTD_LEVEL: i32 = 3;
/// The encoder looks back 512 KiB: that is several objects, and its memory stays small.
const ZSTD_WINDOW_LOG: u32 = 19;
/// Bytes of one read.
const BUFFER: usize = 256 * 1024;

/// Both copies, open.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) gzip: Blob,
    pub(super) zstd: Blob,
}

impl Copies {
    /// Opens the copies in `dir`.
    ///
    /// # Errors
    /// When they are absent or not as they were written.
    pub(super) fn open(dir: &Path, digest: &Digest) -> Result<Self, ContentError> {
        let manifest = Manifest::read(dir, digest)?;
        let gzip = Blob::open(dir, GZIP, &manifest)?;
        let zstd = Blob::open(dir, ZSTD, &manifest)?;
        Ok(Self { gzip, zstd })
    }

    /// Reads every byte.
    ///
    /// # Errors
    /// When a checksum differs.
    pub(super) fn verify(&self) -> Result<(), ContentError> {
        self.gzip.verify()?;
        self.zstd.verify()
    }
}

/// Makes the directory `into` and writes copies of `plain` there, durably. Fails as soon as `stop` returns true.
pub(super) fn write(plain: &File, into: &Path, digest: &Digest, stop: &dyn Fn() -> bool) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(into)?;
    let gzip = Counted::new(File::create(into.join(GZIP))?);
    let zstd = Counted::new(File::create(into.join(ZSTD))?);
    let mut gzip = flate2::write::GzEncoder::new(gzip, flate2::Compression::fast());
    let mut zstd = zstd::Encoder::new(zstd, ZSTD_LEVEL)?;
    zstd.window_log(ZSTD_WINDOW_LOG)?;
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    loop {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = plain.read_at(&mut buffer, at)?;
        if count == 0 {
            break;
        }
        let chunk = buffer.get(..count).unwrap_or_default();
        gzip.write_all(chunk)?;
        zstd.write_all(chunk)?;
        at += count as u64;
    }
    let files: Vec<FileFacts> = vec![gzip.finish()?.durable(GZIP)?, zstd.finish()?.durable(ZSTD)?];
    finish(into, &Manifest::new(digest, files))
}
