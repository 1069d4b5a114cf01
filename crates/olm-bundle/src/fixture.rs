//! A small bundle for tests, changed by JSON merge patches.

use serde_json::{Value, json};

use crate::registry::{ParseError, RegistryV1};

pub(crate) fn csv() -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "metadata": {"name": "demo.v1.0.0"},
        "spec": {
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "customresourcedefinitions": {"owned": [{"name": "as.example.com"}]},
            "install": {"strategy": "deployment", "spec": {"deployments": [deployment("demo")]}},
        }
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({"name": name, "spec": {"selector": {"matchLabels": {"a": name}},
        "template": {"metadata": {"labels": {"a": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

pub(crate) fn crd(name: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
           "spec": {"group": "example.com", "versions": []}})
}

pub(crate) fn patched(mut target: Value, patch: &Value) -> Value {
    fn merge(target: &mut Value, patch: &Value) {
        let (Value::Object(patch), true) = (patch, target.is_object()) else {
            *target = patch.clone();
            return;
        };
        for (key, value) in patch {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(key);
            } else {
                merge(target.as_object_mut().unwrap().entry(key).or_insert(Value::Null), value);
            }
        }
    }
    merge(&mut target, patch);
    target
}

/// Files of the small bundle with its CSV patched and further manifests.
pub(crate) fn files(csv_patch: &Value, more: &[Value]) -> Vec<(String, Vec<u8>)> {
    let annotations = json!({"annotations": {"operators.operatorframework.io.bundle.package.v1": "demo"}});
    let mut files = vec![
        ("metadata/annotations.yaml".to_owned(), annotations.to_string().into_bytes()),
        ("manifests/csv.yaml".to_owned(), patched(csv(), csv_patch).to_string().into_bytes()),
        ("manifests/crd.yaml".to_owned(), crd("as.example.com").to_string().into_bytes()),
    ];
    for (index, object) in more.iter().enumerate() {
        files.push((format!("manifests/more-{index}.yaml"), object.to_string().into_bytes()));
    }
    files
}

/// The small bundle with its CSV patched and further manifests.
pub(crate) fn bundle(csv_patch: &Value, more: &[Value]) -> Result<RegistryV1, ParseError> {
    RegistryV1::from_files(files(csv_patch, more))
}
