//! Writes the visited files beneath a directory.
//!
//! Only directories and regular files are ever created, all with the modes of this process, so nothing in the directory
//! can lead out of it. Links become hard links to (or copies of) the file they mean.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::Visitor;
use crate::error::ImageError;

const BUFFER: usize = 256 << 10;

/// The visitor behind `unpack_to`.
pub(crate) struct Unpacker {
    root: PathBuf,
    made: HashSet<PathBuf>,
    buffer: Vec<u8>,
}

impl Unpacker {
    /// `root` must exist, be empty and belong to this process alone.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), made: HashSet::new(), buffer: Vec::new() }
    }

    fn place(&mut self, path: &str) -> Result<PathBuf, ImageError> {
        let full = self.root.join(path);
        if let Some(parent) = full.parent()
            && !self.made.contains(parent)
        {
            fs::create_dir_all(parent).map_err(|source| failed(parent, source))?;
            self.made.insert(parent.to_owned());
        }
        Ok(full)
    }
}

fn failed(path: &Path, source: io::Error) -> ImageError {
    ImageError::Io { path: path.to_owned(), source }
}

impl Visitor for Unpacker {
    type Error = ImageError;

    fn file(&mut self, path: &str, _size: u64, content: &mut dyn Read) -> Result<(), ImageError> {
        let full = self.place(path)?;
        let mut file = fs::File::create_new(&full).map_err(|source| failed(&full, source))?;
        self.buffer.resize(BUFFER, 0);
        loop {
            let n = match content.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(super::from_io(error)),
            };
            file.write_all(&self.buffer[..n]).map_err(|source| failed(&full, source))?;
        }
        Ok(())
    }

    fn alias(&mut self, path: &str, target: &str) -> Result<(), ImageError> {
        let full = self.place(path)?;
        let target = self.root.join(target);
        fs::hard_link(&target, &full)
            .or_else(|_| fs::copy(&target, &full).map(|_| ()))
            .map_err(|source| failed(&full, source))
    }

    fn remove(&mut self, path: &str) -> Result<(), ImageError> {
        let full = self.root.join(path);
        let gone = match fs::symlink_metadata(&full) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&full),
            Ok(_) => fs::remove_file(&full),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        self.made.retain(|made| !made.starts_with(&full));
        gone.map_err(|source| failed(&full, source))
    }
}
