//! A real node: kubelet, kube-proxy, containerd with runc, and CoreDNS, together with a control plane and a registry in namespaces of
//! their own. `docs/internals/real-node.md` describes it.
//!
//! [`Namespaces`] is the outside: process 1 and what the node leaves on the machine. [`RealNode`] is the inside: it starts the
//! programs. [`EnteredNode`] is for a command that runs inside. Nothing here knows of OLM.

mod configuration;
mod namespaces;
mod programs;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

pub(crate) use configuration::credentials;
pub use namespaces::Namespaces;
pub use programs::RealNode;

use crate::{Ca, Cluster, Registry, Tools};

pub const NAME: &str = "node-1";
/// Its address, which pods reach.
pub const ADDRESS: &str = "10.240.0.1";
/// The address of the registry, for pods and for the node itself.
pub const REGISTRY: &str = "10.240.0.1:5000";

/// The variable with the folder of the node in whose namespaces a process runs.
const STATE: &str = "OLM_NODE";
/// The variable with the name of the node's cgroups.
const CGROUP: &str = "OLM_NODE_CGROUP";
/// Programs of the distribution.
const PROGRAMS: [&str; 6] = ["bash", "ip", "nft", "nsenter", "runc", "unshare"];

/// What this machine lacks for a real node; empty when it has everything.
pub fn missing() -> Vec<String> {
    if !cfg!(target_os = "linux") {
        return vec!["Linux".to_owned()];
    }
    if !rustix::process::geteuid().is_root() {
        return vec!["the rights of root".to_owned()];
    }
    let search = search_path();
    let found = |name: &str| std::env::split_paths(&search).any(|folder| folder.join(name).is_file());
    let mut missing: Vec<String> =
        PROGRAMS.iter().filter(|name| !found(name)).map(|name| format!("the program {name}")).collect();
    let groups = Path::new("/sys/fs/cgroup");
    if !groups.join("cgroup.procs").is_file()
        && !["memory", "pids"].iter().all(|name| groups.join(name).join("cgroup.procs").is_file())
    {
        missing.push("cgroups with the controllers memory and pids".to_owned());
    }
    if missing.is_empty() {
        let tried = Command::new("unshare")
            .args(namespaces::FLAGS)
            .args(["ip", "link", "add", "node0", "type", "veth", "peer", "name", "node0p"])
            .env("PATH", &search)
            .output();
        if !tried.is_ok_and(|it| it.status.success()) {
            missing.push("the right to create namespaces and links in them".to_owned());
        }
    }
    missing
}

/// `PATH` with the folders of programs for administrators.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// The node in whose namespaces this process runs.
#[derive(Debug)]
pub struct EnteredNode {
    /// its control plane
    pub cluster: Cluster,
    pub registry: Registry,
    state: PathBuf,
}

impl EnteredNode {
    /// The node of the command of `olm-kit node run` that this process belongs to, if it does.
    pub fn from_environment() -> Result<Option<Self>> {
        let Some(state) = std::env::var_os(STATE).filter(|it| !it.is_empty()) else { return Ok(None) };
        let state = PathBuf::from(state);
        let cluster = Cluster::attach(&state.join("control-plane"))?;
        let registry = Registry::attach(REGISTRY, &state.join("registry"), &authority(&state))?;
        Ok(Some(Self { cluster, registry, state }))
    }

    /// The folder of everything that the node writes.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The file of the authority that issued the registry's certificate.
    pub fn authority(&self) -> PathBuf {
        authority(&self.state)
    }
}

/// Starts a registry at [`REGISTRY`], which has to be an address of this machine, for the node of another cluster, such as one of kind.
/// Commands of [`command`] then find the cluster of this kubeconfig.
pub async fn registry_for(kubeconfig: &Path, state: &Path) -> Result<Registry> {
    let folder = state.join("control-plane");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    std::fs::copy(kubeconfig, folder.join("kubeconfig"))
        .with_context(|| format!("cannot copy {}", kubeconfig.display()))?;
    let ca = Ca::create(state, "olm-rs node")?;
    Registry::launch_at(&ca, &state.join("registry"), REGISTRY).await
}

/// A command that finds its node by [`EnteredNode::from_environment`].
pub fn command(program: &OsStr, state: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    command.envs(environment(state, Tools::locate()?.bin()));
    Ok(command)
}

/// The variables for commands that run inside, beside those of the namespaces.
fn environment(state: &Path, tools: &Path) -> Vec<(&'static str, OsString)> {
    let mut path = OsString::from(tools);
    path.push(":");
    path.push(search_path());
    vec![
        ("PATH", path),
        (STATE, state.into()),
        ("KUBECONFIG", state.join("control-plane/kubeconfig").into()),
        ("OLM_NODE_REGISTRY", REGISTRY.into()),
        ("OLM_NODE_CA", authority(state).into()),
    ]
}

fn authority(state: &Path) -> PathBuf {
    state.join("ca/ca.crt")
}
