//! Errors between an image reference and its files, and when a retry can help.
//!
//! [`Error`] names the step (its text begins as catalogd §4.6 writes it), [`ImageError`] the cause. The literal prefix
//! `terminal error: ` of the conditions is not written here: callers add it where [`Error::retry`] is
//! [`Retry::Terminal`] and their own rule requires it.

use std::path::PathBuf;
use std::time::Duration;

use olm_signature::PolicyError;

/// When to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Never for the same input: only a changed reference helps.
    Terminal,
    /// The content or the configuration is invalid and must be fixed. Wait for a change and retry seldom (minutes, not
    /// seconds).
    Slow,
    /// The network, the registry or the disk failed: retry with backoff.
    Backoff,
    /// The registry set the delay (`Retry-After`).
    After(Duration),
}

/// A failed step on the way from a reference to unpacked content.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not an image reference.
    #[error("error parsing image reference {reference:?}: {why}")]
    ReferenceSyntax { reference: String, why: String },
    /// The reference parses, but names no content, or names it twice.
    #[error("error creating reference: {why}")]
    ReferenceForm { why: String },
    /// The credentials file is there but cannot be used.
    #[error("could not stat auth file, error: {0}")]
    AuthFile(ImageError),
    /// The configuration of registries is there but cannot be used.
    #[error("error creating image source: {0}")]
    Registries(ImageError),
    /// The signature policy, or a key or certificate that it names, cannot be read.
    #[error("error loading policy context: {0}")]
    Policy(ImageError),
    /// The registry could not be queried: configuration, network, credentials, unknown name.
    #[error("error creating image source: {0}")]
    Source(ImageError),
    /// The manifest is unusable.
    #[error("error getting manifest: {0}")]
    Manifest(ImageError),
    /// Bytes of the image could not be downloaded, or do not match their digest.
    #[error("error copying image: {0}")]
    Copy(ImageError),
    /// The layer's media type or compression is not understood.
    #[error("error applying image: error reading layer[{index}]: {cause}")]
    ReadLayer {
        /// Position in the manifest, from 0 (the lowest layer).
        index: usize,
        cause: ImageError,
    },
    /// The layer's content is broken or hostile.
    #[error("error applying image: error applying layer[{index}]: {cause}")]
    ApplyLayer {
        /// As of [`Error::ReadLayer`].
        index: usize,
        cause: ImageError,
    },
    /// The finished tree does not make sense (links that lead nowhere).
    #[error("error applying image: {0}")]
    Apply(ImageError),
    /// The store on disk failed.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// The pull was given up by its caller.
    #[error("pull was cancelled")]
    Cancelled,
}

impl Error {
    /// When to retry.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match (self, self.cause()) {
            (_, Some(cause)) => cause.retry(),
            (Self::ReferenceSyntax { .. } | Self::ReferenceForm { .. }, None) => Retry::Terminal,
            (_, None) => Retry::Backoff,
        }
    }

    /// Whether the registry asks for other credentials.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        matches!(self.cause().and_then(ImageError::status), Some(401 | 403))
    }

    /// Whether the image may be there, and nothing is known of it: the registry that has it cannot be reached or does not answer, or the
    /// files that a request needs cannot be used.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::AuthFile(_) | Self::Registries(_))
            || self.cause().is_some_and(ImageError::is_unavailable)
    }

    /// Whether the signature policy does not accept the image.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        matches!(self.cause(), Some(ImageError::Rejected(_)))
    }

    /// Whether the signature policy is the cause: it does not accept the image, or cannot be read.
    #[must_use]
    pub fn is_of_policy(&self) -> bool {
        self.is_rejection() || matches!(self, Self::Policy(_))
    }

    /// Whether the content of the image is the cause, with its digest verified: the same image fails the same way.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        let (Self::ApplyLayer { cause, .. } | Self::Apply(cause)) = self else { return false };
        matches!(cause, ImageError::Limit { .. } | ImageError::Content(_) | ImageError::UnexpectedEof)
    }

    /// The cause of the failed step, where there is one.
    #[must_use]
    pub fn cause(&self) -> Option<&ImageError> {
        match self {
            Self::AuthFile(cause)
            | Self::Registries(cause)
            | Self::Policy(cause)
            | Self::Source(cause)
            | Self::Manifest(cause)
            | Self::Copy(cause)
            | Self::ReadLayer { cause, .. }
            | Self::ApplyLayer { cause, .. }
            | Self::Apply(cause) => Some(cause),
            Self::ReferenceSyntax { .. } | Self::ReferenceForm { .. } | Self::Store(_) | Self::Cancelled => {
                None
            }
        }
    }
}

/// The cause of a failed step, without the step.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The registry answered with an error status.
    #[error("{what}: {}", status_text(*.status, .code.as_deref(), .message.as_deref()))]
    Status {
        /// The request, e.g. `reading manifest v1 in quay.io/a/b`.
        what: String,
        status: u16,
        /// The registry's own error code, e.g. `MANIFEST_UNKNOWN`.
        code: Option<String>,
        /// The registry's own message, shortened and stripped of control characters.
        message: Option<String>,
        /// The delay that the registry demands.
        retry_after: Option<Duration>,
    },
    /// The registry could not be reached, or the connection broke.
    #[error("{what}: {why}")]
    Network {
        what: String,
        /// The chain of causes.
        why: String,
    },
    /// The registry sends nothing, or next to nothing.
    #[error("{what}: stalled: {got} bytes in {} s", .waited.as_secs())]
    Stalled {
        what: String,
        /// Bytes received while waiting.
        got: u64,
        /// Time spent waiting for the registry.
        waited: Duration,
    },
    /// The bytes are not the ones that the digest names.
    #[error("{what}: digest mismatch: want {want}, got {got}")]
    Digest {
        /// The read object.
        what: String,
        /// The requested digest.
        want: String,
        /// The digest of the received bytes.
        got: String,
    },
    /// More or fewer bytes than declared.
    #[error("{what}: {}", size_text(*.declared, *.got))]
    Size {
        /// The read object.
        what: String,
        /// Bytes that the manifest declares.
        declared: u64,
        /// Received bytes; if too many, the count at which reading stopped.
        got: u64,
    },
    /// A limit of this client is exceeded.
    #[error("{what} exceeds the limit of {limit} {unit}")]
    Limit {
        /// The object that is too large.
        what: String,
        limit: u64,
        /// Its unit, e.g. `bytes` or `entries`.
        unit: &'static str,
    },
    /// The stream ends in the middle.
    #[error("unexpected EOF")]
    UnexpectedEof,
    /// Well-formed, but not supported by this client.
    #[error("{0}")]
    Unsupported(String),
    /// Malformed or hostile content.
    #[error("{0}")]
    Content(String),
    /// Local configuration (registries.conf, policy, certificates, credentials) blocks the image or is invalid.
    #[error("{0}")]
    Config(String),
    /// The signature policy does not accept the image.
    #[error("{0}")]
    Rejected(String),
    /// A file of the local configuration cannot be read, or content cannot be written.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// Every mirror and the primary failed; the primary decides when to retry.
    #[error("(Mirrors also failed: {mirrors}): {reference}: {primary}")]
    Mirrors {
        /// `[reference: error]` of each mirror.
        mirrors: String,
        /// The reference at the primary location.
        reference: String,
        /// The error of the primary location.
        primary: Box<ImageError>,
    },
}

impl ImageError {
    /// When to retry.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Status { retry_after: Some(pause), .. } => Retry::After(*pause),
            Self::Status { .. }
            | Self::Network { .. }
            | Self::Stalled { .. }
            | Self::Digest { .. }
            | Self::Size { .. } => Retry::Backoff,
            Self::Limit { .. }
            | Self::UnexpectedEof
            | Self::Unsupported(_)
            | Self::Content(_)
            | Self::Config(_)
            | Self::Rejected(_) => Retry::Slow,
            // the image causes a name that no disk accepts
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::InvalidFilename => Retry::Slow,
            Self::Io { .. } => Retry::Backoff,
            Self::Mirrors { primary, .. } => primary.retry(),
        }
    }

    /// Whether the registry that may have the image cannot be reached or does not answer.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Network { .. } | Self::Stalled { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            Self::Mirrors { primary, .. } => primary.is_unavailable(),
            Self::Digest { .. }
            | Self::Size { .. }
            | Self::Limit { .. }
            | Self::UnexpectedEof
            | Self::Unsupported(_)
            | Self::Content(_)
            | Self::Config(_)
            | Self::Rejected(_)
            | Self::Io { .. } => false,
        }
    }

    pub(crate) fn network(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Network { what: what.into(), why: why.into() }
    }

    /// The HTTP status, where the registry answered with one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Mirrors { primary, .. } => primary.status(),
            _ => None,
        }
    }
}

/// Fails if `count` is above `limit`.
pub(crate) fn check_limit(
    count: u64,
    limit: u64,
    unit: &'static str,
    what: impl std::fmt::Display,
) -> Result<(), ImageError> {
    if count <= limit {
        return Ok(());
    }
    Err(ImageError::Limit { what: what.to_string(), limit, unit })
}

impl From<PolicyError> for ImageError {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Invalid(why) => Self::Config(why),
            PolicyError::Io { path, source } => Self::Io { path, source },
        }
    }
}

fn status_text(status: u16, code: Option<&str>, message: Option<&str>) -> String {
    match (status, code, message) {
        (_, Some("MANIFEST_UNKNOWN"), _) => "manifest unknown".into(),
        (_, Some("NAME_UNKNOWN"), _) => "name unknown: repository name not known to registry".into(),
        (401 | 403, _, Some(message)) => format!("unauthorized: {message} (HTTP status {status})"),
        (401 | 403, _, None) => format!("unauthorized (HTTP status {status})"),
        (404, None, _) => "not found (HTTP status 404)".into(),
        (429, _, _) => "toomanyrequests: the registry limits the rate of requests (HTTP status 429)".into(),
        (_, Some(code), Some(message)) => {
            format!("{}: {message} (HTTP status {status})", code.to_lowercase())
        }
        (_, None, Some(message)) => format!("{message} (HTTP status {status})"),
        (_, Some(code), None) => format!("{} (HTTP status {status})", code.to_lowercase()),
        (_, None, None) => format!("unexpected HTTP status {status}"),
    }
}

fn size_text(declared: u64, got: u64) -> String {
    if got > declared {
        format!("longer than the {declared} bytes that the manifest declares")
    } else {
        format!("unexpected EOF: {got} of {declared} bytes")
    }
}

/// The chain of causes as one line, each cause once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_begin_as_conditions_expect() {
        let missing = ImageError::Status {
            what: "reading manifest v1.0.0 in registry.test/a/b".into(),
            status: 404,
            code: Some("MANIFEST_UNKNOWN".into()),
            message: Some("manifest unknown".into()),
            retry_after: None,
        };
        assert_eq!(
            Error::Source(missing).to_string(),
            "error creating image source: reading manifest v1.0.0 in registry.test/a/b: manifest unknown"
        );
        let cut = Error::ApplyLayer { index: 0, cause: ImageError::UnexpectedEof };
        assert_eq!(cut.to_string(), "error applying image: error applying layer[0]: unexpected EOF");
        assert_eq!(cut.retry(), Retry::Slow);
    }

    #[test]
    fn retry_uses_delay_of_the_registry() {
        let busy = ImageError::Status {
            what: "reading blob".into(),
            status: 429,
            code: None,
            message: None,
            retry_after: Some(Duration::from_secs(7)),
        };
        assert_eq!(Error::Copy(busy).retry(), Retry::After(Duration::from_secs(7)));
        let name = std::io::Error::from(std::io::ErrorKind::InvalidFilename);
        let unusable = Error::Apply(ImageError::Io { path: "x".into(), source: name });
        assert_eq!(unusable.retry(), Retry::Slow);
        let syntax = Error::ReferenceSyntax { reference: "A".into(), why: "no".into() };
        assert_eq!(syntax.retry(), Retry::Terminal);
    }

    #[test]
    fn registry_is_unavailable_without_an_answer() {
        let status = |status| ImageError::Status {
            what: "reading manifest v1".into(),
            status,
            code: None,
            message: None,
            retry_after: None,
        };
        let mirrors = |primary| ImageError::Mirrors {
            mirrors: "[m: not found]".into(),
            reference: "registry.test/a:v1".into(),
            primary: Box::new(primary),
        };
        for (cause, want) in [
            (ImageError::network("reading manifest v1", "connection refused"), true),
            (status(503), true),
            (status(429), true),
            (status(404), false),
            (status(401), false),
            (mirrors(status(500)), true),
            (mirrors(status(404)), false),
            (ImageError::Rejected("no signature is accepted".into()), false),
        ] {
            let error = Error::Source(cause);
            assert_eq!(error.is_unavailable(), want, "{error}");
        }
        let invalid = || ImageError::Config("invalid".into());
        for error in [Error::AuthFile(invalid()), Error::Registries(invalid())] {
            assert!(error.is_unavailable(), "no registry was asked: {error}");
        }
        for error in [Error::Source(invalid()), Error::Policy(invalid()), Error::Cancelled] {
            assert!(!error.is_unavailable(), "{error}");
        }
    }
}
