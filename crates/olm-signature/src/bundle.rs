//! The sigstore bundle, version 0.3: everything about one signature in one JSON document.
//!
//! Cosign 3 attaches it to images as a referrer. Read is what can be verified offline with the means of the policy: a
//! DSSE envelope, a certificate or a key known from the policy, and the log's signed entry timestamp. The JSON is that
//! of protocol buffers: 64-bit numbers are strings, bytes are base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_core::hex;
use rustls_pki_types::CertificateDer;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::evidence::{Claim, MAX_CHAIN, MAX_PAYLOAD};
use crate::rekor::{Base64, Entry};
use crate::statement::{Format, IN_TOTO};

/// Media types of version 0.3.
const MEDIA_TYPES: [&str; 2] =
    ["application/vnd.dev.sigstore.bundle.v0.3+json", "application/vnd.dev.sigstore.bundle+json;version=0.3"];
/// How every bundle's media type begins.
pub const MEDIA_TYPE_PREFIX: &str = "application/vnd.dev.sigstore.bundle";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    verification_material: Material,
    dsse_envelope: Option<Envelope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    certificate: Option<Raw>,
    x509_certificate_chain: Option<Chain>,
    #[serde(default)]
    tlog_entries: Vec<LogEntry>,
}

#[derive(Deserialize)]
struct Chain {
    certificates: Vec<Raw>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    raw_bytes: Base64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogEntry {
    log_index: Number,
    log_id: LogId,
    #[serde(default)]
    integrated_time: Number,
    inclusion_promise: Option<Promise>,
    canonicalized_body: Base64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogId {
    key_id: Base64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Promise {
    signed_entry_timestamp: Base64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: Base64,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: Base64,
}

#[derive(Default)]
struct Number(i64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Plain(i64),
        }
        match Written::deserialize(deserializer)? {
            Written::Plain(number) => Ok(Self(number)),
            Written::Text(text) => text.parse().map(Self).map_err(D::Error::custom),
        }
    }
}

impl Claim {
    /// Reads a sigstore bundle.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn from_bundle(bytes: &[u8]) -> Result<Self, String> {
        let bundle: Bundle =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no sigstore bundle: {error}"))?;
        if !MEDIA_TYPES.contains(&bundle.media_type.as_str()) {
            return Err(format!(
                "it is a bundle of the media type {:?}; only 0.3 is supported",
                bundle.media_type
            ));
        }
        let Some(Envelope { payload, payload_type, signatures }) = bundle.dsse_envelope else {
            return Err("it is a bundle without DSSE envelope, which is not supported".into());
        };
        if payload_type != IN_TOTO {
            return Err(format!("its envelope holds {payload_type:?}, no in-toto statement"));
        }
        if payload.0.len() > MAX_PAYLOAD {
            return Err(format!("its payload exceeds the limit of {MAX_PAYLOAD} bytes"));
        }
        let [EnvelopeSignature { sig }] = <[EnvelopeSignature; 1]>::try_from(signatures)
            .map_err(|found| format!("its envelope has {} signatures, not one", found.len()))?;
        let material = bundle.verification_material;
        let mut certificates = match (material.certificate, material.x509_certificate_chain) {
            (None, None) => Vec::new(),
            (Some(one), None) => vec![one],
            (None, Some(chain)) => chain.certificates,
            (Some(_), Some(_)) => return Err("it has both a certificate and a certificate chain".into()),
        }
        .into_iter()
        .map(|raw| CertificateDer::from(raw.raw_bytes.0));
        let certificate = certificates.next();
        let chain: Vec<_> = certificates.collect();
        if chain.len() > MAX_CHAIN {
            return Err(format!("it comes with more than {MAX_CHAIN} certificates"));
        }
        Ok(Self {
            payload: payload.0,
            format: Format::Dsse,
            signature: sig.0,
            certificate,
            chain,
            entry: entry(material.tlog_entries)?,
        })
    }
}

fn entry(entries: Vec<LogEntry>) -> Result<Option<Entry>, String> {
    let entry = match <[LogEntry; 1]>::try_from(entries) {
        Ok([entry]) => entry,
        Err(none) if none.is_empty() => return Ok(None),
        // their order would decide which of them counts, and that is not signed
        Err(_) => return Err("it has several transparency log entries".into()),
    };
    // without a promise (Rekor 2) there is no time that the log has signed
    let Some(Promise { signed_entry_timestamp }) = entry.inclusion_promise else { return Ok(None) };
    Ok(Some(Entry {
        body: STANDARD.encode(entry.canonicalized_body.0),
        integrated_time: entry.integrated_time.0,
        log_index: entry.log_index.0,
        log_id: hex(&entry.log_id.key_id.0),
        promise: signed_entry_timestamp.0,
    }))
}
