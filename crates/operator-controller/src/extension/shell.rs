//! What the reconciler works with: caches of the world, clients, and a small memory of what was verified.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, labels};
use olm_client::preflight;
use olm_client::resolution::{BundleFacts, Wish, revision};
use olm_runtime::backoff::Backoff;
use olm_runtime::events::Events;
use olm_runtime::metrics::ControllerMeter;

use super::dependencies::DependencyCheck;
use super::waiting::Waiting;
use super::writer::Writer;
use crate::accounts::Accounts;
use crate::bundles::Bundles;
use crate::catalogs::PackageCache;

/// Settings of the process that this controller heeds.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Namespace of object-data Secrets.
    pub system_namespace: String,
    /// Gate BundleReleaseSupport.
    pub separate_release: bool,
    /// What a missing dependency leads to.
    pub dependency_check: DependencyCheck,
    /// What CRD upgrade safety looks at.
    pub preflight: preflight::Settings,
}

/// Everything a reconcile needs beside its object.
pub struct Shell {
    /// The controller's own identity.
    pub client: Client,
    /// Settings of the process.
    pub settings: Settings,
    /// All extensions.
    pub extensions: Store<DeserializeGuard<ClusterExtension>>,
    /// All revisions.
    pub revisions: Store<DeserializeGuard<ClusterObjectSet>>,
    /// All catalogs.
    pub catalogs: Store<DeserializeGuard<ClusterCatalog>>,
    /// Content of catalogs.
    pub packages: PackageCache,
    /// Content of bundles.
    pub bundles: Bundles,
    /// As whom objects are written.
    pub accounts: Arc<Accounts>,
    /// Writes revisions.
    pub writer: Writer,
    /// Counts passes and how they end.
    pub meter: ControllerMeter,
    /// Extensions that wait for what a bundle depends on.
    pub waiting: Waiting,
    /// Tells users what was decided.
    pub events: Events,
    /// Failures in a row, by UID.
    pub backoff: Backoff<String>,
    /// Newest revision of each extension that was found to hold what was wanted, by extension UID.
    pub memory: Mutex<HashMap<String, Verified>>,
}

/// A revision that was found to hold what was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// UID of the revision.
    pub revision_uid: Option<String>,
    /// What it was rendered from.
    pub inputs: String,
    /// Its bundle.
    pub bundle: BundleFacts,
    /// The account whose rights were checked.
    pub account: Option<String>,
}

impl Shell {
    /// Revisions of the extension, any state, ascending by number.
    pub fn revisions_of(&self, name: &str, uid: &str) -> Vec<Arc<ClusterObjectSet>> {
        let mut found: Vec<Arc<ClusterObjectSet>> = self
            .revisions
            .state()
            .iter()
            .filter_map(|guarded| guarded.0.as_ref().ok())
            .filter(|set| set.labels().get(labels::OWNER_NAME).is_some_and(|owner| owner == name))
            .filter(|set| revision::is_owned_by(set, uid))
            .map(|set| Arc::new(set.clone()))
            .collect();
        found.sort_by_key(|set| set.spec.revision);
        found
    }

    /// All readable catalogs.
    pub fn all_catalogs(&self) -> Vec<ClusterCatalog> {
        self.catalogs.state().iter().filter_map(|guarded| guarded.0.as_ref().ok().cloned()).collect()
    }

    /// Notes that the revision holds what is wanted.
    pub fn remember(&self, wish: &Wish, set: &ClusterObjectSet, bundle: &BundleFacts, inputs: String) {
        let verified = Verified {
            revision_uid: set.metadata.uid.clone(),
            inputs,
            bundle: bundle.clone(),
            account: wish.service_account.clone(),
        };
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(wish.uid.clone(), verified);
    }

    /// What is remembered about this revision.
    pub fn verified(&self, set: &ClusterObjectSet) -> Option<Verified> {
        let owner =
            set.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(&owner.uid).filter(|verified| verified.is_about(set)).cloned()
    }

    /// Drops what is remembered about an extension that is gone.
    pub fn forget(&self, name: &str, uid: &str) {
        self.accounts.forget(name);
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        self.waiting.forget(name);
        self.backoff.forget(&uid.to_owned());
    }
}
