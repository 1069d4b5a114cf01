//! A pulled bundle as the objects that installing it creates, and the fingerprint of everything that decides them.

use std::sync::Arc;

use kube::Client;
use olm_bundle::{
    CertProvider, FORMAT, Gates, PROPERTIES_ANNOTATION, RenderError, RenderOptions, render_owned,
};
use olm_core::{Digest, Object, go, hex};
use olm_oci::Retry;
use olm_runtime::error_text::chain;
use serde_json::{Value, json};

use crate::bundle::Reading;
use crate::issuer::{self, Issuers, Preference};
use crate::resolution::{BundleFacts, Cause, Class, ExtensionRequest, PassError};
use crate::{BundleError, ReadBundle};

olm_core::words! {
    /// Roles for the users of the APIs that a bundle provides (decision 47).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum UserRoles {
        /// Only those that the bundle itself has, as in the reference.
        #[default]
        None = "None",
        /// `admin`, `edit`, `view` and `crdview` for each provided API, aggregated to the cluster's roles.
        Aggregate = "Aggregate",
    }
}

/// Settings of a process that decide what a bundle renders to. The default is that of operator-controller's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RenderSettings {
    /// Feature gates of rendering.
    pub gates: Gates,
    /// `--webhook-cert-provider`.
    pub preference: Preference,
    /// Certificate issuers whose feature gates are on.
    pub issuers: Issuers,
    /// `--user-roles`; an extension may have its own setting.
    pub user_roles: UserRoles,
}

/// The objects of a bundle.
#[derive(Debug, Clone)]
pub struct Rendered {
    pub objects: Vec<Object>,
    /// The CSV's `olm.properties` annotation, if it has one.
    pub properties: Option<String>,
    /// Findings that block nothing.
    pub warnings: Vec<String>,
    /// The issuer of webhook certificates: chosen now if the bundle has webhooks, else the settled one.
    pub issuer: Option<CertProvider>,
    /// The digest of the image.
    pub digest: Digest,
    /// Objects that take much memory keep others from being read.
    pub turn: Option<Arc<Reading>>,
}

/// Values of rendered objects beside which other bundles are read.
const SMALL_BUNDLE: usize = 100_000;

/// How many values the objects consist of.
fn weight(objects: &[Object]) -> usize {
    fn of_value(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(of_value).sum(),
            Value::Object(members) => members.values().map(of_value).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    objects.iter().flat_map(|object| object.0.values()).map(of_value).sum()
}

impl RenderSettings {
    /// The issuer of an extension whose status records `recorded`; `None` as long as none is chosen.
    #[must_use]
    pub fn settled(self, recorded: Option<CertProvider>) -> Option<CertProvider> {
        issuer::settled(self.preference, self.issuers, recorded)
    }

    /// Whether roles for users are rendered for this extension.
    fn has_user_roles(self, request: &ExtensionRequest) -> bool {
        request.user_roles.unwrap_or(self.user_roles) == UserRoles::Aggregate
    }

    /// What besides the image decides the rendered objects, as one short text: equal texts, equal objects. Versions of this program that
    /// render in the same [format](FORMAT) have the same text.
    #[must_use]
    pub fn fingerprint(
        self,
        request: &ExtensionRequest,
        bundle: &BundleFacts,
        issuer: Option<CertProvider>,
    ) -> String {
        use sha2::{Digest as _, Sha256};
        let issuer = issuer.map(|issuer| format!(" {issuer}")).unwrap_or_default();
        let user_roles = if self.has_user_roles(request) { " user-roles" } else { "" };
        let inputs = json!({
            "bundle": [bundle.name, bundle.version, bundle.release],
            "namespace": request.namespace,
            "config": request.config.clone().map_or(Value::Null, Value::Object),
            "options": format!("{:?}{issuer}{user_roles}", self.gates),
            // that of the first version: with another text, all that is installed would be rendered again
            "renderer": "0.1.0",
        });
        in_format(FORMAT, &hex(&Sha256::digest(go::json_string(&inputs))[..16]))
    }
}

/// The fingerprint of inputs with this digest. The first format has no number in it.
fn in_format(format: u32, digest: &str) -> String {
    if format == 1 { digest.to_owned() } else { format!("{format}.{digest}") }
}

/// Whether two fingerprints differ in the format of the objects alone.
pub(crate) fn differ_in_format(one: &str, other: &str) -> bool {
    one != other && digest_of_inputs(one) == digest_of_inputs(other)
}

fn digest_of_inputs(fingerprint: &str) -> &str {
    fingerprint.rsplit_once('.').map_or(fingerprint, |(_, digest)| digest)
}

/// Renders a bundle for `request`. `settled` is the issuer that [`RenderSettings::settled`] returns.
///
/// # Errors
/// With the text for the `Progressing` condition, without the bundle's name.
pub async fn render(
    client: &Client,
    settings: RenderSettings,
    request: &ExtensionRequest,
    read: ReadBundle,
    settled: Option<CertProvider>,
) -> Result<Rendered, PassError> {
    let cert_provider = if read.bundle.csv.webhooks.is_empty() {
        None
    } else {
        let present = issuer::present(client).await.map_err(|error| {
            let message = olm_runtime::apply::message(&error);
            PassError::new(
                Class::Transient,
                format!("looking for a certificate issuer: listing API groups: {message}"),
            )
        })?;
        let chosen = issuer::choose(settings.preference, settings.issuers, settled, present);
        Some(chosen.map_err(|text| PassError::new(Class::NeedsChange, text))?)
    };
    let options = RenderOptions {
        install_namespace: request.namespace.clone(),
        config: request.config.clone().map(Value::Object),
        cert_provider,
        gates: settings.gates,
        user_roles: settings.has_user_roles(request),
    };
    let digest = read.digest.clone();
    let rendered = read
        .render(move |mut registry, reading, cancellation| {
            // not rendered, and as large as the rest of the bundle
            registry.csv.raw = Object::default();
            let properties = registry.csv.annotations.get(PROPERTIES_ANNOTATION).cloned();
            let rendered = render_owned(registry, &options, cancellation)?;
            let is_large = weight(&rendered.objects) > SMALL_BUNDLE;
            Ok::<_, RenderError>((rendered, properties, is_large.then(|| Arc::new(reading))))
        })
        .await?;
    let (rendered, properties, turn) = rendered.map_err(|error| not_rendered(&error))?;
    Ok(Rendered {
        objects: rendered.objects,
        properties,
        warnings: rendered.warnings,
        issuer: cert_provider.or(settled),
        digest,
        turn,
    })
}

/// A bundle that cannot be fetched, as the error of the pass.
#[must_use]
pub fn not_fetched(error: &BundleError) -> PassError {
    let class = match error.retry() {
        Retry::Terminal => Class::Blocked,
        Retry::Slow => Class::NeedsChange,
        Retry::Backoff | Retry::After(_) => Class::Transient,
    };
    let cause = match error {
        BundleError::Image(error) if error.is_rejection() => Cause::Signature,
        BundleError::Quarantined { .. } => Cause::Quarantine,
        BundleError::Image(_)
        | BundleError::Parse(_)
        | BundleError::Slow { .. }
        | BundleError::SlowRead { .. }
        | BundleError::Task(_) => Cause::Other,
    };
    PassError { cause, ..PassError::new(class, chain(error)) }
}

/// A bundle that cannot be rendered, as the error of the pass.
#[must_use]
pub fn not_rendered(error: &RenderError) -> PassError {
    let class =
        if error.terminal_reason().is_some() { Class::InvalidConfiguration } else { Class::NeedsChange };
    PassError::new(class, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_differ_in_their_format_or_inputs() {
        let (first, second) = (in_format(1, "a"), in_format(2, "a"));
        assert_eq!((first.as_str(), second.as_str()), ("a", "2.a"));
        for (one, other, want) in [
            ("a", "2.a", true),
            ("3.a", "2.a", true),
            ("2.a", "2.a", false),
            ("a", "b", false),
            ("a", "2.b", false),
            ("2.a", "3.b", false),
        ] {
            assert_eq!(differ_in_format(one, other), want, "{one} {other}");
            assert_eq!(differ_in_format(other, one), want, "{other} {one}");
        }
    }
}
