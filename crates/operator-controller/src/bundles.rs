//! Bundles of extensions: fetched with the credentials of the cluster, rendered, and collected from the disk.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use olm_bundle::{CertProvider, Gates};
use olm_install::BundleFetcher;
use olm_install::render::{RenderSettings, Rendered, not_fetched, render};
use olm_install::resolution::{BundleFacts, Class, ExtensionRequest, PassError};
use olm_runtime::controller::Workers;
use parking_lot::Mutex;

use crate::certificates::provider::{Issuers, Preference};
use crate::credentials::PullSecrets;

/// Fetches and renders bundles.
pub struct Bundles {
    client: Client,
    fetcher: BundleFetcher,
    secrets: PullSecrets,
    pub settings: RenderSettings,
    workers: Arc<Workers>,
    /// The last image of each extension, by its UID: it stays on disk while the extension is retried.
    last: Mutex<HashMap<String, String>>,
}

impl Bundles {
    /// Renders with these gates, and with the issuer that is preferred, allowed and present. A pass that waits for a registry
    /// releases its turn among `workers` meanwhile.
    #[must_use]
    pub fn new(
        client: Client,
        fetcher: BundleFetcher,
        secrets: PullSecrets,
        gates: Gates,
        preference: Preference,
        issuers: Issuers,
        workers: Arc<Workers>,
    ) -> Self {
        let settings = RenderSettings { gates, preference, issuers };
        Self { client, fetcher, secrets, settings, workers, last: Mutex::default() }
    }

    /// Fetches and renders. `settled` is the issuer that [`RenderSettings::settled`] returns.
    ///
    /// # Errors
    /// With the text for the condition, without the bundle's name.
    pub async fn render(
        &self,
        request: &ExtensionRequest,
        bundle: &BundleFacts,
        settled: Option<CertProvider>,
    ) -> Result<Rendered, PassError> {
        self.secrets.refresh().await.map_err(|text| PassError::new(Class::Transient, text))?;
        self.last.lock().insert(request.uid.clone(), bundle.reference.clone());
        let pulled = self.workers.away(self.fetcher.pull(&bundle.reference)).await;
        let pulled = pulled.map_err(|stopping| PassError::new(Class::Transient, stopping.to_string()))?;
        let pulled = pulled.map_err(|error| not_fetched(&error))?;
        // with a turn: so no more rendered bundles are in memory than passes work at the same time
        let read = pulled
            .requested(request.requested_at.as_deref())
            .read()
            .await
            .map_err(|error| not_fetched(&error))?;
        render(&self.client, self.settings, request, read, settled).await
    }

    /// Removes bundles from the disk that neither an extension among `extensions` (UIDs) used last nor a revision names
    /// (`installed`), unless they were used within `age`. Reads and writes files.
    pub fn tidy(&self, extensions: &BTreeSet<String>, mut installed: BTreeSet<String>, age: Duration) {
        {
            let mut last = self.last.lock();
            last.retain(|uid, _| extensions.contains(uid));
            installed.extend(last.values().cloned());
        }
        match self.fetcher.collect(&installed, age) {
            Ok(0) => {}
            Ok(bundles) => tracing::info!(bundles, "unused bundles were removed"),
            Err(error) => tracing::warn!(%error, "unused bundles could not be removed"),
        }
    }
}
