//! Writing one catalog: into a private directory first, made durable, then renamed into place at once.
//!
//! Nothing here is visible to readers before [`Staging::commit`] has renamed the finished directory; a killed process
//! or a full disk leaves a directory under `staging/`, which the next start removes.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Crc;
use olm_core::Digest;

use super::content::{CATALOG, Content, FileFacts, GZIP, INDEX, MANIFEST, Manifest, ZSTD};
use super::index::IndexBuilder;
use super::{Lease, StoreError};

/// Catalogs shorter than this get no compressed copies (rule: catalogd §7.8).
pub const COMPRESS_FROM: u64 = 1024;
/// Bytes gathered before a write.
const BUFFER: usize = 256 * 1024;
/// The fastest level that still beats gzip's best on catalogs.
const ZSTD_LEVEL: i32 = 3;

/// A file being written whose size and checksum are counted on the way.
struct Counted<W> {
    inner: W,
    size: u64,
    crc: Crc,
}

impl<W: Write> Counted<W> {
    fn new(inner: W) -> Self {
        Self { inner, size: 0, crc: Crc::new() }
    }

    fn facts(&self, name: &'static str) -> FileFacts {
        FileFacts { name: name.to_owned(), size: self.size, crc32: self.crc.sum() }
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

/// The private directory of one writer; removed when dropped, unless it has been renamed away.
#[derive(Debug)]
struct Private(PathBuf);

impl Drop for Private {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(dir = %self.0.display(), %error, "cannot remove staging directory; the next start will");
        }
    }
}

/// A catalog that is being written; dropped without [`Staging::commit`], it leaves nothing behind.
pub struct Staging {
    lease: Lease,
    private: Private,
    jsonl: BufWriter<Counted<File>>,
    index: IndexBuilder,
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staging").field("dir", &self.private.0).finish_non_exhaustive()
    }
}

impl Staging {
    pub(super) fn new(lease: Lease, dir: PathBuf) -> Result<Self, StoreError> {
        std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(StoreError::Write)?;
        let private = Private(dir);
        let file = File::create(private.0.join(CATALOG)).map_err(StoreError::Write)?;
        let jsonl = BufWriter::with_capacity(BUFFER, Counted::new(file));
        Ok(Self { lease, private, jsonl, index: IndexBuilder::default() })
    }

    /// The image that this content belongs to.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        self.lease.digest()
    }

    /// Appends one object: its JSON and the line end. Empty words count as absent.
    ///
    /// # Errors
    /// When the disk refuses it or the index is full.
    pub fn push(&mut self, schema: &str, package: &str, name: &str, line: &[u8]) -> Result<(), StoreError> {
        self.jsonl.write_all(line).map_err(StoreError::Write)?;
        self.index.push(schema, package, name, line.len() as u64)?;
        Ok(())
    }

    /// Makes everything durable and puts it in place; from then on the store has this digest. The lease keeps it
    /// from garbage collection until it is published under a name.
    ///
    /// If another writer was first with the same digest, that content is used and this one dropped.
    ///
    /// # Errors
    /// When the disk refuses it; what was stored before is untouched.
    pub fn commit(self) -> Result<(Arc<Content>, Lease), StoreError> {
        let Self { lease, private, jsonl, index } = self;
        let dir = private.0.as_path();
        let counted = jsonl.into_inner().map_err(|error| StoreError::Write(error.into_error()))?;
        counted.inner.sync_all().map_err(StoreError::Write)?;
        let mut files = vec![counted.facts(CATALOG)];
        if counted.size >= COMPRESS_FROM {
            files.extend(compress(dir).map_err(StoreError::Write)?);
        }
        let bytes = index.finish()?.encode();
        files.push(write(dir, INDEX, |out| out.write_all(&bytes)).map_err(StoreError::Write)?);
        let manifest = Manifest::new(lease.digest(), files).encode().map_err(StoreError::Write)?;
        write(dir, MANIFEST, |out| out.write_all(&manifest)).map_err(StoreError::Write)?;
        sync_dir(dir).map_err(StoreError::Write)?;
        let content = lease.settle(dir)?;
        Ok((content, lease))
    }
}

/// Writes both compressed copies, at the same time.
fn compress(dir: &Path) -> io::Result<[FileFacts; 2]> {
    std::thread::scope(|scope| {
        let gzip = scope.spawn(|| {
            write(dir, GZIP, |out| {
                let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
                pour(dir, &mut encoder)?;
                encoder.finish().map(|_| ())
            })
        });
        let zstd = write(dir, ZSTD, |out| {
            let mut encoder = zstd::Encoder::new(out, ZSTD_LEVEL)?;
            pour(dir, &mut encoder)?;
            encoder.finish().map(|_| ())
        });
        let gzip = gzip.join().unwrap_or_else(|_| Err(io::Error::other("compression stopped early")));
        Ok([gzip?, zstd?])
    })
}

/// Copies the catalog written so far into `out`.
fn pour(dir: &Path, out: &mut impl Write) -> io::Result<()> {
    let mut file = File::open(dir.join(CATALOG))?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(buffer.get(..count).unwrap_or_default())?;
    }
}

/// Writes one durable file of the directory.
fn write(
    dir: &Path,
    name: &'static str,
    fill: impl FnOnce(&mut Counted<File>) -> io::Result<()>,
) -> io::Result<FileFacts> {
    let mut out = Counted::new(File::create(dir.join(name))?);
    fill(&mut out)?;
    out.inner.sync_all()?;
    Ok(out.facts(name))
}

/// Makes the entries of a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
