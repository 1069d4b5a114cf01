//! The reading verbs against a real cluster with our catalogd and operator-controller, and what outlives catalogd.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::{ClusterCatalog, ClusterExtension, condition};
use olm_integration::package::{entries, push_bundle};
use olm_kit::{
    BundleImage, Ca, CatalogImage, Cluster, Package, Program, Registry, RunDir, Stack, Wait, eventually,
};
use serde_json::{Value, json};

use crate::viewer::bind_viewer_role;

pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The program as a user runs it.
pub(crate) struct User {
    pub(crate) kubeconfig: String,
    pub(crate) cache: RunDir,
    pub(crate) more: Vec<String>,
}

impl User {
    pub(crate) fn new(cluster: &Cluster, more: &[&str]) -> Result<Self> {
        let kubeconfig = cluster.kubeconfig().display().to_string();
        let more = more.iter().map(|flag| (*flag).to_owned()).collect();
        Ok(Self { kubeconfig, cache: RunDir::new("cli-cache")?, more })
    }

    /// Exit code and both outputs. `status` reads no catalogs and knows no flags about them.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<(i32, String, String)> {
        let mut command = Command::new(olm_kit::built("kubectl-olm")?);
        command
            .args(arguments)
            .args(["--kubeconfig", &self.kubeconfig])
            .env("XDG_CACHE_HOME", self.cache.path());
        if arguments[0] != "status" {
            command.args(&self.more);
        }
        let output = command.output()?;
        let code = output.status.code().context("killed")?;
        Ok((code, String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
    }

    /// What is printed with this exit code.
    pub(crate) fn output(&self, code: i32, arguments: &[&str]) -> Result<String> {
        let (got, out, error) = self.run(arguments)?;
        if got != code {
            bail!("{arguments:?} ended with {got}, not {code}\n{out}\n{error}");
        }
        Ok(if code == 0 { out } else { out + &error })
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let (_, out, error) = self.run(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&out).with_context(|| format!("{arguments:?}: {out}{error}"))
    }
}

fn has(text: &str, expected: &[&str]) -> Result<()> {
    for part in expected {
        if !text.contains(part) {
            bail!("{part:?} is not in:\n{text}");
        }
    }
    Ok(())
}

/// Pushes a package with two versions, and waits until it is served.
pub(crate) async fn serve(cluster: &Cluster, registry: &Registry) -> Result<()> {
    let mut package = Package::new("demo");
    for version in ["1.0.0", "1.1.0"] {
        let bundle = BundleImage::new("demo", version).crds([]);
        package = package.bundle(version, &push_bundle(registry, "demo", version, &bundle).await?);
    }
    let package = package.channel("stable", entries(["1.0.0", "1.1.0"]));
    let image = CatalogImage::new().package(&package).image();
    let pushed = registry.push("demo/catalog", "latest", &image).await?;
    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "operators"},
        "spec": {"priority": 5, "source": {"type": "Image", "image": {"ref": pushed.by_tag()}}},
    });
    cluster.apply(&catalog.to_string()).await?;
    let catalogs: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    Wait::new(&catalogs, "operators").within(LIMIT).for_condition("Serving", "True").await?;
    Ok(())
}

pub(crate) async fn want(stack: &Stack, version: &str) -> Result<()> {
    let extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "my-demo"},
        "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo", "version": version}}},
    });
    stack.cluster.apply(&extension.to_string()).await?;
    let extensions: Api<ClusterExtension> = Api::all(stack.cluster.client().await?);
    let wait = Wait::new(&extensions, "my-demo").within(LIMIT).log(stack.operator_controller.log());
    wait.until(&format!("{version} is installed and Ready"), |extension: &ClusterExtension| {
        let Some(status) = &extension.status else { return false };
        condition::is_true(&status.conditions, condition::READY)
            && status.install.as_ref().is_some_and(|install| install.bundle.version == version)
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_the_cluster_and_its_cache_outlives_catalogd() -> Result<()> {
    let mut stack = Stack::start().await?;
    let cas = Ca::shared()?.dir().display().to_string();
    let user = User::new(&stack.cluster, &["--catalogd-cas-dir", &cas])?;

    has(&user.output(1, &["search"])?, &["there is no available ClusterCatalog"])?;
    has(&user.run(&["list"])?.2, &["there are no ClusterExtensions"])?;
    serve(&stack.cluster, &stack.registry).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}});
    stack.cluster.apply(&namespace.to_string()).await?;
    want(&stack, "1.0.0").await?;

    has(&user.output(0, &["search", "dem"])?, &["PACKAGE", "demo", "1.1.0", "operators"])?;
    let shown = user.output(0, &["show", "demo"])?;
    has(&shown, &["Catalog:         operators", "Default channel: stable"])?;
    has(&shown, &["stable    demo.v1.1.0", "Bundle demo.v1.1.0"])?;
    let refused = user.output(1, &["show", "dmo"])?;
    has(&refused, &["the catalog does not hold package \"dmo\"; did you mean demo?"])?;
    let refused = user.output(1, &["versions", "demo", "--catalog", "other"])?;
    has(&refused, &["there is no catalog \"other\"; there are operators"])?;
    assert_eq!(user.output(0, &["versions", "demo", "-o", "name"])?, "demo.v1.1.0\ndemo.v1.0.0\n");
    let resolved = user.output(0, &["resolve", "demo"])?;
    has(&resolved, &["Chosen:       demo.v1.1.0 1.1.0", "Catalog:      operators"])?;

    let explained = user.output(0, &["explain", "my-demo"])?;
    has(&explained, &["Installed:    demo.v1.0.0", "Ready:        True/Succeeded"])?;
    has(&explained, &["Chosen:       demo.v1.0.0", "it is the installed version"])?;
    has(&explained, &["Catalog operators (priority 5): its bundle is chosen", "not in 1.0.0"])?;
    let refused = user.output(1, &["explain", "my-dmo"])?;
    has(&refused, &["there is no ClusterExtension \"my-dmo\"; did you mean my-demo?"])?;

    let list = user.output(0, &["list"])?;
    has(&list, &["my-demo", "operators", "1.1.0 (not in range)", "True", "Succeeded"])?;
    let listed = user.json(&["list"])?;
    let held = json!({"bundle": "demo.v1.1.0", "version": "1.1.0", "allowed": false, "heldBy": "Range"});
    assert_eq!(listed[0]["available"], held, "{listed}");

    let tree = user.output(0, &["status", "my-demo"])?;
    has(
        &tree,
        &["ClusterExtension my-demo: demo.v1.0.0 1.0.0, Ready", "└─ ClusterObjectSet my-demo-1: revision 1"],
    )?;
    has(&tree, &["phase deploy: ", "Deployment demo/", "└─ Pod ", "Running, ready"])?;
    let tree = user.json(&["status", "my-demo"])?;
    let phases = tree["revisions"][0]["phases"].as_array().context("phases")?;
    let objects: Vec<&Value> =
        phases.iter().filter_map(|phase| phase["objects"].as_array()).flatten().collect();
    assert!(objects.len() > 3 && objects.iter().all(|object| object["level"] == "Ready"), "{tree}");
    let few = user.output(0, &["status", "my-demo", "--limit", "2"])?;
    has(&few, &["objects were not looked at; raise --limit"])?;

    // catalogd is gone: content that was read once is still cached, for the CLI and for an operator-controller that restarts
    stack.catalogd.kill9();
    stack.operator_controller.stop();
    stack.operator_controller.restart().await?;
    has(&user.output(0, &["show", "demo"])?, &["Bundle demo.v1.1.0"])?;
    let fresh = User::new(&stack.cluster, &["--catalogd-cas-dir", &cas])?;
    let failed = fresh.output(3, &["show", "demo"])?;
    has(&failed, &["catalog operators: error performing request", "--catalogd-url"])?;
    want(&stack, "1.1.0").await?;
    has(&user.output(0, &["list"])?, &["1.1.0", "True"])?;
    Ok(())
}

/// An address of this machine that is not loopback, which Endpoints may name.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // nothing is sent: the kernel only chooses the interface
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

/// The apiserver forwards only to addresses of pods: this one claims the address of the process, and is never scheduled.
async fn pretend_pod(cluster: &Cluster, address: &str) -> Result<Value> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "catalogd", "namespace": "olmv1-system"},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "catalogd", "image": "example.com/catalogd"}]},
    });
    // its ServiceAccount is made by a controller
    eventually("the pod is taken", LIMIT, || async { cluster.apply(&pod.to_string()).await }).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "olmv1-system");
    let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
    pods.patch_status("catalogd", &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(json!({"kind": "Pod", "namespace": "olmv1-system", "name": "catalogd"}))
}

#[tokio::test(flavor = "multi_thread")]
#[rustfmt::skip]
async fn kubectl_reaches_catalogd_through_the_service_proxy() -> Result<()> {
    let Some(address) = own_address() else {
        eprintln!("SKIPPED: this machine has no address but loopback, which Endpoints must not name");
        return Ok(());
    };
    let cluster = Cluster::start().await?;
    cluster.install_olm().await?;
    let registry = Registry::start().await?;
    let port = olm_kit::free_port()?;
    let catalogd = Program::catalogd(&cluster)?
        .flag("--catalogs-server-addr", &format!("{address}:{port}"))
        .flag("--external-address", "catalogd-service.olmv1-system.svc");
    let mut catalogd = catalogd.start().await?;
    let pod = pretend_pod(&cluster, &address).await?;
    let labels = json!({"kubernetes.io/service-name": "catalogd-service"});
    for object in [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "catalogd-service", "namespace": "olmv1-system"},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]}}),
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "catalogd-service", "namespace": "olmv1-system"},
            "subsets": [{"addresses": [{"ip": address, "targetRef": pod}], "ports": [{"name": "https", "port": port}]}]}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "catalogd-service-1", "namespace": "olmv1-system", "labels": labels}, "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "targetRef": pod}],
            "ports": [{"name": "https", "port": port}]}),
    ] {
        cluster.apply(&object.to_string()).await?;
    }
    serve(&cluster, &registry).await?;

    let user = User::new(&cluster, &[])?;
    // the apiserver learns of endpoints a moment later
    eventually("the Service proxy leads to catalogd", LIMIT, || async { user.output(0, &["search"]) })
        .await?;

    // no flag gives the address of catalogd, and its certificate is not among the trusted ones
    has(&user.output(0, &["search"])?, &["demo", "1.1.0"])?;
    has(&user.output(0, &["show", "demo"])?, &["Bundle demo.v1.1.0"])?;
    assert!(read_packages(user.cache.path())? > 1);

    // the error for a user without the right names the right
    let reader = cluster.kubeconfig_as("reader", &["readers"])?;
    let rules = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "catalog-reader"},
        "rules": [{"apiGroups": ["olm.operatorframework.io"], "resources": ["clustercatalogs"], "verbs": ["get", "list"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "catalog-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "catalog-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
    });
    for object in [rules, binding] {
        cluster.apply(&object.to_string()).await?;
    }
    let poor = User { kubeconfig: reader.display().to_string(), ..User::new(&cluster, &[])? };
    // the rights that this user has count from a moment later
    eventually("another right is missing", LIMIT, || async {
        let error = poor.output(3, &["show", "demo"])?;
        has(&error, &["403", "cannot get resource \"services/proxy\"", "--catalogd-url"])
    })
    .await?;
    // the shipped role has it
    bind_viewer_role(&cluster).await?;
    let kubeconfig = cluster.kubeconfig_as("vera", &["viewers"])?.display().to_string();
    let viewer = User { kubeconfig, ..User::new(&cluster, &[])? };
    eventually("the viewer role counts", LIMIT, || async { viewer.output(0, &["show", "demo"]) }).await?;
    // impersonation is checked by the apiserver like everything else
    has(&user.output(3, &["search", "--as", "nobody-knows"])?, &["you may not list clustercatalogs"])?;

    catalogd.stop();
    let fresh = User::new(&cluster, &[])?;
    has(&fresh.output(3, &["show", "demo"])?, &["Service proxy"])?;
    Ok(())
}

fn read_packages(cache: &Path) -> Result<usize> {
    Ok(std::fs::read_dir(cache.join("olm/packages"))?.count())
}
