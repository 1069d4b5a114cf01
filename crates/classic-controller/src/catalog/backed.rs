//! The image, address or ConfigMap that a CatalogSource names.
//!
//! Rule: classic-apis §2.1.

use olm_api::classic::CatalogSourceSpec;
use olm_classic::catalog_source::{Backing, validate};

use super::error::CatalogError;

/// What backs a catalog; another one is another entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Backed {
    Image { image: String, secrets: Vec<String> },
    Address(String),
    ConfigMap(String),
}

impl Backed {
    /// `None`: the spec names nothing that can be read.
    pub(super) fn from_spec(spec: &CatalogSourceSpec) -> Option<Self> {
        Some(match validate(spec).ok()? {
            Backing::Image(image) => Self::Image { image: image.to_owned(), secrets: spec.secrets.clone() },
            Backing::Address(address) => Self::Address(address.to_owned()),
            Backing::ConfigMap(name) => Self::ConfigMap(name.to_owned()),
        })
    }

    /// The error message, with what to change.
    pub(super) fn explain(&self, error: &CatalogError) -> String {
        match (error, self) {
            // credentials brought it
            (CatalogError::Rejected(problem), Self::Image { image, .. }) => {
                format!(
                    "{problem}; correct spec.image {image:?} of the CatalogSource, or what the image contains"
                )
            }
            (CatalogError::Source(problem) | CatalogError::Rejected(problem), _) => {
                format!("{problem}; {}", self.fix())
            }
            // names that itself: another field does not help
            (CatalogError::Memory(error), _) => error.to_string(),
        }
    }

    /// What to check in which field when the catalog cannot be read.
    fn fix(&self) -> String {
        match self {
            Self::Image { image, secrets } if secrets.is_empty() => {
                format!(
                    "correct spec.image {image:?} of the CatalogSource, or name a pull secret in spec.secrets"
                )
            }
            Self::Image { image, secrets } => {
                let secrets = secrets.join(", ");
                format!("correct spec.image {image:?} of the CatalogSource, or its pull secrets {secrets}")
            }
            Self::Address(address) => {
                format!(
                    "start the registry at spec.address {address:?} of the CatalogSource, or correct the field"
                )
            }
            Self::ConfigMap(name) => {
                format!(
                    "correct ConfigMap {name}, which spec.configMap of the CatalogSource names, or the field"
                )
            }
        }
    }
}
