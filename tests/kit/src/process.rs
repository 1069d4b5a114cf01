//! Running our own programs: free ports, certificate, kubeconfig, cache folder, log, kill and restart.
//!
//! Flags are those that a deployment uses; a test adds or replaces some with [`Program::flag`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::{Ca, Child, Cluster, Memory, RunDir, eventually, free_port, repository, without_build_variables};

/// The namespace that both processes keep their own objects in.
pub const SYSTEM_NAMESPACE: &str = "olmv1-system";

/// The namespace of classic-controller, whose catalogs are available everywhere.
pub const CLASSIC_NAMESPACE: &str = "olm";

const READY_LIMIT: Duration = Duration::from_secs(60);

/// One of our programs, ready to be started.
#[derive(Debug)]
#[must_use]
pub struct Program {
    name: String,
    binary: PathBuf,
    flags: Vec<(String, String)>,
    environment: Vec<(OsString, OsString)>,
    kubeconfig: PathBuf,
    ports: Ports,
    dir: PathBuf,
    temporary: Option<Arc<RunDir>>,
    cgroup: Option<PathBuf>,
}

/// Where a process listens, on 127.0.0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ports {
    health: u16,
    metrics: u16,
    content: u16,
}

impl Program {
    /// catalogd for `cluster`, trusting registries with certificates of [`Ca::shared`].
    pub fn catalogd(cluster: &Cluster) -> Result<Self> {
        Self::catalogd_in(cluster, Ca::shared()?, None)
    }

    /// operator-controller for `cluster`, trusting registries and catalogd with certificates of [`Ca::shared`].
    pub fn operator_controller(cluster: &Cluster) -> Result<Self> {
        Self::operator_controller_in(cluster, Ca::shared()?, None)
    }

    /// [`Program::catalogd`] with another authority, working in `dir`.
    pub fn catalogd_in(cluster: &Cluster, ca: &Ca, dir: Option<&Path>) -> Result<Self> {
        let program = Self::new("catalogd", cluster, ca, dir)?;
        let content = format!("127.0.0.1:{}", program.ports.content);
        let cache = program.dir.join("cache").display().to_string();
        Ok(program
            .flag("--cache-dir", &cache)
            .flag("--catalogs-server-addr", &content)
            .flag("--external-address", &content)
            .more("--feature-gates", "APIV1MetasHandler=true"))
    }

    /// [`Program::operator_controller`] with another authority, working in `dir`.
    pub fn operator_controller_in(cluster: &Cluster, ca: &Ca, dir: Option<&Path>) -> Result<Self> {
        let program = Self::new("operator-controller", cluster, ca, dir)?;
        let cache = program.dir.join("cache").display().to_string();
        Ok(program
            .env("MALLOC_ARENA_MAX", "1")
            .flag("--cache-path", &cache)
            .flag("--catalogd-cas-dir", &ca.dir().display().to_string())
            .more("--feature-gates", "BoxcutterRuntime=true"))
    }

    /// cluster-operator for `cluster`; it looks at no Deployments, as our programs are none here.
    pub fn cluster_operator(cluster: &Cluster) -> Result<Self> {
        Self::cluster_operator_in(cluster, Ca::shared()?, None)
    }

    /// [`Program::cluster_operator`] with another authority, working in `dir`.
    pub fn cluster_operator_in(cluster: &Cluster, ca: &Ca, dir: Option<&Path>) -> Result<Self> {
        let program = Self::new("cluster-operator", cluster, ca, dir)?;
        // it pulls nothing
        Ok(program.without("--pull-cas-dir").flag("--deployments", ""))
    }

    /// classic-controller for `cluster`, trusting registries with certificates of [`Ca::shared`]. A failed InstallPlan is retried for 10 s.
    pub fn classic_controller(cluster: &Cluster) -> Result<Self> {
        Self::classic_controller_in(cluster, Ca::shared()?, None)
    }

    /// [`Program::classic_controller`] with another authority, working in `dir`.
    pub fn classic_controller_in(cluster: &Cluster, ca: &Ca, dir: Option<&Path>) -> Result<Self> {
        let program = Self::new("classic-controller", cluster, ca, dir)?;
        let cache = program.dir.join("cache").display().to_string();
        let packages = format!("127.0.0.1:{}", program.ports.content);
        Ok(program
            .env("MALLOC_ARENA_MAX", "1")
            .without("--system-namespace")
            .flag("--namespace", CLASSIC_NAMESPACE)
            .flag("--cache-dir", &cache)
            .flag("--packages-bind-address", &packages)
            .flag("--install-plan-retry-timeout", "10s"))
    }

    fn new(name: &str, cluster: &Cluster, ca: &Ca, dir: Option<&Path>) -> Result<Self> {
        let (dir, temporary) = match dir {
            Some(dir) => (dir.to_owned(), None),
            None => {
                let own = RunDir::new(name)?;
                (own.path().to_owned(), Some(Arc::new(own)))
            }
        };
        let identity = ca.server(&crate::unique(name), &[])?;
        let ports = Ports { health: free_port()?, metrics: free_port()?, content: free_port()? };
        let (name, binary, kubeconfig) = (name.to_owned(), built(name)?, cluster.kubeconfig());
        let (flags, environment) = (Vec::new(), Vec::new());
        let program =
            Self { name, binary, flags, environment, kubeconfig, ports, dir, temporary, cgroup: None };
        Ok(program
            // as in the images
            .env("MALLOC_TRIM_THRESHOLD_", "131072")
            .flag("--metrics-bind-address", &format!("127.0.0.1:{}", ports.metrics))
            .flag("--health-probe-bind-address", &format!("127.0.0.1:{}", ports.health))
            .flag("--tls-cert", &identity.certificate.display().to_string())
            .flag("--tls-key", &identity.key.display().to_string())
            .flag("--pull-cas-dir", &ca.dir().display().to_string())
            .flag("--system-namespace", SYSTEM_NAMESPACE))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the program of this name in `folder`, which another build made.
    pub fn from_folder(mut self, folder: &Path) -> Result<Self> {
        self.binary = folder.join(&self.name);
        if !self.binary.is_file() {
            bail!("{} has no program {}", folder.display(), self.name);
        }
        Ok(self)
    }

    /// Sets a flag; an earlier value is replaced.
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.retain(|(known, _)| known != name);
        self.more(name, value)
    }

    /// Adds a flag that may be given several times.
    pub fn more(mut self, name: &str, value: &str) -> Self {
        self.flags.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a flag out.
    pub fn without(mut self, name: &str) -> Self {
        self.flags.retain(|(known, _)| known != name);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Another kubeconfig than the administrator's.
    pub fn kubeconfig(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.kubeconfig);
        self
    }

    /// Runs it in the cgroup whose processes this file lists, from its first instruction on.
    pub fn cgroup(mut self, processes: &Path) -> Self {
        self.cgroup = Some(processes.to_owned());
        self
    }

    /// Starts it and waits until `/readyz` answers 200.
    pub async fn start(self) -> Result<Process> {
        let mut process = self.launch()?;
        process.wait_ready().await?;
        Ok(process)
    }

    /// Starts it without waiting, for starts that are meant to fail.
    pub fn launch(self) -> Result<Process> {
        let child = self.spawn()?;
        Ok(Process { child, program: self })
    }

    fn spawn(&self) -> Result<Child> {
        let scratch = self.dir.join("tmp");
        for folder in [scratch.clone(), self.dir.join("cache")] {
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let mut command = match &self.cgroup {
            Some(processes) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(processes).arg(&self.binary);
                shell
            }
            None => Command::new(&self.binary),
        };
        command
            .args(self.flags.iter().map(|(name, value)| format!("{name}={value}")))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("TMPDIR", scratch)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Child::spawn(&self.name, &mut command, &self.log())
    }

    fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }
}

/// One of our programs, running (or killed, until [`Process::restart`]). Dropped during a panic, it prints the end of its
/// log.
#[derive(Debug)]
pub struct Process {
    child: Child,
    program: Program,
}

impl Process {
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Starts it again with the same flags, ports and cache, without waiting.
    pub fn relaunch(&mut self) -> Result<()> {
        self.stop();
        self.child = self.program.spawn()?;
        Ok(())
    }

    /// Waits until `/readyz` answers 200.
    pub async fn wait_ready(&mut self) -> Result<()> {
        crate::install_crypto();
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .timeout(Duration::from_secs(5))
            .build()?;
        let url = format!("{}/readyz", self.health_url());
        let child = Mutex::new(&mut self.child);
        let answered = eventually(&format!("{} is ready", self.program.name), READY_LIMIT, || async {
            if child.lock().exited().is_some() {
                return Ok(false);
            }
            let answer = client.get(&url).send().await?;
            if !answer.status().is_success() {
                bail!("{url}: {}: {}", answer.status(), answer.text().await.unwrap_or_default());
            }
            Ok(true)
        })
        .await;
        match answered {
            Ok(true) => Ok(()),
            Ok(false) => bail!("{}", self.child.describe_end()),
            Err(problem) => Err(problem.context(self.child.describe_end())),
        }
    }

    /// `http://127.0.0.1:<port>` of the health endpoint.
    pub fn health_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.program.ports.health)
    }

    /// `https://127.0.0.1:<port>` of the metrics endpoint.
    pub fn metrics_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.program.ports.metrics)
    }

    /// `https://127.0.0.1:<port>` of the catalog content (catalogd only).
    pub fn content_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.program.ports.content)
    }

    /// The cache folder.
    pub fn cache(&self) -> PathBuf {
        self.program.dir.join("cache")
    }

    /// The log file, for [`crate::Wait::log`].
    pub fn log(&self) -> PathBuf {
        self.program.log()
    }

    /// All that the program logged since its last start.
    pub fn log_text(&self) -> String {
        self.child.log_text()
    }

    /// The child process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Memory now and at its highest.
    pub fn memory(&self) -> Result<Memory> {
        self.child.memory()
    }

    /// Processor time since the last start.
    pub fn cpu(&self) -> Result<Duration> {
        self.child.cpu()
    }

    /// Ends it as a crash does.
    pub fn kill9(&mut self) {
        self.child.kill();
    }

    /// Stops it in its tracks, as a suspended machine does, until [`Process::thaw`].
    pub fn freeze(&mut self) {
        self.child.freeze();
    }

    /// Lets a frozen process continue.
    pub fn thaw(&mut self) {
        self.child.thaw();
    }

    /// USR1: it logs the state of every object that it reconciles.
    pub fn request_report(&mut self) {
        self.child.signal(rustix::process::Signal::USR1);
    }

    /// Ends it with TERM (KILL after 20 s); true when it ended by itself with success.
    pub fn stop(&mut self) -> bool {
        self.child.stop(Duration::from_secs(20)).is_some_and(|status| status.success())
    }

    /// Starts it again with the same flags, ports and cache, and waits until it is ready.
    pub async fn restart(&mut self) -> Result<()> {
        self.relaunch()?;
        self.wait_ready().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of the log of {}:\n{}", self.program.name, self.child.log_tail(60));
        }
        self.child.kill();
        // the folder goes after the process that writes to it
        drop(self.program.temporary.take());
    }
}

/// The path of one of our programs: in `OLM_BIN_DIR`, else built by cargo into the folder that this program came from (so
/// that a test never runs a stale one).
pub fn built(name: &str) -> Result<PathBuf> {
    static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());
    if let Some(dir) = std::env::var_os("OLM_BIN_DIR").filter(|dir| !dir.is_empty()) {
        let path = Path::new(&dir).join(name);
        if !path.is_file() {
            bail!("OLM_BIN_DIR ({}) has no program {name}", dir.display());
        }
        return Ok(path);
    }
    let own = std::env::current_exe()?;
    let mut profile = own.parent().context("no folder")?;
    if profile.ends_with("deps") {
        profile = profile.parent().context("no folder")?;
    }
    let path = profile.join(name);
    let mut built = BUILT.lock();
    if !built.iter().any(|it| it == name) {
        let profile_name = match profile.file_name().and_then(|it| it.to_str()) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(["build", "--quiet", "--package", name, "--profile", profile_name])
            .current_dir(repository())
            .env("CARGO_TARGET_DIR", profile.parent().context("no folder")?);
        let output = without_build_variables(&mut command)
            .output()
            .with_context(|| format!("cannot run cargo to build {name}"))?;
        if !output.status.success() {
            bail!("building {name} failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        built.push(name.to_owned());
    }
    Ok(path)
}
