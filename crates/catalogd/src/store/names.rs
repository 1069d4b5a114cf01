//! The files under `names/`: which content a catalog serves. One small JSON file a catalog, replaced by rename.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use olm_core::Digest;
use serde::{Deserialize, Serialize};

use super::{Served, StoreError, files};

/// The content of one file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pointer {
    digest: String,
    pub(super) reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    pub(super) last_unpacked: i64,
}

impl Pointer {
    pub(super) fn from_served(served: &Served) -> Self {
        Self {
            digest: served.content.digest().to_string(),
            reference: served.reference.clone(),
            source: served.source.clone(),
            last_unpacked: served.last_unpacked,
        }
    }
}

/// Replaces the pointer of `name`, durably; `draft` is a private path on the same file system.
pub(super) fn write(names: &Path, draft: &Path, name: &str, pointer: &Pointer) -> Result<(), StoreError> {
    check(name)?;
    let place = || -> io::Result<()> {
        let mut file = File::create(draft)?;
        file.write_all(&serde_json::to_vec(pointer)?)?;
        file.sync_all()?;
        std::fs::rename(draft, names.join(name))?;
        files::sync_dir(names)
    };
    place().map_err(|error| {
        let _ = std::fs::remove_file(draft);
        StoreError::Write(error)
    })
}

/// Removes the pointer of `name`; none is fine.
pub(super) fn remove(names: &Path, name: &str) -> Result<(), StoreError> {
    check(name)?;
    match std::fs::remove_file(names.join(name)) {
        Ok(()) => files::sync_dir(names).map_err(StoreError::Write),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::Write(error)),
    }
}

/// The pointer of `name`, or why there is none.
pub(super) fn read(names: &Path, name: &str) -> Result<(Digest, Pointer), String> {
    let bytes = std::fs::read(names.join(name)).map_err(|error| error.to_string())?;
    let pointer: Pointer = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let digest = pointer.digest.parse().map_err(|error| format!("digest {:?}: {error}", pointer.digest))?;
    Ok((digest, pointer))
}

/// The entries of a directory, sorted; names that are not text are passed over.
pub(super) fn list(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A catalog's name is a DNS subdomain, so this refuses only what never comes from the API server.
fn check(name: &str) -> Result<(), StoreError> {
    let plain = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
    if plain { Ok(()) } else { Err(StoreError::Name(name.to_owned())) }
}
