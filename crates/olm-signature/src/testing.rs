//! Signatures as cosign, Fulcio and Rekor make them, for tests: made here with keys of the test, by the documented
//! formats. Unit tests and the tests on a registry share it.

#![expect(
    clippy::unwrap_used,
    clippy::new_without_default,
    reason = "only for tests, with new keys each time"
)]

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_core::hex;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SigningKey as _,
};
use serde_json::{Value, json};
use sha2::Digest as _;

/// 1 March 2026, when certificates of [`Fulcio`] begin; they end [`LIFE`] seconds later.
pub const BEGIN: i64 = 1_772_323_200;
pub const LIFE: u64 = 600;
pub const ISSUER: &str = "https://issuer.test";
pub const EMAIL: &str = "release@olm.test";

/// Cosign's payload.
pub fn payload(reference: &str, digest: &str) -> Vec<u8> {
    format!(
        r#"{{"critical":{{"identity":{{"docker-reference":"{reference}"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
    )
    .into_bytes()
}

/// Cosign's statement in bundles.
pub fn statement(name: &str, digest: &str) -> Vec<u8> {
    let hex = digest.strip_prefix("sha256:").unwrap();
    json!({
        "_type": "https://in-toto.io/Statement/v1", "subject": [{"name": name, "digest": {"sha256": hex}}],
        "predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": {},
    })
    .to_string()
    .into_bytes()
}

/// What DSSE signs.
pub fn envelope(payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 28 application/vnd.in-toto+json {} ", payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// A signer with a key.
pub struct Key(pub KeyPair);

impl Key {
    pub fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    pub fn public(&self) -> String {
        self.0.public_key_pem()
    }

    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.sign(bytes).unwrap()
    }
}

/// A certificate for a key.
pub struct Certified {
    pub key: Key,
    pub pem: String,
    pub der: Vec<u8>,
}

/// An authority with root and intermediate.
pub struct Fulcio {
    pub root: String,
    pub intermediate: String,
    pub intermediate_der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Fulcio {
    pub fn new() -> Self {
        Self::valid_from(2025)
    }

    /// For ten years.
    pub fn valid_from(year: i32) -> Self {
        let authority = |name: &str| {
            let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            params.not_before = rcgen::date_time_ymd(year, 1, 1);
            params.not_after = rcgen::date_time_ymd(year + 10, 1, 1);
            (params, KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap())
        };
        let (params, key) = authority("root");
        let root = params.self_signed(&key).unwrap().pem();
        let top = Issuer::new(params, key);
        let (mut params, key) = authority("intermediate");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        let made: Certificate = params.signed_by(&key, &top).unwrap();
        let issuer = Issuer::new(params, key);
        Self { root, intermediate: made.pem(), intermediate_der: made.der().to_vec(), issuer }
    }

    /// The certificate of a signer that this provider confirmed.
    pub fn certify(&self, name: SanType, provider: &str) -> Certified {
        self.certify_with(name, |params| {
            // the newer extension is a DER string
            let mut string = vec![0x0c, u8::try_from(provider.len()).unwrap()];
            string.extend_from_slice(provider.as_bytes());
            params.custom_extensions = vec![
                CustomExtension::from_oid_content(
                    &[1, 3, 6, 1, 4, 1, 57264, 1, 1],
                    provider.as_bytes().to_vec(),
                ),
                CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], string),
            ];
        })
    }

    pub fn certify_with(&self, name: SanType, change: impl FnOnce(&mut CertificateParams)) -> Certified {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names = vec![name];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.not_before = rcgen::date_time_ymd(2026, 3, 1);
        params.not_after = params.not_before + Duration::from_secs(LIFE);
        change(&mut params);
        let key = Key::new();
        let made = params.signed_by(&key.0, &self.issuer).unwrap();
        Certified { key, pem: made.pem(), der: made.der().to_vec() }
    }
}

pub fn email(text: &str) -> SanType {
    SanType::Rfc822Name(Ia5String::try_from(text).unwrap())
}

pub fn uri(text: &str) -> SanType {
    SanType::URI(Ia5String::try_from(text).unwrap())
}

/// The log's entry for a detached signature; `pem` is the signer's key or certificate.
pub fn hashedrekord(payload: &[u8], signature: &[u8], pem: &str) -> Value {
    json!({
        "apiVersion": "0.0.1", "kind": "hashedrekord",
        "spec": {
            "data": {"hash": {"algorithm": "sha256", "value": hex(&sha2::Sha256::digest(payload))}},
            "signature": {"content": STANDARD.encode(signature), "publicKey": {"content": STANDARD.encode(pem)}},
        },
    })
}

/// The log's entry for an envelope.
pub fn dsse_entry(payload: &[u8], signature: &[u8], pem: &str) -> Value {
    json!({
        "apiVersion": "0.0.1", "kind": "dsse",
        "spec": {
            "envelopeHash": {"algorithm": "sha256", "value": "00"},
            "payloadHash": {"algorithm": "sha256", "value": hex(&sha2::Sha256::digest(payload))},
            "signatures": [{"signature": STANDARD.encode(signature), "verifier": STANDARD.encode(pem)}],
        },
    })
}

/// A transparency log.
pub struct Rekor(pub Key);

impl Rekor {
    pub fn new() -> Self {
        Self(Key::new())
    }

    fn promise(&self, body: &str, at: i64) -> Vec<u8> {
        let id = self.id();
        self.0.sign(
            format!(r#"{{"body":"{body}","integratedTime":{at},"logID":"{id}","logIndex":7}}"#).as_bytes(),
        )
    }

    fn id(&self) -> String {
        hex(&sha2::Sha256::digest(self.0.0.public_key_raw()))
    }

    /// Cosign's annotation.
    pub fn annotation(&self, entry: &Value, at: i64) -> String {
        let body = STANDARD.encode(entry.to_string());
        json!({
            "SignedEntryTimestamp": STANDARD.encode(self.promise(&body, at)),
            "Payload": { "body": body, "integratedTime": at, "logIndex": 7, "logID": self.id() },
        })
        .to_string()
    }

    /// The same in a bundle.
    pub fn bundled(&self, entry: &Value, at: i64) -> Value {
        let body = STANDARD.encode(entry.to_string());
        let id = sha2::Sha256::digest(self.0.0.public_key_raw());
        json!({
            "logIndex": "7", "logId": {"keyId": STANDARD.encode(id)}, "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": at.to_string(), "inclusionPromise": {"signedEntryTimestamp": STANDARD.encode(self.promise(&body, at))},
            "canonicalizedBody": body,
        })
    }
}

/// A sigstore bundle; `certificate` is DER, without one the key is known otherwise.
pub fn bundle(statement: &[u8], signature: &[u8], certificate: Option<&[u8]>, log: Option<Value>) -> Value {
    let mut material = match certificate {
        Some(der) => json!({ "certificate": { "rawBytes": STANDARD.encode(der) } }),
        None => json!({ "publicKey": { "hint": "some" } }),
    };
    material["tlogEntries"] = log.into_iter().collect();
    json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": STANDARD.encode(statement), "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": STANDARD.encode(signature)}],
        },
    })
}
