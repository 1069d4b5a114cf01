//! Records of the use of content, for a time when the registry cannot be reached: the digests that tags led to in a scope, and the scopes
//! that have used a digest ([`Puller::check_stored`](crate::Puller::check_stored)).
//!
//! ```text
//! <root>/tags/<hash of scope>/<hash of tag>     holds the digest
//! <root>/used/sha256-<hex>/<hash of scope>      holds the digest, too
//! ```
//!
//! A record is written beside its path and renamed, so a process that ends at any point leaves the earlier record or the new one. What cannot
//! be read counts as no record.
//!
//! The disk that records take is bounded: they go with their content, at the next collection. Besides, a scope has [`MAX_TAGS`] tags at
//! most, and [`MAX_SCOPES`] scopes have tags, or use of one digest. What was not written or read for the longest time is evicted; a collection
//! that reads or renews the records of what is in use keeps them. So a scope never evicts a record of another one by the number of its images.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use olm_core::{Digest, ImageRef, hex};
use sha2::{Digest as _, Sha256};

use super::{Store, StoreError, attempts, digest_of, gone, name_of, names, random};

/// Tags of a scope that stay.
pub(super) const MAX_TAGS: usize = 256;
/// Scopes that stay: those with tags, and those that have used a digest.
pub(super) const MAX_SCOPES: usize = 1024;

impl Store {
    pub(super) fn tags(&self) -> PathBuf {
        self.inner.root.join("tags")
    }

    pub(super) fn tags_in(&self, scope: &str) -> PathBuf {
        self.tags().join(hash(scope))
    }

    fn used(&self) -> PathBuf {
        self.inner.root.join("used")
    }

    pub(super) fn uses_of(&self, digest: &Digest) -> PathBuf {
        self.used().join(name_of(digest))
    }

    fn use_record(&self, scope: &str, digest: &Digest) -> PathBuf {
        self.uses_of(digest).join(hash(scope))
    }

    /// The digest that was recorded for a tag in a scope; its content may be gone. Blocks on the disk.
    #[must_use]
    pub fn tag_digest(&self, scope: &str, tag: &ImageRef) -> Option<Digest> {
        let folder = self.tags_in(scope);
        let digest = used_record(&folder.join(hash(&tag.to_string())))?;
        touch(&folder);
        Some(digest)
    }

    /// Records the digest that a tag led to in a scope. Blocks on the disk.
    ///
    /// # Errors
    /// The disk fails; the earlier record stays.
    pub fn record_tag(&self, scope: &str, tag: &ImageRef, digest: &Digest) -> Result<(), StoreError> {
        let folder = self.tags_in(scope);
        self.record(&folder, &hash(&tag.to_string()), digest, MAX_TAGS)?;
        touch(&folder);
        trim(&self.tags(), MAX_SCOPES)
    }

    /// Whether a scope has used the content of a digest. Blocks on the disk.
    #[must_use]
    pub fn was_used(&self, scope: &str, digest: &Digest) -> bool {
        used_record(&self.use_record(scope, digest)).as_ref() == Some(digest)
    }

    /// Sets the time of the record that a scope has used the content of a digest, if there is one: so it stays longer than others. Blocks on
    /// the disk.
    pub fn renew_use(&self, scope: &str, digest: &Digest) {
        touch(&self.use_record(scope, digest));
    }

    /// Records that a scope uses the content of a digest. Blocks on the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn record_use(&self, scope: &str, digest: &Digest) -> Result<(), StoreError> {
        self.record(&self.uses_of(digest), &hash(scope), digest, MAX_SCOPES)
    }

    fn record(&self, folder: &Path, name: &str, digest: &Digest, max: usize) -> Result<(), StoreError> {
        let (path, disk) = (folder.join(name), &self.inner.disk);
        if used_record(&path).as_ref() == Some(digest) {
            return Ok(());
        }
        disk.create_dir(folder).map_err(|e| StoreError::io("create", folder, e))?;
        let new = folder.join(format!("{:016x}.new", random()));
        disk.write(&new, digest.as_str().as_bytes()).map_err(|e| StoreError::io("write", &new, e))?;
        disk.sync(&new).map_err(|e| StoreError::io("sync", &new, e))?;
        disk.rename(&new, &path).map_err(|e| StoreError::io("store", &path, e))?;
        trim(folder, max)
    }

    /// Removes records of content that is gone: they lead to nothing. Files of a layout without scopes go, too.
    pub(super) fn sweep_records(&self) -> Result<(), StoreError> {
        let disk = &self.inner.disk;
        let is_gone = |digest: Option<Digest>| digest.is_some_and(|digest| !self.place(&digest).is_dir());
        for name in names_if_any(&self.used())? {
            let folder = self.used().join(&name);
            if is_gone(digest_of(&name)) {
                gone(disk.remove_dir_all(&folder), &folder)?;
            }
        }
        for scope in names_if_any(&self.tags())? {
            let folder = self.tags().join(scope);
            if folder.is_file() {
                gone(disk.remove_file(&folder), &folder)?;
                continue;
            }
            for name in names_if_any(&folder)? {
                let path = folder.join(name);
                if is_gone(read(&path)) {
                    gone(disk.remove_file(&path), &path)?;
                }
            }
        }
        Ok(())
    }
}

fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn read(path: &Path) -> Option<Digest> {
    fs::read_to_string(path).ok()?.parse().ok()
}

/// As [`read`], for use: the record stays longer than those that were used before.
fn used_record(path: &Path) -> Option<Digest> {
    let digest = read(path)?;
    touch(path);
    Some(digest)
}

/// Sets the time of the last use.
fn touch(path: &Path) {
    // on failure only the order of eviction is wrong
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

fn trim(folder: &Path, max: usize) -> Result<(), StoreError> {
    attempts::trim_to(folder, max).map_err(|e| StoreError::io("tidy", folder, e))
}

/// As [`names`]. A folder that is not there, or that another thread removes meanwhile, has none.
fn names_if_any(folder: &Path) -> Result<Vec<String>, StoreError> {
    match names(folder) {
        Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}
