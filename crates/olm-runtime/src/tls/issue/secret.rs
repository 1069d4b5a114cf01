//! The form of a serving certificate and its rotation in a Secret. Pure.
//!
//! Servers mount or read `tls.crt` and `tls.key` alone; the other keys are the issuer's memory. The owner and the other content of
//! the Secret are the issuer's business.

use std::collections::BTreeMap;

use base64::Engine as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value};

use super::material::{Generation, PrivateKey};
use super::plan::CertificateState;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";
const NEXT_CERTIFICATE: &str = "next-tls.crt";
const NEXT_KEY: &str = "next-tls.key";
const NEXT_AUTHORITY: &str = "next-ca.crt";
const PREVIOUS: &str = "previous-ca.crt";

/// What the Secret holds; parts that are missing are empty, and found unusable later.
#[must_use]
pub fn read(secret: &Secret) -> CertificateState {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
        String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
    };
    let generation = |certificate, key, authority| Generation {
        certificate: text(certificate),
        key: PrivateKey::new(text(key)),
        authority: text(authority),
    };
    let next = generation(NEXT_CERTIFICATE, NEXT_KEY, NEXT_AUTHORITY);
    let empty = next.certificate.is_empty() && next.key.pem().is_empty() && next.authority.is_empty();
    CertificateState {
        current: generation(CERTIFICATE, KEY, AUTHORITY),
        next: (!empty).then_some(next),
        previous: text(PREVIOUS),
    }
}

/// The data of a Secret that is to be created.
#[must_use]
pub fn bytes(stored: &CertificateState) -> BTreeMap<String, ByteString> {
    data(stored)
        .into_iter()
        .filter_map(|(key, text)| Some((key.to_owned(), ByteString(text?.as_bytes().to_vec()))))
        .collect()
}

/// The `data` of a merge patch that makes `secret` hold `stored`; keys that are not ours stay.
#[must_use]
pub fn changes(secret: &Secret, stored: &CertificateState) -> Map<String, Value> {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let present = |key: &str| secret.data.as_ref().is_some_and(|data| data.contains_key(key));
    data(stored)
        .into_iter()
        .filter(|(key, text)| text.is_some() || present(key))
        .map(|(key, text)| (key.to_owned(), text.map_or(Value::Null, |text| encode(text).into())))
        .collect()
}

/// Every key of ours, `None` for those that are not to be there.
fn data(stored: &CertificateState) -> BTreeMap<&'static str, Option<&str>> {
    let next = stored.next.as_ref();
    let previous = Some(stored.previous.as_str()).filter(|text| !text.is_empty());
    BTreeMap::from([
        (CERTIFICATE, Some(stored.current.certificate.as_str())),
        (KEY, Some(stored.current.key.pem())),
        (AUTHORITY, Some(stored.current.authority.as_str())),
        (NEXT_CERTIFICATE, next.map(|next| next.certificate.as_str())),
        (NEXT_KEY, next.map(|next| next.key.pem())),
        (NEXT_AUTHORITY, next.map(|next| next.authority.as_str())),
        (PREVIOUS, previous),
    ])
}
