//! Layers from memory or a file through the whole pipe, for benches and fuzzers: a pull without the network. Not for products.

use std::io::Read;

use bytes::Bytes;
use olm_core::Digest;

use crate::error::Error;
use crate::layer::{Applier, Selection, Verified, VisitError, Visitor};
use crate::limits::Limits;

/// Bytes in a piece, as large as what a download hands over.
const PIECE: usize = 128 << 10;

/// The pieces in which a download hands over these bytes. A failed read ends them.
pub fn pieces(mut layer: impl Read) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let mut piece = vec![0; PIECE];
        let read = layer.read(&mut piece).ok()?;
        piece.truncate(read);
        (read > 0).then(|| piece.into())
    })
}

/// Streams layers (digest, size and pieces; the uppermost first) into a visitor.
///
/// # Errors
/// Those of the layers and of the visitor.
pub fn visit_layers<V: Visitor, P: Iterator<Item = Bytes>>(
    layers: impl IntoIterator<Item = (Digest, u64, P)>,
    selection: &[&str],
    limits: &Limits,
    visitor: V,
) -> Result<V, VisitError<V::Error>> {
    let selection = Selection::beneath(selection).map_err(Error::Copy)?;
    let mut applier = Applier::new(visitor, selection, limits.clone());
    for (index, (digest, size, pieces)) in layers.into_iter().enumerate() {
        applier.layer(index, Verified::new(pieces, digest, size))?;
    }
    applier.finish()
}
