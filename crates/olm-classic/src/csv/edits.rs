//! Deployments that were edited in the cluster: the fields in which they differ from the strategy.
//!
//! Both sides are read as the apiserver stores a specification, with the defaults that it adds, so that edits remain. In the specification
//! every field counts, `spec.replicas` too, whether a person or an autoscaler set it; the annotation of `kubectl rollout restart` does not.
//! Labels and annotations of the Deployment itself count as far as the strategy names them: others may add their own. Status is not
//! compared.
//!
//! Rule: classic-apis §6.5; decision 52.

mod defaults;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use olm_api::k8s_openapi::api::apps::v1::DeploymentSpec;
use olm_core::{Object, member_map};
use olm_rollout::{FieldChange, changes};
use serde_json::{Map, Value, json};

use super::labels::SPEC_HASH;
use super::spec_hash;
use super::strategy::CA_HASH;

/// The annotation of pods by which `kubectl rollout restart` replaces them.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// A Deployment with fields that differ from the strategy.
#[derive(Debug, Clone, PartialEq)]
pub struct EditedDeployment {
    pub name: String,
    /// At least one, in the order of the paths. `old` is the value of the strategy, `new` that of the cluster.
    pub fields: Vec<FieldChange>,
}

impl EditedDeployment {
    /// The paths of the fields, such as `spec.template.spec.containers[manager].image`; those after the first `most` are counted.
    #[must_use]
    pub fn paths(&self, most: usize) -> String {
        let named: Vec<&str> = self.fields.iter().take(most).map(|field| field.path.as_str()).collect();
        match self.fields.len().saturating_sub(named.len()) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}

/// The Deployments of the strategy (`desired`) that were edited in the cluster (`live`), in the order of the strategy.
///
/// One that was made from another specification is not compared: it is applied again.
#[must_use]
pub fn edited(desired: &[Object], live: &[Object]) -> Vec<EditedDeployment> {
    let edited = |desired: &Object| {
        let name = desired.name();
        let live = live.iter().find(|live| live.name() == name && live.kind() == desired.kind())?;
        if live.labels().get(SPEC_HASH) != desired.labels().get(SPEC_HASH) {
            return None;
        }
        let fields = changes(&compared(desired, desired)?, &compared(live, desired)?);
        (!fields.is_empty()).then(|| EditedDeployment { name: name.to_owned(), fields })
    };
    desired.iter().filter_map(edited).collect()
}

/// The hash of the CA of each Deployment that has a serving certificate, by Deployment, as its pods have it: for a reader without access to
/// Secrets.
#[must_use]
pub fn authorities(live: &[Object]) -> BTreeMap<String, String> {
    let hash = |live: &Object| {
        let hash = live.0.get("spec")?.pointer("/template/metadata/annotations")?.get(CA_HASH)?.as_str()?;
        Some((live.name().to_owned(), hash.to_owned()))
    };
    live.iter().filter_map(hash).collect()
}

/// The Deployment to write in the place of an edited one: that of the strategy, with what an edit may add.
#[must_use]
pub fn repaired(desired: &Object, live: &Object) -> Object {
    let mut repaired = desired.clone();
    if let Some(at) = live.0.get("spec").and_then(restarted_at) {
        let template = member_map(member_map(&mut repaired.0, "spec"), "template");
        let annotations = member_map(member_map(template, "metadata"), "annotations");
        annotations.insert(RESTARTED_AT.to_owned(), at.clone());
    }
    repaired
}

fn restarted_at(spec: &Value) -> Option<&Value> {
    spec.get("template")?.get("metadata")?.get("annotations")?.get(RESTARTED_AT)
}

/// The specification with the defaults, without the time of a restart, and without fields that are unknown here: a cache of typed objects
/// does not have them.
fn persisted(deployment: &Object) -> Option<Value> {
    let spec = spec_hash::canonical_deployment(deployment.0.get("spec")?);
    let typed: DeploymentSpec = serde_json::from_value(spec).ok()?;
    let mut spec = serde_json::to_value(typed).ok()?;
    defaults::add(&mut spec);
    if let Some(Value::Object(annotations)) = spec.pointer_mut("/template/metadata/annotations") {
        annotations.remove(RESTARTED_AT);
    }
    Some(spec)
}

/// What counts of a Deployment: the specification, and the labels and annotations that the strategy names.
fn compared(of: &Object, desired: &Object) -> Option<Object> {
    let named = |member: &str| -> Map<String, Value> {
        let members = |object: &Object| object.metadata()?.get(member)?.as_object().cloned();
        let names = members(desired).unwrap_or_default();
        members(of).into_iter().flatten().filter(|(key, _)| names.contains_key(key)).collect()
    };
    let metadata = json!({ "labels": named("labels"), "annotations": named("annotations") });
    let members = [("metadata".to_owned(), metadata), ("spec".to_owned(), persisted(of)?)];
    Some(Object(members.into_iter().collect()))
}
