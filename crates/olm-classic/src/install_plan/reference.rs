//! Manifests of steps: objects as JSON, or references to a ConfigMap that has the objects of a bundle.
//!
//! Rule: classic-apis §5.5.

use olm_api::classic::install_plan::Step;
use olm_core::{Object, go, hex};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::step::StepError;

/// Bytes of all steps of a plan above which their manifests are kept in ConfigMaps: an object of the apiserver has 1.5 MiB at most.
pub const MAX_INLINE: usize = 1 << 20;

/// Longest name of what is unpacked.
const MAX_NAME_LENGTH: usize = 63;

/// Name of the ConfigMap, Role, RoleBinding, ServiceAccount and Job for a bundle, from its image reference.
pub fn unpacked_name(reference: &str) -> String {
    let mut name = hex(&Sha256::digest(reference.as_bytes()));
    name.truncate(MAX_NAME_LENGTH);
    name
}

/// Where the object of a step is, instead of the object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReference {
    /// Always `ConfigMap`.
    pub kind: String,
    pub name: String,
    /// That of the CatalogSource.
    pub namespace: String,
    pub catalog_source_name: String,
    pub catalog_source_namespace: String,
    /// What the solver put in the place of `spec.replaces`.
    pub replaces: String,
    /// Properties of the bundle, as JSON.
    pub properties: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StepManifest {
    Object(Object),
    Reference(StepReference),
}

impl StepManifest {
    /// Reads that of the step at this place of the plan.
    ///
    /// # Errors
    /// When it is neither an object nor a reference.
    pub fn read(index: usize, step: &Step) -> Result<Self, StepError> {
        let failed = |problem: String| StepError::Manifest {
            step: index,
            object: format!("{} {}", step.resource.kind, step.resource.name),
            problem,
        };
        let value: Value =
            serde_json::from_str(&step.resource.manifest).map_err(|error| failed(error.to_string()))?;
        let is_reference = value["kind"] == "ConfigMap" && value.get("catalogSourceName").is_some();
        if is_reference {
            let reference = serde_json::from_value(value).map_err(|error| failed(error.to_string()))?;
            return Ok(Self::Reference(reference));
        }
        let object = Object::from_value(value).map_err(|error| failed(error.to_string()))?;
        Ok(Self::Object(object))
    }

    pub(super) fn write(&self) -> String {
        match self {
            Self::Object(object) => go::json_object(&object.0),
            // all members are texts
            Self::Reference(reference) => {
                serde_json::to_value(reference).map(|value| go::json_string(&value)).unwrap_or_default()
            }
        }
    }
}

/// The object of the step at this place of the plan. If its manifest is a reference, it is found in `unpacked`: the objects that the
/// steps of the same bundle have, see [`super::bundle_objects`].
///
/// # Errors
/// When the manifest cannot be read, or the bundle has no such object.
pub fn step_object(index: usize, step: &Step, unpacked: &[Object]) -> Result<Object, StepError> {
    let reference = match StepManifest::read(index, step)? {
        StepManifest::Object(object) => return Ok(object),
        StepManifest::Reference(reference) => reference,
    };
    let kind = if step.resource.kind == "BundleSecret" { "Secret" } else { &step.resource.kind };
    let found = unpacked.iter().find(|it| it.kind() == kind && it.name() == step.resource.name);
    found.cloned().ok_or_else(|| StepError::Manifest {
        step: index,
        object: format!("{} {}", step.resource.kind, step.resource.name),
        problem: format!("ConfigMap {}/{} has no such object", reference.namespace, reference.name),
    })
}
