//! Compression of a layer, detected by its first bytes and not by its media type (rule: catalogd §5.5), with a bound on
//! the decompressed size.
//!
//! gzip (several members), zstd (several frames) and plain tar are read. bzip2 and xz are recognised and rejected: no
//! builder of the last ten years writes them.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::source::{ChunkSource, Verified};
use super::to_io;
use crate::error::ImageError;
use crate::limits::Limits;

/// Largest zstd window, in powers of two: 8 MiB, what RFC 8878 (3.1.1.1.2) recommends decoders to support. The decoder
/// allocates what the frame declares. `--long` and `--ultra` of the zstd tool make larger ones.
const ZSTD_WINDOW_LOG: u32 = 23;
/// The error message of zstd for a frame with a larger window.
const ZSTD_WINDOW_ERROR: &str = "Frame requires too much memory for decoding";

enum Inner<S: ChunkSource> {
    Plain(Box<Verified<S>>),
    Gzip(Box<MultiGzDecoder<Verified<S>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Verified<S>>>),
}

/// The decompressed bytes of one layer.
pub(crate) struct Decompressed<S: ChunkSource> {
    inner: Inner<S>,
    compressed: Arc<AtomicU64>,
    produced: u64,
    /// What the image may still decompress to.
    budget: u64,
    limits: Limits,
}

impl<S: ChunkSource> Decompressed<S> {
    /// Looks at the first bytes and sets up the decoder. `budget` is what earlier layers left of
    /// [`Limits::unpacked_bytes`].
    pub(crate) fn new(mut blob: Verified<S>, limits: &Limits, budget: u64) -> Result<Self, ImageError> {
        let compressed = blob.counter();
        let inner = match blob.peek(6)? {
            [0x1f, 0x8b, ..] => Inner::Gzip(Box::new(MultiGzDecoder::new(blob))),
            // a zstd frame, or a skippable frame in front of one
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(blob)
                    .map_err(|error| ImageError::Content(error.to_string()))?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG)
                    .map_err(|error| ImageError::Content(error.to_string()))?;
                Inner::Zstd(Box::new(decoder))
            }
            [b'B', b'Z', b'h', ..] => return Err(refused("bzip2")),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => return Err(refused("xz")),
            _ => Inner::Plain(Box::new(blob)),
        };
        Ok(Self { inner, compressed, produced: 0, budget, limits: limits.clone() })
    }

    /// Decompressed bytes so far.
    pub(crate) fn produced(&self) -> u64 {
        self.produced
    }

    /// Returns the blob, for the check of size and digest.
    pub(crate) fn into_blob(self) -> Verified<S> {
        match self.inner {
            Inner::Plain(blob) => *blob,
            Inner::Gzip(decoder) => decoder.into_inner(),
            Inner::Zstd(decoder) => decoder.finish(),
        }
    }

    fn check(&self) -> Result<(), ImageError> {
        if self.produced > self.budget {
            let what = "decompressed content of the image".into();
            return Err(ImageError::Limit { what, limit: self.limits.unpacked_bytes, unit: "bytes" });
        }
        let compressed = self.compressed.load(Ordering::Relaxed).max(1);
        if self.produced > self.limits.ratio_from && self.produced / compressed > self.limits.ratio {
            let what = "compression ratio of the layer".into();
            return Err(ImageError::Limit { what, limit: self.limits.ratio, unit: "to 1" });
        }
        Ok(())
    }
}

/// Names the limit on windows, and gives all damage one text: which defect zstd reports depends on the pieces in which the bytes
/// arrive, and a status must not differ from pull to pull.
fn zstd_error(error: io::Error) -> io::Error {
    let is_from_zstd =
        error.kind() == io::ErrorKind::Other && error.get_ref().is_none_or(|inner| !inner.is::<ImageError>());
    if !is_from_zstd {
        return error;
    }
    if !error.to_string().contains(ZSTD_WINDOW_ERROR) {
        return to_io(ImageError::Content("corrupt zstd data".to_owned()));
    }
    to_io(ImageError::Unsupported(format!(
        "a zstd window of more than {} bytes (8 MiB) is not supported: compress the layer without --long and at level 19 or below",
        1_u32 << ZSTD_WINDOW_LOG
    )))
}

fn refused(name: &str) -> ImageError {
    ImageError::Unsupported(format!("compression {name} is not supported: use gzip, zstd or none"))
}

impl<S: ChunkSource> Read for Decompressed<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = match &mut self.inner {
            Inner::Plain(blob) => blob.read(out),
            Inner::Gzip(decoder) => decoder.read(out),
            Inner::Zstd(decoder) => decoder.read(out).map_err(zstd_error),
        }?;
        self.produced = self.produced.saturating_add(n as u64);
        self.check().map_err(to_io)?;
        Ok(n)
    }
}
