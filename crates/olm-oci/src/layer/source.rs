//! The bytes of one blob, hashed while they are read.
//!
//! [`Verified`] reads chunks from any [`ChunkSource`], rejects the first byte beyond the declared size, and compares size
//! and digest at the end. What was read before the end is unverified: the caller throws it away when
//! [`Verified::finish`] fails.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, Bytes};
use olm_core::{Digest, DigestAlgorithm};
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha384, Sha512};

use super::to_io;
use crate::error::ImageError;

/// Something that yields the bytes of a blob in order.
pub(crate) trait ChunkSource {
    /// The next bytes; `None` at the end.
    fn next(&mut self) -> Result<Option<Bytes>, ImageError>;
}

/// Bytes in memory.
impl<I: Iterator<Item = Bytes>> ChunkSource for I {
    fn next(&mut self) -> Result<Option<Bytes>, ImageError> {
        Ok(Iterator::next(self))
    }
}

/// A running hash.
type Hasher = Box<dyn DynDigest + Send>;

fn hasher(algorithm: DigestAlgorithm) -> Hasher {
    match algorithm {
        DigestAlgorithm::Sha256 => Box::new(Sha256::default()),
        DigestAlgorithm::Sha384 => Box::new(Sha384::default()),
        DigestAlgorithm::Sha512 => Box::new(Sha512::default()),
    }
}

fn finish(hasher: Hasher, algorithm: DigestAlgorithm) -> Result<Digest, ImageError> {
    Digest::from_hash(algorithm, &hasher.finalize()).map_err(|error| ImageError::Content(error.to_string()))
}

/// The digest of bytes in memory.
pub(crate) fn hash_of(algorithm: DigestAlgorithm, bytes: &[u8]) -> Result<Digest, ImageError> {
    let mut hasher = hasher(algorithm);
    hasher.update(bytes);
    finish(hasher, algorithm)
}

/// A blob that checks itself against its descriptor.
pub(crate) struct Verified<S> {
    source: S,
    hasher: Hasher,
    want: Digest,
    size: u64,
    got: Arc<AtomicU64>,
    chunk: Bytes,
    ended: bool,
}

impl<S: ChunkSource> Verified<S> {
    pub(crate) fn new(source: S, want: Digest, size: u64) -> Self {
        Self {
            source,
            hasher: hasher(want.algorithm()),
            want,
            size,
            got: Arc::default(),
            chunk: Bytes::new(),
            ended: false,
        }
    }

    /// Bytes taken from the source so far; shared with the ratio check behind the decompressor.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.got)
    }

    fn what(&self) -> String {
        format!("reading blob {}", self.want)
    }

    /// Takes, counts and hashes the next chunk; empty only at the end.
    fn pull(&mut self) -> Result<Bytes, ImageError> {
        while !self.ended {
            let Some(chunk) = self.source.next()? else {
                self.ended = true;
                break;
            };
            if chunk.is_empty() {
                continue;
            }
            let got = self.got.load(Ordering::Relaxed).saturating_add(chunk.len() as u64);
            if got > self.size {
                return Err(ImageError::Size { what: self.what(), declared: self.size, got });
            }
            self.got.store(got, Ordering::Relaxed);
            self.hasher.update(&chunk);
            return Ok(chunk);
        }
        Ok(Bytes::new())
    }

    /// Up to `n` of the next bytes without consuming them; fewer only at the end of the blob.
    pub(crate) fn peek(&mut self, n: usize) -> Result<&[u8], ImageError> {
        while self.chunk.len() < n {
            let more = self.pull()?;
            if more.is_empty() {
                break;
            }
            self.chunk =
                if self.chunk.is_empty() { more } else { [&self.chunk[..], &more[..]].concat().into() };
        }
        Ok(&self.chunk[..self.chunk.len().min(n)])
    }

    /// Reads what is left and compares size and digest.
    pub(crate) fn finish(mut self) -> Result<(), ImageError> {
        while !self.pull()?.is_empty() {}
        let got = self.got.load(Ordering::Relaxed);
        let what = self.what();
        if got != self.size {
            return Err(ImageError::Size { what, declared: self.size, got });
        }
        let digest = finish(self.hasher, self.want.algorithm())?;
        if digest != self.want {
            return Err(ImageError::Digest { what, want: self.want.to_string(), got: digest.to_string() });
        }
        Ok(())
    }
}

impl<S: ChunkSource> BufRead for Verified<S> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() {
            self.chunk = self.pull().map_err(to_io)?;
            if self.chunk.is_empty() && self.got.load(Ordering::Relaxed) < self.size {
                let got = self.got.load(Ordering::Relaxed);
                return Err(to_io(ImageError::Size { what: self.what(), declared: self.size, got }));
            }
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, n: usize) {
        self.chunk.advance(n.min(self.chunk.len()));
    }
}

impl<S: ChunkSource> Read for Verified<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let have = self.fill_buf()?;
        let n = have.len().min(out.len());
        out[..n].copy_from_slice(&have[..n]);
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(chunks: &[&'static [u8]], content: &[u8], size: u64) -> Verified<std::vec::IntoIter<Bytes>> {
        let chunks: Vec<Bytes> = chunks.iter().map(|chunk| Bytes::from_static(chunk)).collect();
        Verified::new(chunks.into_iter(), hash_of(DigestAlgorithm::Sha256, content).unwrap(), size)
    }

    #[test]
    fn blob_content_is_independent_of_chunk_size() {
        let mut whole = blob(&[b"ab", b"", b"c", b"defg"], b"abcdefg", 7);
        assert_eq!(whole.peek(5).unwrap(), b"abcde");
        let mut text = String::new();
        whole.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcdefg");
        whole.finish().unwrap();
    }

    #[test]
    fn blob_errors_distinguish_digest_and_size() {
        let cases: [(&[&'static [u8]], u64, &str); 3] = [
            (&[b"abcdefX"], 7, "digest mismatch: want sha256:"),
            (&[b"abcdefgh"], 7, "longer than the 7 bytes that the manifest declares"),
            (&[b"abc"], 7, "unexpected EOF: 3 of 7 bytes"),
        ];
        for (chunks, size, want) in cases {
            let got = blob(chunks, b"abcdefg", size).finish().unwrap_err().to_string();
            assert!(got.contains(want), "{got:?} should contain {want:?}");
        }
    }

    #[test]
    fn blob_is_verified_with_each_algorithm() {
        for algorithm in [DigestAlgorithm::Sha256, DigestAlgorithm::Sha384, DigestAlgorithm::Sha512] {
            let digest = hash_of(algorithm, b"x").unwrap();
            let chunks = vec![Bytes::from_static(b"x")];
            Verified::new(chunks.into_iter(), digest, 1).finish().unwrap();
        }
    }
}
