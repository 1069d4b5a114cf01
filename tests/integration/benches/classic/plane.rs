//! A control plane with classic-controller, or with the reference, and what passes between two moments.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::Client;
use olm_integration::bounds::Bounds;
use olm_integration::until_collected;
use olm_kit::{AuditTail, Cluster, Memory, Options, Process, Program, Registry, Request, SYSTEM_NAMESPACE};

use crate::reference::{Limits, Reference};
use crate::{MIB, only_counts};

const ACCOUNT: &str = "classic-controller-under-test";
/// Without work for this long, the process is idle: longer than it waits for further changes.
const IDLE: Duration = Duration::from_secs(2);

/// Whose programs are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Own,
    Reference(Limits),
}

/// The programs that are measured.
enum Programs {
    Own(Box<Process>),
    Reference(Reference),
}

impl Programs {
    fn cpu(&self) -> Result<Duration> {
        match self {
            Self::Own(process) => process.cpu(),
            Self::Reference(reference) => reference.cpu(),
        }
    }
}

/// A control plane of its own.
pub(crate) struct Plane {
    programs: Programs,
    pub(crate) registry: Registry,
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
}

/// Where the counters stood.
pub(crate) struct Mark {
    when: Instant,
    cpu: Duration,
    plane: Duration,
    tail: AuditTail,
}

/// What passed since a mark.
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    /// Of the programs.
    pub(crate) cpu: Duration,
    /// Of the whole control plane.
    pub(crate) plane: Duration,
    /// Those of the programs, without watches and leases.
    pub(crate) requests: Vec<Request>,
}

impl Spent {
    pub(crate) fn writes(&self) -> usize {
        self.requests.iter().filter(|request| request.writes()).count()
    }

    /// Prints the figures, and the requests if they are asked for.
    pub(crate) fn print(&self, what: &str) {
        let (wall, cpu, plane) = (self.wall.as_secs_f64(), self.cpu.as_secs_f64(), self.plane.as_secs_f64());
        println!(
            "classic: {what}: {wall:.1} s, {cpu:.2} CPU s (the control plane {plane:.1}), {} requests, {} writes",
            self.requests.len(),
            self.writes()
        );
        if std::env::var_os("OLM_CLASSIC_REQUESTS").is_none() {
            return;
        }
        let mut sorts: BTreeMap<String, usize> = BTreeMap::new();
        for request in &self.requests {
            *sorts.entry(format!("{} {} {}", request.verb, request.resource, request.code)).or_default() += 1;
        }
        for (sort, count) in &sorts {
            println!("{count:8} {sort}");
        }
        for request in self.requests.iter().take(80) {
            let Request { received, verb, resource, namespace, name, code, .. } = request;
            println!("         {received} {verb} {resource} {namespace}/{name} {code}");
        }
    }
}

/// The bounds of a phase. Those of times and memory are for an optimised program.
pub(crate) struct Checks<'a> {
    pub(crate) bounds: &'a mut Bounds,
    pub(crate) group: String,
}

impl Checks<'_> {
    pub(crate) fn count(&mut self, what: &str, figure: f64, bound: f64) {
        self.bounds.add(&self.group, what, "", figure, bound);
    }

    pub(crate) fn seconds(&mut self, what: &str, figure: Duration, bound: f64) {
        if !only_counts() {
            self.bounds.add(&self.group, what, "s", figure.as_secs_f64(), bound);
        }
    }

    pub(crate) fn mib(&mut self, what: &str, bytes: u64, bound: f64) {
        if !only_counts() {
            self.bounds.add(&self.group, what, "MiB", bytes as f64 / MIB, bound);
        }
    }
}

impl Plane {
    pub(crate) async fn start(subject: Subject) -> Result<Self> {
        let options = Options { audit: true, ..Options::default() };
        let (cluster, registry) = tokio::try_join!(Cluster::start_with(&options), Registry::start())?;
        cluster.install_classic().await?;
        until_collected(&cluster, "operators.coreos.com/v2", "OperatorCondition").await?;
        let kubeconfig = cluster.kubeconfig_that_may_all(ACCOUNT).await?;
        let programs = match subject {
            Subject::Own => {
                let program = Program::classic_controller(&cluster)?.kubeconfig(&kubeconfig);
                Programs::Own(Box::new(program.start().await?))
            }
            Subject::Reference(limits) => Programs::Reference(Reference::start(kubeconfig, limits)?),
        };
        let client = cluster.client().await?;
        Ok(Self { programs, registry, client, cluster })
    }

    /// The memory of the programs together.
    pub(crate) fn memory(&self) -> Result<Memory> {
        match &self.programs {
            Programs::Own(process) => process.memory(),
            Programs::Reference(reference) => reference.memory(),
        }
    }

    pub(crate) fn stop(&mut self) {
        match &mut self.programs {
            Programs::Own(process) => drop(process.stop()),
            Programs::Reference(reference) => reference.stop(),
        }
    }

    pub(crate) async fn start_again(&mut self) -> Result<()> {
        match &mut self.programs {
            Programs::Own(process) => process.restart().await,
            Programs::Reference(reference) => reference.launch(),
        }
    }

    pub(crate) fn mark(&mut self) -> Result<Mark> {
        let tail = self.cluster.audit_tail()?;
        let cpu = self.programs.cpu().unwrap_or_default();
        Ok(Mark { when: Instant::now(), cpu, plane: self.plane_cpu()?, tail })
    }

    pub(crate) fn since(&mut self, mark: &mut Mark) -> Result<Spent> {
        let user = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{ACCOUNT}");
        let mut requests = mark.tail.more()?;
        requests.retain(|it| it.user == user && it.verb != "watch" && it.resource != "leases");
        Ok(Spent {
            wall: mark.when.elapsed(),
            // that of a process that was started meanwhile
            cpu: self.programs.cpu().map(|now| now.checked_sub(mark.cpu).unwrap_or(now))?,
            plane: self.plane_cpu()?.saturating_sub(mark.plane),
            requests,
        })
    }

    /// What passes until `done`, and then until the process is idle; the time is that until `done`.
    pub(crate) async fn measure(
        &mut self,
        mut mark: Mark,
        done: impl Future<Output = Result<()>>,
    ) -> Result<Spent> {
        done.await?;
        let wall = mark.when.elapsed();
        self.wait_until_idle().await?;
        Ok(Spent { wall, ..self.since(&mut mark)? })
    }

    /// What has passed by now, and in this time afterwards; the time is that until now.
    pub(crate) async fn settled(&mut self, mut mark: Mark, afterwards: Duration) -> Result<Spent> {
        let wall = mark.when.elapsed();
        tokio::time::sleep(afterwards).await;
        Ok(Spent { wall, ..self.since(&mut mark)? })
    }

    /// Stops the process and starts it again; the time is that until it is idle.
    pub(crate) async fn restart(&mut self) -> Result<Spent> {
        self.stop();
        let mut mark = self.mark()?;
        self.start_again().await?;
        let idle = self.wait_until_idle().await?;
        let wall = idle.saturating_duration_since(mark.when);
        let cpu = self.programs.cpu()?;
        Ok(Spent { wall, cpu, ..self.since(&mut mark)? })
    }

    /// Waits until the cluster has caused no request for a while: Kubernetes changes the status of Deployments some time after an upgrade.
    pub(crate) async fn wait_until_at_rest(&mut self) -> Result<()> {
        for _ in 0..30 {
            let mut mark = self.mark()?;
            tokio::time::sleep(2 * IDLE).await;
            if self.since(&mut mark)?.requests.is_empty() {
                return Ok(());
            }
        }
        bail!("classic-controller sends requests all the time")
    }

    fn plane_cpu(&mut self) -> Result<Duration> {
        let plane = self.cluster.plane().context("the control plane is not ours")?;
        plane.children().iter().map(|child| child.cpu()).sum()
    }

    /// Waits until the process has used almost no CPU for a while; returns when its work ended.
    pub(crate) async fn wait_until_idle(&self) -> Result<Instant> {
        let (mut since, mut cpu) = (Instant::now(), self.programs.cpu()?);
        while since.elapsed() < IDLE {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = self.programs.cpu()?;
            // a clock tick now and then is the runtime's own
            if now > cpu + Duration::from_millis(15) {
                (since, cpu) = (Instant::now(), now);
            }
        }
        Ok(since)
    }
}
