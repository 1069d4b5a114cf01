//! Manifests rendered by `kubectl kustomize`, and clusters that they are applied to by `kubectl apply`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use olm_kit::{Cluster, SYSTEM_NAMESPACE, Tools, repository};
use serde_json::{Value, json};

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

/// Kinds of others that manifests name: the files of their CRDs beside the tools.
const FOREIGN: &[&str] = &[
    "cert-manager.io_certificates.yaml",
    "cert-manager.io_clusterissuers.yaml",
    "cert-manager.io_issuers.yaml",
    "monitoring.coreos.com_prometheusrules.yaml",
    "monitoring.coreos.com_servicemonitors.yaml",
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
    for file in FOREIGN {
        cluster.apply(&std::fs::read_to_string(Tools::locate()?.program(file)?)?).await?;
    }
    Ok(())
}

/// Makes the account of pods that name none, where no controller-manager runs that would.
pub(crate) async fn make_default_account(cluster: &Cluster) -> Result<()> {
    let account = format!(
        "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: default, namespace: {SYSTEM_NAMESPACE}}}}}"
    );
    cluster.apply(&account).await.map(drop)
}

/// `kubectl apply --server-side -k`, and no warning about it. Unknown fields are errors.
pub(crate) fn apply(cluster: &Cluster, path: &str) -> Result<()> {
    apply_with(cluster, "-k", &folder(path), &[])
}

/// The same of a file, or of all files of a folder, in a dry run: kubectl asks for all APIs each time that it runs.
pub(crate) fn apply_dry(cluster: &Cluster, files: &Path, more: &[&str]) -> Result<()> {
    apply_with(cluster, "-f", files, &[&["--dry-run=server"][..], more].concat())
}

fn apply_with(cluster: &Cluster, flag: &str, path: &Path, more: &[&str]) -> Result<()> {
    let mut command = cluster.kubectl()?;
    command.args(["apply", "--server-side", "--validate=strict", flag]).arg(path).args(more);
    let output = command.stdin(Stdio::null()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let (path, status) = (path.display(), output.status);
    ensure!(status.success() && errors.is_empty(), "kubectl apply {flag} {path}: {status}\n{errors}");
    Ok(())
}

/// Writes objects to a file for [`apply_dry`].
pub(crate) fn write_list(file: &Path, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(file, list.to_string()).with_context(|| file.display().to_string())
}

/// The standard output of a command that succeeds.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
