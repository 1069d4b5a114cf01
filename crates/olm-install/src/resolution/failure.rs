//! Why a pass stopped: text for a condition, and what kind of failure it is.

/// What kind of failure stopped a pass; it decides the condition and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// May pass by itself (network, apiserver, a catalog that is not served yet): retry with backoff.
    Transient,
    /// Only a change of the extension, the catalogs or the cluster helps: wait for it, with a slow retry.
    NeedsChange,
    /// As `NeedsChange`, and the reference calls it terminal: `Progressing=False/Blocked`.
    Blocked,
    /// The inline configuration does not fit the bundle: `Progressing=False/InvalidConfiguration`.
    InvalidConfiguration,
}

/// What a pass stopped at, where users look for it by name (events).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// The class says enough.
    #[default]
    Other,
    /// A CRD change that could lose data or break stored objects.
    CrdSafety,
    /// Something that the bundle depends on is missing.
    Dependencies,
    /// The signature policy does not accept the bundle's image.
    Signature,
}

/// A pass that stopped: the condition text and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Text for the `Progressing` condition.
    pub message: String,
    /// What follows from it.
    pub class: Class,
    /// What it stopped at.
    pub cause: Cause,
}

impl Failure {
    /// A failure of this class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { message: message.into(), class, cause: Cause::Other }
    }
}
