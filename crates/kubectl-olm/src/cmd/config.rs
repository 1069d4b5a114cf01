//! `config schema|defaults|validate`: the schema of `spec.config.inline`, its defaults, and validation.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use olm_bundle::{
    DEPLOYMENT_FIELDS, FieldTarget, Gates, InstallMode, RegistryV1, RenderOptions, config_schema,
    read_config, render,
};
use serde_json::{Map, Value, json};

use super::bundle::document;
use crate::CommandOutput;
use crate::bundle_source::BundleSource;
use crate::failure::CommandError;
use crate::sources::Namespace;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Print the JSON schema of a bundle's configuration
    #[command(
        after_help = "Exit codes: 0 printed, 2 the bundle cannot be read, 3 the registry gave no answer.\n\n\
                      Example:\n  kubectl olm config schema quay.io/example/bundle:v1 > schema.json"
    )]
    Schema(Schema),
    /// Print what holds where nothing is configured
    ///
    /// The namespace that is watched, and of each Deployment what `deploymentConfig` could change.
    #[command(
        after_help = "Exit codes: 0 printed, 2 the bundle cannot be read, 3 the registry gave no answer.\n\n\
                      Example:\n  kubectl olm config defaults ./bundle"
    )]
    Defaults(Schema),
    /// Check a configuration against a bundle
    #[command(
        after_help = "Exit codes: 0 it fits, 1 it does not, 2 the bundle or the file cannot be read, 3 the registry gave no answer.\n\n\
                      Examples:\n  kubectl olm config validate ./bundle --namespace my-operator --config inline.yaml\n  \
                      kubectl get clusterextension x -o json | jq .spec.config.inline > inline.json"
    )]
    Validate(Validate),
}

/// How a document is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Document {
    #[default]
    Json,
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Document,
    #[command(flatten)]
    source: BundleSource,
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// File with what stands in spec.config.inline, JSON or YAML; without it an absent configuration is checked
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    source: BundleSource,
}

pub(crate) async fn run(verb: &Verb) -> Result<CommandOutput, CommandError> {
    match verb {
        Verb::Schema(arguments) => {
            let bundle = arguments.source.load().await?;
            let schema = config_schema(&bundle.csv.install_modes, Gates::default());
            Ok(CommandOutput { text: arguments.output.print(&schema), yes: true })
        }
        Verb::Defaults(arguments) => {
            let defaults = defaults(&arguments.source.load().await?);
            Ok(CommandOutput { text: arguments.output.print(&defaults), yes: true })
        }
        Verb::Validate(arguments) => validated(arguments).await,
    }
}

impl Document {
    fn print(self, value: &Value) -> String {
        match self {
            Self::Json => serde_json::to_string_pretty(value).unwrap_or_default() + "\n",
            Self::Yaml => serde_saphyr::to_string(value).unwrap_or_default(),
        }
    }
}

/// The values of the bundle that a configuration can override.
fn defaults(bundle: &RegistryV1) -> Value {
    let modes = &bundle.csv.install_modes;
    let usable = |mode| modes.supports(mode);
    let watch = match (
        usable(InstallMode::AllNamespaces),
        usable(InstallMode::OwnNamespace),
        usable(InstallMode::SingleNamespace),
    ) {
        (true, false, false) => json!({"default": "all namespaces", "configurable": false}),
        (true, _, _) => json!({"default": "all namespaces", "configurable": true}),
        (false, true, false) => json!({"required": true, "mustBe": "the install namespace"}),
        (false, false, true) => {
            json!({"required": true, "mustBe": "another namespace than the install namespace"})
        }
        (false, true, true) => json!({"required": true}),
        (false, false, false) => json!({"unsupported": "the bundle has no install mode that can be used"}),
    };
    let deployments: Map<String, Value> =
        bundle.csv.deployments.iter().map(|found| (found.name.clone(), deployment(&found.spec))).collect();
    json!({"watchNamespace": watch, "deployments": deployments})
}

fn deployment(spec: &Map<String, Value>) -> Value {
    let pod = spec.get("template").and_then(|template| template.get("spec")).cloned().unwrap_or_default();
    let some = |value: &Value, target: FieldTarget| {
        let fields = DEPLOYMENT_FIELDS.iter().filter(|field| field.target == target);
        let found = fields.filter_map(|field| Some((field.name.to_owned(), value.get(field.name)?.clone())));
        found.collect::<Map<String, Value>>()
    };
    let mut shown = some(&pod, FieldTarget::Pod);
    let containers = pod.get("containers").and_then(Value::as_array).cloned().unwrap_or_default();
    let containers: Map<String, Value> = containers
        .iter()
        .map(|container| {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
            (name.to_owned(), Value::Object(some(container, FieldTarget::Container)))
        })
        .collect();
    shown.insert("containers".to_owned(), Value::Object(containers));
    Value::Object(shown)
}

async fn validated(arguments: &Validate) -> Result<CommandOutput, CommandError> {
    let bundle = arguments.source.load().await?;
    let inline = arguments.config.as_deref().map(document).transpose()?;
    let modes = &bundle.csv.install_modes;
    let namespace = arguments.namespace.required()?;
    let no = |error: String| Ok(CommandOutput { text: format!("{error}\n"), yes: false });
    let config = match read_config(inline.as_ref(), modes, namespace, Gates::default()) {
        Ok(config) => config,
        Err(error) => return no(error.to_string()),
    };
    // some errors only occur when the configuration is applied to the bundle
    let options = RenderOptions { config: inline, ..RenderOptions::new(namespace) };
    if let Err(error) = render(&bundle, &options) {
        return no(error.to_string());
    }
    let watched =
        config.watch_namespace.map_or("all namespaces".to_owned(), |name| format!("namespace {name}"));
    let mut text = format!("the configuration fits; the operator watches {watched}\n");
    for warning in &config.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    Ok(CommandOutput { text, yes: true })
}
