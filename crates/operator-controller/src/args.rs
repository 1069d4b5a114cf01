//! The command line, flag for flag as users of the reference know it.
//!
//! Rules: operator-controller §2 (gates), §7.1 (flags); decision 2: all gates are on by default, `BoxcutterRuntime=false` ends with an
//! error message.

use std::path::PathBuf;
use std::str::FromStr as _;

use clap::{ArgAction, Args, Parser};
use olm_bundle::BundleLimits;
use olm_install::dependencies::DependencyCheck;
use olm_install::render::UserRoles;
use olm_resolver::{EnvironmentConstraints, MajorUpdates};
use olm_runtime::FeatureGates;
use olm_runtime::args::{ArgsError, Command, LimitArgs, PullArgs, RunArgs, switch};
use olm_runtime::features::{Gate, Stage};

use crate::accounts::Mode;
pub use crate::certificates::provider::{CERT_MANAGER, SERVICE_CA};
use crate::certificates::provider::{Issuers, Preference};

/// Revisions instead of Helm releases; cannot be switched off.
pub(crate) const BOXCUTTER: &str = "BoxcutterRuntime";
/// Bundles without AllNamespaces.
pub(crate) const SINGLE_OWN: &str = "SingleOwnNamespaceInstallSupport";
/// `config.inline.deploymentConfig`.
pub(crate) const DEPLOYMENT_CONFIG: &str = "DeploymentConfig";
/// The `release` field of bundles.
pub const RELEASE: &str = "BundleReleaseSupport";

/// The gates that exist here.
pub const GATES: &[Gate] = &[
    Gate { name: BOXCUTTER, stage: Stage::Alpha, default: true },
    Gate { name: SINGLE_OWN, stage: Stage::Alpha, default: true },
    Gate { name: DEPLOYMENT_CONFIG, stage: Stage::Alpha, default: true },
    Gate { name: RELEASE, stage: Stage::Alpha, default: true },
    Gate { name: CERT_MANAGER, stage: Stage::Ga, default: true },
    Gate { name: SERVICE_CA, stage: Stage::Ga, default: true },
];

/// Installs what ClusterExtensions ask for and keeps it installed.
#[derive(Debug, Parser)]
#[command(name = "operator-controller", disable_version_flag = true, args_override_self = true)]
pub struct Cli {
    /// Another job than controlling.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The settings of the controller.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// The settings of the controller.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// What every process has.
    #[command(flatten)]
    pub run: RunArgs,

    /// Access to registries.
    #[command(flatten)]
    pub pull: PullArgs,

    /// Limits on images and bundles.
    #[command(flatten)]
    pub limits: LimitArgs,

    /// Where unpacked bundles and packages of catalogs are kept; survives restarts
    #[arg(long, value_name = "DIR", default_value = "/var/cache/operator-controller")]
    pub cache_path: PathBuf,

    /// A directory with the CAs for the connection to catalogd; those of the system are not trusted then
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    catalogd_cas_dir: String,

    /// The ConfigMap of the system namespace with the CA of catalogd: what catalogd publishes with --tls-self-issued (ca.crt), or
    /// OpenShift's service CA injects (service-ca.crt). The system's CAs are not trusted then; a change counts immediately
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    catalogd_ca_config_map: String,

    /// What spec.serviceAccount of an extension means
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    pub service_account_mode: Mode,

    /// Whether an extension without `version` follows its catalog to the next major version: Hold or Automatic. The annotation
    /// olm.operatorframework.io/major-updates of an extension wins
    #[arg(long, value_name = "MODE", default_value_t, value_parser = MajorUpdates::from_str)]
    pub major_updates: MajorUpdates,

    /// What a bundle leads to that needs another Kubernetes version or native APIs than the cluster has, as its catalog states it:
    /// Skip takes the next best bundle, Refuse refuses the best one, Ignore does not look
    #[arg(long, value_name = "MODE", default_value_t, value_parser = EnvironmentConstraints::from_str)]
    pub environment_constraints: EnvironmentConstraints,

    /// Whether ClusterRoles for users of the APIs that a bundle provides are made, aggregated to the cluster's admin, edit and view:
    /// None or Aggregate. The annotation olm.operatorframework.io/user-roles of an extension wins
    #[arg(long, value_name = "MODE", default_value_t, value_parser = UserRoles::from_str)]
    pub user_roles: UserRoles,

    /// What it leads to that something is missing which a bundle depends on: Enforce rejects the bundle until it is there, Warn
    /// installs it and names in an event what is missing, Ignore checks nothing, Refuse rejects every bundle that declares a
    /// dependency. The annotation olm.operatorframework.io/dependency-check of an extension wins
    #[arg(long, value_name = "MODE", default_value_t, value_parser = DependencyCheck::from_str)]
    pub dependency_check: DependencyCheck,

    /// Before a CRD changes, validate the custom resources that exist against its new schema, as OLM Classic did (at most 5,000
    /// of a kind); false judges by the schemas alone
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", hide_possible_values = true, action = ArgAction::Set, value_parser = switch())]
    pub validate_existing_custom_resources: bool,

    /// Who issues the serving certificates of webhooks: auto, cert-manager, service-ca or built-in
    #[arg(long, value_name = "PROVIDER", default_value = "auto", value_parser = Preference::from_str)]
    pub webhook_cert_provider: Preference,
}

/// Flags that cannot be run with.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// See [`ArgsError`].
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// The gate that is the only runtime was switched off.
    #[error(
        "feature gate BoxcutterRuntime cannot be switched off: this program installs through ClusterObjectSet revisions only; \
         remove BoxcutterRuntime=false from --feature-gates"
    )]
    NoHelm,
    /// The provider that is asked for is switched off.
    #[error(
        "--webhook-cert-provider={provider} contradicts the feature gate {gate}=false; remove one of the two",
        gate = .gate
    )]
    ProviderGate { provider: &'static str, gate: &'static str },
}

impl ServeArgs {
    /// The limits on images of bundles, and on bundles.
    ///
    /// # Errors
    /// For a limit that does not exist.
    pub fn limits(&self) -> Result<(olm_oci::Limits, BundleLimits), UsageError> {
        let (mut image, mut bundle) = (olm_oci::Limits::bundle(), BundleLimits::default());
        self.limits.apply(|name, value| image.set(name, value) || bundle.set(name, value))?;
        (image.selected_bytes, image.file_bytes) = (bundle.bytes, bundle.bytes);
        image.selected_entries = bundle.files as u64;
        Ok((image, bundle))
    }

    /// `--catalogd-cas-dir`, if it is set.
    #[must_use]
    pub fn catalogd_cas_dir(&self) -> Option<PathBuf> {
        (!self.catalogd_cas_dir.is_empty()).then(|| PathBuf::from(&self.catalogd_cas_dir))
    }

    /// `--catalogd-ca-config-map`, if it is set.
    #[must_use]
    pub(crate) fn catalogd_ca_config_map(&self) -> Option<&str> {
        Some(self.catalogd_ca_config_map.as_str()).filter(|name| !name.is_empty())
    }

    /// The feature gates.
    ///
    /// # Errors
    /// For an unknown gate, when the one runtime is switched off, and when the certificate provider asked for is.
    pub fn gates(&self) -> Result<FeatureGates, UsageError> {
        let gates = self.run.feature_gates(GATES)?;
        if !gates.enabled(BOXCUTTER) {
            return Err(UsageError::NoHelm);
        }
        if let Preference::Only(provider) = self.webhook_cert_provider
            && let Some(gate) = Issuers::gate(provider)
            && !gates.enabled(gate)
        {
            return Err(UsageError::ProviderGate { provider: provider.as_str(), gate });
        }
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["operator-controller"].iter().chain(flags))
    }

    #[test]
    fn flags_are_read_as_users_write_them() {
        let cli = parse(&[
            "--cache-path=/tmp/c",
            "--catalogd-cas-dir=/ca",
            "--pull-cas-dir=/ca",
            "--feature-gates=BoxcutterRuntime=true,DeploymentConfig=false",
            "--feature-gates=WebhookProviderOpenshiftServiceCA=false",
            "--global-pull-secret=ns/name",
            "--leader-elect",
            "--v=4",
        ])
        .unwrap();
        let gates = cli.serve.gates().unwrap();
        assert!(gates.enabled(RELEASE) && !gates.enabled(DEPLOYMENT_CONFIG) && !gates.enabled(SERVICE_CA));
        assert_eq!(cli.serve.catalogd_cas_dir(), Some(PathBuf::from("/ca")));
        assert_eq!(parse(&[]).unwrap().serve.catalogd_cas_dir(), None);
        assert!(parse(&["--nonsense"]).is_err());
        assert_eq!(cli.serve.dependency_check, DependencyCheck::Enforce);
        assert!(cli.serve.validate_existing_custom_resources);
        let cli =
            parse(&["--dependency-check=Refuse", "--validate-existing-custom-resources=false"]).unwrap();
        assert_eq!(cli.serve.dependency_check, DependencyCheck::Refuse);
        assert!(!cli.serve.validate_existing_custom_resources);
        assert!(parse(&["--dependency-check=maybe"]).is_err());
    }

    #[test]
    fn args_set_limits_on_images_and_bundles() {
        let limits = |flags: &[&str]| parse(flags).unwrap().serve.limits();
        let (image, bundle) = limits(&[]).unwrap();
        assert_eq!((image, bundle), (olm_oci::Limits::bundle(), BundleLimits::default()));
        let (image, bundle) = limits(&[
            "--limit=image-layers=6",
            "--limit=image-layers=7,bundle-bytes=8,bundle-nodes=9,bundle-files=10",
        ])
        .unwrap();
        assert_eq!((image.layers, image.selected_bytes, image.selected_entries), (7, 8, 10));
        assert_eq!((bundle.bytes, bundle.nodes, bundle.files), (8, 9, 10));
        assert!(limits(&["--limit=catalog-objects=1"]).is_err());
    }

    /// rule: operator-controller §2, §7.1; what differs from the reference is decision 2 (gates)
    #[test]
    fn defaults_are_those_of_the_reference() {
        let serve = parse(&[]).unwrap().serve;
        assert_eq!(serve.cache_path, PathBuf::from("/var/cache/operator-controller"));
        assert_eq!(serve.run.health_probe_bind_address, ":8081");
        assert_eq!(serve.run.pprof_bind_address, "0");
        assert!(!serve.run.leader_elect);
        assert_eq!(serve.run.metrics_address(":8443").unwrap(), None);
        assert_eq!((serve.pull.cas_dir(), serve.pull.pull_secret().unwrap()), (None, None));
        assert_eq!(serve.pull.signature_policy(), None);
        assert_eq!(serve.service_account_mode, Mode::Impersonate);
        let gates: Vec<(&str, bool)> = serve.gates().unwrap().iter().collect();
        let on = [
            "BoxcutterRuntime",
            "BundleReleaseSupport",
            "DeploymentConfig",
            "SingleOwnNamespaceInstallSupport",
            "WebhookProviderCertManager",
            "WebhookProviderOpenshiftServiceCA",
        ];
        assert_eq!(gates, on.map(|gate| (gate, true)), "sorted by name, as they are logged");
        // every flag that a Deployment of the reference may carry
        for flag in [
            "--metrics-bind-address=:8443",
            "--tls-cert=/var/certs/tls.crt",
            "--tls-key=/var/certs/tls.key",
            "--tls-profile=custom",
            "--tls-custom-version=TLSv1.3",
            "--tls-custom-ciphers=TLS_AES_128_GCM_SHA256",
            "--tls-custom-curves=X25519",
            "--pprof-bind-address=:6060",
            "--health-probe-bind-address=:8081",
            "--system-namespace=olmv1-system",
            "--catalogd-cas-dir=/var/ca-certs",
            "--pull-cas-dir=/var/ca-certs",
            "--global-pull-secret=openshift-config/pull-secret",
            "--kubeconfig=/k",
            "--leader-elect",
        ] {
            assert!(parse(&[flag]).is_ok(), "{flag}");
        }
    }

    #[test]
    fn args_reject_another_runtime() {
        let error = parse(&["--feature-gates=BoxcutterRuntime=false"]).unwrap().serve.gates().unwrap_err();
        assert!(error.to_string().contains("ClusterObjectSet"), "{error}");
    }

    #[test]
    fn args_reject_provider_without_its_gate() {
        for (flags, refused) in [
            (&["--webhook-cert-provider=built-in"][..], false),
            (&["--webhook-cert-provider=cert-manager"], false),
            (
                &["--webhook-cert-provider=cert-manager", "--feature-gates=WebhookProviderCertManager=false"],
                true,
            ),
            (&["--webhook-cert-provider=auto", "--feature-gates=WebhookProviderCertManager=false"], false),
        ] {
            assert_eq!(parse(flags).unwrap().serve.gates().is_err(), refused, "{flags:?}");
        }
        assert!(parse(&["--webhook-cert-provider=mine"]).is_err());
    }
}
