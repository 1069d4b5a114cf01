//! The content of a revision: inline objects and objects in Secrets, read, checked and compared with what was recorded.
//!
//! Rule: revisions §5, with the better behaviours of §17 rows 10 and 24.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_api::cluster_object_set::PhaseObject;
use olm_core::{Object, ObjectKey, go};
use olm_install::content::{object, secret_key};
use olm_install::probes;
use olm_rollout::probe::Probe;
use olm_rollout::{
    PhaseDigest, PhaseDigester, Protection, Validation, check_observed, field_names, is_packed,
};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::convert;
use super::errors::{is_code, is_finding, text};
use super::live::ObjectRef;
use super::secrets::{Edition, Secrets};
use crate::secret_cache::SecretCache;

/// One object of the content, without its body.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) key: ObjectKey,
    pub(super) protection: Protection,
    /// [`field_names`] of its manifest.
    pub(super) field_names: u64,
}

/// What a revision consists of, without bodies: kept in memory as long as the revision is.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) phases: Vec<(String, Vec<Item>)>,
}

/// The content with bodies, as it is stored: kept only while there is something to apply. As trees, all objects together can take more
/// than the memory of the process.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) inventory: Arc<Inventory>,
    /// Entries by phase, in the inventory's order.
    entries: Vec<Vec<PhaseObject>>,
    bodies: Bodies,
    pub(super) digests: Vec<PhaseDigest>,
    pub(super) probes: Vec<Probe>,
    /// Editions of the Secrets that were read, and whether the watch sees them.
    pub(super) secrets: BTreeMap<ObjectRef, (Edition, bool)>,
    /// What is wrong with it, found without asking the apiserver.
    pub(super) invalid: Option<String>,
}

/// KiB of JSON that are trees at the same time, in passes over all revisions. One with more, or with an unknown number of them, is the
/// only one. As a tree, an object takes up to a hundred times its JSON.
const TREE_KIB: u32 = 1024;
static TREES: Semaphore = Semaphore::const_new(TREE_KIB as usize);

/// The body of an object. Others may have to wait until it is dropped.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) object: Object,
    _permit: Option<SemaphorePermit<'static>>,
}

/// The Secrets that hold objects, or what is wrong with them.
#[derive(Debug)]
struct Bodies {
    secrets: BTreeMap<ObjectRef, Result<Arc<Secret>, String>>,
    system_namespace: String,
}

impl Bodies {
    async fn object(&self, entry: &PhaseObject) -> Result<Body, String> {
        // the semaphore is never closed
        let permit = TREES.acquire_many(self.permits(entry)).await.ok();
        let object = object(entry, &self.system_namespace, |place| match self.secrets.get(place) {
            Some(read) => read.clone(),
            None => Err(format!("getting Secret {}/{}: it was not read", place.0, place.1)),
        })?;
        Ok(Body { object, _permit: permit })
    }

    fn permits(&self, entry: &PhaseObject) -> u32 {
        let bytes = match (&entry.object, &entry.reference) {
            (Some(object), _) => go::json_object(object).len(),
            (None, Some(reference)) => {
                let place = secret_key(entry, &self.system_namespace);
                let secret = place.and_then(|place| self.secrets.get(&place)?.as_ref().ok());
                let value = secret.and_then(|secret| secret.data.as_ref()?.get(&reference.key));
                value.map_or(0, |value| if is_packed(&value.0) { usize::MAX } else { value.0.len() })
            }
            (None, None) => 0,
        };
        u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(TREE_KIB)
    }
}

/// Why content cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentError {
    /// Only a change of a Secret or the revision helps.
    #[error("{0}")]
    Blocked(String),
    /// Worth another try.
    #[error("{0}")]
    Failed(String),
    /// The apiserver failed, so whether there is content is unknown; worth another try.
    #[error("{0}")]
    Unavailable(String),
}

/// The Secrets that a revision refers to.
pub(super) fn references(revision: &ClusterObjectSet, system_namespace: &str) -> BTreeSet<ObjectRef> {
    let entries = revision.spec.phases.iter().flat_map(|phase| &phase.objects);
    entries.filter_map(|entry| secret_key(entry, system_namespace)).collect()
}

impl Content {
    /// Reads and checks the content.
    pub(super) async fn load(
        revision: &ClusterObjectSet,
        client: &Client,
        system_namespace: &str,
        watched: &Secrets,
        kept: &SecretCache,
    ) -> Result<Self, ContentError> {
        let mut secrets: BTreeMap<ObjectRef, Result<Arc<Secret>, String>> = BTreeMap::new();
        let mut editions = BTreeMap::new();
        for at in references(revision, system_namespace) {
            let (namespace, name) = &at;
            let found = match kept.get(&at, watched.edition(&at).as_deref()) {
                Some(secret) => Ok(secret),
                None => {
                    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
                    api.get(name).await.map(Arc::new).inspect(|secret| kept.put(secret))
                }
            };
            let found = match found {
                Ok(secret) => {
                    let edition = secret.uid().unwrap_or_default();
                    let seen = secret.labels().contains_key(olm_api::labels::REVISION_NAME);
                    editions.insert(at.clone(), (edition, seen));
                    Ok(secret)
                }
                Err(error) => {
                    let problem = format!("getting Secret {namespace}/{name}: {}", text(&error));
                    if !is_finding(&error) {
                        return Err(ContentError::Unavailable(problem));
                    }
                    if !is_code(&error, 404) {
                        return Err(ContentError::Failed(problem));
                    }
                    editions.insert(at.clone(), (Edition::default(), watched.edition(&at).is_some()));
                    Err(problem)
                }
            };
            secrets.insert(at, found);
        }
        let mutable: Vec<String> = secrets
            .iter()
            .filter(|(_, secret)| secret.as_ref().is_ok_and(|secret| secret.immutable != Some(true)))
            .map(|((namespace, name), _)| format!("{namespace}/{name}"))
            .collect();
        if !mutable.is_empty() {
            return Err(ContentError::Blocked(format!(
                "the following secrets are not immutable (referenced secrets must have immutable set to true): {}",
                mutable.join(", ")
            )));
        }
        let probes = probes::probes(&revision.spec.progression_probes).map_err(ContentError::Failed)?;
        let bodies = Bodies { secrets, system_namespace: system_namespace.to_owned() };
        let mut digests = vec![];
        let mut inventory = Inventory::default();
        let mut validation = Validation::default();
        for phase in &revision.spec.phases {
            let name = &phase.name;
            let mut items = vec![];
            let mut digester = PhaseDigester::new(name);
            validation.begin_phase(name);
            for entry in &phase.objects {
                let Body { object, .. } = &bodies.object(entry).await.map_err(|problem| {
                    ContentError::Failed(format!("resolving ref in phase {name:?}: {problem}"))
                })?;
                let protection = Protection::effective(
                    entry.collision_protection.map(convert::protection),
                    phase.collision_protection.map(convert::protection),
                    Some(convert::protection(revision.spec.collision_protection)),
                );
                items.push(Item { key: object.key(), protection, field_names: field_names(object) });
                digester.add(object);
                validation.add(object);
            }
            digests.push(digester.finish());
            inventory.phases.push((name.clone(), items));
        }
        let recorded: Vec<PhaseDigest> = revision
            .status
            .iter()
            .flat_map(|status| &status.observed_phases)
            .map(|phase| PhaseDigest { name: phase.name.clone(), digest: phase.digest.clone() })
            .collect();
        check_observed(&recorded, &digests).map_err(ContentError::Blocked)?;
        let invalid = validation.finish(&revision.name_any(), revision.spec.revision);
        let entries = revision.spec.phases.iter().map(|phase| phase.objects.clone()).collect();
        Ok(Self {
            inventory: Arc::new(inventory),
            entries,
            bodies,
            digests,
            probes,
            secrets: editions,
            invalid,
        })
    }

    pub(super) async fn object(&self, phase: usize, index: usize) -> Result<Body, String> {
        let entry = self.entries.get(phase).and_then(|entries| entries.get(index));
        self.bodies.object(entry.ok_or("content is not known")?).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn content_bodies_of_all_revisions_share_a_bound() {
        let inline = |bytes: usize| PhaseObject {
            object: json!({"data": "x".repeat(bytes)}).as_object().cloned(),
            reference: None,
            collision_protection: None,
        };
        let bodies = Bodies { secrets: BTreeMap::new(), system_namespace: "s".to_owned() };
        let (large, small) = (inline(2 << 20), inline(1));
        let first = bodies.object(&large).await.unwrap();
        let mut second = Box::pin(bodies.object(&small));
        assert!(
            futures::poll!(&mut second).is_pending(),
            "a large object is a tree, and another one beside it"
        );
        drop(first);
        assert_eq!(second.await.unwrap().object.0.len(), 1);
    }
}
