//! Another installation that manages the same objects: it holds a lease of the same name in another namespace.
//!
//! In one namespace the lease itself keeps two processes apart. Deliberately no more than leases is read: they show which process works,
//! and a stopped installation may keep everything else.
//!
//! Rule: decision 29.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::Shutdown;
use crate::apply::{ErrorClass, classify, message};
use crate::leader::Election;

/// The time between two attempts to read the leases.
const RETRY: Duration = Duration::from_secs(2);

/// What a process does if another installation works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum ForeignOlm {
    /// It does not start
    #[default]
    Refuse,
    /// It starts; both then reconcile every object
    Ignore,
}

/// Another installation works.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "another OLM v1 manages the same objects: Lease {name} in namespace {namespace} is held by {holder:?} ({what}); scale the Deployments that \
     use it to 0 (on OpenShift: docs/install.md#openshift), and this process starts when the lease has expired, {lasts} s after its last \
     renewal; --foreign-olm=Ignore starts nevertheless"
)]
pub struct ForeignOlmError {
    name: String,
    namespace: String,
    holder: String,
    what: &'static str,
    lasts: i32,
}

/// Waits until the leases of the name could be read, and fails if one of another namespace is held. Without the right to read them this
/// is logged, and nothing is refused.
///
/// # Errors
/// [`ForeignOlmError`].
pub async fn check(
    client: &Client,
    election: &Election,
    mode: ForeignOlm,
    stop: &Shutdown,
) -> Result<(), ForeignOlmError> {
    if mode == ForeignOlm::Ignore {
        return Ok(());
    }
    let api: Api<Lease> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={}", election.name));
    loop {
        let listed = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            listed = api.list(&params) => listed,
        };
        match listed {
            Ok(leases) => return judge(&leases.items, &election.namespace, Timestamp::now()),
            Err(error) if classify(&error) == ErrorClass::Forbidden => {
                tracing::warn!(
                    lease = election.name,
                    error = message(&error),
                    "cannot find out whether another OLM v1 works: the leases of other namespaces may not be listed"
                );
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(lease = election.name, error = message(&error), "cannot list leases, retrying")
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

fn judge(leases: &[Lease], own: &str, now: Timestamp) -> Result<(), ForeignOlmError> {
    let foreign = |lease: &&Lease| lease.namespace().is_some_and(|namespace| namespace != own);
    let held = |lease: &Lease| lease.spec.as_ref().filter(|spec| is_held(spec, now)).cloned();
    let mut all = leases.iter().filter(foreign);
    all.find_map(|lease| held(lease).map(|spec| (lease, spec))).map_or(Ok(()), |(lease, spec)| {
        let holder = spec.holder_identity.unwrap_or_default();
        Err(ForeignOlmError {
            name: lease.name_any(),
            namespace: lease.namespace().unwrap_or_default(),
            what: if is_of_olm_rs(&holder) { "olm-rs" } else { "another implementation" },
            lasts: spec.lease_duration_seconds.unwrap_or_default(),
            holder,
        })
    })
}

/// Whether a process holds the lease and renewed it in time.
#[must_use]
pub fn is_held(spec: &LeaseSpec, now: Timestamp) -> bool {
    let renewed = spec.renew_time.as_ref().map_or(0, |time| time.0.as_second());
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty())
        && renewed + lasts >= now.as_second()
}

/// Whether the holder is a process of olm-rs: its identities end with 32 hexadecimal digits, those of the Go implementation with a UUID.
#[must_use]
pub fn is_of_olm_rs(holder: &str) -> bool {
    let suffix = holder.rsplit_once('_').map_or("", |(_, suffix)| suffix);
    suffix.len() == 32 && suffix.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

    use super::*;

    #[test]
    fn foreign_leases_of_other_namespaces_are_refused() {
        let second = |at: i64| Timestamp::from_second(at).unwrap();
        let (go, ours) = ("pod_6f1bd4f5-3c64-4a5e-b0ea-0c4f6e0b7a11", format!("pod_{}", "0f".repeat(16)));
        let lease = |namespace: &str, holder: &str, renewed: i64| Lease {
            metadata: ObjectMeta {
                name: Some("lock".to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(137),
                renew_time: Some(MicroTime(second(renewed))),
                ..LeaseSpec::default()
            }),
        };
        for (leases, want) in [
            (vec![], None),
            (vec![lease("system", go, 1000)], None),
            (vec![lease("other", "", 1000)], None),
            (vec![lease("other", go, 862)], None),
            (vec![lease("other", go, 863)], Some("another implementation")),
            (vec![lease("system", go, 1000), lease("other", &ours, 1000)], Some("olm-rs")),
        ] {
            let text = judge(&leases, "system", second(1000)).err().map(|error| error.to_string());
            match (&text, want) {
                (None, None) => {}
                (Some(text), Some(want)) => {
                    for part in ["Lease lock in namespace other is held by \"pod_", want, "137 s"] {
                        assert!(text.contains(part), "{part}: {text}");
                    }
                }
                _ => panic!("{leases:?}: {text:?}"),
            }
        }
    }
}
