//! A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, which
//! plays the kubelet of one node (pods become Running and Ready, Deployments Available; nothing is executed). [`crate::node`] has a
//! real node instead.
//!
//! It deliberately knows nothing of OLM. Everything lives in one folder and ends with this value.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use serde_json::{Value, json};

use crate::cluster::apply_folder;
use crate::pki::{self, Ca, Identity};
use crate::{Child, RunDir, Tools, Wait, audit, free_port, kubeconfig, node};

/// How long the parts may take to become ready, each. Generous: the machine may be busy.
const START_LIMIT: Duration = Duration::from_secs(120);

/// What to start.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// record every request; read it with [`crate::Cluster::audit`]
    pub audit: bool,
    /// the folder to work in; a temporary one when absent. It must be empty and is not removed.
    pub dir: Option<PathBuf>,
    /// further flags of kube-apiserver
    pub apiserver_flags: Vec<String>,
    /// folders with CustomResourceDefinitions, which are installed before the controllers start: the garbage collector finds later kinds
    /// only every 30 s
    pub kinds: Vec<PathBuf>,
    /// leave out controller-manager, scheduler, kwok and the node: enough for schema, admission and watch tests
    pub api_only: bool,
    /// no kwok and no node, but the address and the credentials of a [`crate::node::RealNode`]
    pub real_node: bool,
}

/// A running control plane; dropping it stops everything.
#[derive(Debug)]
pub struct ControlPlane {
    // declared first, so dropped first: children before the folder that they write to
    children: Vec<Child>,
    /// how each of them was started
    commands: Vec<Command>,
    etcd: String,
    dir: PathBuf,
    // after `children`
    _temporary: Option<RunDir>,
}

impl ControlPlane {
    /// Starts it and waits until it serves: the apiserver ready, controllers at work, the node Ready.
    pub async fn start(options: &Options) -> Result<Self> {
        let mut last = None;
        for attempt in 0..3 {
            let (dir, temporary) = match &options.dir {
                Some(dir) => (dir.clone(), None),
                None => {
                    let own = RunDir::new("cluster")?;
                    (own.path().to_owned(), Some(own))
                }
            };
            let (children, commands, etcd) = (Vec::new(), Vec::new(), String::new());
            let mut plane = Self { children, commands, etcd, dir, _temporary: temporary };
            match plane.bring_up(options).await {
                Ok(()) => return Ok(plane),
                Err(problem) => {
                    let clash = plane.children.iter_mut().any(|child| {
                        child.exited().is_some() || child.log_text().contains("address already in use")
                    });
                    let problem = problem.context(plane.describe_failure());
                    if !clash || attempt == 2 {
                        return Err(problem);
                    }
                    // another program took one of the ports between choosing and using it: once more with others
                    if let Some(dir) = &options.dir {
                        drop(plane);
                        std::fs::remove_dir_all(dir)?;
                    }
                    last = Some(problem);
                }
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("the control plane did not start")))
    }

    /// The working folder; logs are in `logs/`, the administrator's kubeconfig is `kubeconfig`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// The running programs, in the order of their start.
    pub fn children(&mut self) -> &mut [Child] {
        &mut self.children
    }

    /// Stops everything in reverse order, orderly (TERM first).
    pub fn stop(&mut self) {
        while let Some(mut child) = self.children.pop() {
            child.stop(Duration::from_secs(5));
        }
    }

    /// Ends a program (`etcd`, `kube-apiserver` …) as a crash does.
    pub fn kill9(&mut self, name: &str) -> Result<()> {
        self.child(name).map(|(child, _)| child.kill())
    }

    /// Starts a killed program again with the command that started it, and waits until the apiserver serves.
    pub async fn start_again(&mut self, name: &str) -> Result<()> {
        let log = self.dir.join("logs").join(format!("{name}.log"));
        let (child, command) = self.child(name)?;
        *child = Child::spawn(name, command, &log)?;
        self.wait_ready().await
    }

    /// Kills the apiserver and starts it again after `pause`, and then kube-controller-manager: its informers wait longer after each outage, up to
    /// a minute, so after several outages they would not catch up within the limit of a test.
    pub async fn outage(&mut self, pause: Duration) -> Result<()> {
        self.kill9("kube-apiserver")?;
        tokio::time::sleep(pause).await;
        self.start_again("kube-apiserver").await?;
        self.restart_controllers().await
    }

    /// Kills kube-controller-manager and starts it again. Its garbage collector finds new kinds every 30 s, and all kinds at its start.
    pub async fn restart_controllers(&mut self) -> Result<()> {
        self.kill9("kube-controller-manager")?;
        self.start_again("kube-controller-manager").await
    }

    fn child(&mut self, name: &str) -> Result<(&mut Child, &mut Command)> {
        let mut all = self.children.iter_mut().zip(&mut self.commands);
        all.find(|(child, _)| child.name() == name).with_context(|| format!("no program {name} was started"))
    }

    /// Compacts the history of everything stored: a watch that resumes at an earlier version gets the answer that it expired, once
    /// the apiserver does not remember it either (it does until it is restarted). Gives the version compacted at.
    pub async fn compact(&self) -> Result<i64> {
        let now = self.ask_etcd("range", &json!({"key": "Lw=="})).await?;
        let revision = now.pointer("/header/revision").and_then(|found| found.as_str()?.parse::<i64>().ok());
        let revision = revision.with_context(|| format!("etcd: no revision in {now}"))?;
        self.ask_etcd("compaction", &json!({"revision": revision.to_string(), "physical": true})).await?;
        Ok(revision)
    }

    async fn ask_etcd(&self, what: &str, question: &Value) -> Result<Value> {
        crate::install_crypto();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        let url = format!("{}/v3/kv/{what}", self.etcd);
        let answer = client.post(&url).body(question.to_string()).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        if !status.is_success() {
            bail!("etcd: {what}: {status}: {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("etcd: {what}: {text}"))
    }

    async fn bring_up(&mut self, options: &Options) -> Result<()> {
        let tools = Tools::locate()?;
        let dir = self.dir.clone();
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let ca = Ca::create(&dir.join("pki"), "olm-rs local control plane")?;
        let names =
            ["10.0.0.1", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", node::ADDRESS];
        let serving = ca.server("apiserver", &names)?;
        let admin = ca.client("admin", "olm-kit-admin", Some("system:masters"))?;
        let (token_key, token_public) = pki::service_account_keys(&dir.join("pki"))?;
        let port = free_port()?;
        let host = if options.real_node { node::ADDRESS } else { "127.0.0.1" };
        let server = format!("https://{host}:{port}");
        kubeconfig::write(&self.kubeconfig(), &server, &ca.certificate(), &admin)?;

        let etcd = format!("http://127.0.0.1:{}", free_port()?);
        self.etcd.clone_from(&etcd);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let mut command = tools.command("etcd")?;
        command
            .args(["--listen-client-urls", &etcd, "--advertise-client-urls", &etcd])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--unsafe-no-fsync", "--log-level", "error", "--data-dir"])
            .arg(dir.join("etcd"));
        self.spawn("etcd", command)?;
        let mut command = apiserver(tools.command("kube-apiserver")?, &dir, &ca, &serving, &etcd, port);
        if options.real_node {
            command.args(node::credentials(&dir, &ca, &server)?);
        } else {
            command.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"]);
            command.args(["--endpoint-reconciler-type=none", "--authorization-mode=RBAC"]);
        }
        command
            .arg("--service-account-key-file")
            .arg(&token_public)
            .arg("--service-account-signing-key-file")
            .arg(&token_key)
            .args(if options.audit { audit::flags(&dir)? } else { Vec::new() })
            .args(&options.apiserver_flags);
        self.spawn("kube-apiserver", command)?;
        self.wait_ready().await?;
        if !options.kinds.is_empty() {
            let client = kubeconfig::client(&self.kubeconfig()).await?;
            for folder in &options.kinds {
                apply_folder(&client, folder).await?;
            }
        }
        if options.api_only {
            return Ok(());
        }

        let config = self.kubeconfig();
        let limits =
            ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"];
        let mut command = tools.command("kube-controller-manager")?;
        command
            .args(staleness_gates(tools)?)
            .args(limits)
            .args(["--use-service-account-credentials", "--concurrent-namespace-syncs=4"])
            .arg("--kubeconfig")
            .arg(&config)
            .arg("--service-account-private-key-file")
            .arg(&token_key)
            .arg("--root-ca-file")
            .arg(ca.certificate());
        self.spawn("kube-controller-manager", command)?;
        let mut command = tools.command("kube-scheduler")?;
        command.args(limits).arg("--kubeconfig").arg(&config);
        self.spawn("kube-scheduler", command)?;
        if options.real_node {
            return self.wait_accounts().await;
        }
        let mut command = tools.command("kwok")?;
        command
            // without renewed leases the node turns NotReady after some 50 s, and its pods with it
            .args(["--manage-all-nodes=true", "--node-lease-duration-seconds=40"])
            .arg("--kubeconfig")
            .arg(&config);
        self.spawn("kwok", command)?;
        self.wait_working().await
    }

    fn spawn(&mut self, name: &str, mut command: Command) -> Result<()> {
        let log = self.dir.join("logs").join(format!("{name}.log"));
        self.children.push(Child::spawn(name, &mut command, &log)?);
        self.commands.push(command);
        Ok(())
    }

    /// Polls `/readyz`: there is nothing to watch yet.
    async fn wait_ready(&mut self) -> Result<()> {
        let client = kubeconfig::client(&self.kubeconfig()).await?;
        let deadline = tokio::time::Instant::now() + START_LIMIT;
        let mut pause = tokio::time::interval(Duration::from_millis(50));
        loop {
            pause.tick().await;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
            if matches!(answer, Ok(Ok(_))) {
                return Ok(());
            }
            if let Some(child) = self.children.iter_mut().find_map(|child| child.exited().map(|_| child)) {
                bail!("{} ended at its start", child.name());
            }
            if tokio::time::Instant::now() > deadline {
                bail!("kube-apiserver was not ready within {} s", START_LIMIT.as_secs());
            }
        }
    }

    /// The node is Ready (kwok works) and namespaces get their service account (controller-manager works).
    async fn wait_working(&self) -> Result<()> {
        let client = kubeconfig::client(&self.kubeconfig()).await?;
        let nodes: Api<Node> = Api::all(client);
        let node = serde_json::from_value(json!({"metadata": {
            "name": "node-1", "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "node-1"},
        }}))?;
        nodes.create(&Default::default(), &node).await.context("cannot create the node")?;
        Wait::new(&nodes, "node-1").within(START_LIMIT).for_condition("Ready", "True").await?;
        self.wait_accounts().await
    }

    async fn wait_accounts(&self) -> Result<()> {
        let client = kubeconfig::client(&self.kubeconfig()).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        Wait::new(&accounts, "default").within(START_LIMIT).to_exist().await?;
        Ok(())
    }

    fn describe_failure(&mut self) -> String {
        let mut text = "the control plane did not start".to_owned();
        for child in &mut self.children {
            text += &format!("\n--- {}", child.describe_end());
        }
        text
    }
}

fn apiserver(
    mut command: Command,
    dir: &Path,
    ca: &Ca,
    serving: &Identity,
    etcd: &str,
    port: u16,
) -> Command {
    command
        .args(["--etcd-servers", etcd, "--secure-port", &port.to_string()])
        .args(["--allow-privileged", "--service-cluster-ip-range=10.0.0.0/24"])
        .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
        .arg("--cert-dir")
        .arg(dir.join("pki"))
        .arg("--client-ca-file")
        .arg(ca.certificate())
        .arg("--tls-cert-file")
        .arg(&serving.certificate)
        .arg("--tls-private-key-file")
        .arg(&serving.key);
    command
}

/// Switches the staleness checks of 1.36 off where the program has them: on a busy machine they make replica sets wait long. The program
/// is asked once.
fn staleness_gates(tools: &Tools) -> Result<&'static [String]> {
    static FLAGS: OnceLock<Vec<String>> = OnceLock::new();
    if let Some(flags) = FLAGS.get() {
        return Ok(flags);
    }
    let help = tools.command("kube-controller-manager")?.arg("--help").output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let gates: Vec<String> = ["ReplicaSet", "DaemonSet", "Job", "StatefulSet"]
        .iter()
        .map(|kind| format!("StaleControllerConsistency{kind}"))
        .filter(|gate| help.contains(gate.as_str()))
        .map(|gate| format!("{gate}=false"))
        .collect();
    let flags = if gates.is_empty() { gates } else { vec![format!("--feature-gates={}", gates.join(","))] };
    Ok(FLAGS.get_or_init(|| flags))
}
