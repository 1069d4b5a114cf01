//! The error that stops a pass: text for a condition, and its class.

/// The class of an error; it decides the condition and when the pass is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// May pass by itself (network, apiserver, a catalog that is not served yet): retry with backoff.
    Transient,
    /// Only a change of the extension, the catalogs or the cluster helps: wait for it, with a slow retry.
    NeedsChange,
    /// As `NeedsChange`, and the reference reports it as terminal: `Progressing=False/Blocked`.
    Blocked,
    /// The inline configuration does not fit the bundle: `Progressing=False/InvalidConfiguration`.
    InvalidConfiguration,
}

/// The check that stopped a pass, where an event has a reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// No particular check.
    #[default]
    Other,
    /// A CRD change that could lose data or break stored objects.
    CrdSafety,
    /// Something that the bundle depends on is missing.
    Dependencies,
    /// The signature policy does not accept the bundle's image.
    Signature,
    /// The bundle is not read again, because reading it ended the process.
    Quarantine,
    /// A webhook certificate may not be written.
    Certificate,
}

/// A pass that stopped: the condition text and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassError {
    /// Text for the `Progressing` condition.
    pub message: String,
    pub class: Class,
    /// The check that stopped the pass.
    pub cause: Cause,
}

impl PassError {
    /// An error of this class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { message: message.into(), class, cause: Cause::Other }
    }
}
