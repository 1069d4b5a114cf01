//! The list of the stored files: written last, checked first.
//!
//! A seal names every file with its size: it protects against a disk that loses data, not against an attacker with write
//! access. The file is called `.seal` and is not part of the content.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use olm_core::Digest;
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::disk::Disk;

const NAME: &str = ".seal";
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct List {
    format: u32,
    digest: Digest,
    files: BTreeMap<String, Item>,
}

#[derive(Serialize, Deserialize)]
struct Item {
    size: u64,
}

/// Seals and syncs everything beneath `root`.
pub(super) fn write(disk: &dyn Disk, root: &Path, digest: &Digest) -> Result<(), StoreError> {
    let (files, directories) = walk(root)?;
    let mut list = List { format: FORMAT, digest: digest.clone(), files: BTreeMap::new() };
    for (name, path, size) in files {
        disk.sync(&path).map_err(|e| StoreError::io("sync", &path, e))?;
        list.files.insert(name, Item { size });
    }
    let path = root.join(NAME);
    let failed = |e| StoreError::io("write", &path, e);
    let bytes = serde_json::to_vec(&list).map_err(|e| failed(e.into()))?;
    disk.write(&path, &bytes).map_err(failed)?;
    disk.sync(&path).map_err(failed)?;
    for directory in directories {
        disk.sync(&directory).map_err(|e| StoreError::io("sync", &directory, e))?;
    }
    Ok(())
}

/// Compares what is beneath `root` with its seal.
pub(super) fn check(root: &Path, digest: &Digest) -> Result<(), StoreError> {
    let damaged = |why: String| StoreError::Damaged { digest: digest.clone(), why };
    let path = root.join(NAME);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged("no seal".into())),
        Err(error) => return Err(StoreError::io("read", &path, error)),
    };
    let list: List = serde_json::from_slice(&text).map_err(|_| damaged("unreadable seal".into()))?;
    if list.format != FORMAT {
        return Err(damaged(format!("seal of another format ({})", list.format)));
    }
    if list.digest != *digest {
        return Err(damaged(format!("seal of {}", list.digest)));
    }
    let mut expected = list.files;
    for (name, _, size) in walk(root)?.0 {
        let Some(item) = expected.remove(&name) else {
            return Err(damaged(format!("unknown file {name:?}")));
        };
        if item.size != size {
            return Err(damaged(format!("{name:?} has {size} bytes instead of {}", item.size)));
        }
    }
    match expected.keys().next() {
        Some(name) => Err(damaged(format!("{name:?} is missing"))),
        None => Ok(()),
    }
}

type Files = Vec<(String, PathBuf, u64)>;

/// All files (but the seal) and all directories, innermost first.
fn walk(root: &Path) -> Result<(Files, Vec<PathBuf>), StoreError> {
    let mut files = Vec::new();
    let mut directories = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        let failed = |error| StoreError::io("list", &directory, error);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let kind = entry.metadata().map_err(failed)?;
            if kind.is_dir() {
                todo.push(path);
                continue;
            }
            let name = path.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned);
            let Some(name) = name.filter(|_| kind.is_file()) else {
                let error =
                    io::Error::new(io::ErrorKind::InvalidData, "neither a regular file nor a directory");
                return Err(StoreError::io("store", &path, error));
            };
            if name != NAME {
                files.push((name, path, kind.len()));
            }
        }
        directories.push(directory);
    }
    directories.reverse();
    Ok((files, directories))
}
