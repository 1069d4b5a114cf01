//! Bundles of extensions: fetched with the credentials of the cluster, rendered, and collected from the disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use olm_bundle::CertProvider;
use olm_install::BundleFetcher;
use olm_install::bundle::BundleError;
use olm_install::render::{RenderSettings, Rendered, not_fetched, render};
use olm_install::resolution::{BundleFacts, Class, ExtensionRequest, PassError};
use olm_runtime::controller::Workers;
use olm_runtime::pull_secrets;

use crate::credentials::PullSecrets;

/// Brings the objects of bundles.
pub trait BundleSource: Send + Sync {
    /// Fetches and renders. `settled` is the issuer that [`RenderSettings::settled`] returns. Fails with the text for the condition,
    /// without the bundle's name.
    fn render<'a>(
        &'a self,
        request: &'a ExtensionRequest,
        bundle: &'a BundleFacts,
        settled: Option<CertProvider>,
    ) -> BoxFuture<'a, Result<Rendered, PassError>>;

    /// Removes bundles from the disk whose images are not among `used`, unless they were used within `age`.
    fn tidy(&self, used: BTreeSet<String>, age: Duration) -> BoxFuture<'_, ()>;
}

pub struct RegistryBundles {
    client: Client,
    fetcher: BundleFetcher,
    secrets: PullSecrets,
    settings: RenderSettings,
    workers: Arc<Workers>,
}

impl RegistryBundles {
    /// A pass that waits for a registry releases its turn among `workers` meanwhile.
    #[must_use]
    pub fn new(
        client: Client,
        fetcher: BundleFetcher,
        secrets: PullSecrets,
        settings: RenderSettings,
        workers: Arc<Workers>,
    ) -> Self {
        Self { client, fetcher, secrets, settings, workers }
    }
}

/// A bundle that cannot be pulled, with where credentials go if they are missing.
pub(crate) fn with_remedy(error: &BundleError) -> PassError {
    let failed = not_fetched(error);
    match error {
        BundleError::Image(image) if image.is_unauthorized() => {
            let remedy = pull_secrets::remedy("operator-controller");
            PassError { message: format!("{}; {remedy}", failed.message), ..failed }
        }
        _ => failed,
    }
}

impl BundleSource for RegistryBundles {
    fn render<'a>(
        &'a self,
        request: &'a ExtensionRequest,
        bundle: &'a BundleFacts,
        settled: Option<CertProvider>,
    ) -> BoxFuture<'a, Result<Rendered, PassError>> {
        Box::pin(async move {
            self.secrets.refresh().await.map_err(|text| PassError::new(Class::Transient, text))?;
            let pulled = self.workers.away(self.fetcher.pull(&bundle.reference)).await;
            let pulled = pulled.map_err(|stopping| PassError::new(Class::Transient, stopping.to_string()))?;
            let pulled = pulled.map_err(|error| with_remedy(&error))?;
            // with a turn: so no more rendered bundles are in memory than passes work at the same time
            let read = pulled
                .requested(request.requested_at.as_deref(), request.quarantine.as_deref())
                .map_err(|error| not_fetched(&error))?
                .read()
                .await
                .map_err(|error| not_fetched(&error))?;
            render(&self.client, self.settings, request, read, settled).await
        })
    }

    fn tidy(&self, used: BTreeSet<String>, age: Duration) -> BoxFuture<'_, ()> {
        let fetcher = self.fetcher.clone();
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || fetcher.collect(&used, age)).await {
                Ok(Ok(0)) => {}
                Ok(Ok(bundles)) => tracing::info!(bundles, "unused bundles were removed"),
                Ok(Err(error)) => tracing::warn!(%error, "unused bundles could not be removed"),
                Err(error) => tracing::warn!(%error, "the removal of unused bundles did not end"),
            }
        })
    }
}
