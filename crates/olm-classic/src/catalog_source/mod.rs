//! Catalog sources: validation, image template, poll times, health and status.
//!
//! [`validate`] reads the spec into a [`Backing`], [`sync`] derives the status from what is served, [`Polling`] has the poll times,
//! [`template`] the conditions of an image template. Rule: classic-apis §2.

mod connection;
mod poll;
mod status;
mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use olm_api::classic::{CatalogSource, CatalogSourceSpec};
use olm_solver::Catalog;

pub use connection::{CONNECT_TIMEOUT, ConnectionState, SNAPSHOT_LIFETIME};
pub use poll::{FALLBACK_INTERVAL, IntervalError, Poll, Polling};
pub use status::{REGISTRY_PORT, SourceObserved, catalog_wait, is_healthy, service_name, sync};
pub use template::{TEMPLATE_ANNOTATION, TemplateDecision, template};

/// What backs a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing<'a> {
    /// It wins over an address.
    Image(&'a str),
    /// `host:port`
    Address(&'a str),
    ConfigMap(&'a str),
}

/// Why a spec cannot be used, in the words of reason SpecInvalidError.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("configmap name unset: must be set for sourcetype: {0}")]
    ConfigMapUnset(String),
    #[error("image and address unset: at least one must be set for sourcetype: grpc")]
    ImageAndAddressUnset,
    #[error("unknown sourcetype: {0}")]
    UnknownType(String),
}

impl SpecError {
    /// What to change in which field.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::ConfigMapUnset(_) => "set spec.configMap to the name of a ConfigMap of the namespace",
            Self::ImageAndAddressUnset => "set spec.image to the image of a catalog",
            Self::UnknownType(_) => "set spec.sourceType to grpc or configmap",
        }
    }
}

/// Reads what backs a catalog.
///
/// # Errors
/// When the spec names nothing that could.
pub fn validate(spec: &CatalogSourceSpec) -> Result<Backing<'_>, SpecError> {
    match spec.source_type.as_str() {
        "configmap" | "internal" if spec.config_map.is_empty() => {
            Err(SpecError::ConfigMapUnset(spec.source_type.clone()))
        }
        "configmap" | "internal" => Ok(Backing::ConfigMap(&spec.config_map)),
        "grpc" if !spec.image.is_empty() => Ok(Backing::Image(&spec.image)),
        "grpc" if !spec.address.is_empty() => Ok(Backing::Address(&spec.address)),
        "grpc" => Err(SpecError::ImageAndAddressUnset),
        other => Err(SpecError::UnknownType(other.to_owned())),
    }
}

/// The catalog as the solver has it, with its priority.
pub(crate) fn solver_source(
    source: &CatalogSource,
    content: Result<Arc<Catalog>, String>,
) -> olm_solver::CatalogSource {
    olm_solver::CatalogSource {
        name: source.metadata.name.clone().unwrap_or_default(),
        namespace: source.metadata.namespace.clone().unwrap_or_default(),
        priority: source.spec.priority.unwrap_or(0),
        content,
    }
}
