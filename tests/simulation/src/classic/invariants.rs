//! Invariants of OLM Classic's controllers, judged by the changes that the apiserver recorded; those of the end are in [`super::state`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::content::Content;
use super::harness::{ACCOUNT, GARDEN, LEASE};
use super::state;
use crate::invariants::{deletion_begins, describe, trace};
use crate::lease::LeaseHistory;
use crate::outcome::digest;
use crate::processes::PROCESS;
use crate::{ApiServer, Write};

/// The group of OLM Classic's kinds.
pub(crate) const GROUP: &str = "operators.coreos.com";
/// The label of copies of ClusterServiceVersions, and of roles that are copied with them.
pub(crate) const COPIED_FROM: &str = "olm.copiedFrom";
/// The label by which a namespace is a target of an OperatorGroup.
pub(crate) const TARGET_LABEL: &str = "olm.operatorgroup.uid/";
/// Kinds that own what the controllers make.
const OWNERS: [&str; 5] =
    ["ClusterServiceVersion", "OperatorCondition", "OperatorGroup", "CatalogSource", "InstallPlan"];
/// Kinds whose specification is the user's alone.
const USERS: [&str; 4] = ["subscriptions", "operatorgroups", "installplans", "olmconfigs"];

/// The user's intent for a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expected {
    /// Nothing was ever subscribed there.
    #[default]
    Nothing,
    /// The newest version of each package is installed.
    Installed { is_manual: bool },
    /// Nothing is installed any more.
    Removed,
}

/// Checks each change once.
#[derive(Default)]
pub struct Invariants {
    seen: usize,
    pub lease: LeaseHistory,
    /// Every change, as one number.
    pub digest: u64,
    /// The user's intent for each namespace.
    pub expected: BTreeMap<&'static str, Expected>,
    /// Namespaces and ClusterServiceVersions of plans that were approved.
    approved: BTreeSet<(String, String)>,
    /// UIDs of ClusterServiceVersions that have been Succeeded.
    succeeded: BTreeSet<String>,
    /// What each ClusterServiceVersion replaces, by namespace and UID.
    replaces: BTreeMap<(String, String), String>,
}

impl Invariants {
    /// Checks the changes since the last call.
    pub fn observe(&mut self, server: &ApiServer) -> Result<(), String> {
        let writes = server.history_since(self.seen);
        self.seen += writes.len();
        for write in &writes {
            let at = write.at.as_secs_f64();
            self.judge(write, server)
                .map_err(|problem| format!("at {at:.3} s: {}: {problem}", describe(write)))?;
        }
        Ok(())
    }

    fn judge(&mut self, write: &Write, server: &ApiServer) -> Result<(), String> {
        trace(write);
        self.digest = digest(self.digest, &format!("{:?} {} {}", write.at, describe(write), write.version));
        if self.lease.record(LEASE, write) {
            return Ok(());
        }
        self.record(write);
        if !write.process.starts_with(PROCESS) || ["leases", "events"].contains(&write.resource.as_str()) {
            return Ok(());
        }
        self.lease.check(write, server)?;
        is_written_as_its_account(write)?;
        match &write.before {
            None => self.may_create(write),
            Some(before) => self.may_change(write, before),
        }
    }

    /// Remembers approvals and installed ClusterServiceVersions.
    fn record(&mut self, write: &Write) {
        let Some(after) = &write.after else { return };
        let namespace = write.namespace.clone().unwrap_or_default();
        match write.resource.as_str() {
            "installplans" if after["spec"]["approved"] == true => {
                let names = after["spec"]["clusterServiceVersionNames"].as_array().into_iter().flatten();
                let names = names.filter_map(Value::as_str).map(|name| (namespace.clone(), name.to_owned()));
                self.approved.extend(names);
            }
            "clusterserviceversions" => {
                let uid = text(after, "/metadata/uid").to_owned();
                if text(after, "/status/phase") == "Succeeded" {
                    self.succeeded.insert(uid.clone());
                }
                self.replaces.insert((namespace, uid), text(after, "/spec/replaces").to_owned());
            }
            _ => {}
        }
    }

    /// Whether a ClusterServiceVersion has been Succeeded at any time.
    pub(super) fn has_succeeded(&self, csv: &Value) -> bool {
        self.succeeded.contains(text(csv, "/metadata/uid"))
    }

    fn may_create(&self, write: &Write) -> Result<(), String> {
        let key = (write.namespace.clone().unwrap_or_default(), write.name.clone());
        let is_copy = write.after.as_ref().is_some_and(|after| is_copy(after));
        if write.resource == "clusterserviceversions" && !is_copy && !self.approved.contains(&key) {
            return Err("no plan with it was approved".to_owned());
        }
        Ok(())
    }

    fn may_change(&self, write: &Write, before: &Value) -> Result<(), String> {
        let goes = deletion_begins(write);
        let is_own_group = write.api_version.split('/').next() == Some(GROUP);
        let unchanged =
            |path: &str| write.after.as_ref().is_none_or(|after| after.pointer(path) == before.pointer(path));
        match write.resource.as_str() {
            "clusterserviceversions" if is_copy(before) => Ok(()),
            "clusterserviceversions" if goes => self.may_delete_csv(write, before),
            "clusterserviceversions" if !unchanged("/spec") => Err("its specification changed".to_owned()),
            "installplans" | "catalogsources" | "operators" | "operatorconditions"
                if is_own_group && !goes && unchanged("/spec/approved") =>
            {
                Ok(())
            }
            "installplans" if goes => Ok(()),
            "subscriptions" | "operatorgroups" | "olmconfigs" | "catalogsources" | "operators" if goes => {
                Err("it belongs to the user".to_owned())
            }
            resource if USERS.contains(&resource) && !unchanged("/spec") => {
                Err("its specification belongs to the user".to_owned())
            }
            _ if is_own_group => Ok(()),
            "customresourcedefinitions" if goes => Err("definitions stay".to_owned()),
            "customresourcedefinitions" if text(before, "/spec/group") != GROUP => Ok(()),
            "namespaces" if !goes => labels_only(write, before, |key| key.starts_with(TARGET_LABEL)),
            "serviceaccounts" if write.name == ACCOUNT && !goes => {
                labels_only(write, before, |key| key == "olm.managed")
            }
            _ if is_owned(before) => Ok(()),
            _ => Err("the controllers do not own it".to_owned()),
        }
    }

    /// A ClusterServiceVersion is deleted when one that replaces it has succeeded.
    fn may_delete_csv(&self, write: &Write, before: &Value) -> Result<(), String> {
        // the end of a deletion that the user began
        if !before["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let namespace = write.namespace.clone().unwrap_or_default();
        let here = self.replaces.iter().filter(|((of, _), _)| *of == namespace);
        let mut successors = here.filter(|(_, replaces)| **replaces == write.name);
        match successors.any(|((_, uid), _)| self.succeeded.contains(uid)) {
            true => Ok(()),
            false => Err("no ClusterServiceVersion that replaces it has succeeded".to_owned()),
        }
    }

    /// Whether the cluster is as the user wants it.
    pub fn converged(&self, server: &ApiServer, content: &Content) -> Result<(), String> {
        for (namespace, expected) in &self.expected {
            match expected {
                Expected::Nothing => {}
                Expected::Installed { .. } => state::installed(server, content, namespace)?,
                Expected::Removed => state::removed(server, namespace)?,
            }
        }
        state::tidy(server)
    }
}

/// The Deployments of a namespace whose group names an account are written as that account; labels of components apart.
fn is_written_as_its_account(write: &Write) -> Result<(), String> {
    let Some(after) = &write.after else { return Ok(()) };
    let is_rollout = write.before.as_ref().is_none_or(|before| before["spec"] != after["spec"]);
    if write.resource != "deployments" || write.namespace.as_deref() != Some(GARDEN) || !is_rollout {
        return Ok(());
    }
    let account = format!("system:serviceaccount:{GARDEN}:{ACCOUNT}");
    if write.impersonated.as_ref() == Some(&account) {
        return Ok(());
    }
    Err(format!("written as {:?}, and the group names the account {ACCOUNT}", write.impersonated))
}

/// Only labels with these keys differ.
fn labels_only(write: &Write, before: &Value, may_differ: impl Fn(&str) -> bool) -> Result<(), String> {
    let Some(after) = &write.after else { return Ok(()) };
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
            let labels = metadata.get_mut("labels").and_then(Value::as_object_mut);
            let is_empty = labels.is_some_and(|labels| {
                labels.retain(|key, _| !may_differ(key));
                labels.is_empty()
            });
            if is_empty {
                metadata.remove("labels");
            }
        }
        object
    };
    if rest(before) == rest(after) { Ok(()) } else { Err("the controllers do not own it".to_owned()) }
}

fn is_owned(object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    labels["olm.managed"] == "true"
        || !labels["olm.owner"].is_null()
        || owners.filter_map(|owner| owner["kind"].as_str()).any(|kind| OWNERS.contains(&kind))
}

pub(crate) fn is_copy(csv: &Value) -> bool {
    !csv["metadata"]["labels"][COPIED_FROM].is_null()
}

/// The text at a path, or empty.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::Verb;

    fn write(resource: &str, before: Option<Value>, after: Option<Value>) -> Write {
        let name = before.as_ref().or(after.as_ref()).map(|it| text(it, "/metadata/name").to_owned());
        let core = ["namespaces", "configmaps", "deployments", "serviceaccounts"].contains(&resource);
        Write {
            sent: Duration::ZERO,
            at: Duration::ZERO,
            process: format!("{PROCESS}0-1"),
            impersonated: None,
            manager: "olm".to_owned(),
            verb: Verb::Update,
            subresource: String::new(),
            resource: resource.to_owned(),
            api_version: if core { "v1".to_owned() } else { format!("{GROUP}/v1alpha1") },
            kind: String::new(),
            namespace: Some(GARDEN.to_owned()),
            name: name.unwrap_or_default(),
            before: before.map(Arc::new),
            after: after.map(Arc::new),
            version: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    #[rustfmt::skip]
    async fn classic_invariants_judge_single_writes() {
        let server = ApiServer::new(1, crate::Settings::default());
        let csv = |name: &str, uid: &str, replaces: &str, phase: &str| json!({"metadata": {"name": name, "uid": uid}, "spec": {"replaces": replaces}, "status": {"phase": phase}});
        let plan = json!({"metadata": {"name": "p"}, "spec": {"approved": true, "clusterServiceVersionNames": ["a.v1", "a.v2"]}});
        let labelled = |labels: Value| json!({"metadata": {"name": "x", "labels": labels}, "data": {}});
        let mut invariants = Invariants::default();
        for (case, write, holds) in [
            ("no plan", write("clusterserviceversions", None, Some(csv("a.v1", "1", "", ""))), false),
            ("a plan", write("installplans", None, Some(plan.clone())), true),
            ("its CSV", write("clusterserviceversions", None, Some(csv("a.v1", "1", "", ""))), true),
            ("gone", write("clusterserviceversions", Some(csv("a.v1", "1", "", "Succeeded")), None), false),
            ("successor", write("clusterserviceversions", None, Some(csv("a.v2", "2", "a.v1", ""))), true),
            ("too early", write("clusterserviceversions", Some(csv("a.v1", "1", "", "Succeeded")), None), false),
            ("it succeeds",
                write("clusterserviceversions", Some(csv("a.v2", "2", "a.v1", "")), Some(csv("a.v2", "2", "a.v1", "Succeeded"))), true),
            ("replaced", write("clusterserviceversions", Some(csv("a.v1", "1", "", "Deleting")), None), true),
            ("approval", write("installplans", Some(json!({"spec": {}})), Some(plan.clone())), false),
            ("Subscription", write("subscriptions", Some(json!({"spec": {}})), None), false),
            ("foreign", write("configmaps", Some(labelled(json!({}))), None), false),
            ("own", write("configmaps", Some(labelled(json!({"olm.managed": "true"}))), None), true),
            ("target",
                write("namespaces", Some(labelled(json!({"a": "b"}))), Some(labelled(json!({"a": "b", (format!("{TARGET_LABEL}u")): ""})))),
                true),
            ("another label", write("namespaces", Some(labelled(json!({}))), Some(labelled(json!({"a": "b"})))), false),
            ("Deployment", write("deployments", None, Some(labelled(json!({})))), false),
        ] {
            assert_eq!(invariants.judge(&write, &server).is_ok(), holds, "{case}");
        }
    }
}
