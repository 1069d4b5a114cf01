//! Certificates for tests.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::material::{Generation, Keys, issue};

/// The present of tests: 2030-01-01.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_893_456_000, 0);

/// The authority of tests.
pub(crate) const AUTHORITY: &str = "test authority";

/// Seconds after `time`.
pub(crate) fn at(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

/// Names of a Service `hook-service` in the namespace `demo`.
pub(crate) fn names() -> Vec<String> {
    ["hook-service.demo", "hook-service.demo.svc", "hook-service.demo.svc.cluster.local"]
        .map(str::to_owned)
        .to_vec()
}

/// A fresh generation for [`names`].
pub(crate) fn generation(now: Timestamp, validity: SignedDuration) -> Generation {
    issue(AUTHORITY, &names(), now, validity, Keys::generate().unwrap()).unwrap()
}
