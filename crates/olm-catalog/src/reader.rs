//! One interface to catalogs that are served in a cluster, in an image, or in a directory.
//!
//! The commands of the CLI, and tests, do not depend on the kind of catalog. No bundle is chosen here: `olm-install` and the
//! resolver do that with the content. A reader is made for one command; it does not watch.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Api;
use kube::api::ListParams;
use olm_api::ClusterCatalog;
use olm_core::{CatalogName, PackageName};
use olm_fbc::{Finding, IngestError, PackageContents, PackageLimitError, PackageSummary};
use olm_resolver::{CatalogReadError, CatalogSource, PackageGraph, ReleaseField};
use olm_runtime::error_text::chain;
use olm_runtime::watched::{Received, readable};

use crate::access::AccessError;
use crate::catalog::{CatalogFacts, Unserved, selected};
use crate::catalogd::{self, Endpoint, MAX_PACKAGE};
use crate::image::CatalogImageError;
use crate::image_store::CatalogImage;
use crate::local::{self, LocalCatalog};
use crate::package_store::PackageStore;
use crate::route::{Route, proxy_path};
use crate::served;
use kube::core::Selector;

/// Catalogs that are read at the same time.
const PARALLEL: usize = 8;

/// Catalogs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No cluster.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The cluster does not list its catalogs.
    #[error("cannot list ClusterCatalogs: {0}")]
    List(String),
    /// There is no catalog of this name.
    #[error("there is no catalog {name:?}; there are {known}")]
    NoCatalog {
        /// The requested name.
        name: String,
        /// The names of the available ones.
        known: String,
    },
    /// A catalog exists but cannot be read.
    #[error("catalog {catalog}: {why}")]
    Catalog { catalog: CatalogName, why: String },
    /// A directory cannot be read.
    #[error("cannot read catalog directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: IngestError },
    /// An image cannot be read.
    #[error(transparent)]
    Image(#[from] CatalogImageError),
    /// A reading task died.
    #[error("reading did not end: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl ReadError {
    fn new(catalog: &CatalogFacts, error: &dyn Display) -> Self {
        Self::Catalog { catalog: catalog.name.clone(), why: error.to_string() }
    }
}

/// The content of a catalog for one package.
#[derive(Debug, Clone, Default)]
pub struct PackageContent {
    pub contents: PackageContents,
    /// The objects that do not decode.
    pub findings: Vec<Finding>,
}

impl PackageContent {
    /// Decodes JSON lines.
    ///
    /// # Errors
    /// As [`PackageContents::from_lines`].
    pub fn from_lines(package: &PackageName, lines: &[u8]) -> Result<Self, PackageLimitError> {
        let (contents, findings) = PackageContents::from_jsonl(package.as_str(), lines)?;
        Ok(Self { contents, findings })
    }

    /// Whether the catalog has no content for the package.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents == PackageContents::default() && self.findings.is_empty()
    }

    /// The graph of the package for the resolver.
    #[must_use]
    pub fn into_graph(self, release: ReleaseField) -> PackageGraph {
        if self.is_empty() {
            return PackageGraph::empty();
        }
        PackageGraph::new(self.contents, self.findings, release)
    }
}

/// Catalogs and the source of their content.
#[derive(Debug, Clone)]
pub struct CatalogReader {
    catalogs: Vec<CatalogFacts>,
    content: Content,
    /// Files and objects that were passed over.
    warnings: Vec<String>,
}

#[derive(Debug, Clone)]
enum Content {
    Served(Arc<Served>),
    Local(Arc<LocalCatalog>),
}

#[derive(Debug)]
struct Served {
    /// The route that the user configured.
    configured: Option<Route>,
    /// The route to Services of the cluster.
    proxy: Route,
    /// The route to other addresses.
    direct: Route,
    store: Option<PackageStore>,
}

/// Settings for fetching the content of the cluster's catalogs.
#[derive(Debug, Clone, Default)]
pub struct Fetching {
    /// Another address of catalogd; else its Service through the apiserver, else the address of the catalog's status.
    pub address: Option<String>,
    /// For connections straight to catalogd.
    pub direct: reqwest::Client,
    /// Cache on disk.
    pub store: Option<PackageStore>,
}

impl CatalogReader {
    /// All ClusterCatalogs of the cluster.
    ///
    /// # Errors
    /// When they cannot be listed. A catalog that does not serve is no error here; an object that does not fit its type is passed over
    /// ([`Self::warnings`]).
    pub async fn cluster(client: kube::Client, fetching: Fetching) -> Result<Self, ReadError> {
        let api: Api<Received<ClusterCatalog>> = Api::all(client.clone());
        let listed =
            api.list(&ListParams::default()).await.map_err(|error| ReadError::List(chain(&error)))?;
        let (listed, warnings) = readable(listed.items);
        let mut catalogs: Vec<CatalogFacts> = listed.iter().filter_map(CatalogFacts::from_catalog).collect();
        catalogs.sort_by(|a, b| a.name.cmp(&b.name));
        let Fetching { address, direct, store } = fetching;
        let served = Served {
            configured: address.map(|address| Route::Address(direct.clone(), address)),
            proxy: Route::Proxy(client),
            direct: Route::Direct(direct),
            store,
        };
        Ok(Self { catalogs, content: Content::Served(Arc::new(served)), warnings })
    }

    /// The files of a directory, as one catalog named after it.
    ///
    /// # Errors
    /// When the directory cannot be read. Files that do not decode are passed over ([`Self::warnings`]).
    pub async fn directory(path: &Path) -> Result<Self, ReadError> {
        let owned = path.to_owned();
        let (catalog, warnings) = tokio::task::spawn_blocking(move || local::directory(&owned))
            .await?
            .map_err(|source| ReadError::Directory { path: path.to_owned(), source })?;
        let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = absolute.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        Ok(Self::local(name, path.display().to_string(), catalog, warnings))
    }

    /// A catalog image, as one catalog named after its repository.
    #[must_use]
    pub fn image(image: CatalogImage) -> Self {
        let reference = image.reference.clone();
        let (name, _) = reference.split_once('@').unwrap_or((&reference, ""));
        let repository = name.rsplit('/').next().unwrap_or_default().to_owned();
        let warnings = image.opened.passed_over.clone();
        Self::local(&repository, reference, LocalCatalog::Image(Box::new(image)), warnings)
    }

    fn local(name: &str, resolved: String, catalog: LocalCatalog, warnings: Vec<String>) -> Self {
        let name = catalog_name(name);
        let endpoint = name.clone().map(|catalog| Endpoint { catalog, base: String::new(), resolved });
        let catalogs = name.zip(endpoint).map(|(name, endpoint)| CatalogFacts {
            labels: [(olm_api::labels::METADATA_NAME.to_owned(), name.to_string())].into(),
            name,
            priority: 0,
            available: true,
            endpoint: Ok(endpoint),
        });
        Self {
            catalogs: catalogs.into_iter().collect(),
            content: Content::Local(Arc::new(catalog)),
            warnings,
        }
    }

    /// The catalogs, by name.
    #[must_use]
    pub fn catalogs(&self) -> &[CatalogFacts] {
        &self.catalogs
    }

    /// ClusterCatalogs, or files of a directory or an image, that do not decode and were passed over.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Only the catalog of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn only(mut self, name: &str) -> Result<Self, ReadError> {
        let known = self.catalogs.iter().map(|facts| facts.name.to_string()).collect::<Vec<_>>().join(", ");
        self.catalogs.retain(|facts| facts.name.as_str() == name);
        if self.catalogs.is_empty() {
            let known = if known.is_empty() { "none".to_owned() } else { known };
            return Err(ReadError::NoCatalog { name: name.to_owned(), known });
        }
        Ok(self)
    }

    /// The available catalogs that a selector matches.
    #[must_use]
    pub fn select(&self, selector: &Selector) -> Vec<CatalogFacts> {
        selected(self.catalogs.iter().cloned(), selector)
    }

    /// One package of one catalog; empty when the catalog does not have it.
    ///
    /// # Errors
    /// When the catalog does not serve or cannot be read.
    pub async fn package(
        &self,
        catalog: &CatalogFacts,
        package: &PackageName,
    ) -> Result<PackageContent, ReadError> {
        let lines = self.lines(catalog, package).await?;
        let mut content = decode(catalog, package, lines).await?;
        // the default channel and the description are in an object that catalogd's route for a package leaves out
        if content.contents.package.is_none()
            && !content.is_empty()
            && let Content::Served(cluster) = &self.content
        {
            let (route, endpoint) = self.route(catalog)?;
            let line = served::package_object(&route, cluster.store.as_ref(), endpoint, package).await;
            let line = line.map_err(|error| ReadError::new(catalog, &error))?;
            let PackageContent { contents, findings } = decode(catalog, package, line).await?;
            content.contents.package = contents.package;
            content.findings.extend(findings);
        }
        Ok(content)
    }

    /// The input of the resolver: the package of each catalog, or why it is not available.
    pub async fn sources(
        &self,
        catalogs: &[CatalogFacts],
        package: &PackageName,
        release: ReleaseField,
    ) -> Vec<CatalogSource> {
        use futures::StreamExt as _;
        let sources = catalogs.iter().map(|facts| async move {
            let content = match &facts.endpoint {
                Err(unserved) => Err(unserved.problem(&facts.name)),
                Ok(_) => match self.package(facts, package).await {
                    Ok(content) => Ok(Arc::new(content.into_graph(release))),
                    Err(ReadError::Catalog { why, .. }) => Err(CatalogReadError::Fetch(why)),
                    Err(error) => Err(CatalogReadError::Fetch(error.to_string())),
                },
            };
            CatalogSource { name: facts.name.clone(), priority: facts.priority, content }
        });
        futures::stream::iter(sources).buffered(PARALLEL).collect().await
    }

    /// Every package of one catalog in brief, by name.
    ///
    /// # Errors
    /// As [`Self::package`].
    pub async fn packages(&self, catalog: &CatalogFacts) -> Result<Vec<PackageSummary>, ReadError> {
        let failed = |error: &dyn Display| ReadError::new(catalog, error);
        match &self.content {
            Content::Local(local) => {
                let local = Arc::clone(local);
                let summaries = tokio::task::spawn_blocking(move || local.summaries()).await?;
                summaries.map_err(|error| failed(&error))
            }
            Content::Served(cluster) => {
                let (route, endpoint) = self.route(catalog)?;
                let lines = served::summary_lines(&route, cluster.store.as_ref(), endpoint).await;
                if let Some(lines) = lines.map_err(|error| failed(&error))? {
                    return summaries(&lines).map_err(|error| failed(&error));
                }
                // the reference's catalogd has no such endpoint: read the whole catalog
                let all = catalogd::all_lines(&route, endpoint).await.map_err(|error| failed(&error))?;
                let summed = tokio::task::spawn_blocking(move || local::summaries_of(&all)).await?;
                summed.map_err(|error| failed(&error))
            }
        }
    }

    async fn lines(&self, catalog: &CatalogFacts, package: &PackageName) -> Result<Vec<u8>, ReadError> {
        match &self.content {
            Content::Local(local) => {
                let (local, package) = (Arc::clone(local), package.clone());
                let lines = tokio::task::spawn_blocking(move || local.lines(package.as_str())).await?;
                lines.map_err(|error| ReadError::new(catalog, &error))
            }
            Content::Served(cluster) => {
                let (route, endpoint) = self.route(catalog)?;
                served::package_lines(&route, cluster.store.as_ref(), endpoint, package, MAX_PACKAGE)
                    .await
                    .map_err(|error| ReadError::new(catalog, &error))
            }
        }
    }

    /// The route to a served catalog: the configured one, else through the API server to a Service, else direct.
    fn route<'a>(&self, catalog: &'a CatalogFacts) -> Result<(Route, &'a Endpoint), ReadError> {
        let unserved = |unserved: &Unserved| ReadError::new(catalog, &unserved.describe(&catalog.name));
        let endpoint = catalog.endpoint.as_ref().map_err(unserved)?;
        match &self.content {
            Content::Local(_) => Err(ReadError::new(catalog, &"is not served")),
            Content::Served(served) => {
                let is_service = proxy_path(&endpoint.base).is_some();
                let usual = if is_service { &served.proxy } else { &served.direct };
                Ok((served.configured.as_ref().unwrap_or(usual).clone(), endpoint))
            }
        }
    }
}

async fn decode(
    catalog: &CatalogFacts,
    package: &PackageName,
    lines: Vec<u8>,
) -> Result<PackageContent, ReadError> {
    let package = package.clone();
    let content = tokio::task::spawn_blocking(move || PackageContent::from_lines(&package, &lines)).await?;
    content.map_err(|error| ReadError::new(catalog, &error))
}

/// Reads a response of catalogd's `packages` endpoint.
fn summaries(lines: &[u8]) -> Result<Vec<PackageSummary>, serde_json::Error> {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
    let mut summaries = lines.map(serde_json::from_slice).collect::<Result<Vec<PackageSummary>, _>>()?;
    summaries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(summaries)
}

/// A name that a ClusterCatalog could have.
fn catalog_name(text: &str) -> Option<CatalogName> {
    let kept = |letter: char| {
        if letter.is_ascii_alphanumeric() || letter == '.' { letter.to_ascii_lowercase() } else { '-' }
    };
    let name: String = text.split(':').next().unwrap_or_default().chars().map(kept).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "catalog".parse().ok() } else { name.parse().ok() }
}
