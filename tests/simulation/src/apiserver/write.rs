//! Creation, update and patches of objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::kinds::Generation;
use super::managed::{self, Attribution, Manager};
use super::request::Call;
use super::status::Status;
use super::store::{Actor, Requested, Store, finalizers};
use super::{Verb, defaults, strategic};

const APPLY: &str = "application/apply-patch+yaml";
/// A status code and an object.
type Written = (u16, Arc<Value>);

impl Store {
    /// POST, PUT and PATCH, with the body taken out of the request: the status code and the object.
    pub(crate) fn write(&mut self, request: &Requested, call: &mut Call) -> Result<Written, Status> {
        let is_apply = call.verb == Verb::Patch && call.content_type.starts_with(APPLY);
        let Some(body) = call.body.take().filter(|body| !body.is_null()) else {
            return Err(Status::bad_request("the body of the request is no JSON"));
        };
        let manager = Manager {
            name: call.option("fieldManager").unwrap_or("unknown").to_owned(),
            is_apply,
            api_version: request.api_version(),
            subresource: request.target.subresource.clone(),
        };
        let actor = Actor {
            sent: Some(call.sent),
            process: call.process.clone(),
            impersonated: call.impersonated.clone(),
            verb: call.verb,
            manager,
            is_dry_run: call.is_dry_run(),
        };
        match call.verb {
            Verb::Create => self.create(request, body, &actor).map(|object| (201, object)),
            Verb::Update => self.replace(request, body, &actor).map(|object| (200, object)),
            _ if is_apply => self.apply(request, body, call, &actor),
            _ => self.patch(request, &body, &call.content_type, &actor).map(|object| (200, object)),
        }
    }

    fn check_type(request: &Requested, body: &Value) -> Result<(), Status> {
        let (api_version, kind) = (request.api_version(), &request.kind.kind);
        let fits = |field: &str, want: &str| body.get(field).is_none_or(|it| it == want || it == "");
        if !fits("apiVersion", &api_version) || !fits("kind", kind) {
            let why = format!(
                "the API version or kind in the data ({}, {}) does not match the expected ({api_version}, {kind})",
                body["apiVersion"], body["kind"]
            );
            return Err(Status::bad_request(why));
        }
        Ok(())
    }

    /// Sets what every object has, and rejects a namespace other than that of the path.
    fn complete(request: &Requested, object: &mut Value) -> Result<(), Status> {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["apiVersion"] = request.api_version().into();
        object["kind"] = request.kind.kind.clone().into();
        let given = object["metadata"]["namespace"].as_str().unwrap_or_default();
        match &request.target.namespace {
            Some(namespace) if given.is_empty() => object["metadata"]["namespace"] = namespace.clone().into(),
            Some(namespace) if given == namespace => {}
            None if given.is_empty() => {}
            _ => {
                let why =
                    "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Status::bad_request(why));
            }
        }
        Ok(())
    }

    pub(crate) fn create(
        &mut self,
        request: &Requested,
        mut new: Value,
        actor: &Actor,
    ) -> Result<Arc<Value>, Status> {
        Self::check_type(request, &new)?;
        Self::complete(request, &mut new)?;
        if new["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
            let prefix = new["metadata"]["generateName"].as_str().unwrap_or_default();
            if prefix.is_empty() {
                let why = "Required value: name or generateName is required";
                return Err(request.invalid("", "metadata.name", why));
            }
            new["metadata"]["name"] = format!("{prefix}{}", self.suffix()).into();
        }
        if new["metadata"]["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty() && version != "0")
        {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(500, "InternalError", why));
        }
        defaults::decode(&mut new, &request.kind, &request.version);
        let by = Self::attribution(request, actor, self.timestamp());
        managed::update(&request.kind.zero, &mut new, &by);
        self.insert(request, new, actor)
    }

    /// Stores an object that does not exist yet.
    fn insert(&mut self, request: &Requested, mut new: Value, actor: &Actor) -> Result<Arc<Value>, Status> {
        let name = (
            request.target.namespace.clone().unwrap_or_default(),
            new["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        );
        let (plural, group) = (&request.kind.plural, &request.kind.group);
        if let Some(namespace) = &request.target.namespace {
            let key = ("namespaces".to_owned(), String::new());
            let Some(found) = self.find(&key, &(String::new(), namespace.clone())) else {
                return Err(Status::not_found("namespaces", "", namespace));
            };
            if found["metadata"].get("deletionTimestamp").is_some() {
                return Err(Status::terminating(plural, group, &name.1, namespace));
            }
        }
        Self::validate(request, &new, None)?;
        if self.find(&request.key, &name).is_some() {
            return Err(Status::exists(plural, group, &name.1));
        }
        new["apiVersion"] = stored_version(request).into();
        let uid = self.new_uid();
        let now = self.timestamp();
        if let Some(meta) = new["metadata"].as_object_mut() {
            let system = ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"];
            for field in system.into_iter().chain(["generation"]) {
                meta.remove(field);
            }
            meta.insert("uid".to_owned(), uid.into());
            meta.insert("creationTimestamp".to_owned(), now.into());
            if request.kind.generation != Generation::Never {
                meta.insert("generation".to_owned(), 1.into());
            }
        }
        if request.version.has_status
            && let Some(map) = new.as_object_mut()
        {
            map.remove("status");
            if let Some(zero) = request.kind.zero.get("status") {
                map.insert("status".to_owned(), zero.clone());
            }
        }
        match request.kind.kind.as_str() {
            "Namespace" => {
                new["spec"]["finalizers"] = json!(["kubernetes"]);
                new["status"]["phase"] = "Active".into();
            }
            "CustomResourceDefinition" => {
                let versions = new["spec"]["versions"].as_array().into_iter().flatten();
                let stored: Vec<&Value> =
                    versions.filter(|it| it["storage"] == true).map(|it| &it["name"]).collect();
                new["status"]["storedVersions"] = json!(stored);
            }
            _ => {}
        }
        Ok(self.commit(request, name, Some(new), actor))
    }

    fn replace(&mut self, request: &Requested, mut new: Value, actor: &Actor) -> Result<Arc<Value>, Status> {
        Self::check_type(request, &new)?;
        let name = request.target.name.clone().unwrap_or_default();
        let given = new["metadata"]["name"].as_str().unwrap_or_default();
        if given != name {
            let why = format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(Status::bad_request(why));
        }
        Self::complete(request, &mut new)?;
        let live = self.read(request)?;
        if has_text(&new, "uid") && new["metadata"]["uid"] != live["metadata"]["uid"] {
            let (given, stored) = (text(&new, "uid"), text(&live, "uid"));
            let why =
                format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
            return Err(request.conflict(&name, &why));
        }
        if !has_text(&new, "resourceVersion") && !request.kind.updates_unconditionally {
            let why = "Invalid value: 0: must be specified for an update";
            return Err(request.invalid(&name, "metadata.resourceVersion", why));
        }
        self.update(request, &live, new, actor)
    }

    fn patch(
        &mut self,
        request: &Requested,
        patch: &Value,
        content_type: &str,
        actor: &Actor,
    ) -> Result<Arc<Value>, Status> {
        const MERGE: &str = "application/merge-patch+json";
        const STRATEGIC: &str = "application/strategic-merge-patch+json";
        let media_type = content_type.split(';').next().unwrap_or_default();
        // before the object is looked for
        if media_type == STRATEGIC && request.kind.is_custom {
            return Err(Status::unsupported(true));
        }
        let live = self.read(request)?;
        let mut new = match media_type {
            // what a patch does not name stays as it is
            MERGE if patch.pointer("/metadata/managedFields").is_none() => managed::bare(&live),
            _ => Value::clone(&live),
        };
        new["apiVersion"] = request.api_version().into();
        match media_type {
            MERGE => json_patch::merge(&mut new, patch),
            "application/json-patch+json" => {
                let patch: json_patch::Patch = serde_json::from_value(patch.clone())
                    .map_err(|error| Status::bad_request(error.to_string()))?;
                let name = request.target.name.as_deref().unwrap_or_default();
                json_patch::patch(&mut new, &patch)
                    .map_err(|error| request.invalid(name, "patch", &error.to_string()))?;
            }
            STRATEGIC => strategic::merge(&mut new, patch, &request.kind.kind)?,
            _ => return Err(Status::unsupported(request.kind.is_custom)),
        }
        Self::check_type(request, &new)?;
        Self::complete(request, &mut new)?;
        self.update(request, &live, new, actor)
    }

    pub(crate) fn update(
        &mut self,
        request: &Requested,
        live: &Arc<Value>,
        mut new: Value,
        actor: &Actor,
    ) -> Result<Arc<Value>, Status> {
        defaults::decode(&mut new, &request.kind, &request.version);
        let by = Self::attribution(request, actor, self.timestamp());
        managed::update(live, &mut new, &by);
        self.store(request, live, new, actor)
    }

    fn apply(
        &mut self,
        request: &Requested,
        mut applied: Value,
        call: &Call,
        actor: &Actor,
    ) -> Result<Written, Status> {
        let name = request.target.name.clone().unwrap_or_default();
        if call.option("fieldManager").is_none() {
            let why = "Required value: is required for apply patch";
            return Err(Status::invalid("PatchOptions", "meta.k8s.io", "", "fieldManager", why));
        }
        if applied.get("apiVersion").is_none() || applied.get("kind").is_none() {
            return Err(Status::bad_request("the applied configuration has no apiVersion or kind"));
        }
        Self::check_type(request, &applied)?;
        if applied["metadata"].get("managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        if !has_text(&applied, "name") {
            applied["metadata"]["name"] = name.clone().into();
        }
        Self::complete(request, &mut applied)?;
        let live = match self.read(request) {
            Ok(live) => Some(live),
            Err(status) if !request.target.subresource.is_empty() => return Err(status),
            Err(_) => None,
        };
        let mut empty = request.kind.zero.clone();
        for field in ["name", "namespace"] {
            if let Some(value) = applied["metadata"].get(field) {
                empty["metadata"][field] = value.clone();
            }
        }
        if live.is_none() && has_text(&applied, "uid") {
            let uid = text(&applied, "uid");
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(request.conflict(&name, &why));
        }
        let by = Self::attribution(request, actor, self.timestamp());
        let base = live.as_deref().unwrap_or(&empty);
        let mut new = managed::apply(base, &applied, call.is_set("force"), &by)
            .map_err(|conflicts| Status::conflicts(&conflicts))?;
        let managed = new["metadata"].as_object_mut().and_then(|meta| meta.remove("managedFields"));
        defaults::decode(&mut new, &request.kind, &request.version);
        if let Some(managed) = managed {
            new["metadata"]["managedFields"] = managed;
        }
        match live {
            Some(live) => self.store(request, &live, new, actor).map(|object| (200, object)),
            None => self.insert(request, new, actor).map(|object| (201, object)),
        }
    }

    fn attribution<'a>(request: &'a Requested, actor: &Actor, now: String) -> Attribution<'a> {
        let reset = match request.target.subresource.as_str() {
            "status" => &request.kind.status_reset,
            _ => &request.kind.reset,
        };
        Attribution { manager: actor.manager.clone(), node: &request.version.node, reset, now }
    }

    /// Stores a new state of a live object, after the checks that every write meets.
    fn store(
        &mut self,
        request: &Requested,
        live: &Arc<Value>,
        mut new: Value,
        actor: &Actor,
    ) -> Result<Arc<Value>, Status> {
        let name = request.target.name.clone().unwrap_or_default();
        let (plural, group) = (&request.kind.plural, &request.kind.group);
        if has_text(&new, "resourceVersion")
            && new["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]
        {
            return Err(Status::modified(plural, group, &name));
        }
        for (field, stored) in [("uid", text(live, "uid")), ("name", name.as_str())] {
            if has_text(&new, field) && text(&new, field) != stored {
                let why = format!("Invalid value: {:?}: field is immutable", text(&new, field));
                return Err(request.invalid(&name, &format!("metadata.{field}"), &why));
            }
        }
        new["apiVersion"] = stored_version(request).into();
        keep_system_fields(request, live, &mut new);
        Self::validate(request, &new, Some(live))?;
        self.raise_generation(request, live, &mut new);
        if is_same(live, &new) {
            return Ok(Arc::clone(live));
        }
        let held = new["spec"].get("finalizers").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
        let holds_namespace = request.kind.kind == "Namespace" && held;
        let goes = new["metadata"].get("deletionTimestamp").is_some() && finalizers(&new).is_empty();
        if goes && !holds_namespace {
            self.commit(request, request.name(), None, actor);
            return Ok(Arc::new(new));
        }
        Ok(self.commit(request, request.name(), Some(new), actor))
    }

    fn raise_generation(&self, request: &Requested, live: &Value, new: &mut Value) {
        let differs = |path: &str| live.pointer(path) != new.pointer(path);
        let is_raised = match request.kind.generation {
            Generation::Never => return,
            Generation::Spec => differs("/spec"),
            Generation::SpecOrAnnotations => differs("/spec") || differs("/metadata/annotations"),
            Generation::Content => {
                let is_content =
                    |name: &str| name != "metadata" && !(request.version.has_status && name == "status");
                !are_equal(live, new, is_content)
            }
        };
        let generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
        new["metadata"]["generation"] = (generation + i64::from(is_raised)).into();
    }

    fn validate(request: &Requested, new: &Value, live: Option<&Value>) -> Result<(), Status> {
        let name = text(new, "name");
        let owners = new["metadata"].get("ownerReferences").and_then(Value::as_array);
        for owner in owners.into_iter().flatten() {
            for field in ["apiVersion", "kind", "name", "uid"] {
                if owner[field].as_str().unwrap_or_default().is_empty() {
                    let why = format!("Invalid value: \"\": {field} must not be empty");
                    return Err(request.invalid(name, &format!("metadata.ownerReferences.{field}"), &why));
                }
            }
        }
        let controllers = owners.into_iter().flatten().filter(|owner| owner["controller"] == true).count();
        if controllers > 1 {
            let why = "Invalid value: Only one reference can have Controller set to true";
            return Err(request.invalid(name, "metadata.ownerReferences", why));
        }
        if let Some(live) = live
            && live["metadata"].get("deletionTimestamp").is_some()
        {
            let held = finalizers(live);
            let added: Vec<&str> = finalizers(new).into_iter().filter(|it| !held.contains(it)).collect();
            if !added.is_empty() {
                let why = format!(
                    "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
                );
                return Err(request.invalid(name, "metadata.finalizers", &why));
            }
        }
        if let Some(path) =
            request.version.schema.as_ref().and_then(|schema| defaults::first_null(new, schema))
        {
            let field = path.trim_start_matches('.');
            let why = format!("Invalid value: \"null\": {field} in body must be of another type: \"null\"");
            return Err(request.invalid(name, field, &why));
        }
        if request.kind.kind == "Deployment" {
            let containers = new.pointer("/spec/template/spec/containers").and_then(Value::as_array);
            if containers.is_none_or(Vec::is_empty) {
                return Err(request.invalid(name, "spec.template.spec.containers", "Required value"));
            }
            if containers.into_iter().flatten().any(|it| it["image"].as_str().is_none_or(str::is_empty)) {
                return Err(request.invalid(name, "spec.template.spec.containers.image", "Required value"));
            }
        }
        let strategy = &new["spec"]["strategy"];
        if request.kind.kind == "Deployment"
            && strategy["type"] == "Recreate"
            && strategy.get("rollingUpdate").is_some()
        {
            let why = "Forbidden: may not be specified when strategy `type` is 'Recreate'";
            return Err(request.invalid(name, "spec.strategy.rollingUpdate", why));
        }
        if request.kind.kind == "Secret" && live.is_some_and(|live| live["type"] != new["type"]) {
            return Err(request.invalid(name, "type", "Invalid value: field is immutable"));
        }
        Ok(())
    }
}

fn stored_version(request: &Requested) -> String {
    let stored = request.kind.versions.first().unwrap_or(&request.version);
    request.kind.api_version(&stored.name)
}

/// What a request of the object, or of its status, cannot change.
fn keep_system_fields(request: &Requested, live: &Value, new: &mut Value) {
    if request.target.subresource == "status" {
        restore_all(live, new, &["metadata", "status"]);
        if request.kind.is_custom {
            restore_all(&live["metadata"], &mut new["metadata"], &["managedFields"]);
        } else {
            restore(&live["metadata"], &mut new["metadata"], &["labels"]);
        }
    } else if request.version.has_status {
        restore(live, new, &["status"]);
    }
    #[rustfmt::skip]
    let system = [
        "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "resourceVersion",
        "namespace", "name", "generateName",
    ];
    restore(&live["metadata"], &mut new["metadata"], &system);
}

/// Makes these fields what they were.
fn restore(live: &Value, new: &mut Value, fields: &[&str]) {
    let Some(map) = new.as_object_mut() else { return };
    for field in fields {
        match live.get(field) {
            None => drop(map.remove(*field)),
            // most were not changed
            before if before == map.get(*field) => {}
            Some(before) => drop(map.insert((*field).to_owned(), before.clone())),
        }
    }
}

/// Makes all fields what they were, but these.
fn restore_all(live: &Value, new: &mut Value, without: &[&str]) {
    let fields = [live, &*new].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
    let fields: BTreeSet<String> = fields.filter(|it| !without.contains(&it.as_str())).cloned().collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    restore(live, new, &fields);
}

/// Nothing changed but times of field managers.
fn is_same(live: &Value, new: &Value) -> bool {
    fn managed(object: &Value) -> &[Value] {
        object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default()
    }
    are_equal(live, new, |name| name != "metadata")
        && are_equal(&live["metadata"], &new["metadata"], |name| name != "managedFields")
        && {
            let (old, new) = (managed(live), managed(new));
            let same = |one: &Value, other: &Value| are_equal(one, other, |name| name != "time");
            old.len() == new.len() && old.iter().all(|entry| new.iter().any(|other| same(entry, other)))
        }
}

/// Whether two maps are equal in the fields that count.
fn are_equal(one: &Value, other: &Value, counts: impl Fn(&str) -> bool) -> bool {
    let fields = |value| Value::as_object(value).into_iter().flatten().filter(|(name, _)| counts(name));
    fields(one).eq(fields(other))
}

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn has_text(object: &Value, field: &str) -> bool {
    !text(object, field).is_empty()
}
