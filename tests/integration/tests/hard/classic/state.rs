//! The objects of a package in the cluster, in a form in which two runs of the same operations are equal.
//!
//! Names that the apiserver makes up are replaced: an InstallPlan is named for its ClusterServiceVersions, a webhook for its prefix. Whether a
//! step found its object or created it depends on the instant of a fault, and is left out.

use std::time::Duration;

use anyhow::{Result, bail};
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use olm_integration::classic::Package;
use olm_integration::inventory::Inventory;
use olm_kit::eventually;
use serde_json::{Map, Value, json};

/// Between two reads of the cluster.
const PAUSE: Duration = Duration::from_millis(200);
const NAMESPACE_LABEL: &str = "olm.owner.namespace";
const WEBHOOK_LABEL: &str = "olm.webhook-description-generate-name";
/// Kinds that a test or Kubernetes itself writes.
const OTHERS: [&str; 5] = ["CatalogSource", "Namespace", "Secret", "ServiceAccount", "PackageManifest"];
/// Keys with a hash over a certificate.
const HASHES: [&str; 2] = ["olmcahash", "olm.deployment-spec-hash"];

/// What there is now.
pub(crate) async fn state(client: &Client, package: &Package) -> Result<Inventory> {
    Inventory::take_selected(client, |object| select(&package.name, object)).await
}

/// Waits until the cluster holds exactly this.
pub(crate) async fn reached(
    expected: &Inventory,
    client: &Client,
    package: &Package,
    within: Duration,
) -> Result<()> {
    eventually("exactly the objects of an undisturbed run", within, || async {
        let reached = expected.is(&state(client, package).await?);
        if reached.is_err() {
            // reading everything takes the time of those who work on it
            tokio::time::sleep(PAUSE).await;
        }
        reached
    })
    .await
}

/// The state once it has stopped to change.
pub(crate) async fn settled(client: &Client, package: &Package) -> Result<Inventory> {
    let mut before = Inventory::default();
    let mut same = 0;
    for _ in 0..200 {
        let now = state(client, package).await?;
        same = if now == before { same + 1 } else { 0 };
        if same == 4 {
            return Ok(now);
        }
        before = now;
        tokio::time::sleep(PAUSE).await;
    }
    bail!("the cluster does not become steady")
}

fn select(package: &str, object: &DynamicObject) -> Option<(String, Value)> {
    let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
    let namespace = object.namespace().unwrap_or_default();
    let label = |key: &str| object.labels().get(key).map(String::as_str);
    let belongs = namespace == package
        || object.name_any().contains(package)
        || label(NAMESPACE_LABEL) == Some(package);
    if !belongs {
        return None;
    }
    let spec = &object.data["spec"];
    let name = match kind {
        "InstallPlan" => format!("for {}", spec["clusterServiceVersionNames"]),
        _ => label(WEBHOOK_LABEL).map_or_else(|| object.name_any(), str::to_owned),
    };
    let key = format!("{kind} {namespace}/{name}");
    if OTHERS.contains(&kind) {
        return Some((key, Value::Null));
    }
    let mut content = match kind {
        "Subscription" => json!({"spec": spec, "status": subscription(&object.data["status"])}),
        "ClusterServiceVersion" => {
            let status = &object.data["status"];
            json!({"spec": spec, "phase": status["phase"], "reason": status["reason"]})
        }
        "InstallPlan" => json!({
            "approved": spec["approved"], "approval": spec["approval"], "status": plan(&object.data["status"]),
        }),
        "OperatorGroup" => json!({"spec": spec, "namespaces": object.data["status"]["namespaces"]}),
        "Operator" => json!({"components": components(&object.data["status"])}),
        _ => {
            let mut body = object.data.clone();
            if let Some(members) = body.as_object_mut() {
                members.remove("status");
            }
            json!({ "body": body })
        }
    };
    content["metadata"] = metadata(object);
    without_hashes(&mut content);
    Some((key, content))
}

fn metadata(object: &DynamicObject) -> Value {
    let owners = object.owner_references().iter().map(|owner| format!("{} {}", owner.kind, owner.name));
    let mut owners: Vec<String> = owners.collect();
    owners.sort();
    json!({
        "labels": object.labels(), "annotations": object.annotations(), "owners": owners,
        "finalizers": object.finalizers(), "deleted": object.metadata.deletion_timestamp.is_some(),
    })
}

fn subscription(status: &Value) -> Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions: Map<String, Value> = conditions
        .map(|it| (it["type"].as_str().unwrap_or_default().to_owned(), it["status"].clone()))
        .collect();
    json!({"state": status["state"], "current": status["currentCSV"], "installed": status["installedCSV"], "conditions": conditions})
}

fn plan(status: &Value) -> Value {
    let is_done = |step: &Value| matches!(step["status"].as_str(), Some("Created" | "Present"));
    let steps = status["plan"].as_array().into_iter().flatten();
    let steps: Vec<Value> = steps
        .map(|step| {
            let resource = &step["resource"];
            let outcome = if is_done(step) { json!("done") } else { step["status"].clone() };
            json!([step["resolving"], resource["kind"], resource["name"], outcome])
        })
        .collect();
    json!({"phase": status["phase"], "steps": steps})
}

/// But for InstallPlans, whose names the apiserver makes up, and webhooks.
fn components(status: &Value) -> Vec<String> {
    let refs = status.pointer("/components/refs").and_then(Value::as_array).into_iter().flatten();
    let mut components: Vec<String> = refs
        .filter(|it| it["kind"] != "InstallPlan")
        .map(|it| format!("{} {}/{}", it["kind"], it["namespace"], it["name"]))
        .collect();
    components.sort();
    components
}

fn without_hashes(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if HASHES.contains(&key.as_str()) {
                    *member = "<hash>".into();
                } else {
                    without_hashes(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_hashes),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
