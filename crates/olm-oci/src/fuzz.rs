//! Entry points for fuzzers: the parsers of bytes from a registry or an administrator, without network and without disk.
//! Not for products.
//!
//! Each function takes the path of the product from bytes to a result, and returns as much of it as an invariant needs.

use std::path::Path;

use bytes::Bytes;
use olm_core::{DigestAlgorithm, ImageRef};
use url::Url;

use crate::bench::visit_layers;
use crate::config::Platform;
use crate::config::registries::Registries;
use crate::error::{Error, ImageError};
use crate::http::{challenge, redirect};
use crate::layer::{VisitError, Visitor, hash_of};
use crate::limits::Limits;
use crate::manifest;
pub use crate::manifest::{Document as Manifest, labels};

/// Reads a manifest or an index. `content_type` is the header of the answer.
///
/// # Errors
/// What is wrong with it, or with one of its layers.
pub fn manifest(bytes: &[u8], content_type: &str) -> Result<Manifest, ImageError> {
    let platform = Platform { os: "linux".into(), architecture: "amd64".into() };
    let found = manifest::parse(bytes, content_type, &platform)?;
    if let Manifest::Image { layers, .. } = &found {
        layers.iter().try_for_each(manifest::check_layer)?;
    }
    Ok(found)
}

/// Streams layers, the uppermost first, in pieces of `piece` bytes through the whole pipe into a visitor.
///
/// # Errors
/// Those of the image and of the visitor.
pub fn layers<V: Visitor>(
    layers: &[&[u8]],
    piece: usize,
    selection: &[&str],
    limits: &Limits,
    visitor: V,
) -> Result<V, VisitError<V::Error>> {
    let in_pieces = |layer: &&[u8]| {
        let digest = hash_of(DigestAlgorithm::Sha256, layer).map_err(Error::Copy)?;
        let pieces: Vec<Bytes> = layer.chunks(piece.max(1)).map(Bytes::copy_from_slice).collect();
        Ok((digest, layer.len() as u64, pieces.into_iter()))
    };
    let layers: Vec<_> = layers.iter().map(in_pieces).collect::<Result<_, Error>>()?;
    visit_layers(layers, selection, limits, visitor)
}

/// Reads a registries.conf and returns the locations of `reference`, and whether each is insecure.
///
/// # Errors
/// What is wrong with the file, or that the image is blocked.
pub fn locations(conf: &str, reference: &ImageRef) -> Result<Vec<(ImageRef, bool)>, ImageError> {
    let mut registries = Registries::default();
    registries.add(Path::new("registries.conf"), conf)?;
    let found = registries.locations(reference, false)?;
    Ok(found.into_iter().map(|location| (location.reference, location.insecure)).collect())
}

/// The token service that the header `WWW-Authenticate` names; `Some(None)` for basic authentication.
#[must_use]
pub fn challenge(header: &str) -> Option<Option<String>> {
    challenge::choose([header]).map(|challenge| match challenge {
        challenge::Challenge::Basic => None,
        challenge::Challenge::Bearer { realm, .. } => Some(realm),
    })
}

/// Where an answer of `from` with this `Location` leads.
///
/// # Errors
/// Why it leads nowhere.
pub fn redirect(from: &Url, location: &str) -> Result<Url, ImageError> {
    redirect::target(from, redirect::url_distance(from), location, false)
}
