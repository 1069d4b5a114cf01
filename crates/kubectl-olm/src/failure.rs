//! No answer: one sentence that names the thing and the mend, and an exit code that says of what sort it is.

use std::path::{Path, PathBuf};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What was asked about is not there.
    #[error("{0}")]
    NotFound(String),
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
    /// An answer that says what is wrong with the question.
    #[error("{text}")]
    Verdict {
        /// The answer, for standard output.
        text: String,
        /// What helps, for standard error.
        help: Option<String>,
    },
    /// Arguments do not fit.
    #[error("{0}")]
    Usage(String),
    /// The cluster, catalogd or a registry could not be asked.
    #[error("{0}")]
    Unreachable(String),
}

impl Failure {
    pub(crate) fn content(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::Content { path: path.to_owned(), message: error.to_string() }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 1,
            Self::Read { .. } | Self::Content { .. } | Self::Verdict { .. } | Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
        }
    }
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|source| Failure::Read { path: path.to_owned(), source })
}

/// A line for the person who waits, beside the answer.
#[expect(clippy::print_stderr, reason = "where people look for what is not the answer")]
pub(crate) fn note(text: &str) {
    eprintln!("{}", crate::terminal::harmless(text));
}

/// Runs what waits for a cluster or a registry.
pub(crate) fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    olm_runtime::tls::install_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    runtime.map_err(|error| Failure::Usage(format!("cannot start: {error}")))?.block_on(work)
}
