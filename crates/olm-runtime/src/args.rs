//! Flags that every process has, read as Go's pflag reads them: `--flag` and `--flag=false` both work for switches, the logging flags
//! of klog are accepted, addresses may be `:8443`.
//!
//! Rule: operator-controller §7.1, catalogd §2.1, §2.2.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Subcommand};
use k8s_openapi::jiff::SignedDuration;

use crate::check::CheckArgs;
use crate::duration::GoDuration;
use crate::features::{FeatureGateError, FeatureGates, Gate, go_bool};
use crate::foreign::ForeignOlm;
use crate::intervals::Intervals;
use crate::pull_secrets::NamespacedName;
use crate::telemetry::{LogFormat, TelemetryError};
use crate::tls::{ProfileError, TlsSettings};

/// Flags that do not fit together. The texts are those of the reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// One of the two without the other.
    #[error("tls-cert and tls-key flags must be used together")]
    HalfPair,
    /// Two certificates to serve with.
    #[error("tls-self-issued and tls-cert exclude each other; give one of the two")]
    TwoPairs,
    /// A certificate that would end immediately, or never.
    #[error("tls-self-issued-validity must lie between 10s and 87600h")]
    Validity,
    /// Metrics are served over TLS only.
    #[error("metrics-bind-address requires tls-cert and tls-key flags, or tls-self-issued")]
    MetricsWithoutTls,
    /// Not `<namespace>/<name>`.
    #[error("value of global-pull-secret should be of the format <namespace>/<name>")]
    PullSecret,
    /// A name that no limit has.
    #[error("--limit: there is no limit {name:?}; docs/internals/limits.md lists them")]
    Limit { name: String },
    /// The TLS profile flags.
    #[error(transparent)]
    Tls(#[from] ProfileError),
    #[error(transparent)]
    FeatureGates(#[from] FeatureGateError),
}

/// A switch as pflag has it: absent, `--x`, `--x=true`, `--x=false`.
pub fn switch() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new([
        "true", "false", "1", "0", "t", "f", "T", "F", "TRUE", "FALSE", "True", "False",
    ])
    .map(|text| go_bool(&text).unwrap_or(false))
}

/// Another job of a process than its own.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Print which build this is
    Version,
    /// Check that a URL answers over TLS; for `helm test`
    Check(CheckArgs),
}

/// What a controller process needs to run.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The kubeconfig file; without it KUBECONFIG, ~/.kube/config or the pod's own account
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    kubeconfig: String,

    /// Work only while holding the lease, so that several replicas can run
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, action = ArgAction::Set, value_parser = switch())]
    pub leader_elect: bool,

    /// What to do if another OLM v1 manages the same objects: it holds a lease of the same name in another namespace. With
    /// --leader-elect alone
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    pub foreign_olm: ForeignOlm,

    /// Where /healthz and /readyz are served, without TLS
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Where /metrics is served, with TLS; needs --tls-cert and --tls-key, or --tls-self-issued
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    metrics_bind_address: String,

    /// Where /debug/pprof is served, with the TLS and the authorization of /metrics; 0 serves no profiles
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub pprof_bind_address: String,

    /// The namespace for the process's own objects; without it the pod's, else olmv1-system
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    system_namespace: String,

    /// Feature gates as A=true,B=false; repeatable, later wins
    #[arg(long, value_name = "GATES", action = ArgAction::Append)]
    feature_gates: Vec<String>,

    /// Other intervals than those of the product, for tests: minute=2s,correction-window=10s
    #[arg(long, value_name = "INTERVALS", default_value = "", hide = true)]
    pub test_intervals: Intervals,

    /// TLS of what is served
    #[command(flatten)]
    pub tls: TlsArgs,

    /// Logging
    #[command(flatten)]
    pub logs: LogArgs,
}

impl RunArgs {
    /// The kubeconfig file, if one is named.
    pub fn kubeconfig(&self) -> Option<&Path> {
        (!self.kubeconfig.is_empty()).then(|| Path::new(&self.kubeconfig))
    }

    /// The namespace for the process's own objects.
    pub fn system_namespace(&self) -> String {
        crate::namespace::system_namespace(&self.system_namespace)
    }

    /// Where metrics are served: the flag, or `fallback` if there is a certificate; `None` if metrics are off.
    ///
    /// # Errors
    /// As [`TlsArgs::serving`], or if there is an address without a certificate.
    pub fn metrics_address(&self, fallback: &str) -> Result<Option<String>, ArgsError> {
        let address = self.metrics_bind_address.as_str();
        match (self.tls.serving()?, address) {
            // `0` is controller-runtime's word for off
            (_, "0") | (None, "") => Ok(None),
            (None, _) => Err(ArgsError::MetricsWithoutTls),
            (Some(_), "") => Ok(Some(fallback.to_owned())),
            (Some(_), address) => Ok(Some(address.to_owned())),
        }
    }

    /// The state of the gates that the process knows.
    ///
    /// # Errors
    /// If a gate is unknown or has no value.
    pub fn feature_gates(&self, known: &[Gate]) -> Result<FeatureGates, ArgsError> {
        Ok(FeatureGates::parse(known, &self.feature_gates)?)
    }
}

/// The serving certificate and the TLS profile.
#[derive(Args, Clone, Debug)]
pub struct TlsArgs {
    /// The certificate to serve with, PEM; read again when it changes
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    tls_cert: String,

    /// The key of the certificate, PEM
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    tls_key: String,

    /// Without --tls-cert: serve with a certificate that the process issues itself and keeps in this Secret of its namespace; its
    /// CA is published in the ConfigMap of the same name. No two services may share a name
    #[arg(long, value_name = "SECRET", default_value = "", hide_default_value = true)]
    tls_self_issued: String,

    /// The names in a self-issued certificate, comma-separated; without it those of the process's Service
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_self_issued_names: Vec<String>,

    /// How long a self-issued certificate is valid, 10s to 87600h; rotated 30 days before its end, or in the last third
    #[arg(long, value_name = "DURATION", default_value = "2160h")]
    tls_self_issued_validity: GoDuration,

    /// modern (TLS 1.3), intermediate (TLS 1.2 and 1.3), old (the same as intermediate; older versions are not supported) or custom
    #[arg(long, value_name = "PROFILE", default_value = "intermediate")]
    tls_profile: String,

    /// TLS 1.2 cipher suites by their IANA names, comma-separated; only for profile custom
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_custom_ciphers: Vec<String>,

    /// Curves, comma-separated: X25519, prime256v1, secp256r1, secp384r1; only for profile custom
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_custom_curves: Vec<String>,

    /// The least TLS version, TLSv1.2 or TLSv1.3 (TLSv1.0 and TLSv1.1 mean TLSv1.2); only for profile custom
    #[arg(long, value_name = "VERSION", default_value = "TLSv1.2")]
    tls_custom_version: String,
}

/// Where the certificate to serve with comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serving {
    /// Files that another program writes.
    Files {
        /// The certificate chain, PEM.
        cert: PathBuf,
        /// Its key, PEM.
        key: PathBuf,
    },
    /// The process itself.
    SelfIssued(SelfIssuing),
}

/// The flags of a self-issued certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfIssuing {
    /// The name of the Secret and of the ConfigMap.
    pub secret: String,
    /// The names in the certificate; none for those of the process's Service.
    pub names: Vec<String>,
    /// How long a certificate is valid.
    pub validity: SignedDuration,
}

/// The names under which a Service is reached from inside the cluster.
#[must_use]
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    ["svc", "svc.cluster.local"].map(|rest| format!("{service}.{namespace}.{rest}")).to_vec()
}

impl TlsArgs {
    /// Where the certificate comes from, if there is to be one.
    ///
    /// # Errors
    /// If only one of the files is given, or files and self-issued, or an impossible validity.
    pub fn serving(&self) -> Result<Option<Serving>, ArgsError> {
        match (self.tls_cert.as_str(), self.tls_key.as_str(), self.tls_self_issued.as_str()) {
            ("", "", "") => Ok(None),
            ("", "", secret) => {
                let seconds = self.tls_self_issued_validity.0.as_secs();
                if !(10..=87_600 * 3600).contains(&seconds) {
                    return Err(ArgsError::Validity);
                }
                Ok(Some(Serving::SelfIssued(SelfIssuing {
                    secret: secret.to_owned(),
                    names: self
                        .tls_self_issued_names
                        .iter()
                        .filter(|name| !name.is_empty())
                        .cloned()
                        .collect(),
                    validity: SignedDuration::from_secs(seconds.try_into().map_err(|_| ArgsError::Validity)?),
                })))
            }
            ("", _, _) | (_, "", _) => Err(ArgsError::HalfPair),
            (cert, key, "") => Ok(Some(Serving::Files { cert: cert.into(), key: key.into() })),
            (_, _, _) => Err(ArgsError::TwoPairs),
        }
    }

    /// The TLS settings of the profile flags.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn settings(&self) -> Result<TlsSettings, ArgsError> {
        let settings = TlsSettings::parse(
            &self.tls_profile,
            &self.tls_custom_ciphers,
            &self.tls_custom_curves,
            &self.tls_custom_version,
        )?;
        Ok(settings)
    }
}

/// What pulls images need.
#[derive(Args, Clone, Debug)]
pub struct PullArgs {
    /// A folder with CA certificates for registries
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    pull_cas_dir: String,

    /// The Secret with credentials for registries, as <namespace>/<name>
    #[arg(long, value_name = "SECRET", default_value = "", hide_default_value = true)]
    global_pull_secret: String,

    /// A signature policy file, or insecureAcceptAnything; without it the policy.json of the container tools, if there is one
    #[arg(long, value_name = "FILE")]
    signature_policy: Option<String>,
}

impl PullArgs {
    /// The signature policy, if one is named.
    pub fn signature_policy(&self) -> Option<&str> {
        self.signature_policy.as_deref()
    }

    /// The folder with CAs, if one is named.
    pub fn cas_dir(&self) -> Option<&Path> {
        (!self.pull_cas_dir.is_empty()).then(|| Path::new(&self.pull_cas_dir))
    }

    /// Namespace and name of the pull secret, if one is named.
    ///
    /// # Errors
    /// If it is not of the form `<namespace>/<name>`.
    pub fn pull_secret(&self) -> Result<Option<NamespacedName>, ArgsError> {
        if self.global_pull_secret.is_empty() {
            return Ok(None);
        }
        match self.global_pull_secret.split_once('/') {
            Some((namespace, name)) if !name.contains('/') => {
                Ok(Some(NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }))
            }
            _ => Err(ArgsError::PullSecret),
        }
    }
}

/// Limits on foreign content.
#[derive(Args, Clone, Debug, Default)]
pub struct LimitArgs {
    /// Another limit on foreign content, as bundle-bytes=67108864, or several with commas; the documentation lists their names
    #[arg(long = "limit", value_name = "NAME=NUMBER", value_delimiter = ',')]
    limits: Vec<LimitSetting>,
}

impl LimitArgs {
    /// Passes each name and number to `set`, which returns whether there is such a limit.
    ///
    /// # Errors
    /// If there is none.
    pub fn apply(&self, mut set: impl FnMut(&str, u64) -> bool) -> Result<(), ArgsError> {
        match self.limits.iter().find(|setting| !set(&setting.name, setting.value)) {
            Some(unknown) => Err(ArgsError::Limit { name: unknown.name.clone() }),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug)]
struct LimitSetting {
    name: String,
    value: u64,
}

impl FromStr for LimitSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let setting = text.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let (name, value) = setting.ok_or("must be <name>=<number>")?;
        Ok(Self { name: name.to_owned(), value })
    }
}

/// Logging: two flags that matter, and those of klog, which are accepted.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// How log lines look
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Send traces to this OpenTelemetry collector (OTLP over HTTP), as http://collector:4318; OTEL_* variables count, too
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    otlp_endpoint: String,

    /// How much is logged: 0 to 10
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    pub v: u8,

    /// klog's own flags
    #[command(flatten)]
    klog: KlogArgs,
}

impl LogArgs {
    /// Starts logging, and tracing if it is enabled. Call it in the async runtime.
    ///
    /// # Errors
    /// As [`crate::telemetry::init`].
    pub fn init(&self) -> Result<(), TelemetryError> {
        crate::telemetry::init(self.log_format, self.v, &self.otlp_endpoint)
    }
}

/// Accepted so that manifests written for the reference start; nothing reads them.
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
struct KlogArgs {
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch())]
    logtostderr: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch())]
    alsologtostderr: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch())]
    skip_headers: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch())]
    skip_log_headers: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch())]
    one_output: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch())]
    add_dir_header: Option<bool>,
    #[arg(long, hide = true)]
    vmodule: Option<String>,
    #[arg(long, hide = true)]
    log_dir: Option<String>,
    #[arg(long, hide = true)]
    log_file: Option<String>,
    #[arg(long, hide = true)]
    log_file_max_size: Option<u64>,
    #[arg(long, hide = true)]
    stderrthreshold: Option<String>,
    #[arg(long, hide = true)]
    log_backtrace_at: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
        #[command(flatten)]
        pull: PullArgs,
        #[command(flatten)]
        limits: LimitArgs,
    }

    fn parse(flags: &[&str]) -> Cli {
        Cli::try_parse_from(["test"].iter().chain(flags)).unwrap_or_else(|error| panic!("{flags:?}: {error}"))
    }

    #[test]
    fn args_switches_work_as_in_pflag() {
        for (flags, want) in [
            (&[][..], false),
            (&["--leader-elect"], true),
            (&["--leader-elect=true"], true),
            (&["--leader-elect=false"], false),
            (&["--leader-elect=F"], false),
            (&["--leader-elect=1", "--v", "2"], true),
        ] {
            assert_eq!(parse(flags).run.leader_elect, want, "{flags:?}");
        }
        assert!(Cli::try_parse_from(["test", "--leader-elect=maybe"]).is_err());
    }

    #[test]
    fn args_limits_are_names_and_numbers() {
        let applied = |flags: &[&str]| {
            let mut found = Vec::new();
            let is_known = |name: &str, value: u64| {
                found.push((name.to_owned(), value));
                name != "x"
            };
            parse(flags).limits.apply(is_known).map(|()| found).map_err(|error| error.to_string())
        };
        let both = vec![("a".to_owned(), 1), ("b".to_owned(), 2)];
        assert_eq!(applied(&["--limit=a=1,b=2"]), Ok(both.clone()));
        assert_eq!(applied(&["--limit", "a=1", "--limit", "b=2"]), Ok(both));
        let unknown = "--limit: there is no limit \"x\"; docs/internals/limits.md lists them";
        assert_eq!(applied(&["--limit=a=1,x=2"]), Err(unknown.to_owned()));
        for text in ["a", "a=", "a=-1", "a=1k"] {
            assert!(Cli::try_parse_from(["test", "--limit", text]).is_err(), "{text}");
        }
    }

    #[test]
    fn args_accept_klog_flags() {
        let cli = parse(&[
            "--logtostderr=true",
            "--alsologtostderr",
            "--vmodule=a=2",
            "--log_dir",
            "/tmp",
            "--log_file=x",
            "--log_file_max_size=1800",
            "--stderrthreshold=2",
            "--skip_headers",
            "--skip_log_headers=false",
            "--one_output",
            "--add_dir_header",
            "--log_backtrace_at=:0",
            "-v=4",
        ]);
        assert_eq!(cli.run.logs.v, 4);
        assert_eq!(parse(&["--v=3"]).run.logs.v, 3);
        assert_eq!(parse(&["--log-format", "json"]).run.logs.log_format, LogFormat::Json);
    }

    #[test]
    fn args_metrics_need_tls_files() {
        let both = ["--tls-cert=c", "--tls-key=k"];
        for (flags, want) in [
            (vec![], "None"),
            (vec!["--metrics-bind-address=0"], "None"),
            (
                vec!["--metrics-bind-address=:1"],
                "metrics-bind-address requires tls-cert and tls-key flags, or tls-self-issued",
            ),
            (vec!["--tls-cert=c"], "tls-cert and tls-key flags must be used together"),
            (vec!["--tls-key=c"], "tls-cert and tls-key flags must be used together"),
            (both.to_vec(), "Some(\":7443\")"),
            ([&both[..], &["--metrics-bind-address=:1"]].concat(), "Some(\":1\")"),
            (vec!["--tls-self-issued=s"], "Some(\":7443\")"),
            (
                [&both[..], &["--tls-self-issued=s"]].concat(),
                "tls-self-issued and tls-cert exclude each other; give one of the two",
            ),
            (
                vec!["--tls-self-issued=s", "--tls-self-issued-validity=9s"],
                "tls-self-issued-validity must lie between 10s and 87600h",
            ),
        ] {
            let got = match parse(&flags).run.metrics_address(":7443") {
                Ok(address) => format!("{address:?}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(got, want, "{flags:?}");
        }
    }

    #[test]
    fn args_self_issued_certificate() {
        for (flag, names) in [("", &[][..]), ("a.example,127.0.0.1", &["a.example", "127.0.0.1"])] {
            let flags = ["--tls-self-issued=s", &format!("--tls-self-issued-names={flag}")];
            let want = Serving::SelfIssued(SelfIssuing {
                secret: "s".to_owned(),
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                validity: SignedDuration::from_hours(90 * 24),
            });
            assert_eq!(parse(&flags).run.tls.serving(), Ok(Some(want)), "{flag}");
        }
        assert_eq!(service_names("web", "ns"), ["web.ns.svc", "web.ns.svc.cluster.local"]);
    }

    #[test]
    fn args_read_the_rest() {
        let cli = parse(&[
            "--feature-gates=A=true",
            "--feature-gates",
            "B=false,A=false",
            "--kubeconfig=",
            "--tls-custom-curves=",
        ]);
        assert_eq!(cli.run.feature_gates, ["A=true", "B=false,A=false"]);
        assert_eq!(cli.run.kubeconfig(), None);
        assert!(cli.run.tls.settings().is_ok());
        assert_eq!(parse(&["--kubeconfig", "k"]).run.kubeconfig(), Some(Path::new("k")));
        let bad = parse(&["--tls-profile=best"]).run.tls.settings().unwrap_err();
        assert_eq!(bad.to_string(), "unknown TLS profile: \"best\"");
        for (secret, want) in [
            ("", Ok(None)),
            ("ns/name", Ok(Some(NamespacedName { namespace: "ns".to_owned(), name: "name".to_owned() }))),
            ("name", Err(ArgsError::PullSecret)),
            ("a/b/c", Err(ArgsError::PullSecret)),
        ] {
            assert_eq!(parse(&["--global-pull-secret", secret]).pull.pull_secret(), want, "{secret}");
        }
    }
}
