//! Package graphs by (catalog, package): fetched once per image digest, however many extensions ask at the same time, and kept
//! on disk over restarts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_catalog::CatalogFacts;
use olm_catalog::catalogd::Endpoint;
use olm_core::{CatalogName, PackageName};
use olm_fbc::PackageSummary;
use olm_resolver::{CatalogReadError, CatalogSource, GvkRef, PackageGraph};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::source::PackageSource;

/// How long a failed fetch answers for its digest before it is tried again.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);

type Key = (CatalogName, PackageName);

/// The cache. Cheap to share by `Arc`.
pub struct PackageCache {
    source: Box<dyn PackageSource>,
    slots: Mutex<HashMap<Key, Arc<AsyncMutex<Slot>>>>,
}

#[derive(Default)]
struct Slot {
    /// Last content that could be read, and from where.
    known: Option<(Endpoint, Arc<PackageGraph>)>,
    /// Last failure: where, when, what.
    failed: Option<(Endpoint, Instant, CatalogReadError)>,
}

impl PackageCache {
    /// Nothing is cached yet.
    pub fn new(source: Box<dyn PackageSource>) -> Self {
        Self { source, slots: Mutex::new(HashMap::new()) }
    }

    /// What each of `catalogs` holds of `package`, in their order. Catalogs are asked in parallel.
    ///
    /// `last_known` lets content of an older digest stand in for a catalog that cannot be read (an installed extension
    /// keeps working); a first install must wait instead, so that it does not install what the catalog no longer has.
    pub async fn sources(
        &self,
        catalogs: &[CatalogFacts],
        package: &PackageName,
        last_known: bool,
    ) -> Vec<CatalogSource> {
        let asked = catalogs.iter().map(|facts| async move {
            let content = match &facts.endpoint {
                Ok(endpoint) => self.graph(endpoint, package, last_known).await,
                Err(unserved) => {
                    let known = if last_known { self.cached(&facts.name, package).await } else { None };
                    known.ok_or_else(|| unserved.problem(&facts.name))
                }
            };
            CatalogSource { name: facts.name.clone(), priority: facts.priority, content }
        });
        futures::future::join_all(asked).await
    }

    /// Whether one of `catalogs` is served and could not be read when it was asked last, so that its older content stood in for it, or
    /// nothing. No watch shows when it can be read again: its status stays the same.
    pub async fn unread(&self, catalogs: &[CatalogFacts], package: &PackageName) -> bool {
        for endpoint in catalogs.iter().filter_map(|facts| facts.endpoint.as_ref().ok()) {
            let slot = self.slot(&endpoint.catalog, package);
            let slot = slot.lock().await;
            // bytes that make no sense do not change; the next digest may
            let away = |(failed, _, problem): &(Endpoint, Instant, CatalogReadError)| {
                failed == endpoint && matches!(problem, CatalogReadError::Fetch(_))
            };
            if slot.failed.as_ref().is_some_and(away) {
                return true;
            }
        }
        false
    }

    /// Names of the packages that provide one of `apis`, as the catalog's summary has it; none where there is no summary.
    ///
    /// # Errors
    /// When the catalog cannot be asked.
    pub async fn providers(
        &self,
        endpoint: &Endpoint,
        apis: &BTreeSet<GvkRef>,
    ) -> Result<Vec<PackageName>, String> {
        if apis.is_empty() {
            return Ok(Vec::new());
        }
        let summaries = self.source.summaries(endpoint).await?;
        let provides = |summary: &PackageSummary| {
            summary.provided_apis.iter().any(|api| {
                apis.iter().any(|needed| {
                    (&*needed.group, &*needed.version, &*needed.kind)
                        == (api.group.as_str(), api.version.as_str(), api.kind.as_str())
                })
            })
        };
        Ok(summaries.into_iter().filter(provides).filter_map(|summary| summary.name.parse().ok()).collect())
    }

    /// Evicts catalogs that are gone and packages that no extension names any more.
    pub fn retain(&self, keep: impl Fn(&CatalogName, &PackageName) -> bool) {
        let mut slots = self.slots.lock();
        slots.retain(|(catalog, package), _| keep(catalog, package));
    }

    fn slot(&self, catalog: &CatalogName, package: &PackageName) -> Arc<AsyncMutex<Slot>> {
        let mut slots = self.slots.lock();
        Arc::clone(slots.entry((catalog.clone(), package.clone())).or_default())
    }

    async fn cached(&self, catalog: &CatalogName, package: &PackageName) -> Option<Arc<PackageGraph>> {
        let slot = self.slot(catalog, package);
        let slot = slot.lock().await;
        slot.known.as_ref().map(|(_, graph)| Arc::clone(graph))
    }

    async fn graph(
        &self,
        endpoint: &Endpoint,
        package: &PackageName,
        last_known: bool,
    ) -> Result<Arc<PackageGraph>, CatalogReadError> {
        let slot = self.slot(&endpoint.catalog, package);
        // held over the fetch on purpose: other passes that need this package wait for the same answer
        let mut slot = slot.lock().await;
        if let Some((known, graph)) = &slot.known
            && known == endpoint
        {
            return Ok(Arc::clone(graph));
        }
        let recent = slot
            .failed
            .as_ref()
            .filter(|(failed, when, _)| failed == endpoint && when.elapsed() < FAILURE_HOLDS);
        let problem = match recent {
            Some((_, _, problem)) => problem.clone(),
            None => match self.source.graph(endpoint, package).await {
                Ok(graph) => {
                    slot.known = Some((endpoint.clone(), Arc::clone(&graph)));
                    slot.failed = None;
                    return Ok(graph);
                }
                Err(problem) => {
                    slot.failed = Some((endpoint.clone(), Instant::now(), problem.clone()));
                    problem
                }
            },
        };
        tracing::warn!(catalog = %endpoint.catalog, package = %package, ?problem, "catalog content could not be read");
        match &slot.known {
            Some((_, graph)) if last_known => Ok(Arc::clone(graph)),
            _ => Err(problem),
        }
    }
}
