//! The transparency log's promise that comes with a signature, verified offline.
//!
//! A signed entry timestamp (SET) is the log's signature over body, time and position of an entry. It is believed when
//! one of the policy's Rekor keys made it and when the body is about this signature, this payload and this signer: an entry
//! of another signature proves nothing. Inclusion proofs are not looked at; they carry no signed time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_core::hex;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use serde::{Deserialize, Deserializer};
use sha2::Digest as _;

use crate::keys::PublicKey;

/// An entry with the log's promise.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// The entry, base64, as it was signed.
    pub(crate) body: String,
    /// Seconds since 1970.
    pub(crate) integrated_time: i64,
    /// Position in the log.
    pub(crate) log_index: i64,
    /// SHA-256 of the log's key, hex.
    #[serde(rename = "logID")]
    pub(crate) log_id: String,
    /// The log's signature.
    #[serde(skip)]
    pub(crate) promise: Vec<u8>,
}

/// The annotation `dev.sigstore.cosign/bundle`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Annotation {
    signed_entry_timestamp: String,
    payload: Entry,
}

/// Who signed, as the log should have it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signer<'a> {
    Key(&'a PublicKey),
    Certificate(&'a CertificateDer<'a>),
}

impl Entry {
    /// Reads the annotation of a cosign signature.
    pub(crate) fn from_annotation(text: &str) -> Result<Self, String> {
        let annotation: Annotation = serde_json::from_str(text)
            .map_err(|error| format!("its transparency log entry cannot be read: {error}"))?;
        let promise = STANDARD
            .decode(annotation.signed_entry_timestamp)
            .map_err(|error| format!("its signed entry timestamp is no base64: {error}"))?;
        Ok(Self { promise, ..annotation.payload })
    }

    /// The bytes that the log signed: canonical JSON (RFC 8785) of the four fields.
    pub(crate) fn promised(&self) -> Result<Vec<u8>, String> {
        // canonical JSON writes larger numbers in another way; the log has no such entries
        const EXACT: i64 = 1 << 53;
        if ![self.integrated_time, self.log_index].iter().all(|number| (0..EXACT).contains(number)) {
            return Err("its transparency log entry has numbers out of range".into());
        }
        let plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        if !plain(&self.body) || !plain(&self.log_id) {
            return Err("its transparency log entry is no base64 and hex".into());
        }
        let Self { body, integrated_time, log_index, log_id, .. } = self;
        Ok(format!(
            r#"{{"body":"{body}","integratedTime":{integrated_time},"logID":"{log_id}","logIndex":{log_index}}}"#
        )
        .into_bytes())
    }

    /// The time at which the log took in this very signature of this signer over this payload.
    ///
    /// # Errors
    /// When none of `keys` promised it or the entry is about something else.
    pub(crate) fn verify(
        &self,
        keys: &[PublicKey],
        payload: &[u8],
        signature: &[u8],
        signer: Signer<'_>,
    ) -> Result<i64, String> {
        let promised = self.promised()?;
        if !keys.iter().any(|key| key.verifies(&promised, &self.promise)) {
            return Err("its signed entry timestamp is not of the Rekor key of the policy".into());
        }
        let body = STANDARD
            .decode(&self.body)
            .map_err(|error| format!("its transparency log entry is no base64: {error}"))?;
        about(&body, payload, signature, signer)?;
        Ok(self.integrated_time)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    kind: String,
    api_version: String,
    spec: serde_json::Value,
}

#[derive(Deserialize)]
struct HashedRekord {
    data: Data,
    signature: Signature,
}

#[derive(Deserialize)]
struct Data {
    hash: Hash,
}

#[derive(Deserialize)]
struct Hash {
    algorithm: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Signature {
    content: Base64,
    public_key: KeyContent,
}

#[derive(Deserialize)]
struct KeyContent {
    content: Base64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DsseEntry {
    payload_hash: Hash,
    signatures: Vec<DsseSignature>,
}

#[derive(Deserialize)]
struct DsseSignature {
    signature: Base64,
    verifier: Base64,
}

pub(crate) struct Base64(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Is the entry about this payload, this signature and this signer?
fn about(body: &[u8], payload: &[u8], signed: &[u8], signer: Signer<'_>) -> Result<(), String> {
    let unreadable = |error| format!("its transparency log entry cannot be read: {error}");
    let body: Body = serde_json::from_slice(body).map_err(unreadable)?;
    let (hash, signature, key) = match (body.kind.as_str(), body.api_version.as_str()) {
        ("hashedrekord", "0.0.1") => {
            let HashedRekord { data, signature } = serde_json::from_value(body.spec).map_err(unreadable)?;
            (data.hash, signature.content, signature.public_key.content)
        }
        ("dsse", "0.0.1") => {
            let entry: DsseEntry = serde_json::from_value(body.spec).map_err(unreadable)?;
            let ours = entry.signatures.into_iter().find(|one| one.signature.0 == signed);
            let Some(DsseSignature { signature, verifier }) = ours else {
                return Err("its transparency log entry is of another signature".into());
            };
            (entry.payload_hash, signature, verifier)
        }
        (kind, version) => {
            return Err(format!(
                "its transparency log entry is of the kind {kind:?} {version:?}, which is not supported"
            ));
        }
    };
    let digest = sha2::Sha256::digest(payload);
    if hash.algorithm != "sha256" || hash.value.to_ascii_lowercase() != hex(&digest) {
        return Err("its transparency log entry is of another payload".into());
    }
    if signature.0 != signed {
        return Err("its transparency log entry is of another signature".into());
    }
    let same = match signer {
        Signer::Key(expected) => {
            SubjectPublicKeyInfoDer::from_pem_slice(&key.0).is_ok_and(|found| found.as_ref() == expected.spki)
        }
        Signer::Certificate(expected) => {
            CertificateDer::from_pem_slice(&key.0).is_ok_and(|found| found.as_ref() == expected.as_ref())
        }
    };
    if same { Ok(()) } else { Err("its transparency log entry is of another signer".into()) }
}
