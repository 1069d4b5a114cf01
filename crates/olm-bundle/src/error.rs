//! Errors of rendering a bundle.

use crate::config::ConfigError;
use crate::modes::TargetsError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The bundle needs something that is not supported.
    #[error("unsupported bundle: {0}")]
    Unsupported(Unsupported),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The bundle is wrong in itself: every finding, in the order of the validators.
    #[error("{}", .findings.join("\n"))]
    Invalid { findings: Vec<String> },
    /// The install modes do not allow what is to be watched.
    #[error(transparent)]
    Targets(#[from] TargetsError),
    /// A generator cannot make its object.
    #[error("{0}")]
    Generator(String),
    /// Two sources give the same object different content.
    #[error("{object} is made twice with different content: {first} and {second}")]
    Duplicate {
        /// The object, as `<group>/<version>, Kind=<Kind> <namespace>/<name>`.
        object: String,
        first: &'static str,
        second: &'static str,
    },
    #[error("rendering the bundle was cancelled")]
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The CSV owns API services.
    #[error("apiServiceDefintions are not supported")]
    ApiServices,
    /// The CSV has webhooks and no provider issues certificates.
    #[error("webhookDefinitions are not supported")]
    Webhooks,
    /// The gate for other install modes is off.
    #[error("bundle does not support AllNamespaces install mode")]
    NotAllNamespaces,
    /// No install mode is usable.
    #[error("bundle must support at least one of [AllNamespaces SingleNamespace OwnNamespace] install modes")]
    NoInstallMode,
}

impl RenderError {
    /// The condition reason of a failure that only a change of the configuration fixes; `None` for failures that lie in
    /// the bundle, which the reference reports as `Retrying`.
    pub fn terminal_reason(&self) -> Option<&'static str> {
        match self {
            Self::Config(_) => Some("InvalidConfiguration"),
            Self::Unsupported(_)
            | Self::Invalid { .. }
            | Self::Targets(_)
            | Self::Generator(_)
            | Self::Duplicate { .. }
            | Self::Cancelled => None,
        }
    }
}
