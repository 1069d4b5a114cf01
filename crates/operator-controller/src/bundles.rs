//! A chosen bundle as objects: fetched, rendered, and how a failure is to be taken.
//!
//! Which certificate issuer serves webhooks is looked up in the cluster here (decision 13).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use olm_bundle::{
    CertProvider, Gates, PROPERTIES_ANNOTATION, RenderError, RenderOptions, render_with_report,
};
use olm_core::Object;
use olm_install::resolution::{BundleFacts, Cause, Class, Failure, Wish};
use olm_install::{BundleError, BundleFetcher};
use olm_oci::Retry;
use parking_lot::Mutex;
use serde_json::Value;

use crate::certificates::provider::{self, Issuers, Preference};
use crate::credentials::PullSecrets;
use crate::workers::Workers;

/// What a bundle renders to.
#[derive(Debug, Clone)]
pub struct Content {
    /// Objects.
    pub objects: Vec<Object>,
    /// The CSV's `olm.properties` annotation, if it has one.
    pub properties: Option<String>,
    /// What looks wrong but stops nothing.
    pub warnings: Vec<String>,
    /// Who issues webhook certificates: chosen now if the bundle has webhooks, else what was settled.
    pub issuer: Option<CertProvider>,
}

/// Brings bundles here and renders them.
pub struct Bundles {
    client: Client,
    fetcher: BundleFetcher,
    secrets: PullSecrets,
    gates: Gates,
    preference: Preference,
    issuers: Issuers,
    workers: Arc<Workers>,
    /// The image that each extension asked for last, by its UID: what is refused again and again is not pulled each time.
    last: Mutex<HashMap<String, String>>,
}

impl Bundles {
    /// Renders with these gates, and with the issuer that is preferred, allowed and present. A pass that waits for a registry
    /// gives its turn among `workers` away meanwhile.
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
        Self { client, fetcher, secrets, gates, preference, issuers, workers, last: Mutex::default() }
    }

    /// Gates and certificate issuer in words, part of what a revision is rendered from.
    #[must_use]
    pub fn options_text(&self, issuer: Option<CertProvider>) -> String {
        olm_install::desired::options_text(self.gates, issuer)
    }

    /// Who issues webhook certificates for an extension whose status says `kept`, as far as it is settled.
    #[must_use]
    pub fn settled(&self, kept: Option<CertProvider>) -> Option<CertProvider> {
        provider::settled(self.preference, self.issuers, kept)
    }

    /// Fetches and renders. `settled` is what [`Bundles::settled`] says.
    ///
    /// # Errors
    /// With the text for the condition, still without the bundle's name.
    pub async fn render(
        &self,
        wish: &Wish,
        bundle: &BundleFacts,
        settled: Option<CertProvider>,
    ) -> Result<Content, Failure> {
        self.secrets.refresh().await.map_err(|text| Failure::new(Class::Transient, text))?;
        self.last.lock().insert(wish.uid.clone(), bundle.reference.clone());
        let pulled = self.workers.away(self.fetcher.pull(&bundle.reference)).await;
        let pulled = pulled.map_err(|stopping| Failure::new(Class::Transient, stopping.to_string()))?;
        let pulled = pulled.map_err(|error| not_fetched(&error))?;
        // with a turn: so no more rendered bundles are in memory than passes work at the same time
        let read = pulled.read().await.map_err(|error| not_fetched(&error))?;
        let cert_provider =
            if read.bundle.csv.webhooks.is_empty() { None } else { Some(self.issuer(settled).await?) };
        let options = RenderOptions {
            install_namespace: wish.namespace.clone(),
            config: wish.config.clone().map(Value::Object),
            cert_provider,
            gates: self.gates,
        };
        let rendered = read
            .render(move |mut registry| {
                // not rendered, and as large as the rest of the bundle
                registry.csv.raw = Object::default();
                let properties = registry.csv.annotations.get(PROPERTIES_ANNOTATION).cloned();
                render_with_report(&registry, &options).map(|rendered| (rendered, properties))
            })
            .await
            .map_err(|error| Failure::new(Class::Transient, format!("rendering did not end: {error}")))?;
        let (rendered, properties) = rendered.map_err(|error| not_rendered(&error))?;
        Ok(Content {
            objects: rendered.objects,
            properties,
            warnings: rendered.warnings,
            issuer: cert_provider.or(settled),
        })
    }

    /// Takes bundles off the disk that neither an extension among `extensions` (UIDs) asked for last nor a revision names
    /// (`installed`), unless they were used within `spare`. Reads and writes files.
    pub fn tidy(&self, extensions: &BTreeSet<String>, mut installed: BTreeSet<String>, spare: Duration) {
        {
            let mut last = self.last.lock();
            last.retain(|uid, _| extensions.contains(uid));
            installed.extend(last.values().cloned());
        }
        match self.fetcher.collect(&installed, spare) {
            Ok(0) => {}
            Ok(bundles) => tracing::info!(bundles, "bundles that nobody has any more were removed"),
            Err(error) => tracing::warn!(%error, "bundles that nobody has any more could not be removed"),
        }
    }

    /// The issuer for a bundle with webhooks.
    async fn issuer(&self, settled: Option<CertProvider>) -> Result<CertProvider, Failure> {
        let present = provider::present(&self.client).await.map_err(|error| {
            let problem = olm_runtime::apply::message(&error);
            Failure::new(
                Class::Transient,
                format!("looking for a certificate issuer: listing API groups: {problem}"),
            )
        })?;
        provider::choose(self.preference, self.issuers, settled, present)
            .map_err(|text| Failure::new(Class::NeedsChange, text))
    }
}

fn not_fetched(error: &BundleError) -> Failure {
    let class = match error.retry() {
        Retry::Terminal => Class::Blocked,
        Retry::Slow => Class::NeedsChange,
        Retry::Backoff | Retry::After(_) => Class::Transient,
    };
    let cause = match error {
        BundleError::Image(error) if error.is_rejection() => Cause::Signature,
        BundleError::Image(_) | BundleError::Parse(_) | BundleError::Task(_) => Cause::Other,
    };
    Failure { cause, ..Failure::new(class, olm_runtime::error_text::chain(error)) }
}

fn not_rendered(error: &RenderError) -> Failure {
    let class =
        if error.terminal_reason().is_some() { Class::InvalidConfiguration } else { Class::NeedsChange };
    Failure::new(class, error.to_string())
}
