//! One simulation of OLM Classic: a schedule on a cluster, with the invariants checked all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::content::{CATALOG_IMAGE, CHANNEL, EARLIER_IMAGE, crd_names, custom_resource, packages};
use super::harness::{
    ACCOUNT, Cluster, NAMESPACES, Prepared, YARD, catalog_source, furniture, group, subscription,
};
use super::invariants::{COPIED_FROM, Expected, Invariants, is_copy, text};
use super::schedule::{Action, KINDS, Target, schedule};
use super::state::{csvs, list};
use crate::invariants::changed_fields;
use crate::outcome::{Outcome, simulate};
use crate::processes::{PROCESSES, SYSTEM};
use crate::scenario::{CONVERGENCE, POLL, SETTLE_TIME, has_leader, log, rests, unchanged_for};
use crate::schedule::{Step, moments};
use crate::{ApiServer, Write};

/// The name of a further OperatorGroup.
const RIVAL: &str = "rival";
/// The time between two writes of another client.
const RIVAL_INTERVAL: Duration = Duration::from_millis(200);
/// When the user deletes what unfinished plans have left, since the last fault; the second time because a plan that was still tried again
/// may have made it again. Plans are tried again for 60 s.
const LOOKS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(180)];

/// Runs the schedule of a seed without the steps at `without`, on the thread of the caller, whose random numbers and clocks follow from
/// the seed from then on.
pub fn run(prepared: Prepared, seed: u64, without: &BTreeSet<usize>) -> Result<Outcome> {
    let steps = schedule(seed).into_iter().enumerate().filter(|(index, _)| !without.contains(index));
    let steps: Vec<Step<Action>> = steps.map(|(_, step)| step).collect();
    simulate(seed, async || {
        let cluster = Cluster::start(seed, prepared)?;
        let (invariants, definitions) = (Invariants::default(), BTreeMap::new());
        let mut simulation = Simulation { cluster, invariants, custom: 0, definitions };
        let violation = simulation.run(&steps).await.err();
        Ok(Outcome::new(&simulation.cluster.server, simulation.invariants.digest, violation))
    })
}

struct Simulation {
    cluster: Cluster,
    invariants: Invariants,
    /// Custom resources that were created.
    custom: usize,
    /// Definitions that were deleted, as they were.
    definitions: BTreeMap<String, Value>,
}

impl Simulation {
    async fn run(&mut self, steps: &[Step<Action>]) -> Result<(), String> {
        let start = Instant::now();
        for (at, begins, action) in moments(steps) {
            tokio::time::sleep_until(start + at).await;
            self.invariants.observe(&self.cluster.server)?;
            tracing::info!(begins, ?action, "step");
            if begins { self.begin(action) } else { self.end(action) }
        }
        self.heal();
        self.settle().await
    }

    /// Waits until the cluster is as the user wants it and stays so.
    async fn settle(&mut self) -> Result<(), String> {
        let server = self.cluster.server.clone();
        let (start, mut looks) = (Instant::now(), LOOKS.into_iter().peekable());
        loop {
            tokio::time::sleep(POLL).await;
            self.invariants.observe(&server)?;
            self.restore();
            for namespace in NAMESPACES {
                self.approve(namespace);
                self.retry_plans(namespace);
            }
            if looks.next_if(|look| start.elapsed() >= *look).is_some() {
                self.delete_unfinished();
                let removed = self.invariants.expected.iter().filter(|(_, it)| **it == Expected::Removed);
                for (namespace, _) in removed {
                    // plans may have made some after the user unsubscribed
                    self.delete_listed("subscriptions", namespace);
                    self.delete_all("clusterserviceversions", csvs(&server, namespace));
                }
            }
            let state = self.invariants.converged(&server, &self.cluster.content);
            let state = state
                .and_then(|()| has_leader(&server, &self.cluster.processes, &self.invariants.lease))
                .and_then(|()| unchanged_for(&server, SETTLE_TIME, counts));
            match state {
                Ok(()) if looks.len() < LOOKS.len() => break,
                Err(problem) if start.elapsed() >= CONVERGENCE => {
                    let seconds = CONVERGENCE.as_secs();
                    return Err(format!("not converged {seconds} s after the last fault: {problem}"));
                }
                Ok(()) | Err(_) => {}
            }
        }
        rests(&server, start, counts, || {
            self.invariants.observe(&server)?;
            self.invariants.converged(&server, &self.cluster.content)
        })
        .await
    }

    fn begin(&mut self, action: &Action) {
        let server = self.cluster.server.clone();
        match action {
            Action::Subscribe { namespace, is_manual } => self.subscribe(namespace, *is_manual),
            Action::Unsubscribe { namespace } => {
                if self.is_installed(namespace) {
                    self.invariants.expected.insert(namespace, Expected::Removed);
                    self.delete_listed("subscriptions", namespace);
                    self.delete_all("clusterserviceversions", csvs(&server, namespace));
                }
            }
            Action::Resubscribe { namespace } => self.resubscribe(packages(namespace)[0]),
            Action::Publish { package } => self.cluster.content.publish(package),
            Action::Approve { namespace } => self.approve(namespace),
            Action::Delete { package, target } => self.delete_target(package, *target),
            Action::EditCsv { package } => {
                if let Some(csv) = self.csv(package) {
                    let mut deployments = csv["spec"]["install"]["spec"]["deployments"].clone();
                    let edited = format!("registry.example.com/{package}:edited");
                    deployments[0]["spec"]["template"]["spec"]["containers"][0]["image"] = edited.into();
                    self.patch(&csv, json!({"spec": {"install": {"spec": {"deployments": deployments}}}}));
                }
            }
            Action::OverwritePhase { package, phase } => {
                let phases = [
                    json!({"phase": "Failed", "reason": "ComponentUnhealthy"}),
                    json!({"phase": "Installing", "reason": "InstallSucceeded"}),
                    json!({"phase": "Pending", "reason": "RequirementsUnknown"}),
                    json!({"phase": "", "reason": ""}),
                ];
                if let Some(csv) = self.csv(package) {
                    self.patch(&csv, json!({"status": phases[phase % phases.len()]}));
                }
            }
            Action::Rival { namespace, time } => {
                tokio::spawn(tokio::time::timeout(*time, rival(server, namespace)));
            }
            Action::DeleteCsv { package, .. } => {
                self.delete_all("clusterserviceversions", self.csv(package));
            }
            Action::DeletePlans { namespace } => self.delete_listed("installplans", namespace),
            Action::DeleteGroup { namespace, .. } => {
                log(server.delete("operatorgroups", Some(namespace), namespace));
            }
            Action::RivalGroup { namespace, .. } => {
                let mut rival = group(namespace);
                rival["metadata"]["name"] = RIVAL.into();
                log(server.put(rival).map(drop));
            }
            Action::DeleteAccount { namespace, .. } => {
                log(server.delete("serviceaccounts", Some(namespace), ACCOUNT));
            }
            Action::DeleteCatalog { .. } => self.delete_listed("catalogsources", SYSTEM),
            Action::EditChannel { package, channel, .. } => self.write_channel(package, channel),
            Action::UnlabelCopy { .. } => {
                let here = list(&server, "clusterserviceversions", YARD);
                if let Some(copy) = here.iter().find(|csv| is_copy(csv)) {
                    self.patch(copy, json!({"metadata": {"labels": {(COPIED_FROM): null}}}));
                }
            }
            Action::ReplaceCatalog { .. } => self.replace_catalog(EARLIER_IMAGE),
            Action::DeleteNamespace { namespace, .. } => log(server.delete("namespaces", None, namespace)),
            Action::DeleteCrds { package, .. } => {
                let name = &crd_names(package)[1];
                if let Some(found) = server.get("customresourcedefinitions", None, name) {
                    let metadata = &found["metadata"];
                    let metadata = json!({"name": name, "labels": metadata["labels"], "annotations": metadata["annotations"]});
                    let definition = json!({"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata,
                        "spec": found["spec"]});
                    self.definitions.insert(name.clone(), definition);
                    log(server.delete("customresourcedefinitions", None, name));
                }
            }
            Action::CustomResource { package } => {
                self.custom += 1;
                log(server.put(custom_resource(package, namespace_of(package), self.custom)).map(drop));
            }
            Action::Registry { .. } => self.cluster.content.set_outage(true),
            Action::Disturbance(fault) => log(fault.begin(&server, &self.cluster.processes, &KINDS)),
        }
    }

    fn end(&mut self, action: &Action) {
        let server = self.cluster.server.clone();
        match action {
            Action::RivalGroup { namespace, .. } => {
                log(server.delete("operatorgroups", Some(namespace), RIVAL));
            }
            Action::DeleteCsv { package, .. } => self.resubscribe(package),
            Action::EditChannel { package, .. } => self.write_channel(package, CHANNEL),
            Action::UnlabelCopy { .. } => self.delete_all("clusterserviceversions", csvs(&server, YARD)),
            Action::ReplaceCatalog { .. } => self.replace_catalog(CATALOG_IMAGE),
            Action::Registry { .. } => self.cluster.content.set_outage(false),
            Action::Disturbance(fault) => log(fault.end(&server, &self.cluster.processes, &KINDS)),
            Action::DeleteGroup { .. }
            | Action::DeleteAccount { .. }
            | Action::DeleteCatalog { .. }
            | Action::DeleteNamespace { .. }
            | Action::DeleteCrds { .. } => self.restore(),
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
        for namespace in NAMESPACES {
            log(server.delete("operatorgroups", Some(namespace), RIVAL));
        }
        self.restore();
    }

    /// Makes again what the user has deleted for a time. Of a namespace that is being deleted, what was in it comes later.
    fn restore(&self) {
        let server = &self.cluster.server;
        let mut missing: Vec<Value> = vec![catalog_source(CATALOG_IMAGE)];
        missing.extend(self.definitions.values().cloned());
        for namespace in NAMESPACES {
            let live = server.get("namespaces", None, namespace);
            if live.is_some_and(|live| !live["metadata"]["deletionTimestamp"].is_null()) {
                continue;
            }
            missing.extend(furniture(namespace));
            if let Some(Expected::Installed { is_manual }) = self.invariants.expected.get(namespace) {
                missing.push(subscription(packages(namespace)[0], namespace, *is_manual));
            }
        }
        for object in missing {
            let plural = format!("{}s", text(&object, "/kind").to_lowercase());
            let namespace = object["metadata"]["namespace"].as_str();
            if server.get(&plural, namespace, text(&object, "/metadata/name")).is_none() {
                log(server.put(object).map(drop));
            }
        }
    }

    fn is_installed(&self, namespace: &str) -> bool {
        matches!(self.invariants.expected.get(namespace), Some(Expected::Installed { .. }))
    }

    fn subscribe(&mut self, namespace: &'static str, is_manual: bool) {
        let server = &self.cluster.server;
        let object = subscription(packages(namespace)[0], namespace, is_manual);
        let name = text(&object, "/metadata/name").to_owned();
        self.invariants.expected.insert(namespace, Expected::Installed { is_manual });
        match server.get("subscriptions", Some(namespace), &name) {
            None => log(server.put(object).map(drop)),
            Some(live) => self.patch(&live, json!({"spec": object["spec"]})),
        }
    }

    /// Deletes the Subscription to a package, and makes it again.
    fn resubscribe(&self, package: &str) {
        let (server, namespace) = (&self.cluster.server, namespace_of(package));
        let Some(Expected::Installed { is_manual }) = self.invariants.expected.get(namespace) else { return };
        let mut present = list(server, "subscriptions", namespace);
        present.retain(|it| text(it, "/spec/name") == package);
        self.delete_all("subscriptions", present);
        log(server.put(subscription(package, namespace, *is_manual)).map(drop));
    }

    /// Writes the channel of the Subscriptions to a package.
    fn write_channel(&self, package: &str, channel: &str) {
        for subscription in list(&self.cluster.server, "subscriptions", namespace_of(package)) {
            if text(&subscription, "/spec/name") == package {
                self.patch(&subscription, json!({"spec": {"channel": channel}}));
            }
        }
    }

    /// Deletes the CatalogSource, and makes it again with an image.
    fn replace_catalog(&self, image: &str) {
        self.delete_listed("catalogsources", SYSTEM);
        log(self.cluster.server.put(catalog_source(image)).map(drop));
    }

    /// Approves the plans that wait.
    fn approve(&self, namespace: &str) {
        for plan in list(&self.cluster.server, "installplans", namespace) {
            if plan["spec"]["approved"] == false {
                self.patch(&plan, json!({"spec": {"approved": true}}));
            }
        }
    }

    /// Follows the messages of failed plans to which a Subscription refers: deletes them, or withdraws the approval, and the next one begins
    /// them again.
    fn retry_plans(&self, namespace: &str) {
        for subscription in list(&self.cluster.server, "subscriptions", namespace) {
            let plan = text(&subscription, "/status/installPlanRef/name");
            let plan = self.cluster.server.get("installplans", Some(namespace), plan);
            let Some(plan) = plan.filter(|plan| plan["status"]["phase"] == "Failed") else { continue };
            if plan["status"].to_string().contains("delete the InstallPlan") {
                self.delete_all("installplans", vec![plan]);
            } else {
                self.patch(&plan, json!({"spec": {"approved": false}}));
            }
        }
    }

    /// Deletes ClusterServiceVersions that have never succeeded and to which no Subscription refers: what is left of plans that went with
    /// their Subscription.
    fn delete_unfinished(&self) {
        let server = &self.cluster.server;
        for namespace in NAMESPACES.into_iter().filter(|namespace| self.is_installed(namespace)) {
            let subscriptions = list(server, "subscriptions", namespace);
            let is_unfinished = |csv: &Arc<Value>| {
                let name = text(csv, "/metadata/name");
                let fields = ["/status/currentCSV", "/status/installedCSV"];
                let refers = |it: &Arc<Value>| fields.iter().any(|field| text(it, field) == name);
                !self.invariants.has_succeeded(csv) && !subscriptions.iter().any(refers)
            };
            let unfinished = csvs(server, namespace).into_iter().filter(is_unfinished);
            self.delete_all("clusterserviceversions", unfinished);
        }
    }

    /// The newest ClusterServiceVersion of a package.
    fn csv(&self, package: &str) -> Option<Arc<Value>> {
        let mut found = csvs(&self.cluster.server, namespace_of(package));
        found.retain(|csv| text(csv, "/metadata/name").starts_with(package));
        found.pop()
    }

    fn patch(&self, object: &Value, patch: Value) {
        let plural = format!("{}s", text(object, "/kind").to_lowercase());
        let (namespace, name) = (object["metadata"]["namespace"].as_str(), text(object, "/metadata/name"));
        log(self.cluster.server.patch(&plural, namespace, name, patch).map(drop));
    }

    fn delete_all(&self, resource: &str, objects: impl IntoIterator<Item = Arc<Value>>) {
        for object in objects {
            let namespace = object["metadata"]["namespace"].as_str();
            log(self.cluster.server.delete(resource, namespace, text(&object, "/metadata/name")));
        }
    }

    fn delete_listed(&self, resource: &str, namespace: &str) {
        self.delete_all(resource, list(&self.cluster.server, resource, namespace));
    }

    fn delete_target(&self, package: &str, target: Target) {
        let (server, namespace) = (&self.cluster.server, namespace_of(package));
        let last = |resource, namespace: &str| (resource, list(server, resource, namespace).pop());
        let labelled = |resource, key: &str, value: &str| {
            let mut found = server.list(resource);
            let fits = |label: &Value| label.as_str().is_some_and(|it| it.starts_with(value));
            found.retain(|object| fits(&object["metadata"]["labels"][key]));
            (resource, found.into_iter().next())
        };
        let (resource, object) = match target {
            Target::Deployment => ("deployments", server.get("deployments", Some(namespace), package)),
            Target::OperatorCondition => last("operatorconditions", namespace),
            Target::Copy => last("clusterserviceversions", YARD),
            Target::GroupRole => labelled("clusterroles", "olm.owner.kind", "OperatorGroup"),
            Target::Webhook => labelled("validatingwebhookconfigurations", "olm.owner", package),
            Target::Certificate => {
                let mut found = list(server, "secrets", namespace);
                found.retain(|secret| secret["type"] == "kubernetes.io/tls");
                ("secrets", found.pop())
            }
        };
        self.delete_all(resource, object);
    }
}

/// The namespace in which a package is installed.
fn namespace_of(package: &str) -> &'static str {
    let has = |namespace: &&&str| packages(namespace).contains(&package);
    NAMESPACES.iter().find(has).copied().unwrap_or(NAMESPACES[0])
}

/// Whether a write counts in steady state: that a catalog was polled is a part of its status.
fn counts(write: &Write) -> bool {
    let fields = changed_fields(write);
    let is_poll = fields.starts_with("/status/latestImageRegistryPoll") && !fields.contains(", /");
    write.resource != "catalogsources" || !is_poll
}

/// Writes labels and statuses of what is in a namespace again and again.
async fn rival(server: ApiServer, namespace: &'static str) {
    for count in 0_u32.. {
        let of = count.to_string();
        for (resource, status) in [
            ("clusterserviceversions", Some("message")),
            ("subscriptions", Some("reason")),
            ("installplans", None),
            ("deployments", None),
        ] {
            for object in list(&server, resource, namespace) {
                let name = text(&object, "/metadata/name");
                let mut patch = json!({"metadata": {"labels": {"example.com/rival": of}}});
                if let Some(field) = status.filter(|_| !object["status"].is_null()) {
                    patch["status"] = json!({(field): of});
                }
                log(server.patch(resource, Some(namespace), name, patch).map(drop));
            }
        }
        tokio::time::sleep(RIVAL_INTERVAL).await;
    }
}
