//! Who issues webhook certificates: chosen once for each extension, then kept in its status.
//!
//! The choice never flips by itself: a cert-manager that is installed later changes nothing. Only the flag, or a gate that
//! is switched off, makes a new choice. Only [`present`] asks the cluster. Rule: decision 13.

use std::str::FromStr;

use kube::Client;
use olm_api::cluster_extension::WebhookCertificateProvider as Kept;
use olm_bundle::CertProvider;

/// Gate of certificates by cert-manager.
pub const CERT_MANAGER: &str = "WebhookProviderCertManager";
/// Gate of certificates by the service CA of OpenShift.
pub const SERVICE_CA: &str = "WebhookProviderOpenshiftServiceCA";

/// What the flag `--webhook-cert-provider` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// cert-manager where its API is, else OpenShift's service CA, else our own.
    #[default]
    Auto,
    /// This one, for every extension.
    Only(CertProvider),
}

impl FromStr for Preference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "cert-manager" => Self::Only(CertProvider::CertManager),
            "service-ca" => Self::Only(CertProvider::ServiceCa),
            "built-in" => Self::Only(CertProvider::BuiltIn),
            other => return Err(format!("{other:?} is none of auto, cert-manager, service-ca, built-in")),
        })
    }
}

/// What a provider is called, in flags and in the status.
#[must_use]
pub fn name(provider: CertProvider) -> &'static str {
    match provider {
        CertProvider::CertManager => "cert-manager",
        CertProvider::ServiceCa => "service-ca",
        CertProvider::BuiltIn => "built-in",
    }
}

/// The provider as the status holds it.
#[must_use]
pub fn to_status(provider: CertProvider) -> Kept {
    match provider {
        CertProvider::CertManager => Kept::CertManager,
        CertProvider::ServiceCa => Kept::ServiceCa,
        CertProvider::BuiltIn => Kept::BuiltIn,
    }
}

/// The provider that the status holds.
#[must_use]
pub fn from_status(kept: Kept) -> CertProvider {
    match kept {
        Kept::CertManager => CertProvider::CertManager,
        Kept::ServiceCa => CertProvider::ServiceCa,
        Kept::BuiltIn => CertProvider::BuiltIn,
    }
}

/// Which issuers may be used: their feature gates. Our own has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issuers {
    /// `WebhookProviderCertManager`.
    pub cert_manager: bool,
    /// `WebhookProviderOpenshiftServiceCA`.
    pub service_ca: bool,
}

impl Issuers {
    /// Whether this one may be used.
    #[must_use]
    pub fn allow(self, provider: CertProvider) -> bool {
        match provider {
            CertProvider::CertManager => self.cert_manager,
            CertProvider::ServiceCa => self.service_ca,
            CertProvider::BuiltIn => true,
        }
    }

    /// The gate of this one.
    #[must_use]
    pub fn gate(provider: CertProvider) -> Option<&'static str> {
        match provider {
            CertProvider::CertManager => Some(CERT_MANAGER),
            CertProvider::ServiceCa => Some(SERVICE_CA),
            CertProvider::BuiltIn => None,
        }
    }
}

/// Which issuers the cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    /// `cert-manager.io/v1` is served.
    pub cert_manager: bool,
    /// `servicecas` of `operator.openshift.io/v1` are served.
    pub service_ca: bool,
}

impl Present {
    fn has(self, provider: CertProvider) -> bool {
        match provider {
            CertProvider::CertManager => self.cert_manager,
            CertProvider::ServiceCa => self.service_ca,
            CertProvider::BuiltIn => true,
        }
    }
}

/// The provider of an extension as far as it is known without looking at the cluster; `None` when it is still to be chosen,
/// or was never needed.
#[must_use]
pub fn settled(preference: Preference, issuers: Issuers, kept: Option<CertProvider>) -> Option<CertProvider> {
    let kept = kept?;
    match preference {
        Preference::Only(provider) => Some(provider),
        Preference::Auto => issuers.allow(kept).then_some(kept),
    }
}

/// The provider for a bundle with webhooks. What is settled stays.
///
/// # Errors
/// When the provider is not to be had; the text names what to change.
pub fn choose(
    preference: Preference,
    issuers: Issuers,
    settled: Option<CertProvider>,
    present: Present,
) -> Result<CertProvider, String> {
    let wanted = match (settled, preference) {
        (Some(provider), _) | (None, Preference::Only(provider)) => provider,
        (None, Preference::Auto) => {
            let order = [CertProvider::CertManager, CertProvider::ServiceCa];
            let first = order.into_iter().find(|one| issuers.allow(*one) && present.has(*one));
            return Ok(first.unwrap_or(CertProvider::BuiltIn));
        }
    };
    if !issuers.allow(wanted) {
        return Err(format!(
            "webhook certificates are to come from {}, whose feature gate {} is off; enable it or set \
             --webhook-cert-provider=built-in",
            name(wanted),
            Issuers::gate(wanted).unwrap_or_default(),
        ));
    }
    if !present.has(wanted) {
        return Err(format!(
            "webhook certificates are to come from {0}, whose API the cluster does not serve; install {0} or set \
             --webhook-cert-provider=built-in",
            name(wanted),
        ));
    }
    Ok(wanted)
}

/// Asks the cluster which issuers it has.
///
/// # Errors
/// When it does not say which APIs it serves.
pub async fn present(client: &Client) -> kube::Result<Present> {
    let groups = client.list_api_groups().await?.groups;
    let serves = |name: &str, version: &str| {
        groups
            .iter()
            .any(|group| group.name == name && group.versions.iter().any(|one| one.version == version))
    };
    // the group has more in it than the service CA, so its presence says nothing
    let service_ca = serves("operator.openshift.io", "v1")
        && client
            .list_api_group_resources("operator.openshift.io/v1")
            .await?
            .resources
            .iter()
            .any(|resource| resource.name == "servicecas");
    Ok(Present { cert_manager: serves("cert-manager.io", "v1"), service_ca })
}

#[cfg(test)]
mod tests {
    use super::*;
    use CertProvider::{BuiltIn, CertManager, ServiceCa};
    use Preference::{Auto, Only};

    const ALL: Issuers = Issuers { cert_manager: true, service_ca: true };
    const NONE: Issuers = Issuers { cert_manager: false, service_ca: false };

    fn present(cert_manager: bool, service_ca: bool) -> Present {
        Present { cert_manager, service_ca }
    }

    #[test]
    fn flags_are_read() {
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
    fn names_are_the_same_everywhere() {
        for provider in [CertManager, ServiceCa, BuiltIn] {
            assert_eq!(name(provider).parse(), Ok(Only(provider)));
            assert_eq!(from_status(to_status(provider)), provider);
            assert_eq!(serde_json::to_value(to_status(provider)).unwrap(), name(provider));
        }
    }

    #[test]
    fn the_first_choice() {
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
    fn what_was_chosen_stays() {
        for (case, preference, issuers, kept, want) in [
            ("never needed", Auto, ALL, None, None),
            ("never needed, flag", Only(BuiltIn), ALL, None, None),
            ("kept", Auto, ALL, Some(BuiltIn), Some(BuiltIn)),
            ("flag", Only(ServiceCa), ALL, Some(BuiltIn), Some(ServiceCa)),
            ("gate off", Auto, NONE, Some(CertManager), None),
            ("built-in has no gate", Auto, NONE, Some(BuiltIn), Some(BuiltIn)),
        ] {
            assert_eq!(settled(preference, issuers, kept), want, "{case}");
        }
        let later = choose(Auto, ALL, Some(BuiltIn), present(true, true));
        assert_eq!(later, Ok(BuiltIn), "a cert-manager that came later changes nothing");
    }

    #[test]
    fn refusals_name_the_mend() {
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
