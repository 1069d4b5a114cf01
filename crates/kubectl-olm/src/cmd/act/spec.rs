//! Flags of `install` and `upgrade` that set fields of a ClusterExtension, as a JSON merge patch.

use std::path::Path;

use clap::{Args, ValueEnum};
use olm_api::labels;
use serde_json::{Map, Value, json};

use super::key_value;
use crate::cmd::bundle::document;
use crate::cmd::why::Policy;
use crate::failure::CommandError;

#[derive(Debug, Default, Args)]
pub(crate) struct SpecFlags {
    /// Versions to stay within, such as '>=1.0.0 <2.0.0'
    #[arg(long, value_name = "RANGE")]
    pub(crate) version: Option<String>,
    /// Only bundles and edges of this channel; may be repeated, replaces earlier ones
    #[arg(long)]
    pub(crate) channel: Vec<String>,
    /// Only bundles of this ClusterCatalog
    #[arg(long, value_name = "NAME")]
    pub(crate) catalog: Option<String>,
    /// Whether the catalog's upgrade edges bind
    #[arg(long, value_enum, alias = "upgrade-constraint-policy")]
    pub(crate) policy: Option<Policy>,
    /// Write the objects as this service account of the namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) service_account: Option<String>,
    /// Configuration of the bundle: a JSON object, or @FILE with JSON or YAML; replaces an earlier one
    #[arg(long, value_name = "JSON|@FILE")]
    config: Option<String>,
    /// One field of the configuration, such as watchNamespace=team-a; may be repeated, dots separate nested fields
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// What a dangerous change of a CRD leads to
    #[arg(long, value_enum, value_name = "MODE")]
    crd_upgrade_safety: Option<CrdUpgradeSafety>,
}

/// `spec.install.preflight.crdUpgradeSafety.enforcement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CrdUpgradeSafety {
    /// It is rejected
    #[value(name = "Strict")]
    Strict,
    /// It is reported and made
    #[value(name = "Warn")]
    Warn,
    /// It is made
    #[value(name = "None")]
    None,
}

/// A merge patch of the spec, and its fields in words.
#[derive(Debug, Default)]
pub(crate) struct SpecPatch {
    pub(crate) spec: Value,
    pub(crate) changes: Vec<String>,
}

impl SpecPatch {
    /// Sets the value at a path below `spec`; null removes it.
    pub(crate) fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        let mut at = &mut self.spec;
        for step in path {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at = &mut at[*step];
        }
        *at = value.into();
    }

    pub(crate) fn record(&mut self, change: impl Into<String>) {
        self.changes.push(change.into());
    }

    /// Removes the labels that the selector of the `present` spec has beside that of a new catalog: a merge would keep them.
    pub(crate) fn replace_labels(&mut self, present: &Value) {
        const LABELS: &str = "/source/catalog/selector/matchLabels";
        let Some(patched) = self.spec.pointer_mut(LABELS).and_then(Value::as_object_mut) else { return };
        for key in present.pointer(LABELS).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            patched.entry(key.clone()).or_insert(Value::Null);
        }
    }
}

impl SpecFlags {
    /// The fields that the flags set. `config` is the present configuration.
    pub(crate) fn patch(&self, config: Option<&Map<String, Value>>) -> Result<SpecPatch, CommandError> {
        let mut patch = SpecPatch { spec: json!({}), ..SpecPatch::default() };
        let catalog = |field: &'static str| ["source", "catalog", field];
        if let Some(version) = &self.version {
            olm_resolver::parse_range(version)
                .map_err(|error| CommandError::Usage(error.condition_message()))?;
            patch.set(&catalog("version"), version.clone());
            patch.record(format!("version range set to {version}"));
        }
        if !self.channel.is_empty() {
            patch.set(&catalog("channels"), self.channel.clone());
            patch.record(format!("channels set to {}", self.channel.join(", ")));
        }
        if let Some(name) = &self.catalog {
            patch.set(
                &catalog("selector"),
                json!({"matchLabels": {labels::METADATA_NAME: name}, "matchExpressions": null}),
            );
            patch.record(format!("catalog set to {name}"));
        }
        if let Some(policy) = self.policy {
            patch.set(&catalog("upgradeConstraintPolicy"), policy.as_str());
            patch.record(format!("policy set to {}", policy.as_str()));
        }
        if let Some(account) = &self.service_account {
            patch.set(&["serviceAccount", "name"], account.clone());
            patch.record(format!("service account set to {account}"));
        }
        if let Some(mode) = self.crd_upgrade_safety {
            let mode = match mode {
                CrdUpgradeSafety::Strict => "Strict",
                CrdUpgradeSafety::Warn => "Warn",
                CrdUpgradeSafety::None => "None",
            };
            patch.set(&["install", "preflight", "crdUpgradeSafety", "enforcement"], mode);
            patch.record(format!("CRD upgrade safety set to {mode}"));
        }
        let mut inline = match &self.config {
            None => None,
            Some(text) => {
                patch.record("configuration replaced");
                Some(replacing(config, configuration(text)?))
            }
        };
        for (key, value) in &self.set {
            let steps: Vec<&str> = key.split('.').collect();
            if steps.iter().any(|step| step.is_empty()) {
                return Err(CommandError::Usage(format!(
                    "--set {key}: a field has no name; write a.b=value"
                )));
            }
            let mut at = inline.get_or_insert_with(|| json!({}));
            for step in &steps {
                if !at.is_object() {
                    *at = json!({});
                }
                at = &mut at[*step];
            }
            // text that is no JSON is text
            *at = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            patch.record(format!("{key} set to {value}"));
        }
        if let Some(inline) = inline {
            patch.set(&["config"], json!({"configType": "Inline", "inline": inline}));
        }
        Ok(patch)
    }
}

fn configuration(text: &str) -> Result<Map<String, Value>, CommandError> {
    let value = match text.strip_prefix('@') {
        Some(file) => document(Path::new(file))?,
        None => serde_json::from_str(text)
            .map_err(|error| CommandError::Usage(format!("--config is no JSON object: {error}")))?,
    };
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(CommandError::Usage("--config is no object; write {\"key\": \"value\"}".to_owned())),
    }
}

/// The merge patch that leaves nothing of `old` but what `new` has.
fn replacing(old: Option<&Map<String, Value>>, new: Map<String, Value>) -> Value {
    let mut patch = Map::new();
    for key in old.into_iter().flat_map(Map::keys).filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let before = old.and_then(|old| old.get(&key)).and_then(Value::as_object);
        let value = match (before, value) {
            (Some(before), Value::Object(value)) => replacing(Some(before), value),
            (_, value) => value,
        };
        patch.insert(key, value);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: SpecFlags,
    }

    fn patch(words: &[&str], config: &Value) -> Result<SpecPatch, String> {
        let line = Line::try_parse_from([&["x"], words].concat()).map_err(|error| error.to_string())?;
        line.flags.patch(config.as_object()).map_err(|error| error.to_string())
    }

    #[test]
    fn spec_flags_make_merge_patches() {
        let none = json!({});
        for (words, want, changes) in [
            (
                &["--version", "1.x"][..],
                json!({"source": {"catalog": {"version": "1.x"}}}),
                "version range set to 1.x",
            ),
            (
                &["--channel", "a", "--channel", "b", "--policy", "SelfCertified"],
                json!({"source": {"catalog": {"channels": ["a", "b"], "upgradeConstraintPolicy": "SelfCertified"}}}),
                "channels set to a, b; policy set to SelfCertified",
            ),
            (
                &["--crd-upgrade-safety", "None"],
                json!({"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}}),
                "CRD upgrade safety set to None",
            ),
            (
                &["--set", "watchNamespace=a", "--set", "deep.number=3", "--set", "deep.gone=null"],
                json!({"config": {"configType": "Inline", "inline": {"watchNamespace": "a", "deep": {"number": 3, "gone": null}}}}),
                "watchNamespace set to a; deep.number set to 3; deep.gone set to null",
            ),
        ] {
            let patch = patch(words, &none).unwrap();
            assert_eq!((patch.spec, patch.changes.join("; ")), (want, changes.to_owned()), "{words:?}");
        }
        for (words, want) in [
            (&["--version", ">>1"][..], "version"),
            (&["--set", "=1"], "write KEY=VALUE"),
            (&["--set", "a..b=1"], "a field has no name"),
            (&["--config", "[]"], "--config is no object"),
            (&["--config", "{"], "--config is no JSON object"),
            (&["--config", "@/no/such/file"], "cannot read /no/such/file"),
        ] {
            let error = patch(words, &none).unwrap_err();
            assert!(error.contains(want), "{words:?}: {error}");
        }
    }

    #[test]
    fn spec_catalog_replaces_the_selector() {
        let selector = |labels: Value| json!({"source": {"catalog": {"selector": {"matchLabels": labels}}}});
        for (words, want) in [
            (&["--catalog", "mine"][..], json!({labels::METADATA_NAME: "mine"})),
            (&["--version", "1.x"], json!({labels::METADATA_NAME: "old", "team": "a"})),
        ] {
            let mut spec = selector(json!({labels::METADATA_NAME: "old", "team": "a"}));
            let mut patch = patch(words, &json!({})).unwrap();
            patch.replace_labels(&spec);
            json_patch::merge(&mut spec, &patch.spec);
            assert_eq!(spec["source"]["catalog"]["selector"], json!({"matchLabels": want}), "{words:?}");
        }
    }

    #[test]
    fn spec_config_replaces_the_present_one() {
        let old = json!({"a": 1, "deep": {"x": 1, "y": 2}, "list": [1]});
        let new = json!({"deep": {"y": 3}, "list": {"z": 1}});
        let mut patched = old.clone();
        let patch = patch(&["--config", &new.to_string()], &old).unwrap();
        json_patch::merge(&mut patched, &patch.spec["config"]["inline"]);
        assert_eq!(patched, new);
    }
}
