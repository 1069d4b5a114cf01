//! The frozen Kubernetes shapes (`schemas.json`, made by `examples/kube_schemas.rs` from Kubernetes 1.36) that the typed
//! parts of a bundle and of its configuration are held against.
//!
//! The reference decodes those parts into Go structs, so fields that Kubernetes does not declare vanish and wrong types
//! fail. Server-side apply refuses undeclared fields, so dropping them (loudly) is what keeps real bundles installable.
//! Rule: bundle-rendering §2.7 and §5.2.

mod shape;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

pub use shape::ShapeError;
pub(crate) use shape::{conform, type_name, whole};

/// Component schemas by name, as the OpenAPI documents have them, without descriptions. They take 1 MB from the first call on.
pub(crate) fn components() -> &'static BTreeMap<String, Value> {
    static COMPONENTS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(parsed);
    &COMPONENTS
}

/// The same, for one use.
fn parsed() -> BTreeMap<String, Value> {
    serde_json::from_str(include_str!("schemas.json")).unwrap_or_default()
}

/// The component that a schema refers to: its own `$ref`, or that of its only `allOf` branch.
pub(crate) fn referred(schema: &Value) -> Option<&str> {
    let branch = schema.get("$ref").or_else(|| schema.get("allOf")?.get(0)?.get("$ref"));
    branch.and_then(Value::as_str).and_then(|target| target.rsplit('/').next())
}

pub(crate) mod component {
    pub(crate) const AFFINITY: &str = "io.k8s.api.core.v1.Affinity";
    pub(crate) const ENV: &str = "io.k8s.api.core.v1.EnvVar";
    pub(crate) const ENV_FROM: &str = "io.k8s.api.core.v1.EnvFromSource";
    pub(crate) const RESOURCES: &str = "io.k8s.api.core.v1.ResourceRequirements";
    pub(crate) const TOLERATION: &str = "io.k8s.api.core.v1.Toleration";
    pub(crate) const VOLUME: &str = "io.k8s.api.core.v1.Volume";
    pub(crate) const VOLUME_MOUNT: &str = "io.k8s.api.core.v1.VolumeMount";
    pub(crate) const LABEL_SELECTOR: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";
    pub(crate) const WEBHOOK_RULE: &str = "io.k8s.api.admissionregistration.v1.RuleWithOperations";
    pub(crate) const DEPLOYMENT_SPEC: &str = "io.k8s.api.apps.v1.DeploymentSpec";
    pub(crate) const CRD: &str =
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_shapes_are_complete() {
        assert_eq!(components().len(), 145);
        let mut missing = Vec::new();
        fn walk(schema: &Value, missing: &mut Vec<String>) {
            match schema {
                Value::Object(members) => {
                    if let Some(name) = members.get("$ref").and_then(|_| referred(schema))
                        && !components().contains_key(name)
                    {
                        missing.push(name.to_owned());
                    }
                    members.values().for_each(|one| walk(one, missing));
                }
                Value::Array(items) => items.iter().for_each(|one| walk(one, missing)),
                _ => {}
            }
        }
        components().values().for_each(|schema| walk(schema, &mut missing));
        assert_eq!(missing, Vec::<String>::new(), "every reference is to a committed component");
    }
}
