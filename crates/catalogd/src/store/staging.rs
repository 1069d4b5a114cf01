//! Writing one catalog: into a private directory first, made durable, then moved by one rename.
//!
//! Nothing here is visible to readers before [`Staging::commit`] has renamed the finished directory; a killed process
//! or a full disk leaves a directory under `staging/`, which the next start removes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use olm_core::Digest;
use olm_fbc::Ingested;

use super::content::{CATALOG, Content, INDEX};
use super::copies::Coding;
use super::files::{Blob, Counted, Manifest, finish, write};
use super::{COMPRESS_FROM, Lease, StoreError, copies};

/// Catalogs up to this size get their copies before they are served: it takes milliseconds. Larger ones get them
/// afterwards ([`super::Store::compress`]).
pub const COMPRESS_BEFORE_SERVING: u64 = 1 << 20;
/// Lines in the order of the archive.
const SPOOL: &str = "spool";
/// Parts of a spool that is read in another order than it was written.
const MAX_PARTS: usize = 1000;
/// Bytes gathered before a write.
const BUFFER: usize = 256 * 1024;

/// The private directory of one writer; removed when dropped, unless it has been renamed away.
#[derive(Debug)]
pub(super) struct Private(pub(super) PathBuf);

impl Drop for Private {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(dir = %self.0.display(), %error, "cannot remove staging directory; the next start will");
        }
    }
}

/// Where [`olm_fbc::Ingest`] writes lines.
pub type Spool = BufWriter<Counted<File>>;

/// A catalog that is being written; dropped without [`Staging::commit`], it leaves nothing behind.
#[derive(Debug)]
pub struct Staging {
    // in this order: the lease protects the directory until it is gone
    private: Private,
    lease: Lease,
}

impl Staging {
    pub(super) fn new(lease: Lease, private: Private) -> Result<Self, StoreError> {
        std::fs::DirBuilder::new().mode(0o700).create(&private.0).map_err(StoreError::Write)?;
        Ok(Self { private, lease })
    }

    /// The image that this content belongs to.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        self.lease.digest()
    }

    /// The file for the lines of the catalog, in the order in which they come.
    ///
    /// # Errors
    /// When the disk refuses it.
    pub fn spool(&self) -> Result<Spool, StoreError> {
        let file = File::create(self.private.0.join(SPOOL)).map_err(StoreError::Write)?;
        Ok(BufWriter::with_capacity(BUFFER, Counted::new(file)))
    }

    /// Makes everything durable and puts it in place; from then on the store has this digest. The lease keeps it
    /// from garbage collection until it is published under a name.
    ///
    /// If another writer was first with the same digest, that content is used and this one dropped.
    ///
    /// # Errors
    /// When the disk refuses it, or with [`io::ErrorKind::Interrupted`] when the ingest is cancelled; what was stored before is
    /// untouched.
    pub fn commit(self, mut ingested: Ingested<Spool>) -> Result<(Arc<Content>, Lease), StoreError> {
        let Self { private, lease } = self;
        let dir = private.0.as_path();
        let index = std::mem::take(&mut ingested.index);
        let cancellation = ingested.cancellation().clone();
        let stop = || cancellation.is_cancelled();
        let (in_order, segments) = (ingested.in_order(), ingested.segments().to_vec());
        let counted =
            ingested.into_spool().into_inner().map_err(|error| StoreError::Write(error.into_error()))?;
        let catalog = if in_order || is_kept(&segments, counted.size()) {
            let mut facts = counted.durable(CATALOG).map_err(StoreError::Write)?;
            if !in_order {
                facts.order = segments.iter().map(|segment| (segment.start, segment.end)).collect();
            }
            std::fs::rename(dir.join(SPOOL), dir.join(CATALOG)).map_err(StoreError::Write)?;
            facts
        } else {
            let sorted =
                write(dir, CATALOG, |out| arrange(dir, &segments, out, &stop)).map_err(StoreError::Write)?;
            std::fs::remove_file(dir.join(SPOOL)).map_err(StoreError::Write)?;
            sorted
        };
        if (COMPRESS_FROM..=COMPRESS_BEFORE_SERVING).contains(&index.size()) {
            let plain = Blob::open(dir, CATALOG, &Manifest::new(lease.digest(), vec![catalog.clone()]))?;
            let into = dir.join(copies::COPIES);
            let codings = [Coding::Gzip, Coding::Zstd];
            copies::write(&plain, &into, lease.digest(), &codings, &stop).map_err(StoreError::Write)?;
        }
        let index = write(dir, INDEX, |out| out.write_all(&index.to_bytes())).map_err(StoreError::Write)?;
        finish(dir, &Manifest::new(lease.digest(), vec![catalog, index])).map_err(StoreError::Write)?;
        let content = lease.settle(dir)?;
        Ok((content, lease))
    }
}

/// Whether the spool stays as it is, to be read in the order of its parts: a second writing costs more than that, unless the parts
/// are small or much of the spool is not read at all.
fn is_kept(segments: &[Range<u64>], spooled: u64) -> bool {
    let used: u64 = segments.iter().map(|segment| segment.end.saturating_sub(segment.start)).sum();
    (1..=MAX_PARTS).contains(&segments.len()) && spooled.saturating_sub(used) <= used / 8
}

/// Copies the parts of the spool in their final order. Fails as soon as `stop` returns true.
fn arrange(
    dir: &Path,
    segments: &[Range<u64>],
    out: &mut Counted<File>,
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    let spool = File::open(dir.join(SPOOL))?;
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let mut buffer = vec![0; BUFFER];
    for segment in segments {
        let mut at = segment.start;
        while at < segment.end {
            if stop() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = usize::try_from(segment.end - at).unwrap_or(BUFFER).min(BUFFER);
            let chunk = buffer.get_mut(..count).unwrap_or_default();
            spool.read_exact_at(chunk, at)?;
            out.write_all(chunk)?;
            at += count as u64;
        }
    }
    out.flush()
}
