//! Deployments of a ClusterServiceVersion that are edited, or that it does not list any more.
//!
//! Rule: classic-apis §6.5, decision 52.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::classic::ClusterServiceVersion;
use olm_kit::{Wait, eventually};
use serde_json::{Value, json};

use crate::site::{LIMIT, Site};

const IMAGE: &str = "registry.test:5000/manager:v1";
const EDITED: &str = "registry.test:5000/manager:v2";

/// A Deployment with all kinds of fields that the apiserver completes or writes in another form.
fn manager() -> Value {
    let probe = |mut handler: Value| {
        handler["initialDelaySeconds"] = 5.into();
        handler
    };
    json!({"name": "manager", "label": {"app": "demo"}, "spec": {
        "selector": {"matchLabels": {"app": "demo"}},
        "template": {"metadata": {"labels": {"app": "demo"}, "creationTimestamp": null}, "spec": {
            "serviceAccountName": "default", "hostNetwork": true,
            "initContainers": [{"name": "first", "image": "registry.test/first", "command": ["true"]}],
            "containers": [
                {
                    "name": "manager", "image": IMAGE, "args": ["--leader-elect"],
                    "ports": [{"containerPort": 8443, "name": "https"}, {"containerPort": 53, "protocol": "UDP"}],
                    "env": [
                        {"name": "EMPTY", "value": ""},
                        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    ],
                    "resources": {"limits": {"cpu": 1, "memory": "1024Mi"}, "requests": {"cpu": "0.05"}},
                    "livenessProbe": probe(json!({"httpGet": {"port": "https"}})),
                    "readinessProbe": probe(json!({"grpc": {"port": 9000}})),
                    "startupProbe": probe(json!({"tcpSocket": {"port": 8443}})),
                    "lifecycle": {"preStop": {"httpGet": {"port": 8443, "path": "/stop"}}},
                    "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true},
                    "volumeMounts": [{"name": "config", "mountPath": "/config"}, {"name": "all", "mountPath": "/all", "readOnly": true}],
                },
                {"name": "proxy", "image": "registry.test/proxy@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
            ],
            "volumes": [
                {"name": "config", "configMap": {"name": "config", "optional": true}},
                {"name": "host", "hostPath": {"path": "/var/lib/demo"}},
                {"name": "scratch", "emptyDir": {}},
                {"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                }}}},
                {"name": "labels", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                {"name": "all", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token"}},
                    {"secret": {"name": "extra", "optional": true}},
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]}},
            ],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "demo"}},
            }],
        }},
    }})
}

fn helper() -> Value {
    json!({"name": "helper", "spec": {
        "selector": {"matchLabels": {"app": "helper"}}, "strategy": {"type": "Recreate"},
        "template": {"metadata": {"labels": {"app": "helper"}}, "spec": {"containers": [{"name": "c", "image": "registry.test/c:v1"}]}},
    }})
}

fn csv(namespace: &str, deployments: &[Value]) -> Value {
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": "demo.v1", "namespace": namespace},
        "spec": {
            "displayName": "demo", "version": "1.0.0", "install": {"strategy": "deployment", "spec": {"deployments": deployments}},
            "installModes": modes.map(|mode| json!({"type": mode, "supported": true})),
        },
    })
}

/// As its controller does once its pods are ready.
async fn mark_available(deployments: &Api<Deployment>, name: &str) -> Result<()> {
    let live =
        eventually(&format!("Deployment {name}"), LIMIT, || async { Ok(deployments.get(name).await?) })
            .await?;
    let condition = json!({"type": "Available", "status": "True", "reason": "Test", "message": "available"});
    let status = json!({"status": {
        "observedGeneration": live.metadata.generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [condition],
    }});
    deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

async fn install(site: &Site, names: &[&str]) -> Result<()> {
    let deployments = site.api();
    for name in names {
        mark_available(&deployments, name).await?;
    }
    let csvs: Api<ClusterServiceVersion> = site.api();
    let succeeded =
        |csv: &ClusterServiceVersion| csv.status.as_ref().is_some_and(|status| status.phase == "Succeeded");
    Wait::new(&csvs, "demo.v1").within(LIMIT).log(site.log()).until("it is installed", succeeded).await?;
    Ok(())
}

fn image(deployment: &Deployment) -> Option<&str> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.iter().find(|container| container.name == "manager")?.image.as_deref()
}

/// By another client, with an image.
async fn edit(deployments: &Api<Deployment>) -> Result<()> {
    let patch = json!({
        "metadata": {"labels": {"theirs": "x"}}, "spec": {"template": {"spec": {"containers": [{"name": "manager", "image": EDITED}]}}},
    });
    let by = PatchParams { field_manager: Some("a-person".to_owned()), ..PatchParams::default() };
    deployments.patch("manager", &by, &Patch::Strategic(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn classic_edited_deployment_is_reported_and_stays() -> Result<()> {
    let site = Site::start().await?;
    let deployments: Api<Deployment> = site.api();
    site.apply(&csv(&site.namespace, &[manager(), helper()])).await?;
    install(&site, &["manager", "helper"]).await?;
    let notes = site.notes("DeploymentEdited").await?;
    ensure!(notes.is_empty(), "defaults are no edits: {notes:?}");

    edit(&deployments).await?;
    let differs = "Deployment manager differs from the ClusterServiceVersion in spec.template.spec.containers[manager].image;";
    site.event("ClusterServiceVersion", "DeploymentEdited", differs).await?;
    install(&site, &["manager", "helper"]).await?;
    ensure!(image(&deployments.get("manager").await?) == Some(EDITED), "it was written back");
    let notes = site.notes("DeploymentEdited").await?;
    ensure!(notes.len() == 1, "{notes:?}");

    // the ClusterServiceVersion lists one less
    let csvs: Api<ClusterServiceVersion> = site.api();
    site.merge(&csvs, "demo.v1", csv(&site.namespace, &[manager()])).await?;
    Wait::new(&deployments, "helper").within(LIMIT).log(site.log()).to_be_gone().await?;
    ensure!(image(&deployments.get("manager").await?) == Some(EDITED), "it was written back");
    Ok(())
}

#[tokio::test]
async fn classic_edited_deployment_is_repaired_on_request() -> Result<()> {
    let site = Site::start_with(&[("--repair-deployments", "Repaired")]).await?;
    let deployments: Api<Deployment> = site.api();
    site.apply(&csv(&site.namespace, &[manager()])).await?;
    install(&site, &["manager"]).await?;
    let notes = site.notes("DeploymentRepaired").await?;
    ensure!(notes.is_empty(), "defaults are no edits: {notes:?}");

    edit(&deployments).await?;
    let repaired =
        "Deployment manager was edited and is written back: spec.template.spec.containers[manager].image";
    site.event("ClusterServiceVersion", "DeploymentRepaired", repaired).await?;
    let live = deployments.get("manager").await?;
    ensure!(image(&live) == Some(IMAGE), "{:?}", image(&live));
    ensure!(live.metadata.labels.context("labels")?.contains_key("theirs"), "labels of others stay");

    edit(&deployments).await?;
    site.event("ClusterServiceVersion", "DeploymentEdited", "changed again; stop what sets it").await?;
    ensure!(image(&deployments.get("manager").await?) == Some(EDITED), "it was repaired many times");
    Ok(())
}
