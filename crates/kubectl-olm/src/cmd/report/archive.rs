//! The files of a report, within a total size, and how they are written: as one `.tar.gz` or as a folder.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::redact;
use crate::failure::CommandError;

/// The name of the summary, the first file.
pub(super) const SUMMARY: &str = "summary.txt";

/// The files so far, and what could not be read.
pub(super) struct Files {
    all: Vec<(String, Vec<u8>)>,
    /// What is missing, and why.
    missing: Vec<(String, String)>,
    /// Bytes that may still be added.
    left: usize,
}

impl Files {
    pub(super) fn new(most: usize) -> Self {
        Self { all: Vec::new(), missing: Vec::new(), left: most }
    }

    /// Adds a text without its secrets.
    pub(super) fn add_text(&mut self, path: &str, text: &str) {
        self.add(path, redact::text(text).into_bytes());
    }

    /// Adds bytes that hold no text of others, such as a profile.
    pub(super) fn add(&mut self, path: &str, content: Vec<u8>) {
        match self.left.checked_sub(content.len()) {
            Some(left) => {
                self.left = left;
                self.all.push((safe(path), content));
            }
            None => self.miss(path, "the report would become too large"),
        }
    }

    /// Records that something could not be read.
    pub(super) fn miss(&mut self, what: &str, why: &str) {
        self.missing.push((redact::text(what), redact::text(why)));
    }

    pub(super) fn missing(&self) -> &[(String, String)] {
        &self.missing
    }

    /// Paths and sizes.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.all.iter().map(|(path, content)| (path.as_str(), content.len()))
    }

    /// The archive. All files are in the folder `root`, the summary first.
    pub(super) fn archive(&self, root: &str, summary: &str, seconds: u64) -> std::io::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let mut append = |path: &str, content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(seconds);
            archive.append_data(&mut header, format!("{root}/{path}"), content)
        };
        append(SUMMARY, summary.as_bytes())?;
        for (path, content) in &self.all {
            append(path, content)?;
        }
        archive.into_inner()?.finish()
    }

    /// Writes the files into a folder, which is created.
    pub(super) fn write_folder(&self, folder: &Path, summary: &str) -> Result<(), CommandError> {
        let failed = |path: &Path, source| CommandError::WriteFile { path: path.to_owned(), source };
        let summary = (SUMMARY, summary.as_bytes());
        for (path, content) in std::iter::once(summary)
            .chain(self.all.iter().map(|(path, content)| (path.as_str(), content.as_slice())))
        {
            let path = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
            write_private(&path, content).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }
}

/// Writes a file that only its owner may read.
pub(super) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(content)
}

/// A path of plain characters without `..`: names come from the cluster.
fn safe(path: &str) -> String {
    let part = |part: &str| -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let part: String = part.chars().map(plain).take(200).collect();
        if part.chars().all(|c| c == '.') { "_".to_owned() } else { part }
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_files_stay_within_their_size() {
        let mut files = Files::new(10);
        files.add_text("a", "12345678");
        files.add_text("b", "123");
        files.add_text("../c/..", "12");
        assert_eq!(files.sizes().collect::<Vec<_>>(), [("a", 8), ("_/c/_", 2)]);
        assert_eq!(files.missing(), [("b".to_owned(), "the report would become too large".to_owned())]);
    }
}
