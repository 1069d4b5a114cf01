//! The dependencies of a pass: caches, clients, and what is remembered of each extension.

use std::sync::Arc;

use kube::Client;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_install::dependencies::DependencyCheck;
use olm_install::preflight;
use olm_install::render::RenderSettings;
use olm_install::resolution::{self, BundleFacts, ExtensionRequest, revision};
use olm_resolver::{CatalogSource, ClusterFacts, Environment, Needed};
use olm_runtime::controller::Workers;
use olm_runtime::events::Events;
use olm_runtime::watched::Objects;
use olm_runtime::{Intervals, Polled};

use super::durations::ResolutionDurations;
use super::state::{States, Verified};
use super::writer::RevisionWriter;
use crate::accounts::{Accounts, Mode};
use crate::bundles::BundleSource;
use crate::catalogs::PackageCache;
use crate::catalogs::in_use::InUse;
use crate::certificates::RefusedCertificates;
use crate::crds::Crds;
use crate::revisions::Revisions;

/// Settings of the process that this controller uses.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Namespace of object-data Secrets.
    pub system_namespace: String,
    /// What `spec.serviceAccount` means.
    pub service_account_mode: Mode,
    /// Gates of rendering, and the certificate issuer that is preferred.
    pub render: RenderSettings,
    /// What resolution depends on.
    pub resolution: resolution::Settings,
    /// What a missing dependency leads to.
    pub dependency_check: DependencyCheck,
    /// What CRD upgrade safety checks.
    pub preflight: preflight::Settings,
    /// How often unused cache entries are evicted.
    pub intervals: Intervals,
}

/// Everything that a pass needs beside its object.
pub struct Context {
    /// The controller's own identity.
    pub client: Client,
    pub settings: Settings,
    pub extensions: Objects<ClusterExtension>,
    pub revisions: Revisions,
    pub catalogs: Objects<ClusterCatalog>,
    /// Content of catalogs.
    pub packages: PackageCache,
    pub bundles: Box<dyn BundleSource>,
    /// As whom objects are written.
    pub accounts: Arc<Accounts>,
    pub writer: RevisionWriter,
    /// Passes that work at the same time.
    pub workers: Arc<Workers>,
    pub crds: Crds,
    /// The cluster that bundles have to fit.
    pub cluster: Polled<ClusterFacts>,
    /// Webhook certificates that may not be written.
    pub refused_certificates: RefusedCertificates,
    /// Records decisions for users.
    pub events: Events,
    /// How long resolution takes.
    pub durations: ResolutionDurations,
    /// What is remembered of each extension.
    pub states: Arc<States>,
}

impl Context {
    /// Revisions of the extension, any state, ascending by number.
    pub fn revisions_of(&self, name: &str, uid: &str) -> Vec<Arc<ClusterObjectSet>> {
        let mut found = self.revisions.of_extension(name);
        found.retain(|set| revision::is_owned_by(set, uid));
        found
    }

    /// Remembers that the revision holds what the spec asks for.
    pub fn remember(
        &self,
        request: &ExtensionRequest,
        set: &ClusterObjectSet,
        bundle: &BundleFacts,
        inputs: String,
    ) {
        let verified = Verified {
            revision_uid: set.metadata.uid.clone(),
            inputs,
            bundle: bundle.clone(),
            account: request.service_account.clone(),
        };
        self.states.update(&request.name, &request.uid, |state| {
            state.rejected = None;
            state.inputs.clear();
            state.verified = Some(verified);
        });
    }

    /// What is remembered about this revision of the extension.
    pub fn verified(&self, request: &ExtensionRequest, set: &ClusterObjectSet) -> Option<Verified> {
        let verified = self.states.update(&request.name, &request.uid, |state| state.verified.clone());
        verified.filter(|verified| verified.revision_uid == set.metadata.uid)
    }

    /// The extension is woken when this may be met; `None` when it waits for nothing.
    pub fn wait_for(&self, request: &ExtensionRequest, needs: Option<Needed>) {
        self.states.update(&request.name, &request.uid, |state| state.needs = needs);
    }

    /// What a resolution over these catalogs depends on. If one of their bundles asks something of the cluster, the extension is woken
    /// when that changes.
    pub fn resolution(&self, request: &ExtensionRequest, sources: &[CatalogSource]) -> resolution::Settings {
        let has_constraints =
            sources.iter().any(|source| source.content.as_ref().is_ok_and(|graph| graph.has_needs()));
        // before the facts are read, so that a change meanwhile wakes the extension
        self.states.update(&request.name, &request.uid, |state| state.has_constraints = has_constraints);
        let settings = self.settings.resolution.clone();
        let cluster = self.cluster.get().unwrap_or_default();
        let environment = Environment { cluster, ..settings.environment };
        resolution::Settings { environment, ..settings }
    }

    /// The extension is woken when one of these CRDs changes.
    pub(crate) fn wait_for_crds(&self, request: &ExtensionRequest, names: Vec<String>) {
        self.states.update(&request.name, &request.uid, |state| state.crds = names);
    }

    /// Evicts everything about an extension that is gone.
    pub fn evict(&self, name: &str, uid: &str) {
        self.accounts.evict(name);
        self.states.evict(uid);
        self.evict_unused_packages();
    }

    /// Evicts packages that no extension names, and those of catalogs that are gone.
    pub(crate) fn evict_unused_packages(&self) {
        let (extensions, catalogs) = (self.extensions.all(), self.catalogs.all());
        let in_use = InUse::new(extensions.iter().map(AsRef::as_ref), catalogs.iter().map(AsRef::as_ref));
        self.packages.retain(|catalog, package| in_use.has(catalog, package));
    }
}
