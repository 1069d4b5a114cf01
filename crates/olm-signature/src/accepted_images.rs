//! Images that were found to be signed as the policy demands, so that a steady cluster sends no request.
//!
//! An entry is about a policy with all its keys, a reference as the user wrote it and a digest; changing any of them
//! makes it another. Only acceptance is remembered, and only what stays true. On disk it lets a restarted process serve
//! what it has while the registry is away; who can write there can write the content beside it as well.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use olm_core::{Digest, ImageRef, hex};
use parking_lot::Mutex;
use sha2::Digest as _;

use crate::policy::Policy;

/// Images remembered; older ones are verified again.
const MAX_IMAGES: usize = 4096;
/// An entry in the file: 64 hex digits and the end of the line.
const LINE: usize = 65;

/// Remembers, in memory and, if there is a place for it, on disk.
#[derive(Debug)]
pub struct AcceptedImages {
    file: Option<PathBuf>,
    known: Mutex<Option<VecDeque<String>>>,
}

/// An image under a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedImage(String);

impl AcceptedImage {
    /// `asked` is the reference that the user wrote, `digest` what it resolves to.
    #[must_use]
    pub fn new(policy: &Policy, asked: &ImageRef, digest: &Digest) -> Self {
        let mut hash = sha2::Sha256::new();
        for part in [&policy.fingerprint, &asked.to_string(), digest.as_str()] {
            hash.update(part);
            hash.update([0]);
        }
        Self(hex(&hash.finalize()))
    }
}

impl AcceptedImages {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file, known: Mutex::default() }
    }

    /// Whether the image was accepted before.
    pub fn contains(&self, image: &AcceptedImage) -> bool {
        self.with_entries(|known| known.contains(&image.0))
    }

    /// Remembers that it was accepted. A disk that does not take it costs another verification after a restart.
    pub fn insert(&self, image: AcceptedImage) {
        self.with_entries(|known| {
            if known.contains(&image.0) {
                return;
            }
            known.push_back(image.0);
            while known.len() > MAX_IMAGES {
                known.pop_front();
            }
            if let Some(file) = &self.file
                && let Err(error) = save(file, known)
            {
                tracing::warn!(file = %file.display(), %error, "cannot keep which signatures were verified");
            }
        });
    }

    fn with_entries<T>(&self, work: impl FnOnce(&mut VecDeque<String>) -> T) -> T {
        let mut known = self.known.lock();
        work(known.get_or_insert_with(|| self.file.as_deref().map(load).unwrap_or_default()))
    }
}

/// Lines that are no entries are ignored: they accept nothing.
fn load(file: &Path) -> VecDeque<String> {
    let mut text = String::new();
    let read = std::fs::File::open(file)
        .and_then(|file| file.take((MAX_IMAGES * LINE) as u64).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "cannot read which signatures were verified");
            VecDeque::new()
        }
        _ => text.lines().filter(|line| line.len() == LINE - 1).map(str::to_owned).collect(),
    }
}

fn save(file: &Path, known: &VecDeque<String>) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let fresh = file.with_extension("new");
    let mut written = std::fs::File::create(&fresh)?;
    for image in known {
        writeln!(written, "{image}")?;
    }
    written.sync_all()?;
    std::fs::rename(fresh, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(n: usize) -> AcceptedImage {
        AcceptedImage(format!("{n:064x}"))
    }

    #[test]
    fn accepted_images_survive_and_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("deep/verified");
        let first = AcceptedImages::new(Some(file.clone()));
        assert!(!first.contains(&image(1)));
        first.insert(image(1));
        first.insert(image(1));
        first.insert(image(2));
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2);
        let second = AcceptedImages::new(Some(file.clone()));
        assert!(second.contains(&image(1)) && second.contains(&image(2)) && !second.contains(&image(3)));

        let many: String = (0..MAX_IMAGES + 10).map(|n| format!("{n:064x}\n")).collect();
        std::fs::write(&file, many).unwrap();
        let third = AcceptedImages::new(Some(file.clone()));
        third.insert(image(MAX_IMAGES + 99));
        assert!(!third.contains(&image(0)) && third.contains(&image(MAX_IMAGES + 99)));
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), MAX_IMAGES);
    }

    #[test]
    fn accepted_images_damaged_file_accepts_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("verified");
        std::fs::write(&file, [0xff, 0xfe, b'\n']).unwrap();
        assert!(!AcceptedImages::new(Some(file.clone())).contains(&image(1)));
        std::fs::write(&file, "short\n").unwrap();
        let images = AcceptedImages::new(Some(file));
        assert!(!images.contains(&AcceptedImage("short".into())));
        assert!(!AcceptedImages::new(Some(directory.path().to_owned())).contains(&image(1)));
    }
}
