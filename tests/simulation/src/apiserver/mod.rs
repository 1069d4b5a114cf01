//! A simulated kube-apiserver: all state in memory, time from tokio, randomness from one seed.
//!
//! `store` holds the state and answers requests without IO: a request and the time in, a response and new versions out.
//! [`ApiServer`] shares one store between clients, adds latency and faults, and streams watches. `tests/conformance` sends generated
//! requests to it and to a real kube-apiserver and compares the answers.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use olm_simulation::{ApiServer, InjectedError, Match, Settings, Verb};
//! let server = ApiServer::new(7, Settings::default());        // within a tokio runtime
//! let client = server.client("operator-controller-0");        // a kube::Client; its writes carry this name in the history
//! let user = server.user();                                   // a kube::Client without latency and faults
//! server.put(serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}))?;
//! server.delay("clusterobjectsets", std::time::Duration::from_secs(30));
//! server.fail_next(Match::write("secrets"), InjectedError::ResetAfter, 1);
//! # let _ = (client, user); Ok(()) }
//! ```

mod defaults;
mod delete;
mod discovery;
mod faults;
mod fields;
mod kinds;
mod managed;
mod request;
mod schema;
mod selector;
mod service;
mod status;
mod store;
mod strategic;
mod tasks;
mod typed;
mod watch;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch as watch_channel;
use tokio::time::Instant;

pub use self::service::Endpoint;

use self::faults::InjectionState;
use self::request::Call;
use self::store::{Reply, ResourceKey, Store};

/// The process of the test's own requests.
pub const USER: &str = "user";

/// How the server behaves for its whole life.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The wall clock at the start; objects' timestamps count from it with tokio's clock.
    pub epoch: Timestamp,
    /// A request arrives after a random time up to this, and so does its answer. The user's client has no latency.
    pub latency: Duration,
    /// Random faults; [`ApiServer::set_faults`] replaces them.
    pub faults: Faults,
    /// Delete objects whose owners are gone, and finish orphaning and foreground deletion.
    pub garbage_collector: bool,
    /// The time from an owner's deletion until its dependents are deleted.
    pub garbage_collection_delay: Duration,
    /// Report Deployments available this long after their last change; `None`: nothing writes their status.
    pub deployments: Option<Duration>,
    /// The time from a CustomResourceDefinition's creation to its condition `Established`.
    pub establishing: Duration,
    /// The time between bookmarks of a watch that asks for them.
    pub bookmarks: Duration,
    /// Watches end after this time without `timeoutSeconds`.
    pub watch_timeout: Duration,
    /// A request that is not answered fails after this time, as in the programs' own client.
    pub response_timeout: Duration,
    /// What is created at the start: CRDs, namespaces, service accounts. Shared, because they take long to read: [`documents`].
    pub manifests: Arc<[Value]>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            epoch: Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * 365 * 56),
            latency: Duration::from_millis(5),
            faults: Faults::default(),
            garbage_collector: true,
            garbage_collection_delay: Duration::from_millis(500),
            deployments: Some(Duration::from_secs(2)),
            establishing: Duration::from_millis(20),
            bookmarks: Duration::from_secs(60),
            watch_timeout: Duration::from_secs(290),
            response_timeout: Duration::from_secs(60),
            manifests: Arc::default(),
        }
    }
}

/// Random faults: each field is the probability with which a request of a process other than the user meets the fault.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// 500 before the request is executed.
    pub error: f64,
    /// 429 with `Retry-After: 1`, before it is executed.
    pub throttle: f64,
    /// No answer and no execution.
    pub timeout: f64,
    /// The connection breaks before the request is executed.
    pub reset_before: f64,
    /// The connection breaks after the request was executed.
    pub reset_after: f64,
    /// Per event that a watch delivers: its connection breaks after the event.
    pub watch_end: f64,
    /// Per event that a watch delivers: this and later events wait for up to `watch_delay_max`.
    pub watch_delay: f64,
    /// The bound of `watch_delay`.
    pub watch_delay_max: Duration,
    /// Per new watch: 410, as if its version were compacted.
    pub expired: f64,
}

/// What goes wrong with a request.
#[derive(Debug, Clone, PartialEq)]
pub enum InjectedError {
    /// This status code instead of an execution.
    Status(u16),
    /// Neither executed nor answered.
    Timeout,
    /// Executed, not answered.
    TimeoutAfter,
    /// The connection breaks before the execution.
    ResetBefore,
    /// The connection breaks after the execution.
    ResetAfter,
    /// Executed and answered after this time (it arrives that much later).
    Delay(Duration),
    /// Executed, and answered after this time.
    DelayAnswer(Duration),
}

/// What a request does, as RBAC calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection with `watch`.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH of any type.
    Patch,
    /// DELETE of one object.
    Delete,
    DeleteCollection,
    /// Paths that name no object: discovery, `/version`, `/readyz`.
    Other,
}

impl Verb {
    /// Whether the request can change an object.
    pub fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection)
    }
}

/// Which requests a fault concerns; an absent field matches all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Match {
    /// The process, as given to [`ApiServer::client`].
    pub process: Option<String>,
    /// The plural name of the resource.
    pub resource: Option<String>,
    /// The verbs; empty: all.
    pub verbs: Vec<Verb>,
    /// The object.
    pub name: Option<String>,
}

impl Match {
    /// All writes of objects of a resource.
    pub fn write(resource: &str) -> Self {
        let verbs = vec![Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection];
        Self { resource: Some(resource.to_owned()), verbs, ..Self::default() }
    }

    /// All requests of a process.
    pub fn process(process: &str) -> Self {
        Self { process: Some(process.to_owned()), ..Self::default() }
    }
}

/// A change of one object.
#[derive(Debug, Clone)]
pub struct Write {
    /// When the client sent the request, since the start.
    pub sent: Duration,
    /// Since the start.
    pub at: Duration,
    /// The client's name, `user`, or `kubernetes` for the garbage collector and the stand-ins.
    pub process: String,
    /// The user that the request impersonates.
    pub impersonated: Option<String>,
    /// The field manager.
    pub manager: String,
    /// The request.
    pub verb: Verb,
    /// `status`, or empty.
    pub subresource: String,
    /// The plural name of the resource.
    pub resource: String,
    /// Group and version of the request.
    pub api_version: String,
    pub kind: String,
    /// The object's namespace.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// `None`: it was created.
    pub before: Option<Arc<Value>>,
    /// `None`: it is gone.
    pub after: Option<Arc<Value>>,
    /// The resource version of the change.
    pub version: u64,
}

/// A request that arrived, also one that changed nothing.
#[derive(Debug, Clone)]
pub struct Request {
    /// Since the start.
    pub at: Duration,
    /// When the client had the answer, if it has one of the server.
    pub answered: Option<Duration>,
    /// The client's name.
    pub process: String,
    /// What it does.
    pub verb: Verb,
    /// The plural name of the resource, else empty.
    pub resource: String,
    /// Path and query.
    pub path: String,
    /// The status code that the server made, whatever became of the answer; 0 when a fault came before the execution.
    pub code: u16,
}

/// What a server's lock guards.
struct State {
    store: Store,
    faults: InjectionState,
    requests: Vec<Request>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the stand-ins.
    work: watch_channel::Sender<()>,
    /// Wake the watches of a resource.
    watches: Mutex<BTreeMap<ResourceKey, watch_channel::Sender<()>>>,
    start: Instant,
}

/// A simulated apiserver; clones share its state.
#[derive(Clone)]
pub struct ApiServer(Arc<Shared>);

impl ApiServer {
    /// A server with the built-in kinds, the namespaces `default` and `kube-system`, and the manifests of the settings. It spawns
    /// one task (garbage collector and stand-ins), so it needs a tokio runtime.
    ///
    /// # Panics
    /// If a manifest is not accepted.
    #[expect(clippy::panic, reason = "the test's own manifests")]
    pub fn new(seed: u64, settings: Settings) -> Self {
        let faults = InjectionState::new(seed, settings.faults);
        let (manifests, establishing) = (Arc::clone(&settings.manifests), settings.establishing);
        let mut store = Store::new(seed, settings);
        store.settings.establishing = Duration::ZERO;
        let state = Mutex::new(State { store, faults, requests: Vec::new() });
        let (work, _) = watch_channel::channel(());
        let server = Self(Arc::new(Shared { state, work, watches: Mutex::default(), start: Instant::now() }));
        let own = ["default", "kube-system"]
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        for object in own.into_iter().chain(manifests.iter().cloned()) {
            if let Err(error) = server.put(object.clone()) {
                panic!("{error}: {object}");
            }
            server.state().store.work();
        }
        let mut state = server.state();
        state.store.settings.establishing = establishing;
        state.store.history.clear();
        drop(state);
        tokio::spawn(server.clone().work());
        server
    }

    /// A client whose requests the history attributes to `process`. Faults and latency apply.
    pub fn client(&self, process: &str) -> Client {
        Client::new(self.endpoint(process), "default")
    }

    /// The service under [`ApiServer::client`], for a client with layers of its own.
    pub fn endpoint(&self, process: &str) -> Endpoint {
        Endpoint { server: self.clone(), process: process.to_owned() }
    }

    /// The client of the user, the process [`USER`]: without latency, faults and partitions.
    pub fn user(&self) -> Client {
        self.client(USER)
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// All changes of objects, the oldest first.
    pub fn history(&self) -> Vec<Write> {
        self.history_since(0)
    }

    /// The changes after the first `n`.
    pub fn history_since(&self, n: usize) -> Vec<Write> {
        self.state().store.history.get(n..).unwrap_or_default().to_vec()
    }

    /// The changes in a time until now, the newest first, as long as `find` finds nothing in them.
    pub fn find_recent<T>(&self, time: Duration, find: impl Fn(&Write) -> Option<T>) -> Option<T> {
        let state = self.state();
        let since = state.store.now.saturating_sub(time);
        let mut recent = state.store.history.iter().rev().take_while(|write| write.at > since);
        recent.find_map(find)
    }

    /// The numbers of changes, and of requests but those of the user.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.store.history.len(), state.requests.len())
    }

    /// All requests but those of the user, the oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// When a process first had the answer to a request for objects of a resource that was executed after this time.
    pub fn first_answer(
        &self,
        process: &str,
        verb: Verb,
        resource: &str,
        since: Duration,
    ) -> Option<Duration> {
        let state = self.state();
        let later = state.requests.iter().rev().take_while(|request| request.at >= since);
        let fitting = later.filter(|it| it.process == process && it.verb == verb && it.resource == resource);
        fitting.filter(|request| request.code == 200).filter_map(|request| request.answered).min()
    }

    /// The newest resource version.
    pub fn version(&self) -> u64 {
        self.state().store.version
    }

    /// An object as it is now; `resource` is a plural name.
    pub fn get(&self, resource: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        let name = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        let state = self.state();
        state.store.resources.iter().find_map(|((plural, _), it)| {
            if plural == resource { it.objects.get(&name).cloned() } else { None }
        })
    }

    /// All objects of a resource.
    pub fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        let state = self.state();
        let resources = state.store.resources.iter().filter(|((plural, _), _)| plural == resource);
        resources.flat_map(|(_, it)| it.objects.values()).cloned().collect()
    }

    /// All objects of all resources, with the resource's plural name.
    pub fn all(&self) -> Vec<(String, Arc<Value>)> {
        let state = self.state();
        let resources = state.store.resources.iter();
        let all = resources.flat_map(|((plural, _), it)| it.objects.values().map(move |one| (plural, one)));
        all.map(|(plural, object)| (plural.clone(), Arc::clone(object))).collect()
    }

    /// The first that `find` finds in the objects of all resources.
    pub fn find<T>(&self, mut find: impl FnMut(&str, &Value) -> Option<T>) -> Option<T> {
        let state = self.state();
        let mut resources = state.store.resources.iter();
        resources.find_map(|((plural, _), it)| it.objects.values().find_map(|object| find(plural, object)))
    }

    /// Creates the object, or replaces it (a status in it is written, too). The process of the write is [`USER`].
    pub fn put(&self, mut object: Value) -> anyhow::Result<Arc<Value>> {
        let place = self.path_of(&object)?;
        let path = format!("{}/{}", place.collection, place.name);
        let has_status = place.has_status && object.get("status").is_some();
        let with_status = has_status.then(|| object.clone());
        let stored = match self.call("GET", &path, "", Value::Null) {
            Err(_) => self.call("POST", &place.collection, "", object)?,
            Ok(live) => {
                object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
                self.call("PUT", &path, "", object)?
            }
        };
        let Some(mut object) = with_status else { return Ok(stored) };
        object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        self.call("PUT", &format!("{path}/status"), "", object)
    }

    /// Merge patch of the object; of its status, too, if the patch has one.
    pub fn patch(
        &self,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
        patch: Value,
    ) -> anyhow::Result<Arc<Value>> {
        const MERGE: &str = "application/merge-patch+json";
        let live = self.get(resource, namespace, name).unwrap_or_default();
        let place = self.path_of(&live)?;
        let path = format!("{}/{}", place.collection, place.name);
        let has_status = place.has_status && patch.get("status").is_some();
        let with_status = has_status.then(|| patch.clone());
        let stored = self.call("PATCH", &path, MERGE, patch)?;
        let Some(patch) = with_status else { return Ok(stored) };
        self.call("PATCH", &format!("{path}/status"), MERGE, patch)
    }

    /// Deletes the object in the background; finalizers hold it. Not an error if it does not exist.
    pub fn delete(&self, resource: &str, namespace: Option<&str>, name: &str) -> anyhow::Result<()> {
        let Some(live) = self.get(resource, namespace, name) else { return Ok(()) };
        let place = self.path_of(&live)?;
        let path = format!("{}/{}", place.collection, place.name);
        self.call("DELETE", &path, "", json!({"propagationPolicy": "Background"})).map(drop)
    }

    /// Removes the object whatever holds it, as if etcd had lost it; watches see it.
    pub fn erase(&self, resource: &str, namespace: Option<&str>, name: &str) {
        let name = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        let mut state = self.state();
        let keys: Vec<_> =
            state.store.resources.keys().filter(|(plural, _)| plural == resource).cloned().collect();
        for key in keys {
            if state.store.find(&key, &name).is_some()
                && let Some(request) = state.store.request(&key, &name)
            {
                let mut actor = store::Actor::kubernetes(Verb::Delete, "", &request.api_version());
                USER.clone_into(&mut actor.process);
                state.store.commit(&request, name.clone(), None, &actor);
            }
        }
        self.wake(&mut state);
    }

    /// Watch events of the resource arrive this much later from now on; zero ends the delay and releases what waits.
    pub fn delay(&self, resource: &str, by: Duration) {
        self.delay_for("", resource, by);
    }

    /// The same for the watches of one process.
    pub fn delay_for(&self, process: &str, resource: &str, by: Duration) {
        self.change(|state| state.faults.set_delay(process, resource, by));
    }

    /// Breaks the open watches of the resource (of all with ``) without an error, with the events that wait.
    pub fn drop_watches(&self, resource: &str) {
        self.change(|state| state.faults.drop_watches(resource));
    }

    /// The next `times` matching requests meet the fault. Not requests of the user.
    pub fn fail_next(&self, requests: Match, fault: InjectedError, times: u32) {
        self.change(|state| state.faults.add(requests, fault, Some(times)));
    }

    /// Every matching request meets the fault until [`ApiServer::heal`].
    pub fn fail(&self, requests: Match, fault: InjectedError) {
        self.change(|state| state.faults.add(requests, fault, None));
    }

    /// Ends the faults of [`ApiServer::fail`] and `fail_next` for exactly these requests.
    pub fn stop_failing(&self, requests: &Match) {
        self.change(|state| state.faults.remove(requests));
    }

    /// Removes the history of versions: a watch that begins at an earlier one is answered 410. Open watches stay; see
    /// [`ApiServer::drop_watches`].
    pub fn compact(&self) {
        self.change(|state| state.store.compacted = state.store.version);
    }

    /// Breaks the connections of this process with the requests that have not arrived yet.
    pub fn break_connections(&self, process: &str) {
        self.change(|state| state.faults.break_connections(process));
    }

    /// The process has ended: its requests are never answered, and its watches are silent.
    pub fn end(&self, process: &str) {
        self.change(|state| state.faults.end(process));
    }

    /// The process ends at its next write but `writes`, those of leases apart: after that is executed, or before.
    pub fn end_at_write(&self, process: &str, writes: u32, is_executed: bool) {
        self.change(|state| state.faults.end_at_write(process, writes, is_executed));
    }

    /// Returns when the process has ended.
    pub async fn until_ended(&self, process: &str) {
        let end = self.state().faults.end_of(process);
        if let Some(end) = end {
            end.notified().await;
        }
    }

    /// Nothing of this process arrives and its watches are silent, until the partition is ended with `false`.
    pub fn partition(&self, process: &str, is_cut_off: bool) {
        self.change(|state| state.faults.partition(process, is_cut_off));
    }

    /// Replaces the random faults.
    pub fn set_faults(&self, faults: Faults) {
        self.change(|state| state.faults.random = faults);
    }

    /// Ends all faults: random ones, [`ApiServer::fail`], `fail_next`, delays and partitions. Denials stay.
    pub fn heal(&self) {
        self.change(|state| state.faults.heal());
    }

    /// Denies matching requests of all but the user: 403, and `allowed: false` in access reviews.
    pub fn deny(&self, requests: Match) {
        self.change(|state| state.store.denied.push(requests));
    }

    /// Ends all denials.
    pub fn allow_all(&self) {
        self.change(|state| state.store.denied.clear());
    }

    /// Changes the faults; all watches may be concerned.
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.watches.lock().values().for_each(|watches| watches.send_replace(()));
    }

    /// The state at the present time.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock();
        state.store.now = self.0.start.elapsed();
        state
    }

    /// Wakes the watches of what has changed, and the stand-ins.
    fn wake(&self, state: &mut State) {
        let changed = std::mem::take(&mut state.store.changed);
        if changed.is_empty() {
            return;
        }
        self.0.work.send_replace(());
        let watches = self.0.watches.lock();
        for watches in changed.iter().filter_map(|resource| watches.get(resource)) {
            watches.send_replace(());
        }
    }

    /// Has a value when an object of the resource, or a fault, has changed.
    pub fn changes_of(&self, plural: &str, group: &str) -> watch_channel::Receiver<()> {
        self.changes(&(plural.to_owned(), group.to_owned()))
    }

    /// Has a value when the resource, or a fault, has changed.
    fn changes(&self, resource: &ResourceKey) -> watch_channel::Receiver<()> {
        let mut watches = self.0.watches.lock();
        match watches.get(resource) {
            Some(sender) => sender.subscribe(),
            None => watches.entry(resource.clone()).or_default().subscribe(),
        }
    }

    fn instant(&self, at: Duration) -> Instant {
        // tokio's timers have a resolution of a millisecond and never fire early
        self.0.start + at
    }

    /// Runs the garbage collector and the stand-ins.
    async fn work(self) {
        let mut changes = self.0.work.subscribe();
        loop {
            changes.mark_unchanged();
            let next = {
                let mut state = self.state();
                while state.store.work() {}
                self.wake(&mut state);
                state.store.next_task()
            };
            match next.map(|at| self.instant(at)) {
                Some(at) => tokio::select! {
                    biased;
                    _ = changes.changed() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => drop(changes.changed().await),
            }
        }
    }

    /// A request of the user.
    fn call(&self, method: &str, path: &str, content_type: &str, body: Value) -> anyhow::Result<Arc<Value>> {
        let request = http::Request::builder().method(method).uri(format!("{path}?fieldManager={USER}"));
        let (head, ()) = request.header(http::header::CONTENT_TYPE, content_type).body(())?.into_parts();
        match self.execute(&mut Call::new(self.elapsed(), USER, &head, Some(body))) {
            Ok(Reply::Object(_, object)) => Ok(object),
            Ok(Reply::List(list)) => Ok(Arc::new(serde_json::from_slice(&list)?)),
            Ok(Reply::Watch(_)) => anyhow::bail!("{path} is a watch"),
            Err(status) => anyhow::bail!("{}", status.message()),
        }
    }

    fn path_of(&self, object: &Value) -> anyhow::Result<ObjectRef> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let state = self.state();
        let mut resources = state.store.resources.values();
        let Some(found) = resources.find(|it| it.kind.group == group && it.kind.kind == kind) else {
            anyhow::bail!("no kind {kind:?} in {api_version:?}");
        };
        let root = if group.is_empty() { "/api" } else { "/apis" };
        let namespace = match (found.kind.is_namespaced, text("/metadata/namespace")) {
            (false, _) => String::new(),
            (true, "") => "/namespaces/default".to_owned(),
            (true, namespace) => format!("/namespaces/{namespace}"),
        };
        let collection = format!("{root}/{api_version}{namespace}/{}", found.kind.plural);
        let has_status = found.kind.version(version).is_some_and(|it| it.has_status);
        Ok(ObjectRef { collection, name: text("/metadata/name").to_owned(), has_status })
    }
}

/// Where an object is served.
struct ObjectRef {
    collection: String,
    name: String,
    has_status: bool,
}

/// The documents of YAML texts; a text that is none is one document that no kind fits.
pub fn documents(yaml: &[&str]) -> Arc<[Value]> {
    let all = yaml.iter().flat_map(|text| {
        let all: Result<Vec<Value>, _> = serde_saphyr::from_multiple(text);
        all.unwrap_or_else(|error| vec![json!({"kind": error.to_string()})])
    });
    all.filter(|document| !document.is_null()).collect()
}
