//! From a blob's bytes to files: verify, decompress, untar, stack. Synchronous, pure of network and of disk (except
//! [`unpack`], which writes where it is told).
//!
//! Every layer is read once, from the network buffer to the visitor, without a copy on disk. The layers are read from the
//! **top down**: the first layer that says something about a path decides, so what a lower layer says about it, or
//! about anything beneath a whiteout, never reaches the visitor at all (rule: catalogd §5.7).

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

use crate::error::Fault;

/// A fault on its way through `std::io::Read`.
pub(crate) fn to_io(fault: Fault) -> std::io::Error {
    std::io::Error::other(fault)
}

/// The fault inside an io error, or one that says the same.
pub(crate) fn from_io(error: std::io::Error) -> Fault {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return Fault::UnexpectedEof;
    }
    match error.downcast::<Fault>() {
        Ok(fault) => fault,
        Err(error) => Fault::Content(error.to_string()),
    }
}
