//! Package graphs by (catalog, package): fetched once per image digest, however many extensions ask at the same time, and kept
//! on disk over restarts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_catalog::catalogd::{CatalogError, Endpoint, MAX_PACKAGE};
use olm_catalog::{CatalogFacts, PackageContent, PackageStore, Route, served};
use olm_core::{CatalogName, PackageName};
use olm_fbc::PackageSummary;
use olm_resolver::{CatalogReadError, CatalogSource, GvkRef, PackageGraph, ReleaseField};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

/// Builds the HTTP client for one fetch, so that changed CA files count immediately.
pub type ClientFactory = Box<dyn Fn() -> Result<reqwest::Client, String> + Send + Sync>;

/// How long a failed fetch answers for its digest before it is tried again.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);

/// Bytes of a package that may be in memory beside others, one for each worker.
const SMALL_PACKAGE: usize = 4 << 20;
/// Larger packages are fetched and read one at a time.
static LARGE_PACKAGES: Semaphore = Semaphore::const_new(1);

type Key = (CatalogName, PackageName);

/// The cache. Cheap to share by `Arc`.
pub struct PackageCache {
    client: ClientFactory,
    /// How a bundle's release is read (gate BundleReleaseSupport).
    release: ReleaseField,
    /// Content on disk, so that a restart reads nothing again.
    store: PackageStore,
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
    /// Nothing in memory yet; what `store` has on disk is used.
    pub fn new(client: ClientFactory, store: PackageStore, release: ReleaseField) -> Self {
        Self { client, release, store, slots: Mutex::new(HashMap::new()) }
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
        let route = self.route(endpoint)?;
        let lines = served::summary_lines(&route, Some(&self.store), endpoint)
            .await
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        let lines = lines.split(|byte| *byte == b'\n');
        let summaries = lines.filter_map(|line| serde_json::from_slice::<PackageSummary>(line).ok());
        let provides = |summary: &PackageSummary| {
            summary.provided_apis.iter().any(|api| {
                apis.iter().any(|needed| {
                    (&*needed.group, &*needed.version, &*needed.kind)
                        == (api.group.as_str(), api.version.as_str(), api.kind.as_str())
                })
            })
        };
        Ok(summaries.filter(provides).filter_map(|summary| summary.name.parse().ok()).collect())
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
            None => match self.fetch(endpoint, package).await {
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

    /// The status names the address, not how far it is trusted: over https, with the configured CA.
    fn route(&self, endpoint: &Endpoint) -> Result<Route, String> {
        let scheme = endpoint.base.split_once("://").map_or("", |(scheme, _)| scheme);
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(format!("status.urls.base {:?} is not https; catalogd sets it", endpoint.base));
        }
        Ok(Route::Direct((self.client)()?))
    }

    async fn fetch(
        &self,
        endpoint: &Endpoint,
        package: &PackageName,
    ) -> Result<Arc<PackageGraph>, CatalogReadError> {
        let route = self.route(endpoint).map_err(CatalogReadError::Fetch)?;
        let fetch = |limit| served::package_lines(&route, Some(&self.store), endpoint, package, limit);
        let (mut lines, mut permit) = (fetch(SMALL_PACKAGE).await, None);
        if let Err(CatalogError::TooLarge { .. }) = lines {
            permit = LARGE_PACKAGES.acquire().await.ok();
            lines = fetch(MAX_PACKAGE).await;
        }
        let lines = lines.map_err(|error| CatalogReadError::Fetch(error.to_string()))?;
        let package = package.clone();
        let release = self.release;
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read(&package, &lines, release)
        });
        reading.await.map_err(|error| CatalogReadError::Content(error.to_string()))?
    }
}

fn read(
    package: &PackageName,
    lines: &[u8],
    release: ReleaseField,
) -> Result<Arc<PackageGraph>, CatalogReadError> {
    let graph = PackageContent::from_lines(package, lines).graph(release);
    for finding in graph.findings() {
        tracing::warn!(package = %package, place = finding.place, finding = finding.message, "catalog entry is not as it should be");
    }
    Ok(Arc::new(graph))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The writer of a status must not choose an address without a certificate.
    #[tokio::test]
    async fn catalogs_are_read_over_https_only() {
        olm_runtime::tls::install_provider();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let cas = dir.path().join("cas");
        std::fs::create_dir(&cas).unwrap();
        let params = rcgen::CertificateParams::new(vec!["c.test".to_owned()]).unwrap();
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        std::fs::write(cas.join("ca.crt"), certificate.pem()).unwrap();
        let client = super::super::client::factory(Some(cas), None, olm_runtime::tls::TlsSettings::default());
        let client_alone = client().unwrap();
        let store = PackageStore::new(dir.path(), olm_catalog::package_store::DEFAULT_BYTES);
        let cache = PackageCache::new(client, store, ReleaseField::default());
        for base in [format!("http://{address}/catalogs/c"), format!("HTTP://{address}/c"), String::new()] {
            let endpoint = Endpoint {
                catalog: "c".parse().unwrap(),
                base: base.clone(),
                resolved: format!("example.com/c@sha256:{}", "1".repeat(64)),
            };
            let got = cache.graph(&endpoint, &"demo".parse().unwrap(), false).await;
            let Err(CatalogReadError::Fetch(why)) = got else { panic!("{base}: {got:?}") };
            assert!(why.contains("is not https"), "{why}");
            assert!(client_alone.get(&base).send().await.is_err(), "{base}");
        }
        assert!(listener.accept().is_err(), "no connection was made");
    }
}
