//! The source of a bundle: a directory, or an image of a registry. The arguments that all bundle verbs share.
//!
//! Images are cached in the user's cache directory by digest, so that a second use costs one request for a tag and none
//! for a digest.

use std::path::Path;

use clap::Args;
use kube::Client;
use olm_bundle::{CertProvider, ParseError, RegistryV1};
use olm_install::render::{RenderSettings, Rendered, not_fetched, render};
use olm_install::resolution::{ExtensionRequest, PassError};
use olm_install::{BundleError, BundleFetcher};
use olm_oci::Error as ImageError;
use olm_runtime::error_text::chain;

use crate::failure::{CommandError, check_directory};
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

/// Whether `source` is a directory; everything else is an image. `otherwise` is the error of what can be neither; what is written as a
/// path has to be a directory.
pub(crate) fn is_directory(source: &str, otherwise: &str) -> Result<bool, CommandError> {
    let path = Path::new(source);
    let is_path = path.exists() || source.starts_with(['/', '.']);
    if !is_path && !source.contains('/') {
        return Err(CommandError::Usage(format!("{source}: {otherwise}")));
    }
    if is_path {
        check_directory(path)?;
    }
    Ok(is_path)
}

/// The bundle in a directory.
pub(crate) fn load_directory(path: &Path) -> Result<RegistryV1, CommandError> {
    const ANNOTATIONS: &str = "metadata/annotations.yaml";
    RegistryV1::load_dir(path).map_err(|error| match &error {
        // an error of the parser, which does not name the file
        ParseError::Annotations { message } if !message.contains(ANNOTATIONS) => {
            CommandError::content(&path.join(ANNOTATIONS), message)
        }
        _ => CommandError::content(path, chain(&error)),
    })
}

impl BundleSource {
    pub(crate) async fn load(&self) -> Result<RegistryV1, CommandError> {
        self.access.load(&self.bundle).await
    }

    pub(crate) fn failure(&self, error: impl std::fmt::Display) -> CommandError {
        CommandError::content(Path::new(&self.bundle), error)
    }
}

impl BundleAccess {
    pub(crate) async fn load(&self, source: &str) -> Result<RegistryV1, CommandError> {
        let otherwise =
            "there is no such directory, and an image is named with its registry: quay.io/example/bundle:tag";
        if is_directory(source, otherwise)? {
            return load_directory(Path::new(source));
        }
        self.pull(source).await
    }

    /// With the flags of a verb that reads catalogs.
    pub(crate) fn from_sources(sources: &Sources) -> Self {
        Self::new(&sources.registry, &sources.cache)
    }

    pub(crate) fn new(registry: &Registry, cache: &Cache) -> Self {
        Self { registry: registry.clone(), cache: cache.clone() }
    }

    pub(crate) async fn fetcher(&self) -> Result<BundleFetcher, CommandError> {
        let store = self.cache.images("bundles").await?;
        Ok(BundleFetcher::new(self.registry.access().puller(), store))
    }

    /// The bundle image as the controller renders it for `request`. `settled` is the issuer of the extension's status.
    pub(crate) async fn render(
        &self,
        client: &Client,
        settings: RenderSettings,
        request: &ExtensionRequest,
        reference: &str,
        settled: Option<CertProvider>,
    ) -> Result<Result<Rendered, PassError>, CommandError> {
        let fetcher = self.fetcher().await?;
        let read = async { fetcher.pull(reference).await?.read().await };
        Ok(match read.await {
            Ok(read) => render(client, settings, request, read, settled).await,
            Err(error) => Err(not_fetched(&error)),
        })
    }

    pub(crate) async fn pull(&self, reference: &str) -> Result<RegistryV1, CommandError> {
        let fetcher = self.fetcher().await?;
        fetcher.fetch(reference).await.map_err(|error| match &error {
            BundleError::Parse(_) => CommandError::content(Path::new(reference), chain(&error)),
            BundleError::Image(ImageError::ReferenceForm { .. } | ImageError::ReferenceSyntax { .. }) => {
                CommandError::Usage(format!("{}; write quay.io/example/bundle:tag", chain(&error)))
            }
            BundleError::Image(_)
            | BundleError::Task(_)
            | BundleError::Slow { .. }
            | BundleError::SlowRead { .. }
            | BundleError::Quarantined { .. } => CommandError::Unreachable(chain(&error)),
        })
    }
}
