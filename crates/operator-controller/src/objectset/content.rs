//! The content of a revision: inline objects and objects in Secrets, read, checked and compared with what was recorded.
//!
//! Rule: revisions §5, with the better behaviours of §17 rows 10 and 24.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_core::{Object, ObjectKey};
use olm_install::content::{object, secret_key};
use olm_rollout::probe::Probe;
use olm_rollout::{Phase, PhaseDigest, Protection, check_observed, phase_digest, validate};

use super::convert;
use super::errors::{is_code, text};
use super::live::ObjectRef;
use super::secrets::{Edition, Secrets};
use crate::secret_cache::SecretCache;

/// One object of the content, without its body.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) key: ObjectKey,
    pub(super) protection: Protection,
}

/// What a revision consists of, without bodies: kept in memory as long as the revision is.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) phases: Vec<(String, Vec<Item>)>,
}

/// The content with bodies: kept only while there is something to apply.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) inventory: Arc<Inventory>,
    /// Objects by phase, in the inventory's order.
    pub(super) objects: Vec<Vec<Object>>,
    pub(super) digests: Vec<PhaseDigest>,
    pub(super) probes: Vec<Probe>,
    /// Editions of the Secrets that were read, and whether the watch sees them.
    pub(super) secrets: BTreeMap<ObjectRef, (Edition, bool)>,
    /// What is wrong with it, found without asking the apiserver.
    pub(super) invalid: Option<String>,
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
        let references: BTreeSet<ObjectRef> = revision
            .spec
            .phases
            .iter()
            .flat_map(|phase| &phase.objects)
            .filter_map(|entry| secret_key(entry, system_namespace))
            .collect();
        let mut secrets: BTreeMap<ObjectRef, Result<Arc<Secret>, String>> = BTreeMap::new();
        let mut editions = BTreeMap::new();
        for at in references {
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
        let probes = convert::probes(&revision.spec.progression_probes).map_err(ContentError::Failed)?;
        let mut digests = vec![];
        let mut inventory = Inventory::default();
        let mut phases = vec![];
        for phase in &revision.spec.phases {
            let name = &phase.name;
            let mut items = vec![];
            let mut objects = vec![];
            for entry in &phase.objects {
                let secret = |key: &ObjectRef| match secrets.get(key) {
                    Some(read) => read.clone(),
                    None => Err(format!("getting Secret {}/{}: it was not read", key.0, key.1)),
                };
                let object = object(entry, system_namespace, secret).map_err(|problem| {
                    ContentError::Failed(format!("resolving ref in phase {name:?}: {problem}"))
                })?;
                let protection = Protection::effective(
                    entry.collision_protection.map(convert::protection),
                    phase.collision_protection.map(convert::protection),
                    Some(convert::protection(revision.spec.collision_protection)),
                );
                items.push(Item { key: object.key(), protection });
                objects.push(object);
            }
            digests.push(phase_digest(name, &objects));
            inventory.phases.push((name.clone(), items));
            phases.push(Phase { name: name.clone(), objects });
        }
        let recorded: Vec<PhaseDigest> = revision
            .status
            .iter()
            .flat_map(|status| &status.observed_phases)
            .map(|phase| PhaseDigest { name: phase.name.clone(), digest: phase.digest.clone() })
            .collect();
        check_observed(&recorded, &digests).map_err(ContentError::Blocked)?;
        let invalid = validate(&revision.name_any(), revision.spec.revision, &phases);
        let objects = phases.into_iter().map(|phase| phase.objects).collect();
        Ok(Self { inventory: Arc::new(inventory), objects, digests, probes, secrets: editions, invalid })
    }

    /// The body of one object.
    pub(super) fn object(&self, phase: usize, index: usize) -> Option<&Object> {
        self.objects.get(phase)?.get(index)
    }
}
