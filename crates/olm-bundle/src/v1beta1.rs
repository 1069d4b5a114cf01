//! CustomResourceDefinitions of `apiextensions.k8s.io/v1beta1`, converted to `v1`: clusters no longer serve v1beta1, and
//! the reference emits v1 content under the old name, which nothing accepts (bundle-rendering §16 row 32).
//!
//! Only what has another field in v1 is moved: one version, schema, subresources and columns for all versions, the conversion
//! webhook. Unknown members of custom resources stay kept where v1beta1 kept them.

use olm_core::Object;
use serde_json::{Map, Value, json};

const V1: &str = "apiextensions.k8s.io/v1";
const KEEP_UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";
/// Deepest nesting that is looked at; the apiserver refuses schemas far below this.
const MAX_DEPTH: usize = 256;

/// Converts a v1beta1 definition to v1; returns whether there was anything to do.
pub(crate) fn upgrade(crd: &mut Object) -> bool {
    if crd.api_version() != "apiextensions.k8s.io/v1beta1" {
        return false;
    }
    crd.0.insert("apiVersion".to_owned(), V1.into());
    let Some(Value::Object(spec)) = crd.0.get_mut("spec") else { return true };
    let common_schema = spec.remove("validation").filter(|schema| !schema.is_null());
    let common_subresources = spec.remove("subresources").filter(|value| !value.is_null());
    let common_columns = spec.remove("additionalPrinterColumns").filter(|value| !value.is_null());
    // v1beta1 keeps unknown members by default, v1 has a field for it in the schema
    let keep_unknown = !matches!(spec.remove("preserveUnknownFields"), Some(Value::Bool(false)));
    let only_version = spec.remove("version");
    if spec.get("versions").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let name = only_version.unwrap_or_else(|| "v1".into());
        spec.insert("versions".to_owned(), json!([{"name": name, "served": true, "storage": true}]));
    }
    if let Some(Value::Array(versions)) = spec.get_mut("versions") {
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            inherit(version, "schema", common_schema.as_ref());
            inherit(version, "subresources", common_subresources.as_ref());
            inherit(version, "additionalPrinterColumns", common_columns.as_ref());
            rename_columns(version);
            root_schema(version, keep_unknown);
        }
    }
    upgrade_conversion(spec);
    true
}

fn inherit(version: &mut Map<String, Value>, member: &str, common: Option<&Value>) {
    if let Some(common) = common
        && version.get(member).is_none_or(Value::is_null)
    {
        version.insert(member.to_owned(), common.clone());
    }
}

fn rename_columns(version: &mut Map<String, Value>) {
    let Some(Value::Array(columns)) = version.get_mut("additionalPrinterColumns") else { return };
    for column in columns.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove("JSONPath") {
            column.insert("jsonPath".to_owned(), path);
        }
    }
}

/// v1 demands a schema whose root has a type.
fn root_schema(version: &mut Map<String, Value>, keep_unknown: bool) {
    let schema = version.entry("schema").or_insert(Value::Null);
    if !schema.is_object() {
        *schema = json!({});
    }
    let Some(members) = schema.as_object_mut() else { return };
    let root = members.entry("openAPIV3Schema").or_insert(Value::Null);
    if !root.is_object() {
        *root = json!({});
    }
    let Some(root) = root.as_object_mut() else { return };
    root.entry("type").or_insert_with(|| "object".into());
    if keep_unknown {
        root.insert(KEEP_UNKNOWN.to_owned(), true.into());
        keep_below(root, 0);
    }
}

/// Lets each object below the node keep unknown members: v1 prunes again wherever a schema has an object. Metadata is never pruned, and its
/// schema must have no such field.
fn keep_below(node: &mut Map<String, Value>, depth: usize) {
    let is_resource =
        depth == 0 || node.get("x-kubernetes-embedded-resource").and_then(Value::as_bool) == Some(true);
    for (keyword, value) in node.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let pruned = properties.iter_mut().filter(|(name, _)| !is_resource || *name != "metadata");
                pruned.for_each(|(_, child)| keep(child, depth + 1));
            }
            ("items" | "additionalProperties", child) => keep(child, depth + 1),
            _ => {}
        }
    }
}

fn keep(schema: &mut Value, depth: usize) {
    let Some(node) = schema.as_object_mut().filter(|_| depth < MAX_DEPTH) else { return };
    let is_object =
        node.get("type").and_then(Value::as_str) == Some("object") || node.contains_key("properties");
    // what has a schema for each member has no unknown one
    if is_object && !node.contains_key("additionalProperties") {
        node.insert(KEEP_UNKNOWN.to_owned(), true.into());
    }
    keep_below(node, depth);
}

fn upgrade_conversion(spec: &mut Map<String, Value>) {
    let Some(Value::Object(conversion)) = spec.get_mut("conversion") else { return };
    let client = conversion.remove("webhookClientConfig").filter(|value| !value.is_null());
    let versions = conversion.remove("conversionReviewVersions").filter(|value| !value.is_null());
    if let Some(client) = client {
        // v1beta1 assumes its own version of the review where none is named
        let versions = versions.unwrap_or_else(|| json!(["v1beta1"]));
        conversion.insert(
            "webhook".to_owned(),
            json!({"clientConfig": client, "conversionReviewVersions": versions}),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgraded(spec: Value) -> Value {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "spec": spec});
        let mut crd = Object::from_value(crd).unwrap();
        assert!(upgrade(&mut crd));
        assert_eq!(crd.api_version(), V1);
        crd.0.remove("spec").unwrap()
    }

    #[test]
    fn v1beta1_without_schema_keeps_unknown_members() {
        assert_eq!(
            upgraded(json!({"group": "g", "version": "v1", "subresources": {"status": {}}})),
            json!({"group": "g", "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }]})
        );
    }

    #[test]
    fn v1beta1_keeps_unknown_members_of_nested_objects() {
        let schema = |keep: bool| {
            let object = |mut more: Value| {
                more["type"] = "object".into();
                if keep {
                    more[KEEP_UNKNOWN] = true.into();
                }
                more
            };
            let template = json!({"metadata": {"type": "object"}, "spec": object(json!({}))});
            let template = object(json!({"x-kubernetes-embedded-resource": true, "properties": template}));
            let items = object(json!({"properties": {"metadata": object(json!({}))}}));
            let spec = json!({
                "text": {"type": "string"}, "template": template, "list": {"type": "array", "items": items},
                "map": {"type": "object", "additionalProperties": object(json!({"properties": {"a": {"type": "string"}}}))},
            });
            let properties =
                json!({"metadata": {"type": "object"}, "spec": object(json!({"properties": spec}))});
            json!({"openAPIV3Schema": object(json!({"properties": properties}))})
        };
        for keep in [true, false] {
            let crd = upgraded(
                json!({"group": "g", "version": "v1", "preserveUnknownFields": keep, "validation": schema(false)}),
            );
            assert_eq!(crd["versions"][0]["schema"], schema(keep), "{keep}");
        }
    }

    #[test]
    fn common_members_go_to_every_version_that_has_none() {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}});
        let own = json!({"openAPIV3Schema": {"type": "object"}});
        assert_eq!(
            upgraded(json!({
                "preserveUnknownFields": false, "version": "v2", "validation": schema,
                "additionalPrinterColumns": [{"name": "A", "type": "string", "JSONPath": ".a"}],
                "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "https://x"}},
                "versions": [{"name": "v2", "served": true, "storage": true}, {"name": "v1", "schema": own}],
            })),
            json!({
                "conversion": {"strategy": "Webhook", "webhook": {
                    "clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1beta1"]}},
                "versions": [
                    {"name": "v2", "served": true, "storage": true, "schema": schema,
                     "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a"}]},
                    {"name": "v1", "schema": own,
                     "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a"}]},
                ],
            })
        );
    }

    #[test]
    fn v1beta1_leaves_v1_alone() {
        let mut crd = Object::from_value(json!({"apiVersion": V1, "spec": {"version": "v1"}})).unwrap();
        let before = crd.clone();
        assert!(!upgrade(&mut crd));
        assert_eq!(crd, before);
    }
}
