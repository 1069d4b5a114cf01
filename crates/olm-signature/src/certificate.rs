//! Signers that are known by a certificate: Fulcio's short-lived ones and those of a PKI of one's own.
//!
//! The chain is built by `rustls-webpki` to the roots of the policy, at the time of signing. Whom the certificate names
//! is compared exactly: Fulcio writes the identity provider into an extension of its own.

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::asn1_rs::{Any, FromDer as _, Utf8String};
use x509_parser::extensions::{GeneralName, ParsedExtension};

use crate::keys::PublicKey;

/// The identity provider as plain text, and as a DER string (newer; counts first).
const ISSUER_PLAIN: &str = "1.3.6.1.4.1.57264.1.1";
const ISSUER: &str = "1.3.6.1.4.1.57264.1.8";
/// `id-kp-codeSigning`, the value of its DER.
const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];
/// Certificates in one trust root.
const MAX_ROOTS: usize = 64;

const ALGORITHMS: &[&dyn rustls_pki_types::SignatureVerificationAlgorithm] = &[
    webpki::ring::ECDSA_P256_SHA256,
    webpki::ring::ECDSA_P256_SHA384,
    webpki::ring::ECDSA_P384_SHA256,
    webpki::ring::ECDSA_P384_SHA384,
    webpki::ring::ED25519,
    webpki::ring::RSA_PKCS1_2048_8192_SHA256,
    webpki::ring::RSA_PKCS1_2048_8192_SHA384,
    webpki::ring::RSA_PKCS1_2048_8192_SHA512,
];

/// What the policy trusts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roots {
    roots: Vec<CertificateDer<'static>>,
    intermediates: Vec<CertificateDer<'static>>,
}

/// All certificates of a PEM text, at least one.
pub(crate) fn certificates(pem: &[u8], name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .take(MAX_ROOTS + 1)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{name} holds no PEM certificates: {error}"))?;
    match found.len() {
        0 => Err(format!("{name} holds no PEM block \"CERTIFICATE\"")),
        1..=MAX_ROOTS => Ok(found),
        _ => Err(format!("{name} holds more than {MAX_ROOTS} certificates")),
    }
}

impl Roots {
    /// Certificates that are trusted, and others that may lead to them.
    pub(crate) fn new(
        roots: Vec<CertificateDer<'static>>,
        intermediates: Vec<CertificateDer<'static>>,
        name: &str,
    ) -> Result<Self, String> {
        for root in &roots {
            webpki::anchor_from_trusted_cert(root)
                .map_err(|error| format!("{name} holds a certificate that cannot be a root: {error}"))?;
            parse(root).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(Self { roots, intermediates })
    }

    /// Does the certificate lead to a root, all valid `at` seconds since 1970 and fit for signing?
    pub(crate) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'static>],
        at: i64,
    ) -> Result<(), String> {
        let time = u64::try_from(at).map_err(|_| "it was signed before 1970".to_owned())?;
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(time));
        let valid = |root: &&CertificateDer<'static>| {
            parse(root).is_ok_and(|root| {
                let validity = root.validity();
                (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&at)
            })
        };
        let anchors: Vec<_> = self
            .roots
            .iter()
            .filter(valid)
            .filter_map(|root| webpki::anchor_from_trusted_cert(root).ok())
            .collect();
        let between: Vec<CertificateDer<'static>> =
            chain.iter().chain(&self.intermediates).cloned().collect();
        let leaf = EndEntityCert::try_from(leaf)
            .map_err(|error| format!("its certificate cannot be read: {error}"))?;
        // issuers need not name a purpose; that the certificate itself does is looked at in `Leaf`
        let usage = KeyUsage::required_if_present(CODE_SIGNING);
        leaf.verify_for_usage(ALGORITHMS, &anchors, &between, time, usage, None, None)
            .map(|_| ())
            .map_err(|error| format!("its certificate is not trusted: {}", reason(&error)))
    }
}

fn reason(error: &webpki::Error) -> String {
    match error {
        // a foreign certificate may use the name of a trusted issuer
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            "it does not lead to a root of the policy".into()
        }
        webpki::Error::CertExpired { time, not_after } => format!(
            "it was used at {} but had ended at {} (seconds since 1970)",
            time.as_secs(),
            not_after.as_secs()
        ),
        webpki::Error::CertNotValidYet { time, not_before } => format!(
            "it was used at {} but began only at {} (seconds since 1970)",
            time.as_secs(),
            not_before.as_secs()
        ),
        other => other.to_string(),
    }
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err("a certificate is followed by other bytes".into()),
        Err(error) => Err(format!("a certificate cannot be read: {error}")),
    }
}

/// Whom a certificate names.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// The signer's key.
    pub(crate) key: PublicKey,
    /// Emails first, host names last.
    names: Vec<Subject>,
    issuer: Option<String>,
}

/// Whom the policy wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    Email(String),
    /// As workflows of code forges sign; an addition of ours to containers-policy.json(5).
    Uri(String),
    Hostname(String),
}

impl Subject {
    fn parts(&self) -> (&'static str, &String) {
        match self {
            Self::Email(email) => ("email", email),
            Self::Uri(uri) => ("URI", uri),
            Self::Hostname(host) => ("host name", host),
        }
    }
}

impl Leaf {
    pub(crate) fn read(der: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = parse(der).map_err(|error| format!("its certificate cannot be read: {error}"))?;
        let purpose = parsed.extended_key_usage().map_err(|error| error.to_string())?;
        if !purpose.is_some_and(|purpose| purpose.value.code_signing) {
            return Err("its certificate is not for code signing".into());
        }
        let key = PublicKey::from_spki(parsed.public_key().raw, "the key of its certificate")?;
        let mut leaf = Self { key, names: Vec::new(), issuer: None };
        let names = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            leaf.names.extend(match name {
                GeneralName::RFC822Name(email) => Some(Subject::Email((*email).to_owned())),
                GeneralName::URI(uri) => Some(Subject::Uri((*uri).to_owned())),
                GeneralName::DNSName(host) => Some(Subject::Hostname((*host).to_owned())),
                _ => None,
            });
        }
        leaf.names.sort_by_key(|name| match name {
            Subject::Email(_) => 0,
            Subject::Uri(_) => 1,
            Subject::Hostname(_) => 2,
        });
        let mut plain = None;
        for extension in parsed.extensions() {
            if !matches!(extension.parsed_extension(), ParsedExtension::UnsupportedExtension { .. }) {
                continue;
            }
            let oid = extension.oid.to_id_string();
            let (place, text) = match oid.as_str() {
                ISSUER => (&mut leaf.issuer, text(extension.value)),
                ISSUER_PLAIN => (&mut plain, std::str::from_utf8(extension.value).ok().map(str::to_owned)),
                _ => continue,
            };
            let text = text.ok_or_else(|| format!("its certificate has an unreadable extension {oid}"))?;
            if place.replace(text).is_some() {
                return Err(format!("its certificate has the extension {oid} twice"));
            }
        }
        if let (Some(new), Some(old)) = (&leaf.issuer, &plain)
            && new != old
        {
            return Err(format!("its certificate names two identity providers, {new:?} and {old:?}"));
        }
        leaf.issuer = leaf.issuer.or(plain);
        Ok(leaf)
    }

    /// Is it this one?
    pub(crate) fn names(&self, expected: &Subject) -> Result<(), String> {
        if self.names.contains(expected) {
            return Ok(());
        }
        let (kind, expected) = expected.parts();
        Err(format!("it is signed by {}, not by the {kind} {expected:?}", self.described()))
    }

    /// Whether this identity provider confirmed the signer.
    pub(crate) fn issued_by(&self, expected: &str) -> Result<(), String> {
        match &self.issuer {
            Some(issuer) if issuer == expected => Ok(()),
            Some(issuer) => {
                Err(format!("the identity provider of its signer is {issuer:?}, not {expected:?}"))
            }
            None => Err("its certificate names no identity provider".into()),
        }
    }

    /// All names.
    pub(crate) fn described(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| format!("{:?}", name.parts().1)).collect();
        if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
    }
}

/// A DER string.
fn text(value: &[u8]) -> Option<String> {
    let (rest, any) = Any::from_der(value).ok()?;
    let text = Utf8String::try_from(any).ok()?;
    rest.is_empty().then(|| text.string())
}
