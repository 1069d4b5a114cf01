//! Certificates for tests.

#![expect(clippy::unwrap_used, reason = "only for tests")]

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::executor::CertificateSpec;
use crate::material::{Generation, Keys, issue};
use crate::plan::Timing;

/// The present of tests: 2030-01-01.
pub const NOW: Timestamp = Timestamp::constant(1_893_456_000, 0);

pub const AUTHORITY: &str = "test authority";

/// Seconds after `time`.
pub fn at(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

/// Names of a Service `hook-service` in the namespace `demo`.
pub fn names() -> Vec<String> {
    ["hook-service.demo", "hook-service.demo.svc", "hook-service.demo.svc.cluster.local"]
        .map(str::to_owned)
        .to_vec()
}

/// A fresh generation for [`names`].
pub fn generation(now: Timestamp, validity: SignedDuration) -> Generation {
    issue(AUTHORITY, &names(), now, validity, Keys::generate().unwrap()).unwrap()
}

/// A certificate for [`names`], in the Secret `demo/hook-service-cert`.
pub fn spec() -> CertificateSpec {
    CertificateSpec {
        namespace: "demo".to_owned(),
        name: "hook-service-cert".to_owned(),
        names: names(),
        authority: AUTHORITY,
        authority_key: crate::secret::AUTHORITY_KEY,
        timing: Timing::default(),
    }
}

/// The Secret after a merge patch of its data, labels and owners.
pub fn patched(secret: &Secret, patch: &Value) -> Secret {
    let mut secret = secret.clone();
    let data = secret.data.get_or_insert_default();
    for (key, value) in patch["data"].as_object().unwrap() {
        match serde_json::from_value::<Option<ByteString>>(value.clone()).unwrap() {
            Some(bytes) => data.insert(key.clone(), bytes),
            None => data.remove(key),
        };
    }
    secret.metadata.labels = serde_json::from_value(patch["metadata"]["labels"].clone()).unwrap();
    secret.metadata.owner_references =
        serde_json::from_value(patch["metadata"]["ownerReferences"].clone()).unwrap();
    secret
}
