//! Options of rendering, beside the bundle itself.

use serde_json::Value;

/// Feature gates that rendering knows; all on is the project's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// `SingleOwnNamespaceInstallSupport`: bundles without AllNamespaces may be installed.
    pub single_own_namespace: bool,
    /// `DeploymentConfig`: `deploymentConfig` may be used in the configuration.
    pub deployment_config: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { single_own_namespace: true, deployment_config: true }
    }
}

olm_core::words! {
    /// Who issues the serving certificates of webhooks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CertProvider {
        /// cert-manager, through an Issuer and a Certificate that are rendered.
        CertManager = "cert-manager",
        /// OpenShift's service-ca, through annotations.
        ServiceCa = "service-ca",
        /// The project's own controller: it writes the Secret that pods mount and the `caBundle`s, neither is rendered.
        BuiltIn = "built-in",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RenderOptions {
    pub install_namespace: String,
    /// `spec.config.inline`, if there is any.
    pub config: Option<Value>,
    /// Issuer of serving certificates; without one, bundles with webhooks are refused.
    pub cert_provider: Option<CertProvider>,
    pub gates: Gates,
    /// Roles for the users of the provided APIs are rendered too.
    pub user_roles: bool,
}

impl RenderOptions {
    /// No configuration, built-in certificates, every gate on.
    pub fn new(install_namespace: impl Into<String>) -> Self {
        Self {
            install_namespace: install_namespace.into(),
            config: None,
            cert_provider: Some(CertProvider::BuiltIn),
            gates: Gates::default(),
            user_roles: false,
        }
    }
}
