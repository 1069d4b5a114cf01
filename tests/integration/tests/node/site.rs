//! The installation that the tests share: images pushed to the node's registry, the overlay applied, all pods Ready.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use olm_kit::node::EnteredNode;
use olm_kit::{Image, Layer, SYSTEM_NAMESPACE, Tools, condition, eventually, repository};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Bounds every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);
/// Our programs in every installation, with two replicas each.
pub(crate) const PROGRAMS: [&str; 2] = ["catalogd", "operator-controller"];
/// Those of the overlay, which has the component `classic`.
pub(crate) const OVERLAY_PROGRAMS: [&str; 3] = ["catalogd", "operator-controller", "classic-controller"];
/// The sample operator, as images of bundles name it.
pub(crate) const OPERATOR: &str = "10.240.0.1:5000/sample/operator:1";

pub(crate) struct Site {
    pub(crate) node: EnteredNode,
}

/// The installation; `None`, with a line that reports why, where this process runs on no real node.
pub(crate) async fn site() -> Result<Option<&'static Site>> {
    static SITE: OnceCell<Option<Site>> = OnceCell::const_new();
    let site = SITE.get_or_try_init(Site::start).await?.as_ref();
    if site.is_none() {
        println!("SKIPPED: no real node; run it by `make test-node`");
    }
    Ok(site)
}

impl Site {
    async fn start() -> Result<Option<Self>> {
        let Some(node) = EnteredNode::from_environment()? else { return Ok(None) };
        let images = std::env::var_os("OLM_NODE_IMAGES").context("OLM_NODE_IMAGES is not set")?;
        let site = Self { node };
        let started = Instant::now();
        for program in OVERLAY_PROGRAMS {
            let layout = Path::new(&images).join(program);
            site.node.registry.push_layout(&format!("olm/{program}"), "node", &layout).await?;
        }
        site.push_operator().await?;
        report("images are pushed", started);
        site.install().await?;
        Ok(Some(site))
    }

    /// Pushes the image of the operator that bundles of [`OPERATOR`] run.
    pub(crate) async fn push_operator(&self) -> Result<()> {
        let operator = std::fs::read(Tools::locate()?.program("sample-operator")?)?;
        let layer = Layer::new().file_with_mode("sample-operator", &operator, 0o755);
        let image = Image::new().layer(layer).entrypoint("/sample-operator");
        self.node.registry.push("sample/operator", "1", &image).await.map(drop)
    }

    /// Applies the overlay, and waits until all pods are Ready.
    pub(crate) async fn install(&self) -> Result<()> {
        let started = Instant::now();
        self.kubectl(&["apply", "--server-side", "-k", &overlay()]).await?;
        self.trust_registry().await?;
        self.rolled_out(&OVERLAY_PROGRAMS).await?;
        report("the overlay is applied and all pods are Ready", started);
        Ok(())
    }

    /// Removes the programs, with their namespace and the kinds, as docs/install.md describes it.
    pub(crate) async fn remove(&self) -> Result<()> {
        for resource in ["clusterextensions", "clustercatalogs"] {
            self.kubectl(&["delete", resource, "--all"]).await?;
        }
        let left = self.kubectl(&["get", "clusterobjectsets", "-o", "name"]).await?;
        ensure!(left.is_empty(), "revisions are left: {left}");
        // those of the chart are gone already, but for kinds and namespace
        self.kubectl(&["delete", "--ignore-not-found", "-k", &overlay()]).await.map(drop)
    }

    /// Creates the ConfigMap with the authority of the node's registry, for which the pods wait.
    pub(crate) async fn trust_registry(&self) -> Result<()> {
        let authority = std::fs::read_to_string(self.node.authority())?;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": authority},
            "metadata": {"name": "registry-ca", "namespace": SYSTEM_NAMESPACE}});
        self.node.cluster.apply(&map.to_string()).await.map(drop)
    }

    /// Waits until the Deployments of these programs have replaced all their pods.
    pub(crate) async fn rolled_out(&self, programs: &[&str]) -> Result<()> {
        for program in programs {
            let deployment = format!("deployment/{program}-controller-manager");
            let timeout = format!("--timeout={}s", LIMIT.as_secs());
            let rolled =
                self.kubectl(&["-n", SYSTEM_NAMESPACE, "rollout", "status", &deployment, &timeout]).await;
            if let Err(problem) = rolled {
                return Err(problem.context(self.describe(program).await));
            }
        }
        Ok(())
    }

    /// What a user looks at when pods do not become Ready.
    pub(crate) async fn describe(&self, program: &str) -> String {
        let label = format!("app.kubernetes.io/name={program}");
        let mut text = String::new();
        for arguments in [
            &["get", "pods", "-o", "wide"][..],
            &["get", "events", "--sort-by=.lastTimestamp"],
            &["logs", "--tail=60", "--prefix", "-l", &label],
        ] {
            let output = self.kubectl(&[&["-n", SYSTEM_NAMESPACE], arguments].concat()).await;
            text += &output.unwrap_or_else(|problem| format!("{problem:#}"));
        }
        text
    }

    /// Runs kubectl, which has to succeed, and gives its output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.node.cluster.kubectl()?;
        command.args(arguments);
        must(command).await
    }

    /// Runs helm in the namespace of the installation; it has to succeed.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Tools::locate()?.command("helm")?;
        command.args(["--namespace", SYSTEM_NAMESPACE]).args(arguments);
        command.env("KUBECONFIG", self.node.cluster.kubeconfig()).env("HOME", self.node.state());
        must(command).await.map(drop)
    }

    /// The name of the only node.
    pub(crate) async fn node_name(&self) -> Result<String> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        let nodes = nodes.list(&ListParams::default()).await?.items;
        let [node] = &nodes[..] else { bail!("{} nodes", nodes.len()) };
        Ok(node.name_any())
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        self.node.cluster.client().await
    }

    /// The pods of one of our programs.
    pub(crate) async fn pods(&self, program: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, SYSTEM_NAMESPACE);
        let label = format!("app.kubernetes.io/name={program}");
        Ok(pods.list(&ListParams::default().labels(&label)).await?.items)
    }

    /// Waits until `count` pods of the program are Ready, all of them, and none has one of these names.
    pub(crate) async fn ready_pods(&self, program: &str, count: usize, gone: &[String]) -> Result<Vec<Pod>> {
        eventually(&format!("{count} pods of {program} are Ready"), LIMIT, || async {
            let pods = self.pods(program).await?;
            let states: Vec<_> = pods.iter().map(|pod| (pod.name_any(), is_ready(pod))).collect();
            let settled =
                states.len() == count && states.iter().all(|(name, ready)| *ready && !gone.contains(name));
            ensure!(settled, "{states:?}");
            Ok(pods)
        })
        .await
    }

    /// An HTTP client for a Service of the installation, whose certificate the CA of this ConfigMap issued, by the Service's name.
    pub(crate) async fn http(&self, service: &str, authority: &str) -> Result<reqwest::Client> {
        let client = self.client().await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
        let data = maps.get(authority).await?.data.context("the ConfigMap has no data")?;
        let authority = data.get("ca.crt").context("the ConfigMap has no ca.crt")?;
        let services: Api<Service> = Api::namespaced(client, SYSTEM_NAMESPACE);
        let address = services.get(service).await?.spec.and_then(|spec| spec.cluster_ip);
        let address = address.context("the Service has no address")?;
        Ok(reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(authority.as_bytes())?])
            .no_proxy()
            .pool_max_idle_per_host(0)
            .timeout(Duration::from_secs(10))
            .resolve(&format!("{service}.{SYSTEM_NAMESPACE}.svc"), format!("{address}:0").parse()?)
            .build()?)
    }

    /// The content of a catalog, by the Service of catalogd.
    pub(crate) async fn content(&self, catalog: &str) -> Result<String> {
        let client = self.http("catalogd-service", "catalogd-serving-cert").await?;
        let url = format!("https://catalogd-service.{SYSTEM_NAMESPACE}.svc/catalogs/{catalog}/api/v1/all");
        Ok(client.get(url).send().await?.error_for_status()?.text().await?)
    }
}

/// Values of the chart for a program, as in docs/install.md, with the authority of the node's registry; with an image of another
/// repository, if there is one.
pub(crate) fn values(image: Option<&str>) -> Value {
    let mut values = json!({
        "extraArgs": ["--pull-cas-dir=/etc/registry-ca"], "extraVolumes": [{"name": "registry-ca", "configMap": {"name": "registry-ca"}}],
        "extraVolumeMounts": [{"name": "registry-ca", "mountPath": "/etc/registry-ca", "readOnly": true}],
    });
    if let Some(image) = image {
        values["image"] = json!({"repository": image, "tag": "node"});
    }
    values
}

/// An overlay of the installation for the node's registry.
fn overlay() -> String {
    repository().join("tests/integration/tests/node/overlay").display().to_string()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Prints how long a step took.
pub(crate) fn report(what: &str, started: Instant) {
    println!("{what}: {:.1} s", started.elapsed().as_secs_f64());
}

/// Runs a command that has to succeed, and gives its standard output.
pub(crate) async fn must(mut command: Command) -> Result<String> {
    // the tasks of the test continue meanwhile
    let (command, output) = tokio::task::spawn_blocking(move || {
        let output = command.output();
        (command, output)
    })
    .await?;
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
