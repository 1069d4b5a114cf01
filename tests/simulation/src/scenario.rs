//! One simulation: a schedule on a cluster, with the invariants checked all the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kube::Api;
use kube::api::DeleteParams;
use olm_api::{ClusterExtension, annotations, labels};
use olm_core::{Object, ObjectKey};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::content::{only, rival};
use crate::harness::{ACCOUNT, Cluster, MONITORS, Prepared, account, custom_resource, monitors};
use crate::invariants::{Expected, Invariants, changed_fields, describe, plural, revisions};
use crate::lease::LeaseHistory;
use crate::outcome::{Outcome, simulate};
use crate::processes::{PROCESS, PROCESSES, Processes};
use crate::schedule::{Action, Damage, KINDS, Policy, Step, moments, relies_on_events, schedule};
use crate::{ApiServer, InjectedError, Match, Verb, Write};

/// How long the cluster may take after the last fault.
pub(crate) const CONVERGENCE: Duration = Duration::from_secs(600);
/// How long nothing may be written then.
const REST: Duration = Duration::from_secs(70);
/// How long after the last fault what has failed is tried again.
const RETRY: Duration = olm_runtime::backoff::UNFINISHED;
/// How long nothing was written when the cluster counts as converged.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(10);
/// By how much events are delayed that [`Action::Unlabel`] hides; it ends that.
const UNSEEN: Duration = Duration::from_secs(60);
/// How long the user waits for what follows from a request, before the next one.
const TURN: Duration = Duration::from_secs(10);
/// The time between two checks.
pub(crate) const POLL: Duration = Duration::from_secs(2);

/// Runs the schedule of a seed without the steps at `without`. It occupies the thread, whose random numbers and clocks follow from the
/// seed from then on.
pub fn run(prepared: Prepared, seed: u64, without: &BTreeSet<usize>) -> Result<Outcome> {
    let steps = schedule(seed).into_iter().enumerate().filter(|(index, _)| !without.contains(index));
    let steps: Vec<Step> = steps.map(|(_, step)| step).collect();
    simulate(seed, async || {
        let cluster = Cluster::start(seed, prepared)?;
        let (invariants, has_requeue) = (Invariants::default(), !relies_on_events(seed));
        let mut simulation = Simulation { cluster, invariants, custom: 0, has_requeue };
        let violation = simulation.run(&steps).await.err();
        Ok(Outcome::new(&simulation.cluster.server, simulation.invariants.digest, violation))
    })
}

struct Simulation {
    cluster: Cluster,
    invariants: Invariants,
    /// Custom resources that were created.
    custom: usize,
    /// What is not finished is reconciled every minute.
    has_requeue: bool,
}

impl Simulation {
    async fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        let mut start = Instant::now();
        for (at, begins, action) in moments(steps) {
            // a step that waits delays all later ones, so that none is cut short
            start += Instant::now().saturating_duration_since(start + at);
            tokio::time::sleep_until(start + at).await;
            self.invariants.observe(&self.cluster.server)?;
            tracing::info!(begins, ?action, "step");
            if begins { self.begin(action).await? } else { self.end(action) }
        }
        self.heal();
        self.settle().await
    }

    /// Waits until the cluster is as the user wants it and stays so.
    async fn settle(&mut self) -> Result<(), String> {
        let healed = Instant::now();
        if self.invariants.has_unjudged() {
            // what is left of an extension is repaired, too, at the latest by the next requeue
            tokio::time::sleep(REST).await;
        }
        loop {
            tokio::time::sleep(POLL).await;
            self.invariants.observe(&self.cluster.server)?;
            let state = self.invariants.converged(&self.cluster.server, &self.cluster.content);
            let state = state
                .and_then(|()| self.has_leader())
                .and_then(|()| unchanged_for(&self.cluster.server, SETTLE_TIME, |_| true));
            match state {
                Ok(()) => break,
                Err(problem) if healed.elapsed() >= CONVERGENCE => {
                    let seconds = CONVERGENCE.as_secs();
                    return Err(format!("not converged {seconds} s after the last fault: {problem}"));
                }
                Err(_) => {}
            }
        }
        let passes = self.cluster.processes.passes();
        // what is left of an extension is repaired without an event when its account is there again
        let is_excused =
            !self.has_requeue && self.invariants.has_unjudged() && self.invariants.has_deleted_accounts();
        let (server, counts) = (self.cluster.server.clone(), |_: &Write| !is_excused);
        rests(&server, healed, counts, || {
            self.invariants.observe(&server)?;
            self.invariants.converged(&server, &self.cluster.content)
        })
        .await?;
        let is_blocked = |expected: &Expected| matches!(expected, Expected::Blocked { .. });
        let is_any_blocked = self.has_requeue && self.invariants.expected.values().any(is_blocked);
        if is_any_blocked && self.cluster.processes.passes() == passes {
            let seconds = REST.as_secs();
            return Err(format!("an extension is blocked, and nothing was reconciled for {seconds} s"));
        }
        Ok(())
    }

    fn has_leader(&self) -> Result<(), String> {
        has_leader(&self.cluster.server, &self.cluster.processes, &self.invariants.lease)
    }

    async fn begin(&mut self, action: &Action) -> Result<(), String> {
        let server = self.cluster.server.clone();
        match action {
            Action::Install { extension, version, account } => self.install(extension, version, *account),
            Action::Uninstall { extension, policy } => self.uninstall(extension, *policy).await,
            Action::Pause { extension, .. } => self.pause(extension, true),
            Action::Damage { extension, object, damage } => self.damage(extension, *object, *damage),
            Action::Overtake { extension, object, .. } => {
                self.damage(extension, *object, Damage::Edit);
                if let Some(resource) = self.resource(extension, *object) {
                    let delay = InjectedError::DelayAnswer(Duration::from_secs(3));
                    server.fail_next(patches(resource), delay, 1);
                }
            }
            Action::Unlabel { extension, version, object, time } => {
                self.install(extension, version, false);
                if let Some(key) = self.operand(extension, *object) {
                    tokio::spawn(tokio::time::timeout(*time, unlabel(server, extension, key)));
                }
            }
            Action::Abandon { extension, version, object } => {
                self.install(extension, version, false);
                let archives = wait_for_revisions(&server, || is_archiving(&server, extension));
                let archives = tokio::time::timeout(TURN, archives).await;
                self.invariants.observe(&server)?;
                if archives.is_ok() {
                    if let Some(key) = self.operand(extension, *object) {
                        delay_release(&server, &key);
                    }
                    self.uninstall(extension, Policy::Orphan).await;
                }
            }
            Action::Reclaim { extension, .. } => self.reclaim(extension).await?,
            Action::Rival { extension, version, .. } => self.begin_rival(extension, version).await,
            Action::Obstruct { extension, version, has_label, .. } => {
                if !self.is_left(extension) {
                    log(server.put(obstruction(extension, version, *has_label)).map(drop));
                }
            }
            Action::DeleteRevision { extension } => {
                let newest = revisions(&server, extension).pop();
                if let Some(newest) = newest.filter(|_| self.is_installed(extension)) {
                    self.invariants.torn_down.insert(extension);
                    let name = newest["metadata"]["name"].as_str().unwrap_or_default();
                    log(server.delete("clusterobjectsets", None, name));
                }
            }
            Action::CustomResource { extension } => {
                let goes = |set: &Arc<Value>| !set["metadata"]["deletionTimestamp"].is_null();
                if self.is_installed(extension) && !revisions(&server, extension).iter().any(goes) {
                    self.custom += 1;
                    log(server.put(custom_resource(extension, self.custom)).map(drop));
                }
            }
            Action::DeleteAccount { extension, .. } => {
                log(server.delete("serviceaccounts", Some(extension), ACCOUNT));
            }
            Action::Unserve { is_hidden, .. } => {
                if *is_hidden {
                    server.drop_watches("servicemonitors");
                }
                // the user deletes the objects with their kind
                for monitor in server.list("servicemonitors") {
                    let uid = monitor["metadata"]["uid"].as_str();
                    uid.map(|uid| self.invariants.protected.remove(uid));
                }
                log(server.delete("customresourcedefinitions", None, MONITORS));
            }
            Action::Flap { extension, .. } => {
                server.fail(creation_of_configs(), InjectedError::Status(404));
                self.delete_configs(|of| of == *extension);
            }
            Action::Registry { .. } => self.cluster.content.set_outage(true),
            Action::Disturbance(fault) => log(fault.begin(&server, &self.cluster.processes, &KINDS)),
        }
        Ok(())
    }

    fn end(&mut self, action: &Action) {
        let server = &self.cluster.server;
        match action {
            Action::Pause { extension, .. } => self.pause(extension, false),
            Action::Overtake { extension, object, .. } => {
                self.damage(extension, *object, Damage::Delete);
                if let Some(resource) = self.resource(extension, *object) {
                    server.compact();
                    server.drop_watches(&resource);
                }
            }
            Action::Unlabel { extension, object, .. } => {
                let resource = self.resource(extension, *object);
                resource.iter().for_each(|resource| server.delay(resource, Duration::ZERO));
            }
            Action::Reclaim { .. } => server.delay("clusterobjectsets", Duration::ZERO),
            Action::Rival { extension, version, .. } if self.live(&rival(extension)).is_some() => {
                tokio::spawn(displace(server.clone(), extension));
                self.install(extension, version, false);
            }
            Action::Obstruct { extension, .. } => drop(tokio::spawn(clear(server.clone(), extension))),
            Action::DeleteAccount { extension, .. } => log(server.put(account(extension)).map(drop)),
            Action::Unserve { .. } => log(server.put(monitors()).map(drop)),
            Action::Flap { extension, .. } => {
                self.delete_configs(|of| of != *extension);
                server.stop_failing(&creation_of_configs());
            }
            Action::Registry { .. } => self.cluster.content.set_outage(false),
            Action::Disturbance(fault) => log(fault.end(server, &self.cluster.processes, &KINDS)),
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
            self.cluster.processes.lose(place, false);
        }
        for extension in self.invariants.expected.keys() {
            self.pause(extension, false);
        }
    }

    fn live(&self, extension: &str) -> Option<Arc<Value>> {
        self.cluster.server.get("clusterextensions", None, extension)
    }

    fn install(&mut self, extension: &'static str, version: &'static str, account: bool) {
        let server = &self.cluster.server;
        let before = self.invariants.expected.get(extension).cloned().unwrap_or_default();
        let mut expected = match before {
            // it may have been deleted before it had any object
            Expected::Left { is_orphaned: false, .. } | Expected::Blocked { .. }
                if self.has_objects(extension, version) =>
            {
                Expected::Blocked { version }
            }
            _ => Expected::Installed { version },
        };
        match self.live(extension) {
            None => {
                let mut object = extension_of(extension, extension, version);
                if account {
                    object["spec"]["serviceAccount"] = json!({"name": ACCOUNT});
                }
                log(server.put(object).map(drop));
                if let Expected::Left { is_orphaned: true, .. } = before {
                    // they are its own now
                    self.invariants.protected.retain(|_, of| *of != extension);
                    expected = Expected::Installed { version };
                }
            }
            Some(found) if found["metadata"]["deletionTimestamp"].is_null() => {
                let patch = json!({"spec": {"source": {"catalog": {"version": version}}}});
                log(server.patch("clusterextensions", None, extension, patch).map(drop));
            }
            Some(_) => return,
        }
        self.invariants.expected.insert(extension, expected);
    }

    /// Replaces the extension by another one of its package, if nothing of an earlier one is in the way.
    async fn begin_rival(&mut self, extension: &'static str, version: &str) {
        if self.is_left(extension) {
            return;
        }
        // with the other extension go the custom resources of the package
        self.invariants.torn_down.insert(extension);
        self.uninstall(extension, Policy::Background).await;
        if self.live(&rival(extension)).is_none() {
            log(self.cluster.server.put(extension_of(&rival(extension), extension, version)).map(drop));
        }
    }

    async fn uninstall(&mut self, extension: &'static str, policy: Policy) {
        let server = self.cluster.server.clone();
        let version = match self.invariants.expected.get(extension) {
            Some(Expected::Installed { version }) => *version,
            Some(Expected::Blocked { version }) => {
                let expected = Expected::Left { version, is_orphaned: false };
                log(server.delete("clusterextensions", None, extension));
                self.invariants.expected.insert(extension, expected);
                return;
            }
            _ => return,
        };
        let is_taken_over = self.is_owner_of_all(extension);
        // what earlier extensions orphaned may be kept or orphaned then
        if policy == Policy::Keep && !is_taken_over {
            return;
        }
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
            // revisions that were there before it may stay, as it may have gone before it took them over
            Policy::Background if !is_taken_over => Expected::Nothing,
            Policy::Background => Expected::Removed { at: server.elapsed() },
            Policy::Orphan => Expected::Left { version, is_orphaned: true },
            Policy::Keep => Expected::Left { version, is_orphaned: false },
        };
        self.invariants.expected.insert(extension, expected);
    }

    /// Orphans the objects of an extension, installs it over them, and removes it with the policy to keep them when it has taken them over.
    async fn reclaim(&mut self, extension: &'static str) -> Result<(), String> {
        let server = self.cluster.server.clone();
        let Some(Expected::Installed { version }) = self.invariants.expected.get(extension).cloned() else {
            return Ok(());
        };
        self.uninstall(extension, Policy::Orphan).await;
        let goes = wait_for(&server, "clusterextensions", || self.live(extension).is_none());
        drop(tokio::time::timeout(TURN, goes).await);
        self.invariants.observe(&server)?;
        server.delay("clusterobjectsets", UNSEEN);
        let adoption = patches("clusterobjectsets".to_owned());
        server.fail_next(adoption.clone(), InjectedError::ResetAfter, 1);
        self.install(extension, version, false);
        let is_adopted = wait_for_revisions(&server, || self.is_owner_of_all(extension));
        drop(tokio::time::timeout(TURN, is_adopted).await);
        server.stop_failing(&adoption);
        self.invariants.observe(&server)?;
        self.uninstall(extension, Policy::Keep).await;
        Ok(())
    }

    fn is_installed(&self, extension: &str) -> bool {
        matches!(self.invariants.expected.get(extension), Some(Expected::Installed { .. }))
    }

    /// Whether objects of an earlier extension of this name may be there.
    fn is_left(&self, extension: &str) -> bool {
        let expected = self.invariants.expected.get(extension);
        matches!(expected, Some(Expected::Left { .. } | Expected::Blocked { .. }))
    }

    /// Whether an object that the version has is there, and does not belong to a rival, which will go.
    fn has_objects(&self, extension: &str, version: &str) -> bool {
        let Cluster { server, content, .. } = &self.cluster;
        content.objects(extension, version).iter().any(|object| {
            let key = object.key();
            let found = server.get(&plural(&key.kind), key.namespace.as_deref(), &key.name);
            let owners = found.as_ref().map(|object| &object["metadata"]["ownerReferences"]);
            let owner = owners.and_then(|owners| owners[0]["name"].as_str()).unwrap_or_default();
            found.is_some() && !owner.starts_with(&rival(extension))
        })
    }

    /// Whether the extension owns all revisions that have its name.
    fn is_owner_of_all(&self, extension: &str) -> bool {
        let Some(live) = self.live(extension) else { return true };
        let is_owner = |owner: &Value| owner["uid"] == live["metadata"]["uid"];
        revisions(&self.cluster.server, extension).iter().all(|set| {
            set["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.iter().any(is_owner))
        })
    }

    /// What the newest revision controls must stay, and so must custom resources.
    fn protect(&mut self, extension: &'static str, version: &str) {
        let server = &self.cluster.server;
        let sets = revisions(server, extension);
        let Some(newest) = sets.last() else { return };
        // what is there belongs to that one
        if self.live(&rival(extension)).is_some() {
            return;
        }
        let metadata = &newest["metadata"];
        let is_of_version = metadata["annotations"][annotations::BUNDLE_VERSION] == version;
        // an older one may be on its way out
        if !is_of_version || !metadata["deletionTimestamp"].is_null() {
            return;
        }
        for (resource, object) in server.all() {
            let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let is_operand = object["metadata"]["labels"][labels::OWNER_NAME] == extension
                && resource != "secrets"
                && owners.any(|owner| owner["uid"] == metadata["uid"]);
            // those of a kind that the user deletes go with it
            if resource == "servicemonitors" && !is_served(server) {
                continue;
            }
            if is_operand || resource == format!("{extension}s") {
                let uid = object["metadata"]["uid"].as_str();
                self.invariants.protected.extend(uid.map(|uid| (uid.to_owned(), extension)));
            }
        }
    }

    /// Deletes the ConfigMaps of extensions: all, because the next listing of their watch wakes the revision of any that is left.
    fn delete_configs(&self, of: impl Fn(&str) -> bool) {
        for (extension, expected) in &self.invariants.expected {
            let Expected::Installed { version } = expected else { continue };
            let names = [format!("{extension}-settings"), only(extension, version)];
            for name in names.iter().filter(|_| of(extension)) {
                log(self.cluster.server.delete("configmaps", Some(extension), name));
            }
        }
    }

    fn pause(&self, extension: &str, is_paused: bool) {
        let Some(_) = self.live(extension) else { return };
        let value = is_paused.then_some("true");
        let patch = json!({"metadata": {"annotations": {(annotations::PAUSED): value}}});
        log(self.cluster.server.patch("clusterextensions", None, extension, patch).map(drop));
    }

    /// The object of an extension with this index, counted round, if it has any.
    fn operand(&self, extension: &str, object: usize) -> Option<ObjectKey> {
        let version = match self.invariants.expected.get(extension)? {
            Expected::Installed { version } | Expected::Left { version, is_orphaned: true } => version,
            _ => return None,
        };
        let objects = self.cluster.content.objects(extension, version);
        objects.get(object % objects.len().max(1)).map(Object::key)
    }

    fn resource(&self, extension: &str, object: usize) -> Option<String> {
        self.operand(extension, object).map(|key| plural(&key.kind))
    }

    fn damage(&self, extension: &str, object: usize, damage: Damage) {
        let server = &self.cluster.server;
        let Some(key) = self.operand(extension, object) else { return };
        let (resource, namespace) = (plural(&key.kind), key.namespace.as_deref());
        let Some(live) = server.get(&resource, namespace, &key.name) else { return };
        // an operator that is gone cannot finalize the custom resources that a teardown waits for
        let is_torn_down = |set: &Arc<Value>| !set["metadata"]["deletionTimestamp"].is_null();
        if key.kind == "Deployment" && revisions(server, extension).iter().any(is_torn_down) {
            return;
        }
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

/// Whether a process that runs has led for so long that it has begun what it had to do.
/// The error names who leads instead.
pub(crate) fn has_leader(server: &ApiServer, of: &Processes, lease: &LeaseHistory) -> Result<(), String> {
    let LeaseHistory { leader, leads_since, .. } = lease;
    let mut running = (0..PROCESSES).map(|place| of.name(place));
    let leads = running.any(|name| leader.as_ref() == Some(&name));
    if leads && server.elapsed() >= *leads_since + SETTLE_TIME {
        return Ok(());
    }
    Err(format!("{} leads", leader.as_deref().unwrap_or("no process")))
}

/// Whether the controllers wrote nothing that counts for this time, leases apart.
/// The error is the last write.
pub(crate) fn unchanged_for(
    server: &ApiServer,
    time: Duration,
    counts: impl Fn(&Write) -> bool,
) -> Result<(), String> {
    let last = server.find_recent(time, |write| {
        let counts = write.process.starts_with(PROCESS) && write.resource != "leases" && counts(write);
        let at = write.at.as_secs_f64();
        counts.then(|| format!("{} at {at:.3} s: {}", describe(write), changed_fields(write)))
    });
    last.map_or(Ok(()), Err)
}

/// Waits for a time of [`REST`] without a write: from now on, or after the last retry. `holds` is asked at its end.
pub(crate) async fn rests(
    server: &ApiServer,
    healed: Instant,
    counts: impl Fn(&Write) -> bool,
    mut holds: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let mut since = Instant::now();
    loop {
        tokio::time::sleep_until(since + REST).await;
        holds()?;
        match unchanged_for(server, REST, &counts) {
            Err(_) if since < healed + RETRY => since = healed + RETRY,
            unchanged => return unchanged.map_err(|problem| format!("at rest: {problem}")),
        }
    }
}

/// Whether a revision of the extension is to be archived, and is not yet.
fn is_archiving(server: &ApiServer, extension: &str) -> bool {
    revisions(server, extension).iter().any(|set| {
        let conditions = set["status"]["conditions"].as_array().into_iter().flatten();
        let reasons: Vec<&Value> = conditions.map(|condition| &condition["reason"]).collect();
        set["spec"]["lifecycleState"] == "Archived" && !reasons.contains(&&json!("Archived"))
    })
}

/// Waits until a revision of the extension is to be archived, and then removes the owner label of an object, unseen.
async fn unlabel(server: ApiServer, extension: &'static str, key: ObjectKey) {
    wait_for_revisions(&server, || is_archiving(&server, extension)).await;
    let resource = plural(&key.kind);
    server.delay(&resource, UNSEEN);
    // comes last, when the events of the others have been taken in
    delay_release(&server, &key);
    let patch = json!({"metadata": {"labels": {(labels::OWNER_NAME): null}}});
    log(server.patch(&resource, key.namespace.as_deref(), &key.name, patch).map(drop));
}

fn patches(resource: String) -> Match {
    Match { resource: Some(resource), verbs: vec![Verb::Patch], ..Match::default() }
}

/// Delays the request by which a revision releases an object.
fn delay_release(server: &ApiServer, key: &ObjectKey) {
    let release = Match { name: Some(key.name.clone()), ..patches(plural(&key.kind)) };
    server.fail_next(release, InjectedError::Delay(Duration::from_secs(2)), 1);
}

/// Waits until the extension has a revision, which collides with its rival, and then deletes that.
async fn displace(server: ApiServer, extension: &'static str) {
    let collides = wait_for_revisions(&server, || {
        let has_conditions = |set: &Arc<Value>| set["status"]["conditions"].is_array();
        revisions(&server, extension).iter().any(has_conditions)
    });
    drop(tokio::time::timeout(UNSEEN / 2, collides).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    log(server.delete("clusterextensions", None, &rival(extension)));
}

/// Deletes the ClusterObjectSet that is in the way of the extension, while no watch shows what becomes of its ConfigMap.
async fn clear(server: ApiServer, extension: &'static str) {
    let name = rival(extension);
    server.delay("configmaps", UNSEEN);
    log(server.delete("clusterobjectsets", None, &name));
    let goes = wait_for_revisions(&server, || server.get("clusterobjectsets", None, &name).is_none());
    drop(tokio::time::timeout(UNSEEN / 2, goes).await);
    server.compact();
    server.drop_watches("configmaps");
    server.delay("configmaps", Duration::ZERO);
}

async fn wait_for_revisions(server: &ApiServer, holds: impl Fn() -> bool) {
    wait_for(server, "clusterobjectsets", holds).await;
}

/// Waits until this holds, which depends on the objects of one kind.
pub(crate) async fn wait_for(server: &ApiServer, plural: &str, holds: impl Fn() -> bool) {
    let mut changes = server.changes_of(plural, olm_api::GROUP);
    while !holds() && changes.changed().await.is_ok() {}
}

/// A ClusterObjectSet with the ConfigMap of this version, in a phase whose objects are not left to the garbage collector. With a
/// label, the watch of all ConfigMaps shows it.
fn obstruction(extension: &str, version: &str, has_label: bool) -> Value {
    let mut config = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": only(extension, version), "namespace": extension}});
    if has_label {
        config["metadata"]["labels"] = json!({(labels::OWNER_NAME): rival(extension)});
    }
    json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": {"name": rival(extension)}, "spec": {
        "lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent",
        "phases": [{"name": "deploy", "objects": [{"object": config}]}]}})
}

/// An extension that may go to any version.
fn extension_of(name: &str, package: &str, version: &str) -> Value {
    let catalog =
        json!({"packageName": package, "version": version, "upgradeConstraintPolicy": "SelfCertified"});
    json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": package, "source": {"sourceType": "Catalog", "catalog": catalog}}})
}

fn creation_of_configs() -> Match {
    Match { resource: Some("configmaps".to_owned()), verbs: vec![Verb::Create], ..Match::default() }
}

/// Whether the kind that is unserved at times is there to stay.
fn is_served(server: &ApiServer) -> bool {
    let kind = server.get("customresourcedefinitions", None, MONITORS);
    kind.is_some_and(|kind| kind["metadata"]["deletionTimestamp"].is_null())
}

/// The user gets the error and continues.
pub(crate) fn log(result: Result<()>) {
    if let Err(error) = result {
        tracing::info!(%error, "the user's request failed");
    }
}
