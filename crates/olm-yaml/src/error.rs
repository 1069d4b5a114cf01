//! Errors in foreign bytes, with their position.

use thiserror::Error;

/// A position in the input and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line} (byte {offset}): {message}")]
pub struct ParseError {
    /// Byte offset from the start of the file (or of the slice that was parsed), counted from 0.
    pub offset: u64,
    /// Line in the same input, counted from 1.
    pub line: u64,
    /// The error message, worded as Go's libraries word it (fbc §3).
    pub message: String,
}

/// Why the next document of a stream could not be had.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("cannot read the input")]
    Io(#[from] std::io::Error),
    /// The bytes were read and are not what they should be.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

impl ReadError {
    pub fn as_parse(&self) -> Option<&ParseError> {
        match self {
            Self::Parse(error) => Some(error),
            Self::Io(_) => None,
        }
    }
}
