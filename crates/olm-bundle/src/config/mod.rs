//! Bundle configuration (`spec.config.inline`): its JSON schema, its validation, and the typed result. Rule:
//! bundle-rendering §5.
//!
//! The schema accepts what the reference accepts; messages begin with the reference's text and add, after `; `, what that
//! text leaves out. What the configuration does to a Deployment is the business of `render`.

mod failure;
mod schema;
mod validate;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::csv::undeclared;
use crate::kube::{ShapeError, component, conform};
use crate::modes::InstallModes;
use crate::options::Gates;

pub use failure::ConfigError;
pub use schema::{DEPLOYMENT_FIELDS, DeploymentField, FieldTarget, config_schema};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The one namespace to watch; `None` means the default of the install modes.
    pub watch_namespace: Option<String>,
    pub deployment: DeploymentConfig,
    /// What was given and is ignored.
    pub warnings: Vec<String>,
}

/// `deploymentConfig`: changes to every Deployment of the bundle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeploymentConfig {
    pub env: Vec<Value>,
    pub env_from: Vec<Value>,
    pub volumes: Vec<Value>,
    pub volume_mounts: Vec<Value>,
    pub tolerations: Vec<Value>,
    /// Resources of every container; `None` keeps the bundle's, an empty object erases them.
    pub resources: Option<Value>,
    /// Node selector of every pod; `None` keeps the bundle's, an empty map erases it.
    pub node_selector: Option<Map<String, Value>>,
    /// Affinity of every pod; `None` keeps the bundle's.
    pub affinity: Option<Map<String, Value>>,
    /// Annotations of Deployments and pods, added where the key is absent.
    pub annotations: BTreeMap<String, String>,
}

/// Validates a configuration against what a bundle with these install modes accepts. No configuration is `{}`; an empty
/// install namespace fits every rule about it.
///
/// # Errors
/// When the schema refuses it, or a value (a quantity) cannot be decoded.
pub fn read_config(
    inline: Option<&Value>,
    modes: &InstallModes,
    install_namespace: &str,
    gates: Gates,
) -> Result<Config, ConfigError> {
    let schema = schema::without_components(modes, gates);
    let empty = Value::Object(Map::new());
    let given = inline.unwrap_or(&empty);
    validate::validate(&schema, given, install_namespace)
        .map_err(|failure| ConfigError::invalid(&failure, modes, gates))?;
    let mut config = Config {
        watch_namespace: given.get("watchNamespace").and_then(Value::as_str).map(str::to_owned),
        ..Config::default()
    };
    if let Some(Value::Object(deployment)) = given.get("deploymentConfig") {
        config.deployment =
            deployment_config(deployment, &mut config.warnings).map_err(ConfigError::DeploymentConfig)?;
    }
    Ok(config)
}

fn deployment_config(
    given: &Map<String, Value>,
    warnings: &mut Vec<String>,
) -> Result<DeploymentConfig, ShapeError> {
    let mut conformed = |member: &str, shape: &str| -> Result<Option<Value>, ShapeError> {
        let Some(mut value) = given.get(member).filter(|value| !value.is_null()).cloned() else {
            return Ok(None);
        };
        let path = format!("deploymentConfig.{member}");
        let mut keep = |value: &mut Value, path: &str| -> Result<(), ShapeError> {
            let dropped = conform(value, shape, path)?.dropped;
            warnings.extend(dropped.iter().map(|path| undeclared(path)));
            Ok(())
        };
        match &mut value {
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    keep(item, &format!("{path}[{index}]"))?;
                }
            }
            other => keep(other, &path)?,
        }
        Ok(Some(value))
    };
    let list = |value: Option<Value>| match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let object = |value: Option<Value>| match value {
        Some(Value::Object(members)) => Some(members),
        _ => None,
    };
    Ok(DeploymentConfig {
        env: list(conformed("env", component::ENV)?),
        env_from: list(conformed("envFrom", component::ENV_FROM)?),
        volumes: list(conformed("volumes", component::VOLUME)?),
        volume_mounts: list(conformed("volumeMounts", component::VOLUME_MOUNT)?),
        tolerations: list(conformed("tolerations", component::TOLERATION)?),
        resources: conformed("resources", component::RESOURCES)?,
        affinity: object(conformed("affinity", component::AFFINITY)?),
        node_selector: object(given.get("nodeSelector").cloned()),
        annotations: object(given.get("annotations").cloned())
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| value.as_str().map(|value| (key, value.to_owned())))
            .collect(),
    })
}

#[cfg(test)]
mod tests;
