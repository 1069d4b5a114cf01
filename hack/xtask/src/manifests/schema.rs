//! Objects against the schemas of their kinds: the types of Kubernetes and ours. A field that the type does not know, or of
//! another type, is an error.
//!
//! Kinds of others (cert-manager, Prometheus) have no schema here; they are named one by one, so that a misspelled kind is found.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::admissionregistration::v1 as admission;
use k8s_openapi::api::{apps, core, networking, policy, rbac};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Kinds without a schema here.
const FOREIGN: &[(&str, &str)] = &[
    ("cert-manager.io/v1", "Issuer"),
    ("cert-manager.io/v1", "ClusterIssuer"),
    ("cert-manager.io/v1", "Certificate"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
];

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Fails for an object that does not fit its kind.
pub(super) fn check(object: &Value) -> Result<()> {
    let text = |key: &str| object[key].as_str().with_context(|| format!("no {key}"));
    match (text("apiVersion")?, text("kind")?) {
        ("v1", "Namespace") => fits::<core::v1::Namespace>(object),
        ("v1", "ServiceAccount") => fits::<core::v1::ServiceAccount>(object),
        ("v1", "ConfigMap") => fits::<core::v1::ConfigMap>(object),
        ("v1", "Secret") => fits::<core::v1::Secret>(object),
        ("v1", "Service") => fits::<core::v1::Service>(object),
        ("v1", "PersistentVolumeClaim") => fits::<core::v1::PersistentVolumeClaim>(object),
        ("apps/v1", "Deployment") => fits::<apps::v1::Deployment>(object),
        ("policy/v1", "PodDisruptionBudget") => fits::<policy::v1::PodDisruptionBudget>(object),
        ("networking.k8s.io/v1", "NetworkPolicy") => fits::<networking::v1::NetworkPolicy>(object),
        (RBAC, "ClusterRole") => fits::<rbac::v1::ClusterRole>(object),
        (RBAC, "ClusterRoleBinding") => fits::<rbac::v1::ClusterRoleBinding>(object),
        (RBAC, "Role") => fits::<rbac::v1::Role>(object),
        (RBAC, "RoleBinding") => fits::<rbac::v1::RoleBinding>(object),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => fits::<CustomResourceDefinition>(object),
        (ADMISSION, "ValidatingAdmissionPolicy") => fits::<admission::ValidatingAdmissionPolicy>(object),
        (ADMISSION, "ValidatingAdmissionPolicyBinding") => {
            fits::<admission::ValidatingAdmissionPolicyBinding>(object)
        }
        (ADMISSION, "MutatingAdmissionPolicy") => fits::<admission::MutatingAdmissionPolicy>(object),
        (ADMISSION, "MutatingAdmissionPolicyBinding") => {
            fits::<admission::MutatingAdmissionPolicyBinding>(object)
        }
        (olm_api::API_VERSION, "ClusterCatalog") => fits::<olm_api::ClusterCatalog>(object),
        (olm_api::API_VERSION, "ClusterExtension") => fits::<olm_api::ClusterExtension>(object),
        (version, kind) if FOREIGN.contains(&(version, kind)) => Ok(()),
        (version, kind) => bail!("{kind} of {version} is not known here; name it in xtask"),
    }
}

/// Reads the object as its type, and finds in what is written again all that was given.
fn fits<T: Serialize + DeserializeOwned>(object: &Value) -> Result<()> {
    let typed: T = serde_json::from_value(object.clone())?;
    match dropped_field(object, &serde_json::to_value(&typed)?, "") {
        None => Ok(()),
        Some(place) => bail!("no such field: {place}"),
    }
}

/// A field that was given with something in it and is not there any more.
fn dropped_field(given: &Value, kept: &Value, place: &str) -> Option<String> {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => given.iter().find_map(|(key, value)| {
            let place = format!("{place}/{key}");
            match kept.get(key) {
                Some(kept) => dropped_field(value, kept, &place),
                None => (!empty(value)).then_some(place),
            }
        }),
        (Value::Array(given), Value::Array(kept)) => {
            let pairs = given.iter().zip(kept).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (given, kept))| dropped_field(given, kept, &format!("{place}/{at}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn manifests_schema_names_what_does_not_fit() {
        let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
        check(&service(json!({"ports": [{"port": 1, "targetPort": "x"}]}))).unwrap();
        for (object, message) in [
            (
                service(json!({"ports": [{"port": 1, "tragetPort": 2}]})),
                "no such field: /spec/ports/0/tragetPort",
            ),
            (service(json!({"ports": [{"port": "one"}]})), "invalid type"),
            (json!({"apiVersion": "v1", "kind": "Servise"}), "Servise of v1 is not known here"),
            (json!({"kind": "Service"}), "no apiVersion"),
        ] {
            let error = check(&object).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
