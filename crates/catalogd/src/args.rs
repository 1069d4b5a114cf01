//! The command line, flag for flag as users of the reference know it.
//!
//! Rules: catalogd §2.1, §2.2, §2.3; decision 16 (metas on by default).

use std::path::PathBuf;

use clap::{Args, Parser};
use olm_fbc::IngestLimits;
use olm_runtime::args::{ArgsError, Command, LimitArgs, PullArgs, RunArgs, Serving};
use olm_runtime::duration::GoDuration;
use olm_runtime::features::{Gate, Stage};

/// Serves `/api/v1/metas` and `/api/v1/packages`.
pub(crate) const METAS: &str = "APIV1MetasHandler";
/// Serves `/api/v1/graphql`.
pub(crate) const GRAPHQL: &str = "GraphQLCatalogQueries";
/// The gates that exist here.
pub const GATES: &[Gate] = &[
    Gate { name: METAS, stage: Stage::Beta, default: true },
    Gate { name: GRAPHQL, stage: Stage::Alpha, default: false },
];

/// Unpacks catalog images and serves their content to the cluster.
#[derive(Debug, Parser)]
#[command(name = "catalogd", disable_version_flag = true, args_override_self = true)]
pub struct Cli {
    /// Another job than serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The settings of the server.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// The settings of the server.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// What every process has.
    #[command(flatten)]
    pub run: RunArgs,

    /// Access to registries.
    #[command(flatten)]
    pub pull: PullArgs,

    /// Limits on images and catalogs.
    #[command(flatten)]
    pub limits: LimitArgs,

    /// Where catalog content is served, with TLS
    #[arg(long, value_name = "ADDRESS", default_value = ":8443")]
    pub catalogs_server_addr: String,

    /// Where catalogs are served over gRPC to OLM Classic, without TLS; 0 turns it off
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub grpc_bind_address: String,

    /// The host (and port) under which clients reach the content, for status.urls.base
    #[arg(long, value_name = "HOST", default_value = "catalogd-service.olmv1-system.svc")]
    pub external_address: String,

    /// Where content is kept; survives restarts
    #[arg(long, value_name = "DIR", default_value = "/var/cache/catalogd")]
    pub cache_dir: PathBuf,

    /// How often content that no catalog needs is removed, as 12h or 1m30s
    #[arg(long, value_name = "DURATION", default_value = "12h")]
    pub gc_interval: GoDuration,

    /// Accepted for compatibility; no webhook is needed here
    #[arg(long, value_name = "PORT", default_value_t = 9443, hide = true)]
    pub webhook_server_port: u16,
}

impl ServeArgs {
    /// The limits on images and on catalogs.
    ///
    /// # Errors
    /// For a limit that does not exist.
    pub fn limits(&self) -> Result<(olm_oci::Limits, IngestLimits), UsageError> {
        let (mut image, mut content) = (olm_oci::Limits::default(), IngestLimits::default());
        self.limits.apply(|name, value| match name {
            "catalog-file-bytes" => {
                (image.selected_bytes, image.file_bytes) = (value, value);
                true
            }
            "catalog-entries" => {
                image.selected_entries = value;
                true
            }
            _ => image.set(name, value) || content.set(name, value),
        })?;
        Ok((image, content))
    }

    /// Where the certificate comes from.
    ///
    /// # Errors
    /// When there is none: content is served over TLS only.
    pub fn serving(&self) -> Result<Serving, UsageError> {
        self.run.tls.serving()?.ok_or(UsageError::NoTls)
    }

    /// The names of a self-issued certificate when none are given: those that clients are configured to call.
    #[must_use]
    pub(crate) fn own_names(&self) -> Vec<String> {
        let address = self.external_address.as_str();
        let host = match address.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => address,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let longer = host.ends_with(".svc").then(|| format!("{host}.cluster.local"));
        [host].into_iter().chain(longer).collect()
    }
}

/// Flags that cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// See [`ArgsError`].
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// Neither TLS file.
    #[error("catalog content is served over TLS only; give tls-cert and tls-key, or tls-self-issued")]
    NoTls,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["catalogd"].iter().chain(flags))
    }

    #[test]
    fn args_accept_flags_as_users_write_them() {
        let cli = parse(&[
            "--cache-dir=/tmp/c",
            "--catalogs-server-addr=127.0.0.1:1",
            "--external-address",
            "example.com",
            "--gc-interval=1h30m",
            "--feature-gates=APIV1MetasHandler=false",
            "--feature-gates=GraphQLCatalogQueries=true",
            "--global-pull-secret=ns/name",
            "--webhook-server-port=9999",
            "--leader-elect",
        ])
        .unwrap();
        let gates = cli.serve.run.feature_gates(GATES).unwrap();
        assert!(!gates.enabled(METAS) && gates.enabled(GRAPHQL));
        assert_eq!(cli.serve.gc_interval.0.as_secs(), 5400);
        assert!(cli.command.is_none());
        assert!(parse(&[]).unwrap().serve.run.feature_gates(GATES).unwrap().enabled(METAS), "on by default");
        assert!(matches!(parse(&["version"]).unwrap().command, Some(Command::Version)));
        assert!(parse(&["--nonsense"]).is_err() && parse(&["--gc-interval=1d"]).is_err());
    }

    #[test]
    fn args_set_limits_on_images_and_catalogs() {
        let limits = |flags: &[&str]| parse(flags).unwrap().serve.limits();
        assert_eq!(limits(&[]).unwrap(), Default::default());
        let (image, content) = limits(&[
            "--limit=image-layers=6",
            "--limit=image-layers=7,catalog-file-bytes=8,catalog-objects=9",
        ])
        .unwrap();
        assert_eq!((image.layers, image.selected_bytes, content.objects), (7, 8, 9));
        assert!(limits(&["--limit=bundle-bytes=1"]).is_err());
    }

    #[test]
    fn args_require_a_certificate() {
        for (flags, want) in [
            (
                &[][..],
                "catalog content is served over TLS only; give tls-cert and tls-key, or tls-self-issued",
            ),
            (&["--tls-cert=a"], "tls-cert and tls-key flags must be used together"),
        ] {
            assert_eq!(parse(flags).unwrap().serve.serving().unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn args_self_issued_certificate_has_the_external_address() {
        for (address, want) in [
            (
                "catalogd-service.olmv1-system.svc",
                &["catalogd-service.olmv1-system.svc", "catalogd-service.olmv1-system.svc.cluster.local"][..],
            ),
            ("127.0.0.1:8443", &["127.0.0.1"]),
            ("catalogs.example.com:443", &["catalogs.example.com"]),
            ("[::1]:443", &["::1"]),
        ] {
            assert_eq!(parse(&["--external-address", address]).unwrap().serve.own_names(), want);
        }
    }
}
