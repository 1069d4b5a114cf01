//! Keys and certificates: made, read and checked. Pure, with `now` and fresh keys as arguments.
//!
//! Each serving certificate has an authority of its own. The authority's key signs that one certificate and is then
//! dropped, never stored: there is no signing key to steal, and a new certificate always means a new authority, which
//! callers learn to trust before it is served (see [`super::plan`]).
//!
//! What a caller would check is checked with the verifier that callers' TLS libraries use, not by comparing fields.

use std::fmt;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PublicKeyData as _, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The last line of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";
/// Longest common name that X.509 allows.
const COMMON_NAME_LIMIT: usize = 64;
/// How far the beginning of validity lies before the time of issue, for clocks that are late.
pub(crate) const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// A private key as PEM. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(String);

impl PrivateKey {
    /// Takes PEM text without reading it.
    #[must_use]
    pub fn new(pem: String) -> Self {
        Self(pem)
    }

    /// The PEM text, to be written to the Secret and nowhere else.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// A serving certificate, its key and the authority that callers must trust. All PEM, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The serving certificate.
    pub certificate: String,
    pub key: PrivateKey,
    /// The authority's certificate.
    pub authority: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// First second.
    pub not_before: Timestamp,
    /// Last second.
    pub not_after: Timestamp,
}

impl Lifetime {
    /// When it was issued, if it is one of ours.
    #[must_use]
    pub fn issued(&self) -> Timestamp {
        self.not_before.checked_add(BACKDATED).unwrap_or(self.not_before)
    }
}

/// Why a stored certificate cannot be served with. The texts go into events: no content of the Secret is in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// There is none.
    #[error("there is no certificate")]
    Missing,
    /// A part cannot be read.
    #[error("{0} cannot be read")]
    Unreadable(&'static str),
    /// Certificate and key are not a pair.
    #[error("tls.key is not the key of tls.crt")]
    OtherKey,
    /// A caller that trusts the authority would not accept the certificate.
    #[error("tls.crt is not a serving certificate that ca.crt has signed")]
    NotTrusted,
    /// It is not valid for the names of the Service.
    #[error("tls.crt is not valid for {0}")]
    OtherName(String),
    /// It has expired.
    #[error("tls.crt expired at {0}")]
    Expired(Timestamp),
}

/// Why a certificate could not be issued.
#[derive(Debug, thiserror::Error)]
#[error("issuing a certificate: {0}")]
pub struct IssueError(String);

/// Fresh keys, one for the authority and one for the server.
pub struct Keys {
    authority: KeyPair,
    server: KeyPair,
}

impl Keys {
    /// Two new ECDSA P-256 keys from the system's randomness.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> Result<Self, IssueError> {
        let key = || KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(refused);
        Ok(Self { authority: key()?, server: key()? })
    }
}

/// Issues a certificate for `names` (DNS names or addresses), valid from an hour before `now` until `validity` after it.
/// `authority` is the common name of the authority that signs it.
///
/// # Errors
/// When a name is neither a DNS name nor an address.
pub fn issue(
    authority: &str,
    names: &[String],
    now: Timestamp,
    validity: SignedDuration,
    keys: Keys,
) -> Result<Generation, IssueError> {
    let epoch = date_time_ymd(1970, 1, 1);
    let date = |at: Timestamp| epoch + Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    let moved = |by: SignedDuration| now.checked_add(by).map_err(|error| IssueError(error.to_string()));
    let (from, until) = (date(moved(-BACKDATED)?), date(moved(validity)?));

    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (from, until);
    params.distinguished_name = common_name(authority);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, keys.authority).map_err(refused)?;

    let mut params = CertificateParams::new(names.to_vec()).map_err(refused)?;
    (params.not_before, params.not_after) = (from, until);
    params.distinguished_name = match names.first() {
        Some(name) if name.len() <= COMMON_NAME_LIMIT => common_name(name),
        _ => DistinguishedName::new(),
    };
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&keys.server, &authority).map_err(refused)?;
    Ok(Generation {
        certificate: certificate.pem(),
        key: PrivateKey(keys.server.serialize_pem()),
        authority: authority.pem(),
    })
}

fn refused(error: rcgen::Error) -> IssueError {
    IssueError(error.to_string())
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Reads a certificate and its key and checks them as a caller would who trusts the authority and calls one of `names`.
/// Time is left to the caller: an expired pair passes.
///
/// # Errors
/// What is wrong with it.
pub fn check(generation: &Generation, names: &[String]) -> Result<Lifetime, CertificateError> {
    let der = one_certificate(&generation.certificate).ok_or(CertificateError::Unreadable("tls.crt"))?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| CertificateError::Unreadable("tls.crt"))?;
    let key = KeyPair::from_pem(generation.key.pem()).map_err(|_| CertificateError::Unreadable("tls.key"))?;
    if key.subject_public_key_info() != parsed.tbs_certificate.subject_pki.raw {
        return Err(CertificateError::OtherKey);
    }
    let authority = one_certificate(&generation.authority).ok_or(CertificateError::Unreadable("ca.crt"))?;
    let lifetime = lifetime(&parsed).ok_or(CertificateError::Unreadable("tls.crt"))?;
    let trusted = authority_lifetime(&generation.authority).ok_or(CertificateError::Unreadable("ca.crt"))?;
    let both = Lifetime {
        not_before: lifetime.not_before.max(trusted.not_before),
        not_after: lifetime.not_after.min(trusted.not_after),
    };
    if both.not_before > both.not_after {
        return Err(CertificateError::NotTrusted);
    }

    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(|_| CertificateError::Unreadable("ca.crt"))?;
    let seconds = u64::try_from(both.not_before.as_second()).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let served = ParsedCertificate::try_from(&der).map_err(|_| CertificateError::NotTrusted)?;
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&served, &roots, &[], at, algorithms)
        .map_err(|_| CertificateError::NotTrusted)?;
    for name in names {
        let other = || CertificateError::OtherName(name.clone());
        let host = ServerName::try_from(name.as_str()).map_err(|_| other())?;
        verify_server_name(&served, &host).map_err(|_| other())?;
    }
    Ok(both)
}

/// An authority's certificate among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    pub pem: String,
    /// Last second of validity.
    pub not_after: Timestamp,
}

/// The authorities in PEM text, each once; what cannot be read, or cannot sign, is passed over.
#[must_use]
pub fn authorities(pem: &str) -> Vec<Authority> {
    let mut found: Vec<Authority> = Vec::new();
    for der in CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok) {
        let Ok((_, parsed)) = X509Certificate::from_der(&der) else { continue };
        let Some(lifetime) = lifetime(&parsed) else { continue };
        let pem = to_pem(&der);
        if parsed.is_ca() && found.iter().all(|one| one.pem != pem) {
            found.push(Authority { pem, not_after: lifetime.not_after });
        }
    }
    found
}

/// When the one authority in PEM text is valid.
#[must_use]
pub(crate) fn authority_lifetime(pem: &str) -> Option<Lifetime> {
    let der = one_certificate(pem)?;
    lifetime(&X509Certificate::from_der(&der).ok()?.1)
}

/// Puts authorities together for a `caBundle`: each once, in an order that does not depend on who serves, so that callers
/// are written only when trust changes.
#[must_use]
pub fn bundle<'a>(authorities: impl IntoIterator<Item = &'a str>) -> String {
    let mut all: Vec<String> = Vec::new();
    for text in authorities {
        for block in text.trim().split_inclusive(END).map(str::trim).filter(|block| !block.is_empty()) {
            all.push(format!("{block}\n"));
        }
    }
    all.sort();
    all.dedup();
    all.concat()
}

/// The certificate in PEM text that holds exactly one.
fn one_certificate(pem: &str) -> Option<CertificateDer<'static>> {
    let mut all = CertificateDer::pem_slice_iter(pem.as_bytes());
    let first = all.next()?.ok()?;
    all.next().is_none().then_some(first)
}

fn lifetime(certificate: &X509Certificate<'_>) -> Option<Lifetime> {
    let validity = certificate.validity();
    Some(Lifetime {
        not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
        not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
    })
}

fn to_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str(END);
    pem.push('\n');
    pem
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{AUTHORITY, NOW, at, generation, names};

    #[test]
    fn material_issued_certificate_passes_the_check() {
        let issued = generation(NOW, SignedDuration::from_hours(24));
        let lifetime = check(&issued, &names()).unwrap();
        assert_eq!(lifetime.not_before, at(NOW, -3600), "back-dated for late clocks");
        assert_eq!(lifetime.not_after, at(NOW, 24 * 3600));
        assert_eq!(lifetime.issued(), NOW);
        let (_, parsed) = x509_parser::pem::parse_x509_pem(issued.certificate.as_bytes()).unwrap();
        let parsed = parsed.parse_x509().unwrap();
        assert_eq!(parsed.subject().to_string(), "CN=hook-service.demo");
        assert_eq!(
            parsed.signature_algorithm.algorithm.to_id_string(),
            "1.2.840.10045.4.3.2",
            "ECDSA with SHA-256"
        );
        assert!(!parsed.is_ca());
    }

    #[test]
    fn material_leaves_out_a_long_common_name() {
        let long = vec![format!("{}.{}", "s".repeat(63), "n".repeat(10))];
        let issued =
            issue(AUTHORITY, &long, NOW, SignedDuration::from_hours(1), Keys::generate().unwrap()).unwrap();
        assert!(check(&issued, &long).is_ok());
        assert!(
            issue(
                AUTHORITY,
                &["ä b".to_owned()],
                NOW,
                SignedDuration::from_hours(1),
                Keys::generate().unwrap()
            )
            .is_err()
        );
    }

    #[test]
    #[rustfmt::skip]
    fn material_errors_are_distinguished() {
        let (good, other) =
            (generation(NOW, SignedDuration::from_hours(1)), generation(NOW, SignedDuration::from_hours(1)));
        let with = |change: fn(&mut Generation, &Generation)| {
            let mut changed = good.clone();
            change(&mut changed, &other);
            check(&changed, &names()).unwrap_err()
        };
        for (case, change, want) in [
            ("no certificate", (|g, _| g.certificate.clear()) as fn(&mut Generation, &Generation), CertificateError::Unreadable("tls.crt")),
            ("garbage", |g, _| { g.certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned() },
                CertificateError::Unreadable("tls.crt")),
            ("no key", |g, _| g.key = PrivateKey::new(String::new()), CertificateError::Unreadable("tls.key")),
            ("no authority", |g, _| g.authority = "x".to_owned(), CertificateError::Unreadable("ca.crt")),
            ("two authorities", |g, o| g.authority += &o.authority, CertificateError::Unreadable("ca.crt")),
            ("another key", |g, o| g.key = o.key.clone(), CertificateError::OtherKey),
            ("another authority", |g, o| g.authority.clone_from(&o.authority), CertificateError::NotTrusted),
            ("the authority itself", |g, _| g.authority.clone_from(&g.certificate), CertificateError::NotTrusted),
        ] {
            assert_eq!(with(change), want, "{case}");
        }
        let renamed = check(&good, &["other.demo.svc".to_owned()]).unwrap_err();
        assert_eq!(renamed, CertificateError::OtherName("other.demo.svc".to_owned()));
    }

    #[test]
    fn material_bundles_hold_each_authority_once() {
        let (a, b) =
            (generation(NOW, SignedDuration::from_hours(1)), generation(NOW, SignedDuration::from_hours(2)));
        let both = bundle([a.authority.as_str(), "", &b.authority, &a.authority]);
        let read = authorities(&format!("noise\n{both}{}", a.certificate));
        assert_eq!(read.len(), 2, "servers are no authorities");
        assert!(read.iter().any(|one| one.not_after == at(NOW, 7200) && one.pem == b.authority));
        assert_eq!(bundle(read.iter().rev().map(|one| one.pem.as_str())), both, "in one order");
        assert_eq!(bundle([both.as_str(), &a.authority]), both);
        assert_eq!(authorities("-----BEGIN CERTIFICATE-----"), []);
    }

    #[test]
    fn material_keys_are_not_printed() {
        let issued = generation(NOW, SignedDuration::from_hours(1));
        let shown = format!("{issued:?}");
        assert!(!shown.contains("PRIVATE"), "{shown}");
    }
}
