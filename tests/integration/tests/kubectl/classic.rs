//! The verbs about OLM Classic against a real apiserver with its kinds, and catalogs and bundles that are images of a real registry.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::classic::{CatalogSource, ClusterServiceVersion, Subscription};
use olm_classic::csv::strategy::{Settings, deployments};
use olm_kit::{BundleImage, Ca, CatalogImage, Cluster, Entry, Package, Registry};
use serde_json::{Value, json};

use crate::cluster::User;

/// The objects of a namespace that subscribes to the package `demo` of a catalog image.
fn objects(namespace: &str, image: &str) -> String {
    format!(
        r#"
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {{name: all, namespace: {namespace}}}
spec: {{}}
---
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {{name: sample, namespace: {namespace}}}
spec: {{sourceType: grpc, image: "{image}"}}
---
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {{name: demo.v1.0.0, namespace: {namespace}}}
spec:
  displayName: demo
  version: 1.0.0
  install: {{strategy: deployment, spec: {{deployments: []}}}}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {{name: demo, namespace: {namespace}}}
spec: {{name: demo, channel: stable, source: sample, sourceNamespace: {namespace}, installPlanApproval: Manual}}
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_classic_verbs_read_a_cluster() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.apply_dir(&olm_kit::repository().join("manifests/classic")).await?;
    let registry = Registry::shared().await?;
    let namespace = cluster.namespace("classic").await?;
    let bundle = registry.push("classic/bundle", "1.1.0", &BundleImage::new("demo", "1.1.0").image()).await?;
    let entries = [Entry::new("1.0.0"), Entry::new("1.1.0").replaces("1.0.0")];
    let package = Package::new("demo")
        .bundle("1.0.0", "example.com/demo:v1.0.0")
        .bundle("1.1.0", &bundle.by_digest())
        .channel("stable", entries);
    let catalog =
        registry.push("classic/catalog", "1", &CatalogImage::new().package(&package).image()).await?;
    cluster.apply(&objects(&namespace, &catalog.by_tag())).await?;
    let client = cluster.client().await?;
    let subscriptions: Api<Subscription> = Api::namespaced(client.clone(), &namespace);
    let status = json!({"status": {
        "installedCSV": "demo.v1.0.0", "currentCSV": "demo.v1.0.0", "state": "AtLatestKnown", "lastUpdated": "2026-01-01T00:00:00Z",
    }});
    subscriptions.patch_status("demo", &PatchParams::default(), &Patch::Merge(&status)).await?;

    let ca = Ca::shared()?.certificate();
    let ca = ca.to_str().context("path")?;
    let user = User::new(&cluster, &["-n", &namespace, "--ca-file", ca])?;
    let resolved: Value = serde_json::from_str(&user.output(0, &["classic", "resolve", "-o", "json"])?)?;
    let chosen = &resolved["bundles"][0];
    assert_eq!((&chosen["bundle"], &chosen["replaces"]), (&json!("demo.v1.1.0"), &json!("demo.v1.0.0")));
    assert_eq!(chosen["reasons"], json!(["subscription demo"]));
    let drawn = user.output(0, &["classic", "graph", "demo"])?;
    assert!(drawn.contains("installed 1.0.0"), "{drawn}");

    let plan = || -> Result<Value> {
        Ok(serde_json::from_str(&user.output(0, &["classic", "plan", "-o", "json"])?)?)
    };
    let made = plan()?;
    assert_eq!((&made["approval"], &made["phase"]), (&json!("Manual"), &json!("RequiresApproval")));
    assert_eq!(made["bundles"][0]["image"], bundle.by_digest());
    let statuses = |plan: &Value| -> Vec<String> {
        let steps = plan["steps"].as_array().cloned().unwrap_or_default();
        let line = |step: &Value| format!("{} {}", step["kind"], step["status"]).replace('"', "");
        steps.iter().map(line).collect()
    };
    let before = statuses(&made);
    assert_eq!(before[..2], ["ClusterServiceVersion Unknown", "CustomResourceDefinition Unknown"]);
    assert!(before.contains(&"ConfigMap Unknown".to_owned()), "{before:?}");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let map = serde_json::from_value(json!({"metadata": {"name": "demo-config"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let after = statuses(&plan()?);
    assert!(after.contains(&"ConfigMap Present".to_owned()), "{after:?}");

    check_status(&cluster, &namespace).await?;

    // a catalog that cannot be had is no answer
    let sources: Api<CatalogSource> = Api::namespaced(client, &namespace);
    let gone = json!({"spec": {"image": format!("{}/classic/none:1", registry.address())}});
    sources.patch("sample", &PatchParams::default(), &Patch::Merge(&gone)).await?;
    for verb in [&["classic", "resolve"][..], &["classic", "plan"], &["classic", "graph", "demo"]] {
        let (code, out, error) = user.run(verb)?;
        assert_eq!((code, out.as_str()), (3, ""), "{verb:?}: {error}");
    }
    Ok(())
}

/// `classic status` of the namespace, whose ClusterServiceVersion gets an edited Deployment.
async fn check_status(cluster: &Cluster, namespace: &str) -> Result<()> {
    let user = User::new(cluster, &["-n", namespace])?;
    let pod = json!({"containers": [{"name": "manager", "image": "registry.test/demo:v1"}]});
    let spec = json!({"selector": {"matchLabels": {"app": "demo"}}, "template": {"metadata": {"labels": {"app": "demo"}}, "spec": pod}});
    let client = cluster.client().await?;
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(client.clone(), namespace);
    let strategy = json!({"spec": {"install": {"spec": {"deployments": [{"name": "demo", "spec": spec}]}}}});
    let csv = csvs.patch("demo.v1.0.0", &PatchParams::default(), &Patch::Merge(&strategy)).await?;
    let succeeded = json!({"status": {"phase": "Succeeded", "reason": "InstallSucceeded"}});
    csvs.patch_status("demo.v1.0.0", &PatchParams::default(), &Patch::Merge(&succeeded)).await?;
    let made = deployments(&csv, &Settings::default())?;
    cluster.apply(&made[0].to_value().to_string()).await?;

    let rows = |arguments: &[&str]| -> Result<Value> {
        let command = [&["classic", "status", "-o", "json"], arguments].concat();
        Ok(serde_json::from_str(&user.output(0, &command)?)?)
    };
    let row = rows(&[])?[0].clone();
    assert_eq!(
        (&row["subscription"], &row["csv"], &row["phase"]),
        (&json!("demo"), &json!("demo.v1.0.0"), &json!("Succeeded"))
    );
    let state = (&row["state"], &row["ready"], &row["edited"]);
    assert_eq!(state, (&json!("AtLatestKnown"), &json!(true), &Value::Null), "{row}");

    let edit = json!({"spec": {"replicas": 2}});
    let all: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    all.patch("demo", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    let field = json!({"path": "spec.replicas", "desired": 1, "live": 2});
    let row = rows(&["demo"])?[0].clone();
    assert_eq!(row["edited"], json!([{"deployment": "demo", "fields": [field]}]));
    let text = user.output(0, &["classic", "status"])?;
    assert!(text.contains("Deployment demo was edited: spec.replicas"), "{text}");

    let pending = json!({"status": {"state": "UpgradePending", "conditions": [
        {"type": "InstallPlanPending", "status": "True", "reason": "RequiresApproval", "message": ""},
    ]}});
    let subscriptions: Api<Subscription> = Api::namespaced(client, namespace);
    subscriptions.patch_status("demo", &PatchParams::default(), &Patch::Merge(&pending)).await?;
    let text = user.output(1, &["classic", "status"])?;
    assert!(
        text.contains("to do: InstallPlan  waits for approval; set spec.approved of it to true"),
        "{text}"
    );
    let (code, _, error) = user.run(&["classic", "status", "another"])?;
    assert_eq!(code, 1, "{error}");
    let rest = json!({"status": {"state": "AtLatestKnown", "conditions": []}});
    subscriptions.patch_status("demo", &PatchParams::default(), &Patch::Merge(&rest)).await?;
    Ok(())
}
