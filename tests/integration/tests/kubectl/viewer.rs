//! The role for people who only read: every reading verb works with it, and names what it leaves out.

use anyhow::{Context as _, Result, ensure};
use olm_kit::{Ca, Cluster, Stack, repository};
use serde_json::{Value, json};

use crate::cluster::{User, serve, want};

const VIEWER: &str = "operator-controller-clusterextension-viewer-role";
const EDITOR: &str = "operator-controller-clusterextension-editor-role";

/// Grants the shipped viewer role to the group `viewers`.
pub(crate) async fn bind_viewer_role(cluster: &Cluster) -> Result<()> {
    bind(cluster, VIEWER, "viewers").await
}

/// Grants a shipped role to a group.
async fn bind(cluster: &Cluster, name: &str, group: &str) -> Result<()> {
    let manifest = repository().join("manifests/base/operator-controller/rbac.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(manifest)?)
        .map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let role = documents.iter().find(|object| object["metadata"]["name"] == name);
    let role = role.with_context(|| format!("there is no {name}"))?;
    cluster.apply(&role.to_string()).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": group},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    });
    cluster.apply(&binding.to_string()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewer_role_is_enough_for_reading_verbs() -> Result<()> {
    let stack = Stack::start().await?;
    let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}"#;
    stack.cluster.apply(namespace).await?;
    serve(&stack.cluster, &stack.registry).await?;
    want(&stack, "1.0.0").await?;
    bind_viewer_role(&stack.cluster).await?;
    let ca = Ca::shared()?;
    let (dir, certificate) = (ca.dir().display().to_string(), ca.certificate().display().to_string());
    let url = stack.catalogd.content_url();
    let flags = ["--catalogd-url", &url, "--catalogd-cas-dir", &dir];
    let kubeconfig = stack.cluster.kubeconfig_as("vera", &["viewers"])?.display().to_string();
    let viewer = User { kubeconfig, ..User::new(&stack.cluster, &flags)? };
    // the authorizer learns of the role through a watch
    olm_kit::eventually("the role counts", std::time::Duration::from_secs(60), || async {
        viewer.output(0, &["list"])
    })
    .await?;
    let registry = ["--ca-file", &certificate];
    let upgrade = ["plan", "my-demo", "--any-version"];
    for (verb, code, part) in [
        (&["list"][..], 0, "1.0.0"),
        (&["status", "my-demo"], 0, "you may not get secrets in namespace olmv1-system"),
        (&["history", "my-demo"], 0, "1.0.0"),
        (&["explain", "my-demo"], 0, "1.0.0"),
        (&["diff", "my-demo"], 3, "you may not get secrets in namespace olmv1-system"),
        (&[&["plan", "my-demo"][..], &registry].concat(), 0, "Nothing would change"),
        (&[&upgrade[..], &registry].concat(), 1, "you may not get deployments.apps in namespace demo"),
        (&["uninstall", "my-demo", "--dry-run"], 0, "would delete ClusterExtension my-demo"),
        (&["upgrade-check", "--from", "4.18.0"], 0, ""),
        (&["search"], 0, "demo"),
        (&["show", "demo"], 0, "Bundle demo.v1.1.0"),
        (&["versions", "demo"], 0, "1.1.0"),
        (&["graph", "demo"], 0, "1.1.0"),
        (&["catalogs"], 0, "operators"),
        (&["outdated"], 0, "1.1.0"),
    ] {
        let (got, out, errors) = viewer.run(verb)?;
        let text = out + &errors;
        ensure!(
            got == code && text.contains(part),
            "{verb:?} ended with {got}, not {code}, or {part:?} is missing:\n{text}"
        );
        ensure!(!text.contains("forbidden"), "{verb:?}:\n{text}");
    }
    editor_role_is_enough_to_upgrade(&stack, &[&flags[..], &registry].concat()).await?;
    silent_catalogd_is_waited_for_once(&stack.cluster)
}

/// Objects that an editor may not read are no reason to refuse the change, and containers that cannot be watched none to fail.
async fn editor_role_is_enough_to_upgrade(stack: &Stack, flags: &[&str]) -> Result<()> {
    bind(&stack.cluster, EDITOR, "editors").await?;
    let kubeconfig = stack.cluster.kubeconfig_as("eddy", &["editors"])?.display().to_string();
    let editor = User { kubeconfig, ..User::new(&stack.cluster, flags)? };
    olm_kit::eventually("the role counts", std::time::Duration::from_secs(60), || async {
        editor.output(0, &["list"])
    })
    .await?;
    let (code, out, errors) = editor.run(&["upgrade", "my-demo", "--any-version", "--wait"])?;
    ensure!((code, out.as_str()) == (0, "my-demo is Ready\n"), "{code} {out}{errors}");
    let note = "containers are not watched: you may not get secrets in namespace olmv1-system";
    ensure!(errors.contains(note), "{errors}");
    Ok(())
}

/// Whatever the number of catalogs and packages.
fn silent_catalogd_is_waited_for_once(cluster: &Cluster) -> Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let user = User::new(cluster, &["--catalogd-url", &url, "--request-timeout", "2s"])?;
    for (verb, code, text) in [
        (&["search"][..], 3, format!("cannot reach catalogd at {url}: no answer within 2 s")),
        (&["list"], 0, "my-demo".to_owned()),
    ] {
        let started = std::time::Instant::now();
        let found = user.output(code, verb)?;
        let took = started.elapsed().as_secs_f64();
        ensure!(found.matches(&text).count() == 1, "{verb:?}:\n{found}");
        ensure!((2.0..4.0).contains(&took), "{verb:?} took {took} s");
    }
    Ok(())
}
