//! Results on disk, by the digest of the image they were made of.
//!
//! ```text
//! <root>/content/sha256-<hex>/…   finished, sealed, never changed again
//! <root>/staging/<random>/        being written, or being deleted; with <random>.lock beside it
//! <root>/attempts/sha256-<hex>    attempts to read it that have not come to an end (see [`attempts`])
//! <root>/locks/sha256-<hex>       held shared by every lease, exclusive while content is taken away
//! <root>/tags/…, <root>/used/…    the use of content (see [`Store::record_tag`] and [`Store::record_use`])
//! ```
//!
//! - **All or nothing.** Files, their directories and a seal (names and sizes) are synced before the
//!   directory is renamed into place, then `content/` is synced. A process that dies at any point leaves either nothing or
//!   everything; the rest is swept at the next [`Store::open`] (rule: decision 15).
//! - **Collection cannot race with use.** A reader holds a [`Lease`], a shared file lock; content under a lease is never
//!   collected, also not by another process. The operating system drops the locks of a process that dies.
//! - **Once.** Concurrent writers of the same digest end up with one directory, and [`Store::get_or_fill`] lets only one of
//!   them work.
//!
//! The meaning of the files, the digests to keep and the time of a collection are decided by the caller.

pub mod attempts;
mod disk;
mod seal;
mod tags;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use olm_core::Digest;
use parking_lot::Mutex;

use self::disk::{Disk, Lock, RealDisk, lock};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {action} {}: {}", .path.display(), io_text(.source))]
    Io {
        /// `lock`, `remove`, …
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Stored content is not what was stored.
    #[error("stored content of {digest} is damaged: {why}")]
    Damaged {
        digest: Digest,
        /// What differs.
        why: String,
    },
    /// A background task of the store ended before its work did.
    #[error("storing was cancelled")]
    Cancelled,
}

impl StoreError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "no space left on device".into(),
        io::ErrorKind::QuotaExceeded => "disk quota exceeded".into(),
        _ => error.to_string(),
    }
}

/// A store beneath one directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    disk: Box<dyn Disk>,
    flights: Mutex<HashMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
}

impl Store {
    /// Opens (or creates) the store beneath `root` and sweeps what dead processes left half done.
    ///
    /// # Errors
    /// The directories cannot be created or read.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        Self::open_on(root, Box::new(RealDisk))
    }

    fn open_on(root: &Path, disk: Box<dyn Disk>) -> Result<Self, StoreError> {
        let store =
            Self { inner: Arc::new(Inner { root: root.to_owned(), disk, flights: Mutex::default() }) };
        for directory in [store.content(), store.staging(), store.locks(), store.attempts()] {
            store.inner.disk.create_dir(&directory).map_err(|e| StoreError::io("create", &directory, e))?;
        }
        store.sweep()?;
        attempts::trim(&store.attempts()).map_err(|e| StoreError::io("tidy", &store.attempts(), e))?;
        Ok(store)
    }

    fn attempts(&self) -> PathBuf {
        self.inner.root.join("attempts")
    }

    /// Where [`attempts`] to read the content of `digest` are recorded.
    #[must_use]
    pub fn attempt_file(&self, digest: &Digest) -> PathBuf {
        self.attempts().join(name_of(digest))
    }

    fn content(&self) -> PathBuf {
        self.inner.root.join("content")
    }

    fn staging(&self) -> PathBuf {
        self.inner.root.join("staging")
    }

    fn locks(&self) -> PathBuf {
        self.inner.root.join("locks")
    }

    fn place(&self, digest: &Digest) -> PathBuf {
        self.content().join(name_of(digest))
    }

    /// The content of `digest`, if it is there and its seal and sizes are right. Damaged content is removed, as if it
    /// had never been there. Reads the size of each file, not its content.
    ///
    /// # Errors
    /// The disk fails.
    pub fn get(&self, digest: &Digest) -> Result<Option<Lease>, StoreError> {
        let place = self.place(digest);
        if !place.is_dir() {
            return Ok(None);
        }
        let lease = self.lease(digest)?;
        if !place.is_dir() {
            return Ok(None); // collected in between
        }
        match seal::check(&place, digest) {
            Ok(()) => Ok(Some(lease)),
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!(%digest, %error, "stored content is discarded");
                drop(lease);
                self.take_away(digest)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// All digests with content, in order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn digests(&self) -> Result<Vec<Digest>, StoreError> {
        let mut digests: Vec<Digest> =
            names(&self.content())?.iter().filter_map(|name| digest_of(name)).collect();
        digests.sort();
        Ok(digests)
    }

    /// Begins to store `digest`: write files into [`Staging::path`], then [`Staging::commit`]. Dropped without commit,
    /// everything written is removed.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn begin(&self, digest: &Digest) -> Result<Staging, StoreError> {
        let (path, lock) = self.stage()?;
        let failed = |error| StoreError::io("create", &path, error);
        self.inner.disk.create_dir(&path).map_err(failed)?;
        Ok(Staging { store: self.clone(), digest: digest.clone(), path, lock })
    }

    /// The content of `digest`, made by `fill` when it is not there. `fill` gets an empty directory; while it runs, other
    /// callers of this method for the same digest (in this process) wait for its outcome.
    ///
    /// # Errors
    /// Those of `fill` and of the store.
    pub async fn get_or_fill<E, F>(
        &self,
        digest: &Digest,
        fill: impl FnOnce(PathBuf) -> F,
    ) -> Result<Lease, E>
    where
        E: From<StoreError>,
        F: Future<Output = Result<(), E>>,
    {
        let flight = self.flight(digest);
        let _only = flight.lock().await;
        let (store, key) = (self.clone(), digest.clone());
        let lookup = off_thread(move || match store.get(&key)? {
            Some(lease) => Ok(Lookup::Content(lease)),
            None => store.begin(&key).map(Lookup::Nothing),
        });
        let staging = match lookup.await? {
            Lookup::Content(lease) => return Ok(lease),
            Lookup::Nothing(staging) => staging,
        };
        fill(staging.path().to_owned()).await?;
        Ok(off_thread(move || staging.commit()).await?)
    }

    fn flight(&self, digest: &Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut flights = self.inner.flights.lock();
        flights.retain(|_, flight| flight.strong_count() > 0);
        match flights.get(digest).and_then(Weak::upgrade) {
            Some(flight) => flight,
            None => {
                let flight = Arc::default();
                flights.insert(digest.clone(), Arc::downgrade(&flight));
                flight
            }
        }
    }

    /// Removes all content that is neither selected by `keep` nor leased, and sweeps the leftovers of dead processes and the
    /// records of content that is gone. Content stored while this runs is safe: it is leased from its first moment.
    /// Returns what was removed.
    ///
    /// # Errors
    /// The disk fails; what was removed before stays removed.
    pub fn collect(&self, keep: impl Fn(&Digest) -> bool) -> Result<Vec<Digest>, StoreError> {
        let mut removed = Vec::new();
        for digest in self.digests()? {
            if !keep(&digest) && self.remove(&digest)? {
                removed.push(digest);
            }
        }
        self.sweep()?;
        self.sweep_records()?;
        Ok(removed)
    }

    /// Removes the content of `digest` unless it is leased (then `false`). Absent content is no error.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove(&self, digest: &Digest) -> Result<bool, StoreError> {
        let path = self.locks().join(name_of(digest));
        let Some(held) = locked(&path, Lock::ExclusiveNow)? else { return Ok(false) };
        self.take_away(digest)?;
        // still locked: a process that opened the old file meanwhile notices that it is gone and opens the new one
        self.inner.disk.remove_file(&path).map_err(|e| StoreError::io("remove", &path, e))?;
        drop(held);
        Ok(true)
    }

    fn take_away(&self, digest: &Digest) -> Result<(), StoreError> {
        let place = self.place(digest);
        let (trash, held) = self.stage()?;
        gone(self.inner.disk.rename(&place, &trash), &place)?;
        let swept = self.sweep_one(&trash);
        drop(held);
        swept
    }

    /// A new name in the staging area, locked.
    fn stage(&self) -> Result<(PathBuf, File), StoreError> {
        let staging = self.staging();
        for _ in 0..16 {
            let name = format!("{:016x}", random());
            let path = staging.join(&name);
            let lock_path = lock_of(&path);
            let held =
                lock(&lock_path, Lock::ExclusiveNow).map_err(|e| StoreError::io("create", &lock_path, e))?;
            match held {
                Some(held) if !path.exists() => return Ok((path, held)),
                _ => {}
            }
        }
        Err(StoreError::io("create a name in", &staging, io::Error::from(io::ErrorKind::AlreadyExists)))
    }

    fn lease(&self, digest: &Digest) -> Result<Lease, StoreError> {
        let path = self.locks().join(name_of(digest));
        let held = locked(&path, Lock::Shared)?;
        let held = held.ok_or_else(|| StoreError::io("lock", &path, io::ErrorKind::WouldBlock.into()))?;
        Ok(Lease { path: self.place(digest), _lock: Arc::new(held) })
    }

    /// Removes staged directories that no process writes or deletes any more.
    fn sweep(&self) -> Result<(), StoreError> {
        let staging = self.staging();
        let mut left: Vec<PathBuf> = names(&staging)?
            .iter()
            .map(|name| staging.join(name.strip_suffix(".lock").unwrap_or(name)))
            .collect();
        left.sort();
        left.dedup();
        for path in left {
            let lock_path = lock_of(&path);
            if let Some(held) = locked(&lock_path, Lock::ExclusiveNow)? {
                self.sweep_one(&path)?;
                drop(held);
            }
        }
        self.sweep_locks()
    }

    /// Removes locks whose content is gone.
    fn sweep_locks(&self) -> Result<(), StoreError> {
        for digest in names(&self.locks())?.iter().filter_map(|name| digest_of(name)) {
            let path = self.locks().join(name_of(&digest));
            if self.place(&digest).is_dir() {
                continue;
            }
            if let Some(held) = locked(&path, Lock::ExclusiveNow)? {
                // it cannot have been stored since: a publisher holds the lock shared
                if !self.place(&digest).is_dir() {
                    self.inner.disk.remove_file(&path).map_err(|e| StoreError::io("remove", &path, e))?;
                }
                drop(held);
            }
        }
        Ok(())
    }

    /// Removes a staged directory and then its lock, which the caller holds.
    fn sweep_one(&self, path: &Path) -> Result<(), StoreError> {
        gone(self.inner.disk.remove_dir_all(path), path)?;
        let lock_path = lock_of(path);
        gone(self.inner.disk.remove_file(&lock_path), &lock_path)
    }
}

enum Lookup {
    Content(Lease),
    Nothing(Staging),
}

/// Runs work that waits for the disk, or for a lock of another process, on a thread that may block.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(StoreError::Cancelled))
}

/// Content being written.
#[derive(Debug)]
pub struct Staging {
    store: Store,
    digest: Digest,
    path: PathBuf,
    lock: File,
}

impl Staging {
    /// The empty directory to fill with regular files and directories.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Seals, syncs and publishes the content. If the same digest was stored meanwhile, that content stays and this
    /// is dropped. Blocks on the disk.
    ///
    /// # Errors
    /// The disk fails (then nothing is stored), or something else than files and directories was written.
    pub fn commit(self) -> Result<Lease, StoreError> {
        let Self { store, digest, path, .. } = &self;
        let disk = &store.inner.disk;
        seal::write(disk.as_ref(), path, digest)?;
        // from here on a collector may see it, so the lease comes first
        let lease = store.lease(digest)?;
        let place = store.place(digest);
        match disk.rename(path, &place) {
            Ok(()) => {}
            Err(_) if place.is_dir() => return Ok(lease), // stored by another writer
            Err(error) => return Err(StoreError::io("store", &place, error)),
        }
        let content = store.content();
        disk.sync(&content).map_err(|e| StoreError::io("sync", &content, e))?;
        Ok(lease)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = self.store.sweep_one(&self.path) {
            tracing::warn!(%error, "staged content is left for the next sweep");
        }
        // released explicitly: after the removal, not before
        let _ = self.lock.unlock();
    }
}

/// Stored content that stays as long as this (or a clone) lives.
#[derive(Debug, Clone)]
pub struct Lease {
    path: PathBuf,
    _lock: Arc<File>,
}

impl Lease {
    /// The directory with the files. Read only.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn name_of(digest: &Digest) -> String {
    digest.as_str().replacen(':', "-", 1)
}

fn digest_of(name: &str) -> Option<Digest> {
    name.replacen('-', ":", 1).parse().ok()
}

/// The result of a removal; what is not there needs none.
fn gone(removed: io::Result<()>, path: &Path) -> Result<(), StoreError> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path, error)),
        _ => Ok(()),
    }
}

fn locked(path: &Path, how: Lock) -> Result<Option<File>, StoreError> {
    lock(path, how).map_err(|error| StoreError::io("lock", path, error))
}

fn lock_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn names(directory: &Path) -> Result<Vec<String>, StoreError> {
    let failed = |error| StoreError::io("list", directory, error);
    std::fs::read_dir(directory)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).map_err(failed))
        .collect()
}

/// A number for a unique name: time, process and a counter would do; the hasher's seed is random and costs nothing.
fn random() -> u64 {
    use std::hash::BuildHasher as _;
    std::hash::RandomState::new().hash_one(std::process::id())
}
