//! A backup that is restored into another cluster: the commands of docs/how-to/back-up-and-restore.md, with two control planes.
//!
//! The other cluster gives every object another UID. One extension loses the Secrets with the content of its revision. Of another one,
//! the revision and its Secrets still name their owners of the first cluster, as a tool restores them that keeps owner references.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, condition, labels};
use olm_integration::extension::{current, installed_version};
use olm_integration::package::{LIMIT, push_bundle, serve_package};
use olm_kit::{
    BundleImage, CatalogImage, Child, Cluster, Entry, Package, Program, SYSTEM_NAMESPACE, Stack, Tools, Wait,
    repository,
};
use serde_json::{Value, json};

const PAGE: &str = "docs/how-to/back-up-and-restore.md";
const NAMESPACE: &str = "sample-system";
/// `lost` loses its content, `dangling` has owners that are gone.
const EXTENSIONS: [&str; 3] = ["kept", "lost", "dangling"];

/// The shell blocks of the page: save, restore, wait.
fn commands() -> Result<[String; 3]> {
    let text = std::fs::read_to_string(repository().join(PAGE))?;
    let blocks =
        text.split("```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned()));
    blocks.collect::<Vec<_>>().try_into().ok().context("the page has other blocks than three")
}

async fn run(script: &str, cluster: &Cluster, folder: &Path) -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(folder);
    command.env("KUBECONFIG", cluster.kubeconfig());
    command.env("PATH", format!("{}:{path}", Tools::locate()?.bin().display()));
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{script}\n{}: {out}{errors}", output.status);
    Ok(())
}

async fn want(client: &Client, name: &str) -> Result<()> {
    let extension = json!({
        "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": NAMESPACE, "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}},
    });
    let api: Api<ClusterExtension> = Api::all(client.clone());
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&extension)).await?;
    Ok(())
}

async fn installed(client: &Client, name: &str, version: &str) -> Result<ClusterExtension> {
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let wait = Wait::new(&api, name).within(LIMIT);
    wait.until(&format!("{version} is installed and Ready"), |extension| {
        installed_version(extension) == Some(version)
            && current(extension, condition::READY).is_some_and(|found| found.status.as_str() == "True")
    })
    .await
}

/// UIDs of the objects of the extension that hold data or run.
async fn uids(client: &Client, extension: &str) -> Result<Vec<String>> {
    let of_extension = ListParams::default().labels(&format!("{}={extension}", labels::OWNER_NAME));
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let mut found: Vec<_> =
        maps.list(&of_extension).await?.items.iter().filter_map(|map| map.uid()).collect();
    found.extend(deployments.list(&of_extension).await?.items.iter().filter_map(|found| found.uid()));
    Ok(found)
}

/// Names of the content Secrets of an extension.
async fn content(client: &Client, extension: &str) -> Result<Vec<String>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let of_extension = format!("{}={extension},{}", labels::OWNER_NAME, labels::REVISION_NAME);
    let of_extension = ListParams::default().labels(&of_extension);
    Ok(api.list_metadata(&of_extension).await?.items.iter().map(|secret| secret.name_any()).collect())
}

/// An owner that the other cluster does not have.
fn gone_owner(kind: &str, name: &str) -> Value {
    let uid = "11111111-2222-3333-4444-555555555555";
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": olm_api::API_VERSION, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true}]}})
}

/// Gives the revision of `dangling` and its Secrets owners that are gone.
async fn let_dangle(client: &Client) -> Result<()> {
    let (sets, params): (Api<ClusterObjectSet>, _) = (Api::all(client.clone()), PatchParams::default());
    let owner = Patch::Merge(gone_owner("ClusterExtension", "dangling"));
    sets.patch("dangling-1", &params, &owner).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let owner = Patch::Merge(gone_owner("ClusterObjectSet", "dangling-1"));
    for secret in content(client, "dangling").await? {
        secrets.patch(&secret, &params, &owner).await?;
    }
    Ok(())
}

/// Runs the garbage collector, among others: it deletes objects all of whose owners are gone.
fn controller_manager(cluster: &mut Cluster) -> Result<&mut Child> {
    let plane = cluster.plane().context("the control plane is not ours")?;
    let manager = plane.children().iter_mut().find(|child| child.name() == "kube-controller-manager");
    manager.context("there is no kube-controller-manager")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_extensions_continue() -> Result<()> {
    let [save, restore, wait] = commands()?;
    let folder = tempfile::tempdir()?;
    let Stack { catalogd, operator_controller, registry, cluster, .. } = Stack::start().await?;
    let client = cluster.client().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    cluster.apply(&namespace.to_string()).await?;
    let bundle = |name: &str, version: &str| BundleImage::new(name, version).crds([]);
    for name in EXTENSIONS {
        serve_package(&cluster, &registry, name, [("1.0.0", bundle(name, "1.0.0"))]).await?;
        want(&client, name).await?;
        installed(&client, name, "1.0.0").await?;
    }
    let secrets = content(&client, "lost").await?;
    ensure!(!secrets.is_empty(), "there is no content");
    run(&save, &cluster, folder.path()).await?;
    // a version that no edge leads to: a new installation would choose it
    let mut catalogs = Vec::new();
    for name in EXTENSIONS {
        let old = push_bundle(&registry, name, "1.0.0", &bundle(name, "1.0.0")).await?;
        let new = push_bundle(&registry, name, "9.0.0", &bundle(name, "9.0.0")).await?;
        let package = Package::new(name).bundle("1.0.0", &old).bundle("9.0.0", &new);
        let package = package.channel("stable", [Entry::new("1.0.0")]).channel("next", [Entry::new("9.0.0")]);
        let image = CatalogImage::new().package(&package).image();
        catalogs.push(registry.push(&format!("{name}/catalog"), "latest", &image).await?.by_digest());
    }
    drop((operator_controller, catalogd, cluster));

    let mut cluster = Cluster::start().await?;
    let client = cluster.client().await?;
    run(&restore, &cluster, folder.path()).await?;
    let api: Api<ClusterCatalog> = Api::all(client.clone());
    for (name, reference) in EXTENSIONS.iter().zip(catalogs) {
        let patch = json!({"spec": {"source": {"image": {"ref": reference}}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    let api: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    for secret in &secrets {
        api.delete(secret, &DeleteParams::default()).await?;
    }
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let mut before = Vec::new();
    for name in EXTENSIONS {
        before.push(uids(&client, name).await?);
        ensure!(
            sets.get(&format!("{name}-1")).await?.owner_references().is_empty(),
            "it has an owner already"
        );
    }
    ensure!(before.iter().all(|uids| uids.len() == 2), "restored objects: {before:?}");

    controller_manager(&mut cluster)?.freeze();
    let_dangle(&client).await?;
    let (_catalogd, _operator_controller) = tokio::try_join!(
        Program::catalogd(&cluster)?.start(),
        Program::operator_controller(&cluster)?.start()
    )?;
    let gone = gone_owner("ClusterExtension", "dangling");
    let adopted = |set: &ClusterObjectSet| {
        let gone = gone.pointer("/metadata/ownerReferences/0/uid").and_then(Value::as_str);
        set.owner_references().iter().all(|owner| Some(owner.uid.as_str()) != gone)
    };
    Wait::new(&sets, "dangling-1").within(LIMIT).until("is adopted", adopted).await?;
    controller_manager(&mut cluster)?.thaw();
    run(&wait, &cluster, folder.path()).await?;
    for (name, before) in EXTENSIONS.into_iter().zip(before) {
        let extension = installed(&client, name, "1.0.0").await?;
        assert_eq!(uids(&client, name).await?, before, "{name}: an object was created again");
        let set = sets.get(&format!("{name}-1")).await?;
        let owners: Vec<_> = set.owner_references().iter().map(|owner| owner.uid.clone()).collect();
        assert_eq!(Some(owners), extension.uid().map(|uid| vec![uid]), "{name}");
        let map: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let map = map.get(&format!("{name}-config")).await?;
        let owners: Vec<_> = map.owner_references().iter().map(|owner| owner.uid.clone()).collect();
        assert_eq!(Some(owners), set.uid().map(|uid| vec![uid]), "{name}");
        let revisions = sets.list(&ListParams::default()).await?.items.len();
        assert_eq!(revisions, EXTENSIONS.len(), "{name}: no other revision");
    }
    assert_eq!(content(&client, "lost").await?, secrets, "the content was made again");
    Ok(())
}
