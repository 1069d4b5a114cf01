//! An entry point for benches and fuzzers: a layer from memory or a file, without a registry. Not for products.

use std::io::Read;

use bytes::Bytes;
use olm_core::{Digest, DigestAlgorithm};

use crate::error::{Error, ImageError};
use crate::layer::{Applier, ChunkSource, Infallible, Selection, Verified, VisitError, Visitor, hash_of};
use crate::limits::Limits;

struct Count(u64, Vec<u8>);

impl Visitor for Count {
    type Error = Infallible;

    fn file(&mut self, _: &str, _: u64, content: &mut dyn Read) -> Result<(), Infallible> {
        // a failed read ends the visit with its own cause
        while let Ok(n @ 1..) = content.read(&mut self.1) {
            self.0 += n as u64;
        }
        Ok(())
    }

    fn alias(&mut self, _: &str, _: &str) -> Result<(), Infallible> {
        Ok(())
    }

    fn remove(&mut self, _: &str) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Reads one layer through the whole pipe and throws the files away; returns their bytes. The digest to compare with is
/// a constant, so hashing is paid once, and the comparison fails only after everything has been read.
///
/// # Errors
/// Those of the layer.
pub fn read_layer(chunks: Vec<Bytes>, selection: &[&str]) -> Result<u64, Error> {
    let size = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    let digest = hash_of(DigestAlgorithm::Sha256, b"").map_err(Error::Copy)?;
    let selection = Selection::beneath(selection).map_err(Error::Copy)?;
    let mut applier = Applier::new(Count(0, vec![0; 64 << 10]), selection, Limits::default());
    match applier
        .layer(0, Verified::new(chunks.into_iter(), digest, size))
        .map_err(VisitError::<Infallible>::into_error)
    {
        Ok(()) | Err(Error::Copy(crate::ImageError::Digest { .. })) => {}
        Err(error) => return Err(error),
    }
    applier.finish().map(|count| count.0).map_err(VisitError::<Infallible>::into_error)
}

/// Bytes in a piece, as large as what a download hands over.
const PIECE: usize = 128 << 10;

struct Pieces<R>(R);

impl<R: Read> ChunkSource for Pieces<R> {
    fn next(&mut self) -> Result<Option<Bytes>, ImageError> {
        let mut piece = vec![0; PIECE];
        let read = self.0.read(&mut piece).map_err(|error| ImageError::Content(error.to_string()))?;
        piece.truncate(read);
        Ok((read > 0).then(|| piece.into()))
    }
}

/// Streams one layer of `size` bytes through the whole pipe into a visitor and returns the visitor, like a pull without the
/// network.
///
/// # Errors
/// Those of the layer and of the visitor.
pub fn visit_layer<V: Visitor>(
    layer: impl Read,
    digest: &Digest,
    size: u64,
    selection: &[&str],
    visitor: V,
) -> Result<V, VisitError<V::Error>> {
    let selection = Selection::beneath(selection).map_err(Error::Copy)?;
    let mut applier = Applier::new(visitor, selection, Limits::default());
    applier.layer(0, Verified::new(Pieces(layer), digest.clone(), size))?;
    applier.finish()
}
