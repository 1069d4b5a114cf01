//! Verbs that change what is wished, against everything real: control plane, registry, catalogd and operator-controller.
//!
//! kwok makes pods Running, so the Deployment of the package becomes available; no container runs.

use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::{ClusterCatalog, ClusterExtension, condition};
use olm_kit::{BundleImage, CatalogImage, Entry, Package, Stack, Wait};
use serde_json::{Value, json};

struct Shell<'a>(&'a Stack);

impl Shell<'_> {
    async fn run(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(olm_kit::built("kubectl-olm")?);
        command.env("KUBECONFIG", self.0.cluster.kubeconfig()).env("NO_COLOR", "1").args(arguments);
        // the stack's own tasks go on meanwhile
        tokio::task::spawn_blocking(move || command.output()).await?.context("kubectl-olm does not start")
    }

    /// Standard output of a verb that says yes.
    async fn yes(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "{arguments:?}: {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Exit code and standard error of a verb that says no.
    async fn no(&self, arguments: &[&str]) -> Result<(Option<i32>, String)> {
        let output = self.run(arguments).await?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    }
}

async fn serve(stack: &Stack) -> Result<()> {
    let entries =
        [Entry::new("1.0.0"), Entry::new("1.1.0").replaces("1.0.0"), Entry::new("2.0.0").replaces("1.1.0")];
    let mut package = Package::new("demo").channel("stable", entries);
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        let bundle = BundleImage::new("demo", version).crds([]).image();
        let pushed = stack.registry.push("demo/bundle", &format!("v{version}"), &bundle).await?;
        package = package.bundle(version, &pushed.by_digest());
    }
    let image = CatalogImage::new().package(&package).image();
    let pushed = stack.registry.push("demo/catalog", "v1", &image).await?;
    let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "demo"},
        "spec": {"source": {"type": "Image", "image": {"ref": pushed.by_digest()}}}});
    stack.cluster.apply(&catalog.to_string()).await?;
    let catalogs: Api<ClusterCatalog> = Api::all(stack.cluster.client().await?);
    Wait::new(&catalogs, "demo").for_condition(condition::SERVING, "True").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_is_installed_upgraded_rolled_back_and_removed() -> Result<()> {
    let stack = Stack::start().await?;
    let shell = Shell(&stack);
    serve(&stack).await?;
    let extensions: Api<ClusterExtension> = Api::all(stack.cluster.client().await?);

    // nothing happens on a dry run, and the manifest is what one would keep in git
    let install = ["install", "demo", "--namespace", "demo", "--version", "1.0.0"];
    let manifest = shell.yes(&[&install[..], &["--dry-run", "-o", "json"]].concat()).await?;
    let manifest: Value = serde_json::from_str(&manifest)?;
    assert_eq!(
        manifest,
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "demo"},
            "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {
                "packageName": "demo", "version": "1.0.0", "upgradeConstraintPolicy": "CatalogProvided"}}}})
    );
    assert!(extensions.get_opt("demo").await?.is_none());

    // an account that may do nothing: its roles are printed before there is a revision, from the bundle that would be chosen
    stack
        .cluster
        .apply(r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}"#)
        .await?;
    shell
        .yes(&[
            "install",
            "demo",
            "--name",
            "other",
            "--namespace",
            "other",
            "--service-account",
            "installer",
        ])
        .await?;
    let ca = olm_kit::Ca::shared()?.certificate().display().to_string();
    let url = stack.catalogd.content_url();
    let cas = olm_kit::Ca::shared()?.dir().display().to_string();
    let home = tempfile::tempdir()?;
    let home = home.path().display().to_string();
    let roles = shell
        .yes(&[
            "rbac",
            "other",
            "--ca-file",
            &ca,
            "--catalogd-url",
            &url,
            "--catalogd-cas-dir",
            &cas,
            "--cache-dir",
            &home,
        ])
        .await?;
    assert!(roles.contains(r#""resources":["deployments"],"verbs":["create"]"#), "{roles}");
    shell.yes(&["uninstall", "other", "--wait"]).await?;

    let text = shell.yes(&[&install[..], &["--create-namespace", "--wait"]].concat()).await?;
    assert_eq!(text, "demo is Ready\n");
    let (code, text) = shell.no(&install).await?;
    assert_eq!(code, Some(2));
    assert!(
        text.contains("there is a ClusterExtension \"demo\" already; `kubectl olm upgrade demo`"),
        "{text}"
    );

    // nothing to go back to yet
    let (code, text) = shell.no(&["rollback", "demo"]).await?;
    assert_eq!(code, Some(1));
    assert!(text.contains("demo has no earlier revision with another version than 1.0.0"), "{text}");
    let (code, text) = shell.no(&["upgrade", "demo"]).await?;
    assert_eq!(code, Some(2));
    assert!(text.contains("say what is wanted: --version RANGE"), "{text}");
    let (code, text) = shell.no(&["upgrade", "demo", "--version", "1.0.0-01"]).await?;
    assert_eq!(code, Some(2), "{text}");
    let (code, text) = shell.no(&["upgrade", "dem", "--any-version"]).await?;
    assert_eq!(code, Some(1));
    assert!(text.contains("there is no ClusterExtension \"dem\"; did you mean demo?"), "{text}");

    // one edge at a time: 2.0.0 cannot be reached from 1.0.0, so waiting for it ends with a no
    let (code, text) = shell.no(&["upgrade", "demo", "--version", "2.0.0", "--wait"]).await?;
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(shell.yes(&["upgrade", "demo", "--any-version", "--wait"]).await?, "demo is Ready\n");

    let history: Vec<Value> = serde_json::from_str(&shell.yes(&["history", "demo", "-o", "json"]).await?)?;
    let seen: Vec<_> =
        history.iter().map(|row| (&row["revision"], &row["version"], &row["installed"])).collect();
    let newest = seen.last().context("no revisions")?;
    assert_eq!((seen.len() >= 2, newest.2), (true, &json!(true)), "{seen:?}");

    let text = shell.yes(&["rollback", "demo", "--to-revision", "1", "--wait"]).await?;
    assert_eq!(text, "demo is Ready\n");
    let extension = extensions.get("demo").await?;
    let installed = extension.status.and_then(|status| status.install).context("nothing is installed")?;
    assert_eq!(installed.bundle.version, "1.0.0");
    let catalog = extension.spec.source.catalog.context("no catalog")?;
    assert_eq!(catalog.version.as_deref(), Some("1.0.0"));

    // whoever keeps the version in git is named
    let applied = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "demo"},
        "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo", "version": "1.0.0"}}}});
    extensions.patch("demo", &PatchParams::apply("from-git").force(), &Patch::Apply(&applied)).await?;
    let output = shell.run(&["upgrade", "demo", "--any-version", "--dry-run=server"]).await?;
    let text = String::from_utf8(output.stderr)?;
    assert!(text.contains("spec.source.catalog.version is also written by \"from-git\""), "{text}");
    assert_eq!(
        extensions.get("demo").await?.spec.source.catalog.and_then(|c| c.version).as_deref(),
        Some("1.0.0")
    );

    let roles = shell.yes(&["rbac", "demo", "--service-account", "installer"]).await?;
    assert!(roles.contains(r#""resources":["deployments"],"verbs":["create"]"#), "{roles}");
    stack.cluster.apply(&roles).await.context("the roles cannot be applied")?;

    let text = shell.yes(&["uninstall", "demo", "--dry-run"]).await?;
    assert!(text.contains("(nothing was changed)"), "{text}");
    assert_eq!(shell.yes(&["uninstall", "demo", "--wait"]).await?, "ClusterExtension demo is gone\n");
    let (code, _) = shell.no(&["uninstall", "demo"]).await?;
    assert_eq!(code, Some(1));
    Ok(())
}
