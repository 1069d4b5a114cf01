//! What can go wrong between an image reference and its files, and who can mend it.
//!
//! [`Error`] names the step (its text begins as catalogd §4.6 writes it), [`Fault`] names the fact. The literal prefix
//! `terminal error: ` of the conditions is not written here: callers put it where [`Error::retry`] says
//! [`Retry::Terminal`] and their own rule asks for it.

use std::path::PathBuf;
use std::time::Duration;

use olm_signature::PolicyError;

/// When is another attempt worth making?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Never for the same input: only a changed reference helps.
    Terminal,
    /// The content or the configuration is wrong: somebody has to mend it. Wait for a change, look again seldom
    /// (minutes, not seconds).
    Slow,
    /// Network, registry or disk trouble: try again with growing pauses.
    Backoff,
    /// The registry named the pause itself (`Retry-After`).
    After(Duration),
}

/// A failed step on the way from a reference to unpacked content.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not an image reference.
    #[error("error parsing image reference {reference:?}: {why}")]
    ReferenceSyntax {
        /// The text as given.
        reference: String,
        /// What is wrong with it.
        why: String,
    },
    /// The reference parses, but names no content, or names it twice.
    #[error("error creating reference: {why}")]
    ReferenceForm {
        /// What is missing or too much.
        why: String,
    },
    /// The credentials file is there but cannot be used.
    #[error("could not stat auth file, error: {0}")]
    AuthFile(Fault),
    /// The signature policy, or a key or certificate that it names, cannot be read.
    #[error("error loading policy context: {0}")]
    Policy(Fault),
    /// The registry could not be asked: configuration, network, credentials, unknown name.
    #[error("error creating image source: {0}")]
    Source(Fault),
    /// The manifest is unusable.
    #[error("error getting manifest: {0}")]
    Manifest(Fault),
    /// Bytes of the image could not be brought here, or are not the right ones.
    #[error("error copying image: {0}")]
    Copy(Fault),
    /// The layer's media type or compression is not understood.
    #[error("error applying image: error reading layer[{index}]: {fault}")]
    ReadLayer {
        /// Position in the manifest, from 0 (the lowest layer).
        index: usize,
        /// What is wrong.
        fault: Fault,
    },
    /// The layer's content is broken or hostile.
    #[error("error applying image: error applying layer[{index}]: {fault}")]
    ApplyLayer {
        /// Position in the manifest, from 0 (the lowest layer).
        index: usize,
        /// What is wrong.
        fault: Fault,
    },
    /// The finished tree does not make sense (links that lead nowhere).
    #[error("error applying image: {0}")]
    Apply(Fault),
    /// The store on disk failed.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// The pull was given up by its caller.
    #[error("pull was cancelled")]
    Cancelled,
}

impl Error {
    /// Is another attempt worth making, and when?
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::ReferenceSyntax { .. } | Self::ReferenceForm { .. } => Retry::Terminal,
            Self::AuthFile(fault)
            | Self::Policy(fault)
            | Self::Source(fault)
            | Self::Manifest(fault)
            | Self::Copy(fault)
            | Self::ReadLayer { fault, .. }
            | Self::ApplyLayer { fault, .. }
            | Self::Apply(fault) => fault.retry(),
            Self::Store(_) | Self::Cancelled => Retry::Backoff,
        }
    }

    /// Whether the signature policy does not accept the image.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        matches!(self.fault(), Some(Fault::Rejected(_)))
    }

    /// The fact behind the step, where there is one.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::AuthFile(fault)
            | Self::Policy(fault)
            | Self::Source(fault)
            | Self::Manifest(fault)
            | Self::Copy(fault)
            | Self::ReadLayer { fault, .. }
            | Self::ApplyLayer { fault, .. }
            | Self::Apply(fault) => Some(fault),
            Self::ReferenceSyntax { .. } | Self::ReferenceForm { .. } | Self::Store(_) | Self::Cancelled => {
                None
            }
        }
    }
}

/// One fact, without the step in which it was met.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The registry answered with an error status.
    #[error("{what}: {}", status_text(*.status, .code.as_deref(), .message.as_deref()))]
    Status {
        /// What was asked for, e.g. `reading manifest v1 in quay.io/a/b`.
        what: String,
        /// HTTP status.
        status: u16,
        /// The registry's own error code, e.g. `MANIFEST_UNKNOWN`.
        code: Option<String>,
        /// The registry's own message, shortened and stripped of control characters.
        message: Option<String>,
        /// The pause that the registry asked for.
        retry_after: Option<Duration>,
    },
    /// The registry could not be reached or stopped talking.
    #[error("{what}: {why}")]
    Network {
        /// What was asked for.
        what: String,
        /// The chain of causes.
        why: String,
    },
    /// The registry sends nothing, or next to nothing.
    #[error("{what}: stalled: {got} bytes in {} s", .waited.as_secs())]
    Stalled {
        /// What was asked for.
        what: String,
        /// Bytes received while waiting.
        got: u64,
        /// Time spent waiting for the registry.
        waited: Duration,
    },
    /// The bytes are not the ones that the digest names.
    #[error("{what}: digest mismatch: want {want}, got {got}")]
    Digest {
        /// What was read.
        what: String,
        /// The digest asked for.
        want: String,
        /// The digest of what came.
        got: String,
    },
    /// More or fewer bytes than declared.
    #[error("{what}: {}", size_text(*.declared, *.got))]
    Size {
        /// What was read.
        what: String,
        /// Bytes that the manifest declares.
        declared: u64,
        /// Bytes that came; when too many, the count at which reading stopped.
        got: u64,
    },
    /// A limit of ours.
    #[error("{what} exceeds the limit of {limit} {unit}")]
    Limit {
        /// What is too large.
        what: String,
        /// The limit.
        limit: u64,
        /// Its unit, e.g. `bytes` or `entries`.
        unit: &'static str,
    },
    /// The stream ends in the middle.
    #[error("unexpected EOF")]
    UnexpectedEof,
    /// Well-formed, but not something this client takes: a sentence.
    #[error("{0}")]
    Unsupported(String),
    /// Malformed or hostile content: a sentence.
    #[error("{0}")]
    Content(String),
    /// Local configuration (registries.conf, policy, certificates, credentials) refuses or is broken: a sentence.
    #[error("{0}")]
    Config(String),
    /// The signature policy does not accept the image: a sentence.
    #[error("{0}")]
    Rejected(String),
    /// A file of the local configuration cannot be read, or content cannot be written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Every mirror and the primary failed; the last one decides when to try again.
    #[error("(Mirrors also failed: {mirrors}): {reference}: {primary}")]
    Mirrors {
        /// `[reference: error]` of each mirror.
        mirrors: String,
        /// The reference at the primary location.
        reference: String,
        /// The error of the primary location.
        primary: Box<Fault>,
    },
}

impl Fault {
    /// Is another attempt worth making, and when?
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
            // a name that no disk takes is the image's fault
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::InvalidFilename => Retry::Slow,
            Self::Io { .. } => Retry::Backoff,
            Self::Mirrors { primary, .. } => primary.retry(),
        }
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

impl From<PolicyError> for Fault {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Invalid { .. } => Self::Config(error.to_string()),
            PolicyError::Limit { path, limit } => {
                Self::Limit { what: path.display().to_string(), limit, unit: "bytes" }
            }
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
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_begin_as_the_conditions_expect() {
        let missing = Fault::Status {
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
        let cut = Error::ApplyLayer { index: 0, fault: Fault::UnexpectedEof };
        assert_eq!(cut.to_string(), "error applying image: error applying layer[0]: unexpected EOF");
        assert_eq!(cut.retry(), Retry::Slow);
    }

    #[test]
    fn the_registry_may_name_the_pause() {
        let busy = Fault::Status {
            what: "reading blob".into(),
            status: 429,
            code: None,
            message: None,
            retry_after: Some(Duration::from_secs(7)),
        };
        assert_eq!(Error::Copy(busy).retry(), Retry::After(Duration::from_secs(7)));
        let name = std::io::Error::from(std::io::ErrorKind::InvalidFilename);
        let unusable = Error::Apply(Fault::Io { path: "x".into(), source: name });
        assert_eq!(unusable.retry(), Retry::Slow);
        let syntax = Error::ReferenceSyntax { reference: "A".into(), why: "no".into() };
        assert_eq!(syntax.retry(), Retry::Terminal);
    }
}
