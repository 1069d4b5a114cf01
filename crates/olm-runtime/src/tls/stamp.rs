//! Cheap "has this file changed?": one `stat`, no reading, no watching.

use std::path::Path;
use std::time::{Duration, SystemTime};

/// How often files are looked at. One `stat` each: far below anything measurable.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// What `stat` says about a file, symlinks followed; mounted Secrets change by swapping a symlink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl Stamp {
    /// The stamp of a file; a missing file has the empty stamp, which is different from that of any file.
    pub(crate) fn of(path: &Path) -> Self {
        let Ok(metadata) = std::fs::metadata(path) else { return Self::default() };
        Self { length: metadata.len(), modified: metadata.modified().ok(), inode: inode(&metadata) }
    }
}

#[cfg(unix)]
fn inode(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &std::fs::Metadata) -> u64 {
    0
}
