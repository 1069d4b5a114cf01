//! TLS towards one registry: trusted roots and client certificates from directories.
//!
//! Rule: catalogd §5.4. With a pull CA directory its `*.crt` (here also `*.pem`) are trusted beside the system roots for
//! **every** host, and each `X.cert` with its `X.key` is a client certificate; a sub-directory named like the registry
//! (`host` or `host:port`, in lower case) adds to that for this registry alone. Without it the first existing
//! `<certs.d>/<host:port>` counts. Directories are read at every pull; the result is cached by content, so that a
//! rotated certificate takes effect with the next pull and an unchanged one keeps its connections.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};

use super::{if_there, paths_in};
use crate::error::ImageError;

/// Directories and files of certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateDirs {
    /// `--pull-cas-dir`: for every host, instead of the per-host directories.
    pub every_host: Option<PathBuf>,
    /// Directories with one sub-directory per `host:port`; the first that has one counts.
    pub per_host: Vec<PathBuf>,
    /// Files with roots that are trusted for every host, in addition to the directories; each must exist.
    pub files: Vec<PathBuf>,
}

impl CertificateDirs {
    /// The search order of catalogd §5.4, for a process without a pull CA directory.
    #[must_use]
    pub fn from_env() -> Self {
        let mut per_host = Vec::new();
        if let Some(home) = std::env::var_os("HOME").filter(|home| !home.is_empty()) {
            per_host.push(Path::new(&home).join(".config/containers/certs.d"));
        }
        per_host.push("/etc/containers/certs.d".into());
        per_host.push("/etc/docker/certs.d".into());
        Self { every_host: None, per_host, files: Vec::new() }
    }

    /// Reads the certificates for `host` (`host:port` as in the reference).
    pub(crate) fn read(&self, host: &str) -> Result<Material, ImageError> {
        let mut material = Material::default();
        for file in &self.files {
            material.roots.insert(file.clone(), read(file)?);
        }
        // a registry host never contains a slash, and a bare `..` is no host; still, never leave the directory
        let is_inside = !host.contains('/') && !host.starts_with('.');
        let own = if is_inside { vec![host.to_owned(), format!("{host}:443")] } else { Vec::new() };
        match &self.every_host {
            Some(directory) => {
                // this one must be there
                let paths = paths_in(directory);
                material.add(paths.map_err(|source| ImageError::Io { path: directory.clone(), source })?)?;
                for directory in own.iter().map(|own| directory.join(own)) {
                    material.add(if_there(&directory, paths_in(&directory))?.unwrap_or_default())?;
                }
            }
            None => {
                let mut all = self.per_host.iter().flat_map(|dir| own.iter().map(|own| dir.join(own)));
                let first = all.find(|dir| dir.is_dir());
                if let Some(directory) = first {
                    material.add(if_there(&directory, paths_in(&directory))?.unwrap_or_default())?;
                }
            }
        }
        Ok(material)
    }
}

/// The files that matter, by path, as they are now.
#[derive(Debug, Default)]
pub(crate) struct Material {
    roots: BTreeMap<PathBuf, Vec<u8>>,
    clients: BTreeMap<PathBuf, (Vec<u8>, Vec<u8>)>,
}

impl Material {
    fn add(&mut self, paths: Vec<PathBuf>) -> Result<(), ImageError> {
        for path in paths.into_iter().filter(|path| !path.is_dir()) {
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("crt" | "pem") => {
                    let bytes = read(&path)?;
                    self.roots.insert(path, bytes);
                }
                Some(extension @ ("cert" | "key")) => {
                    let (certificate, key) = (path.with_extension("cert"), path.with_extension("key"));
                    if !key.exists() {
                        return Err(ImageError::Config(format!(
                            "missing key {} for client certificate {}. Note that CA certificates should use the extension .crt",
                            key.display(),
                            certificate.display()
                        )));
                    }
                    if !certificate.exists() {
                        return Err(ImageError::Config(format!(
                            "missing client certificate {} for key {}",
                            certificate.display(),
                            key.display()
                        )));
                    }
                    if extension == "cert" {
                        let pair = (read(&certificate)?, read(&key)?);
                        self.clients.insert(certificate, pair);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Equal fingerprints mean equal TLS settings.
    pub(crate) fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for bytes in self.roots.values() {
            part(b"root");
            part(bytes);
        }
        for (certificate, key) in self.clients.values() {
            part(b"client");
            part(certificate);
            part(key);
        }
        STANDARD.encode(hash.finalize())
    }

    /// Is there a client certificate to authenticate with?
    pub(crate) fn has_client_certificate(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Builds the TLS settings. `identify` decides whether the client certificate is shown; `insecure` switches the
    /// verification of the server off.
    pub(crate) fn client_config(
        &self,
        system: &RootCertStore,
        identify: bool,
        insecure: bool,
    ) -> Result<ClientConfig, ImageError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| ImageError::Config(error.to_string()))?;
        let builder = if insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyServer(provider)))
        } else {
            let mut roots = system.clone();
            for (path, bytes) in &self.roots {
                let certificates: Vec<CertificateDer<'static>> =
                    CertificateDer::pem_slice_iter(bytes).filter_map(Result::ok).collect();
                let (added, ignored) = roots.add_parsable_certificates(certificates);
                if added == 0 || ignored > 0 {
                    tracing::warn!(file = %path.display(), added, ignored, "not every certificate is usable");
                }
            }
            builder.with_root_certificates(roots)
        };
        let Some((path, (certificate, key))) = self.clients.iter().next().filter(|_| identify) else {
            return Ok(builder.with_no_client_auth());
        };
        if self.clients.len() > 1 {
            tracing::warn!(used = %path.display(), "more than one client certificate; the first is used");
        }
        let bad = |why: String| ImageError::Config(format!("client certificate {}: {why}", path.display()));
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| bad(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| bad(format!("key: {error}")))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| bad(error.to_string()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    std::fs::read(path).map_err(|source| ImageError::Io { path: path.to_owned(), source })
}

/// The system's roots: `SSL_CERT_FILE`, `SSL_CERT_DIR`, else the platform's store.
pub(crate) fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "cannot read a system certificate");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}

/// For registries that the administrator calls insecure.
#[derive(Debug)]
struct AcceptAnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_needs_key_and_key_needs_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let dirs =
            CertificateDirs { every_host: Some(directory.path().into()), ..CertificateDirs::default() };
        std::fs::write(directory.path().join("ca.crt"), "x").unwrap();
        std::fs::write(directory.path().join("README"), "x").unwrap();
        assert_eq!(dirs.read("a.test").unwrap().roots.len(), 1);
        std::fs::write(directory.path().join("more.pem"), "x").unwrap();
        assert_eq!(dirs.read("a.test").unwrap().roots.len(), 2);
        std::fs::write(directory.path().join("me.key"), "x").unwrap();
        let text = dirs.read("a.test").unwrap_err().to_string();
        assert!(
            text.starts_with("missing client certificate ") && text.contains("me.cert for key "),
            "{text}"
        );
        std::fs::rename(directory.path().join("me.key"), directory.path().join("me.cert")).unwrap();
        let text = dirs.read("a.test").unwrap_err().to_string();
        assert!(
            text.starts_with("missing key ") && text.contains("me.key for client certificate "),
            "{text}"
        );
    }

    #[test]
    fn certificates_are_read_per_host() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("a.test:5000");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("ca.crt"), "x").unwrap();
        std::fs::create_dir(directory.path().join("b.test:443")).unwrap();
        std::fs::write(directory.path().join("b.test:443/ca.crt"), "x").unwrap();
        let per_host = CertificateDirs {
            every_host: None,
            per_host: vec!["/nonexistent".into(), directory.path().into()],
            files: Vec::new(),
        };
        let every =
            CertificateDirs { every_host: Some(directory.path().into()), ..CertificateDirs::default() };
        for (dirs, name) in [(per_host, "certs.d"), (every, "pull-cas-dir")] {
            assert_eq!(dirs.read("a.test:5000").unwrap().roots.len(), 1, "{name}");
            assert_eq!(dirs.read("a.test").unwrap().roots.len(), 0, "{name}");
            assert_eq!(dirs.read("..").unwrap().roots.len(), 0, "{name}");
            assert_eq!(
                dirs.read("b.test").unwrap().roots.len(),
                1,
                "{name}: references leave out the port 443"
            );
        }
        let gone = CertificateDirs { every_host: Some("/nonexistent".into()), ..CertificateDirs::default() };
        assert!(gone.read("a.test").is_err());
    }
}
