//! Examples of every error, for the tests of the programs that print them.

use std::io;
use std::time::Duration;

use olm_core::variants;

use crate::{Error, ImageError, StoreError};

/// An error of each kind about this image.
///
/// # Panics
/// Never: the digest in them is valid.
#[must_use]
#[expect(clippy::unwrap_used, reason = "the text is a digest")]
pub fn errors(reference: &str) -> Vec<Error> {
    let digest = || format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let mut errors = variants!(Error:
        Error::ReferenceSyntax { .. } => {
            Error::ReferenceSyntax { reference: reference.to_owned(), why: "invalid reference format".to_owned() }
        },
        Error::ReferenceForm { .. } => Error::ReferenceForm { why: "it names no tag".to_owned() },
        Error::AuthFile(_) => Error::AuthFile(ImageError::UnexpectedEof),
        Error::Registries(_) => Error::Registries(ImageError::UnexpectedEof),
        Error::Policy(_) => Error::Policy(ImageError::UnexpectedEof),
        Error::Source(_) => Error::Source(ImageError::UnexpectedEof),
        Error::Manifest(_) => Error::Manifest(ImageError::UnexpectedEof),
        Error::Copy(_) => Error::Copy(ImageError::UnexpectedEof),
        Error::ReadLayer { .. } => {
            Error::ReadLayer { index: 0, cause: ImageError::UnexpectedEof }
        },
        Error::ApplyLayer { .. } => {
            Error::ApplyLayer { index: 0, cause: ImageError::UnexpectedEof }
        },
        Error::Apply(_) => Error::Apply(ImageError::UnexpectedEof),
        Error::Store(_) => Error::Store(StoreError::Cancelled),
        Error::Cancelled => Error::Cancelled,
    );
    let stored = variants!(StoreError:
        StoreError::Io { .. } => StoreError::Io {
            action: "write", path: "/var/cache/bundles".into(), source: io::Error::other("no space left"),
        },
        StoreError::Damaged { .. } => {
            StoreError::Damaged { digest: digest(), why: "a file is missing".to_owned() }
        },
        StoreError::Cancelled => StoreError::Cancelled,
    );
    errors.extend(stored.into_iter().map(Error::from));
    errors.extend(image_errors(reference).into_iter().map(Error::Source));
    errors
}

fn image_errors(reference: &str) -> Vec<ImageError> {
    let what = || format!("reading manifest v1 in {reference}");
    let digest = |letter: &str| format!("sha256:{}", letter.repeat(64));
    variants!(ImageError:
        ImageError::Status { .. } => ImageError::Status {
            what: what(), status: 401, code: Some("UNAUTHORIZED".to_owned()),
            message: Some("authentication required".to_owned()), retry_after: None,
        },
        ImageError::Network { .. } => ImageError::Network { what: what(), why: "connection refused".to_owned() },
        ImageError::Stalled { .. } => {
            ImageError::Stalled { what: what(), got: 7, waited: Duration::from_secs(30) }
        },
        ImageError::Digest { .. } => ImageError::Digest { what: what(), want: digest("0"), got: digest("1") },
        ImageError::Size { .. } => ImageError::Size { what: what(), declared: 7, got: 8 },
        ImageError::Limit { .. } => ImageError::Limit { what: what(), limit: 7, unit: "bytes" },
        ImageError::UnexpectedEof => ImageError::UnexpectedEof,
        ImageError::Unsupported(_) => ImageError::Unsupported("media type x is not supported".to_owned()),
        ImageError::Content(_) => ImageError::Content("the manifest is no JSON".to_owned()),
        ImageError::Config(_) => ImageError::Config("registries.conf blocks the image".to_owned()),
        ImageError::Rejected(_) => ImageError::Rejected("no signature is accepted".to_owned()),
        ImageError::Io { .. } => ImageError::Io { path: "/var/cache/a".into(), source: io::Error::other("full") },
        ImageError::Mirrors { .. } => ImageError::Mirrors {
            mirrors: format!("[{reference}: connection refused]"),
            reference: reference.to_owned(),
            primary: Box::new(ImageError::UnexpectedEof),
        },
    )
}
