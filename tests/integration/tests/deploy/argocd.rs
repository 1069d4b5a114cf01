//! The health that Argo CD shows, judged by the interpreter that it uses (`hack/oracles/argocd-health`).

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use olm_kit::{Tools, repository};
use serde_json::{Value, json};

/// Health and message of each object by the script for its kind.
pub(crate) fn health(objects: &[Value]) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(repository().join("manifests/argocd/argocd-cm.yaml"))?;
    let map: Value = serde_saphyr::from_str(&text).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let mut command = Tools::locate()?.command("oracle-argocd-health")?;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    for object in objects {
        let kind = object["kind"].as_str().context("no kind")?;
        let key = format!("resource.customizations.health.olm.operatorframework.io_{kind}");
        let script = map["data"][&key].as_str().with_context(|| format!("no script {key}"))?;
        writeln!(input, "{}", json!([script, object]))?;
    }
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", output.status);
    let answers = String::from_utf8(output.stdout)?;
    answers.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// An object of generation 2 with conditions `type status reason` about it.
fn object(kind: &str, spec: Value, conditions: &[&str]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|condition| {
            let words: Vec<&str> = condition.split(' ').collect();
            json!({"type": words[0], "status": words[1], "reason": words[2], "message": format!("{} message", words[0]), "observedGeneration": 2})
        })
        .collect();
    json!({"kind": kind, "metadata": {"name": "a", "generation": 2}, "spec": spec, "status": {"conditions": conditions}})
}

fn changed(mut object: Value, pointer: &str, value: Value) -> Value {
    if let Some(place) = object.pointer_mut(pointer) {
        *place = value;
    } else if let Some((parent, key)) = pointer.rsplit_once('/')
        && let Some(Value::Object(members)) = object.pointer_mut(parent)
    {
        members.insert(key.to_owned(), value);
    }
    object
}

#[test]
fn argocd_health_follows_conditions() -> Result<()> {
    let extension = |conditions: &[&str]| object("ClusterExtension", json!({}), conditions);
    let catalog = |conditions: &[&str]| object("ClusterCatalog", json!({}), conditions);
    let set =
        |conditions: &[&str]| object("ClusterObjectSet", json!({"lifecycleState": "Active"}), conditions);
    let installed = ["Installed True Succeeded", "Progressing True Succeeded"];
    #[rustfmt::skip]
    let cases = [
        (json!({"kind": "ClusterExtension", "metadata": {"generation": 1}}), "Progressing", "the spec has not been looked at yet"),
        (extension(&["Progressing True Succeeded", "Ready True Succeeded"]), "Healthy", "Ready message"),
        (changed(extension(&["Ready True Succeeded"]), "/metadata/generation", json!(3)), "Progressing",
            "the spec has not been looked at yet"),
        (changed(extension(&["Ready True Succeeded", "Progressing True RollingOut"]), "/metadata/deletionTimestamp", json!("now")),
            "Progressing", "Progressing message"),
        (extension(&["Ready False RollingOut", "Reconciling True RollingOut"]), "Progressing", "Ready message"),
        (extension(&["Ready False Retrying", "Reconciling True Retrying"]), "Progressing", "Ready message"),
        (extension(&["Ready False Retrying", "Stalled True Retrying"]), "Degraded", "Ready message"),
        (extension(&["Ready False Blocked", "Stalled True Blocked"]), "Degraded", "Ready message"),
        (extension(&["Ready False Unavailable", "Reconciling True Unavailable"]), "Degraded", "Ready message"),
        (extension(&["Ready False UpgradePending", "Reconciling True UpgradePending"]), "Progressing", "Ready message"),
        (extension(&["Ready False Paused"]), "Suspended", "Ready message"),
        // as the reference reports it
        (extension(&installed), "Healthy", "Installed message"),
        (extension(&["Installed True Succeeded", "Progressing True Retrying"]), "Progressing", "Progressing message"),
        (extension(&["Installed False Failed", "Progressing False Blocked"]), "Degraded", "Progressing message"),
        (json!({"kind": "ClusterCatalog", "metadata": {"generation": 1}, "spec": {}}), "Progressing",
            "the spec has not been looked at yet"),
        (catalog(&["Serving True Available", "Progressing True Succeeded"]), "Healthy", "Serving message"),
        (catalog(&["Serving True Available", "Progressing True Retrying"]), "Healthy",
            "serving; the last poll failed: Progressing message"),
        (catalog(&["Serving False Unavailable", "Progressing True Retrying"]), "Degraded", "Progressing message"),
        (catalog(&["Serving False Unavailable", "Progressing False Blocked"]), "Degraded", "Progressing message"),
        (catalog(&["Serving False Unavailable", "Progressing True Succeeded"]), "Progressing", "Progressing message"),
        (
            changed(catalog(&["Serving False UserSpecifiedUnavailable", "Progressing True Succeeded"]), "/spec",
                json!({"availabilityMode": "Unavailable"})),
            "Suspended", "switched off by spec.availabilityMode"),
        (set(&[]), "Progressing", "the spec has not been looked at yet"),
        (set(&["Progressing True RollingOut", "Available False ProbeFailure"]), "Progressing", "Progressing message"),
        (set(&["Progressing True Succeeded", "Available True ProbesSucceeded"]), "Healthy", "Available message"),
        (set(&["Progressing True Succeeded", "Available False ProbeFailure"]), "Degraded", "Available message"),
        (set(&["Progressing False Blocked", "Available Unknown Reconciling"]), "Degraded", "Progressing message"),
        (changed(set(&["Progressing False Archived"]), "/spec/lifecycleState", json!("Archived")), "Healthy", "archived"),
    ];
    let objects: Vec<Value> = cases.iter().map(|(object, _, _)| object.clone()).collect();
    let answers = health(&objects)?;
    ensure!(answers.len() == cases.len(), "{} answers", answers.len());
    for ((object, status, message), answer) in cases.iter().zip(&answers) {
        ensure!(*answer == json!({"status": status, "message": message}), "{object}: {answer}");
    }
    Ok(())
}
