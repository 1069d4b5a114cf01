//! Records of the digests that references led to when their content was last used, for a time when the registry cannot be reached: those of
//! tags, and those of digests that a scope has used ([`Puller::check_stored`](crate::Puller::check_stored)).
//!
//! A file named after the hash of scope and reference holds the digest. It is written beside its place and renamed, so a process that ends
//! at any point leaves the earlier record or the new one. What cannot be read counts as no record; the latest records stay, as many as of
//! attempts.

use std::fs;
use std::path::PathBuf;

use olm_core::Digest;
use sha2::{Digest as _, Sha256};

use super::{Store, StoreError, attempts, gone, names, random};

impl Store {
    pub(super) fn tags(&self) -> PathBuf {
        self.inner.root.join("tags")
    }

    fn use_file(&self, reference: &str) -> PathBuf {
        let hash = Sha256::digest(reference.as_bytes());
        self.tags().join(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    /// The digest that was recorded for a reference; its content may be gone. Blocks on the disk.
    #[must_use]
    pub fn used_digest(&self, reference: &str) -> Option<Digest> {
        fs::read_to_string(self.use_file(reference)).ok()?.parse().ok()
    }

    /// Records the digest that a reference led to. Blocks on the disk.
    ///
    /// # Errors
    /// The disk fails; the earlier record stays.
    pub fn record_use(&self, reference: &str, digest: &Digest) -> Result<(), StoreError> {
        if self.used_digest(reference).as_ref() == Some(digest) {
            return Ok(());
        }
        let (directory, path, disk) = (self.tags(), self.use_file(reference), &self.inner.disk);
        disk.create_dir(&directory).map_err(|e| StoreError::io("create", &directory, e))?;
        let new = directory.join(format!("{:016x}.new", random()));
        disk.write(&new, digest.as_str().as_bytes()).map_err(|e| StoreError::io("write", &new, e))?;
        disk.sync(&new).map_err(|e| StoreError::io("sync", &new, e))?;
        disk.rename(&new, &path).map_err(|e| StoreError::io("store", &path, e))?;
        attempts::trim(&directory).map_err(|e| StoreError::io("tidy", &directory, e))
    }

    /// Removes records of content that is gone: they lead to nothing.
    pub(super) fn sweep_tags(&self) -> Result<(), StoreError> {
        let directory = self.tags();
        if !directory.is_dir() {
            return Ok(());
        }
        for name in names(&directory)? {
            let path = directory.join(name);
            let digest: Option<Digest> = fs::read_to_string(&path).ok().and_then(|text| text.parse().ok());
            if digest.is_some_and(|digest| !self.place(&digest).is_dir()) {
                gone(self.inner.disk.remove_file(&path), &path)?;
            }
        }
        Ok(())
    }
}
