//! Errors of the content of catalogs.

use tokio::task::JoinError;

use super::memory::MemoryError;

/// Why the content of a catalog cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CatalogError {
    /// The registry, the image or the ConfigMap that the spec names, or what it contains.
    #[error("{0}")]
    Source(String),
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl CatalogError {
    /// Of a task that reads it.
    pub(super) fn interrupted(error: JoinError) -> Self {
        Self::Source(format!("reading the catalog did not end: {error}"))
    }
}
