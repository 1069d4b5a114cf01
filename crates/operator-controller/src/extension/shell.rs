//! What the reconciler works with: caches of the world, clients, and a small memory of what was verified.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use clap::ValueEnum;
use kube::Client;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_install::preflight;
use olm_install::resolution::{BundleFacts, Wish, revision};
use olm_runtime::Intervals;
use olm_runtime::backoff::Backoff;
use olm_runtime::events::Events;
use olm_runtime::metrics::ControllerMetrics;
use parking_lot::Mutex;

use super::details::Details;
use super::misfits::Misfits;
use super::policy::Policies;
use super::waiting::Waiting;
use super::writer::Writer;
use crate::accounts::Accounts;
use crate::bundles::Bundles;
use crate::catalogs::PackageCache;
use crate::catalogs::in_use::InUse;
use crate::crds::Crds;
use crate::revisions::Revisions;
use crate::watch::{Cache, Change};
use crate::workers::Workers;

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
    /// How often caches are tidied.
    pub intervals: Intervals,
}

/// What a missing dependency leads to: `--dependency-check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum DependencyCheck {
    /// The bundle is refused until what it needs is there.
    #[default]
    #[value(name = "Enforce")]
    Enforce,
    /// An event says what is missing, and the bundle is installed.
    #[value(name = "Warn")]
    Warn,
    /// Nothing is looked at.
    #[value(name = "Ignore")]
    Ignore,
    /// A bundle that declares any dependency is refused, as the reference does.
    #[value(name = "Refuse")]
    Refuse,
}

/// Everything a reconcile needs beside its object.
pub struct Shell {
    /// The controller's own identity.
    pub client: Client,
    /// Settings of the process.
    pub settings: Settings,
    /// All extensions.
    pub extensions: Cache<ClusterExtension>,
    /// All revisions.
    pub revisions: Revisions,
    /// All catalogs.
    pub catalogs: Cache<ClusterCatalog>,
    /// Content of catalogs.
    pub packages: PackageCache,
    /// Content of bundles.
    pub bundles: Bundles,
    /// As whom objects are written.
    pub accounts: Arc<Accounts>,
    /// Writes revisions.
    pub writer: Writer,
    /// Passes that work at the same time.
    pub workers: Arc<Workers>,
    /// Counts passes and how they end.
    pub meter: ControllerMetrics,
    /// Extensions that wait for what a bundle depends on, or for a CRD.
    pub waiting: Waiting,
    /// Which CRDs there are.
    pub crds: Crds,
    /// News that can wait.
    pub details: Details,
    /// Bundles that do not fit into a revision.
    pub misfits: Misfits,
    /// Deletion policies as copied to revisions.
    pub policies: Policies,
    /// Extensions as our own writes left them, until the cache shows it.
    pub written: Written,
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
        let mut found = self.revisions.of(name);
        found.retain(|set| revision::is_owned_by(set, uid));
        found
    }

    /// All readable catalogs.
    pub fn all_catalogs(&self) -> Vec<Arc<ClusterCatalog>> {
        self.catalogs.state().iter().filter_map(|stored| stored.0.as_ref().ok().cloned()).collect()
    }

    /// Notes that the revision holds what is wanted.
    pub fn remember(&self, wish: &Wish, set: &ClusterObjectSet, bundle: &BundleFacts, inputs: String) {
        let verified = Verified {
            revision_uid: set.metadata.uid.clone(),
            inputs,
            bundle: bundle.clone(),
            account: wish.service_account.clone(),
        };
        self.misfits.forget(&wish.uid);
        self.memory.lock().insert(wish.uid.clone(), verified);
    }

    /// What is remembered about this revision.
    pub fn verified(&self, set: &ClusterObjectSet) -> Option<Verified> {
        let owner =
            set.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let memory = self.memory.lock();
        memory.get(&owner.uid).filter(|verified| verified.is_about(set)).cloned()
    }

    /// Drops what is remembered about all but the extensions with these UIDs: an answer to a write may come after its
    /// extension has gone.
    pub fn retain(&self, uids: &BTreeSet<String>) {
        self.memory.lock().retain(|uid, _| uids.contains(uid));
        self.written.retain(uids);
        self.policies.retain(uids);
    }

    /// Drops what is remembered about an extension that is gone.
    pub fn forget(&self, name: &str, uid: &str) {
        self.accounts.forget(name);
        self.memory.lock().remove(uid);
        self.waiting.forget(name);
        self.waiting.wait_for_crds(name, Vec::new());
        self.details.forget(uid);
        self.misfits.forget(uid);
        self.backoff.reset(&uid.to_owned());
        self.keep_packages_in_use(Some(name));
    }

    /// Drops packages that no extension asks for, but perhaps `gone`, and those of catalogs that are not there.
    pub fn keep_packages_in_use(&self, gone: Option<&str>) {
        let extensions = self.extensions.state();
        let extensions = extensions.iter().filter_map(|stored| stored.0.as_deref().ok());
        let extensions = extensions.filter(|extension| extension.metadata.name.as_deref() != gone);
        let catalogs = self.all_catalogs();
        let in_use = InUse::of(extensions, catalogs.iter().map(AsRef::as_ref));
        self.packages.retain(|catalog, package| in_use.has(catalog, package));
    }
}

/// Extensions as our own writes left them. The cache follows a moment later; until then it would lead to the same write again,
/// which the apiserver refuses.
#[derive(Debug, Default)]
pub struct Written(Mutex<HashMap<String, Arc<ClusterExtension>>>);

impl Written {
    /// The newer of what the cache has and what was written.
    pub fn newest(&self, cached: &Arc<ClusterExtension>) -> Arc<ClusterExtension> {
        let written = self.0.lock();
        let uid = cached.metadata.uid.as_deref().unwrap_or_default();
        match written.get(uid) {
            Some(written) if version(written) > version(cached) => Arc::clone(written),
            _ => Arc::clone(cached),
        }
    }

    /// Notes the answer to a write.
    pub fn put(&self, extension: ClusterExtension) {
        let uid = extension.metadata.uid.clone().unwrap_or_default();
        self.0.lock().insert(uid, Arc::new(extension));
    }

    /// Lets go of all but the extensions with these UIDs.
    pub fn retain(&self, uids: &BTreeSet<String>) {
        self.0.lock().retain(|uid, _| uids.contains(uid));
    }

    /// Lets go of what the cache shows by now.
    pub fn seen(&self, change: &Change<ClusterExtension>) {
        let meta = kube::Resource::meta(&change.object);
        let mut all = self.0.lock();
        let uid = meta.uid.as_deref().unwrap_or_default();
        let known = all.get(uid).map(version);
        if change.gone || known.is_some_and(|known| known <= number(meta.resource_version.as_deref())) {
            all.remove(uid);
        }
    }
}

fn version(extension: &Arc<ClusterExtension>) -> Option<u64> {
    number(extension.metadata.resource_version.as_deref())
}

fn number(version: Option<&str>) -> Option<u64> {
    version.and_then(|version| version.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Stored;
    use serde_json::json;

    fn extension(version: &str) -> ClusterExtension {
        let object = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": version},
            "spec": {"namespace": "a", "source": {"sourceType": "Catalog", "catalog": {"packageName": "a"}}},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_newer_of_cache_and_own_write_counts() {
        let written = Written::default();
        let cached = |version: &str| Arc::new(extension(version));
        let newest = |cached: &Arc<ClusterExtension>| {
            written.newest(cached).metadata.resource_version.clone().unwrap()
        };
        let seen = |version: &str, gone| {
            written.seen(&Change { object: Stored(Ok(cached(version))), gone });
        };
        assert_eq!(newest(&cached("9")), "9");
        written.put(extension("10"));
        assert_eq!((newest(&cached("9")), newest(&cached("11"))), ("10".into(), "11".into()));
        seen("9", false);
        assert_eq!(newest(&cached("9")), "10", "an older event does not count");
        seen("10", false);
        assert_eq!(newest(&cached("9")), "9", "the cache has it");
        written.put(extension("12"));
        seen("9", true);
        assert!(written.0.lock().is_empty());
        // an answer that comes after the end
        written.put(extension("13"));
        written.retain(&BTreeSet::from(["u".to_owned()]));
        assert_eq!(written.0.lock().len(), 1);
        written.retain(&BTreeSet::new());
        assert!(written.0.lock().is_empty());
    }
}
