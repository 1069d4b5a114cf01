//! Input that cannot be worked with: exit code 2, one sentence that names the thing.

use std::path::{Path, PathBuf};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file does not say what it should.
    #[error("{}: {message}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// Arguments do not fit.
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    pub(crate) fn content(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::Content { path: path.to_owned(), message: error.to_string() }
    }
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|source| Failure::Read { path: path.to_owned(), source })
}
