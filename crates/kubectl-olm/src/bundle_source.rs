//! The source of a bundle: a directory, or an image of a registry. The arguments that all bundle verbs share.
//!
//! Images are cached in the user's cache directory by digest, so that a second use costs one request for a tag and none
//! for a digest.

use std::path::Path;

use clap::Args;
use olm_bundle::RegistryV1;
use olm_install::{BundleError, BundleFetcher};
use olm_oci::{Error as ImageError, Store};
use olm_runtime::error_text::chain;

use crate::failure::{CommandError, wait};
use crate::sources::{Cache, Registry, Sources};

/// The bundle.
#[derive(Debug, Clone, Args)]
pub(crate) struct BundleSource {
    /// Directory with manifests/ and metadata/, or a bundle image with its registry and a tag or digest
    #[arg(value_name = "DIR|IMAGE")]
    pub(crate) bundle: String,
    #[command(flatten)]
    pub(crate) access: BundleAccess,
}

/// Access to bundle images, and their cache.
#[derive(Debug, Clone, Args)]
pub(crate) struct BundleAccess {
    #[command(flatten)]
    registry: Registry,
    #[command(flatten)]
    cache: Cache,
}

impl BundleSource {
    pub(crate) fn load(&self) -> Result<RegistryV1, CommandError> {
        self.access.load(&self.bundle)
    }

    /// An error in this bundle.
    pub(crate) fn failure(&self, error: impl std::fmt::Display) -> CommandError {
        CommandError::content(Path::new(&self.bundle), error)
    }
}

impl BundleAccess {
    /// A path that exists is a directory, or is meant to be one; everything else is an image.
    pub(crate) fn load(&self, source: &str) -> Result<RegistryV1, CommandError> {
        let path = Path::new(source);
        if path.exists() || source.starts_with(['/', '.']) {
            return RegistryV1::load_dir(path).map_err(|error| CommandError::content(path, error));
        }
        if !source.contains('/') {
            let message = "there is no such directory, and an image is named with its registry: quay.io/example/bundle:tag";
            return Err(CommandError::content(path, message));
        }
        wait(self.pull(source))
    }

    /// With the flags of a verb that reads catalogs.
    pub(crate) fn from_sources(sources: &Sources) -> Self {
        Self { registry: sources.registry.clone(), cache: sources.cache.clone() }
    }

    /// Fetches bundles into the cache.
    pub(crate) async fn fetcher(&self) -> Result<BundleFetcher, CommandError> {
        let directory = self.cache.directory().ok_or_else(|| {
            CommandError::Usage(
                "there is no home directory to keep the image in; give --cache-dir".to_owned(),
            )
        })?;
        let root = directory.join("bundles");
        let opened = tokio::task::spawn_blocking(move || Store::open(&root)).await;
        let opened =
            opened.map_err(|error| CommandError::Usage(format!("cannot open the cache: {error}")))?;
        let store = opened.map_err(|error| CommandError::Read {
            path: directory.clone(),
            source: std::io::Error::other(format!("{}; give another --cache-dir", chain(&error))),
        })?;
        Ok(BundleFetcher::new(self.registry.access().puller(), store))
    }

    /// The bundle of an image.
    pub(crate) async fn pull(&self, reference: &str) -> Result<RegistryV1, CommandError> {
        let fetcher = self.fetcher().await?;
        fetcher.fetch(reference).await.map_err(|error| match &error {
            BundleError::Parse(_) => CommandError::content(Path::new(reference), chain(&error)),
            BundleError::Image(ImageError::ReferenceForm { .. } | ImageError::ReferenceSyntax { .. }) => {
                CommandError::Usage(format!("{}; write quay.io/example/bundle:tag", chain(&error)))
            }
            BundleError::Image(_) | BundleError::Task(_) => CommandError::Unreachable(chain(&error)),
        })
    }
}
