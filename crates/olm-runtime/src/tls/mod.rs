//! TLS with one provider (ring): profiles, a serving pair that follows its files, and the pool of trusted CAs.
//!
//! What the provider cannot do is logged, not hidden: TLS 1.0/1.1, CBC, RSA key exchange and post-quantum curves are accepted as
//! names and left out with one log line, because no secure server loses anything by it.
//!
//! Rule: catalogd §2.4, operator-controller §7.3, §7.9.

mod pair;
mod profile;
mod roots;
mod stamp;

pub use pair::{ServingPair, WatchedPair, certificates};
pub use profile::{ProfileError, TlsSettings};
pub use roots::CaPool;

use std::path::PathBuf;
use std::sync::Arc;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A file holds no certificate or no private key where one is needed.
    #[error("{} holds no {what} in PEM form", path.display())]
    Empty {
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// A PEM block is broken.
    #[error("cannot parse {}: {reason}", path.display())]
    Pem { path: PathBuf, reason: String },
    /// Certificate and key are each readable but do not belong together, or the key is of an unknown sort.
    #[error("certificate {} and key {} cannot be used together", cert.display(), key.display())]
    Pair {
        cert: PathBuf,
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
    /// A folder of CAs without any certificate.
    #[error("no certificates found in {}", path.display())]
    NoCertificates { path: PathBuf },
    /// The settings cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The TLS library refuses.
    #[error("cannot configure TLS")]
    Rustls(#[from] rustls::Error),
}

impl TlsError {
    /// A file is there and was not read, as when the process has too many open files: that passes without a change of the file.
    fn is_unread(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() != std::io::ErrorKind::NotFound)
    }
}

/// Makes ring the provider of this process; comes first in `main`. A second call changes nothing.
pub fn install_provider() {
    // an error means that a provider is installed already
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A server configuration for the pair: no client certificates. The server decides the versions of HTTP.
///
/// # Errors
/// If the settings leave nothing that the provider can do.
pub fn server_config(
    pair: Arc<ServingPair>,
    settings: &TlsSettings,
) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(settings.provider()?))
        .with_protocol_versions(settings.versions())?
        .with_no_client_auth()
        .with_cert_resolver(pair);
    Ok(Arc::new(config))
}

#[cfg(test)]
pub(crate) mod tests;
