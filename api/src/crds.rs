//! The CustomResourceDefinitions, as they are shipped.
//!
//! What the derive macros emit differs from the reference in ways that clients can see, so the result is corrected here: no
//! `nullable` (the apiserver then refuses `null` where a value belongs), no root `title`, and the
//! generator annotation (on the CRD alone, not on every object made by `T::new`).
//!
//! Rule: operator-controller §1, catalogd §3; decision 2 (`spec` is required, the experimental superset is the only set).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{ClusterCatalog, ClusterExtension, ClusterObjectSet, annotations};

/// All CRDs, in name order.
///
/// # Errors
/// Only if the corrected schema is no CustomResourceDefinition any more, which a test rules out.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    [ClusterCatalog::crd(), ClusterExtension::crd(), ClusterObjectSet::crd()]
        .into_iter()
        .map(|crd| {
            let mut crd = corrected(serde_json::to_value(crd)?, crate::API_VERSION);
            crd["metadata"]["annotations"] = json!({ annotations::GENERATOR: "experimental" });
            serde_json::from_value(crd)
        })
        .collect()
}

/// What the derive macros emit for a kind of this API version, corrected.
pub(crate) fn corrected(mut crd: Value, api_version: &str) -> Value {
    let Some(versions) = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut) else {
        return crd;
    };
    for version in versions {
        let Some(root) = version.pointer_mut("/schema/openAPIV3Schema") else { continue };
        correct_schema(root);
        if let Some(root) = root.as_object_mut() {
            root.remove("title");
            root.insert("required".to_owned(), json!(["metadata", "spec"]));
        }
        // the apiserver knows these three; their types make `kubectl explain` complete
        root["properties"]["apiVersion"] = json!({
            "type": "string",
            "description": about_api_version(api_version)
        });
        root["properties"]["kind"] = json!({ "type": "string", "description": "The kind of this object." });
        root["properties"]["metadata"] = json!({ "type": "object" });
    }
    crd
}

/// The description of `apiVersion`.
pub(crate) fn about_api_version(api_version: &str) -> String {
    format!("The API group and version of this object: {api_version}.")
}

fn correct_schema(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // a property may be called `nullable`; then its value is a schema, not a flag
            if members.get("nullable").is_some_and(Value::is_boolean) {
                members.remove("nullable");
            }
            members.values_mut().for_each(correct_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(correct_schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schemas() -> Vec<(String, Value)> {
        crds()
            .unwrap()
            .into_iter()
            .map(|crd| {
                let mut crd = serde_json::to_value(crd).unwrap();
                let name = crd["spec"]["names"]["kind"].as_str().unwrap().to_owned();
                (name, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take())
            })
            .collect()
    }

    fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{name}"), property, visit);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                walk(&format!("{path}[]"), &schema[inner], visit);
            }
        }
    }

    /// rule: operator-controller §1, §1.1, §1.2
    #[test]
    fn crds_have_names_and_versions_of_the_reference() {
        let mut found = Vec::new();
        for crd in crds().unwrap() {
            let crd = serde_json::to_value(crd).unwrap();
            let spec = &crd["spec"];
            let names = &spec["names"];
            assert_eq!(spec["group"], "olm.operatorframework.io");
            assert_eq!(spec["scope"], "Cluster");
            assert_eq!(names["categories"], json!(["olm"]));
            let short = match names["kind"].as_str().unwrap() {
                "ClusterCatalog" => "cc",
                "ClusterExtension" => "ce",
                _ => "cos",
            };
            assert_eq!(names["shortNames"], json!([short]));
            assert!(spec.get("conversion").is_none());
            let [version] = spec["versions"].as_array().unwrap().as_slice() else { panic!("one version") };
            assert_eq!(version["name"], "v1");
            assert_eq!((&version["served"], &version["storage"]), (&json!(true), &json!(true)));
            assert_eq!(version["subresources"], json!({"status": {}}));
            assert_eq!(crd["metadata"]["annotations"]["olm.operatorframework.io/generator"], "experimental");
            found.push(
                [&names["kind"], &names["plural"], &names["singular"]]
                    .map(|name| name.as_str().unwrap().to_owned()),
            );
        }
        let kinds = ["ClusterCatalog", "ClusterExtension", "ClusterObjectSet"];
        assert_eq!(
            found,
            kinds.map(|kind| [kind.to_owned(), format!("{}s", kind.to_lowercase()), kind.to_lowercase()])
        );
    }

    #[test]
    fn crds_describe_every_field() {
        for (kind, schema) in schemas() {
            let mut silent = Vec::new();
            walk(&kind, &schema, &mut |path, schema| {
                // the apiserver explains metadata itself; items are explained by their list
                if !path.ends_with("[]")
                    && path != format!("{kind}.metadata")
                    && schema["description"].as_str().is_none_or(str::is_empty)
                {
                    silent.push(path.to_owned());
                }
            });
            assert_eq!(silent, Vec::<String>::new());
        }
    }

    #[test]
    fn crds_have_nothing_nullable_and_require_a_spec() {
        for (kind, schema) in schemas() {
            walk(&kind, &schema, &mut |path, schema| assert!(schema.get("nullable").is_none(), "{path}"));
            assert_eq!(schema["required"], json!(["metadata", "spec"]), "{kind}");
            assert!(schema.get("title").is_none(), "{kind}");
        }
    }

    #[test]
    fn crds_have_all_rules() {
        let mut counts = Vec::new();
        for (kind, schema) in schemas() {
            let mut rules = 0;
            walk(&kind, &schema, &mut |_, schema| {
                let here = schema["x-kubernetes-validations"].as_array().map_or(0, Vec::len);
                rules += here;
            });
            counts.push((kind, rules));
        }
        let want = [("ClusterCatalog", 19), ("ClusterExtension", 15), ("ClusterObjectSet", 17)];
        assert_eq!(counts, want.map(|(kind, rules)| (kind.to_owned(), rules)));
    }
}
