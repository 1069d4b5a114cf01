//! Catalogs and bundles of images as the controllers read them, wherever they come from.
//!
//! Rule: classic-apis §2.5, §5.5, decision 53.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use olm_api::classic::CatalogSource;
use olm_catalog::{CatalogImage, CatalogImageError};
use olm_core::Object;
use olm_install::bundle::BundleError;
use olm_oci::Retry;
use olm_runtime::error_text::chain;

use crate::images::Images;

/// Access to images.
pub trait ImageSource: Send + Sync {
    /// The catalog of an image, with the credentials of `source`. A tag is resolved again each time; while its registry is not available,
    /// the catalog may be the one that the tag had before, and that of a digest the stored one, see [`CatalogContent::problem`].
    ///
    /// # Errors
    /// When it cannot be pulled or read.
    fn catalog<'a>(
        &'a self,
        source: &'a CatalogSource,
        reference: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn CatalogContent>, FetchError>>;

    /// The manifests of a bundle, its ClusterServiceVersion first, with the credentials of the catalog that names it.
    ///
    /// # Errors
    /// When its image cannot be pulled or read.
    fn bundle<'a>(
        &'a self,
        source: &'a CatalogSource,
        image: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Object>, FetchError>>;

    /// Removes images that are not in use, unless they were a short time ago, from where this keeps them.
    fn collect(&self, _in_use: ImagesInUse) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Images to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImagesInUse {
    /// References of catalogs, each with the namespace of its CatalogSource.
    pub catalogs: BTreeSet<(String, String)>,
    /// References of bundles.
    pub bundles: BTreeSet<String>,
}

/// The content of a catalog. Its methods may block.
pub trait CatalogContent: Send + Sync {
    /// The reference with the digest of the image.
    fn reference(&self) -> &str;

    /// Why this is what was stored before, and may not be what the registry has now; `None`: it is what it has.
    fn problem(&self) -> Option<&str> {
        None
    }

    /// About how many bytes of memory it takes, once for all catalogs of its digest.
    fn memory(&self) -> usize {
        0
    }

    /// Names of the packages, sorted.
    fn packages(&self) -> Vec<String>;

    /// The JSON lines of one package.
    ///
    /// # Errors
    /// When they cannot be read.
    fn package_lines(&self, package: &str) -> io::Result<Vec<u8>>;
}

/// An image cannot be pulled or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FetchError {
    pub message: String,
    /// Another attempt at the same image ends in the same error.
    pub is_final: bool,
}

impl CatalogContent for CatalogImage {
    fn reference(&self) -> &str {
        Self::reference(self)
    }

    fn memory(&self) -> usize {
        Self::memory(self)
    }

    fn packages(&self) -> Vec<String> {
        Self::packages(self)
    }

    fn package_lines(&self, package: &str) -> io::Result<Vec<u8>> {
        Self::package_lines(self, package)
    }
}

/// The catalog that was stored before.
struct RecordedCatalog {
    image: CatalogImage,
    problem: String,
}

impl CatalogContent for RecordedCatalog {
    fn reference(&self) -> &str {
        self.image.reference()
    }

    fn problem(&self) -> Option<&str> {
        Some(&self.problem)
    }

    fn memory(&self) -> usize {
        self.image.memory()
    }

    fn packages(&self) -> Vec<String> {
        self.image.packages()
    }

    fn package_lines(&self, package: &str) -> io::Result<Vec<u8>> {
        self.image.package_lines(package)
    }
}

impl ImageSource for Images {
    fn catalog<'a>(
        &'a self,
        source: &'a CatalogSource,
        reference: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn CatalogContent>, FetchError>> {
        let failed =
            |error: CatalogImageError| FetchError { message: chain(&error), is_final: error.is_permanent() };
        async move {
            let images = self.catalogs(source).await;
            let images = images.map_err(|message| FetchError { message, is_final: false })?;
            let scope = source.metadata.namespace.as_deref().unwrap_or_default();
            match images.open_or_recorded(scope, reference).await {
                Ok((image, None)) => Ok(Arc::new(image) as Arc<dyn CatalogContent>),
                Ok((image, Some(error))) => {
                    Ok(Arc::new(RecordedCatalog { image, problem: chain(&error) }) as Arc<dyn CatalogContent>)
                }
                Err(error) => Err(failed(error)),
            }
        }
        .boxed()
    }

    fn bundle<'a>(
        &'a self,
        source: &'a CatalogSource,
        image: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Object>, FetchError>> {
        let failed = |error: BundleError| FetchError {
            message: chain(&error),
            is_final: match error {
                // another policy or a signature that comes later accepts it
                BundleError::Image(error) if error.is_of_policy() => false,
                BundleError::Image(error) => matches!(error.retry(), Retry::Slow),
                BundleError::Parse(_) | BundleError::Quarantined { .. } => true,
                BundleError::SlowRead { .. } | BundleError::Slow { .. } | BundleError::Task(_) => false,
            },
        };
        async move {
            let fetcher = self.bundles(source).await;
            let fetcher = fetcher.map_err(|message| FetchError { message, is_final: false })?;
            let bundle = fetcher.fetch(image).await.map_err(failed)?;
            Ok(std::iter::once(bundle.csv.whole()).chain(bundle.crds).chain(bundle.others).collect())
        }
        .boxed()
    }

    fn collect(&self, in_use: ImagesInUse) -> BoxFuture<'_, ()> {
        self.remove_unused(in_use).boxed()
    }
}
