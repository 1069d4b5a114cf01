//! The file operations whose order makes the store safe, behind a seam so that tests can stop between any two of them.

use std::fmt::Debug;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Operations that change the disk, as [`RealDisk`] does them.
pub(super) trait Disk: Debug + Send + Sync {
    /// An existing directory is fine.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        fs::write(path, bytes)
    }

    /// Of a file or a directory.
    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

#[derive(Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {}

/// The kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    /// Together with others; waits for an exclusive holder, which never holds it long.
    Shared,
    /// Alone or not at all.
    ExclusiveNow,
}

/// Locks the file at `path`, creating it. `None`: another process or thread holds it. The locked file is the one that
/// `path` names: holders of an exclusive lock may remove the file.
pub(super) fn lock(path: &Path, how: Lock) -> io::Result<Option<File>> {
    loop {
        let file = File::options().create(true).truncate(false).write(true).read(true).open(path)?;
        match how {
            Lock::Shared => file.lock_shared()?,
            Lock::ExclusiveNow => match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            },
        }
        let mine = file.metadata()?;
        match fs::metadata(path) {
            Ok(named) if named.ino() == mine.ino() && named.dev() == mine.dev() => return Ok(Some(file)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}
