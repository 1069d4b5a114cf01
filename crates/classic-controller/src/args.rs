//! The command line.
//!
//! Rule: classic-apis §1 (the global namespace), §5.2 (the retry time).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, Parser, ValueEnum};
use olm_bundle::BundleLimits;
use olm_core::go::GoDuration;
use olm_runtime::args::{ArgsError, Command, LimitArgs, LogArgs, PullArgs, TlsArgs, switch};

/// Overrides `--namespace` as the namespace whose catalogs are available everywhere.
const GLOBAL_NAMESPACE: &str = "GLOBAL_CATALOG_NAMESPACE";

/// OLM Classic: installs and upgrades what Subscriptions request.
#[derive(Debug, Parser)]
#[command(name = "classic-controller", disable_version_flag = true, args_override_self = true)]
pub struct Cli {
    /// Another job than controlling.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The settings.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// A controller of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum ControllerName {
    /// CatalogSources.
    Catalog,
    /// Subscriptions, and the resolution of their namespaces.
    Subscription,
    /// InstallPlans.
    Plan,
    /// ClusterServiceVersions.
    Csv,
    /// OperatorGroups.
    Group,
    /// OperatorConditions.
    Condition,
    /// Operators.
    Operator,
}

/// What happens to Deployments of ClusterServiceVersions that were edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum RepairDeployments {
    /// An event and a metric report them, and they stay as they are, as in the reference
    #[default]
    Reported,
    /// They are written back, which an event reports
    Repaired,
}

/// The settings.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The kubeconfig file; without it KUBECONFIG, ~/.kube/config or the pod's own account
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    kubeconfig: String,

    /// The namespace of the process, whose catalogs are available to Subscriptions of all namespaces, unless GLOBAL_CATALOG_NAMESPACE
    /// names another one for them
    #[arg(long, value_name = "NAMESPACE", default_value = "olm")]
    pub namespace: String,

    /// The controllers that run
    #[arg(
        long,
        value_enum,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "catalog,subscription,plan,csv,group,condition,operator"
    )]
    controllers: Vec<ControllerName>,

    /// Where catalogs and bundles of images are kept; survives restarts
    #[arg(long, value_name = "DIR", default_value = "/var/cache/classic-controller")]
    pub cache_dir: PathBuf,

    /// How long an InstallPlan whose steps fail is retried before it is Failed
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    install_plan_retry_timeout: GoDuration,

    /// How long the image of a bundle may take to be pulled and read, unless an annotation of the OperatorGroup sets another limit
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    bundle_unpack_timeout: GoDuration,

    /// Namespaces that keep the copies of ClusterServiceVersions of global operators although spec.features.disableCopiedCSVs of the OLMConfig
    /// is true, comma-separated
    #[arg(long = "protectedCopiedCSVNamespaces", value_name = "NAMESPACES", value_delimiter = ',')]
    protected_copied_csv_namespaces: Vec<String>,

    /// What happens to a Deployment of a ClusterServiceVersion whose fields were edited by hand
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    pub repair_deployments: RepairDeployments,

    /// Work only while holding the lease, so that several replicas can run
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, action = ArgAction::Set, value_parser = switch())]
    pub leader_elect: bool,

    /// Where /healthz and /readyz are served, without TLS
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Where /metrics is served to callers whose token may read it, with TLS only under --tls-self-issued; 0 serves none
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub metrics_bind_address: String,

    /// Where discovery of the aggregated API packages.operators.coreos.com/v1 is served, with TLS; 0 serves none. Needs --tls-cert and
    /// --tls-key
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub packages_bind_address: String,

    /// Access to registries.
    #[command(flatten)]
    pub pull: PullArgs,

    /// Limits on images and bundles.
    #[command(flatten)]
    pub limits: LimitArgs,

    /// TLS of what is served.
    #[command(flatten)]
    pub tls: TlsArgs,

    /// Logging.
    #[command(flatten)]
    pub logs: LogArgs,
}

impl ServeArgs {
    /// The kubeconfig file, if one is named.
    #[must_use]
    pub fn kubeconfig(&self) -> Option<&Path> {
        (!self.kubeconfig.is_empty()).then(|| Path::new(&self.kubeconfig))
    }

    /// The namespace whose catalogs are available everywhere.
    #[must_use]
    pub fn global_namespace(&self) -> String {
        std::env::var(GLOBAL_NAMESPACE).ok().filter(|name| !name.is_empty()).unwrap_or(self.namespace.clone())
    }

    /// Whether a controller runs.
    #[must_use]
    pub fn runs(&self, controller: ControllerName) -> bool {
        self.controllers.contains(&controller)
    }

    /// How long an InstallPlan whose steps fail is retried.
    #[must_use]
    pub fn plan_retry_window(&self) -> Duration {
        self.install_plan_retry_timeout.0
    }

    /// How long the image of a bundle may take.
    #[must_use]
    pub fn unpack_timeout(&self) -> Duration {
        self.bundle_unpack_timeout.0
    }

    /// The namespaces that keep copies of ClusterServiceVersions although copies are disabled.
    #[must_use]
    pub fn protected_namespaces(&self) -> BTreeSet<String> {
        let names = self.protected_copied_csv_namespaces.iter().map(|name| name.trim());
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// The limits on images of bundles, and on bundles.
    ///
    /// # Errors
    /// For a limit that does not exist.
    pub fn limits(&self) -> Result<(olm_oci::Limits, BundleLimits), ArgsError> {
        let (mut image, mut bundle) = (olm_oci::Limits::bundle(), BundleLimits::default());
        self.limits.apply(|name, value| image.set(name, value) || bundle.set(name, value))?;
        (image.selected_bytes, image.file_bytes) = (bundle.bytes, bundle.bytes);
        image.selected_entries = bundle.files as u64;
        Ok((image, bundle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<ServeArgs, clap::Error> {
        Cli::try_parse_from(["classic-controller"].iter().chain(flags)).map(|cli| cli.serve)
    }

    #[test]
    fn args_select_controllers() {
        let all = parse(&[]).unwrap();
        assert!(ControllerName::value_variants().iter().all(|name| all.runs(*name)));
        let some = parse(&["--controllers=catalog,plan"]).unwrap();
        assert!(some.runs(ControllerName::Plan) && !some.runs(ControllerName::Csv));
        assert!(parse(&["--controllers=none"]).is_err());
    }

    #[test]
    fn args_have_defaults_of_the_reference() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.namespace, "olm");
        assert_eq!(args.plan_retry_window(), Duration::from_secs(60));
        assert_eq!(args.unpack_timeout(), Duration::from_secs(600));
        let args = parse(&["--install-plan-retry-timeout=10s", "--limit=bundle-files=9"]).unwrap();
        assert_eq!(args.plan_retry_window(), Duration::from_secs(10));
        assert_eq!(args.limits().unwrap().1.files, 9);
        assert!(parse(&["--limit=no-such=1"]).unwrap().limits().is_err());
        assert_eq!(args.repair_deployments, RepairDeployments::Reported);
        let args = parse(&["--repair-deployments=Repaired"]).unwrap();
        assert_eq!(args.repair_deployments, RepairDeployments::Repaired);
    }

    #[test]
    fn args_list_protected_namespaces() {
        for (flags, want) in [
            (&[][..], &[][..]),
            (&["--protectedCopiedCSVNamespaces="], &[]),
            (&["--protectedCopiedCSVNamespaces=b,a, c,"], &["a", "b", "c"]),
        ] {
            assert!(parse(flags).unwrap().protected_namespaces().iter().eq(want), "{flags:?}");
        }
    }
}
