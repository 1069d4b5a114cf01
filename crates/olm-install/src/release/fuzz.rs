//! An entry point for fuzzers: a Helm release from its Secrets to its objects, as [`super::read`] reads them. Not for products.

use k8s_openapi::api::core::v1::Secret;
use olm_core::Object;

use super::stored::{Index, Release, further_chunks, payload};

/// The objects of the release of `extension` (with this UID) whose first Secret is `index`.
///
/// # Errors
/// What is wrong with it.
pub fn read_release(
    extension: &str,
    uid: &str,
    index: &Secret,
    further: &[(String, Option<Secret>)],
) -> Result<Vec<Object>, String> {
    let read = || {
        let Some(described) = Index::read(&index.metadata, uid)? else { return Ok(vec![]) };
        further_chunks(index)?;
        Release::read(extension, &described, &payload(index, further)?).map(|release| release.objects)
    };
    read().map_err(|error: super::ReleaseError| error.to_string())
}
