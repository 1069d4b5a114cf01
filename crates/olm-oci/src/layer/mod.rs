//! From a blob's bytes to files: verify, decompress, untar, stack. Synchronous, pure of network and of disk (except
//! [`unpack`], which writes beneath the given directory).
//!
//! Every layer is read once, from the network buffer to the visitor, without a copy on disk. The layers are read from the
//! **top down**: the first layer that has a path decides about it, so the entries of lower layers for it, or
//! for anything beneath a whiteout, never reach the visitor (rule: catalogd §5.7).

mod apply;
mod decompress;
mod source;
mod tar;
mod tree;
mod unpack;

pub(crate) mod selection;

pub(crate) use apply::Applier;
pub use apply::{Infallible, VisitError, Visitor};
pub use selection::Selection;
pub(crate) use source::{ChunkSource, Verified, hash_of};
pub(crate) use unpack::Unpacker;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use crate::error::ImageError;

/// An image error wrapped for `std::io::Read`.
pub(crate) fn to_io(cause: ImageError) -> std::io::Error {
    std::io::Error::other(cause)
}

/// The image error inside an io error, or an equivalent one.
pub(crate) fn from_io(error: std::io::Error) -> ImageError {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return ImageError::UnexpectedEof;
    }
    match error.downcast::<ImageError>() {
        Ok(cause) => cause,
        Err(error) => ImageError::Content(error.to_string()),
    }
}
