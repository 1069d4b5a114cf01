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

/// Checks `path` every few seconds until shutdown; `reload` returns whether something was new. What cannot be read is logged once,
/// and what was read before stays in use.
pub(crate) async fn follow(
    what: &'static str,
    path: &Path,
    reload: impl Fn() -> Result<bool, TlsError>,
    shutdown: &Shutdown,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut problem = None;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let reloaded = reload().map_err(|error| chain(&error));
        if let Some(error) = new_problem(&mut problem, &reloaded) {
            tracing::warn!(error, "cannot read the new {what}, the old stays in use");
        }
        if reloaded == Ok(true) {
            tracing::info!(path = %path.display(), "{what} replaced");
        }
    }
}

/// The error of a check, unless the one before had it, too: a file that cannot be read is read again at each.
fn new_problem<'a>(before: &mut Option<String>, reloaded: &'a Result<bool, String>) -> Option<&'a str> {
    let now = reloaded.as_ref().err();
    let is_new = now != before.as_ref();
    *before = now.cloned();
    now.filter(|_| is_new).map(String::as_str)
}

#[cfg(unix)]
fn inode(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &std::fs::Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_problem_that_lasts_is_logged_once() {
        let failed = |text: &str| Err(text.to_owned());
        let mut before = None;
        for (reloaded, want) in [
            (Ok(false), None),
            (failed("a"), Some("a")),
            (failed("a"), None),
            (failed("b"), Some("b")),
            (Ok(false), None),
            (failed("b"), Some("b")),
            (Ok(true), None),
        ] {
            assert_eq!(new_problem(&mut before, &reloaded), want, "{reloaded:?}");
        }
    }
}
