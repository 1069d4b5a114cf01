//! Records of attempts to read an image that have not come to an end.
//!
//! A file named after the digest holds their number. It is written before an image is read. It is removed when the image was
//! read or rejected, and it is set back when the attempt was cancelled, so it counts only what ends a process in the middle:
//! memory that ran out, a kill, an abort. No sync is needed: the file has to survive the process, not the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files that stay, so that the directory does not grow with history.
const MAX_FILES: usize = 256;

/// How many attempts have not come to an end. What cannot be read counts as none.
#[must_use]
pub fn read(path: &Path) -> u32 {
    fs::read_to_string(path).ok().and_then(|text| text.lines().next()?.trim().parse().ok()).unwrap_or(0)
}

/// The request that [`write_for`] noted; empty without one.
#[must_use]
pub fn request(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_once('\n').map_or_else(String::new, |(_, request)| request.to_owned())
}

/// As [`write`], with the user's request that the attempts belong to.
///
/// # Errors
/// When the disk refuses it.
pub fn write_for(path: &Path, count: u32, request: &str) -> io::Result<()> {
    fs::write(path, format!("{count}\n{request}"))
}

/// Notes how many attempts have not come to an end; none is no file.
///
/// # Errors
/// When the disk refuses it.
pub fn write(path: &Path, count: u32) -> io::Result<()> {
    let written = if count > 0 { fs::write(path, count.to_string()) } else { fs::remove_file(path) };
    match written {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes all but the latest files. Others may come and go meanwhile.
///
/// # Errors
/// When the directory cannot be read, or a file not be removed.
pub fn trim(dir: &Path) -> io::Result<()> {
    trim_to(dir, MAX_FILES)
}

/// As [`trim`], with another number of files, or of directories.
pub(super) fn trim_to(dir: &Path, max: usize) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata().and_then(|it| it.modified()) {
            Ok(modified) => files.push((modified, entry.path())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.sort();
    let surplus = files.len().saturating_sub(max);
    files.into_iter().take(surplus).try_for_each(|(_, path): (_, PathBuf)| {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    })
}
