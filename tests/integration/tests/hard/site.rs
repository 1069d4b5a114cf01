//! A whole system of a test's own, parts of which can be killed and started again, with a record of who asked for what.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use olm_kit::{Cluster, Options, Process, Program, Registry, Request, SYSTEM_NAMESPACE};
use tokio::sync::OnceCell;

use crate::proxy::Proxy;

/// The time over which operator-controller counts corrections of one object here.
pub(crate) const CORRECTION_WINDOW: Duration = Duration::from_secs(20);
/// The accounts of operator-controller's replicas.
pub(crate) const ACCOUNTS: [&str; 2] = ["controller-a", "controller-b"];

/// A running system. Dropped, it ends.
pub(crate) struct Site {
    /// operator-controller, each replica with an account of its own.
    pub(crate) controllers: Vec<Process>,
    pub(crate) catalogd: Process,
    /// The registry that both trust.
    pub(crate) registry: Registry,
    /// The control plane, with an audit record.
    pub(crate) cluster: Cluster,
}

impl Site {
    /// With one operator-controller.
    pub(crate) async fn start() -> Result<Self> {
        let mut site = Self::without_controller().await?;
        site.start_controller().await?;
        Ok(site)
    }

    /// With one operator-controller behind a proxy.
    pub(crate) async fn behind_proxy() -> Result<(Self, Proxy)> {
        let mut site = Self::without_controller().await?;
        let proxy = Proxy::start(&site.kubeconfig(0).await?).await?;
        let program = site.program(&proxy.kubeconfig)?;
        site.controllers.push(program.start().await?);
        Ok((site, proxy))
    }

    /// With two replicas that elect a leader.
    pub(crate) async fn with_replicas() -> Result<Self> {
        let mut site = Self::without_controller().await?;
        for replica in 0..ACCOUNTS.len() {
            let program = site.program(&site.kubeconfig(replica).await?)?.flag("--leader-elect", "true");
            site.controllers.push(program.start().await?);
        }
        Ok(site)
    }

    /// The system of all tests that need not disturb it as a whole; they use names of their own.
    pub(crate) async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Site> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    async fn without_controller() -> Result<Self> {
        let options = Options { audit: true, ..Options::default() };
        let (cluster, registry) = tokio::try_join!(Cluster::start_for_olm(&options), Registry::start())?;
        let catalogd = Program::catalogd(&cluster)?.start().await?;
        Ok(Self { controllers: Vec::new(), catalogd, registry, cluster })
    }

    /// Starts another operator-controller, with an account and a cache of its own. It elects no leader.
    pub(crate) async fn start_controller(&mut self) -> Result<()> {
        let program = self.program(&self.kubeconfig(self.controllers.len()).await?)?;
        self.controllers.push(program.start().await?);
        Ok(())
    }

    async fn kubeconfig(&self, replica: usize) -> Result<PathBuf> {
        let account = ACCOUNTS.get(replica).context("there is no such replica")?;
        self.cluster.kubeconfig_that_may_all(account).await
    }

    fn program(&self, kubeconfig: &Path) -> Result<Program> {
        let intervals = format!("correction-window={}s", CORRECTION_WINDOW.as_secs());
        let program = Program::operator_controller(&self.cluster)?.kubeconfig(kubeconfig);
        Ok(program.flag("--test-intervals", &intervals))
    }

    /// Adds what the controllers logged last to an error.
    pub(crate) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let ends =
            self.controllers.iter().map(|process| olm_kit::tail(&process.log(), 0, 40)).collect::<Vec<_>>();
        anyhow::anyhow!("{error:#}\n--- ends of the controllers' logs:\n{}", ends.join("\n---\n"))
    }

    /// A client for the administrator.
    pub(crate) async fn client(&self) -> Result<Client> {
        self.cluster.client().await
    }

    /// The only operator-controller.
    pub(crate) fn controller(&mut self) -> Result<&mut Process> {
        self.controllers.first_mut().context("no controller runs")
    }

    /// How long the record is by now.
    pub(crate) fn mark(&self) -> Result<usize> {
        self.cluster.audit_length()
    }

    /// Requests of our controllers since the record had `from` lines that concern this name. Watches are left out: they are
    /// recorded when they end.
    pub(crate) fn about(&self, name: &str, from: usize) -> Result<Vec<Request>> {
        self.cluster.audited(from, |request| {
            replica_of(request).is_some()
                && request.verb != "watch"
                && (request.namespace == name || request.uri.contains(name) || request.name.contains(name))
        })
    }
}

/// Which replica of operator-controller sent the request, if one did.
pub(crate) fn replica_of(request: &Request) -> Option<usize> {
    let account = request.user.strip_prefix(&format!("system:serviceaccount:{SYSTEM_NAMESPACE}:"))?;
    ACCOUNTS.iter().position(|known| *known == account)
}

/// Is the request a write of one of our controllers that an operation consists of?
pub(crate) fn is_step(request: &Request) -> bool {
    replica_of(request).is_some() && request.writes() && !is_bookkeeping(request)
}

/// Does the request concern bookkeeping rather than a revision or its objects?
pub(crate) fn is_bookkeeping(request: &Request) -> bool {
    ["leases", "events"].contains(&request.resource.as_str()) || request.resource.ends_with("reviews")
}

/// For messages.
pub(crate) fn lines(requests: &[Request]) -> String {
    let line = |r: &Request| {
        format!("{} {} {} {}/{} -> {}", r.received, r.verb, r.resource, r.namespace, r.name, r.code)
    };
    requests.iter().map(line).collect::<Vec<_>>().join("\n")
}
