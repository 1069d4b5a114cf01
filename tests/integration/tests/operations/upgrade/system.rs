//! The running system: a control plane, a registry, and replicas of the three programs in an old and a new version.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use olm_kit::{Ca, Cluster, Options, Process, Program, Registry, RunDir, SYSTEM_NAMESPACE, Wait};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

/// How long any wait may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// The programs, in the order in which they are replaced.
pub(crate) const PROGRAMS: [&str; 3] = ["catalogd", "operator-controller", "cluster-operator"];

/// Which build of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// The earlier commit.
    Old,
    /// This checkout.
    New,
}

impl Version {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
        }
    }

    /// From the other one to this.
    pub(crate) fn direction(self) -> String {
        format!("{} to {}", self.other().name(), self.name())
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }
}

/// The lease of a program's leader election.
pub(crate) fn lease(program: &str) -> &'static str {
    match program {
        "catalogd" => "catalogd-operator-lock",
        "operator-controller" => "9c4404e7.operatorframework.io",
        _ => "cluster-operator.operatorframework.io",
    }
}

/// The service account of a program in a version: the audit record names it with each request.
pub(crate) fn account(program: &str, version: Version) -> String {
    format!("{program}-{}", version.name())
}

/// One running program.
pub(crate) struct Replica {
    pub(crate) version: Version,
    /// Its cache folder, which the process that replaces it in place takes over.
    slot: char,
    /// That folder was empty when it started.
    pub(crate) fresh: bool,
    pub(crate) process: Process,
}

/// See the top of this file.
pub(crate) struct System {
    /// By program; of two, the first one leads.
    replicas: BTreeMap<&'static str, Vec<Replica>>,
    kubeconfigs: BTreeMap<(&'static str, Version), PathBuf>,
    old_programs: PathBuf,
    service: Service,
    leases: Api<Lease>,
    pub(crate) registry: Registry,
    pub(crate) cluster: Cluster,
    folder: RunDir,
}

impl System {
    pub(crate) async fn start(old_programs: &Path) -> Result<Self> {
        let options = Options { audit: true, ..Options::default() };
        let (cluster, registry) = tokio::try_join!(Cluster::start_with(&options), Registry::start())?;
        cluster.install_olm().await?;
        cluster.install_openshift_kinds().await?;
        cluster.set_openshift_version("4.20.1").await?;
        let mut kubeconfigs = BTreeMap::new();
        for program in PROGRAMS {
            for version in [Version::Old, Version::New] {
                let kubeconfig = cluster.kubeconfig_that_may_all(&account(program, version)).await?;
                kubeconfigs.insert((program, version), kubeconfig);
            }
        }
        let mut system = Self {
            replicas: BTreeMap::new(),
            kubeconfigs,
            old_programs: old_programs.to_owned(),
            service: Service::start().await?,
            leases: Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE),
            registry,
            cluster,
            folder: RunDir::new("upgrade")?,
        };
        for program in PROGRAMS {
            system.add(program, Version::Old).await?;
            system.led_by_other(program, "").await?;
        }
        Ok(system)
    }

    /// The kubeconfig of a program's account.
    pub(crate) fn kubeconfig(&self, program: &'static str, version: Version) -> Result<&Path> {
        Ok(self.kubeconfigs.get(&(program, version)).context("no kubeconfig")?)
    }

    /// The leader and, while two versions run, its standby.
    pub(crate) fn replicas(&self, program: &str) -> &[Replica] {
        self.replicas.get(program).map(Vec::as_slice).unwrap_or_default()
    }

    /// The folder that the leader of a program caches in.
    pub(crate) fn cache(&self, program: &str) -> Option<PathBuf> {
        Some(self.slot(program, self.replicas(program).first()?.slot))
    }

    /// The cache folder of this name.
    pub(crate) fn slot(&self, program: &str, slot: char) -> PathBuf {
        self.folder.path().join(format!("{program}-cache-{slot}"))
    }

    fn program(&self, name: &'static str, version: Version, slot: char) -> Result<Program> {
        let (cluster, ca) = (&self.cluster, Ca::shared()?);
        let dir = self.folder.path().join(format!("{name}-{}", version.name()));
        let cache = self.slot(name, slot).display().to_string();
        let program = match name {
            "catalogd" => Program::catalogd_in(cluster, ca, Some(&dir))?
                .flag("--cache-dir", &cache)
                .flag("--external-address", &self.service.address.to_string()),
            "operator-controller" => {
                Program::operator_controller_in(cluster, ca, Some(&dir))?.flag("--cache-path", &cache)
            }
            _ => Program::cluster_operator_in(cluster, ca, Some(&dir))?,
        };
        let program = program.flag("--leader-elect", "true").kubeconfig(self.kubeconfig(name, version)?);
        match version {
            Version::Old => program.from_folder(&self.old_programs),
            Version::New => Ok(program),
        }
    }

    /// Starts a replica beside what runs, in the free cache folder, and waits until it is ready.
    pub(crate) async fn add(&mut self, program: &'static str, version: Version) -> Result<()> {
        let slot = if self.replicas(program).iter().any(|replica| replica.slot == 'a') { 'b' } else { 'a' };
        let fresh = !self.slot(program, slot).exists();
        let process = self.program(program, version, slot)?.start().await?;
        self.replicas.entry(program).or_default().push(Replica { version, slot, fresh, process });
        self.route()
    }

    /// Stops the leader, runs `between`, and starts version `to` with the same cache folder unless a standby runs. Gives the time
    /// from the stop to the new leader.
    pub(crate) async fn replace(
        &mut self,
        program: &'static str,
        to: Version,
        between: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<Duration> {
        let before = self.holder(program).await?;
        let all = self.replicas.get_mut(program).context("no replica")?;
        ensure!(!all.is_empty(), "no replica of {program}");
        let mut leader = all.remove(0);
        self.route()?;
        let began = Instant::now();
        let (version, slot) = (leader.version, leader.slot);
        let end = tokio::task::spawn_blocking(move || {
            (!leader.process.stop()).then(|| leader.process.child().describe_end())
        });
        if let Some(end) = end.await? {
            bail!("{program} ({}) did not stop in order: {end}", version.name());
        }
        let holder = self.holder(program).await?;
        ensure!(holder != before, "{program} ({}) did not release its lease when it stopped", version.name());
        between(self).await?;
        if self.replicas(program).is_empty() {
            let process = self.program(program, to, slot)?.start().await?;
            let all = self.replicas.entry(program).or_default();
            all.push(Replica { version: to, slot, fresh: false, process });
            self.route()?;
        }
        self.led_by_other(program, &before).await?;
        Ok(began.elapsed())
    }

    /// Who holds the lease of a program; empty if it is free.
    pub(crate) async fn holder(&self, program: &str) -> Result<String> {
        Ok(holder(&self.leases.get(lease(program)).await?))
    }

    async fn led_by_other(&self, program: &str, before: &str) -> Result<()> {
        let mut wait = Wait::new(&self.leases, lease(program)).within(LIMIT);
        for replica in self.replicas(program) {
            wait = wait.log(replica.process.log());
        }
        let taken = |lease: &Lease| !holder(lease).is_empty() && holder(lease) != before;
        wait.until("is held by another process", taken).await?;
        Ok(())
    }

    /// The logs of all programs in both versions.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        let all = self.kubeconfigs.keys().map(|(program, version)| {
            self.folder.path().join(format!("{program}-{}", version.name())).join(format!("{program}.log"))
        });
        all.filter(|log| log.exists()).collect()
    }

    /// The ends of these logs.
    pub(crate) fn log_ends(&self) -> String {
        let end = |log: &PathBuf| format!("--- end of {}:\n{}", log.display(), olm_kit::tail(log, 0, 30));
        self.logs().iter().map(end).collect::<Vec<_>>().join("\n")
    }

    /// What the registry logged from byte `start` on, and where its log ends.
    pub(crate) fn registry_log(&mut self, start: u64) -> Result<(String, u64)> {
        let log = self.registry.child()?.log().to_owned();
        let text = olm_kit::tail(&log, start, usize::MAX);
        let end = start + u64::try_from(text.len())?;
        Ok((text, end))
    }

    /// Sends connections to the catalogd replicas that run.
    fn route(&self) -> Result<()> {
        let targets = self.replicas("catalogd").iter().map(|replica| {
            let url = replica.process.content_url();
            url.trim_start_matches("https://").parse().with_context(|| url.clone())
        });
        *self.service.targets.lock() = targets.collect::<Result<_>>()?;
        Ok(())
    }
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

/// The Service in front of catalogd: an address that stays, whose connections go to the replicas in turn.
struct Service {
    address: SocketAddr,
    targets: Arc<Mutex<Vec<SocketAddr>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Service {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let targets: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let task = tokio::spawn({
            let targets = Arc::clone(&targets);
            async move {
                while let Ok((mut client, _)) = listener.accept().await {
                    let target = {
                        let mut targets = targets.lock();
                        if targets.len() > 1 {
                            targets.rotate_left(1);
                        }
                        targets.first().copied()
                    };
                    tokio::spawn(async move {
                        let Some(target) = target else { return };
                        if let Ok(mut server) = TcpStream::connect(target).await {
                            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        }
                    });
                }
            }
        });
        Ok(Self { address, targets, task })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}
