//! A certificate authority of our own, and what it issues. Nothing here is meant for production.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::RunDir;

/// A certificate authority whose certificate lies alone in a folder (as `--pull-cas-dir` wants it).
#[derive(Debug)]
pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
    // removed with the authority when it made the folder itself
    _own: Option<RunDir>,
}

/// A certificate with its key, as PEM files.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    /// private key (PKCS#8, P-256)
    pub key: PathBuf,
}

impl Ca {
    /// The authority of this test process: the default of [`crate::Registry`] and [`crate::Process`].
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<Ca>> = OnceLock::new();
        SHARED
            .get_or_init(|| {
                let own = RunDir::new("ca")?;
                let mut ca = Self::create(own.path(), "olm-rs test authority")?;
                ca._own = Some(own);
                Ok(ca)
            })
            .as_ref()
            .map_err(|problem| anyhow::anyhow!("{problem:#}"))
    }

    /// Creates an authority below `dir`: `dir/ca/ca.crt`, and issued certificates in `dir/issued`.
    pub fn create(dir: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        write(&dir.join("ca/ca.crt"), &issuer.pem())?;
        Ok(Self { issuer, dir: dir.to_owned(), _own: None })
    }

    /// The folder that holds only the authority's certificate.
    pub fn dir(&self) -> PathBuf {
        self.dir.join("ca")
    }

    /// The authority's certificate file.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("ca/ca.crt")
    }

    /// The authority's certificate as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A serving certificate for 127.0.0.1, `localhost` and `names` (DNS names or addresses).
    pub fn server(&self, file: &str, names: &[&str]) -> Result<Identity> {
        let all: Vec<String> =
            ["localhost", "127.0.0.1"].iter().chain(names).map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(all)?;
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(file, params)
    }

    /// A client certificate: Kubernetes reads the user from `name` and the groups from `groups`.
    pub fn client(&self, file: &str, name: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(file, params)
    }

    fn issue(&self, file: &str, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let folder = self.dir.join("issued");
        let identity = Identity {
            certificate: folder.join(format!("{file}.crt")),
            key: folder.join(format!("{file}.key")),
        };
        write(&identity.certificate, &certificate.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }

    /// An HTTP client that trusts this authority alone and never uses a proxy.
    pub fn http_client(&self) -> Result<reqwest::Client> {
        http_client(self.pem().as_bytes())
    }
}

/// An HTTP client that trusts this authority alone and never uses a proxy.
pub(crate) fn http_client(pem: &[u8]) -> Result<reqwest::Client> {
    crate::install_crypto();
    Ok(reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(pem)?])
        .no_proxy()
        // a kept connection belongs to the runtime of the test that made it
        .pool_max_idle_per_host(0)
        .timeout(std::time::Duration::from_secs(60))
        .build()?)
}

/// Writes a key pair for service-account tokens: returns (private key file, public key file).
pub(crate) fn service_account_keys(dir: &Path) -> Result<(PathBuf, PathBuf)> {
    let key = KeyPair::generate()?;
    let (private, public) = (dir.join("service-account.key"), dir.join("service-account.pub"));
    write(&private, &key.serialize_pem())?;
    write(&public, &key.public_key_pem())?;
    Ok((private, public))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
