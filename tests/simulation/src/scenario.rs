//! One simulation: a schedule on a cluster, with the invariants checked all the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::SignedDuration;
use kube::Api;
use kube::api::DeleteParams;
use olm_api::{ClusterExtension, annotations, labels};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::content::Content;
use crate::harness::{Cluster, LEASE, PROCESS, PROCESSES, SYSTEM, custom_resource};
use crate::invariants::{Expected, Invariants, describe, plural, revisions};
use crate::schedule::{Action, Damage, KINDS, Outage, Policy, Step, schedule};
use crate::{Faults, InjectedError, Match, Settings};

/// How long the cluster may take after the last fault.
const CONVERGENCE: Duration = Duration::from_secs(600);
/// How long nothing may be written then.
const REST: Duration = Duration::from_secs(70);
/// How long nothing was written when the cluster counts as converged.
const SETTLE_TIME: Duration = Duration::from_secs(10);
/// The time between two checks.
const POLL: Duration = Duration::from_secs(2);

/// How a simulation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The invariant that did not hold.
    pub violation: Option<String>,
    /// A number that follows from all changes: equal for equal runs.
    pub digest: u64,
    /// Simulated time.
    pub elapsed: Duration,
    /// Changes of objects.
    pub writes: usize,
    /// Requests of the controllers.
    pub requests: usize,
}

/// Runs the schedule of a seed without the steps at `without`. It occupies the thread, whose random numbers and clocks follow from the
/// seed from then on.
///
/// # Errors
/// When there is no cluster to run on.
pub fn run(seed: u64, without: &BTreeSet<usize>) -> Result<Outcome> {
    olm_determinism::seed(seed);
    let mut steps = Vec::new();
    for (index, step) in schedule(seed).into_iter().enumerate() {
        if !without.contains(&index) {
            steps.push(step);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        olm_determinism::follow_tokio(Settings::default().epoch);
        let cluster = Cluster::start(seed, Content::new()?)?;
        let mut simulation = Simulation { cluster, invariants: Invariants::default(), custom: 0 };
        let violation = simulation.run(&steps).await.err();
        let server = &simulation.cluster.server;
        Ok(Outcome {
            violation,
            digest: simulation.invariants.digest,
            elapsed: server.elapsed(),
            writes: server.history().len(),
            requests: server.requests().len(),
        })
    })
}

struct Simulation {
    cluster: Cluster,
    invariants: Invariants,
    /// Custom resources that were created.
    custom: usize,
}

/// When an action begins or ends.
type Moment<'a> = (Duration, bool, &'a Action);

/// All beginnings and ends in order.
fn moments(steps: &[Step]) -> Vec<Moment<'_>> {
    let mut moments: Vec<Moment<'_>> = Vec::new();
    for Step { at, action } in steps {
        moments.push((*at, true, action));
        match action {
            Action::Pause { time, .. }
            | Action::Delay { time, .. }
            | Action::Noise { time }
            | Action::Lose { time, .. }
            | Action::Registry { time } => moments.push((*at + *time, false, action)),
            _ => {}
        }
    }
    moments.sort_by_key(|(at, ..)| *at);
    moments
}

impl Simulation {
    async fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        let start = Instant::now();
        for (at, begins, action) in moments(steps) {
            tokio::time::sleep_until(start + at).await;
            self.invariants.observe(&self.cluster.server)?;
            tracing::info!(begins, ?action, "step");
            if begins { self.begin(action).await } else { self.end(action) }
        }
        self.heal();
        self.settle().await
    }

    /// Waits until the cluster is as the user wants it and stays so.
    async fn settle(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + CONVERGENCE;
        loop {
            tokio::time::sleep(POLL).await;
            self.invariants.observe(&self.cluster.server)?;
            let state = self.invariants.converged(&self.cluster.server, &self.cluster.content);
            let state = state.and_then(|()| self.unchanged_for(SETTLE_TIME));
            match state {
                Ok(()) => break,
                Err(problem) if Instant::now() >= deadline => {
                    return Err(format!(
                        "not converged {} s after the last fault: {problem}",
                        CONVERGENCE.as_secs()
                    ));
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(REST).await;
        self.invariants.observe(&self.cluster.server)?;
        self.invariants.converged(&self.cluster.server, &self.cluster.content)?;
        self.unchanged_for(REST).map_err(|problem| format!("at rest: {problem}"))
    }

    /// Whether the controllers wrote nothing for this time.
    fn unchanged_for(&self, time: Duration) -> Result<(), String> {
        let server = &self.cluster.server;
        let since = server.elapsed().saturating_sub(time);
        let history = server.history();
        let recent = history.iter().rev().take_while(|write| write.at > since);
        let writes = recent.filter(|write| write.process.starts_with(PROCESS) && write.resource != "leases");
        match writes.last() {
            None => Ok(()),
            Some(write) => Err(format!("{} at {:.3} s", describe(write), write.at.as_secs_f64())),
        }
    }

    async fn begin(&mut self, action: &Action) {
        let server = self.cluster.server.clone();
        match action {
            Action::Install { extension, version } => self.install(extension, version),
            Action::Uninstall { extension, policy } => self.uninstall(extension, *policy).await,
            Action::Pause { extension, .. } => self.pause(extension, true),
            Action::Damage { extension, object, damage } => self.damage(extension, *object, *damage),
            Action::DeleteRevision { extension } => {
                let Some(Expected::Installed { .. }) = self.invariants.expected.get(extension) else {
                    return;
                };
                if let Some(newest) = revisions(&server, extension).last() {
                    self.invariants.torn_down.insert(extension);
                    let name = newest["metadata"]["name"].as_str().unwrap_or_default();
                    log(server.delete("clusterobjectsets", None, name));
                }
            }
            Action::CustomResource { extension } => {
                let goes = |set: &Arc<Value>| !set["metadata"]["deletionTimestamp"].is_null();
                let Some(Expected::Installed { .. }) = self.invariants.expected.get(extension) else {
                    return;
                };
                if !revisions(&server, extension).iter().any(goes) {
                    self.custom += 1;
                    log(server.put(custom_resource(extension, self.custom)).map(drop));
                }
            }
            Action::Delay { resource, by, .. } => server.delay(resource, *by),
            Action::Drop { resource } => server.drop_watches(resource),
            Action::Compact => {
                server.compact();
                server.drop_watches("");
            }
            Action::Fail { resource, writes, fault, times } => {
                let requests = if *writes {
                    Match::write(resource)
                } else {
                    Match { resource: Some((*resource).to_owned()), ..Match::default() }
                };
                let faults = [
                    InjectedError::Status(500),
                    InjectedError::Status(429),
                    InjectedError::Status(409),
                    InjectedError::ResetBefore,
                    InjectedError::ResetAfter,
                    InjectedError::Delay(Duration::from_secs(3)),
                ];
                server.fail_next(requests, faults[fault % faults.len()].clone(), *times);
            }
            Action::Noise { .. } => server.set_faults(Faults {
                error: 0.05,
                throttle: 0.05,
                reset_before: 0.05,
                reset_after: 0.05,
                watch_end: 0.05,
                watch_delay: 0.1,
                watch_delay_max: Duration::from_secs(5),
                expired: 0.2,
                ..Faults::default()
            }),
            Action::DeleteLease => log(server.delete("leases", Some(SYSTEM), LEASE)),
            Action::Lose { process, outage: Outage::Kill, .. } => self.cluster.lose(*process, true),
            Action::Lose { process, outage: Outage::Partition, .. } => {
                server.partition(&self.cluster.process(*process), true);
            }
            Action::Clock { seconds } => {
                olm_determinism::shift_wall_clock(SignedDuration::from_secs(*seconds))
            }
            Action::Registry { .. } => self.cluster.content.set_outage(true),
        }
    }

    fn end(&mut self, action: &Action) {
        let server = &self.cluster.server;
        match action {
            Action::Pause { extension, .. } => self.pause(extension, false),
            Action::Delay { resource, .. } => server.delay(resource, Duration::ZERO),
            Action::Noise { .. } => server.set_faults(Faults::default()),
            Action::Lose { process, outage: Outage::Kill, .. } => self.cluster.lose(*process, false),
            Action::Lose { process, outage: Outage::Partition, .. } => {
                server.partition(&self.cluster.process(*process), false);
            }
            Action::Registry { .. } => self.cluster.content.set_outage(false),
            _ => {}
        }
    }

    /// Ends all faults. Those that have ended are ended again, because two of a kind may have met.
    fn heal(&self) {
        let server = &self.cluster.server;
        server.heal();
        for resource in KINDS {
            server.delay(resource, Duration::ZERO);
        }
        self.cluster.content.set_outage(false);
        for place in 0..PROCESSES {
            self.cluster.lose(place, false);
        }
        for extension in self.invariants.expected.keys() {
            self.pause(extension, false);
        }
    }

    fn live(&self, extension: &str) -> Option<Arc<Value>> {
        self.cluster.server.get("clusterextensions", None, extension)
    }

    fn install(&mut self, extension: &'static str, version: &'static str) {
        let server = &self.cluster.server;
        let is_left = self.invariants.expected.get(extension) == Some(&Expected::Left);
        match self.live(extension) {
            // its orphans are in the way
            None if is_left => return,
            None => log(server
                .put(json!({
                    "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": extension},
                    "spec": {"namespace": extension, "source": {"sourceType": "Catalog", "catalog": {
                        "packageName": extension, "version": version, "upgradeConstraintPolicy": "SelfCertified"}}},
                }))
                .map(drop)),
            Some(found) if found["metadata"]["deletionTimestamp"].is_null() => {
                let patch = json!({"spec": {"source": {"catalog": {"version": version}}}});
                log(server.patch("clusterextensions", None, extension, patch).map(drop));
            }
            Some(_) => return,
        }
        self.invariants.expected.insert(extension, Expected::Installed { version });
    }

    async fn uninstall(&mut self, extension: &'static str, policy: Policy) {
        let server = self.cluster.server.clone();
        let Some(Expected::Installed { version }) = self.invariants.expected.get(extension).cloned() else {
            return;
        };
        if policy != Policy::Background {
            self.protect(extension, version);
        }
        if policy == Policy::Keep {
            let annotation = json!({(annotations::DELETION_POLICY): annotations::DELETION_POLICY_KEEP});
            let patch = json!({"metadata": {"annotations": annotation}});
            log(server.patch("clusterextensions", None, extension, patch).map(drop));
        }
        if policy == Policy::Orphan {
            let api: Api<ClusterExtension> = Api::all(server.user());
            log(api.delete(extension, &DeleteParams::orphan()).await.map(drop).map_err(Into::into));
        } else {
            log(server.delete("clusterextensions", None, extension));
        }
        let expected = match policy {
            Policy::Background => Expected::Removed { at: server.elapsed() },
            Policy::Orphan | Policy::Keep => Expected::Left,
        };
        self.invariants.expected.insert(extension, expected);
    }

    /// What the newest revision controls must stay, and so must custom resources.
    fn protect(&mut self, extension: &'static str, version: &str) {
        let server = &self.cluster.server;
        let sets = revisions(server, extension);
        let Some(newest) = sets.last() else { return };
        let metadata = &newest["metadata"];
        // an older one may be on its way out
        if metadata["annotations"][annotations::BUNDLE_VERSION] != version
            || !metadata["deletionTimestamp"].is_null()
        {
            return;
        }
        for (resource, object) in server.all() {
            let owners =
                object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_operand = object["metadata"]["labels"][labels::OWNER_NAME] == extension
                && resource != "secrets"
                && owners.iter().any(|owner| owner["uid"] == metadata["uid"]);
            if is_operand || resource == format!("{extension}s") {
                self.invariants.protected.extend(object["metadata"]["uid"].as_str().map(str::to_owned));
            }
        }
    }

    fn pause(&self, extension: &str, is_paused: bool) {
        let Some(_) = self.live(extension) else { return };
        let value = is_paused.then_some("true");
        let patch = json!({"metadata": {"annotations": {(annotations::PAUSED): value}}});
        log(self.cluster.server.patch("clusterextensions", None, extension, patch).map(drop));
    }

    fn damage(&self, extension: &str, object: usize, damage: Damage) {
        let server = &self.cluster.server;
        let Some(Expected::Installed { version }) = self.invariants.expected.get(extension) else { return };
        let objects = self.cluster.content.objects(extension, version);
        let Some(object) = objects.get(object % objects.len().max(1)) else { return };
        let key = object.key();
        let (resource, namespace) = (plural(&key.kind), key.namespace.as_deref());
        let Some(live) = server.get(&resource, namespace, &key.name) else { return };
        let patch = match (key.kind.as_str(), damage) {
            // its deletion would delete custom resources
            ("CustomResourceDefinition", _) => json!({"metadata": {"labels": {(labels::OWNER_NAME): null}}}),
            (_, Damage::Delete) => return log(server.delete(&resource, namespace, &key.name)),
            ("ConfigMap", _) => json!({"data": {"version": "edited"}}),
            ("Deployment", _) => json!({"spec": {"template": {"spec": {"serviceAccountName": "edited"}}}}),
            ("ClusterRole" | "Role", _) => json!({"rules": []}),
            ("ClusterRoleBinding" | "RoleBinding", _) => json!({"subjects": []}),
            _ => json!({"metadata": {"labels": {(labels::OWNER_NAME): null}}}),
        };
        if live["metadata"]["deletionTimestamp"].is_null() {
            log(server.patch(&resource, namespace, &key.name, patch).map(drop));
        }
    }
}

/// The user gets the error and continues.
fn log(result: Result<()>) {
    if let Err(error) = result {
        tracing::info!(%error, "the user's request failed");
    }
}
