//! Takes a revision's objects away: phases in reverse, each gone before the next, only what the revision controls.
//!
//! The same work serves archiving, deletion and orphaning; the pure engine decides what to do with each object. On deletion
//! the custom resources of the revision's CRDs go first, while the operator still runs. Rule: revisions §12, decision 11.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, Preconditions};
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::{Client, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_core::{Object, ObjectKey};
use olm_install::resolution::revision::has_succeeded;
use olm_rollout::status::PROTECTED;
use olm_rollout::teardown::{Reason, Removal, Successor, ownership, remove};
use olm_rollout::{Revision, is_addressable, is_passive, keys, owner_refs, release_patch, resource_version};
use serde_json::Value;
use tracing::{info, warn};

use super::Context;
use super::content::{ContentError, Inventory, Item};
use super::errors::{is_code, status, text};
use super::extensions::Facts;
use super::identity::Owner;
use super::live::Live;
use super::memory::Memory;
use super::rollout::gvk;
use super::search::search;
use super::world::KindWatch;
use crate::written_by;

/// Custom resources that one pass asks to delete, for each CRD, at most.
const BATCH: u32 = 500;

/// The longest time between two checks of custom resources that a removal waits for.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Objects usually go immediately. The condition names one that has held up the removal for this time.
const USUAL: Duration = Duration::from_secs(4);

/// How long the garbage collector may take before the condition mentions it, as far as nothing holds an object.
const USUAL_COLLECTION: Duration = Duration::from_secs(30);
/// How long the garbage collector may take before its work is done for it.
const COLLECTION: Duration = Duration::from_secs(60);

/// How far a removal got.
#[derive(Debug)]
pub(super) enum Removed {
    /// Everything is gone.
    All,
    /// Something remains; perhaps with a detail, and when to check again at the latest.
    Waiting {
        /// For the condition.
        detail: Option<String>,
        /// When to check again, if no event comes before.
        after: Duration,
    },
}

/// Why custom resources could not be listed or deleted.
struct CustomResourceError {
    problem: String,
    /// Something failed, as a webhook of an operator that does not run, and that may never end. It is not that the apiserver rejected the
    /// request, or asks for fewer.
    may_last: bool,
}

impl CustomResourceError {
    fn new(doing: &str, error: &kube::Error) -> Self {
        let may_last = status(error).is_none_or(|status| status.code >= 500);
        Self { problem: format!("{doing}: {}", text(error)), may_last }
    }
}

/// Custom resources of one CRD.
#[derive(Debug, Default)]
struct CustomResources {
    count: usize,
    /// There are more, which were not counted or asked to go.
    is_cut: bool,
}

pub(super) struct Removing<'a> {
    pub(super) context: &'a Context,
    pub(super) revision: &'a ClusterObjectSet,
    pub(super) owner: Owner,
    pub(super) own: Revision,
    pub(super) reason: Reason,
    /// The siblings in force.
    pub(super) successors: Vec<Arc<ClusterObjectSet>>,
}

impl Removing<'_> {
    /// One pass; idempotent.
    pub(super) async fn run(&self, memory: &mut Memory) -> Result<Removed, String> {
        self.context.world.begin_waits(&self.own.name);
        let inventory = self.inventory(memory).await?;
        let keys = |items: &'_ [Item]| items.iter().map(|item| item.key.clone()).collect::<Vec<_>>();
        // these need no order among each other: the garbage collector deletes them without requests of ours
        let passive =
            |(name, items): &&(String, Vec<Item>)| is_passive(name, items.iter().map(|item| &item.key));
        let passive = if self.reason == Reason::Delete {
            inventory.phases.iter().take_while(passive).count()
        } else {
            0
        };
        let (first, ordered) = inventory.phases.split_at(passive);
        for (index, (_, items)) in ordered.iter().enumerate().rev() {
            let mut waiting = vec![];
            for item in items {
                if !self.object(memory, &item.key).await? {
                    waiting.push(item.key.clone());
                }
            }
            if !waiting.is_empty() {
                return Ok(self.waiting(memory, passive + index, &waiting).await);
            }
        }
        let rest: Vec<ObjectKey> = first.iter().rev().flat_map(|(_, items)| keys(items)).collect();
        self.collect(memory, &rest).await
    }

    /// The state while these objects of a phase are not gone.
    async fn waiting(&self, memory: &mut Memory, phase: usize, objects: &[ObjectKey]) -> Removed {
        let now = Instant::now();
        let (waited, held) = (memory.waits_for(phase, now), memory.held_for(objects.first(), now));
        let detail = match objects {
            [] if waited >= USUAL_COLLECTION => Some("waiting for the garbage collector".to_owned()),
            [_, ..] if held >= USUAL => Some(self.holders(objects).await),
            _ => None,
        };
        Removed::Waiting { detail, after: olm_rollout::schedule::TEARDOWN_INTERVAL }
    }

    /// Has the garbage collector delete the objects, by a foreground deletion of the revision: that ends when all objects are gone that
    /// the revision owns. It goes by the live owners, so an object that another owner got meanwhile stays.
    async fn collect(&self, memory: &mut Memory, objects: &[ObjectKey]) -> Result<Removed, String> {
        let is_collecting =
            self.revision.finalizers().iter().any(|finalizer| finalizer == keys::FOREGROUND_FINALIZER);
        if memory.collected && !is_collecting {
            return Ok(Removed::All);
        }
        // it may be slow or stopped, or be refused what it does: then an error of our own request shows why
        let is_late = memory.collected && memory.waits_for(0, Instant::now()) >= COLLECTION;
        let (mut is_left, mut is_ours_left, mut waiting) = (false, false, vec![]);
        for key in objects {
            match self.collected(key).await {
                Some(live) if !is_late => {
                    is_left = true;
                    if is_held(&live) {
                        waiting.push(key.clone());
                    }
                }
                None if memory.collected => {}
                Some(_) | None => {
                    if !self.object(memory, key).await? {
                        is_ours_left = true;
                        waiting.push(key.clone());
                    }
                }
            }
        }
        // of an object with another owner it would only take out the reference, and the object would stay
        if is_ours_left && !is_collecting {
            return Ok(self.waiting(memory, 0, &waiting).await);
        }
        if !is_left && !is_collecting {
            return Ok(Removed::All);
        }
        if !is_collecting {
            let api: Api<ClusterObjectSet> = Api::all(self.context.client.clone());
            let same = Preconditions {
                uid: self.revision.uid(),
                resource_version: self.revision.resource_version(),
            };
            match api.delete(&self.own.name, &DeleteParams::foreground().preconditions(same)).await {
                Ok(answer) => {
                    if let Some(set) = answer.left() {
                        self.context.update(set);
                    }
                    memory.collected = true;
                    let objects: Vec<String> = objects.iter().map(|key| key.objref().to_string()).collect();
                    info!(revision = %self.own.name, objects = objects.join(", "), "left to the garbage collector");
                }
                // it changed: the next pass has it as it is
                Err(error) if is_code(&error, 409) || is_code(&error, 404) => {}
                Err(error) => return Err(format!("deleting the rest of its objects: {}", text(&error))),
            }
        }
        Ok(self.waiting(memory, 0, &waiting).await)
    }

    /// An object that the garbage collector deletes with the revision, which is its only owner. `None` if it is not in the cache, or
    /// has to be kept or left to another owner or a successor.
    async fn collected(&self, key: &ObjectKey) -> Option<Object> {
        let watch = self.context.world.ensure(&gvk(key), &self.own).await.ok()?;
        let live = watch.get(key)?.object();
        let removal = remove(ownership(&live, &live, &self.own, Successor::None), self.reason);
        let goes = matches!(removal, Removal::Delete | Removal::Wait) && owner_refs(&live).len() == 1;
        (goes && self.successor(key, &live).is_none()).then_some(live)
    }

    /// The sibling in force to which the object is left: a newer one that has it in its content, or an older one that had it before. That
    /// is still among the owners, unless the object was deleted and made again meanwhile. One whose content is unknown may have it.
    fn successor(&self, key: &ObjectKey, live: &Object) -> Option<&ClusterObjectSet> {
        let (owners, memories) = (owner_refs(live), &self.context.memories);
        let has = |set: &&Arc<ClusterObjectSet>| {
            let (uid, is_older) = (set.uid().unwrap_or_default(), set.spec.revision < self.own.number);
            let was_owner = is_older && owners.iter().any(|owner| owner.uid == uid);
            let may_have = memories.has(&uid, key) || is_older && !memories.is_known(&uid);
            was_owner || (!is_older || has_succeeded(set)) && may_have
        };
        self.successors.iter().find(has).map(AsRef::as_ref)
    }

    /// Whether an older revision has had enough time to take back what it had. It may be unable to: an apiserver rejects the older
    /// definition of a CRD whose new version is stored already.
    fn is_late(&self, memory: &mut Memory) -> bool {
        let now = Instant::now();
        let since = match self.reason {
            Reason::Archive => memory.archiving_for(now),
            Reason::Delete | Reason::Keep => memory.deleting_for(now),
        };
        since >= self.context.custom_resource_wait
    }

    /// What the revision consists of. If its content is lost, what carries our owner reference is searched in the cluster.
    async fn inventory(&self, memory: &mut Memory) -> Result<Arc<Inventory>, String> {
        let problem = match self.context.inventory(self.revision, memory).await {
            Ok(inventory) => return Ok(inventory),
            Err(ContentError::Unavailable(problem)) => return Err(problem),
            Err(problem) => problem.to_string(),
        };
        if let Some(found) = &memory.searched {
            return Ok(Arc::clone(found));
        }
        warn!(revision = %self.own.name, problem, "content cannot be read; objects are searched by owner reference");
        let found = search(&self.context.client, &self.own, self.reason).await;
        let found = found.map_err(|error| format!("{problem}; {error}"))?;
        memory.searched = Some(Arc::clone(&found));
        Ok(found)
    }

    /// What keeps objects from going, as far as they show it; the first one by name.
    async fn holders(&self, waiting: &[ObjectKey]) -> String {
        let Some((first, rest)) = waiting.split_first() else { return String::new() };
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        let live = match self.context.world.ensure(&gvk(first), &self.own).await {
            Ok(watch) => watch.get(first).map(|live| live.object()),
            Err(_) => None,
        };
        let place = first.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let object = format!("{} {place}{}", first.kind, first.name);
        let metadata = live.as_ref().and_then(Object::metadata);
        let goes = metadata.is_some_and(|metadata| metadata.contains_key("deletionTimestamp"));
        let successor = live.as_ref().and_then(|live| self.successor(first, live));
        if let Some(successor) = successor.filter(|_| !goes) {
            let end = wait_end(successor, self.revision, self.context);
            let text =
                format!("waiting for revision {} to take over {object}{more}; {end}", successor.name_any());
            self.context.record_wait(self.revision, &text).await;
            return text;
        }
        let held = live.as_ref().map(held_by).unwrap_or_default();
        format!("waiting for {object}{held}{more}")
    }

    /// Does what is to be done with one object; `true` when it is gone as far as we are concerned.
    async fn object(&self, memory: &mut Memory, key: &ObjectKey) -> Result<bool, String> {
        if memory.gone.contains(key) || !is_addressable(key) {
            return Ok(true);
        }
        let failed = |error: &kube::Error| format!("teardown {}: {}", key.objref(), text(error));
        let watch = match self.context.world.ensure(&gvk(key), &self.own).await {
            Ok(watch) => watch,
            Err(error) if error.is_no_match() => return Ok(true),
            Err(error) => return Err(format!("teardown {}: {error}", key.objref())),
        };
        let listings = watch.listings();
        let live = match watch.get(key) {
            Some(live) => Some(live.object()),
            None => {
                let found = watch.requests(self.context.client.clone(), key).get_opt().await;
                found.map_err(|error| failed(&error))?
            }
        };
        let Some(live) = live else {
            memory.gone.insert(key.clone());
            return Ok(true);
        };
        // an annotation in the manifest that keeps the object was applied with it
        let successor = match self.successor(key, &live) {
            None => Successor::None,
            Some(set) if set.spec.revision < self.own.number && self.is_late(memory) => Successor::Late,
            Some(_) => Successor::TakesOver,
        };
        let removal = remove(ownership(&live, &live, &self.own, successor), self.reason);
        match removal {
            Removal::Gone => Ok(true),
            Removal::Wait => {
                self.context.world.wait_for(&self.own.name, &watch, key, resource_version(&live));
                Ok(false)
            }
            Removal::Delete => {
                let text_of = |name: &str| live.metadata()?.get(name)?.as_str().map(str::to_owned);
                let same =
                    Preconditions { uid: text_of("uid"), resource_version: text_of("resourceVersion") };
                let params = DeleteParams::default().preconditions(same);
                let client = self.client(memory).await?;
                match watch.requests(client, key).delete(&params).await {
                    Ok(gone) => {
                        info!(revision = %self.own.name, object = %key.objref(), "deleted");
                        if gone {
                            watch.remove(key, resource_version(&live), &self.own.name);
                            memory.gone.insert(key.clone());
                        } else {
                            self.context.world.wait_for(&self.own.name, &watch, key, resource_version(&live));
                        }
                        Ok(gone)
                    }
                    Err(error) if is_code(&error, 404) => {
                        watch.remove(key, resource_version(&live), &self.own.name);
                        memory.gone.insert(key.clone());
                        Ok(true)
                    }
                    // changed since it was judged: read it again
                    Err(error) if is_code(&error, 409) => {
                        self.refresh(&watch, key).await;
                        Ok(false)
                    }
                    Err(error) => Err(failed(&error)),
                }
            }
            Removal::Unlink | Removal::Release => {
                let Some(patch) = release_patch(&live, &self.own, removal == Removal::Release) else {
                    return Ok(true);
                };
                let params = written_by(keys::FIELD_MANAGER);
                let client = self.client(memory).await?;
                match watch.requests(client, key).patch(&params, &Patch::Merge(&patch)).await {
                    Ok(answer) => {
                        watch.put(key, Live::new(answer), &self.own.name, listings);
                        Ok(true)
                    }
                    Err(error) if is_code(&error, 404) => Ok(true),
                    Err(error) if is_code(&error, 409) => {
                        self.refresh(&watch, key).await;
                        Ok(false)
                    }
                    Err(error) => Err(failed(&error)),
                }
            }
        }
    }

    async fn client(&self, memory: &mut Memory) -> Result<Client, String> {
        self.context.removing_client(self.revision, &self.owner, memory).await
    }

    /// Reads an object again that was another one than remembered, and wakes the revision.
    async fn refresh(&self, watch: &KindWatch, key: &ObjectKey) {
        let (listings, cached) = (watch.listings(), watch.get(key));
        let found = watch.requests(self.context.client.clone(), key).get_opt().await;
        match (found, cached) {
            (Ok(Some(found)), _) => {
                watch.put(key, Live::new(found), &self.own.name, listings);
            }
            (Ok(None), Some(cached)) => watch.remove(key, &cached.version, &self.own.name),
            (Ok(None), None) | (Err(_), _) => {}
        }
    }

    /// Deletes the custom resources of the CRDs that go with the revision, and waits for them, for `limit` from the revision's deletion
    /// on. `None` when none remain or the time is over. What fails then, as an admission webhook of an operator that does not run, is left
    /// to the CRDs, unless the apiserver rejected it or asked for fewer requests.
    pub(super) async fn custom_resources(
        &self,
        memory: &mut Memory,
        facts: &Facts,
        since: Duration,
        limit: Duration,
    ) -> Result<Option<Removed>, String> {
        let inventory = self.inventory(memory).await?;
        let (mut remaining, mut is_cut) = (vec![], false);
        for key in crds(&inventory) {
            let Some(resource) = self.removed_crd(key).await? else { continue };
            let found = match self.custom_resources_of(memory, key, &resource, facts.protect).await {
                Ok(found) => found,
                Err(CustomResourceError { problem, may_last }) => {
                    if !may_last || facts.protect || since < limit {
                        return Err(problem);
                    }
                    warn!(revision = %self.own.name, crd = key.name, problem, "custom resources are left to their CRD");
                    continue;
                }
            };
            if found.count > 0 {
                let more = if found.is_cut { "more than " } else { "" };
                remaining.push(format!("{more}{} {}", found.count, key.name));
                is_cut |= found.is_cut;
            }
        }
        if remaining.is_empty() {
            return Ok(None);
        }
        let list = remaining.join(", ");
        if facts.protect {
            let detail = format!("{PROTECTED}{list}");
            return Ok(Some(Removed::Waiting { detail: Some(detail), after: Duration::from_secs(5) }));
        }
        let detail = format!("waiting for custom resources to go: {list}");
        if is_cut {
            // not all have been asked to go yet
            return Ok(Some(Removed::Waiting { detail: Some(detail), after: Duration::from_secs(1) }));
        }
        if since >= limit {
            return Ok(None);
        }
        // more and more seldom: there is no watch of them
        let after = (since / 4).clamp(Duration::from_secs(1), MAX_POLL_INTERVAL);
        let after = after.min(limit.saturating_sub(since));
        Ok(Some(Removed::Waiting { detail: Some(detail), after }))
    }

    /// Deletes custom resources of one CRD, unless they are protected: those that are not on their way yet, of one page in each pass.
    async fn custom_resources_of(
        &self,
        memory: &mut Memory,
        key: &ObjectKey,
        resource: &ApiResource,
        protect: bool,
    ) -> Result<CustomResources, CustomResourceError> {
        let all: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(self.context.client.clone(), resource);
        let mut params = ListParams::default().limit(BATCH);
        let mut found = CustomResources::default();
        loop {
            let page = match all.list(&params).await {
                Ok(page) => page,
                Err(error) if is_code(&error, 404) => return Ok(found),
                Err(error) => return Err(CustomResourceError::new(&format!("listing {}", key.name), &error)),
            };
            found.count += page.items.len();
            let stays = |item: &&PartialObjectMeta<DynamicObject>| item.metadata.deletion_timestamp.is_none();
            let staying: Vec<_> = page.items.iter().filter(stays).collect();
            if !protect && !staying.is_empty() {
                let client = self.client(memory).await;
                let client = client.map_err(|problem| CustomResourceError { problem, may_last: false })?;
                for item in &staying {
                    self.delete_custom_resource(&client, key, resource, item).await?;
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                // finalizers may hold a whole page for a long time
                Some(token) if !protect && staying.is_empty() => params = params.continue_token(&token),
                next => {
                    found.is_cut = next.is_some();
                    return Ok(found);
                }
            }
        }
    }

    async fn delete_custom_resource(
        &self,
        client: &Client,
        key: &ObjectKey,
        resource: &ApiResource,
        item: &PartialObjectMeta<DynamicObject>,
    ) -> Result<(), CustomResourceError> {
        let (name, crd) = (item.name_any(), &key.name);
        let api: Api<DynamicObject> = match item.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        // every one goes, whatever its state, which the operator that still runs writes all the time; that it is not another one by
        // now is what matters
        let same = Preconditions { uid: item.uid(), resource_version: None };
        match api.delete(&name, &DeleteParams::default().preconditions(same)).await {
            Ok(_) => {
                info!(revision = %self.own.name, %crd, name, "deleted custom resource");
                Ok(())
            }
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(error) => {
                Err(CustomResourceError::new(&format!("deleting custom resource {name} of {crd}"), &error))
            }
        }
    }

    /// The resource that a CRD serves, in its storage version, if the CRD goes with the revision; `None` when it is not there or not ours,
    /// is kept, or a successor's.
    async fn removed_crd(&self, key: &ObjectKey) -> Result<Option<ApiResource>, String> {
        let watch = match self.context.world.ensure(&gvk(key), &self.own).await {
            Ok(watch) => watch,
            Err(error) if error.is_no_match() => return Ok(None),
            Err(error) => return Err(format!("getting {}: {error}", key.objref())),
        };
        // a successor may never come to it: meanwhile, passes need no request
        let cached = watch.get(key).map(|live| live.object());
        if cached.is_some_and(|crd| self.successor(key, &crd).is_some()) {
            return Ok(None);
        }
        let found = watch.requests(self.context.client.clone(), key).get_opt().await;
        let Some(crd) = found.map_err(|error| format!("getting {}: {}", key.objref(), text(&error)))? else {
            return Ok(None);
        };
        let removal = remove(ownership(&crd, &crd, &self.own, Successor::None), self.reason);
        let goes = matches!(removal, Removal::Delete | Removal::Wait);
        Ok((goes && self.successor(key, &crd).is_none()).then(|| served(&crd)).flatten())
    }
}

/// The end of a wait of the removal of `revision` for another one in force, for a message. An older one takes back what it had in time, or
/// not at all; a newer one may take over what it has in its content at any time.
pub(super) fn wait_end(awaited: &ClusterObjectSet, revision: &ClusterObjectSet, context: &Context) -> String {
    if awaited.spec.revision < revision.spec.revision {
        format!("this ends after {} minutes", context.custom_resource_wait.as_secs().div_ceil(60))
    } else {
        "this also ends if it succeeds or is deleted".to_owned()
    }
}

/// The finalizers of an object, as the end of a message that it is being deleted; empty when it has none.
pub(super) fn held_by(live: &Object) -> String {
    let finalizers = live.metadata().and_then(|metadata| metadata.get("finalizers")?.as_array());
    let names: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { String::new() } else { format!(", held by finalizers {}", names.join(", ")) }
}

/// Whether the object is being deleted, and finalizers that are not the garbage collector's delay that.
fn is_held(live: &Object) -> bool {
    let Some(metadata) = live.metadata() else { return false };
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    metadata.contains_key("deletionTimestamp")
        && finalizers.into_iter().flatten().any(|found| found.as_str() != Some(keys::FOREGROUND_FINALIZER))
}

/// The CRDs of a revision.
fn crds(inventory: &Inventory) -> impl Iterator<Item = &ObjectKey> {
    let items = inventory.phases.iter().flat_map(|(_, items)| items);
    items
        .map(|item| &item.key)
        .filter(|key| key.group == "apiextensions.k8s.io" && key.kind == "CustomResourceDefinition")
        .filter(|key| is_addressable(key))
}

/// The resource of a CRD in a served version, preferably the stored one.
fn served(crd: &Object) -> Option<ApiResource> {
    let spec = crd.0.get("spec")?;
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let names = spec.get("names")?;
    let versions = spec.get("versions")?.as_array()?;
    let flag = |version: &Value, key: &str| version.get(key).and_then(Value::as_bool).unwrap_or(false);
    let version = versions
        .iter()
        .find(|version| flag(version, "storage") && flag(version, "served"))
        .or_else(|| versions.iter().find(|version| flag(version, "served")))?;
    let gvk = GroupVersionKind::gvk(&text(spec, "group")?, &text(version, "name")?, &text(names, "kind")?);
    Some(ApiResource::from_gvk_with_plural(&gvk, &text(names, "plural")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn removal_names_objects_that_finalizers_hold() {
        let held = |metadata: Value| is_held(&Object::from_value(json!({"metadata": metadata})).unwrap());
        let time = "2026-01-01T00:00:00Z";
        assert!(held(json!({"deletionTimestamp": time, "finalizers": ["example.com/hold"]})));
        assert!(
            !held(json!({"finalizers": ["example.com/hold"]})),
            "the garbage collector has not come to it"
        );
        assert!(!held(json!({"deletionTimestamp": time, "finalizers": [keys::FOREGROUND_FINALIZER]})));
        assert!(!held(json!({"deletionTimestamp": time})));
    }

    #[test]
    fn removal_lists_the_storage_version_if_served() {
        let crd = |versions: Value| {
            let value =
                json!({"spec": {"group": "g", "names": {"kind": "K", "plural": "ks"}, "versions": versions}});
            served(&Object::from_value(value).unwrap())
                .map(|resource| (resource.api_version, resource.plural))
        };
        let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        let want = |version: &str| Some((format!("g/{version}"), "ks".to_owned()));
        assert_eq!(crd(json!([version("v1", true, false), version("v2", true, true)])), want("v2"));
        assert_eq!(crd(json!([version("v1", true, false), version("v2", false, true)])), want("v1"));
        assert_eq!(crd(json!([version("v1", false, true)])), None);
    }
}
