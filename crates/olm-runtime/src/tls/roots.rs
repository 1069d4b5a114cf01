//! The CAs that we trust: the system's and those of a folder, read again when the folder changes.
//!
//! Rule: operator-controller §7.9 (every regular file, symlinks followed, folders skipped; a folder without any certificate is an
//! error at start).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;

use super::pair::{bytes, certificates};
use super::stamp::{Stamp, follow};
use super::{TlsError, TlsSettings};
use crate::Shutdown;

/// The system's CAs (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured) and those of one folder.
#[derive(Debug)]
pub struct CaPool {
    folder: Option<PathBuf>,
    base: Vec<CertificateDer<'static>>,
    current: RwLock<Arc<Vec<CertificateDer<'static>>>>,
    seen: Mutex<Vec<(PathBuf, Stamp)>>,
}

impl CaPool {
    /// Reads the system's CAs and the folder's, if there is one. System files that cannot be read are logged and left out.
    ///
    /// # Errors
    /// If the folder or a file in it cannot be read, a PEM block is broken, or the folder holds no certificate.
    pub fn load(folder: Option<&Path>) -> Result<Arc<Self>, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(error = %error, "cannot read some of the system's CA certificates");
        }
        Self::given(found.certs, folder)
    }

    /// The certificates given and the folder's, if there is one; nothing of the system's.
    ///
    /// # Errors
    /// As [`CaPool::load`].
    pub fn given(base: Vec<CertificateDer<'static>>, folder: Option<&Path>) -> Result<Arc<Self>, TlsError> {
        let seen = folder.map(stamps).transpose()?.unwrap_or_default();
        let own = folder.map(read_folder).transpose()?.unwrap_or_default();
        let all = base.iter().cloned().chain(own).collect();
        Ok(Arc::new(Self {
            folder: folder.map(Path::to_owned),
            base,
            current: RwLock::new(Arc::new(all)),
            seen: Mutex::new(seen),
        }))
    }

    pub fn certificates(&self) -> Arc<Vec<CertificateDer<'static>>> {
        Arc::clone(&self.current.read())
    }

    /// The certificates in use as a root store; what is no usable CA is left out, as Go does.
    pub(crate) fn root_store(&self) -> RootCertStore {
        let mut store = RootCertStore::empty();
        let (_, ignored) = store.add_parsable_certificates(self.certificates().iter().cloned());
        if ignored > 0 {
            tracing::debug!(ignored, "some CA certificates cannot be used");
        }
        store
    }

    /// A client configuration that trusts the certificates in use now. It does not follow later changes: make a new one for each
    /// client.
    ///
    /// # Errors
    /// If the settings leave nothing that the provider can do.
    pub fn client_config(&self, settings: &TlsSettings) -> Result<rustls::ClientConfig, TlsError> {
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(settings.provider()?))
            .with_protocol_versions(settings.versions())?
            .with_root_certificates(self.root_store())
            .with_no_client_auth();
        Ok(config)
    }

    /// Reads the folder again if something in it has changed since the last look; returns whether the pool was replaced.
    ///
    /// # Errors
    /// As [`CaPool::load`]; the certificates in use stay.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let Some(folder) = &self.folder else { return Ok(false) };
        let now = stamps(folder)?;
        {
            let mut seen = self.seen.lock();
            if *seen == now {
                return Ok(false);
            }
            *seen = now;
        }
        let own = read_folder(folder);
        if own.as_ref().is_err_and(TlsError::is_unread) {
            self.seen.lock().clear();
        }
        let all = self.base.iter().cloned().chain(own?).collect();
        *self.current.write() = Arc::new(all);
        Ok(true)
    }

    /// Looks at the folder every few seconds until shutdown.
    pub async fn watch(self: Arc<Self>, shutdown: Shutdown) {
        let Some(folder) = self.folder.clone() else { return };
        follow("CA certificates", &folder, || self.reload_if_changed(), &shutdown).await;
    }
}

/// The regular files of a folder, by name, symlinks followed. Kubernetes mounts hold hidden folders (`..data`), which are skipped.
fn files(folder: &Path) -> Result<Vec<PathBuf>, TlsError> {
    let unreadable = |source| TlsError::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn stamps(folder: &Path) -> Result<Vec<(PathBuf, Stamp)>, TlsError> {
    Ok(files(folder)?
        .into_iter()
        .map(|path| {
            let stamp = Stamp::read(&path);
            (path, stamp)
        })
        .collect())
}

fn read_folder(folder: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut all = Vec::new();
    for path in files(folder)? {
        all.extend(certificates(&path, &bytes(&path)?)?);
    }
    if all.is_empty() {
        return Err(TlsError::NoCertificates { path: folder.to_owned() });
    }
    Ok(all)
}
