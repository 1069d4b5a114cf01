//! The data on disk: catalog content by image digest, and which catalog name serves which content.
//!
//! ```text
//! <root>/lock                         held while a process uses the directory
//! <root>/content/sha256:<hex>/…       one directory a digest, written once (see `content`)
//! <root>/content/sha256:<hex>/cop…    its compressed copies, which may come later (see `copies`)
//! <root>/names/<catalog>              which digest is served under a name, since when
//! <root>/staging/…                    private to running writers; emptied at start
//! <root>/attempts/sha256:<hex>        how many attempts to read an image ended with the process (see [`attempts`])
//! ```
//! Every change is one rename of something already durable, so that a kill at any instant leaves the old or the new
//! state. Readers never take a lock: they load one snapshot of the name map and keep the content alive by holding it.
//! Garbage collection cannot race with a writer: a thread that writes or is about to publish holds a [`Lease`].
//! It does not know HTTP, the API server or registries. Rules: catalogd §6 and §12 rows 2, 7, 8, 23, 24; decision 15.

mod content;
mod copies;
mod files;
mod names;
mod staging;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use olm_core::Digest;
use olm_oci::store::attempts;
use tokio::sync::Notify;

pub use content::{Content, Section};
use copies::Coding;
pub use files::{Blob, ContentError};
use parking_lot::{Mutex, MutexGuard};
use staging::Private;
pub use staging::{COMPRESS_BEFORE_SERVING, Spool, Staging};

/// Catalogs and answers shorter than this are never compressed (rule: catalogd §7.8).
pub(crate) const COMPRESS_FROM: u64 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process uses the same directory.
    #[error("cache directory {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The directory cannot be prepared.
    #[error("cannot prepare cache directory {}: {source}", dir.display())]
    Prepare { dir: PathBuf, source: io::Error },
    /// Content or a name could not be written; the usual cause is a full disk.
    #[error("cannot write catalog content: {0}")]
    Write(#[source] io::Error),
    /// What was just written cannot be read back.
    #[error("stored content is not usable: {0}")]
    Content(#[from] ContentError),
    /// The name cannot be a file name.
    #[error("{0:?} is not the name of a catalog")]
    Name(String),
}

/// What is served under one catalog name.
#[derive(Debug, Clone)]
pub struct Served {
    pub content: Arc<Content>,
    /// Canonical image reference, with digest.
    pub reference: String,
    /// The reference that the user wrote, when it is known which one led to this content.
    pub source: Option<String>,
    /// `status.lastUnpacked`, seconds since 1970; the same on all replicas.
    pub last_unpacked: i64,
}

/// Snapshot of all names.
pub type Serving = BTreeMap<String, Arc<Served>>;

/// What one garbage collection removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Names of catalogs that no longer exist.
    pub names: Vec<String>,
    /// Digests that nothing referred to.
    pub contents: Vec<String>,
    /// Left-overs of writers that are gone.
    pub leftovers: usize,
}

/// What was found on disk at start.
#[derive(Debug, Default)]
pub struct Opened {
    /// Names that are served again.
    pub served: Vec<String>,
    /// Names whose content is gone or damaged, with the reason; they have to be pulled again.
    pub lost: Vec<(String, String)>,
}

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    serving: ArcSwap<Serving>,
    /// Serialises renames, publications and collections; never held while content is read or written.
    state: Mutex<State>,
    next: AtomicU64,
    /// Notified when something has been published, or a copy is asked for.
    to_compress: Notify,
    /// Locked for the life of the process.
    _lock: File,
}

#[derive(Debug, Default)]
struct State {
    leases: HashMap<Digest, usize>,
    /// Staging directories of running writers.
    writers: BTreeSet<PathBuf>,
    attempts: HashMap<Digest, Running>,
}

const ATTEMPTS: &str = "attempts";

/// Attempts at one digest that run in this process, and how many had not come to an end before.
#[derive(Debug, Clone, Copy)]
struct Running {
    count: usize,
    before: u32,
}

/// An attempt to read an image. If the process ends before this is finished or dropped, [`Store::unfinished_attempts`] counts it.
#[derive(Debug)]
pub struct Attempt {
    store: Store,
    digest: Digest,
    finished: bool,
}

impl Attempt {
    /// The image was read or rejected: earlier attempts do not count any more.
    pub fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.store.0.state.lock();
        let Some(running) = state.attempts.get_mut(&self.digest) else { return };
        running.count -= 1;
        if self.finished {
            running.before = 0;
        }
        let Running { count, before } = *running;
        if count > 0 {
            return;
        }
        state.attempts.remove(&self.digest);
        if let Err(error) = attempts::write(&self.store.0.attempt_file(&self.digest), before) {
            tracing::warn!(digest = %self.digest, %error, "cannot remove the record of an attempt");
        }
    }
}

/// Keeps the content of one digest from being collected.
#[derive(Debug)]
pub struct Lease {
    store: Store,
    digest: Digest,
    writer: Option<PathBuf>,
}

impl Lease {
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Renames a finished staging directory into place.
    fn settle(&self, dir: &Path) -> Result<Arc<Content>, StoreError> {
        let shared = &self.store.0;
        let place = shared.place(&self.digest);
        let _state = shared.state.lock();
        if place.exists() {
            if let Ok(content) = self.store.opened(&self.digest) {
                return Ok(content);
            }
            shared.discard(&place).map_err(StoreError::Write)?;
        }
        std::fs::rename(dir, &place).map_err(StoreError::Write)?;
        files::sync_dir(&shared.root.join("content")).map_err(StoreError::Write)?;
        Ok(Arc::new(Content::open(&place, &self.digest)?))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.store.0.state.lock();
        if let Some(count) = state.leases.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                state.leases.remove(&self.digest);
            }
        }
        if let Some(writer) = &self.writer {
            state.writers.remove(writer);
        }
    }
}

impl Store {
    /// Takes possession of `root`, removes what dead writers left, and serves again what is intact.
    ///
    /// Only manifests, sizes and indexes are checked here, so this is quick whatever the size of the catalogs; call
    /// [`Content::verify`] later for the rest.
    ///
    /// # Errors
    /// When the directory cannot be made or another process uses it.
    pub fn open(root: &Path) -> Result<(Self, Opened), StoreError> {
        let prepare = |source| StoreError::Prepare { dir: root.to_owned(), source };
        make_dir(root).map_err(prepare)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join("lock"))
            .map_err(prepare)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(StoreError::InUse(root.to_owned())),
            Err(std::fs::TryLockError::Error(source)) => return Err(prepare(source)),
        }
        let staging = root.join("staging");
        if staging.exists() {
            std::fs::remove_dir_all(&staging).map_err(prepare)?;
        }
        for dir in ["content", "names", "staging", ATTEMPTS] {
            make_dir(&root.join(dir)).map_err(prepare)?;
        }
        attempts::trim(&root.join(ATTEMPTS)).map_err(prepare)?;
        let shared = Shared {
            root: root.to_owned(),
            serving: ArcSwap::default(),
            state: Mutex::default(),
            next: AtomicU64::new(0),
            to_compress: Notify::new(),
            _lock: lock,
        };
        let store = Self(Arc::new(shared));
        let opened = store.reopen().map_err(prepare)?;
        Ok((store, opened))
    }

    /// What is served now. One snapshot answers one request.
    #[must_use]
    pub fn serving(&self) -> Arc<Serving> {
        self.0.serving.load_full()
    }

    /// What is served under `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Served>> {
        self.0.serving.load().get(name).cloned()
    }

    /// Keeps the content of `digest`, present or coming, until the lease is dropped.
    #[must_use]
    pub fn lease(&self, digest: &Digest) -> Lease {
        *self.0.state.lock().leases.entry(digest.clone()).or_default() += 1;
        Lease { store: self.clone(), digest: digest.clone(), writer: None }
    }

    /// Content that is already stored and intact as far as sizes show.
    #[must_use]
    pub fn find(&self, lease: &Lease) -> Option<Arc<Content>> {
        self.opened(&lease.digest).ok()
    }

    /// How many attempts to read an image have ended with the process, since the last one that came to an end.
    #[must_use]
    pub fn unfinished_attempts(&self, digest: &Digest) -> u32 {
        match self.0.state.lock().attempts.get(digest) {
            Some(running) => running.before,
            None => attempts::read(&self.0.attempt_file(digest)),
        }
    }

    /// Evicts what is recorded about earlier attempts to read an image.
    ///
    /// # Errors
    /// When the disk refuses it.
    pub(crate) fn clear_attempts(&self, digest: &Digest) -> Result<(), StoreError> {
        let mut state = self.0.state.lock();
        match state.attempts.get_mut(digest) {
            Some(running) => running.before = 0,
            None => attempts::write(&self.0.attempt_file(digest), 0).map_err(StoreError::Write)?,
        }
        Ok(())
    }

    /// As [`Store::clear_attempts`], for each image whose digest is in `text`.
    ///
    /// # Errors
    /// When the disk refuses it.
    pub(crate) fn clear_attempts_in(&self, text: &str) -> Result<(), StoreError> {
        for name in names::list(&self.0.root.join(ATTEMPTS)).map_err(StoreError::Write)? {
            if text.contains(&name)
                && let Ok(digest) = name.parse::<Digest>()
            {
                self.clear_attempts(&digest)?;
            }
        }
        Ok(())
    }

    /// Records that an image is about to be read.
    ///
    /// # Errors
    /// When the disk refuses it.
    pub fn attempt(&self, digest: &Digest) -> Result<Attempt, StoreError> {
        let mut state = self.0.state.lock();
        match state.attempts.get_mut(digest) {
            Some(running) => running.count += 1,
            None => {
                let file = self.0.attempt_file(digest);
                let before = attempts::read(&file);
                attempts::write(&file, before.saturating_add(1)).map_err(StoreError::Write)?;
                state.attempts.insert(digest.clone(), Running { count: 1, before });
            }
        }
        Ok(Attempt { store: self.clone(), digest: digest.clone(), finished: false })
    }

    /// Begins to write the content of a digest.
    ///
    /// # Errors
    /// When the disk refuses it.
    pub fn stage(&self, mut lease: Lease) -> Result<Staging, StoreError> {
        let private = self.private(&mut lease);
        Staging::new(lease, private)
    }

    /// A place under `staging/` that is not collected while the lease is held.
    fn private(&self, lease: &mut Lease) -> Private {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let dir = self.0.root.join("staging").join(format!("{}-{number}", std::process::id()));
        self.0.state.lock().writers.insert(dir.clone());
        lease.writer = Some(dir.clone());
        Private(dir)
    }

    /// Serves stored content under a name, durably: after a restart too.
    ///
    /// # Errors
    /// When the disk refuses it, or the content was found damaged meanwhile; the name then serves what it served before.
    pub fn publish(&self, name: &str, served: Served) -> Result<(), StoreError> {
        let state = self.0.state.lock();
        if served.content.is_condemned() {
            return Err(ContentError::Damaged { file: content::CATALOG }.into());
        }
        let pointer = names::Pointer::from_served(&served);
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let draft = self.0.root.join("staging").join(format!("name-{}-{number}", std::process::id()));
        names::write(&self.0.root.join("names"), &draft, name, &pointer)?;
        self.swap(&state, |serving| {
            serving.insert(name.to_owned(), Arc::new(served));
        });
        drop(state);
        self.0.to_compress.notify_one();
        Ok(())
    }

    /// Waits until something is published or a copy is asked for; returns immediately if that has happened since the last wait.
    pub(crate) async fn wait_for_uncompressed(&self) {
        self.0.to_compress.notified().await;
    }

    /// Asks for the zstd copy of a large catalog, which is made only if a client can read it.
    pub fn request_zstd(&self, content: &Content) {
        if content.request_zstd() && content.lacks_copies() {
            self.0.to_compress.notify_one();
        }
    }

    /// What is served and should get compressed copies, each digest once.
    #[must_use]
    pub(crate) fn uncompressed(&self) -> Vec<Arc<Content>> {
        let serving = self.serving();
        let lacking = serving.values().map(|served| &served.content).filter(|content| content.lacks_copies());
        let by_digest: BTreeMap<String, &Arc<Content>> =
            lacking.map(|content| (content.digest().to_string(), content)).collect();
        by_digest.into_values().cloned().collect()
    }

    /// Makes the compressed copies of stored content and serves them from then on. Slow (as long as compressing takes);
    /// not for an async thread. Gives up when `stop` returns true. Content that has been removed meanwhile gets none.
    ///
    /// # Errors
    /// When the disk refuses it, or with [`io::ErrorKind::Interrupted`] when it was stopped; the content stays as it was.
    pub fn compress(&self, content: &Content, stop: &dyn Fn() -> bool) -> Result<(), StoreError> {
        content.adopt_copies();
        content.missing_copies().into_iter().try_for_each(|coding| self.make_copy(content, coding, stop))
    }

    fn make_copy(
        &self,
        content: &Content,
        coding: Coding,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        let mut lease = self.lease(content.digest());
        let private = self.private(&mut lease);
        copies::write(content.jsonl(), &private.0, content.digest(), &[coding], stop)
            .map_err(StoreError::Write)?;
        let place = content.dir().join(coding.directory());
        let state = self.0.state.lock();
        content.adopt_copies();
        if !content.missing_copies().contains(&coding) || !content.dir().exists() {
            return Ok(());
        }
        // What is there is not whole.
        self.0.discard(&place).map_err(StoreError::Write)?;
        std::fs::rename(&private.0, &place).map_err(StoreError::Write)?;
        files::sync_dir(content.dir()).map_err(StoreError::Write)?;
        content.adopt_copies();
        drop(state);
        Ok(())
    }

    /// Stops serving a name. Returns whether it was served.
    ///
    /// # Errors
    /// When the disk refuses it; the name is not served any more all the same, until the next start.
    pub(crate) fn withdraw(&self, name: &str) -> Result<bool, StoreError> {
        let state = self.0.state.lock();
        let mut served = false;
        self.swap(&state, |serving| served = serving.remove(name).is_some());
        names::remove(&self.0.root.join("names"), name)?;
        Ok(served)
    }

    /// Withdraws every name that serves damaged content and removes the content. Returns these names, which are not served any
    /// more in any case, and the first error if the disk refuses something.
    pub(crate) fn condemn(&self, digest: &Digest) -> (Vec<String>, Result<(), StoreError>) {
        let state = self.0.state.lock();
        let mut lost = Vec::new();
        self.swap(&state, |serving| {
            serving.retain(|name, served| {
                let keep = served.content.digest() != digest;
                if !keep {
                    served.content.condemn();
                    lost.push(name.clone());
                }
                keep
            });
        });
        let mut removed = Ok(());
        for name in &lost {
            removed = removed.and(names::remove(&self.0.root.join("names"), name));
        }
        let discarded = self.0.discard(&self.0.place(digest)).map_err(StoreError::Write);
        (lost, removed.and(discarded))
    }

    /// Removes names that are not known, content that no name and no lease needs, and left-overs. Nothing is published while `is_known` is
    /// asked.
    ///
    /// # Errors
    /// When a directory cannot be read or renamed; nothing that is served is ever touched.
    pub fn collect(&self, is_known: Option<&dyn Fn(&str) -> bool>) -> Result<Collected, StoreError> {
        let mut collected = Collected::default();
        let mut doomed = Vec::new();
        {
            let state = self.0.state.lock();
            if let Some(is_known) = is_known {
                for name in names::list(&self.0.root.join("names")).map_err(StoreError::Write)? {
                    if !is_known(&name) {
                        self.swap(&state, |serving| {
                            serving.remove(&name);
                        });
                        names::remove(&self.0.root.join("names"), &name)?;
                        collected.names.push(name);
                    }
                }
            }
            let serving = self.0.serving.load();
            let needed: BTreeSet<String> = (serving.values().map(|served| served.content.digest()))
                .chain(state.leases.keys())
                .map(Digest::to_string)
                .collect();
            for name in names::list(&self.0.root.join("content")).map_err(StoreError::Write)? {
                if !needed.contains(&name) {
                    doomed.push(
                        self.0
                            .move_to_staging(&self.0.root.join("content").join(&name))
                            .map_err(StoreError::Write)?,
                    );
                    collected.contents.push(name);
                }
            }
            for name in names::list(&self.0.root.join("staging")).map_err(StoreError::Write)? {
                let path = self.0.root.join("staging").join(&name);
                if !state.writers.contains(&path) && !doomed.contains(&path) {
                    collected.leftovers += 1;
                    doomed.push(path);
                }
            }
        }
        for path in doomed {
            remove(&path).map_err(StoreError::Write)?;
        }
        Ok(collected)
    }

    /// Opens the content of a digest, sharing it with a name that serves it already.
    fn opened(&self, digest: &Digest) -> Result<Arc<Content>, ContentError> {
        let serving = self.0.serving.load();
        if let Some(served) = serving.values().find(|served| served.content.digest() == digest) {
            return Ok(served.content.clone());
        }
        Content::open(&self.0.place(digest), digest).map(Arc::new)
    }

    fn reopen(&self) -> io::Result<Opened> {
        let mut opened = Opened::default();
        let names = self.0.root.join("names");
        for name in names::list(&names)? {
            let read = names::read(&names, &name).and_then(|(digest, pointer)| {
                let content = self.opened(&digest).map_err(|error| error.to_string())?;
                let names::Pointer { reference, source, last_unpacked, .. } = pointer;
                Ok(Served { content, reference, source, last_unpacked })
            });
            match read {
                Ok(served) => {
                    let state = self.0.state.lock();
                    self.swap(&state, |serving| {
                        serving.insert(name.clone(), Arc::new(served));
                    });
                    opened.served.push(name);
                }
                Err(reason) => opened.lost.push((name, reason)),
            }
        }
        Ok(opened)
    }

    /// Changes the name map; the guard shows that no one else does.
    fn swap(&self, _state: &MutexGuard<'_, State>, change: impl FnOnce(&mut Serving)) {
        let mut serving = Serving::clone(&self.0.serving.load());
        change(&mut serving);
        self.0.serving.store(Arc::new(serving));
    }
}

impl Shared {
    fn place(&self, digest: &Digest) -> PathBuf {
        self.root.join("content").join(digest.to_string())
    }

    fn attempt_file(&self, digest: &Digest) -> PathBuf {
        self.root.join(ATTEMPTS).join(digest.to_string())
    }

    /// Renames something into `staging/`; the caller removes it.
    fn move_to_staging(&self, path: &Path) -> io::Result<PathBuf> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let moved = self.root.join("staging").join(format!("removed-{}-{number}", std::process::id()));
        std::fs::rename(path, &moved)?;
        Ok(moved)
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        match self.move_to_staging(path) {
            Ok(moved) => remove(&moved),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn make_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
