//! The files under `attempts/`: the images that a process was reading when it ended without a cause in its log.
//!
//! A file named after the digest holds how many attempts have not come to an end. It is written before an image is read. It is
//! removed when the image was read or rejected, and it is set back when the attempt was cancelled, so it counts only what
//! ends a process in the middle: memory that ran out, a kill, an abort. No sync is needed: the file has to survive the
//! process, not the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::StoreError;

pub(super) const ATTEMPTS: &str = "attempts";
/// Files that stay, so that the directory does not grow with history.
const MAX_FILES: usize = 256;

/// Attempts at one digest that run in this process, and how many had not come to an end before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) count: usize,
    pub(super) before: u32,
}

/// How many attempts have not come to an end. What cannot be read counts as none.
pub(super) fn read(path: &Path) -> u32 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Notes how many attempts have not come to an end; none is no file.
pub(super) fn write(path: &Path, count: u32) -> Result<(), StoreError> {
    let written = if count > 0 { fs::write(path, count.to_string()) } else { fs::remove_file(path) };
    match written {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::Write(error)),
        _ => Ok(()),
    }
}

/// Removes all but the latest files.
pub(super) fn trim(dir: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let surplus = files.len().saturating_sub(MAX_FILES);
    files.into_iter().take(surplus).try_for_each(|(_, path): (_, PathBuf)| fs::remove_file(path))
}
