//! Everything that an end-to-end test needs: a cluster with the CRDs, a registry, catalogd and operator-controller, and, where it
//! matters, cluster-operator.
//!
//! The controllers act on every object of their cluster, so a stack has a control plane of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

use crate::process::{CLASSIC_NAMESPACE, SYSTEM_NAMESPACE, built};
use crate::{Ca, Cluster, Options, Process, Program, Registry, repository};

/// The leases of all processes.
const LEASES: [&str; 3] =
    ["catalogd-operator-lock", "9c4404e7.operatorframework.io", "cluster-operator.operatorframework.io"];

/// A running system. Stopped when dropped.
#[derive(Debug)]
pub struct Stack {
    pub catalogd: Process,
    pub operator_controller: Process,
    /// cluster-operator, once [`Stack::report`] has started it
    pub cluster_operator: Option<Process>,
    /// the registry that both trust
    pub registry: Registry,
    /// the control plane (last, so that it ends last)
    pub cluster: Cluster,
}

impl Stack {
    /// The stack of this test program, started at first use, ended with the program. Tests use names of their own.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Stack> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    /// A stack of the caller's own.
    pub async fn start() -> Result<Self> {
        Self::start_with(&Options::default(), |program| program).await
    }

    /// With options of the control plane and changes to the two programs (chosen by [`Program::name`]).
    pub async fn start_with(options: &Options, change: impl Fn(Program) -> Program) -> Result<Self> {
        let (cluster, registry) = tokio::try_join!(Cluster::start_for_olm(options), Registry::start())?;
        let catalogd = change(Program::catalogd(&cluster)?);
        let operator_controller = change(Program::operator_controller(&cluster)?);
        let (catalogd, operator_controller) = tokio::try_join!(catalogd.start(), operator_controller.start())
            .context("a process did not start")?;
        Ok(Self { catalogd, operator_controller, cluster_operator: None, registry, cluster })
    }

    /// Adds cluster-operator, on a cluster that has this version of OpenShift.
    pub async fn report(&mut self, version: &str) -> Result<()> {
        self.cluster.install_openshift_kinds().await?;
        self.cluster.set_openshift_version(version).await?;
        self.cluster_operator = Some(Program::cluster_operator(&self.cluster)?.start().await?);
        Ok(())
    }

    /// The roles that `kubectl olm rbac` prints for the account of an extension. `authorities`: the folder of the CA that catalogd's
    /// certificate is from; `None` for that of the kit.
    pub async fn roles(&self, extension: &str, authorities: Option<&Path>) -> Result<String> {
        let kit = Ca::shared()?;
        let cache = tempfile::tempdir()?;
        let mut command = Command::new(built("kubectl-olm")?);
        command.env("KUBECONFIG", self.cluster.kubeconfig()).args(["rbac", extension]);
        command.args(["--catalogd-url", &self.catalogd.content_url()]);
        command.arg("--catalogd-cas-dir").arg(authorities.unwrap_or(&kit.dir()));
        command.arg("--ca-file").arg(kit.certificate()).arg("--cache-dir").arg(cache.path());
        // the tasks of the test continue meanwhile
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "kubectl olm rbac: {}: {errors}", output.status);
        eprintln!("{}", errors.trim_end());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Prints the end of all logs when the test that holds it panics. Needed with [`Stack::shared`], which no test owns.
    pub fn logs_on_failure(&self) -> LogsOnPanic {
        let always = [&self.catalogd, &self.operator_controller];
        LogsOnPanic(always.into_iter().chain(&self.cluster_operator).map(Process::log).collect())
    }
}

impl Cluster {
    /// A control plane of the caller's own with what the two processes expect to find. Its garbage collector knows the kinds of OLM.
    pub async fn start_for_olm(options: &Options) -> Result<Self> {
        let cluster = Self::start_with_kinds(options, "crds").await?;
        cluster.make_namespace_and_leases().await?;
        Ok(cluster)
    }

    async fn start_with_kinds(options: &Options, folder: &str) -> Result<Self> {
        let kinds = vec![repository().join("manifests").join(folder)];
        Self::start_with(&Options { kinds, ..options.clone() }).await
    }

    /// Installs what the two processes expect to find: the CRDs, the system namespace, and leases without a holder, for which no
    /// process waits. Doing it twice is fine.
    pub async fn install_olm(&self) -> Result<()> {
        self.install_crds().await?;
        self.make_namespace_and_leases().await
    }

    async fn make_namespace_and_leases(&self) -> Result<()> {
        self.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {SYSTEM_NAMESPACE}}}}}"))
            .await?;
        for name in LEASES {
            self.apply(&format!(
                "{{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {{name: {name}, namespace: {SYSTEM_NAMESPACE}}}}}"
            ))
            .await?;
        }
        Ok(())
    }
}

impl Cluster {
    /// Installs what classic-controller expects to find: the CRDs (`manifests/classic`), its namespace, and the system namespace, whose
    /// accounts [`Cluster::kubeconfig_that_may_all`] makes. Doing it twice is fine.
    pub async fn install_classic(&self) -> Result<()> {
        self.apply_dir(&repository().join("manifests/classic")).await?;
        self.make_classic_namespaces().await
    }

    async fn make_classic_namespaces(&self) -> Result<()> {
        for name in [CLASSIC_NAMESPACE, SYSTEM_NAMESPACE] {
            self.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")).await?;
        }
        Ok(())
    }

    /// A control plane of the caller's own with what classic-controller expects to find. Its garbage collector knows the kinds of OLM Classic.
    pub async fn start_for_classic(options: &Options) -> Result<Self> {
        let cluster = Self::start_with_kinds(options, "classic").await?;
        cluster.make_classic_namespaces().await?;
        Ok(cluster)
    }
}

/// See [`Stack::logs_on_failure`].
#[derive(Debug)]
pub struct LogsOnPanic(Vec<PathBuf>);

impl Drop for LogsOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in &self.0 {
                eprintln!("--- end of {}:\n{}", log.display(), crate::child::tail(log, 0, 60));
            }
        }
    }
}
