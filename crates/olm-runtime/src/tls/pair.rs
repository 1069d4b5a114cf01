//! The certificate and key that our servers show, read again when their files change.
//!
//! A broken or half-written pair never replaces a working one: the old pair stays and the failure is logged and counted.
//!
//! Rule: catalogd §2.5 (new handshakes use the new pair, no restart).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;
use super::stamp::{INTERVAL, Stamp};
use crate::Shutdown;

/// A certificate chain and its key, from two PEM files.
#[derive(Debug)]
pub struct ServingPair {
    cert: PathBuf,
    key: PathBuf,
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
        let seen = [Stamp::of(&cert), Stamp::of(&key)];
        let current = read(&cert, &key)?;
        Ok(Arc::new(Self {
            cert,
            key,
            current: RwLock::new(Arc::new(current)),
            seen: Mutex::new(seen),
            reads: AtomicU64::new(1),
            failures: AtomicU64::new(0),
        }))
    }

    /// Reads the pair again if a file has changed since the last look; returns whether the pair was replaced.
    ///
    /// # Errors
    /// If the files are broken now; the pair in use stays, and the files are read again when they change once more.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let now = [Stamp::of(&self.cert), Stamp::of(&self.key)];
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen == now {
                return Ok(false);
            }
            *seen = now;
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        match read(&self.cert, &self.key) {
            Ok(pair) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
                Ok(true)
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Looks at the files every few seconds until shutdown.
    pub async fn watch(self: Arc<Self>, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            match self.reload_if_changed() {
                Ok(true) => tracing::info!(cert = %self.cert.display(), "serving certificate replaced"),
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    error = crate::error_text::chain(&error),
                    "cannot read the new serving certificate, the old one stays in use"
                ),
            }
        }
    }

    /// How often the files were read, and how often that failed.
    pub fn counts(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// The pair in use.
    pub fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for ServingPair {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn read(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(cert, &bytes(cert)?)?;
    if chain.is_empty() {
        return Err(TlsError::Empty { path: cert.to_owned(), what: "certificate" });
    }
    let secret = PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(|error| match error {
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
pub(super) fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Pem { path: path.to_owned(), reason: error.to_string() })
}
