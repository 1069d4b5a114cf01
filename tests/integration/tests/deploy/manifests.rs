//! Manifests rendered by `kubectl kustomize`, and clusters that they are applied to by `kubectl apply`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use olm_kit::{Cluster, Tools, repository};
use serde_json::Value;

/// Whole installations, and what can be applied beside them.
pub(crate) const OVERLAYS: &[&str] = &[
    "overlays/kubernetes",
    "overlays/restricted",
    "overlays/cert-manager",
    "overlays/openshift",
    "overlays/dev",
];
/// See [`OVERLAYS`].
pub(crate) const OPTIONS: &[&str] = &[
    "options/aggregated-roles",
    "options/default-catalogs",
    "options/openshift-catalogs",
    "options/guard-rails",
    "options/mutating-policy",
    "options/prometheus",
    "options/prometheus-cert-manager",
];

/// Kinds of others that manifests name: group, plural, kind, scope.
const FOREIGN: &[(&str, &str, &str, &str)] = &[
    ("cert-manager.io", "issuers", "Issuer", "Namespaced"),
    ("cert-manager.io", "clusterissuers", "ClusterIssuer", "Cluster"),
    ("cert-manager.io", "certificates", "Certificate", "Namespaced"),
    ("monitoring.coreos.com", "servicemonitors", "ServiceMonitor", "Namespaced"),
    ("monitoring.coreos.com", "prometheusrules", "PrometheusRule", "Namespaced"),
];

/// The folder of an overlay or option.
pub(crate) fn folder(path: &str) -> PathBuf {
    repository().join("manifests").join(path)
}

/// What an overlay or option consists of.
pub(crate) fn render(path: &str) -> Result<Vec<Value>> {
    let text = stdout_of(Tools::locate()?.command("kubectl")?.arg("kustomize").arg(folder(path)))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).map_err(|problem| anyhow::anyhow!("{path}: {problem}"))?;
    ensure!(!documents.is_empty(), "{path} is empty");
    Ok(documents)
}

/// The object of this kind and name.
pub(crate) fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    documents
        .iter()
        .find(|document| document["kind"] == kind && document["metadata"]["name"] == name)
        .with_context(|| format!("no {kind} {name}"))
}

/// Makes the namespaces and kinds of others that manifests refer to.
pub(crate) async fn prepare(cluster: &Cluster) -> Result<()> {
    for namespace in ["cert-manager", "openshift-config", "openshift-monitoring"] {
        cluster
            .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"))
            .await?;
    }
    for (group, plural, kind, scope) in FOREIGN {
        let crd = serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": scope,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        cluster.apply(&crd.to_string()).await?;
    }
    Ok(())
}

/// `kubectl apply --server-side -k`, and no warning about it. Unknown fields are errors.
pub(crate) fn apply(cluster: &Cluster, path: &str, more: &[&str]) -> Result<()> {
    let folder = folder(path);
    let mut command = cluster.kubectl()?;
    command.args(["apply", "--server-side", "--validate=strict", "-k"]).arg(folder).args(more);
    let output = command.stdin(Stdio::null()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && errors.is_empty(),
        "kubectl apply -k {path}: {}\n{errors}",
        output.status
    );
    Ok(())
}

/// The standard output of a command that succeeds.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
