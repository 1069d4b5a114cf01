//! The issuer of webhook certificates: chosen once for each extension, then recorded in its status.
//!
//! The choice never changes by itself: a cert-manager that is installed later changes nothing. Only the flag, or a gate that
//! is switched off, makes a new choice. Only [`present`] reads the cluster. Rule: decision 13.

use std::str::FromStr;

use kube::Client;
use olm_api::ClusterExtension;
use olm_api::cluster_extension::WebhookCertificateProvider as Recorded;
use olm_bundle::CertProvider;

/// Gate of certificates by cert-manager.
pub const CERT_MANAGER: &str = "WebhookProviderCertManager";
/// Gate of certificates by the service CA of OpenShift.
pub const SERVICE_CA: &str = "WebhookProviderOpenshiftServiceCA";

/// The flag `--webhook-cert-provider`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// cert-manager where its API is served, else OpenShift's service CA, else the built-in issuer.
    #[default]
    Auto,
    /// This one, for every extension.
    Only(CertProvider),
}

impl FromStr for Preference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let unknown = |_| format!("{text:?} is none of auto, cert-manager, service-ca, built-in");
        text.parse().map(Self::Only).map_err(unknown)
    }
}

/// The provider as the status holds it.
#[must_use]
pub fn to_status(provider: CertProvider) -> Recorded {
    match provider {
        CertProvider::CertManager => Recorded::CertManager,
        CertProvider::ServiceCa => Recorded::ServiceCa,
        CertProvider::BuiltIn => Recorded::BuiltIn,
    }
}

/// The provider that the status holds.
#[must_use]
pub(crate) fn from_status(recorded: Recorded) -> CertProvider {
    match recorded {
        Recorded::CertManager => CertProvider::CertManager,
        Recorded::ServiceCa => CertProvider::ServiceCa,
        Recorded::BuiltIn => CertProvider::BuiltIn,
    }
}

/// The issuer that the status of the extension records.
#[must_use]
pub fn recorded(extension: &ClusterExtension) -> Option<CertProvider> {
    let certificates = extension.status.as_ref()?.webhook_certificates.as_ref()?;
    Some(from_status(certificates.provider))
}

/// Issuers beside the built-in one, which has no gate and is always present: those whose feature gates are on, or those that the
/// cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issuers {
    /// Gate `WebhookProviderCertManager`; `cert-manager.io/v1` is served.
    pub cert_manager: bool,
    /// Gate `WebhookProviderOpenshiftServiceCA`; `servicecas` of `operator.openshift.io/v1` are served.
    pub service_ca: bool,
}

impl Default for Issuers {
    fn default() -> Self {
        Self { cert_manager: true, service_ca: true }
    }
}

impl Issuers {
    /// Whether this one is among them.
    #[must_use]
    pub fn has(self, provider: CertProvider) -> bool {
        match provider {
            CertProvider::CertManager => self.cert_manager,
            CertProvider::ServiceCa => self.service_ca,
            CertProvider::BuiltIn => true,
        }
    }

    #[must_use]
    pub fn gate(provider: CertProvider) -> Option<&'static str> {
        match provider {
            CertProvider::CertManager => Some(CERT_MANAGER),
            CertProvider::ServiceCa => Some(SERVICE_CA),
            CertProvider::BuiltIn => None,
        }
    }
}

/// The provider of an extension whose status records `recorded`; `None` when it is still to be chosen, or was never needed.
#[must_use]
pub fn settled(
    preference: Preference,
    issuers: Issuers,
    recorded: Option<CertProvider>,
) -> Option<CertProvider> {
    let recorded = recorded?;
    match preference {
        Preference::Only(provider) => Some(provider),
        Preference::Auto => issuers.has(recorded).then_some(recorded),
    }
}

/// The provider for a bundle with webhooks. A settled one stays.
///
/// # Errors
/// When the provider is not available; the text names what to change.
pub fn choose(
    preference: Preference,
    issuers: Issuers,
    settled: Option<CertProvider>,
    present: Issuers,
) -> Result<CertProvider, String> {
    let provider = match (settled, preference) {
        (Some(provider), _) | (None, Preference::Only(provider)) => provider,
        (None, Preference::Auto) => {
            let order = [CertProvider::CertManager, CertProvider::ServiceCa];
            let first = order.into_iter().find(|one| issuers.has(*one) && present.has(*one));
            return Ok(first.unwrap_or(CertProvider::BuiltIn));
        }
    };
    let name = provider.as_str();
    let problem = if !issuers.has(provider) {
        format!("feature gate {} is off; enable it", Issuers::gate(provider).unwrap_or_default())
    } else if !present.has(provider) {
        format!("API the cluster does not serve; install {name}")
    } else {
        return Ok(provider);
    };
    Err(format!(
        "webhook certificates are to come from {name}, whose {problem} or set --webhook-cert-provider=built-in"
    ))
}

/// Reads which issuers the cluster has.
///
/// # Errors
/// When the list of APIs cannot be read.
pub async fn present(client: &Client) -> kube::Result<Issuers> {
    let groups = client.list_api_groups().await?.groups;
    let serves = |name: &str, version: &str| {
        groups
            .iter()
            .any(|group| group.name == name && group.versions.iter().any(|one| one.version == version))
    };
    // the group has other resources than the service CA
    let service_ca = serves("operator.openshift.io", "v1")
        && client
            .list_api_group_resources("operator.openshift.io/v1")
            .await?
            .resources
            .iter()
            .any(|resource| resource.name == "servicecas");
    Ok(Issuers { cert_manager: serves("cert-manager.io", "v1"), service_ca })
}

#[cfg(test)]
mod tests {
    use super::*;
    use CertProvider::{BuiltIn, CertManager, ServiceCa};
    use Preference::{Auto, Only};

    const ALL: Issuers = Issuers { cert_manager: true, service_ca: true };
    const NONE: Issuers = Issuers { cert_manager: false, service_ca: false };

    fn present(cert_manager: bool, service_ca: bool) -> Issuers {
        Issuers { cert_manager, service_ca }
    }

    #[test]
    fn issuer_preference_from_flag() {
        for (text, want) in [
            ("auto", Some(Auto)),
            ("cert-manager", Some(Only(CertManager))),
            ("service-ca", Some(Only(ServiceCa))),
            ("built-in", Some(Only(BuiltIn))),
            ("BuiltIn", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Preference>().ok(), want, "{text:?}");
        }
    }

    #[test]
    fn issuer_names_in_flag_and_status() {
        for provider in [CertManager, ServiceCa, BuiltIn] {
            assert_eq!(provider.as_str().parse(), Ok(Only(provider)));
            assert_eq!(from_status(to_status(provider)), provider);
            assert_eq!(serde_json::to_value(to_status(provider)).unwrap(), provider.as_str());
        }
    }

    #[test]
    fn issuer_first_choice() {
        for (case, issuers, present, want) in [
            ("nothing there", ALL, present(false, false), BuiltIn),
            ("cert-manager", ALL, present(true, false), CertManager),
            ("service-ca", ALL, present(false, true), ServiceCa),
            ("both", ALL, present(true, true), CertManager),
            (
                "gate of cert-manager off",
                Issuers { cert_manager: false, ..ALL },
                present(true, true),
                ServiceCa,
            ),
            ("gates off", NONE, present(true, true), BuiltIn),
        ] {
            assert_eq!(choose(Auto, issuers, None, present), Ok(want), "{case}");
        }
    }

    #[test]
    fn issuer_choice_stays() {
        for (case, preference, issuers, recorded, want) in [
            ("never needed", Auto, ALL, None, None),
            ("never needed, flag", Only(BuiltIn), ALL, None, None),
            ("kept", Auto, ALL, Some(BuiltIn), Some(BuiltIn)),
            ("flag", Only(ServiceCa), ALL, Some(BuiltIn), Some(ServiceCa)),
            ("gate off", Auto, NONE, Some(CertManager), None),
            ("built-in has no gate", Auto, NONE, Some(BuiltIn), Some(BuiltIn)),
        ] {
            assert_eq!(settled(preference, issuers, recorded), want, "{case}");
        }
        let later = choose(Auto, ALL, Some(BuiltIn), present(true, true));
        assert_eq!(later, Ok(BuiltIn), "a cert-manager that came later changes nothing");
    }

    #[test]
    fn issuer_errors_name_the_fix() {
        let gone = choose(Auto, ALL, Some(CertManager), present(false, true)).unwrap_err();
        assert_eq!(
            gone,
            "webhook certificates are to come from cert-manager, whose API the cluster does not serve; install cert-manager or \
             set --webhook-cert-provider=built-in"
        );
        let off = choose(Only(ServiceCa), NONE, None, present(true, true)).unwrap_err();
        assert!(off.contains("feature gate WebhookProviderOpenshiftServiceCA is off"), "{off}");
        assert_eq!(choose(Only(CertManager), ALL, None, present(true, false)), Ok(CertManager));
    }
}
