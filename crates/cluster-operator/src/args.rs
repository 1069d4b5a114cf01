//! The command line.

use std::collections::BTreeSet;

use clap::{Args, Parser};
use olm_runtime::args::{Command, RunArgs};

pub use crate::owner::Manage;

/// Reports in the ClusterOperator `olm` the state of OLM, and whether installed bundles stand in the way of an update of the cluster.
#[derive(Debug, Parser)]
#[command(name = "cluster-operator", disable_version_flag = true, args_override_self = true)]
pub struct Cli {
    /// Another job than reporting.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The settings.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// The settings.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// What every process has.
    #[command(flatten)]
    pub run: RunArgs,

    /// The version of OpenShift that the cluster has, such as 4.19.3; without it OPERATOR_IMAGE_VERSION, RELEASE_VERSION, or the
    /// ClusterVersion `version`
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    pub openshift_version: String,

    /// Deployments in the system namespace that decide whether OLM is available, comma-separated; empty for none
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "catalogd-controller-manager,operator-controller-controller-manager"
    )]
    deployments: String,

    /// When the ClusterOperator is written
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub manage: Manage,
}

impl ServeArgs {
    /// The Deployments that count, each once.
    #[must_use]
    pub fn deployments(&self) -> Vec<String> {
        let names = self.deployments.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn args_accept_flags() {
        let parse = |flags: &[&str]| Cli::try_parse_from(["cluster-operator"].iter().chain(flags));
        let cli =
            parse(&["--openshift-version=4.18.0", "--deployments=", "--manage=never", "--leader-elect"])
                .unwrap();
        assert_eq!(cli.serve.openshift_version, "4.18.0");
        assert_eq!(cli.serve.deployments(), Vec::<String>::new());
        assert_eq!(cli.serve.manage, Manage::Never);
        assert_eq!(parse(&["--deployments=b, a,b,"]).unwrap().serve.deployments(), ["a", "b"]);
        let plain = parse(&[]).unwrap().serve;
        assert_eq!(
            plain.deployments(),
            ["catalogd-controller-manager", "operator-controller-controller-manager"]
        );
        assert_eq!(plain.manage, Manage::Auto);
        assert!(parse(&["--manage=sometimes"]).is_err());
    }
}
