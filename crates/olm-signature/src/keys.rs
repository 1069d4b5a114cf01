//! Public keys and what they signed: ECDSA on P-256 and P-384, Ed25519, RSA (PKCS #1 v1.5), as cosign uses them.
//!
//! The algorithm comes from the key, never from the signature.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::der_parser::asn1_rs::Oid;
use x509_parser::oid_registry as oid;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

/// A public key that is ready to verify.
#[derive(Debug, Clone)]
pub(crate) struct PublicKey {
    /// Where it comes from, for messages.
    pub(crate) name: String,
    /// SubjectPublicKeyInfo, DER.
    pub(crate) spki: Vec<u8>,
    /// The key alone, as ring wants it.
    bits: Vec<u8>,
    /// One of these must fit; a curve may be used with more than one hash.
    algorithms: &'static [&'static dyn VerificationAlgorithm],
}

const P256: &[&dyn VerificationAlgorithm] = &[&ECDSA_P256_SHA256_ASN1];
// cosign hashed with SHA-256 for every curve before it hashed with SHA-384 for this one
const P384: &[&dyn VerificationAlgorithm] = &[&ECDSA_P384_SHA384_ASN1, &ECDSA_P384_SHA256_ASN1];
const EDWARDS: &[&dyn VerificationAlgorithm] = &[&ED25519];
const RSA: &[&dyn VerificationAlgorithm] = &[&RSA_PKCS1_2048_8192_SHA256];

impl PublicKey {
    /// One PEM block `PUBLIC KEY`, as `cosign generate-key-pair` writes it. `name` is where the bytes come from.
    pub(crate) fn from_pem(pem: &[u8], name: &str) -> Result<Self, String> {
        let mut blocks = SubjectPublicKeyInfoDer::pem_slice_iter(pem);
        let first = match blocks.next() {
            Some(Ok(key)) => key,
            Some(Err(error)) => return Err(format!("{name} is no PEM public key: {error}")),
            None => {
                return Err(format!(
                    "{name} holds no PEM block \"PUBLIC KEY\"; cosign writes one as cosign.pub"
                ));
            }
        };
        if blocks.next().is_some() {
            return Err(format!(
                "{name} holds more than one public key; give each its own entry in keyPaths"
            ));
        }
        Self::from_spki(&first, name)
    }

    /// A SubjectPublicKeyInfo in DER.
    pub(crate) fn from_spki(spki: &[u8], name: &str) -> Result<Self, String> {
        let (rest, parsed) = SubjectPublicKeyInfo::from_der(spki)
            .map_err(|error| format!("{name} is no public key: {error}"))?;
        if !rest.is_empty() {
            return Err(format!("{name} is no public key: bytes follow it"));
        }
        let algorithm = &parsed.algorithm;
        let curve = || algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
        let algorithms = if algorithm.algorithm == oid::OID_KEY_TYPE_EC_PUBLIC_KEY {
            match curve() {
                Some(curve) if curve == oid::OID_EC_P256 => P256,
                Some(curve) if curve == oid::OID_NIST_EC_P384 => P384,
                other => return Err(unsupported(name, "the curve", other.as_ref())),
            }
        } else if algorithm.algorithm == oid::OID_SIG_ED25519 {
            EDWARDS
        } else if algorithm.algorithm == oid::OID_PKCS1_RSAENCRYPTION {
            RSA
        } else {
            return Err(unsupported(name, "the algorithm", Some(&algorithm.algorithm)));
        };
        let bits = parsed.subject_public_key.data.to_vec();
        Ok(Self { name: name.to_owned(), spki: spki.to_owned(), bits, algorithms })
    }

    /// Did the owner of this key sign exactly these bytes?
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.algorithms.iter().any(|algorithm| {
            UnparsedPublicKey::new(*algorithm, &self.bits).verify(message, signature).is_ok()
        })
    }
}

fn unsupported(name: &str, what: &str, oid: Option<&Oid<'_>>) -> String {
    let oid = oid.map_or_else(|| "without a name".to_owned(), Oid::to_id_string);
    format!("{name} has {what} {oid}, which is not supported; use ECDSA on P-256 or P-384, Ed25519 or RSA")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_key_rejects_unusable_keys() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let pem = pair.public_key_pem();
        let twice = format!("{pem}{pem}");
        let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        // a point on P-521, named and nothing else
        let p521 = "-----BEGIN PUBLIC KEY-----\nMBYwEAYHKoZIzj0CAQYFK4EEACMDAgAE\n-----END PUBLIC KEY-----\n";
        for (text, want) in [
            ("", "holds no PEM block"),
            (certificate, "holds no PEM block"),
            (&twice, "holds more than one public key"),
            ("-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n", "k is no public key"),
            ("-----BEGIN PUBLIC KEY-----\n%%\n-----END PUBLIC KEY-----\n", "k is no PEM public key"),
            (p521, "the curve 1.3.132.0.35, which is not supported"),
        ] {
            let got = PublicKey::from_pem(text.as_bytes(), "k").unwrap_err();
            assert!(got.contains(want), "{text}: {got}");
        }
        assert_eq!(PublicKey::from_pem(pem.as_bytes(), "k").unwrap().name, "k");
    }

    #[test]
    fn public_key_verifies_one_message() {
        use rcgen::SigningKey as _;
        for algorithm in
            [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
        {
            let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let other = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let key = PublicKey::from_pem(pair.public_key_pem().as_bytes(), "k").unwrap();
            let foreign = PublicKey::from_pem(other.public_key_pem().as_bytes(), "k").unwrap();
            let mut signature = pair.sign(b"message").unwrap();
            assert!(key.verifies(b"message", &signature));
            assert!(!key.verifies(b"massage", &signature));
            assert!(!key.verifies(b"message", b""));
            assert!(!foreign.verifies(b"message", &signature));
            let last = signature.len() - 1;
            signature[last] ^= 1;
            assert!(!key.verifies(b"message", &signature));
        }
    }
}
