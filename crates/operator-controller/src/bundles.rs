//! A chosen bundle as objects: fetched, rendered, and how a failure is to be taken.
//!
//! Which certificate issuer serves webhooks is looked up in the cluster here (decision 13).

use kube::Client;
use olm_bundle::{
    CertProvider, Gates, PROPERTIES_ANNOTATION, RenderError, RenderOptions, render_with_report,
};
use olm_client::resolution::{BundleFacts, Class, Failure, Wish};
use olm_client::{BundleError, BundleFetcher};
use olm_core::Object;
use olm_oci::Retry;
use serde_json::Value;

use crate::credentials::PullSecrets;

/// Which issuers may be used: their feature gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issuers {
    /// `WebhookProviderCertManager`.
    pub cert_manager: bool,
    /// `WebhookProviderOpenshiftServiceCA`.
    pub service_ca: bool,
}

/// What a bundle renders to.
#[derive(Debug, Clone)]
pub struct Content {
    /// Objects.
    pub objects: Vec<Object>,
    /// The CSV's `olm.properties` annotation, if it has one.
    pub properties: Option<String>,
    /// What looks wrong but stops nothing.
    pub warnings: Vec<String>,
}

/// Brings bundles here and renders them.
pub struct Bundles {
    client: Client,
    fetcher: BundleFetcher,
    secrets: PullSecrets,
    gates: Gates,
    issuers: Issuers,
}

impl Bundles {
    /// Renders with these gates, and issuers that are allowed and present.
    #[must_use]
    pub fn new(
        client: Client,
        fetcher: BundleFetcher,
        secrets: PullSecrets,
        gates: Gates,
        issuers: Issuers,
    ) -> Self {
        Self { client, fetcher, secrets, gates, issuers }
    }

    /// The gates as one word, part of what a revision is rendered from.
    #[must_use]
    pub fn options_text(&self) -> String {
        format!("{:?}", self.gates)
    }

    /// Fetches and renders.
    ///
    /// # Errors
    /// With the text for the condition, still without the bundle's name.
    pub async fn render(&self, wish: &Wish, bundle: &BundleFacts) -> Result<Content, Failure> {
        self.secrets.refresh().await.map_err(|text| Failure::new(Class::Transient, text))?;
        let registry = self.fetcher.fetch(&bundle.reference).await.map_err(|error| not_fetched(&error))?;
        let cert_provider =
            if registry.csv.webhooks.is_empty() { None } else { self.cert_provider().await? };
        let options = RenderOptions {
            install_namespace: wish.namespace.clone(),
            config: wish.config.clone().map(Value::Object),
            cert_provider,
            gates: self.gates,
        };
        let rendered = tokio::task::spawn_blocking(move || {
            let properties = registry.csv.annotations.get(PROPERTIES_ANNOTATION).cloned();
            render_with_report(&registry, &options).map(|rendered| (rendered, properties))
        })
        .await
        .map_err(|error| Failure::new(Class::Transient, format!("rendering did not end: {error}")))?;
        let (rendered, properties) = rendered.map_err(|error| not_rendered(&error))?;
        Ok(Content { objects: rendered.objects, properties, warnings: rendered.warnings })
    }

    /// The issuer that is allowed and whose API the cluster has; cert-manager first.
    async fn cert_provider(&self) -> Result<Option<CertProvider>, Failure> {
        let groups = self.client.list_api_groups().await.map_err(|error| {
            Failure::new(
                Class::Transient,
                format!("looking for a certificate issuer: listing API groups: {error}"),
            )
        })?;
        let has = |name: &str| groups.groups.iter().any(|group| group.name == name);
        Ok(if self.issuers.cert_manager && has("cert-manager.io") {
            Some(CertProvider::CertManager)
        } else if self.issuers.service_ca && has("operator.openshift.io") {
            Some(CertProvider::ServiceCa)
        } else {
            None
        })
    }
}

fn not_fetched(error: &BundleError) -> Failure {
    let class = match error.retry() {
        Retry::Terminal => Class::Blocked,
        Retry::Slow => Class::NeedsChange,
        Retry::Backoff | Retry::After(_) => Class::Transient,
    };
    Failure::new(class, olm_runtime::error_text::chain(error))
}

fn not_rendered(error: &RenderError) -> Failure {
    let class =
        if error.terminal_reason().is_some() { Class::InvalidConfiguration } else { Class::NeedsChange };
    Failure::new(class, error.to_string())
}
