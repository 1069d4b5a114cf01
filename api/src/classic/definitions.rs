//! The CustomResourceDefinitions of the kinds here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::json;

use super::{
    CatalogSource, ClusterServiceVersion, GROUP, InstallPlan, OlmConfig, Operator, OperatorCondition,
    OperatorGroup, Subscription, operator_condition, operator_group,
};
use crate::crds::corrected;

/// Kinds whose objects need no specification: the apiserver adds an empty one.
const WITHOUT_SPEC: [&str; 4] = ["OLMConfig", "Operator", "OperatorCondition", "OperatorGroup"];

/// The definitions of all kinds of `operators.coreos.com`, in name order.
///
/// # Errors
/// Only if a corrected schema is no CustomResourceDefinition any more, which a test rules out.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    Ok(vec![
        definition::<CatalogSource>()?,
        definition::<ClusterServiceVersion>()?,
        definition::<InstallPlan>()?,
        definition::<OlmConfig>()?,
        with_old(
            definition::<OperatorCondition>()?,
            definition::<operator_condition::v1::OperatorCondition>()?,
        ),
        with_old(definition::<OperatorGroup>()?, definition::<operator_group::v1alpha2::OperatorGroup>()?),
        definition::<Operator>()?,
        definition::<Subscription>()?,
    ])
}

fn definition<K: CustomResourceExt>() -> Result<CustomResourceDefinition, serde_json::Error> {
    let crd = K::crd();
    let version = crd.spec.versions.first().map(|version| version.name.clone()).unwrap_or_default();
    let without_spec = WITHOUT_SPEC.contains(&crd.spec.names.kind.as_str());
    let mut crd = corrected(serde_json::to_value(crd)?, &format!("{GROUP}/{version}"));
    if without_spec && let Some(root) = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
        root["required"] = json!(["metadata"]);
        root["properties"]["spec"]["default"] = json!({});
    }
    serde_json::from_value(crd)
}

/// The definition of a kind that is also served in an old version.
fn with_old(mut crd: CustomResourceDefinition, old: CustomResourceDefinition) -> CustomResourceDefinition {
    for mut version in old.spec.versions {
        version.storage = false;
        crd.spec.versions.push(version);
    }
    crd
}
