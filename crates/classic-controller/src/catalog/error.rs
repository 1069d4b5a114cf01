//! Errors of the content of catalogs.

use tokio::task::JoinError;

use super::memory::MemoryError;
use crate::image_source::FetchError;

/// Why the content of a catalog cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CatalogError {
    /// The registry, the image or the ConfigMap that the spec names, or what it contains.
    #[error("{0}")]
    Source(String),
    /// The image that the spec names, whose content is invalid or above a limit.
    #[error("{0}")]
    Rejected(String),
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl From<FetchError> for CatalogError {
    fn from(error: FetchError) -> Self {
        if error.is_final { Self::Rejected(error.message) } else { Self::Source(error.message) }
    }
}

impl CatalogError {
    /// Of a task that reads it.
    pub(super) fn interrupted(error: JoinError) -> Self {
        Self::Source(format!("reading the catalog did not end: {error}"))
    }
}
