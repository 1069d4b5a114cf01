//! The JSON schema (draft-07) of a bundle's configuration, made from its install modes. Rule: bundle-rendering §5.2, §5.3.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::kube::{component, components, referred};
use crate::modes::{InstallMode, InstallModes};
use crate::options::Gates;

/// Format of a `watchNamespace` that must be the install namespace.
pub(crate) const OWN_FORMAT: &str = "ownNamespaceInstallMode";
/// Format of a `watchNamespace` that must not be the install namespace.
pub(crate) const SINGLE_FORMAT: &str = "singleNamespaceInstallMode";
pub(crate) const NAMESPACE_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The schema of `spec.config.inline` for a bundle with these install modes. The two formats
/// `ownNamespaceInstallMode` and `singleNamespaceInstallMode` compare with the install namespace.
pub fn config_schema(modes: &InstallModes, gates: Gates) -> Value {
    let mut schema = without_components(modes, gates);
    if gates.deployment_config {
        schema["components"] = json!({"schemas": closure(&schema)});
    }
    schema
}

/// The schema with references to components that it does not hold.
pub(super) fn without_components(modes: &InstallModes, gates: Gates) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    if let Some(schema) = watch_namespace(modes) {
        properties.insert("watchNamespace".to_owned(), schema);
        if !modes.supports(InstallMode::AllNamespaces) {
            required.push("watchNamespace");
        }
    }
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": false,
    });
    if gates.deployment_config {
        properties.insert("deploymentConfig".to_owned(), deployment_config());
    }
    schema["properties"] = Value::Object(properties);
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn watch_namespace(modes: &InstallModes) -> Option<Value> {
    let own = modes.supports(InstallMode::OwnNamespace);
    let single = modes.supports(InstallMode::SingleNamespace);
    let mut text = json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": NAMESPACE_PATTERN});
    match (own, single) {
        (false, false) => return None,
        (true, false) => text["format"] = OWN_FORMAT.into(),
        (false, true) => text["format"] = SINGLE_FORMAT.into(),
        (true, true) => {}
    }
    let about = "The namespace that the operator watches.";
    Some(if modes.supports(InstallMode::AllNamespaces) {
        json!({"description": about, "anyOf": [{"type": "null"}, text]})
    } else {
        text["description"] = about.into();
        text
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeploymentField {
    /// Its name, which is also the name of what it changes.
    pub name: &'static str,
    pub target: FieldTarget,
    shape: Shape,
}

/// The part of a Deployment that a field of `deploymentConfig` changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldTarget {
    /// Metadata of the Deployment and of its pods.
    Metadata,
    Pod,
    Container,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One of this component of the Kubernetes schema.
    One(&'static str),
    List(&'static str),
    Strings,
}

const fn field(name: &'static str, target: FieldTarget, shape: Shape) -> DeploymentField {
    DeploymentField { name, target, shape }
}

/// All fields of `deploymentConfig`, by name.
pub const DEPLOYMENT_FIELDS: &[DeploymentField] = &[
    field("affinity", FieldTarget::Pod, Shape::One(component::AFFINITY)),
    field("annotations", FieldTarget::Metadata, Shape::Strings),
    field("env", FieldTarget::Container, Shape::List(component::ENV)),
    field("envFrom", FieldTarget::Container, Shape::List(component::ENV_FROM)),
    field("nodeSelector", FieldTarget::Pod, Shape::Strings),
    field("resources", FieldTarget::Container, Shape::One(component::RESOURCES)),
    field("tolerations", FieldTarget::Pod, Shape::List(component::TOLERATION)),
    field("volumeMounts", FieldTarget::Container, Shape::List(component::VOLUME_MOUNT)),
    field("volumes", FieldTarget::Pod, Shape::List(component::VOLUME)),
];

fn deployment_config() -> Value {
    let of = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let schema = |field: &DeploymentField| match field.shape {
        Shape::One(component) => of(component),
        Shape::List(component) => json!({"type": "array", "items": of(component)}),
        Shape::Strings => json!({"type": "object", "additionalProperties": {"type": "string"}}),
    };
    let properties = DEPLOYMENT_FIELDS.iter().map(|field| (field.name.to_owned(), schema(field)));
    json!({
        "description": "Changes to every Deployment of the bundle.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties.collect::<Map<String, Value>>(),
    })
}

/// Every component that a schema needs, by name.
fn closure(schema: &Value) -> Map<String, Value> {
    let mut found = Map::new();
    let mut pending = BTreeSet::new();
    references(schema, &mut pending);
    while let Some(name) = pending.pop_first() {
        if found.contains_key(&name) {
            continue;
        }
        if let Some(component) = components().get(&name) {
            references(component, &mut pending);
            found.insert(name, component.clone());
        }
    }
    found
}

fn references(schema: &Value, pending: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            if members.get("$ref").is_some_and(Value::is_string) {
                pending.extend(referred(schema).map(str::to_owned));
            }
            members.values().for_each(|member| references(member, pending));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, pending)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::InstallMode::{
        AllNamespaces as A, MultiNamespace as M, OwnNamespace as O, SingleNamespace as S,
    };
    use super::*;

    #[test]
    fn deployment_config_needs_78_components() {
        assert_eq!(closure(&deployment_config()).len(), 78);
        let schema = config_schema(&[A].into_iter().collect(), Gates::default());
        assert!(jsonschema::draft7::meta::is_valid(&schema), "it is a draft-07 schema");
    }

    #[test]
    fn watch_namespace_follows_the_install_modes() {
        let text = |format: Option<&str>| {
            let mut schema =
                json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": NAMESPACE_PATTERN});
            if let Some(format) = format {
                schema["format"] = format.into();
            }
            schema
        };
        let off = Gates { deployment_config: false, ..Gates::default() };
        for (modes, want, required) in [
            (vec![A], None, false),
            (vec![A, M], None, false),
            (vec![M], None, false),
            (vec![O], Some(text(Some(OWN_FORMAT))), true),
            (vec![S, M], Some(text(Some(SINGLE_FORMAT))), true),
            (vec![O, S], Some(text(None)), true),
            (vec![A, O], Some(json!({"anyOf": [{"type": "null"}, text(Some(OWN_FORMAT))]})), false),
            (vec![A, S], Some(json!({"anyOf": [{"type": "null"}, text(Some(SINGLE_FORMAT))]})), false),
            (vec![A, O, S, M], Some(json!({"anyOf": [{"type": "null"}, text(None)]})), false),
        ] {
            let schema = config_schema(&modes.iter().copied().collect(), off);
            let mut got = schema["properties"].get("watchNamespace").cloned();
            if let Some(Value::Object(members)) = &mut got {
                members.remove("description");
            }
            assert_eq!(got, want, "{modes:?}");
            assert_eq!(
                schema.get("required"),
                required.then(|| json!(["watchNamespace"])).as_ref(),
                "{modes:?}"
            );
            assert_eq!(schema["properties"].get("deploymentConfig"), None);
        }
    }
}
