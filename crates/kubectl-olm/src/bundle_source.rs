//! Where a bundle is read from: a directory, or an image of a registry. The arguments that all bundle verbs share.
//!
//! Images are kept in the user's cache directory by digest, so that a second question costs one request for a tag and none
//! for a digest.

use std::path::Path;

use clap::Args;
use olm_bundle::RegistryV1;
use olm_install::{BundleError, BundleFetcher};
use olm_oci::{Error as ImageError, Store};
use olm_runtime::error_text::chain;

use crate::failure::{Failure, wait};
use crate::sources::{Cache, Registry, Sources};

/// Which bundle.
#[derive(Debug, Clone, Args)]
pub(crate) struct BundleSource {
    /// Directory with manifests/ and metadata/, or a bundle image with its registry and a tag or digest
    #[arg(value_name = "DIR|IMAGE")]
    pub(crate) bundle: String,
    #[command(flatten)]
    pub(crate) access: BundleAccess,
}

/// How bundle images are reached and where they are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct BundleAccess {
    #[command(flatten)]
    registry: Registry,
    #[command(flatten)]
    cache: Cache,
}

impl BundleSource {
    pub(crate) fn load(&self) -> Result<RegistryV1, Failure> {
        self.access.load(&self.bundle)
    }

    /// Something about this bundle.
    pub(crate) fn failure(&self, error: impl std::fmt::Display) -> Failure {
        Failure::content(Path::new(&self.bundle), error)
    }
}

impl BundleAccess {
    /// A path that exists is a directory, or is meant to be one; everything else is an image.
    pub(crate) fn load(&self, source: &str) -> Result<RegistryV1, Failure> {
        let path = Path::new(source);
        if path.exists() || source.starts_with(['/', '.']) {
            return RegistryV1::load_dir(path).map_err(|error| Failure::content(path, error));
        }
        if !source.contains('/') {
            let message = "there is no such directory, and an image is named with its registry: quay.io/example/bundle:tag";
            return Err(Failure::content(path, message));
        }
        wait(self.pull(source))
    }

    /// As a verb that reads catalogs was told to reach registries.
    pub(crate) fn of(sources: &Sources) -> Self {
        Self { registry: sources.registry.clone(), cache: sources.cache.clone() }
    }

    /// The bundle of an image.
    pub(crate) async fn pull(&self, reference: &str) -> Result<RegistryV1, Failure> {
        let directory = self.cache.directory().ok_or_else(|| {
            Failure::Usage("there is no home directory to keep the image in; give --cache-dir".to_owned())
        })?;
        let root = directory.join("bundles");
        let opened = tokio::task::spawn_blocking(move || Store::open(&root)).await;
        let opened = opened.map_err(|error| Failure::Usage(format!("cannot open the cache: {error}")))?;
        let store = opened.map_err(|error| Failure::Read {
            path: directory.clone(),
            source: std::io::Error::other(format!("{}; give another --cache-dir", chain(&error))),
        })?;
        let fetcher = BundleFetcher::new(self.registry.access().puller(), store);
        fetcher.fetch(reference).await.map_err(|error| match &error {
            BundleError::Parse(_) => Failure::content(Path::new(reference), chain(&error)),
            BundleError::Image(ImageError::ReferenceForm { .. } | ImageError::ReferenceSyntax { .. }) => {
                Failure::Usage(format!("{}; write quay.io/example/bundle:tag", chain(&error)))
            }
            BundleError::Image(_) | BundleError::Task(_) => Failure::Unreachable(chain(&error)),
        })
    }
}
