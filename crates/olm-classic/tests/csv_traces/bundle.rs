//! ClusterServiceVersions from the short form of bundles in the scenarios.

use olm_api::classic::ClusterServiceVersion;
use serde_json::{Value, json};

use crate::lab::merge;

const MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];

/// A CSV and the CustomResourceDefinitions beside it.
pub(crate) struct Bundle {
    pub(crate) csv: ClusterServiceVersion,
    pub(crate) crds: Vec<(String, Vec<String>)>,
}

pub(crate) fn list(value: &Value, member: &str) -> Option<Vec<Value>> {
    value.get(member).and_then(Value::as_array).cloned()
}

/// The bundle of a package at a version; `group` is the API group of its kinds.
pub(crate) fn bundle(package: &str, version: &str, short: &Value, group: &str, namespace: &str) -> Bundle {
    let crds: Vec<_> = list(short, "crds").unwrap_or_else(|| vec![json!({"kind": "Widget"})]);
    let crds: Vec<(Value, String, Vec<String>)> = crds
        .iter()
        .map(|crd| {
            let kind = crd["kind"].as_str().unwrap().to_owned();
            let versions = list(crd, "versions").unwrap_or_else(|| vec![json!({"name": "v1"})]);
            let versions = versions.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
            let group = crd.get("group").and_then(Value::as_str).unwrap_or(group);
            (kind.as_str().into(), format!("{}s.{group}", kind.to_lowercase()), versions)
        })
        .collect();
    let account = format!("{package}-sa");
    let deployments =
        list(short, "deployments").unwrap_or_else(|| vec![json!({"name": format!("{package}-ctrl")})]);
    let deployments: Vec<_> = deployments.iter().map(|it| deployment(it, &account)).collect();
    let permissions = list(short, "permissions").unwrap_or_else(|| {
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]});
        vec![json!({"serviceAccountName": account, "rules": [rule]})]
    });
    let cluster_permissions = list(short, "clusterPermissions").unwrap_or_else(|| {
        let rule = json!({"apiGroups": [group], "resources": ["*"], "verbs": ["*"]});
        vec![json!({"serviceAccountName": account, "rules": [rule]})]
    });
    let modes = list(short, "installModes").unwrap_or_else(|| MODES.map(Value::from).to_vec());
    let modes: Vec<_> =
        MODES.iter().map(|it| json!({"type": it, "supported": modes.contains(&json!(it))})).collect();
    let owned: Vec<_> = crds
        .iter()
        .map(|(kind, name, versions)| json!({"name": name, "kind": kind, "version": versions[0]}))
        .collect();
    let mut csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{package}.v{version}"), "namespace": namespace, "uid": format!("uid of {package} {version}"),
            "annotations": short.get("csvAnnotations").cloned().unwrap_or_else(|| json!({})),
        },
        "spec": {
            "displayName": package, "version": version, "installModes": modes,
            "install": {"strategy": "deployment", "spec": {
                "deployments": deployments, "permissions": permissions, "clusterPermissions": cluster_permissions,
            }},
            "customresourcedefinitions": {"owned": owned},
            "webhookdefinitions": list(short, "webhooks").unwrap_or_default(),
        },
    });
    if let Some(patch) = short.get("csvPatch") {
        merge(&mut csv, patch);
    }
    let crds = crds.into_iter().map(|(_, name, versions)| (name, versions)).collect();
    Bundle { csv: serde_json::from_value(csv).unwrap(), crds }
}

fn deployment(short: &Value, account: &str) -> Value {
    let name = &short["name"];
    let text =
        |member: &str, default: &str| short.get(member).and_then(Value::as_str).unwrap_or(default).to_owned();
    let mut pod = json!({
        "serviceAccountName": text("sa", account),
        "containers": [{
            "name": "manager", "image": text("image", "lab.invalid/manager:v1"), "command": ["/manager"],
            "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true},
        }],
    });
    if let Some(spec) = short.get("spec") {
        merge(&mut pod, spec);
    }
    let mut template = json!({"metadata": {"labels": {"app": name}}, "spec": pod});
    if let Some(annotations) = short.get("annotations") {
        template["metadata"]["annotations"] = annotations.clone();
    }
    json!({"name": name, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}})
}
