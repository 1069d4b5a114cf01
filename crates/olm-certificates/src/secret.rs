//! The form of a serving certificate and its rotation in a Secret. Pure.
//!
//! Servers mount or read `tls.crt` and `tls.key` alone; the other keys are the executor's memory. Other content of the Secret stays.

use std::collections::BTreeMap;

use base64::Engine as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::executor::CertificateSpec;
use crate::material::{Generation, PrivateKey};
use crate::plan::CertificateState;

/// The type of the Secrets.
pub const TYPE: &str = "kubernetes.io/tls";
/// The usual key of the certificate of the authority.
pub const AUTHORITY_KEY: &str = "ca.crt";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const NEXT_CERTIFICATE: &str = "next-tls.crt";
const NEXT_KEY: &str = "next-tls.key";
const NEXT_AUTHORITY: &str = "next-ca.crt";
const PREVIOUS: &str = "previous-ca.crt";

/// What the Secret holds; parts that are missing are empty, and found unusable later.
#[must_use]
pub fn read(secret: &Secret, authority_key: &str) -> CertificateState {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
        String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
    };
    let generation = |certificate: &str, key: &str, authority: &str| Generation {
        certificate: text(certificate),
        key: PrivateKey::new(text(key)),
        authority: text(authority),
    };
    let next = generation(NEXT_CERTIFICATE, NEXT_KEY, NEXT_AUTHORITY);
    let empty = next.certificate.is_empty() && next.key.pem().is_empty() && next.authority.is_empty();
    CertificateState {
        current: generation(CERTIFICATE, KEY, authority_key),
        next: (!empty).then_some(next),
        previous: text(PREVIOUS),
    }
}

/// The Secret to create, with the owner's marks.
#[must_use]
pub fn created(spec: &CertificateSpec, marks: ObjectMeta, state: &CertificateState) -> Secret {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta {
            namespace: Some(spec.namespace.clone()),
            name: Some(spec.name.clone()),
            ..marks
        },
        type_: Some(TYPE.to_owned()),
        data: Some(
            data(spec, state)
                .into_iter()
                .filter_map(|(key, text)| Some((key.to_owned(), bytes(text?))))
                .collect(),
        ),
        ..Secret::default()
    }
}

/// The merge patch that makes `secret` hold `state` and carry the owner's marks; refused if it changed meanwhile. Other keys stay.
#[must_use]
pub fn patch(spec: &CertificateSpec, secret: &Secret, marks: ObjectMeta, state: &CertificateState) -> Value {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let present = |key: &str| secret.data.as_ref().is_some_and(|data| data.contains_key(key));
    let data: Map<String, Value> = data(spec, state)
        .into_iter()
        .filter(|(key, text)| text.is_some() || present(key))
        .map(|(key, text)| (key.to_owned(), text.map_or(Value::Null, |text| encode(text).into())))
        .collect();
    json!({"metadata": ObjectMeta { resource_version: secret.resource_version(), ..marks }, "data": data})
}

/// Every key, `None` for those that are not to be there.
fn data<'a>(spec: &CertificateSpec, state: &'a CertificateState) -> BTreeMap<&'static str, Option<&'a str>> {
    let next = state.next.as_ref();
    let previous = Some(state.previous.as_str()).filter(|text| !text.is_empty());
    BTreeMap::from([
        (CERTIFICATE, Some(state.current.certificate.as_str())),
        (KEY, Some(state.current.key.pem())),
        (spec.authority_key, Some(state.current.authority.as_str())),
        (NEXT_CERTIFICATE, next.map(|next| next.certificate.as_str())),
        (NEXT_KEY, next.map(|next| next.key.pem())),
        (NEXT_AUTHORITY, next.map(|next| next.authority.as_str())),
        (PREVIOUS, previous),
    ])
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;

    use super::*;
    use crate::testing::{NOW, generation, patched, spec};

    #[test]
    fn secret_is_read_as_written() {
        let state = |next: bool, previous: &str| {
            let generation = || generation(NOW, SignedDuration::from_hours(1));
            CertificateState {
                current: generation(),
                next: next.then(generation),
                previous: previous.to_owned(),
            }
        };
        let first = state(false, "");
        let mut secret = created(&spec(), ObjectMeta::default(), &first);
        assert_eq!(read(&secret, AUTHORITY_KEY), first);
        for state in [state(true, ""), state(true, "old\n"), state(false, "old\n"), first] {
            secret = patched(&secret, &patch(&spec(), &secret, ObjectMeta::default(), &state));
            assert_eq!(read(&secret, AUTHORITY_KEY), state);
        }
        assert_eq!(secret.data.unwrap().into_keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
        assert!(read(&Secret::default(), AUTHORITY_KEY).next.is_none());
        let other = CertificateSpec { authority_key: "other", ..spec() };
        let secret = created(&other, ObjectMeta::default(), &state(false, ""));
        let keys: Vec<_> = secret.data.iter().flatten().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["other", "tls.crt", "tls.key"]);
    }
}
