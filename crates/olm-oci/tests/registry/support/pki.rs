//! A certificate authority for one test.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn issue(&self, names: &[&str], usage: ExtendedKeyUsagePurpose) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![usage];
        self.sign(&params)
    }

    /// A certificate of a server on 127.0.0.1 that has expired.
    pub(crate) fn expired(&self) -> Pair {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// The certificate of the authority itself.
    pub(crate) fn pair(&self) -> Pair {
        Pair { certificate: self.pem.clone(), key: self.issuer.key().serialize_pem() }
    }

    /// TLS settings of a server on 127.0.0.1; with `clients`, only clients of that authority are let in.
    pub(crate) fn server(&self, clients: Option<&Self>) -> Arc<rustls::ServerConfig> {
        let pair = self.issue(&["127.0.0.1", "registry.invalid"], ExtendedKeyUsagePurpose::ServerAuth);
        pair.server(clients)
    }
}

impl Pair {
    /// TLS settings of a server with this certificate; with `clients`, only clients of that authority are let in.
    pub(crate) fn server(&self, clients: Option<&Authority>) -> Arc<rustls::ServerConfig> {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
                let verifier =
                    rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }
}
