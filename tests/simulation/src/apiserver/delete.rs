//! Deletion of objects: preconditions, finalizers and propagation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::managed::Manager;
use super::request::Call;
use super::selector::Selector;
use super::status::Status;
use super::store::{Actor, ObjectName, Reply, Requested, Store, finalizers};
use super::write::text;

/// The finalizers that the garbage collector removes.
pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Kinds whose deletion is answered with the object instead of a Status.
const RETURNED: &str =
    "Pod Service ServiceAccount PersistentVolumeClaim PersistentVolume ResourceQuota PodTemplate";

/// `DeleteOptions`.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    /// `Orphan`, `Background`, `Foreground`.
    pub(crate) propagation: Option<String>,
}

impl Options {
    fn read(call: &Call) -> Result<Self, Status> {
        let body = call.body.as_ref();
        let body = body.ok_or_else(|| Status::bad_request("the body of the request is no JSON"))?;
        let text = |path: &str| body.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let query = call.option("propagationPolicy").map(str::to_owned);
        Ok(Self {
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
            propagation: text("/propagationPolicy").or(query),
        })
    }
}

fn actor(request: &Requested, call: &Call) -> Result<Actor, Status> {
    let manager = Manager { api_version: request.api_version(), ..Manager::default() };
    Ok(Actor {
        sent: Some(call.sent),
        process: call.process.clone(),
        impersonated: call.impersonated.clone(),
        verb: call.verb,
        manager,
        is_dry_run: call.is_dry_run() || call.body.as_ref().is_some_and(|body| body["dryRun"][0] == "All"),
    })
}

impl Store {
    pub(crate) fn delete_one(&mut self, request: &Requested, call: &Call) -> Result<Reply, Status> {
        let options = Options::read(call)?;
        let actor = actor(request, call)?;
        let (object, is_gone) = self.delete(request, &options, &actor)?;
        let returned = RETURNED.split(' ').any(|kind| kind == request.kind.kind);
        if !is_gone || returned {
            return Ok(Reply::Object(200, super::store::rendered(&object, request, call)));
        }
        let mut details =
            json!({"name": text(&object, "name"), "kind": request.kind.plural, "uid": text(&object, "uid")});
        if !request.kind.group.is_empty() {
            details["group"] = request.kind.group.clone().into();
        }
        Ok(Reply::ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details})))
    }

    pub(crate) fn delete_all(&mut self, request: &Requested, call: &Call) -> Result<Reply, Status> {
        let options = Options::read(call)?;
        let actor = actor(request, call)?;
        let selector = Selector::parse(call.option("labelSelector"), call.option("fieldSelector"));
        let Some(resource) = self.resources.get(&request.key) else { return Err(Status::no_route()) };
        let namespace = request.target.namespace.as_deref();
        let fitting = resource
            .objects
            .iter()
            .filter(|((at, _), object)| namespace.is_none_or(|it| it == at) && selector.fits(object));
        let names: Vec<ObjectName> = fitting.map(|(name, _)| name.clone()).collect();
        let mut items = Vec::new();
        for name in names {
            let Some(one) = self.request(&request.key, &name) else { continue };
            let (object, _) = self.delete(&one, &options, &actor)?;
            items.push(Value::clone(&object));
        }
        let meta = json!({"resourceVersion": self.version.to_string()});
        Ok(Reply::ok(json!({"kind": request.kind.list_kind, "apiVersion": request.api_version(),
            "metadata": meta, "items": items})))
    }

    /// Deletes an object or, when something holds it, marks it as being deleted: its last state, and whether it is gone.
    pub(crate) fn delete(
        &mut self,
        request: &Requested,
        options: &Options,
        actor: &Actor,
    ) -> Result<(Arc<Value>, bool), Status> {
        let live = self.read(request)?;
        let name = text(&live, "name");
        if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != text(&live, "uid")) {
            let recorded = text(&live, "uid");
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({recorded}). The object might have been deleted \
                 and then recreated"
            );
            return Err(Status::conflict(&request.kind.kind, &request.kind.group, name, &why));
        }
        let version = text(&live, "resourceVersion");
        if let Some(expected) = options.version.as_deref().filter(|expected| *expected != version) {
            let why = format!(
                "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in record ({version}). The \
                 object might have been modified"
            );
            return Err(Status::conflict(&request.kind.kind, &request.kind.group, name, &why));
        }
        let held = finalizers(&live);
        let policy = options.propagation.as_deref();
        let orphans = policy.map_or(held.contains(&ORPHAN), |policy| policy == "Orphan");
        let is_foreground =
            policy.map_or(held.contains(&FOREGROUND) && !orphans, |policy| policy == "Foreground");
        let mut expected: Vec<&str> =
            held.iter().copied().filter(|it| *it != ORPHAN && *it != FOREGROUND).collect();
        expected.extend(orphans.then_some(ORPHAN));
        expected.extend(is_foreground.then_some(FOREGROUND));
        if request.kind.kind == "CustomResourceDefinition" {
            // its objects are deleted before it
            let cleanup = "customresourcecleanup.apiextensions.k8s.io";
            if !expected.contains(&cleanup) && live["metadata"].get("deletionTimestamp").is_none() {
                expected.push(cleanup);
            }
        }
        let is_namespace = request.kind.kind == "Namespace"
            && live.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
        let is_same = {
            let (mut before, mut after) = (held.clone(), expected.clone());
            before.sort_unstable();
            after.sort_unstable();
            before == after
        };
        if expected.is_empty() && !is_namespace {
            if !is_same && options.version.is_some() {
                // kube-apiserver clears the precondition with the finalizers, and then finds that it does not hold
                return Err(request.conflict(name, "Precondition failed: ResourceVersion in precondition: "));
            }
            return Ok((self.commit(request, request.name(), None, actor), true));
        }
        let is_marked = live["metadata"].get("deletionTimestamp").is_some();
        if is_marked && is_same {
            return Ok((live, false));
        }
        let mut new = Value::clone(&live);
        if !is_same {
            new["metadata"]["finalizers"] = json!(expected);
        }
        if !is_marked {
            new["metadata"]["deletionTimestamp"] = self.timestamp().into();
            new["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            if let Some(generation) = new["metadata"]["generation"].as_i64() {
                new["metadata"]["generation"] = (generation + 1).into();
            }
        }
        if is_namespace {
            new["status"]["phase"] = "Terminating".into();
        }
        Ok((self.commit(request, request.name(), Some(new), actor), false))
    }
}
