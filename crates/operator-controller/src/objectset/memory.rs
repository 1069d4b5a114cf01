//! What the controller remembers of a revision between passes, so that a pass over an unchanged cluster asks nothing.
//!
//! Everything here can be lost at any time; the next pass then reads and compares again.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use kube::ResourceExt;
use olm_api::ClusterObjectSet;
use olm_core::ObjectKey;
use olm_rollout::PhaseDigest;
use olm_rollout::probe::Probe;

use super::content::{Content, Inventory};
use super::live::Place;
use super::secrets::{Edition, Secrets};
use super::world::lock;

/// What is remembered of one revision.
#[derive(Default)]
pub(super) struct Memory {
    /// The content as last read; bodies only while something is to be applied.
    pub(super) known: Option<Known>,
    /// Fingerprints of live objects that were found as wished, or written so.
    pub(super) verified: HashMap<ObjectKey, u64>,
    /// Objects that a deletion of ours found gone at once.
    pub(super) gone: HashSet<ObjectKey>,
    /// Failed passes in a row.
    pub(super) failures: u32,
    /// The revision as our last write of it was answered.
    pub(super) written: Option<Arc<ClusterObjectSet>>,
}

/// The content as last read.
pub(super) struct Known {
    pub(super) inventory: Arc<Inventory>,
    pub(super) probes: Arc<Vec<Probe>>,
    pub(super) content: Option<Arc<Content>>,
    pub(super) digests: Vec<PhaseDigest>,
    invalid: Option<String>,
    secrets: Vec<(Place, Edition, bool)>,
    touched: u64,
}

impl Known {
    pub(super) fn new(revision: &ClusterObjectSet, content: Content) -> Self {
        Self {
            inventory: Arc::clone(&content.inventory),
            probes: Arc::new(content.probes.clone()),
            digests: content.digests.clone(),
            invalid: content.invalid.clone(),
            secrets: content
                .secrets
                .iter()
                .map(|(place, (edition, seen))| (place.clone(), edition.clone(), *seen))
                .collect(),
            touched: touch(revision),
            content: Some(Arc::new(content)),
        }
    }

    /// Is it still what the cluster has, as far as can be told without asking?
    pub(super) fn is_current(&self, revision: &ClusterObjectSet, watched: &Secrets) -> bool {
        let untouched = self.touched == touch(revision);
        self.secrets.iter().all(|(place, edition, seen)| {
            if *seen { watched.edition(place).is_none_or(|now| now == *edition) } else { untouched }
        }) && untouched
    }

    /// What static validation found.
    pub(super) fn invalid(&self) -> Option<&str> {
        self.invalid.as_deref()
    }
}

/// Changes whenever somebody touches spec, labels or annotations of the revision.
fn touch(revision: &ClusterObjectSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    revision.metadata.generation.hash(&mut hasher);
    revision.labels().hash(&mut hasher);
    revision.annotations().hash(&mut hasher);
    hasher.finish()
}

/// The memories of all revisions, by UID.
#[derive(Default)]
pub(super) struct Memories {
    all: Mutex<HashMap<String, Memory>>,
    inventories: Mutex<HashMap<String, Arc<Inventory>>>,
}

impl Memories {
    /// Takes the memory of a revision out for a pass. Passes over one revision never overlap.
    pub(super) fn take(&self, uid: &str) -> Memory {
        lock(&self.all).remove(uid).unwrap_or_default()
    }

    /// Puts it back.
    pub(super) fn put(&self, uid: &str, memory: Memory) {
        if let Some(known) = &memory.known {
            lock(&self.inventories).insert(uid.to_owned(), Arc::clone(&known.inventory));
        }
        lock(&self.all).insert(uid.to_owned(), memory);
    }

    /// Forgets a revision.
    pub(super) fn forget(&self, uid: &str) {
        lock(&self.all).remove(uid);
        lock(&self.inventories).remove(uid);
    }

    /// Is it known what the revision with this UID has in its content?
    pub(super) fn is_known(&self, uid: &str) -> bool {
        lock(&self.inventories).contains_key(uid)
    }

    /// Does the revision with this UID have the object in its content? `false` when its content is not known.
    pub(super) fn has(&self, uid: &str, key: &ObjectKey) -> bool {
        lock(&self.inventories).get(uid).is_some_and(|inventory| {
            inventory.phases.iter().flat_map(|(_, items)| items).any(|item| {
                // a newer revision may use another version of the kind
                let (a, b) = (&item.key, key);
                (&a.group, &a.kind, &a.namespace, &a.name) == (&b.group, &b.kind, &b.namespace, &b.name)
            })
        })
    }
}
