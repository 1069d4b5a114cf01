//! The programs of a node, started inside its namespaces.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::{ADDRESS, CGROUP, NAME, REGISTRY, configuration, environment};
use crate::image::{Image, Layer};
use crate::{Ca, Child, Cluster, Options, Registry, Tools, Wait, eventually, tail};

/// How long each part may take to become ready.
const READY: Duration = Duration::from_secs(90);

/// A running node with its control plane and registry. Dropping it ends all programs, but not the containers: those end with the
/// namespaces.
#[derive(Debug)]
pub struct RealNode {
    // dropped first
    children: Vec<Child>,
    registry: Registry,
    cluster: Cluster,
}

impl RealNode {
    /// Starts everything and waits until the node is Ready. This process runs in [`super::Namespaces`] of the folder `state`.
    pub async fn start(state: &Path) -> Result<Self> {
        let group = std::env::var(CGROUP).with_context(|| format!("{CGROUP} is not set"))?;
        let tools = Tools::locate()?;
        let ca = Ca::create(state, "olm-rs real node")?;
        let options =
            Options { dir: Some(state.join("control-plane")), real_node: true, ..Options::default() };
        configuration::write(state, &group, tools.bin())?;
        let runtime = async {
            let mut command = tools.command("containerd")?;
            command.arg("--config").arg(state.join("containerd.toml"));
            let child = spawn("containerd", command, state, tools)?;
            eventually("containerd listens", READY, || async {
                Ok(UnixStream::connect(configuration::CONTAINERD).map(drop)?)
            })
            .await
            .map_err(|problem| problem.context(child.log_tail(20)))?;
            Ok(child)
        };
        let registry = async {
            let registry = Registry::launch_at(&ca, &state.join("registry"), REGISTRY).await?;
            let pause = std::fs::read(tools.program("pause")?)?;
            let layer = Layer::new().file_with_mode("pause", &pause, 0o755);
            registry.push("pause", "1", &Image::new().layer(layer).entrypoint("/pause")).await?;
            Ok(registry)
        };
        let (runtime, registry, cluster) =
            tokio::try_join!(runtime, registry, Cluster::start_with(&options))?;
        let mut node = Self { children: vec![runtime], registry, cluster };

        let mut kubelet = tools.command("kubelet")?;
        kubelet
            .arg("--config")
            .arg(state.join("kubelet.json"))
            .arg("--kubeconfig")
            .arg(state.join("control-plane/kubelet.kubeconfig"))
            .arg("--root-dir")
            .arg(state.join("kubelet"))
            .args(["--hostname-override", NAME, "--node-ip", ADDRESS]);
        let mut proxy = tools.command("kube-proxy")?;
        proxy.arg("--config").arg(state.join("kube-proxy.json"));
        let mut names = tools.command("coredns")?;
        names.arg("-conf").arg(state.join("Corefile"));
        for (name, command) in [("kubelet", kubelet), ("kube-proxy", proxy), ("coredns", names)] {
            node.children.push(spawn(name, command, state, tools)?);
        }
        node.wait_ready().await.map_err(|problem| problem.context(node.log_ends()))?;
        Ok(node)
    }

    async fn wait_ready(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client().await?);
        Wait::new(&nodes, NAME).within(READY).for_condition("Ready", "True").await?;
        // kube-proxy works, and CoreDNS knows the Services
        eventually("the apiserver answers at the address of its Service", READY, || async {
            let connection = tokio::net::TcpStream::connect("10.0.0.1:443");
            Ok(tokio::time::timeout(Duration::from_secs(2), connection).await?.map(drop)?)
        })
        .await?;
        crate::install_crypto();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        eventually("CoreDNS is ready", READY, || async {
            client.get(configuration::COREDNS_READY).send().await?.error_for_status()?;
            Ok(())
        })
        .await
    }

    /// The control plane.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The ends of the logs of the node's programs, for an error message.
    pub fn log_ends(&self) -> String {
        let end =
            |child: &Child| format!("--- end of {}:\n{}", child.log().display(), tail(child.log(), 0, 20));
        self.children.iter().map(end).collect::<Vec<_>>().join("\n")
    }
}

fn spawn(name: &str, mut command: Command, state: &Path, tools: &Tools) -> Result<Child> {
    // containerd starts its shim and runc, kube-proxy nft
    command.envs(environment(state, tools.bin()));
    Child::spawn(name, &mut command, &state.join("logs").join(format!("{name}.log")))
}
