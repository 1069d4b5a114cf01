//! The certificate and key that our servers show: read again when their files change, or given by the issuer of the process.
//!
//! A broken or half-written pair never replaces a working one: the old pair stays and the failure is logged and counted.
//!
//! Rule: catalogd §2.5 (new handshakes use the new pair, no restart).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::TlsError;
use super::stamp::{Stamp, follow};
use crate::Shutdown;

/// What a given certificate and key are called in errors.
const CERT: &str = "tls.crt";
const KEY: &str = "tls.key";

/// A pair, and the work that keeps it current until shutdown.
pub type WatchedPair = (Arc<ServingPair>, BoxFuture<'static, ()>);

/// A certificate chain and its key.
#[derive(Debug)]
pub struct ServingPair {
    /// Certificate and key; none when the pair is given.
    files: Option<(PathBuf, PathBuf)>,
    current: RwLock<Arc<CertifiedKey>>,
    seen: Mutex<[Stamp; 2]>,
    reads: AtomicU64,
    failures: AtomicU64,
}

impl ServingPair {
    /// Reads the pair.
    ///
    /// # Errors
    /// If a file cannot be read or parsed, or the two do not belong together.
    pub fn load(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Arc<Self>, TlsError> {
        let (cert, key) = (cert.into(), key.into());
        let seen = [Stamp::read(&cert), Stamp::read(&key)];
        let current = read(&cert, &key)?;
        Ok(Self::from_parts(Some((cert, key)), current, seen))
    }

    /// Takes the pair as PEM text.
    ///
    /// # Errors
    /// If a part cannot be parsed, or the two do not belong together.
    pub fn given(cert: &str, key: &str) -> Result<Arc<Self>, TlsError> {
        Ok(Self::from_parts(
            None,
            parse(CERT.as_ref(), cert.as_bytes(), KEY.as_ref(), key.as_bytes())?,
            <[Stamp; 2]>::default(),
        ))
    }

    fn from_parts(files: Option<(PathBuf, PathBuf)>, current: CertifiedKey, seen: [Stamp; 2]) -> Arc<Self> {
        Arc::new(Self {
            files,
            current: RwLock::new(Arc::new(current)),
            seen: Mutex::new(seen),
            reads: AtomicU64::new(1),
            failures: AtomicU64::new(0),
        })
    }

    /// Takes another pair as PEM text; returns whether it is another one. New handshakes use it.
    ///
    /// # Errors
    /// As [`ServingPair::given`]; the pair in use stays.
    pub fn replace(&self, cert: &str, key: &str) -> Result<bool, TlsError> {
        let chain = certificates(CERT.as_ref(), cert.as_bytes())?;
        if self.current().cert == chain {
            return Ok(false);
        }
        self.take(parse(CERT.as_ref(), cert.as_bytes(), KEY.as_ref(), key.as_bytes()))
    }

    fn take(&self, read: Result<CertifiedKey, TlsError>) -> Result<bool, TlsError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        match read {
            Ok(pair) => {
                *self.current.write() = Arc::new(pair);
                Ok(true)
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Reads the pair again if a file has changed since the last look; returns whether the pair was replaced.
    ///
    /// # Errors
    /// If the files are broken now; the pair in use stays, and the files are read again when they change once more, or at the next look
    /// if they could not be read.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let Some((cert, key)) = &self.files else { return Ok(false) };
        let now = [Stamp::read(cert), Stamp::read(key)];
        {
            let mut seen = self.seen.lock();
            if *seen == now {
                return Ok(false);
            }
            *seen = now;
        }
        let read = read(cert, key);
        if read.as_ref().is_err_and(TlsError::is_unread) {
            *self.seen.lock() = <[Stamp; 2]>::default();
        }
        self.take(read)
    }

    /// Looks at the files every few seconds until shutdown.
    pub async fn watch(self: Arc<Self>, shutdown: Shutdown) {
        let Some((cert, _)) = &self.files else { return };
        follow("serving certificate", cert, || self.reload_if_changed(), &shutdown).await;
    }

    /// How often the files were read, and how often that failed.
    pub fn counts(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// When the certificate in use ends; `None` if it cannot be read.
    pub fn ends(&self) -> Option<Timestamp> {
        let current = self.current();
        let (_, certificate) = X509Certificate::from_der(current.cert.first()?).ok()?;
        Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
    }

    pub fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read())
    }
}

impl ResolvesServerCert for ServingPair {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn read(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    parse(cert, &bytes(cert)?, key, &bytes(key)?)
}

fn parse(cert: &Path, cert_pem: &[u8], key: &Path, key_pem: &[u8]) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(cert, cert_pem)?;
    if chain.is_empty() {
        return Err(TlsError::Empty { path: cert.to_owned(), what: "certificate" });
    }
    let secret = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
        rustls_pki_types::pem::Error::NoItemsFound => {
            TlsError::Empty { path: key.to_owned(), what: "private key" }
        }
        other => TlsError::Pem { path: key.to_owned(), reason: other.to_string() },
    })?;
    CertifiedKey::from_der(chain, secret, &ring::default_provider()).map_err(|source| TlsError::Pair {
        cert: cert.to_owned(),
        key: key.to_owned(),
        source,
    })
}

pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

/// All certificates of a PEM file; none is not an error here.
///
/// # Errors
/// If a block is broken; the error names the path.
pub fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Pem { path: path.to_owned(), reason: error.to_string() })
}
