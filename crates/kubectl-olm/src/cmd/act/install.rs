//! `install`: a ClusterExtension for a package.

use clap::Args;
use k8s_openapi::api::core::v1;
use kube::Api;
use kube::api::PostParams;
use olm_runtime::error_text::chain;
use serde_json::{Value, json};

use super::Change;
use crate::CommandOutput;
use crate::failure::{CommandError, print_note};
use crate::sources::{Cluster, Namespace};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl olm install argocd-operator --namespace argocd --create-namespace --wait\n  \
                  kubectl olm install argocd-operator --namespace argocd --version '>=0.9.0 <1.0.0' --channel alpha\n  \
                  kubectl olm install argocd-operator --namespace argocd --dry-run -o yaml > argocd.yaml\n\n\
                  Exit codes: 0 done, 1 not Ready after --wait, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The package
    package: String,
    #[command(flatten)]
    namespace: Namespace,
    /// Make the namespace if it is not there
    #[arg(long)]
    create_namespace: bool,
    /// Name of the ClusterExtension [default: the package's]
    #[arg(long)]
    name: Option<String>,
    /// Versions to stay within, such as '>=1.0.0 <2.0.0' [default: any]
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Only bundles and edges of this channel; may be repeated
    #[arg(long)]
    channel: Vec<String>,
    /// Write the objects as this service account of the namespace
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Configuration of the bundle, as a JSON object
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let name = arguments.name.as_ref().unwrap_or(&arguments.package);
    let namespace = arguments.namespace.required()?;
    let mut catalog = json!({"packageName": arguments.package});
    if let Some(version) = &arguments.version {
        olm_resolver::parse_range(version).map_err(|error| CommandError::Usage(error.condition_message()))?;
        catalog["version"] = json!(version);
    }
    if !arguments.channel.is_empty() {
        catalog["channels"] = json!(arguments.channel);
    }
    let mut spec = json!({"namespace": namespace, "source": {"sourceType": "Catalog", "catalog": catalog}});
    if let Some(account) = &arguments.service_account {
        spec["serviceAccount"] = json!({"name": account});
    }
    if let Some(config) = &arguments.config {
        let inline: Value = serde_json::from_str(config)
            .map_err(|error| CommandError::Usage(format!("--config is no JSON object: {error}")))?;
        spec["config"] = json!({"configType": "Inline", "inline": inline});
    }
    let extension = json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
        "metadata": {"name": name}, "spec": spec});
    let extension =
        serde_json::from_value(extension).map_err(|error| CommandError::Usage(error.to_string()))?;
    let client = arguments.cluster.client().await?;
    if arguments.create_namespace && arguments.change.writes() {
        make_namespace(&client, namespace).await?;
    }
    let what = format!("ClusterExtension {name} asks for package {}", arguments.package);
    arguments.change.create(&client, extension, &what).await
}

async fn make_namespace(client: &kube::Client, name: &str) -> Result<(), CommandError> {
    let api: Api<v1::Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))
        .map_err(|error| CommandError::Usage(error.to_string()))?;
    match api.create(&PostParams::default(), &namespace).await {
        Ok(_) => {
            print_note(&format!("namespace {name} created"));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => {
            Err(CommandError::Unreachable(format!("cannot create namespace {name:?}: {}", chain(&error))))
        }
    }
}
