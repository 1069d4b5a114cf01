//! The compressed copies of a catalog: directories inside the content's own, each written in private and renamed into place as a
//! whole, so that a copy is whole or absent.
//!
//! Catalogs are served before they have copies; until then every client gets the plain file (its answers name another
//! representation, so nothing that a client keeps becomes wrong). A large catalog gets its gzip copy as soon as it is served. Its
//! zstd copy costs as many bytes again, and few clients ask for it, so it is made when the first one does.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use olm_core::Digest;

use super::files::{Blob, ContentError, Counted, FileFacts, Manifest, finish};
use super::staging::COMPRESS_BEFORE_SERVING;

/// What every catalog that is worth compressing has: the gzip copy; of small catalogs, and of those that an earlier version stored,
/// the zstd copy too.
pub(super) const COPIES: &str = "copies";
/// The zstd copy of a large catalog.
pub(super) const ZSTD_COPY: &str = "copy-zstd";
/// Precompressed copy for `Content-Encoding: gzip`.
const GZIP_FILE: &str = "catalog.jsonl.gz";
/// Precompressed copy for `Content-Encoding: zstd`.
const ZSTD_FILE: &str = "catalog.jsonl.zst";
/// Above this many bytes the processor time of the gzip copy matters more than a twelfth of its bytes.
const LARGE: u64 = 32 << 20;
/// The fastest level that still beats gzip's best on catalogs.
const ZSTD_LEVEL: i32 = 3;
/// The encoder looks back 512 KiB: that is several objects, and its memory stays small.
const ZSTD_WINDOW_LOG: u32 = 19;
/// Bytes of one read.
const BUFFER: usize = 256 * 1024;

/// How a copy is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Zstd,
}

impl Coding {
    /// Where the copy of a large catalog lies.
    pub(super) fn directory(self) -> &'static str {
        match self {
            Self::Gzip => COPIES,
            Self::Zstd => ZSTD_COPY,
        }
    }
}

/// The copies in one directory, open.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) gzip: Option<Blob>,
    pub(super) zstd: Option<Blob>,
}

impl Copies {
    /// Opens the copies in `dir`.
    ///
    /// # Errors
    /// When they are absent or not as they were written.
    pub(super) fn open(dir: &Path, digest: &Digest) -> Result<Self, ContentError> {
        let manifest = Manifest::read(dir, digest)?;
        let open = |name| manifest.facts(name).map(|_| Blob::open(dir, name, &manifest)).transpose();
        Ok(Self { gzip: open(GZIP_FILE)?, zstd: open(ZSTD_FILE)? })
    }
}

/// The lowest level of zlib-rs that makes at most 1.05 times the bytes of `gzip -6` of a catalog of `size` bytes, or as many as it
/// where the time of the copy delays nothing (decision 44).
fn gzip_level(size: u64) -> u32 {
    if size <= COMPRESS_BEFORE_SERVING {
        6
    } else if size <= LARGE {
        7
    } else {
        3
    }
}

enum Encoder {
    Gzip(flate2::write::GzEncoder<Counted<File>>),
    Zstd(zstd::Encoder<'static, Counted<File>>),
}

impl Encoder {
    /// For a copy of `size` bytes.
    fn new(coding: Coding, size: u64, dir: &Path) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => {
                let file = Counted::new(File::create(dir.join(GZIP_FILE))?);
                Self::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::new(gzip_level(size))))
            }
            Coding::Zstd => {
                let file = Counted::new(File::create(dir.join(ZSTD_FILE))?);
                let mut encoder = zstd::Encoder::new(file, ZSTD_LEVEL)?;
                encoder.window_log(ZSTD_WINDOW_LOG)?;
                Self::Zstd(encoder)
            }
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<FileFacts> {
        match self {
            Self::Gzip(encoder) => encoder.finish()?.durable(GZIP_FILE),
            Self::Zstd(encoder) => encoder.finish()?.durable(ZSTD_FILE),
        }
    }
}

/// Makes the directory `into` and writes copies of `plain` there, durably, in one pass. Fails as soon as `stop` returns true.
pub(super) fn write(
    plain: &Blob,
    into: &Path,
    digest: &Digest,
    codings: &[Coding],
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(into)?;
    let encoders: io::Result<Vec<Encoder>> =
        codings.iter().map(|coding| Encoder::new(*coding, plain.size(), into)).collect();
    let mut encoders = encoders?;
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    while at < plain.size() {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = usize::try_from(plain.size() - at).unwrap_or(BUFFER).min(BUFFER);
        let chunk = buffer.get_mut(..count).unwrap_or_default();
        plain.read_at(chunk, at)?;
        for encoder in &mut encoders {
            encoder.write_all(chunk)?;
        }
        at += count as u64;
    }
    let files: io::Result<Vec<FileFacts>> = encoders.into_iter().map(Encoder::finish).collect();
    finish(into, &Manifest::new(digest, files?))
}
