//! Content that catalogd serves, read through the cache on disk.
//!
//! Where the catalog's status names a digest, content of that digest is read once and never again. Where it names none,
//! catalogd is asked each time, with the ETag of what is here (rule: decisions 15, 16, 30).

use olm_core::PackageName;

use crate::catalogd::{self, CatalogError, Endpoint, Fetched};
use crate::package_store::{Kept, Key, PackageStore};
use crate::route::Route;

/// The JSON lines of one package; empty when the catalog does not have it.
///
/// # Errors
/// As [`catalogd::package_lines`]. A cache that cannot be read or written is passed over with a log line.
pub async fn package_lines(
    route: &Route,
    store: Option<&PackageStore>,
    endpoint: &Endpoint,
    package: &PackageName,
) -> Result<Vec<u8>, CatalogError> {
    let key = Key { origin: origin(endpoint), part: package.to_string() };
    let kept = kept(store, &key).await;
    if let (Some(kept), Some(_)) = (&kept, endpoint.digest()) {
        return Ok(kept.lines.clone());
    }
    let known = kept.as_ref().and_then(|kept| kept.tag.as_deref());
    let fetched = catalogd::package_lines(route, endpoint, package, known).await?;
    settle(store, key, kept, fetched).await
}

/// One JSON line a package; `None` where catalogd has no such answer.
///
/// # Errors
/// As [`package_lines`].
pub async fn summary_lines(
    route: &Route,
    store: Option<&PackageStore>,
    endpoint: &Endpoint,
) -> Result<Option<Vec<u8>>, CatalogError> {
    let key = Key { origin: origin(endpoint), part: Key::SUMMARY.to_owned() };
    let kept = kept(store, &key).await;
    if let (Some(kept), Some(_)) = (&kept, endpoint.digest()) {
        return Ok(Some(kept.lines.clone()));
    }
    let known = kept.as_ref().and_then(|kept| kept.tag.as_deref());
    match catalogd::summary_lines(route, endpoint, known).await? {
        None => Ok(None),
        Some(fetched) => settle(store, key, kept, fetched).await.map(Some),
    }
}

fn origin(endpoint: &Endpoint) -> String {
    endpoint.digest().unwrap_or(&endpoint.base).to_owned()
}

async fn kept(store: Option<&PackageStore>, key: &Key) -> Option<Kept> {
    let (store, key) = (store?.clone(), key.clone());
    tokio::task::spawn_blocking(move || store.get(&key)).await.ok().flatten()
}

async fn settle(
    store: Option<&PackageStore>,
    key: Key,
    kept: Option<Kept>,
    fetched: Fetched,
) -> Result<Vec<u8>, CatalogError> {
    match (fetched, kept) {
        (Fetched::Unchanged, Some(kept)) => Ok(kept.lines),
        (Fetched::Unchanged, None) => Err(CatalogError::Status(304)),
        (Fetched::Lines { lines, tag }, _) => {
            let Some(store) = store.cloned() else { return Ok(lines) };
            let kept = Kept { lines, tag };
            let written = tokio::task::spawn_blocking(move || {
                if let Err(error) = store.put(&key, &kept) {
                    tracing::warn!(path = %store.root().display(), %error, "package content cannot be cached");
                }
                kept.lines
            });
            written.await.map_err(|error| CatalogError::Task(error.to_string()))
        }
    }
}
