//! Objects that an installed operator needs are deleted, and come back.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use olm_integration::classic::phase;
use olm_kit::Wait;
use serde_json::json;

use super::site::{Site, crds};
use super::state::{reached, settled};
use crate::package::LIMIT;
use crate::runs::Case;

#[tokio::test]
async fn fault_classic_group_removed_and_back_keeps_objects() -> Result<()> {
    let mut case = Case::once("OperatorGroup deleted and made again");
    let site = Site::shared().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served("group").await?;
    package.subscribe("1.0.0").await?;
    package.installed("1.0.0").await?;
    let before = settled(&client, &package).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &package.name);
    let name = format!("{}-ctrl", package.name);
    let uid = deployments.get(&name).await?.uid();

    package.groups.delete(&package.name, &DeleteParams::default()).await?;
    let fails = |csv: &olm_api::classic::ClusterServiceVersion| {
        phase(csv) == "Failed" && csv.status.as_ref().is_some_and(|it| it.reason == "NoOperatorGroup")
    };
    package.csv_until("1.0.0", "is Failed for its group", fails).await?;
    foreign.check().await?;

    package.furnish().await?;
    let since = Instant::now();
    package.csv_until("1.0.0", "is Succeeded", |csv| phase(csv) == "Succeeded").await?;
    reached(&before, &client, &package, LIMIT).await?;
    case.converged(since);
    ensure!(deployments.get(&name).await?.uid() == uid, "the Deployment was made again");
    foreign.check().await
}

#[tokio::test]
async fn fault_classic_deleted_crds_are_waited_for() -> Result<()> {
    let mut case = Case::once("half of the CRDs of a CSV deleted and made again");
    let site = Site::shared().await?;
    let client = site.client().await?;
    let (package, foreign) = site.served("crds").await?;
    package.subscribe("1.0.0").await?;
    package.installed("1.0.0").await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let all = crds(&package);
    let (gone, stay) = all.split_at(all.len() / 2);
    let kept = stay.last().context("no CRD stays")?;
    let mine = json!({"apiVersion": format!("{}.kit.test/v1", package.name), "kind": kept.manifest()["spec"]["names"]["kind"],
        "metadata": {"name": "mine", "namespace": package.name}, "spec": {"size": 1}});
    let mine = site.cluster.apply(&mine.to_string()).await?.remove(0);
    let before = settled(&client, &package).await?;
    let mut manifests = Vec::new();
    for crd in gone {
        let present = definitions.get(&crd.name()).await?;
        let metadata =
            json!({"name": crd.name(), "labels": present.labels(), "annotations": present.annotations()});
        let mut manifest = crd.manifest();
        manifest["metadata"] = metadata;
        manifests.push(manifest);
    }
    for crd in gone {
        definitions.delete(&crd.name(), &DeleteParams::default()).await?;
    }
    package.csv_until("1.0.0", "is not Succeeded", |csv| phase(csv) != "Succeeded").await?;
    for crd in gone {
        Wait::new(&definitions, &crd.name()).within(LIMIT).to_be_gone().await?;
    }
    for crd in stay {
        let present = definitions.get(&crd.name()).await?;
        ensure!(present.metadata.deletion_timestamp.is_none(), "{} is being deleted", crd.name());
    }

    for manifest in manifests {
        site.cluster.apply(&manifest.to_string()).await?;
    }
    let since = Instant::now();
    package.csv_until("1.0.0", "is Succeeded", |csv| phase(csv) == "Succeeded").await?;
    reached(&before, &client, &package, LIMIT).await?;
    case.converged(since);
    let again = site
        .cluster
        .apply(
            &json!({"apiVersion": format!("{}.kit.test/v1", package.name),
        "kind": kept.manifest()["spec"]["names"]["kind"],
        "metadata": {"name": "mine", "namespace": package.name}})
            .to_string(),
        )
        .await?
        .remove(0);
    ensure!(again.uid() == mine.uid(), "the custom resource was made again");
    foreign.check().await
}
