//! State of a revision between passes, so that a pass over an unchanged cluster makes no request.
//!
//! What was read can be lost at any time; the next pass then reads and compares again. What was counted stays also when a pass
//! panics.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use olm_api::ClusterObjectSet;
use olm_core::ObjectKey;
use olm_rollout::PhaseDigest;
use olm_rollout::probe::Probe;
use parking_lot::Mutex;

use super::content::{Content, Inventory};
use super::extensions::Observed;
use super::live::ObjectRef;
use super::pods::PodCause;
use super::secrets::{Edition, Secrets};
use crate::debounce::Debounce;
use crate::recorded::Recorded;

/// What is remembered of one revision.
#[derive(Default)]
pub(super) struct Memory {
    /// The content as last read; bodies only while something is to be applied.
    pub(super) known: Option<LoadedContent>,
    /// Fingerprints of live objects that were found as desired, or written so.
    pub(super) verified: HashMap<ObjectKey, u64>,
    /// Objects that were gone immediately after a deletion of ours.
    pub(super) gone: HashSet<ObjectKey>,
    /// How often an object had to be put right lately, and since when that is counted.
    pub(super) corrected: HashMap<ObjectKey, (u32, Instant)>,
    /// Why pods of objects that are not available do not run.
    pub(super) pod_causes: HashMap<ObjectKey, PodCause>,
    /// Whether the custom resources are gone, or need not be waited for any more.
    pub(super) custom_resources_gone: bool,
    /// Whether the garbage collector was asked to delete the rest.
    pub(super) collected: bool,
    /// The phase whose objects a removal waits for, and since when.
    pub(super) waits: Option<(usize, Instant)>,
    /// The object that holds up a removal, and since when.
    pub(super) held: Option<(ObjectKey, Instant)>,
    /// When this process first reconciled the revision.
    pub(super) first_seen: Option<Instant>,
    /// When this process first found it being deleted.
    pub(super) deletion_seen: Option<Instant>,
    /// When this process first found it to be archived.
    pub(super) archive_seen: Option<Instant>,
    /// Since when its status is held back.
    pub(super) debounce: Debounce,
    /// The extension as the teardown last observed it, once it has asked.
    pub(super) extension: Option<Option<Observed>>,
    /// What its Secrets record of the extension that it has no more, once it was read.
    pub(super) recorded: Option<Recorded>,
    /// Objects that a search found because the content could not be read.
    pub(super) searched: Option<Arc<Inventory>>,
}

/// Corrections of one object within a window before it is left alone until the window ends.
const MAX_CORRECTIONS: u32 = 20;

impl Memory {
    /// Whether the object may be corrected once more. Two writers that both insist would never stop; this one leaves the object
    /// alone until the `window` over which corrections are counted has ended. The error is the time until then.
    pub(super) fn may_correct(
        &mut self,
        key: &ObjectKey,
        window: Duration,
        now: Instant,
    ) -> Result<(), Duration> {
        let (count, since) = self.corrected.entry(key.clone()).or_insert((0, now));
        let age = now.duration_since(*since);
        if age >= window {
            (*count, *since) = (0, now);
        }
        if *count >= MAX_CORRECTIONS {
            return Err(window.saturating_sub(age));
        }
        *count += 1;
        Ok(())
    }

    /// What is left after a pass that panicked: what it counted, and nothing that it read.
    fn after_panic(&mut self) -> Self {
        Self { known: None, verified: HashMap::new(), ..std::mem::take(self) }
    }

    /// For how long this process has known the revision. Unlike the time since its creation, which the apiserver's clock stamped, it
    /// is never too long. Rule: revisions §17 row 34.
    pub(super) fn known_for(&mut self, now: Instant) -> Duration {
        now.duration_since(*self.first_seen.get_or_insert(now))
    }

    /// For how long this process has known that the revision is being deleted.
    pub(super) fn deleting_for(&mut self, now: Instant) -> Duration {
        now.duration_since(*self.deletion_seen.get_or_insert(now))
    }

    /// For how long this process has known that the revision is to be archived.
    pub(super) fn archiving_for(&mut self, now: Instant) -> Duration {
        now.duration_since(*self.archive_seen.get_or_insert(now))
    }

    /// The time until the pods of some object are listed next.
    pub(super) fn next_pod_list(&self, now: Instant) -> Option<Duration> {
        self.pod_causes.values().filter_map(|cause| cause.due_in(now)).min()
    }

    /// How long the removal has waited for objects of this phase by now.
    pub(super) fn waits_for(&mut self, phase: usize, now: Instant) -> Duration {
        let since = match self.waits {
            Some((known, since)) if known == phase => since,
            _ => now,
        };
        self.waits = Some((phase, since));
        now.duration_since(since)
    }

    /// How long this object has held up the removal by now. Another one, or none, begins the time again.
    pub(super) fn held_for(&mut self, object: Option<&ObjectKey>, now: Instant) -> Duration {
        let before = self.held.take().filter(|(known, _)| Some(known) == object);
        self.held = before.or_else(|| object.map(|key| (key.clone(), now)));
        self.held.as_ref().map_or(Duration::ZERO, |(_, since)| now.duration_since(*since))
    }
}

/// The content as last read.
pub(super) struct LoadedContent {
    pub(super) inventory: Arc<Inventory>,
    pub(super) probes: Arc<Vec<Probe>>,
    pub(super) content: Option<Arc<Content>>,
    pub(super) digests: Vec<PhaseDigest>,
    /// What static validation found.
    pub(super) invalid: Option<String>,
    secrets: BTreeMap<ObjectRef, (Edition, bool)>,
    touched: u64,
}

impl LoadedContent {
    pub(super) fn new(revision: &ClusterObjectSet, content: Content) -> Self {
        Self {
            inventory: Arc::clone(&content.inventory),
            probes: Arc::new(content.probes.clone()),
            digests: content.digests.clone(),
            invalid: content.invalid.clone(),
            secrets: content.secrets.clone(),
            touched: touch(revision),
            content: Some(Arc::new(content)),
        }
    }

    /// Is it still what the cluster has, as far as the caches show?
    pub(super) fn is_current(&self, revision: &ClusterObjectSet, watched: &Secrets) -> bool {
        let untouched = self.touched == touch(revision);
        self.secrets.iter().all(|(place, (edition, seen))| {
            if *seen { watched.edition(place).is_none_or(|now| now == *edition) } else { untouched }
        }) && untouched
    }
}

/// Changes with spec, labels or annotations of the revision.
fn touch(revision: &ClusterObjectSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    revision.metadata.generation.hash(&mut hasher);
    revision.labels().hash(&mut hasher);
    revision.annotations().hash(&mut hasher);
    hasher.finish()
}

/// The memory of a revision while a pass has it.
pub(super) struct TakenMemory<'a> {
    memories: &'a Memories,
    uid: String,
    pub(super) memory: Memory,
}

impl TakenMemory<'_> {
    pub(super) fn put(mut self) {
        self.memories.put(&self.uid, std::mem::take(&mut self.memory));
    }
}

impl Drop for TakenMemory<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.memories.put(&self.uid, self.memory.after_panic());
        }
    }
}

/// The memories of all revisions, by UID.
#[derive(Default)]
pub(super) struct Memories(Mutex<HashMap<String, PerRevision>>);

#[derive(Default)]
struct PerRevision {
    /// Empty while a pass has it.
    memory: Memory,
    /// What the revision consists of, for passes over its siblings.
    inventory: Option<Arc<Inventory>>,
}

impl Memories {
    /// Takes the memory of a revision out for a pass. Passes over one revision never overlap.
    pub(super) fn take(&self, uid: &str) -> TakenMemory<'_> {
        let memory = self.0.lock().get_mut(uid).map(|all| std::mem::take(&mut all.memory));
        TakenMemory { memories: self, uid: uid.to_owned(), memory: memory.unwrap_or_default() }
    }

    fn put(&self, uid: &str, memory: Memory) {
        let mut all = self.0.lock();
        let entry = all.entry(uid.to_owned()).or_default();
        if let Some(known) = &memory.known {
            entry.inventory = Some(Arc::clone(&known.inventory));
        }
        entry.memory = memory;
    }

    /// Evicts a revision that is gone.
    pub(super) fn evict(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Evicts what an archived revision consisted of.
    pub(super) fn evict_inventory(&self, uid: &str) {
        if let Some(entry) = self.0.lock().get_mut(uid) {
            entry.inventory = None;
        }
    }

    /// What the revision with this UID consists of, if that is known.
    pub(super) fn inventory(&self, uid: &str) -> Option<Arc<Inventory>> {
        self.0.lock().get(uid)?.inventory.clone()
    }

    /// Is it known what the revision with this UID has in its content?
    pub(super) fn is_known(&self, uid: &str) -> bool {
        self.inventory(uid).is_some()
    }

    /// Does the revision with this UID have the object in its content? `false` when its content is not known.
    pub(super) fn has(&self, uid: &str, key: &ObjectKey) -> bool {
        self.field_names(uid, key).is_some()
    }

    /// The names of the fields that the revision with this UID gives the object. `None` when it does not have it, or its content is
    /// not known.
    pub(super) fn field_names(&self, uid: &str, key: &ObjectKey) -> Option<u64> {
        let inventory = self.inventory(uid)?;
        let mut items = inventory.phases.iter().flat_map(|(_, items)| items);
        let found = items.find(|item| {
            // a newer revision may use another version of the kind
            let (a, b) = (&item.key, key);
            (&a.group, &a.kind, &a.namespace, &a.name) == (&b.group, &b.kind, &b.namespace, &b.name)
        });
        found.map(|item| item.field_names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            group: String::new(),
            version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: None,
            name: name.into(),
        }
    }

    #[test]
    fn memory_bounds_corrections_of_an_object() {
        let mut memory = Memory::default();
        let (window, start) = (Duration::from_secs(60), Instant::now());
        for _ in 0..MAX_CORRECTIONS {
            assert_eq!(memory.may_correct(&key("a"), window, start), Ok(()));
        }
        let later = start + Duration::from_secs(10);
        assert_eq!(memory.may_correct(&key("a"), window, later), Err(Duration::from_secs(50)));
        assert_eq!(memory.may_correct(&key("b"), window, later), Ok(()));
        assert_eq!(
            memory.may_correct(&key("a"), window, start + window),
            Ok(()),
            "a retry at the end of the window"
        );
    }

    #[test]
    fn memory_times_each_object_that_holds_up_a_removal() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        for (second, object, held) in [
            (0, Some("a"), 0),
            (3, Some("a"), 3),
            // each makes way within a moment: nothing is stuck
            (4, Some("b"), 0),
            (6, Some("b"), 2),
            (7, None, 0),
            (9, Some("b"), 0),
            (14, Some("b"), 5),
        ] {
            let now = start + Duration::from_secs(second);
            let object = object.map(key);
            assert_eq!(memory.held_for(object.as_ref(), now).as_secs(), held, "at {second} s");
        }
    }

    #[test]
    fn memory_keeps_its_counts_when_a_pass_panics() {
        let memories = Memories::default();
        let begun = Instant::now().checked_sub(Duration::from_secs(200)).unwrap();
        for _ in 0..2 {
            let pass = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut memory = memories.take("u");
                memory.memory.waits.get_or_insert((1, begun));
                memory.memory.known_for(begun);
                memory.memory.deleting_for(begun);
                memory.memory.verified.insert(key("a"), 7);
                panic!("a defect");
            }));
            pass.unwrap_err();
        }
        let mut taken = memories.take("u");
        let memory = &mut taken.memory;
        let now = Instant::now();
        let times = [memory.waits_for(1, now), memory.known_for(now), memory.deleting_for(now)];
        assert!(times.iter().all(|time| *time >= Duration::from_secs(200)), "from the start: {times:?}");
        assert!(memory.verified.is_empty() && memory.known.is_none(), "what was read is read again");
    }
}
