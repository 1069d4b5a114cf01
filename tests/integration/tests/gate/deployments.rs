//! Available, Progressing and the version follow the Deployments of OLM, as a real Deployment controller moves them.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::openshift::ClusterOperator;
use olm_kit::{Cluster, Program};
use serde_json::{Value, json};

use crate::view::{View, condition};

const NAME: &str = "catalogd-controller-manager";

async fn deploy(deployments: &Api<Deployment>, node_selector: Value) -> Result<()> {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {"nodeSelector": node_selector, "containers": [{"name": "main", "image": "example.invalid/main:v1"}]},
            },
        },
    });
    deployments.patch(NAME, &PatchParams::apply("test").force(), &Patch::Apply(&deployment)).await?;
    Ok(())
}

/// Status, reason and message of a condition.
fn condition_texts(operator: &ClusterOperator, type_: &str) -> Option<(String, String, String)> {
    let found = condition(operator, type_)?;
    Some((found.status.to_string(), found.reason.clone(), found.message.clone()))
}

fn version(operator: &ClusterOperator) -> Option<&str> {
    operator.status.as_ref()?.operator_version()
}

#[tokio::test]
async fn gate_summary_follows_a_real_deployment() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install_olm().await?;
    cluster.install_openshift_kinds().await?;
    cluster.set_openshift_version("4.19.0").await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client().await?, olm_kit::SYSTEM_NAMESPACE);
    let process = Program::cluster_operator(&cluster)?.flag("--deployments", NAME).start().await?;
    let view = View::new(&cluster, process.log()).await?;
    let part = "CatalogdDeploymentCatalogdControllerManager";

    let none = view.until("is not available", |it| condition(it, "Available").is_some()).await?;
    let want =
        ("False".to_owned(), format!("{part}_Deploying"), format!("{part}Available: Waiting for Deployment"));
    assert_eq!(condition_texts(&none, "Available"), Some(want));
    let (degraded, ..) = condition_texts(&none, "Degraded").context("no Degraded")?;
    assert_eq!(degraded, "False", "not before two minutes");
    assert_eq!(version(&none), None, "nothing runs yet");

    deploy(&deployments, json!({})).await?;
    let up = view.until("the version is reported", |it| version(it) == Some("4.19.0")).await?;
    let want =
        ("True".to_owned(), "AsExpected".to_owned(), format!("{part}Available: Deployment is available"));
    assert_eq!(condition_texts(&up, "Available"), Some(want));

    // a template that no node fits: the old pod stays
    deploy(&deployments, json!({"no.such/node": "true"})).await?;
    let stuck = view
        .until("is on its way", |it| {
            condition_texts(it, "Progressing")
                .is_some_and(|(status, reason, _)| status == "True" && reason == format!("{part}_Deploying"))
        })
        .await?;
    assert_eq!(condition_texts(&stuck, "Available").context("no Available")?.0, "True");
    cluster.set_openshift_version("4.20.0").await?;
    let waits = view
        .until("an update is in progress", |it| {
            condition_texts(it, "Progressing").is_some_and(|it| it.1 == "UpgradeInProgress")
        })
        .await?;
    assert_eq!(version(&waits), Some("4.19.0"), "the old version until all is rolled out");

    deploy(&deployments, json!(null)).await?;
    let done = view
        .until("is rolled out", |it| {
            version(it) == Some("4.20.0")
                && condition_texts(it, "Progressing").is_some_and(|it| it.0 == "False")
        })
        .await?;
    assert_eq!(condition_texts(&done, "Available").context("no Available")?.0, "True");
    let related = done.status.context("no status")?.related_objects;
    assert!(related.iter().any(|it| it.resource == "deployments" && it.name == NAME), "{related:?}");
    Ok(())
}
