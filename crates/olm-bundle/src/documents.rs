//! YAML files of a bundle as documents, under the bounds of bundles.

use olm_yaml::{Documents, Limits, ReadError};
use serde_json::Value;

/// Bytes that all files of one bundle may have together. The largest published bundle has 7 MB.
pub(crate) const BUNDLE_BYTES: u64 = 64 << 20;

/// Bounds on one file: a bundle's own bound, little nesting.
pub(crate) fn limits() -> Limits {
    Limits { stream_bytes: BUNDLE_BYTES, documents: 10_000, depth: 120, ..Limits::default() }
}

/// The first document of a file; an empty file is null.
pub(crate) fn single_document(bytes: &[u8]) -> Result<Value, String> {
    match Documents::from_bytes(bytes, limits()).next() {
        None => Ok(Value::Null),
        Some(Ok(json)) => serde_json::from_slice(&json).map_err(|error| error.to_string()),
        Some(Err(error)) => Err(sentence(&error)),
    }
}

/// What is wrong, in the words of the reference's parser.
pub(crate) fn sentence(error: &ReadError) -> String {
    error.as_parse().map_or_else(|| error.to_string(), |parse| parse.message.clone())
}
