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
    /// What every pass that asked has read; none if two may have read different content.
    read_by_all: Option<Arc<PackageGraph>>,
}

impl Slot {
    /// Remembers content that a pass reads now.
    fn put(&mut self, endpoint: &Endpoint, graph: Arc<PackageGraph>) -> Arc<PackageGraph> {
        let is_first = self.known.is_none() && self.failed.is_none();
        // the same content is in memory once
        let graph = match self.read_by_all.take().filter(|read| read.is_same(&graph)) {
            Some(read) => {
                self.read_by_all = Some(Arc::clone(&read));
                read
            }
            None => {
                self.read_by_all = is_first.then(|| Arc::clone(&graph));
                graph
            }
        };
        self.known = Some((endpoint.clone(), Arc::clone(&graph)));
        self.failed = None;
        graph
    }
}

impl PackageCache {
    /// Nothing is cached yet.
    pub fn new(source: Box<dyn PackageSource>) -> Self {
        Self { source, slots: Mutex::new(HashMap::new()) }
    }

    /// What each of `catalogs` holds of `package`, in their order. Catalogs are asked in parallel.
    ///
    /// `last_known` lets content of an older digest stand in for a catalog that cannot be read (an installed extension
    /// keeps working); a first install must wait instead, so that it does not install what the catalog no longer has. So with it a
    /// catalog that could not be read may have content here; [`PackageCache::unread`] knows.
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

    /// Reads a package of a catalog whose content has changed. Returns whether the extensions of the package have to be reconciled
    /// for that, which then has to happen.
    pub async fn has_changed(&self, endpoint: &Endpoint, package: &PackageName) -> bool {
        let slot = self.slots.lock().get(&(endpoint.catalog.clone(), package.clone())).map(Arc::clone);
        // no pass has asked for it
        let Some(slot) = slot else { return true };
        let mut slot = slot.lock().await;
        let before = slot.read_by_all.clone();
        let after = self.read(&mut slot, endpoint, package).await.ok();
        let is_same = matches!((&before, &after), (Some(before), Some(after)) if before.is_same(after));
        slot.read_by_all = after;
        !is_same
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
        let problem = match self.read(&mut slot, endpoint, package).await {
            Ok(graph) => return Ok(graph),
            Err(problem) => problem,
        };
        tracing::warn!(catalog = %endpoint.catalog, package = %package, ?problem, "catalog content could not be read");
        match &slot.known {
            Some((_, graph)) if last_known => Ok(Arc::clone(graph)),
            _ => Err(problem),
        }
    }

    /// The content at `endpoint`: the known one, or fetched now.
    async fn read(
        &self,
        slot: &mut Slot,
        endpoint: &Endpoint,
        package: &PackageName,
    ) -> Result<Arc<PackageGraph>, CatalogReadError> {
        if let Some((known, graph)) = &slot.known
            && known == endpoint
        {
            return Ok(Arc::clone(graph));
        }
        if let Some((failed, when, problem)) = &slot.failed
            && failed == endpoint
            && when.elapsed() < FAILURE_HOLDS
        {
            return Err(problem.clone());
        }
        match self.source.graph(endpoint, package).await {
            Ok(graph) => Ok(slot.put(endpoint, graph)),
            Err(problem) => {
                slot.failed = Some((endpoint.clone(), Instant::now(), problem.clone()));
                Err(problem)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use olm_catalog::PackageContent;
    use olm_resolver::ReleaseField;

    use super::*;

    /// Content by the end of the reference: `<package>-<version>`, or a failure; always one at [`REFUSING`].
    struct Source;

    const REFUSING: &str = "https://refusing";

    impl PackageSource for Source {
        fn graph<'a>(
            &'a self,
            endpoint: &'a Endpoint,
            package: &'a PackageName,
        ) -> BoxFuture<'a, Result<Arc<PackageGraph>, CatalogReadError>> {
            let (held, version) = endpoint.resolved.split_once('-').unwrap_or_default();
            let answer = match (version, held == package.to_string()) {
                _ if endpoint.base == REFUSING => Err(CatalogReadError::Fetch("refused".to_owned())),
                ("", _) => Err(CatalogReadError::Fetch("refused".to_owned())),
                (version, true) => Ok(lines(held, version)),
                (_, false) => Ok(String::new()),
            };
            let graph = answer.map(|lines| {
                let content = PackageContent::from_lines(package, lines.as_bytes()).unwrap();
                Arc::new(content.into_graph(ReleaseField::Ignored))
            });
            Box::pin(std::future::ready(graph))
        }

        fn summaries<'a>(
            &'a self,
            _endpoint: &'a Endpoint,
        ) -> BoxFuture<'a, Result<Vec<PackageSummary>, String>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
    }

    fn lines(package: &str, version: &str) -> String {
        format!(
            "{{\"schema\":\"olm.package\",\"name\":\"{package}\"}}\n\
             {{\"schema\":\"olm.channel\",\"package\":\"{package}\",\"name\":\"c\",\"entries\":[{{\"name\":\"{package}.b\"}}]}}\n\
             {{\"schema\":\"olm.bundle\",\"package\":\"{package}\",\"name\":\"{package}.b\",\"image\":\"i\",\"properties\":\
             [{{\"type\":\"olm.package\",\"value\":{{\"packageName\":\"{package}\",\"version\":\"{version}\"}}}}]}}\n"
        )
    }

    fn facts(resolved: &str) -> CatalogFacts {
        let (name, resolved) = ("c".parse::<CatalogName>().unwrap(), resolved.to_owned());
        CatalogFacts {
            labels: Default::default(),
            priority: 0,
            available: true,
            endpoint: Ok(Endpoint { catalog: name.clone(), base: "https://c".to_owned(), resolved }),
            name,
        }
    }

    /// What one address served for a digest does not stand in for what another address serves.
    #[tokio::test]
    async fn cache_keeps_content_for_its_address() {
        let (cache, package) = (PackageCache::new(Box::new(Source)), "p".parse().unwrap());
        for (base, is_read) in [("https://c", true), (REFUSING, false)] {
            let mut facts = facts("p-1.0.0");
            facts.endpoint.as_mut().unwrap().base = base.to_owned();
            let sources = cache.sources(&[facts], &package, false).await;
            assert_eq!(sources[0].content.is_ok(), is_read, "{base}");
        }
    }

    /// Digests that the catalog comes to one after the other (`p-1.0.0`: package and version; `-`: none can be read), each read
    /// by a pass (`=`) or compared first, with what comparing returns.
    #[tokio::test(start_paused = true)]
    #[rustfmt::skip]
    async fn cache_compares_packages_of_another_digest() {
        for steps in [
            &[("=", "p-1.0.0", false), ("?", "p-1.0.0", false), ("?", "p-2.0.0", true), ("?", "p-2.0.0", false)][..],
            &[("=", "o-1.0.0", false), ("?", "o-2.0.0", false), ("?", "p-1.0.0", true), ("?", "o-1.0.0", true)],
            &[("=", "p-1.0.0", false), ("?", "p-1.0.0+a", true)],
            // no pass has asked
            &[("?", "p-1.0.0", true), ("=", "p-1.0.0", false), ("?", "p-1.0.0", false)],
            // a pass is faster, so that others have read something else
            &[("=", "p-1.0.0", false), ("=", "p-2.0.0", false), ("?", "p-1.0.0", true), ("?", "p-1.0.0", false)],
            &[("=", "p-1.0.0", false), ("=", "p-2.0.0", false), ("?", "p-2.0.0", true), ("?", "p-2.0.0", false)],
            // what cannot be read may be anything
            &[("=", "p-1.0.0", false), ("?", "-", true), ("?", "p-1.0.0", true), ("?", "p-1.0.0", false)],
        ] {
            let (cache, package) = (PackageCache::new(Box::new(Source)), "p".parse().unwrap());
            for (at, (how, resolved, want)) in steps.iter().enumerate() {
                // another digest each time
                let mut facts = facts(resolved);
                facts.endpoint.as_mut().unwrap().base = format!("https://c/{at}");
                match *how {
                    "=" => drop(cache.sources(&[facts], &package, true).await),
                    _ => {
                        let endpoint = facts.endpoint.unwrap();
                        let got = cache.has_changed(&endpoint, &package).await;
                        assert_eq!(got, *want, "step {at} of {steps:?}");
                    }
                }
            }
        }
    }
}
