//! The configuration of a [`crate::Puller`].
//!
//! [`Config::default`] reads nothing from the machine; [`Config::from_env`] reads the files of the container tools.
//! Files named here are read again for every pull, so a changed pull secret, mirror or certificate needs no restart.

pub(crate) mod certs;
pub(crate) mod keyring;
pub(crate) mod policy;
pub(crate) mod registries;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

pub use certs::CertificateDirs;
pub use keyring::{Credential, Keyring};
pub use registries::RegistriesFiles;

use olm_signature::SignaturePolicy;

use crate::error::ImageError;

/// Credentials that a controller keeps up to date while pulls run.
#[derive(Debug, Clone, Default)]
pub struct SharedKeyring(Arc<RwLock<Option<Arc<Keyring>>>>);

impl SharedKeyring {
    /// Replaces the credentials for all later pulls. `None`: there are none, the default files are read.
    pub fn set(&self, keyring: Option<Keyring>) {
        *self.0.write() = keyring.map(Arc::new);
    }

    fn get(&self) -> Option<Arc<Keyring>> {
        self.0.read().clone()
    }
}

/// Where credentials come from; the first source that exists counts, alone (rule: catalogd §5.2).
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Credentials held in memory.
    pub shared: Option<SharedKeyring>,
    /// One file, a docker or containers `config.json`/`auth.json`.
    pub file: Option<PathBuf>,
    /// Files to try when there is neither; the first that exists is used.
    pub default_files: Vec<PathBuf>,
}

impl Credentials {
    /// The default search: `$REGISTRY_AUTH_FILE`, the runtime directory's and the user's `containers/auth.json`, docker's
    /// `config.json`.
    #[must_use]
    pub fn from_env() -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = var("HOME");
        let default_files = [
            var("REGISTRY_AUTH_FILE"),
            var("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json")),
            var("XDG_CONFIG_HOME")
                .or_else(|| home.as_ref().map(|home| home.join(".config")))
                .map(|dir| dir.join("containers/auth.json")),
            var("DOCKER_CONFIG")
                .or_else(|| home.as_ref().map(|home| home.join(".docker")))
                .map(|dir| dir.join("config.json")),
        ];
        Self { shared: None, file: None, default_files: default_files.into_iter().flatten().collect() }
    }

    pub(crate) fn load(&self) -> Result<Arc<Keyring>, ImageError> {
        if let Some(keyring) = self.shared.as_ref().and_then(SharedKeyring::get) {
            return Ok(keyring);
        }
        for file in self.file.iter().chain(&self.default_files) {
            if let Some(bytes) = if_there(file, std::fs::read(file))? {
                let mut keyring = Keyring::new();
                keyring
                    .add_config_json(&bytes)
                    .map_err(|cause| ImageError::Config(format!("{}: {cause}", file.display())))?;
                return Ok(Arc::new(keyring));
            }
        }
        Ok(Arc::default())
    }
}

/// What was read of a file or directory that may be missing.
fn if_there<T>(path: &Path, read: std::io::Result<T>) -> Result<Option<T>, ImageError> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ImageError::Io { path: path.to_owned(), source }),
    }
}

fn paths_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}

/// Proxies, as the usual environment variables name them. Loopback addresses never go through a proxy.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For `http://` registries.
    pub http: Option<String>,
    /// For `https://` registries.
    pub https: Option<String>,
    /// Comma-separated hosts, domains and networks that are reached directly.
    pub no_proxy: String,
}

impl std::fmt::Debug for Proxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // a proxy URL may hold a password
        f.debug_struct("Proxies")
            .field("http", &self.http.is_some())
            .field("https", &self.https.is_some())
            .field("no_proxy", &self.no_proxy)
            .finish()
    }
}

impl Proxies {
    /// `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, upper case before lower case.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Self {
        let var = |upper: &str| {
            [upper.to_owned(), upper.to_lowercase()]
                .into_iter()
                .find_map(|name| get(&name).filter(|value| !value.is_empty()))
        };
        Self {
            http: var("HTTP_PROXY"),
            https: var("HTTPS_PROXY"),
            no_proxy: var("NO_PROXY").unwrap_or_default(),
        }
    }
}

/// How long to wait for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Name lookup, connection and TLS handshake together.
    pub connect: Duration,
    /// From the request to the head of the answer, and for a manifest, config or token as a whole.
    pub answer: Duration,
    /// No byte of a blob for so long.
    pub stall: Duration,
    /// Fewer than [`Timeouts::slow_bytes`] of a blob in so long, counting only time spent waiting for the registry.
    pub slow: Duration,
    /// See [`Timeouts::slow`].
    pub slow_bytes: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            slow: Duration::from_secs(120),
            slow_bytes: 64 << 10,
        }
    }
}

/// How often to try again inside of one pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// Further attempts after a 429.
    pub too_many_requests: u32,
    /// Further attempts after a 500, 502, 503 or 504.
    pub server_error: u32,
    /// Times that a broken blob download is continued where it stopped.
    pub resume: u32,
    /// First pause; doubles each time.
    pub first_pause: Duration,
    /// Longest pause before a blob is continued, and all pauses of one request together. A registry that demands more ends
    /// the attempt, with [`crate::Retry::After`].
    pub longest_pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            too_many_requests: 5,
            server_error: 3,
            resume: 5,
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_secs(30),
        }
    }
}

/// The platform of the image to use from a multi-architecture index, in the names that Go uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// `linux`, `darwin`, …
    pub os: String,
    /// `amd64`, `arm64`, `ppc64le`, `s390x`, `arm`, …
    pub architecture: String,
}

impl Default for Platform {
    /// Linux on the architecture of this process: images run in the cluster, even if this process runs elsewhere.
    fn default() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            "powerpc64" => "ppc64",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into() }
    }
}

/// The configuration of a [`crate::Puller`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Trusted roots and client certificates.
    pub certificates: CertificateDirs,
    pub credentials: Credentials,
    /// registries.conf files: mirrors, insecure and blocked registries.
    pub registries: RegistriesFiles,
    /// Allow plain HTTP and any certificate for every registry, regardless of the files. For interactive use.
    pub insecure: bool,
    /// Which images may be used.
    pub signature_policy: SignaturePolicy,
    /// The file that records the verified signatures; `None` keeps them in memory.
    pub verdicts: Option<PathBuf>,
    pub proxies: Proxies,
    /// `User-Agent` of every request.
    pub user_agent: String,
    pub timeouts: Timeouts,
    pub retries: Retries,
    /// The platform to select from an index.
    pub platform: Platform,
    /// Layers of one image downloaded at the same time; what is ahead of the reader waits in small buffers.
    pub parallel_layers: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            certificates: CertificateDirs::default(),
            credentials: Credentials::default(),
            registries: RegistriesFiles::default(),
            insecure: false,
            signature_policy: SignaturePolicy::default(),
            verdicts: None,
            proxies: Proxies::default(),
            user_agent: concat!("olm-rs/", env!("CARGO_PKG_VERSION")).into(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            platform: Platform::default(),
            parallel_layers: 3,
        }
    }
}

impl Config {
    /// Certificates, credentials, registries and proxies from the files of the container tools (catalogd §5.2 to §5.4).
    #[must_use]
    pub fn from_env() -> Self {
        Self {
            certificates: CertificateDirs::from_env(),
            credentials: Credentials::from_env(),
            registries: RegistriesFiles::from_env(),
            proxies: Proxies::from_env(),
            ..Self::default()
        }
    }

    /// As [`Config::from_env`], for a program that keeps credentials in `keyring`, judges signatures by the policy of `--signature-policy` or,
    /// without the flag, of the container tools, and records verdicts in the file `verdicts`.
    #[must_use]
    pub fn of_program(keyring: SharedKeyring, signature_policy: Option<&str>, verdicts: PathBuf) -> Self {
        let signature_policy = policy::find_signature_policy(signature_policy);
        let config = Self::from_env();
        let credentials = Credentials { shared: Some(keyring), ..config.credentials.clone() };
        Self { credentials, signature_policy, verdicts: Some(verdicts), ..config }
    }

    /// With the certificates of `--pull-cas-dir` for every host, if it is given, in place of those of the usual directories.
    #[must_use]
    pub fn with_certificates(self, directory: Option<&Path>) -> Self {
        match directory.map(Path::to_owned) {
            None => self,
            every_host => {
                Self { certificates: CertificateDirs { every_host, ..CertificateDirs::default() }, ..self }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_from_environment() {
        let proxies = |http: Option<&str>, https: Option<&str>, no_proxy: &str| Proxies {
            http: http.map(str::to_owned),
            https: https.map(str::to_owned),
            no_proxy: no_proxy.to_owned(),
        };
        for (variables, want) in [
            (&[][..], proxies(None, None, "")),
            (&[("HTTP_PROXY", "a")], proxies(Some("a"), None, "")),
            (
                &[("https_proxy", "b"), ("no_proxy", "x,.svc"), ("http_proxy", "a")],
                proxies(Some("a"), Some("b"), "x,.svc"),
            ),
            (
                &[("HTTPS_PROXY", "upper"), ("https_proxy", "lower"), ("NO_PROXY", "*"), ("no_proxy", "x")],
                proxies(None, Some("upper"), "*"),
            ),
            (&[("HTTPS_PROXY", ""), ("https_proxy", "lower")], proxies(None, Some("lower"), "")),
            (&[("ALL_PROXY", "c"), ("Http_Proxy", "d")], proxies(None, None, "")),
        ] {
            let get = |name: &str| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(Proxies::from_variables(get), want, "{variables:?}");
        }
    }
}
