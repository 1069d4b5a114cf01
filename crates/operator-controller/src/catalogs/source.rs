//! The content of served catalogs: one package as a graph, or a line about each package.

use std::sync::Arc;

use futures::future::BoxFuture;
use olm_catalog::catalogd::{CatalogError, Endpoint, MAX_PACKAGE};
use olm_catalog::{PackageContent, PackageStore, Route, served};
use olm_core::PackageName;
use olm_fbc::{PackageLimitError, PackageSummary};
use olm_resolver::{CatalogReadError, PackageGraph, ReleaseField};
use tokio::sync::Semaphore;

/// Builds the HTTP client for one fetch, so that changed CA files count immediately.
pub type ClientFactory = Box<dyn Fn() -> Result<reqwest::Client, String> + Send + Sync>;

/// Bytes of a package that may be in memory beside others, one for each worker.
const SMALL_PACKAGE: usize = 4 << 20;
/// Larger packages are fetched and read one at a time.
static LARGE_PACKAGES: Semaphore = Semaphore::const_new(1);

/// Reads the content of served catalogs.
pub trait PackageSource: Send + Sync {
    /// One package; empty if the catalog does not have it.
    fn graph<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        package: &'a PackageName,
    ) -> BoxFuture<'a, Result<Arc<PackageGraph>, CatalogReadError>>;

    /// A summary of each package; none where the catalog has no summaries.
    fn summaries<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Vec<PackageSummary>, String>>;
}

/// Catalogs that catalogd serves over HTTP.
pub struct Catalogd {
    pub client: ClientFactory,
    /// How a bundle's release is read (gate BundleReleaseSupport).
    pub release: ReleaseField,
    /// Content on disk, so that a restart reads nothing again.
    pub store: PackageStore,
}

impl Catalogd {
    /// The status names the address, not how far it is trusted: over https, with the configured CA.
    fn route(&self, endpoint: &Endpoint) -> Result<Route, String> {
        let scheme = endpoint.base.split_once("://").map_or("", |(scheme, _)| scheme);
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(format!("status.urls.base {:?} is not https; catalogd sets it", endpoint.base));
        }
        Ok(Route::Direct((self.client)()?))
    }
}

impl PackageSource for Catalogd {
    fn graph<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        package: &'a PackageName,
    ) -> BoxFuture<'a, Result<Arc<PackageGraph>, CatalogReadError>> {
        Box::pin(async move {
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
            let content = |error: String| CatalogReadError::Content(error);
            let graph = reading.await.map_err(|error| content(error.to_string()))?;
            graph.map_err(|error| content(error.to_string()))
        })
    }

    fn summaries<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Vec<PackageSummary>, String>> {
        Box::pin(async move {
            let route = self.route(endpoint)?;
            let lines = served::summary_lines(&route, Some(&self.store), endpoint)
                .await
                .map_err(|error| error.to_string())?
                .unwrap_or_default();
            let lines = lines.split(|byte| *byte == b'\n');
            Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
        })
    }
}

fn read(
    package: &PackageName,
    lines: &[u8],
    release: ReleaseField,
) -> Result<Arc<PackageGraph>, PackageLimitError> {
    let graph = PackageContent::from_lines(package, lines)?.into_graph(release);
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
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connection = tokio::spawn(async move { listener.accept().await.map(drop) });
        let dir = tempfile::tempdir().unwrap();
        let cas = dir.path().join("cas");
        std::fs::create_dir(&cas).unwrap();
        let params = rcgen::CertificateParams::new(vec!["c.test".to_owned()]).unwrap();
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        std::fs::write(cas.join("ca.crt"), certificate.pem()).unwrap();
        let client = super::super::client::factory(Some(cas), None, olm_runtime::tls::TlsSettings::default());
        let client_alone = client().unwrap();
        let store = PackageStore::new(dir.path(), olm_catalog::package_store::DEFAULT_BYTES);
        let catalogd = Catalogd { client, release: ReleaseField::default(), store };
        for base in [format!("http://{address}/catalogs/c"), format!("HTTP://{address}/c"), String::new()] {
            let endpoint = Endpoint {
                catalog: "c".parse().unwrap(),
                base: base.clone(),
                resolved: format!("example.com/c@sha256:{}", "1".repeat(64)),
            };
            let got = catalogd.graph(&endpoint, &"demo".parse().unwrap()).await;
            let Err(CatalogReadError::Fetch(why)) = got else { panic!("{base}: {got:?}") };
            assert!(why.contains("is not https"), "{why}");
            assert!(client_alone.get(&base).send().await.is_err(), "{base}");
        }
        assert!(!connection.is_finished(), "no connection was made");
    }
}
