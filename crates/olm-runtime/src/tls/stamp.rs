//! Cheap "has this file changed?": one `stat`, no reading, no watching.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::TlsError;
use crate::Shutdown;
use crate::error_text::chain;

/// How often files are looked at. One `stat` each: far below anything measurable.
const INTERVAL: Duration = Duration::from_secs(5);

/// The result of `stat` for a file, symlinks followed; mounted Secrets change by swapping a symlink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl Stamp {
    /// The stamp of a file; a missing file has the empty stamp, which is different from that of any file.
    pub(crate) fn read(path: &Path) -> Self {
        let Ok(metadata) = std::fs::metadata(path) else { return Self::default() };
        Self { length: metadata.len(), modified: metadata.modified().ok(), inode: inode(&metadata) }
    }
}

/// Checks `path` every few seconds until shutdown; `reload` returns whether something was new. What cannot be read is logged,
/// and what was read before stays in use.
pub(crate) async fn follow(
    what: &'static str,
    path: &Path,
    reload: impl Fn() -> Result<bool, TlsError>,
    shutdown: &Shutdown,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match reload() {
            Ok(true) => tracing::info!(path = %path.display(), "{what} replaced"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot read the new {what}, the old stays in use");
            }
        }
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
