//! Rolls a revision out: phase after phase, object after object, doing what the pure engine decides.
//!
//! `decide_object` gives the step for each object. Where it is `Step::Refuse`, because another owner has the object, the phase ends as
//! `Outcome::Refused` with the text of `report::collisions`.
//!
//! Creation is a POST that fails when the object exists; changes are server-side applies of exactly the state that was
//! judged (resourceVersion). Objects that were found as desired and did not change since are not read again.
//! Rule: revisions §6 and §7.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use olm_api::ClusterObjectSet;
use olm_core::{Object, ObjectKey};
use olm_install::probes::author;
use olm_install::resolution::revision::has_succeeded;
use olm_rollout::probe::{Author, Probe, ProbeResult, Ready, Selector, builtin, evaluate};
use olm_rollout::status::{ObjectState, Outcome, PhaseState};
use olm_rollout::{
    Revision, Sibling, Step, adopting, changes, controller_of, converted, decide_object, enforcing,
    keeps_items, keys, mark, report, resource_version,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::{debug, info};

use super::Context;
use super::content::Item;
use super::errors::{applying, is_code, is_kind_missing, is_namespace_missing, text, write_failed};
use super::identity::{Owner, Purpose};
use super::live::Live;
use super::memory::Memory;
use super::pods::{PodCause, has_pods};
use super::removal::held_by;
use super::world::KindWatch;
use crate::written_by;

/// How often one object is judged again within a pass because it changed under our hands.
const ROUNDS: usize = 3;
/// Fields that the event of a correction names.
const MAX_FIELDS: usize = 3;

pub(super) struct Rollout<'a> {
    pub(super) context: &'a Context,
    pub(super) revision: &'a ClusterObjectSet,
    pub(super) owner: Owner,
    pub(super) own: Revision,
    pub(super) siblings: Vec<Sibling>,
    /// Look, but do not write.
    pub(super) paused: bool,
    /// What stood in the way.
    pub(super) problems: Problems,
}

/// How many things stood in the way of a pass, how many of them are namespaces that do not exist, how long objects are left
/// alone, and whether one changed before each write.
#[derive(Debug, Default)]
pub(super) struct Problems {
    all: AtomicUsize,
    namespaces: AtomicUsize,
    /// The least time for which an object that others write to is left alone.
    left_alone: Mutex<Option<Duration>>,
    /// An object changed between reading and writing it, each time.
    contended: AtomicBool,
}

impl Problems {
    fn left_alone_for(&self, time: Duration) {
        let mut least = self.left_alone.lock();
        *least = least.into_iter().chain([time]).min();
    }
}

/// What became of one object.
struct Done {
    state: ObjectState,
    collision: Option<report::Collision>,
}

impl Rollout<'_> {
    /// One pass over all phases, up to the first that is not complete. A revision that succeeded once is looked at as a
    /// whole, so that drift is corrected even when an earlier phase is not ready (rule: revisions §17 row 15).
    pub(super) async fn run(&self, memory: &mut Memory) -> Outcome {
        let Some((inventory, probes)) =
            memory.known.as_ref().map(|known| (Arc::clone(&known.inventory), Arc::clone(&known.probes)))
        else {
            return Outcome::Failed("content is not known".to_owned());
        };
        self.context.world.begin_waits(&self.own.name);
        let whole = has_succeeded(self.revision);
        let mut phases = vec![];
        let mut refused = None;
        let mut failed = None;
        let mut causes = std::mem::take(&mut memory.pod_causes);
        for (index, (_, items)) in inventory.phases.iter().enumerate() {
            let mut errors = vec![];
            let mut reports = vec![];
            let mut state = PhaseState::default();
            for (position, item) in items.iter().enumerate() {
                let gvk = gvk(&item.key);
                let watch = match self.context.world.ensure(&gvk, &self.own).await {
                    Ok(watch) => watch,
                    Err(error) => {
                        if error.is_no_match() {
                            self.context.await_crd(&self.own.name, &gvk);
                        }
                        self.problems.all.fetch_add(1, Ordering::Relaxed);
                        failed.get_or_insert_with(|| {
                            format!("establish watch: {error}; needed for {}", item.key.objref())
                        });
                        break;
                    }
                };
                match self.object(memory, &watch, item, (index, position), &probes).await {
                    Ok(mut done) => {
                        reports.extend(done.collision);
                        // the condition names the first object of a phase that is not ready
                        let is_first = state.objects.iter().all(|object| object.verdict.is_ready());
                        if is_first && !done.state.verdict.is_ready() && has_pods(&item.key) {
                            let before = causes.remove(&item.key);
                            let found = self.pod_cause(&watch, &item.key, before, &mut done.state.verdict);
                            memory.pod_causes.extend(found.await.map(|cause| (item.key.clone(), cause)));
                        }
                        state.objects.push(done.state);
                    }
                    Err(problem) => {
                        self.problems.all.fetch_add(1, Ordering::Relaxed);
                        errors.push(problem);
                    }
                }
            }
            if !errors.is_empty() {
                failed.get_or_insert_with(|| format!("reconciling object: {}", errors.join("\n")));
            }
            if !reports.is_empty() {
                refused.get_or_insert_with(|| report::collisions(index, &reports));
            }
            let complete = state.is_complete() && failed.is_none();
            phases.push(state);
            if !whole && !complete {
                break;
            }
        }
        if let Some(text) = failed {
            return Outcome::Failed(text);
        }
        if let Some(text) = refused {
            return Outcome::Refused(text);
        }
        let outcome = Outcome::Processed { phases, total: inventory.phases.len() };
        if outcome.is_complete() {
            if let Some(known) = &mut memory.known {
                // read again when there is something to apply
                known.content = None;
            }
            let used: HashSet<GroupVersionKind> =
                inventory.phases.iter().flat_map(|(_, items)| items).map(|item| gvk(&item.key)).collect();
            self.context.world.release(&self.own.uid, &used);
        }
        outcome
    }

    /// Adds to the result of the probes why pods of the object do not run.
    async fn pod_cause(
        &self,
        watch: &KindWatch,
        key: &ObjectKey,
        before: Option<PodCause>,
        verdict: &mut ProbeResult,
    ) -> Option<PodCause> {
        let live = watch.get(key)?.object();
        // until its controller has seen the object, there are no pods
        live.0.get("status")?.get("observedGeneration")?;
        let now = Instant::now();
        let mut cause = PodCause::update(before, &live, now);
        if let Some(text) = cause.read(&self.context.client, &live, now).await
            && let Some(last) = verdict.messages.last_mut()
        {
            last.push_str(&format!("; {text}"));
        }
        Some(cause)
    }

    /// Whether an object was not written because it changed each time.
    pub(super) fn is_contended(&self) -> bool {
        self.problems.contended.load(Ordering::Relaxed)
    }

    /// How long until an object that others write to is corrected again, if there is one.
    pub(super) fn left_alone(&self) -> Option<Duration> {
        *self.problems.left_alone.lock()
    }

    /// Is all that failed the writing of objects whose namespace does not exist? It is watched for, so there is no hurry.
    pub(super) fn lacks_only_namespaces(&self) -> bool {
        let (all, namespaces) =
            (self.problems.all.load(Ordering::Relaxed), self.problems.namespaces.load(Ordering::Relaxed));
        all > 0 && all == namespaces
    }

    async fn object(
        &self,
        memory: &mut Memory,
        watch: &KindWatch,
        item: &Item,
        at: (usize, usize),
        probes: &[Probe],
    ) -> Result<Done, String> {
        let key = &item.key;
        if watch.lacks_namespace(key) {
            return Err(format!(
                "validating: {}: metadata.namespace: Required value: objects of this kind are in a namespace",
                key.objref()
            ));
        }
        let listings = watch.listings();
        let seen = watch.get(key);
        if let Some(live) = &seen
            && memory.verified.get(key) == Some(&live.fingerprint)
        {
            let verdict = self.probe(probes, watch, key, live).await?;
            return Ok(self.done(key, verdict, true, false));
        }
        let content = self.context.content(self.revision, memory).await?;
        let read = content.object(at.0, at.1).await;
        let mut body = read.map_err(|problem| format!("reconciling {}: {problem}", key.objref()))?;
        let manifest = &mut body.object;
        // what the watch shows in full need not be digested again when it is as desired
        let whole = seen.as_ref().filter(|live| !live.partial && self.own.extension.is_some());
        let mut watched = whole.map(|live| live.fingerprint);
        let mut live = match seen {
            // without the owner label no watch sees the object
            None if self.own.extension.is_none() => self.read(watch, key).await?,
            None => None,
            Some(live) if live.partial => self.read(watch, key).await?,
            Some(live) => Some(live.object()),
        };
        let mut force = false;
        for _ in 0..ROUNDS {
            let step = decide_object(manifest, live.as_ref(), &self.own, &self.siblings, item.protection)
                .map_err(|error| format!("reconciling {}: {error}", key.objref()))?;
            let writes = matches!(step, Step::Create | Step::Apply { .. } | Step::Adopt);
            if writes && self.paused {
                let verdict = live.as_ref().map_or_else(ProbeResult::yes, |live| self.evaluate(probes, live));
                return Ok(self.done(key, verdict, false, false));
            }
            // making it, or taking it over, is a correction when it was there before
            let again = matches!(step, Step::Create | Step::Adopt) && memory.verified.contains_key(key);
            if (again || matches!(step, Step::Apply { .. }))
                && let Err(left) =
                    memory.may_correct(key, self.context.intervals.correction_window, Instant::now())
            {
                self.problems.left_alone_for(left);
                return Err(format!(
                    "reconciling {}: another client changes it again and again; it is left alone for a while; its \
                     metadata.managedFields and ownerReferences name the client",
                    key.objref()
                ));
            }
            let watched = watched.take();
            match (step, live.take()) {
                (Step::Create, _) | (_, None) => match self.create(watch, manifest, key).await? {
                    Some(created) => return Ok(self.settle(memory, (watch, listings), key, probes, created)),
                    None => live = self.read(watch, key).await?,
                },
                (Step::Nothing, Some(found)) => {
                    let Some(fingerprint) = watched else {
                        return Ok(self.settle(memory, (watch, listings), key, probes, found));
                    };
                    memory.verified.insert(key.clone(), fingerprint);
                    let verdict = self.evaluate(probes, &found);
                    return Ok(self.done(key, verdict, true, false));
                }
                (Step::Apply { force: take }, Some(found)) => {
                    let object = enforcing(manifest, &self.own, &found);
                    let forced = take || force;
                    match self.apply(watch, item, object, &found, forced, applying(forced)).await? {
                        Some(applied) => {
                            return Ok(self.settle(memory, (watch, listings), key, probes, applied));
                        }
                        None => {
                            force = true;
                            live = self.read(watch, key).await?;
                        }
                    }
                }
                (Step::Adopt, Some(found)) => {
                    let object = adopting(manifest, &self.own, &found);
                    match self.apply(watch, item, object, &found, true, "patching (owner change)").await? {
                        Some(applied) => {
                            return Ok(self.settle(memory, (watch, listings), key, probes, applied));
                        }
                        None => live = self.read(watch, key).await?,
                    }
                }
                (Step::Leave, Some(found)) => {
                    let verdict = self.evaluate(probes, &found);
                    // its watch wakes those that own it
                    if verdict.ready != Ready::Yes {
                        self.wait_for(watch, key, &found);
                    }
                    return Ok(self.done(key, verdict, true, true));
                }
                (Step::Wait | Step::Refuse, Some(found)) => {
                    self.wait_for(watch, key, &found);
                    let verdict = if step == Step::Wait {
                        ProbeResult::unknown(format!("it is being deleted{}", held_by(&found)))
                    } else {
                        self.evaluate(probes, &found)
                    };
                    let collision =
                        (step == Step::Refuse).then(|| report::collision(manifest, &found, &self.own));
                    return Ok(Done { collision, ..self.done(key, verdict, false, false) });
                }
            }
        }
        // other clients change it just now, perhaps for the last time: then its watch wakes no further pass
        self.problems.contended.store(true, Ordering::Relaxed);
        let verdict = live.as_ref().map_or_else(ProbeResult::yes, |live| {
            self.wait_for(watch, key, live);
            self.evaluate(probes, live)
        });
        Ok(self.done(key, verdict, false, false))
    }

    fn done(&self, key: &ObjectKey, verdict: ProbeResult, settled: bool, progressed: bool) -> Done {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let title = format!("{}.{} {namespace}/{}", key.kind, key.api_version(), key.name);
        Done { state: ObjectState { title, progressed, settled, verdict }, collision: None }
    }

    /// Remembers that the object is as desired, and probes it. It was read or written after the watch had made so many `listings`.
    fn settle(
        &self,
        memory: &mut Memory,
        (watch, listings): (&KindWatch, u64),
        key: &ObjectKey,
        probes: &[Probe],
        found: Object,
    ) -> Done {
        let verdict = self.evaluate(probes, &found);
        if self.own.extension.is_none() {
            self.wait_for(watch, key, &found);
        }
        let live = Live::new(found);
        memory.verified.insert(key.clone(), live.fingerprint);
        if self.own.extension.is_some() {
            watch.put(key, live, &self.own.name, listings);
        }
        self.done(key, verdict, true, false)
    }

    fn wait_for(&self, watch: &KindWatch, key: &ObjectKey, found: &Object) {
        self.context.world.wait_for(&self.own.name, watch, key, resource_version(found));
    }

    /// POST. `None` when the object exists already.
    async fn create(
        &self,
        watch: &KindWatch,
        manifest: &mut Object,
        key: &ObjectKey,
    ) -> Result<Option<Object>, String> {
        let failed = |error: kube::Error| {
            if is_code(&error, 404)
                && let Some(namespace) = &key.namespace
            {
                self.context.await_namespace(&self.own.name, namespace);
                if is_namespace_missing(&error) {
                    self.problems.namespaces.fetch_add(1, Ordering::Relaxed);
                }
            }
            write_failed(&key.objref(), "creating resource", &error)
        };
        // in place: a copy of a large object may be more than the memory of the process
        mark(manifest, &self.own);
        let params = PostParams { dry_run: false, field_manager: Some(keys::FIELD_MANAGER.to_owned()) };
        match watch.requests(self.client().await?, key).create(&params, manifest).await {
            Ok(created) => {
                info!(revision = %self.own.name, object = %key.objref(), "created");
                if has_succeeded(self.revision) {
                    let note = format!("created {} again after a foreign deletion", key.objref());
                    self.context.record(self.revision, false, "Corrected", &note).await;
                }
                Ok(Some(created))
            }
            Err(error) if already_exists(&error) => Ok(None),
            Err(error) => {
                if is_kind_missing(&error) {
                    self.context.world.check_served(watch).await;
                }
                Err(failed(error))
            }
        }
    }

    /// Server-side apply over the state that was judged. `None` when the object is another one by now.
    async fn apply(
        &self,
        watch: &KindWatch,
        item: &Item,
        mut object: Object,
        judged: &Object,
        force: bool,
        doing: &str,
    ) -> Result<Option<Object>, String> {
        let key = &item.key;
        let requests = watch.requests(self.client().await?, key);
        let failed = |error: &kube::Error| write_failed(&key.objref(), doing, error);
        let mut version = Value::from(resource_version(judged));
        if !self.drops_nothing(item, &object, judged)
            && let Some(entries) = converted(judged)
        {
            let patch = json!({"metadata": {"managedFields": entries, "resourceVersion": version}});
            match requests.patch(&written_by(keys::FIELD_MANAGER), &Patch::Merge(&patch)).await {
                Ok(answer) => version = Value::from(resource_version(&answer)),
                Err(error) if is_code(&error, 409) || is_code(&error, 404) => return Ok(None),
                Err(error) => return Err(failed(&error)),
            }
        }
        object.metadata_mut().insert("resourceVersion".into(), version);
        let params = PatchParams { force, ..PatchParams::apply(keys::FIELD_MANAGER) };
        match requests.patch(&params, &Patch::Apply(&object)).await {
            Ok(applied) => {
                debug!(revision = %self.own.name, object = %key.objref(), force, "applied");
                if has_succeeded(self.revision)
                    && let Some(fields) = corrected_fields(judged, &applied)
                {
                    let note = format!("reverted a foreign change of {} ({fields})", key.objref());
                    self.context.record(self.revision, false, "Corrected", &note).await;
                }
                Ok(Some(applied))
            }
            Err(error) if is_code(&error, 409) || is_code(&error, 404) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Whether `object` has all fields of the manifest of the revision that controls the object which was judged. The entry of the create
    /// can then stay until the old revision lets go of the object, and one request less is made.
    fn drops_nothing(&self, item: &Item, object: &Object, judged: &Object) -> bool {
        let memories = &self.context.memories;
        let is_equal = controller_of(judged).is_some_and(|owner| {
            owner.uid == self.own.uid || memories.field_names(&owner.uid, &item.key) == Some(item.field_names)
        });
        is_equal && keeps_items(object, judged)
    }

    /// Reads the object past all caches; `None` when it does not exist.
    async fn read(&self, watch: &KindWatch, key: &ObjectKey) -> Result<Option<Object>, String> {
        let cached = watch.get(key);
        match watch.requests(self.context.client.clone(), key).get_opt().await {
            Ok(found) => {
                if let (None, Some(cached)) = (&found, cached) {
                    watch.remove(key, &cached.version, &self.own.name);
                }
                Ok(found)
            }
            Err(error) => Err(format!("reconciling {}: getting object: {}", key.objref(), text(&error))),
        }
    }

    async fn client(&self) -> Result<Client, String> {
        self.context.identities.client(&self.owner, Purpose::Apply).await.map_err(|error| error.to_string())
    }

    fn evaluate(&self, probes: &[Probe], object: &Object) -> ProbeResult {
        evaluate(probes, author(self.revision), object)
    }

    /// Probes what is remembered of an object; reads the rest of it only if a probe may look there.
    async fn probe(
        &self,
        probes: &[Probe],
        watch: &KindWatch,
        key: &ObjectKey,
        live: &Live,
    ) -> Result<ProbeResult, String> {
        if !live.outdated && !is_probed(probes, author(self.revision), key) {
            return Ok(ProbeResult::yes());
        }
        if live.partial && needs_whole(probes) {
            return Ok(match self.read(watch, key).await? {
                Some(whole) => self.evaluate(probes, &whole),
                None => ProbeResult::unknown("object is gone"),
            });
        }
        Ok(self.evaluate(probes, &live.object()))
    }
}

/// Whether any probe covers an object with this key.
fn is_probed(probes: &[Probe], author: Author, key: &ObjectKey) -> bool {
    let built_in = author == Author::Extension && builtin::covers(&key.group, &key.kind);
    built_in
        || probes.iter().any(|probe| match &probe.selector {
            Selector::GroupKind { group, kind } => *group == key.group && *kind == key.kind,
            Selector::Label(_) => true,
        })
}

/// Does any probe look at more than metadata and status?
fn needs_whole(probes: &[Probe]) -> bool {
    use olm_rollout::probe::Assertion;
    let elsewhere = |path: &str| !path.starts_with("status.") && !path.starts_with("metadata.");
    probes.iter().flat_map(|probe| &probe.assertions).any(|assertion| match assertion {
        Assertion::ConditionEqual { .. } => false,
        Assertion::FieldsEqual { a, b } => elsewhere(a) || elsewhere(b),
        Assertion::FieldValue { path, .. } => elsewhere(path),
    })
}

/// The fields that a correction changed. `None` when there are none: owner references and the managers of fields also change because of
/// what revisions do among themselves.
fn corrected_fields(judged: &Object, applied: &Object) -> Option<String> {
    let changed = changes(judged, applied);
    let shown: Vec<&str> = changed.iter().take(MAX_FIELDS).map(|change| change.path.as_str()).collect();
    let more = changed.len().saturating_sub(MAX_FIELDS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}

fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

pub(super) fn gvk(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrected_fields_leave_out_owners_and_managers() {
        let object = |labels: Value, owners: Value, version: &str| {
            Object::from_value(json!({
                "kind": "ConfigMap", "metadata": {"name": "x", "labels": labels, "ownerReferences": owners,
                    "resourceVersion": version, "managedFields": [{"manager": version}]},
            }))
            .unwrap()
        };
        let live = object(json!({"a": "1"}), json!([{"uid": "old"}, {"uid": "new"}]), "1");
        for (labels, owners, want) in [
            (json!({"a": "1"}), json!([{"uid": "new"}]), None),
            (json!({"a": "2"}), json!([{"uid": "new"}]), Some("metadata.labels.a")),
            (
                json!({"a": "2", "b": "2", "c": "2", "d": "2", "e": "2"}),
                json!([]),
                Some("metadata.labels.a, metadata.labels.b, metadata.labels.c and 2 more"),
            ),
        ] {
            let applied = object(labels, owners, "2");
            assert_eq!(corrected_fields(&live, &applied).as_deref(), want);
        }
    }
}
