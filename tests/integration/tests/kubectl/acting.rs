//! Verbs that change the desired state, against a real control plane, registry, catalogd and operator-controller.
//!
//! kwok makes pods Running, so the Deployment of the package becomes available; no container runs.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::{ClusterExtension, annotations};
use olm_integration::package::serve_package;
use olm_kit::{BundleImage, Crd, Stack};
use serde_json::{Value, json};

struct Cli<'a>(&'a Stack);

impl Cli<'_> {
    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(olm_kit::built("kubectl-olm")?);
        command.env("KUBECONFIG", self.0.cluster.kubeconfig()).env("NO_COLOR", "1").args(arguments);
        Ok(command)
    }

    async fn run(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = self.command(arguments)?;
        // the stack's own tasks continue meanwhile
        tokio::task::spawn_blocking(move || command.output()).await?.context("kubectl-olm does not start")
    }

    /// Standard output of a verb that succeeds.
    async fn yes(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments).await?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "{arguments:?}: {}: {errors}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Exit code and standard error of a verb that fails.
    async fn no(&self, arguments: &[&str]) -> Result<(Option<i32>, String)> {
        let output = self.run(arguments).await?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    }
}

/// The issuer of webhook certificates is the one that the controller would choose: cert-manager, whose API is served.
async fn rbac_includes_objects_of_the_issuer(stack: &Stack, cli: &Cli<'_>, paths: &[&str; 4]) -> Result<()> {
    for kind in ["Certificate", "Issuer"] {
        let plural = format!("{}s", kind.to_lowercase());
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let stub = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cert-manager.io")},
            "spec": {"group": "cert-manager.io", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
        });
        stack.cluster.apply(&stub.to_string()).await?;
    }
    let client = stack.cluster.client().await?;
    olm_kit::eventually("the API is served", std::time::Duration::from_secs(60), || async {
        let groups = client.list_api_groups().await?.groups;
        anyhow::ensure!(groups.iter().any(|group| group.name == "cert-manager.io"), "not yet");
        Ok(())
    })
    .await?;
    let hook = json!({"type": "ValidatingAdmissionWebhook", "generateName": "v.hooked.example.com",
        "deploymentName": "hooked-ctrl", "containerPort": 443, "targetPort": 9443, "sideEffects": "None",
        "failurePolicy": "Ignore", "admissionReviewVersions": ["v1"], "webhookPath": "/validate",
        "rules": [{"apiGroups": ["hooked.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]});
    let bundle = BundleImage::new("hooked", "1.0.0").crds([]).webhook(hook);
    serve_package(&stack.cluster, &stack.registry, "hooked", [("1.0.0", bundle)]).await?;
    let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hooked"}}"#;
    stack.cluster.apply(namespace).await?;
    cli.yes(&["install", "hooked", "--namespace", "hooked", "--service-account", "installer"]).await?;
    let [ca, url, cas, home] = paths;
    let flags = ["--ca-file", ca, "--catalogd-url", url, "--catalogd-cas-dir", cas, "--cache-dir", home];
    let roles = cli.yes(&[&["rbac", "hooked"][..], &flags].concat()).await?;
    assert!(
        roles.contains(r#""apiGroups":["cert-manager.io"],"resources":["certificates","issuers"]"#),
        "{roles}"
    );
    cli.yes(&["uninstall", "hooked", "--wait"]).await.map(drop)
}

/// A paused extension ends a wait immediately; an uninstall lists the custom resources that go, and what it waits for.
async fn uninstall_names_custom_resources(stack: &Stack, cli: &Cli<'_>) -> Result<()> {
    let bundle = BundleImage::new("gadgets", "1.0.0").crds([Crd::new("Gadget", "gadgets.example.com")]);
    serve_package(&stack.cluster, &stack.registry, "gadgets", [("1.0.0", bundle)]).await?;
    let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gadgets"}}"#;
    stack.cluster.apply(namespace).await?;
    cli.yes(&["install", "gadgets", "--namespace", "gadgets", "--wait", "--settle", "1s"]).await?;
    for (namespace, name) in [("default", "b"), ("gadgets", "a")] {
        let gadget = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget", "metadata": {"name": name, "namespace": namespace}});
        stack.cluster.apply(&gadget.to_string()).await?;
    }
    let extensions: Api<ClusterExtension> = Api::all(stack.cluster.client().await?);
    let annotate = async |key: &str, value: Value| {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        extensions.patch("gadgets", &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    annotate(annotations::PAUSED, json!("true")).await?;
    let (code, text) = cli.no(&["upgrade", "gadgets", "--any-version", "--wait"]).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("run `kubectl olm resume gadgets`"), "{text}");
    annotate(annotations::PAUSED, Value::Null).await?;

    let list = "gadgets.gadgets.example.com: 2\n    namespace default: b\n    namespace gadgets: a";
    let text = cli.yes(&["uninstall", "gadgets", "--dry-run"]).await?;
    assert!(text.contains(list), "{text}");
    annotate(annotations::PROTECT_CUSTOM_RESOURCES, json!("true")).await?;
    let (code, text) = cli.no(&["uninstall", "gadgets", "--wait", "--timeout", "20s"]).await?;
    let waiting = "custom resources are protected and must be deleted first: 2 gadgets.gadgets.example.com";
    assert_eq!((code, text.contains(list)), (Some(1), true), "{text}");
    let end =
        format!("timed out after 20s; it continues in the cluster. Last state: uninstalling: {waiting}");
    assert!(text.contains(&format!("uninstalling: {waiting}")) && text.contains(&end), "{text}");
    // an account that lacks a right for the removal still gets its roles
    let roles = cli.run(&["rbac", "gadgets", "--service-account", "installer"]).await?;
    let notes = String::from_utf8_lossy(&roles.stderr).into_owned();
    assert!(
        roles.status.success() && notes.contains("roles for revision 1, which is being removed"),
        "{notes}"
    );
    let roles = String::from_utf8(roles.stdout)?;
    assert!(roles.contains(r#""resources":["customresourcedefinitions"]"#), "{roles}");
    annotate(annotations::PROTECT_CUSTOM_RESOURCES, Value::Null).await?;
    cli.yes(&["uninstall", "gadgets", "--wait"]).await.map(drop)
}

/// Ctrl-C in verbs that wait, once they have printed something.
async fn interrupts_end_with_130(cli: &Cli<'_>) -> Result<()> {
    for (arguments, undo) in [
        (&["status", "demo", "--watch"][..], ""),
        (&["list", "--watch"], ""),
        (
            &["catalogs", "add", "never", "127.0.0.1:1/never:v1", "--wait"],
            "To undo: `kubectl olm catalogs remove never`",
        ),
    ] {
        let mut child = cli.command(arguments)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let is_watch = arguments.contains(&"--watch");
        let mut printed: Box<dyn Read + Send> = match is_watch {
            true => Box::new(child.stdout.take().context("no output")?),
            false => Box::new(child.stderr.take().context("no errors")?),
        };
        let id = child.id().to_string();
        let (text, status) = tokio::task::spawn_blocking(move || -> Result<_> {
            let mut first = [0; 1];
            printed.read_exact(&mut first)?;
            // the handler is there when something is waited for
            let mut reader = BufReader::new(printed);
            let mut text = String::new();
            while !is_watch && !text.contains("Retrying") && reader.read_line(&mut text)? > 0 {}
            anyhow::ensure!(Command::new("kill").args(["-INT", &id]).status()?.success(), "kill fails");
            reader.read_to_string(&mut text)?;
            Ok((text, child.wait()?))
        })
        .await??;
        assert_eq!(status.code(), Some(130), "{arguments:?}: {text}");
        assert!(is_watch || text.contains(undo), "{text}");
    }
    cli.yes(&["catalogs", "remove", "never"]).await.map(drop)
}

/// A support bundle of the real cluster: what is there is in it, what is missing has a reason.
async fn report_is_written(stack: &Stack, cli: &Cli<'_>, home: &Path) -> Result<()> {
    let secret = "planted-in-the-environment";
    let container = json!({"name": "main", "image": "example.invalid/main:v1", "env": [{"name": "PLAIN", "value": secret}],
        "args": ["--password", secret]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "program", "namespace": "olmv1-system", "annotations": {"note": secret}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}});
    stack.cluster.apply(&deployment.to_string()).await?;
    let folder = home.join("report");
    let path = folder.display().to_string();
    cli.yes(&["report", "--output", &path]).await?;
    let summary = std::fs::read_to_string(folder.join("summary.txt"))?;
    let counts = ["ClusterExtension: 1\n", "  demo ", "Deployment: 1\n"];
    for part in counts.into_iter().chain(["example.invalid/main:v1", "metrics and profiles: "]) {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    let revision = std::fs::read_to_string(folder.join("clusterobjectsets/demo-1.yaml"))?;
    assert!(revision.contains("kind: ClusterObjectSet"), "{revision}");
    let program = std::fs::read_to_string(folder.join("deployments/program.yaml"))?;
    assert!(program.contains("name: PLAIN") && !program.contains(secret), "{program}");
    let (code, text) = cli.no(&["report", "--output", &path]).await?;
    assert!(code == Some(2) && text.contains("exists already"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_installs_upgrades_rolls_back_and_uninstalls() -> Result<()> {
    let stack = Stack::start().await?;
    let cli = Cli(&stack);
    let bundles =
        ["1.0.0", "1.1.0", "2.0.0"].map(|version| (version, BundleImage::new("demo", version).crds([])));
    serve_package(&stack.cluster, &stack.registry, "demo", bundles).await?;
    let extensions: Api<ClusterExtension> = Api::all(stack.cluster.client().await?);

    let ca = olm_kit::Ca::shared()?.certificate().display().to_string();
    let url = stack.catalogd.content_url();
    let cas = olm_kit::Ca::shared()?.dir().display().to_string();
    let home = tempfile::tempdir()?;
    let home = home.path().display().to_string();
    let flags = ["--ca-file", &ca, "--catalogd-url", &url, "--catalogd-cas-dir", &cas, "--cache-dir", &home];

    // nothing happens on a dry run, and the manifest is what one would keep in git
    let install = ["install", "demo", "--namespace", "demo", "--version", "1.0.0"];
    let manifest = cli.yes(&[&install[..], &["--dry-run", "-o", "json"]].concat()).await?;
    let manifest: Value = serde_json::from_str(&manifest)?;
    assert_eq!(
        manifest,
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "demo"},
            "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {
                "packageName": "demo", "version": "1.0.0", "upgradeConstraintPolicy": "CatalogProvided"}}}})
    );
    assert!(extensions.get_opt("demo").await?.is_none());
    let (_, text) = cli.no(&[&["install", "demmo", "--namespace", "default"][..], &flags].concat()).await?;
    assert!(text.contains("did you mean demo?"), "{text}");
    // the plan is made, too; the manifest is printed whatever it comes to
    let none = ["install", "demo", "--namespace", "default", "--version", "9.0.0", "--dry-run", "-o", "json"];
    let refused = cli.run(&[&none[..], &flags].concat()).await?;
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("install would be refused") && errors.contains("no bundles found"), "{errors}");
    assert_eq!(serde_json::from_slice::<Value>(&refused.stdout)?["kind"], "ClusterExtension");

    // an account that may do nothing: its roles are printed before there is a revision, from the bundle that would be chosen
    stack.cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: other}}").await?;
    let other = "install demo --name other --namespace other --service-account installer";
    cli.yes(&other.split(' ').collect::<Vec<_>>()).await?;
    let roles = cli.yes(&[&["rbac", "other"][..], &flags].concat()).await?;
    assert!(roles.contains(r#""resources":["deployments"],"verbs":["create"]"#), "{roles}");
    cli.yes(&["uninstall", "other", "--wait"]).await?;
    rbac_includes_objects_of_the_issuer(&stack, &cli, &[&ca, &url, &cas, &home]).await?;
    uninstall_names_custom_resources(&stack, &cli).await?;

    let text = cli.yes(&[&install[..], &["--create-namespace", "--wait"]].concat()).await?;
    assert_eq!(text, "demo is Ready\n");
    let (code, text) = cli.no(&install).await?;
    assert_eq!(code, Some(2));
    assert!(
        text.contains("there is a ClusterExtension \"demo\" already; `kubectl olm upgrade demo`"),
        "{text}"
    );

    // nothing to go back to yet
    let (code, text) = cli.no(&["rollback", "demo"]).await?;
    assert_eq!(code, Some(1));
    assert!(text.contains("demo has no earlier revision with another version than 1.0.0"), "{text}");
    let (code, text) = cli.no(&["upgrade", "demo"]).await?;
    assert_eq!(code, Some(2));
    assert!(text.contains("there is nothing to change: give --version RANGE"), "{text}");
    let (code, text) = cli.no(&["upgrade", "demo", "--version", "1.0.0-01"]).await?;
    assert_eq!(code, Some(2), "{text}");
    let (code, text) = cli.no(&["upgrade", "dem", "--any-version"]).await?;
    assert_eq!(code, Some(1));
    assert!(text.contains("there is no ClusterExtension \"dem\"; did you mean demo?"), "{text}");

    // one edge at a time: 2.0.0 cannot be reached from 1.0.0, so the plan refuses it; with --force, waiting for it ends with a no
    let (code, text) = cli.no(&[&["upgrade", "demo", "--version", "2.0.0"][..], &flags].concat()).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("upgrade would be refused, so nothing was changed"), "{text}");
    let (code, text) = cli.no(&["upgrade", "demo", "--version", "2.0.0", "--force", "--wait"]).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("take the request back with: kubectl olm upgrade demo"), "{text}");
    assert_eq!(cli.yes(&["upgrade", "demo", "--any-version", "--wait"]).await?, "demo is Ready\n");

    let history: Vec<Value> = serde_json::from_str(&cli.yes(&["history", "demo", "-o", "json"]).await?)?;
    let seen: Vec<_> =
        history.iter().map(|row| (&row["revision"], &row["version"], &row["installed"])).collect();
    let newest = seen.last().context("no revisions")?;
    assert_eq!((seen.len() >= 2, newest.2), (true, &json!(true)), "{seen:?}");

    let text = cli.yes(&["rollback", "demo", "--to-revision", "1", "--wait"]).await?;
    assert_eq!(text, "demo is Ready\n");
    let extension = extensions.get("demo").await?;
    let installed = extension.status.and_then(|status| status.install).context("nothing is installed")?;
    assert_eq!(installed.bundle.version, "1.0.0");
    let catalog = extension.spec.source.catalog.context("no catalog")?;
    assert_eq!(catalog.version.as_deref(), Some("1.0.0"));

    // two revisions are named as kubectl's users name them, or by the flag
    let by_position = cli.run(&["diff", "demo", "1", "2", "-o", "json"]).await?;
    let by_flag = cli.run(&["diff", "demo", "--revision", "1", "--revision", "2", "-o", "json"]).await?;
    assert_eq!(by_position.status.code(), Some(1), "{}", String::from_utf8_lossy(&by_position.stderr));
    assert_eq!(by_position.stdout, by_flag.stdout);

    report_is_written(&stack, &cli, Path::new(&home)).await?;
    interrupts_end_with_130(&cli).await?;

    // the other field manager that owns the version is named
    let applied = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "demo"},
        "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo", "version": "1.0.0"}}}});
    extensions.patch("demo", &PatchParams::apply("from-git").force(), &Patch::Apply(&applied)).await?;
    let output = cli.run(&["upgrade", "demo", "--any-version", "--dry-run=server"]).await?;
    let text = String::from_utf8(output.stderr)?;
    assert!(text.contains("spec.source.catalog.version is also written by \"from-git\""), "{text}");
    assert_eq!(
        extensions.get("demo").await?.spec.source.catalog.and_then(|c| c.version).as_deref(),
        Some("1.0.0")
    );

    let roles = cli.yes(&["rbac", "demo", "--service-account", "installer"]).await?;
    assert!(roles.contains(r#""resources":["deployments"],"verbs":["create"]"#), "{roles}");
    stack.cluster.apply(&roles).await.context("the roles cannot be applied")?;

    let text = cli.yes(&["uninstall", "demo", "--dry-run"]).await?;
    assert!(text.contains("would delete ClusterExtension demo") && text.contains("(dry run)"), "{text}");
    // of several names each has its line; one that is not there does not keep the others
    let (code, text) = cli.no(&["uninstall", "demo", "never", "--wait"]).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("there is no ClusterExtension \"never\""), "{text}");
    assert!(extensions.get_opt("demo").await?.is_none(), "demo is left");
    let (code, _) = cli.no(&["uninstall", "demo"]).await?;
    assert_eq!(code, Some(1));
    Ok(())
}
