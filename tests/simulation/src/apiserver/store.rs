//! The state of the server: resources, their objects and the versions of these. Without IO; the time and every random choice come from
//! the caller.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::kinds::{self, Kind, Version};
use super::managed::Manager;
use super::request::{Call, Target};
use super::selector::Selector;
use super::status::Status;
use super::tasks::Task;
use super::watch::Watch;
use super::{Match, Settings, Verb, Write};

/// Plural name and group.
pub(crate) type ResourceKey = (String, String);
/// Namespace (empty for objects of the cluster) and name.
pub(crate) type ObjectName = (String, String);

/// A served resource and its objects.
pub(crate) struct Resource {
    pub(crate) kind: Arc<Kind>,
    /// Differs after the resource was removed and served again.
    pub(crate) instance: u64,
    /// The version since which it is served; earlier ones are gone with the former instance.
    pub(crate) since: u64,
    pub(crate) objects: BTreeMap<ObjectName, Arc<Value>>,
    pub(crate) log: Vec<Event>,
}

/// A version of an object.
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) version: u64,
    pub(crate) before: Option<Arc<Value>>,
    pub(crate) after: Option<Arc<Value>>,
    /// What watches show: the new state, of a deleted object its last with the version of the deletion.
    pub(crate) shown: Arc<Value>,
    /// The same as text, and its metadata as text, once a watch has shown them.
    text: OnceCell<Bytes>,
    partial_text: OnceCell<Bytes>,
}

impl Event {
    /// What watches show as text, which is made once; `is_partial`: its metadata.
    pub(crate) fn text(&self, is_partial: bool) -> &Bytes {
        match is_partial {
            true => self.partial_text.get_or_init(|| text(&partial(&self.shown))),
            false => self.text.get_or_init(|| text(&self.shown)),
        }
    }
}

impl Resource {
    /// The text of a state that watches show or have shown.
    pub(crate) fn text(&self, state: &Arc<Value>) -> Option<&Bytes> {
        let version: u64 = state["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
        let place = self.log.partition_point(|event| event.version < version);
        let event = self.log.get(place).filter(|event| Arc::ptr_eq(&event.shown, state))?;
        Some(event.text(false))
    }
}

/// JSON.
pub(crate) fn text(value: &Value) -> Bytes {
    // few objects need more
    let mut text = Vec::with_capacity(4096);
    match serde_json::to_writer(&mut text, value) {
        Ok(()) => text.into(),
        Err(_) => Bytes::new(),
    }
}

/// An answer.
pub(crate) enum Reply {
    Object(u16, Arc<Value>),
    List(Bytes),
    Watch(Box<Watch>),
}

impl Reply {
    pub(crate) fn ok(body: Value) -> Self {
        Self::Object(200, Arc::new(body))
    }
}

/// On whose behalf an object changes.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// When the client sent the request.
    pub(crate) sent: Option<Duration>,
    pub(crate) process: String,
    pub(crate) impersonated: Option<String>,
    pub(crate) verb: Verb,
    pub(crate) manager: Manager,
    pub(crate) is_dry_run: bool,
}

impl Actor {
    /// The garbage collector and the stand-ins for controllers.
    pub(crate) fn kubernetes(verb: Verb, subresource: &str, api_version: &str) -> Self {
        let (name, api_version) = ("kube-controller-manager".to_owned(), api_version.to_owned());
        let manager = Manager { name, is_apply: false, api_version, subresource: subresource.to_owned() };
        let process = "kubernetes".to_owned();
        Self { sent: None, process, impersonated: None, verb, manager, is_dry_run: false }
    }
}

/// The state.
pub(crate) struct Store {
    pub(crate) settings: Settings,
    pub(crate) resources: BTreeMap<ResourceKey, Resource>,
    pub(crate) version: u64,
    /// Versions below this are not available to watches.
    pub(crate) compacted: u64,
    pub(crate) now: Duration,
    pub(crate) history: Vec<Write>,
    pub(crate) denied: Vec<Match>,
    /// The resources that have changed since they were taken from here.
    pub(crate) changed: BTreeSet<ResourceKey>,
    /// What the stand-ins do next, by time.
    pub(crate) tasks: BTreeMap<(Duration, u64), Task>,
    /// Objects by the uid of an owner.
    pub(crate) dependents: BTreeMap<String, BTreeSet<(ResourceKey, ObjectName)>>,
    /// Live objects by uid.
    pub(crate) uids: BTreeMap<String, (ResourceKey, ObjectName)>,
    random: StdRng,
    counter: u64,
}

impl Store {
    pub(crate) fn new(seed: u64, settings: Settings) -> Self {
        let mut store = Self {
            settings,
            resources: BTreeMap::new(),
            version: 0,
            compacted: 0,
            now: Duration::ZERO,
            history: Vec::new(),
            denied: Vec::new(),
            changed: BTreeSet::new(),
            tasks: BTreeMap::new(),
            dependents: BTreeMap::new(),
            uids: BTreeMap::new(),
            random: StdRng::seed_from_u64(seed ^ 0x61_7069),
            counter: 0,
        };
        kinds::built_in().into_iter().for_each(|kind| store.serve(kind));
        store
    }

    /// Serves a resource; its objects stay if it is served already.
    pub(crate) fn serve(&mut self, kind: Kind) {
        let instance = self.next_number();
        let key = (kind.plural.clone(), kind.group.clone());
        let kind = Arc::new(kind);
        let since = self.version;
        let fresh =
            Resource { kind: Arc::clone(&kind), instance, since, objects: BTreeMap::new(), log: Vec::new() };
        self.resources.entry(key).or_insert(fresh).kind = kind;
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// The time as objects have it, in seconds.
    pub(crate) fn timestamp(&self) -> String {
        let at = self.settings.epoch + SignedDuration::from_secs(self.now.as_secs().cast_signed());
        Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
    }

    pub(crate) fn new_uid(&mut self) -> String {
        let id: u128 = self.random.random();
        let text = format!("{id:032x}");
        format!("{}-{}-4{}-8{}-{}", &text[..8], &text[8..12], &text[13..16], &text[17..20], &text[20..])
    }

    pub(crate) fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(LETTERS[self.random.random_range(0..LETTERS.len())])).collect()
    }

    /// Answers a request.
    pub(crate) fn handle(&mut self, call: &mut Call) -> Result<Reply, Status> {
        if self.denied.iter().any(|rule| rule.fits(call)) && call.process != super::USER {
            let target = call.target.as_ref();
            let (resource, group) =
                target.map(|it| (it.resource.as_str(), it.group.as_str())).unwrap_or_default();
            let name = target.and_then(|it| it.name.as_deref()).unwrap_or_default();
            let user = call.impersonated.as_deref().unwrap_or(&call.process);
            let verb = format!("{:?}", call.verb).to_lowercase();
            let why = format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?}");
            return Err(Status::forbidden(resource, group, name, &why));
        }
        let Some(target) = call.target.clone() else { return self.discover(&call.path).map(Reply::ok) };
        if let Some(answer) = self.review(call, &target) {
            return answer;
        }
        let key = (target.resource.clone(), target.group.clone());
        let kind = match self.resources.get(&key) {
            Some(resource) => Arc::clone(&resource.kind),
            None => return self.discover(&call.path).map(Reply::ok),
        };
        let Some(version) = kind.version(&target.version).cloned() else { return Err(Status::no_route()) };
        if kind.is_namespaced != target.namespace.is_some()
            && (target.name.is_some() || target.namespace.is_some() || call.verb == Verb::Create)
        {
            return Err(Status::no_route());
        }
        match target.subresource.as_str() {
            "" => {}
            "status" if version.has_status => {}
            _ => return Err(Status::no_route()),
        }
        let request = Requested { key, kind, version, target };
        match call.verb {
            Verb::Get => {
                self.read(&request).map(|found| Reply::Object(200, rendered(&found, &request, call)))
            }
            Verb::List => self.list(&request, call),
            Verb::Watch => self.watch(&request, call).map(|watch| Reply::Watch(Box::new(watch))),
            Verb::Create | Verb::Update | Verb::Patch => {
                let (code, object) = self.write(&request, call)?;
                Ok(Reply::Object(code, rendered(&object, &request, call)))
            }
            Verb::Delete => self.delete_one(&request, call),
            Verb::DeleteCollection => self.delete_all(&request, call),
            Verb::Other => Err(Status::new(405, "MethodNotAllowed", "the server does not allow this method")),
        }
    }

    pub(crate) fn read(&self, request: &Requested) -> Result<Arc<Value>, Status> {
        let found = self.resources.get(&request.key).and_then(|it| it.objects.get(&request.name()));
        found.cloned().ok_or_else(|| request.not_found())
    }

    fn list(&mut self, request: &Requested, call: &Call) -> Result<Reply, Status> {
        let Some(resource) = self.resources.get(&request.key) else { return Err(Status::no_route()) };
        let selector = Selector::parse(call.option("labelSelector"), call.option("fieldSelector"));
        let namespace = request.target.namespace.as_deref();
        let mut version = self.version;
        let mut after = None;
        if let Some(token) = call.option("continue") {
            let (at, namespace, name) = serde_json::from_str::<(u64, String, String)>(token)
                .map_err(|_| Status::bad_request("continue key is not valid"))?;
            if at < self.compacted {
                let why = "The provided continue parameter is too old to display a consistent list result.";
                return Err(Status::expired(why));
            }
            version = at;
            after = Some((namespace, name));
        }
        let limit = call.option("limit").and_then(|limit| limit.parse::<usize>().ok()).filter(|it| *it > 0);
        let mut fitting = resource
            .objects
            .iter()
            .filter(|(name, _)| after.as_ref().is_none_or(|after| *name > after))
            .filter(|((at, _), object)| namespace.is_none_or(|it| it == at) && selector.fits(object));
        let page: Vec<(&ObjectName, &Arc<Value>)> =
            fitting.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
        let mut meta = json!({"resourceVersion": version.to_string()});
        if let Some((last, _)) = page.last()
            && limit.is_some()
            && fitting.next().is_some()
        {
            meta["continue"] = serde_json::to_string(&(version, &last.0, &last.1)).unwrap_or_default().into();
        }
        let (kind, api_version) = match call.is_partial {
            true => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            false => (request.kind.list_kind.clone(), request.api_version()),
        };
        let head = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{meta},"items":["#);
        let mut list = head.into_bytes();
        for (place, (_, object)) in page.into_iter().enumerate() {
            if place > 0 {
                list.push(b',');
            }
            let shown = rendered(object, request, call);
            if !request.kind.is_custom && !call.is_partial {
                list_untyped(&shown, &mut list);
                continue;
            }
            match resource.text(&shown) {
                Some(text) => list.extend_from_slice(text),
                None => list.extend_from_slice(&text(&shown)),
            }
        }
        list.extend_from_slice(b"]}");
        Ok(Reply::List(list.into()))
    }

    /// Stores a new state of an object, or its removal, and returns what is stored (of a removed object its last state).
    pub(crate) fn commit(
        &mut self,
        request: &Requested,
        name: ObjectName,
        after: Option<Value>,
        actor: &Actor,
    ) -> Arc<Value> {
        let Some(resource) = self.resources.get_mut(&request.key) else { return Arc::default() };
        let before = resource.objects.get(&name).cloned();
        if actor.is_dry_run {
            return after.map(Arc::new).or(before).unwrap_or_default();
        }
        self.version += 1;
        let version = self.version;
        let stamp = |mut object: Value| {
            object["metadata"]["resourceVersion"] = version.to_string().into();
            Arc::new(object)
        };
        let after = after.map(stamp);
        match &after {
            Some(object) => drop(resource.objects.insert(name.clone(), Arc::clone(object))),
            None => drop(resource.objects.remove(&name)),
        }
        let shown = match (&after, &before) {
            (Some(after), _) => Arc::clone(after),
            (None, Some(before)) => stamp(Value::clone(before)),
            (None, None) => return Arc::default(),
        };
        let event = Event {
            at: self.now,
            version,
            before: before.clone(),
            after: after.clone(),
            shown: Arc::clone(&shown),
            text: OnceCell::new(),
            partial_text: OnceCell::new(),
        };
        if !self.changed.contains(&request.key) {
            self.changed.insert(request.key.clone());
        }
        resource.log.push(event);
        self.history.push(Write {
            sent: actor.sent.unwrap_or(self.now),
            at: self.now,
            process: actor.process.clone(),
            impersonated: actor.impersonated.clone(),
            manager: actor.manager.name.clone(),
            verb: actor.verb,
            subresource: actor.manager.subresource.clone(),
            resource: request.kind.plural.clone(),
            api_version: request.api_version(),
            kind: request.kind.kind.clone(),
            namespace: Some(name.0.clone()).filter(|it| !it.is_empty()),
            name: name.1.clone(),
            before: before.clone(),
            after: after.clone(),
            version,
        });
        let place = (request.key.clone(), name);
        self.index(&place, before.as_deref(), after.as_deref());
        self.plan(&place, before.as_deref(), after.as_deref());
        shown
    }

    fn index(&mut self, place: &(ResourceKey, ObjectName), before: Option<&Value>, after: Option<&Value>) {
        for owner in before.into_iter().flat_map(owners) {
            if let Some(all) = self.dependents.get_mut(owner) {
                all.remove(place);
            }
        }
        if let Some(uid) = before.and_then(uid) {
            self.uids.remove(uid);
        }
        for owner in after.into_iter().flat_map(owners) {
            self.dependents.entry(owner.to_owned()).or_default().insert(place.clone());
        }
        if let Some(uid) = after.and_then(uid) {
            self.uids.insert(uid.to_owned(), place.clone());
        }
    }

    /// The request for an object that is stored.
    pub(crate) fn request(&self, key: &ResourceKey, name: &ObjectName) -> Option<Requested> {
        let kind = Arc::clone(&self.resources.get(key)?.kind);
        let version = kind.versions.first()?.clone();
        let target = Target {
            group: kind.group.clone(),
            version: version.name.clone(),
            resource: kind.plural.clone(),
            namespace: Some(name.0.clone()).filter(|it| !it.is_empty()),
            name: Some(name.1.clone()),
            subresource: String::new(),
        };
        Some(Requested { key: key.clone(), kind, version, target })
    }

    pub(crate) fn find(&self, key: &ResourceKey, name: &ObjectName) -> Option<Arc<Value>> {
        self.resources.get(key)?.objects.get(name).cloned()
    }
}

/// A request for a served resource.
#[derive(Debug, Clone)]
pub(crate) struct Requested {
    pub(crate) key: ResourceKey,
    pub(crate) kind: Arc<Kind>,
    pub(crate) version: Version,
    pub(crate) target: Target,
}

impl Requested {
    pub(crate) fn name(&self) -> ObjectName {
        (self.target.namespace.clone().unwrap_or_default(), self.target.name.clone().unwrap_or_default())
    }

    pub(crate) fn api_version(&self) -> String {
        self.kind.api_version(&self.version.name)
    }

    pub(crate) fn not_found(&self) -> Status {
        let name = self.target.name.as_deref().unwrap_or_default();
        Status::not_found(&self.kind.plural, &self.kind.group, name)
    }

    pub(crate) fn conflict(&self, name: &str, why: &str) -> Status {
        Status::conflict(&self.kind.plural, &self.kind.group, name, why)
    }

    pub(crate) fn invalid(&self, name: &str, field: &str, why: &str) -> Status {
        Status::invalid(&self.kind.kind, &self.kind.group, name, field, why)
    }
}

/// The object as the request wants it: its metadata alone, or in the version of the request.
pub(crate) fn rendered(object: &Arc<Value>, request: &Requested, call: &Call) -> Arc<Value> {
    if call.is_partial {
        return Arc::new(partial(object));
    }
    let api_version = request.api_version();
    if object["apiVersion"] == api_version.as_str() {
        return Arc::clone(object);
    }
    let mut object = Value::clone(object);
    object["apiVersion"] = api_version.into();
    Arc::new(object)
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// Writes an object of a built-in kind as lists have it: without its type.
fn list_untyped(object: &Value, list: &mut Vec<u8>) {
    let fields = object.as_object().into_iter().flatten();
    let mut separator = b'{';
    for (name, value) in fields.filter(|(name, _)| !["apiVersion", "kind"].contains(&name.as_str())) {
        list.push(std::mem::replace(&mut separator, b','));
        list.extend_from_slice(format!("{name:?}:").as_bytes());
        // a tree of values is always JSON
        let _ = serde_json::to_writer(&mut *list, value);
    }
    list.push(b'}');
}

pub(crate) fn uid(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str())
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}
