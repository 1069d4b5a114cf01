//! Controllers of the control plane: garbage collection, namespaces, CustomResourceDefinitions, aggregated ClusterRoles, and the status of
//! Deployments.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Verb;
use super::delete::{FOREGROUND, ORPHAN, Options};
use super::kinds;
use super::store::{Actor, ObjectName, Requested, ResourceKey, Store, finalizers, uid};

/// Something to do later.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Handle the dependents of a uid that is gone or is being deleted.
    Dependents(String),
    /// Check the owners of an object.
    Owners(ResourceKey, ObjectName),
    /// Finish orphaning or foreground deletion of an object.
    Finish(ResourceKey, ObjectName),
    /// Delete what a terminating namespace holds.
    Namespace(String),
    /// Serve the kind of a CustomResourceDefinition.
    Establish(String),
    /// Delete the objects of a CustomResourceDefinition, and it.
    Definition(String),
    /// Write the status of a Deployment; the second time it is available.
    Deployment(ObjectName, bool),
    /// Write the rules of ClusterRoles that other ones are aggregated to.
    Aggregate,
}

const RBAC: &str = "rbac.authorization.k8s.io";
const CRD: (&str, &str) = ("customresourcedefinitions", "apiextensions.k8s.io");

type ObjectId = (ResourceKey, ObjectName);

fn key((plural, group): (&str, &str)) -> ResourceKey {
    (plural.to_owned(), group.to_owned())
}

impl Store {
    fn later(&mut self, delay: Duration, task: Task) {
        let number = self.next_number();
        self.tasks.insert((self.now + delay, number), task);
    }

    /// What a change makes the control plane do.
    pub(crate) fn plan(&mut self, id: &ObjectId, before: Option<&Value>, after: Option<&Value>) {
        let (resource, name) = id;
        let collection = self.settings.garbage_collection_delay;
        if self.settings.garbage_collector {
            let is_deleted = |object: &Value| object["metadata"].get("deletionTimestamp").is_some();
            match (before, after) {
                (Some(before), None) => {
                    if let Some(uid) = uid(before) {
                        self.later(collection, Task::Dependents(uid.to_owned()));
                    }
                    // owners that wait for their dependents
                    for owner in owner_uids(before) {
                        if let Some((key, name)) = self.uids.get(&owner).cloned() {
                            self.later(collection, Task::Finish(key, name));
                        }
                    }
                }
                (before, Some(after)) => {
                    let references = after["metadata"].get("ownerReferences");
                    let earlier = before.and_then(|before| before["metadata"].get("ownerReferences"));
                    if references.is_some() && earlier != references {
                        self.later(collection, Task::Owners(resource.clone(), name.clone()));
                    }
                    let held = finalizers(after);
                    if is_deleted(after) && (held.contains(&ORPHAN) || held.contains(&FOREGROUND)) {
                        self.later(collection, Task::Finish(resource.clone(), name.clone()));
                    }
                }
                (None, None) => {}
            }
        }
        let Some(after) = after else { return };
        let is_deleted = after["metadata"].get("deletionTimestamp").is_some();
        match (resource.0.as_str(), resource.1.as_str()) {
            ("namespaces", "") if is_deleted => self.later(collection, Task::Namespace(name.1.clone())),
            CRD if is_deleted => self.later(collection, Task::Definition(name.1.clone())),
            CRD if before.map(|before| &before["spec"]) != Some(&after["spec"]) => {
                self.later(self.settings.establishing, Task::Establish(name.1.clone()));
            }
            ("deployments", "apps") if !is_deleted => {
                let generation = |object: &Value| object["metadata"]["generation"].clone();
                if let Some(delay) = self.settings.deployments
                    && before.map(generation) != Some(generation(after))
                {
                    self.later(delay / 10, Task::Deployment(name.clone(), false));
                    self.later(delay, Task::Deployment(name.clone(), true));
                }
            }
            ("clusterroles", RBAC) => {
                let roles = self.resources.get(resource).into_iter().flat_map(|it| it.objects.values());
                if roles.into_iter().any(|role| role.get("aggregationRule").is_some()) {
                    self.later(collection, Task::Aggregate);
                }
            }
            _ => {}
        }
    }

    /// The time of the next task.
    pub(crate) fn next_task(&self) -> Option<Duration> {
        self.tasks.keys().next().map(|(at, _)| *at)
    }

    /// Does what is due; whether something was.
    pub(crate) fn work(&mut self) -> bool {
        let mut worked = false;
        while let Some(entry) = self.tasks.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let task = entry.remove();
            self.carry_out(task);
            worked = true;
        }
        worked
    }

    fn carry_out(&mut self, task: Task) {
        match task {
            Task::Dependents(owner) => {
                for (key, name) in self.dependents.get(&owner).cloned().unwrap_or_default() {
                    self.check_owners(&key, &name);
                }
            }
            Task::Owners(key, name) => self.check_owners(&key, &name),
            Task::Finish(key, name) => self.finish(&key, &name),
            Task::Namespace(name) => self.empty_namespace(&name),
            Task::Establish(name) => self.establish(&name),
            Task::Definition(name) => self.remove_definition(&name),
            Task::Deployment(name, is_available) => self.report_deployment(&name, is_available),
            Task::Aggregate => self.aggregate(),
        }
    }

    /// Deletes the object if all its owners are gone; else removes references to those that are.
    fn check_owners(&mut self, key: &ResourceKey, name: &ObjectName) {
        let (Some(object), Some(request)) = (self.find(key, name), self.request(key, name)) else { return };
        let Some(owners) = object["metadata"]["ownerReferences"].as_array() else { return };
        let state = |owner: &Value| -> (bool, bool) {
            let found = owner["uid"].as_str().and_then(|uid| self.uids.get(uid));
            let found = found.filter(|(_, (namespace, _))| namespace.is_empty() || *namespace == name.0);
            let Some(object) = found.and_then(|(key, name)| self.find(key, name)) else {
                return (false, false);
            };
            let is_deleted = object["metadata"].get("deletionTimestamp").is_some();
            let is_waiting = is_deleted && finalizers(&object).contains(&FOREGROUND);
            (!is_waiting, is_waiting)
        };
        let states: Vec<(bool, bool)> = owners.iter().map(state).collect();
        let solid = owners.iter().zip(&states).filter(|(_, (solid, _))| *solid);
        let solid: Vec<Value> = solid.map(|(owner, _)| owner.clone()).collect();
        if solid.len() == owners.len() || owners.is_empty() {
            return;
        }
        if !solid.is_empty() {
            let mut new = Value::clone(&object);
            new["metadata"]["ownerReferences"] = Value::Array(solid);
            self.change(&request, &object, new, Verb::Patch, "");
            return;
        }
        let held = finalizers(&object);
        let is_waiting = states.iter().any(|(_, waiting)| *waiting);
        let has_dependents =
            uid(&object).and_then(|uid| self.dependents.get(uid)).is_some_and(|it| !it.is_empty());
        let policy = match () {
            () if held.contains(&ORPHAN) => "Orphan",
            () if held.contains(&FOREGROUND) || is_waiting && has_dependents => "Foreground",
            () => "Background",
        };
        if object["metadata"].get("deletionTimestamp").is_none() {
            self.delete_as_kubernetes(&request, policy);
        }
    }

    fn delete_as_kubernetes(&mut self, request: &Requested, policy: &str) {
        let options = Options { propagation: Some(policy.to_owned()), ..Options::default() };
        let actor = Actor::kubernetes(Verb::Delete, "", &request.api_version());
        // an object that is gone needs no deletion
        let _ = self.delete(request, &options, &actor);
    }

    fn change(&mut self, request: &Requested, live: &Arc<Value>, new: Value, verb: Verb, subresource: &str) {
        let mut request = request.clone();
        request.target.subresource = subresource.to_owned();
        let actor = Actor::kubernetes(verb, subresource, &request.api_version());
        // as a controller that tries again with the next event
        let _ = self.update(&request, live, new, &actor);
    }

    fn finish(&mut self, key: &ResourceKey, name: &ObjectName) {
        let (Some(object), Some(request)) = (self.find(key, name), self.request(key, name)) else { return };
        if object["metadata"].get("deletionTimestamp").is_none() {
            return;
        }
        let held = finalizers(&object);
        let dependents = uid(&object).and_then(|uid| self.dependents.get(uid)).cloned().unwrap_or_default();
        let own = uid(&object).unwrap_or_default().to_owned();
        let done = if held.contains(&ORPHAN) {
            for (key, name) in &dependents {
                let (Some(one), Some(request)) = (self.find(key, name), self.request(key, name)) else {
                    continue;
                };
                let mut new = Value::clone(&one);
                if let Some(owners) = new["metadata"]["ownerReferences"].as_array_mut() {
                    owners.retain(|owner| owner["uid"] != own.as_str());
                }
                self.change(&request, &one, new, Verb::Patch, "");
            }
            ORPHAN
        } else if held.contains(&FOREGROUND) {
            let blocks = |(key, name): &ObjectId| {
                let Some(one) = self.find(key, name) else { return false };
                let owners = one["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                owners.into_iter().any(|it| it["uid"] == own.as_str() && it["blockOwnerDeletion"] == true)
            };
            let is_blocked = dependents.iter().any(blocks);
            for (key, name) in &dependents {
                self.check_owners(key, name);
            }
            if is_blocked {
                return;
            }
            FOREGROUND
        } else {
            return;
        };
        let Some(object) = self.find(key, name) else { return };
        let left: Vec<&str> = finalizers(&object).into_iter().filter(|it| *it != done).collect();
        let mut new = Value::clone(&object);
        new["metadata"]["finalizers"] = json!(left);
        self.change(&request, &object, new, Verb::Patch, "");
    }

    fn empty_namespace(&mut self, namespace: &str) {
        let held = |(at, _): &ObjectName| at == namespace;
        let all = self.resources.iter().flat_map(|(key, resource)| {
            resource.objects.keys().filter(|name| held(name)).map(move |name| (key.clone(), name.clone()))
        });
        let all: Vec<ObjectId> = all.collect();
        for (key, name) in &all {
            if let Some(request) = self.request(key, name) {
                self.delete_as_kubernetes(&request, "Background");
            }
        }
        let is_empty = self.resources.values().all(|it| !it.objects.keys().any(held));
        let name = (String::new(), namespace.to_owned());
        let key = key(("namespaces", ""));
        let Some(request) = self.request(&key, &name) else { return };
        if !is_empty {
            self.later(self.settings.garbage_collection_delay, Task::Namespace(namespace.to_owned()));
            return;
        }
        let Some(object) = self.find(&key, &name) else { return };
        let actor = Actor::kubernetes(Verb::Update, "finalize", "v1");
        let mut new = Value::clone(&object);
        new["spec"]["finalizers"] = json!([]);
        let rest = if finalizers(&object).is_empty() { None } else { Some(new) };
        self.commit(&request, name, rest, &actor);
    }

    fn definition(&self, name: &str) -> Option<(Arc<Value>, Requested)> {
        let (key, name) = (key(CRD), (String::new(), name.to_owned()));
        self.find(&key, &name).zip(self.request(&key, &name))
    }

    fn establish(&mut self, name: &str) {
        let Some((crd, request)) = self.definition(name) else { return };
        if crd["metadata"].get("deletionTimestamp").is_some() {
            return;
        }
        let Some(kind) = kinds::of_crd(&crd) else { return };
        self.serve(kind);
        let now = self.timestamp();
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": now})
        };
        let mut new = Value::clone(&crd);
        new["status"]["acceptedNames"] = crd["spec"]["names"].clone();
        if new["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
            new["status"]["conditions"] = json!([
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ]);
        }
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        for stored in versions.filter(|it| it["storage"] == true).map(|it| it["name"].clone()) {
            let list = new["status"]["storedVersions"].as_array_mut();
            if let Some(list) = list.filter(|list| !list.contains(&stored)) {
                list.push(stored);
            }
        }
        self.change(&request, &crd, new, Verb::Update, "status");
    }

    fn remove_definition(&mut self, name: &str) {
        let Some((crd, request)) = self.definition(name) else { return };
        let served = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let resource = (served("/spec/names/plural"), served("/spec/group"));
        let names: Vec<ObjectName> =
            self.resources.get(&resource).map(|it| it.objects.keys().cloned().collect()).unwrap_or_default();
        for name in &names {
            if let Some(request) = self.request(&resource, name) {
                self.delete_as_kubernetes(&request, "Background");
            }
        }
        if self.resources.get(&resource).is_some_and(|it| !it.objects.is_empty()) {
            self.later(self.settings.garbage_collection_delay, Task::Definition(name.to_owned()));
            return;
        }
        self.resources.remove(&resource);
        self.changed.insert(resource);
        let mut new = Value::clone(&crd);
        let mut left = finalizers(&crd);
        left.retain(|it| *it != "customresourcecleanup.apiextensions.k8s.io");
        new["metadata"]["finalizers"] = json!(left);
        self.change(&request, &crd, new, Verb::Update, "");
    }

    fn aggregate(&mut self) {
        let key = key(("clusterroles", RBAC));
        let Some(resource) = self.resources.get(&key) else { return };
        let roles: Vec<(ObjectName, Arc<Value>)> =
            resource.objects.iter().map(|(name, role)| (name.clone(), Arc::clone(role))).collect();
        for (name, role) in &roles {
            let selectors = role.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
            let Some(selectors) = selectors else { continue };
            let is_part = |part: &Value| {
                selectors.iter().any(|selector| {
                    let labels = selector["matchLabels"].as_object().into_iter().flatten();
                    labels.into_iter().all(|(key, value)| part["metadata"]["labels"].get(key) == Some(value))
                })
            };
            let parts = roles.iter().filter(|(part, it)| part != name && is_part(it));
            let mut rules: Vec<Value> = Vec::new();
            for rule in parts.flat_map(|(_, part)| part["rules"].as_array().cloned().unwrap_or_default()) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
            let live = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
            if live != rules.as_slice()
                && let Some(request) = self.request(&key, name)
            {
                let mut new = Value::clone(role);
                new["rules"] = rules.into();
                self.change(&request, role, new, Verb::Patch, "");
            }
        }
    }

    fn report_deployment(&mut self, name: &ObjectName, is_available: bool) {
        let key = key(("deployments", "apps"));
        let (Some(object), Some(request)) = (self.find(&key, name), self.request(&key, name)) else { return };
        let now = self.timestamp();
        let condition = |kind: &str, status: bool, reason: &str| {
            let status = if status { "True" } else { "False" };
            json!({"type": kind, "status": status, "reason": reason, "message": reason,
                "lastUpdateTime": now, "lastTransitionTime": now})
        };
        let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
        let mut status = json!({"observedGeneration": object["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas});
        if is_available {
            status["readyReplicas"] = replicas.into();
            status["availableReplicas"] = replicas.into();
            status["conditions"] = json!([
                condition("Available", true, "MinimumReplicasAvailable"),
                condition("Progressing", true, "NewReplicaSetAvailable"),
            ]);
        } else {
            status["unavailableReplicas"] = replicas.into();
            status["conditions"] = json!([
                condition("Available", false, "MinimumReplicasUnavailable"),
                condition("Progressing", true, "ReplicaSetUpdated"),
            ]);
        }
        let mut new = Value::clone(&object);
        new["status"] = status;
        self.change(&request, &object, new, Verb::Update, "status");
    }
}

fn owner_uids(object: &Value) -> Vec<String> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
