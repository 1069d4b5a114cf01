//! From the files of an image to stored content, in one pass.
//!
//! Joins what `olm-oci` hands out (files, one after the other) with what `olm-fbc` makes of them (lines and an index)
//! and the store's staging directory. No file of the image is ever on disk. Rules: catalogd §5.7, §6.2.

use std::io::Read;
use std::sync::Arc;

use olm_fbc::{Cancellation, IngestLimits};
use olm_oci::Visitor;

use crate::store::{Content, Lease, Spool, Staging, StoreError};

/// Why an image did not become content.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The catalog cannot be read.
    #[error("error walking FBC root: {0}")]
    Content(#[source] olm_fbc::IngestError),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IngestError {
    /// Whether the same image would fail the same way.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Content(error) if error.is_permanent())
    }
}

impl From<olm_fbc::IngestError> for IngestError {
    fn from(error: olm_fbc::IngestError) -> Self {
        match error {
            olm_fbc::IngestError::Write(error) => Self::Store(StoreError::Write(error)),
            other => Self::Content(other),
        }
    }
}

/// Takes in the files of an image.
#[derive(Debug)]
pub struct Ingest {
    inner: olm_fbc::Ingest<Spool>,
    staging: Staging,
}

impl Ingest {
    /// Into this staging directory.
    ///
    /// # Errors
    /// When the disk refuses it.
    pub fn new(staging: Staging, limits: IngestLimits) -> Result<Self, IngestError> {
        let inner = olm_fbc::Ingest::new(staging.spool()?, limits);
        Ok(Self { inner, staging })
    }

    /// Stops this, also in [`Ingest::commit`], from another thread.
    #[must_use]
    pub fn cancellation(&self) -> &Cancellation {
        self.inner.cancellation()
    }

    /// Puts the finished content in place. Slow (disk); not for an async thread. The compressed copies of a large catalog
    /// are made afterwards ([`crate::store::Store::compress`]).
    ///
    /// # Errors
    /// When a file cannot be decoded or the disk refuses it.
    pub fn commit(self) -> Result<(Arc<Content>, Lease), IngestError> {
        let ingested = self.inner.finish()?;
        for warning in &ingested.warnings {
            tracing::warn!(digest = %self.staging.digest(), %warning, "suspicious catalog content");
        }
        Ok(self.staging.commit(ingested)?)
    }
}

impl Visitor for Ingest {
    type Error = IngestError;

    fn file(&mut self, path: &str, _size: u64, mut content: &mut dyn Read) -> Result<(), IngestError> {
        Ok(self.inner.file(path, &mut content)?)
    }

    fn alias(&mut self, path: &str, target: &str) -> Result<(), IngestError> {
        Ok(self.inner.hard_link(path, target)?)
    }

    fn remove(&mut self, path: &str) -> Result<(), IngestError> {
        // Layers are merged before they come here; a whiteout removes what came before it.
        self.inner.next_layer();
        Ok(self.inner.whiteout(path)?)
    }

    fn broken_link(&mut self, path: &str, why: &str) -> Result<bool, IngestError> {
        self.inner.broken_link(path, why)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    /// rule: fbc §2.3
    #[test]
    fn ingest_link_that_is_ignored_refuses_no_catalog() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        for (ignore, is_served) in [("latest", true), ("other", false)] {
            let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
            let staging = store.stage(store.lease(&digest)).unwrap();
            let mut ingest = Ingest::new(staging, IngestLimits::default()).unwrap();
            ingest.file("configs/.indexignore", 0, &mut ignore.as_bytes()).unwrap();
            assert!(ingest.broken_link("configs/latest", "it leads nowhere").unwrap());
            let committed = ingest.commit();
            assert_eq!(committed.is_ok(), is_served, "{ignore}: {:?}", committed.err());
        }
    }
}
