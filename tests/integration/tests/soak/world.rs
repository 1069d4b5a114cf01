//! The system under churn: a control plane, a registry, the three programs, two catalogs and a target for each extension.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_integration::report;
use olm_kit::{AuditTail, Cluster, Options, Process, Program, Registry, Request, SYSTEM_NAMESPACE};
use serde_json::json;

use crate::sampler::Sampler;
use crate::shelf::Shelf;
use crate::target::{Target, Want};

/// The programs; each has a service account of its name, which distinguishes them in the audit log.
pub(crate) const PROGRAMS: [&str; 3] = ["catalogd", "operator-controller", "cluster-operator"];
/// The controllers of each of them.
const CONTROLLERS: [usize; 3] = [1, 3, 1];
/// Names that come and go.
const NAMES: usize = 16;
/// The field manager of targets.
pub(crate) const MANAGER: &str = "soak";

/// See the top of this file.
pub(crate) struct World {
    pub(crate) targets: Vec<Target>,
    pub(crate) shelves: Vec<Shelf>,
    pub(crate) sampler: Sampler,
    pub(crate) extensions: Api<ClusterExtension>,
    pub(crate) catalogs: Api<ClusterCatalog>,
    pub(crate) sets: Api<ClusterObjectSet>,
    pub(crate) client: Client,
    /// Requests of each program: all, those that write.
    pub(crate) requests: BTreeMap<String, (usize, usize)>,
    /// The cluster holds as much as it will.
    pub(crate) full: bool,
    record: AuditTail,
    /// In the order of [`PROGRAMS`].
    pub(crate) processes: Vec<Process>,
    pub(crate) registry: Registry,
    pub(crate) cluster: Cluster,
}

impl World {
    /// Everything runs, catalogs are served, there are no extensions yet.
    pub(crate) async fn start() -> Result<Self> {
        let options = Options { audit: true, ..Options::default() };
        let (cluster, registry) = tokio::try_join!(Cluster::start_with(&options), Registry::start())?;
        cluster.install_olm().await?;
        cluster.install_openshift_kinds().await?;
        cluster.set_openshift_version("4.20.1").await?;
        let sampler = Sampler::default();
        let mut processes = Vec::new();
        for name in PROGRAMS {
            let program = match name {
                "catalogd" => Program::catalogd(&cluster)?,
                "operator-controller" => Program::operator_controller(&cluster)?,
                _ => Program::cluster_operator(&cluster)?,
            };
            let mut process =
                program.kubeconfig(&cluster.kubeconfig_that_may_all(name).await?).start().await?;
            sampler.born(name, process.child().pid(), false);
            processes.push(process);
        }
        let client = cluster.client().await?;
        let names: Vec<String> = (0..NAMES).map(|number| format!("soak-{number:02}")).collect();
        let (left, right) = names.split_at(NAMES / 2);
        let mut world = Self {
            targets: Vec::new(),
            shelves: vec![
                Shelf::new("shelf-a", left.iter().cloned()),
                Shelf::new("shelf-b", right.iter().cloned()),
            ],
            sampler,
            extensions: Api::all(client.clone()),
            catalogs: Api::all(client.clone()),
            sets: Api::all(client.clone()),
            client,
            requests: BTreeMap::new(),
            full: false,
            record: cluster.audit_tail()?,
            processes,
            registry,
            cluster,
        };
        for shelf in 0..world.shelves.len() {
            for name in world.shelves[shelf].packages() {
                world.targets.push(Target::new(&name, &world.shelves[shelf].name));
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                world.cluster.apply(&namespace.to_string()).await?;
            }
            let all = world.shelves[shelf].packages();
            for _ in 0..2 {
                world.shelves[shelf].push(&world.registry, &all, &BTreeSet::new()).await?;
            }
            world.offer(shelf).await?;
        }
        Ok(world)
    }

    /// Creates the ClusterCatalog. It is polled every minute.
    pub(crate) async fn offer(&self, shelf: usize) -> Result<()> {
        let name = &self.shelves[shelf].name;
        let image = format!("{}/{name}:latest", self.registry.address());
        let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name, "labels": {"shelf": name}},
            "spec": {"source": {"type": "Image", "image": {"ref": image, "pollIntervalMinutes": 1}}}});
        self.catalogs.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&catalog)).await?;
        Ok(())
    }

    /// The newest version that the catalog of this extension offers.
    pub(crate) fn newest(&self, target: &Target) -> u32 {
        self.offers(target).last().copied().unwrap_or_default()
    }

    /// All versions on offer for this extension.
    pub(crate) fn offers(&self, target: &Target) -> Vec<u32> {
        self.shelves
            .iter()
            .map(|shelf| shelf.offers(&target.name))
            .find(|all| !all.is_empty())
            .unwrap_or_default()
    }

    /// Versions that extensions are pinned to.
    pub(crate) fn pinned(&self) -> BTreeSet<(String, u32)> {
        self.targets
            .iter()
            .filter_map(|target| match target.want {
                Want::Version { pin: Some(pin), .. } => Some((target.name.clone(), pin)),
                Want::Version { pin: None, .. } | Want::Nothing | Want::Unmatched | Want::Unknown => None,
            })
            .collect()
    }

    pub(crate) async fn apply_target(&self, at: usize) -> Result<()> {
        let target = &self.targets[at];
        if target.want == Want::Nothing {
            self.extensions.delete(&target.name, &DeleteParams::default()).await?;
        } else {
            let params = PatchParams::apply(MANAGER).force();
            self.extensions.patch(&target.name, &params, &Patch::Apply(target.object())).await?;
        }
        Ok(())
    }

    /// Kills a program (KILL), or ends it (TERM), and starts it again after a while, without waiting for it.
    pub(crate) async fn restart(&mut self, at: usize, gently: bool, after: Duration) -> Result<()> {
        let process = &mut self.processes[at];
        ensure!(process.child().exited().is_none(), "{} ended by itself", process.name());
        self.sampler.dies(PROGRAMS[at], process.cpu()?);
        if gently {
            ensure!(process.stop(), "{} did not end by itself within 20 s of TERM", process.name());
        } else {
            process.kill9();
        }
        tokio::time::sleep(after).await;
        process.relaunch()?;
        self.sampler.born(PROGRAMS[at], process.child().pid(), self.full);
        Ok(())
    }

    /// Ends all programs and gives what they used of the processor, so that every life has its sum.
    pub(crate) fn end(&mut self) -> Result<()> {
        for process in &mut self.processes {
            self.sampler.dies(process.name(), process.cpu()?);
            ensure!(process.stop(), "{} did not end by itself within 20 s of TERM", process.name());
        }
        Ok(())
    }

    /// Requests of our programs that finished since the last call, watches left out. They are counted.
    pub(crate) fn new_requests(&mut self) -> Result<Vec<(String, Request)>> {
        let account = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:");
        let ours: Vec<(String, Request)> = (self.record.more()?.into_iter())
            .filter(|request| request.verb != "watch")
            .filter_map(|request| {
                let program = request.user.strip_prefix(&account)?.to_owned();
                PROGRAMS.contains(&program.as_str()).then_some((program, request))
            })
            .collect();
        for (program, request) in &ours {
            let count = self.requests.entry(program.clone()).or_default();
            count.0 += 1;
            count.1 += usize::from(request.writes());
        }
        Ok(ours)
    }

    /// What the programs and the apiserver know of the catalogs and extensions with these names, and of their revisions.
    pub(crate) async fn explain(&mut self, names: &[&str]) -> Result<String> {
        let mut programs: Vec<_> = self.processes.iter_mut().zip(CONTROLLERS).collect();
        let reported = report::request(&mut programs).await?;
        Ok(report::explain(&reported, &report::live_versions(&self.client).await?, names))
    }

    /// Where the programs log.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        self.processes.iter().map(Process::log).collect()
    }

    pub(crate) fn process(&self, name: &str) -> Result<&Process> {
        self.processes.iter().find(|process| process.name() == name).context("no such process")
    }
}
