//! `install`: a ClusterExtension for a package.

use std::path::PathBuf;

use clap::Args;
use k8s_openapi::api::core::v1;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use olm_api::ClusterExtension;
use olm_install::account::Account;
use serde_json::{Value, json};

use super::planned::{Planned, Purpose};
use super::spec::SpecFlags;
use super::{Change, DryRun, exists_already, named, refuse_interrupted, refused_creation};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::{Cluster, Namespace};

#[derive(Debug, Args)]
#[command(
    after_help = "The plan of `kubectl olm plan` is made first: what the controller would refuse is not created.\n\n\
                  Examples:\n  kubectl olm install argocd-operator --namespace argocd --create-namespace --wait\n  \
                  kubectl olm install argocd-operator --namespace argocd --version '>=0.9.0 <1.0.0' --channel alpha\n  \
                  kubectl olm install argocd-operator --namespace argocd --catalog operatorhubio --set watchNamespace=argocd\n  \
                  kubectl olm install --file argocd.yaml --wait\n  \
                  kubectl olm install argocd-operator --namespace argocd --dry-run -o yaml > argocd.yaml\n\n\
                  Exit codes: 0 done, 1 the plan is refused or not Ready after --wait, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The package
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    package: Option<String>,
    #[arg(long = "package", hide = true, value_parser = no_flag)]
    other_package: Option<String>,
    /// A manifest of a ClusterExtension, or - for standard input; the other flags change it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    namespace: Namespace,
    /// Create the namespace if it does not exist
    #[arg(long)]
    create_namespace: bool,
    /// Name of the ClusterExtension [default: the package's]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    spec: SpecFlags,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    planned: Planned,
    #[command(flatten)]
    cluster: Cluster,
}

/// The error for a flag that users expect.
fn no_flag(_: &str) -> Result<String, String> {
    Err("the package is the first argument, --name names the ClusterExtension".to_owned())
}

/// The extension of the file or of the package, with what the flags set.
fn extension(arguments: &Arguments) -> Result<ClusterExtension, CommandError> {
    let mut whole = match (&arguments.file, &arguments.package) {
        (Some(file), _) => {
            let extension = extensions::from_file(file)?;
            let mut whole = super::manifest(&extension, &json!(extension.spec));
            if let Some(name) = arguments.namespace.given() {
                whole["spec"]["namespace"] = json!(name);
            }
            whole
        }
        (None, package) => json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": package},
            "spec": {"namespace": arguments.namespace.required()?,
                "source": {"sourceType": "Catalog", "catalog": {"packageName": package}}},
        }),
    };
    if let Some(name) = &arguments.name {
        whole["metadata"]["name"] = json!(name);
    }
    let config = whole["spec"]["config"]["inline"].as_object().cloned();
    let mut patch = arguments.spec.patch(config.as_ref())?;
    patch.replace_labels(&whole["spec"]);
    json_patch::merge(&mut whole["spec"], &patch.spec);
    serde_json::from_value(whole).map_err(|error| CommandError::Usage(error.to_string()))
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let extension = extension(arguments)?;
    let name = extension.name_any();
    let catalog = extension.spec.source.catalog.as_ref();
    let package = catalog.map(|catalog| catalog.package_name.clone()).unwrap_or_default();
    let range = catalog.and_then(|catalog| catalog.version.clone());
    let range = range.map_or("any version".to_owned(), |range| format!("version {range}"));
    let what = format!("clusterextension/{name} created (package {package}, {range})");
    let client = match arguments.cluster.client().await {
        Ok(client) => client,
        // the manifest needs no cluster
        Err(failure) if arguments.change.is_client_only() => {
            print_note(&format!("note: no plan was made: {failure}"));
            return Ok(arguments.change.edit.output_of(&extension, &json!(extension.spec), &what));
        }
        Err(failure) => return Err(failure),
    };
    match checked(arguments, &client, &extension).await {
        Ok(()) => {}
        Err(failure @ CommandError::NotFound(_)) if !arguments.change.writes() => {
            let refused = arguments.change.refused_dry_run(&extension, &what, &failure);
            return Ok(arguments.change.edit.print(&refused));
        }
        Err(failure) => return Err(failure),
    }
    let namespace = &extension.spec.namespace;
    if arguments.create_namespace && arguments.change.writes() {
        refuse_interrupted(&named(&extension))?;
        make_namespace(&client, namespace).await?;
    }
    let created = arguments.change.create(&client, extension, &what).await?;
    Ok(arguments.change.edit.print(&created))
}

/// An error if the extension cannot be created, or its plan is refused.
async fn checked(
    arguments: &Arguments,
    client: &Client,
    extension: &ClusterExtension,
) -> Result<(), CommandError> {
    if arguments.change.is_client_only() {
        // users who may only read make dry runs too
        match extensions::find(client, &extension.name_any()).await {
            Ok(None) => {}
            Ok(Some(_)) => {
                let text = format!("install would be refused: {}", exists_already(extension));
                return Err(CommandError::NotFound(text));
            }
            Err(failure) => {
                print_note(&format!("note: no plan was made: {failure}"));
                return Ok(());
            }
        }
    } else {
        let api: Api<ClusterExtension> = Api::all(client.clone());
        let params = PostParams { dry_run: true, ..PostParams::default() };
        api.create(&params, extension).await.map_err(|error| refused_creation(extension, &error))?;
    }
    let namespace = &extension.spec.namespace;
    let namespaces: Api<v1::Namespace> = Api::all(client.clone());
    let is_missing = matches!(namespaces.get_opt(namespace).await, Ok(None));
    if is_missing && !arguments.create_namespace && !arguments.planned.is_forced() {
        let missing = format!("there is no namespace {namespace:?}; add --create-namespace, or create it");
        match arguments.change.dry_run() {
            // the manifest may be for a repository that has the namespace, too
            DryRun::Client => print_note(&format!("note: {missing}")),
            DryRun::Server => {
                return Err(CommandError::NotFound(format!("install would be refused: {missing}")));
            }
            DryRun::None => return Err(CommandError::NotFound(missing)),
        }
    }
    // objects of the package cannot be sent to a namespace that is created after the plan
    let missing = format!("namespaces {namespace:?} not found");
    let account = Account::from_extension(extension);
    let planned = (extension, account.as_ref());
    let purpose = Purpose {
        verb: "install",
        dry_run: arguments.change.dry_run(),
        passed_over: is_missing.then_some(missing.as_str()),
        prints: |notice| notice.kind.is_of_first_install(),
    };
    arguments.planned.check(client, &arguments.cluster, planned, purpose).await
}

async fn make_namespace(client: &Client, name: &str) -> Result<(), CommandError> {
    let api: Api<v1::Namespace> = Api::all(client.clone());
    // a user who may not create namespaces can use one that is there
    if let Ok(Some(_)) = api.get_opt(name).await {
        return Ok(());
    }
    let namespace: Value = json!({"metadata": {"name": name}});
    let namespace =
        serde_json::from_value(namespace).map_err(|error| CommandError::Usage(error.to_string()))?;
    match api.create(&PostParams::default(), &namespace).await {
        Ok(_) => {
            print_note(&format!("namespace/{name} created"));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(CommandError::from_request(&format!("create namespace {name:?}"), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in;

    #[tokio::test]
    async fn install_creates_the_namespace_if_it_is_missing() {
        let namespace = || (200, json!({"metadata": {"name": "n"}}).to_string());
        let right = "namespaces is forbidden: User \"u\" cannot create resource \"namespaces\" in API group \"\" at the cluster scope";
        let forbidden = || stand_in::failure(403, right);
        let missing = || stand_in::failure(404, "not found");
        let exists = || stand_in::failure(409, "exists");
        for (get, post, want) in [
            (namespace(), forbidden(), Ok(())),
            (missing(), namespace(), Ok(())),
            (missing(), exists(), Ok(())),
            (forbidden(), namespace(), Ok(())),
            (missing(), forbidden(), Err(3)),
        ] {
            let case = format!("{} {}", get.0, post.0);
            let client = stand_in::cluster(move |request| {
                Some(if request.starts_with("GET ") { get.clone() } else { post.clone() })
            });
            let got = make_namespace(&client, "n").await.map_err(|failure| failure.code());
            assert_eq!(got, want, "{case}");
        }
    }
}
