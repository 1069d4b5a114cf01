//! The leases of catalogd and operator-controller, which both implementations use.
//!
//! Rule: catalogd §2.6, operator-controller §7.2, decision 29.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use olm_runtime::foreign::{is_held, is_of_olm_rs};
use serde::Serialize;

use super::super::output::{Table, age, or_dash};
use crate::failure::CommandError;

/// The names of the leases, in any namespace.
const LEASES: [&str; 2] = ["catalogd-operator-lock", "9c4404e7.operatorframework.io"];

/// How to stop the Go implementation.
pub(super) const STOP: &str = "scale its Deployments to 0, such as with `kubectl -n olmv1-system scale deployment --all --replicas=0`, and run this again";

/// Who has a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Holder {
    /// No process; it was released, or never taken.
    None,
    /// A process of olm-rs.
    OlmRs,
    /// A process of another implementation, which renewed it in time.
    Other,
    /// A process of another implementation, which did not renew it in time.
    OtherExpired,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaseRow {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) holder: Holder,
    /// As the holder calls itself: its pod and a random part.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) renewed: Option<Timestamp>,
}

impl LeaseRow {
    fn new(lease: &Lease, now: Timestamp) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            namespace: lease.namespace().unwrap_or_default(),
            name: lease.name_any(),
            holder: holder(&spec, now),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            identity: spec.holder_identity.unwrap_or_default(),
        }
    }

    /// Whether another implementation may still write.
    pub(super) fn is_held(&self) -> bool {
        self.holder == Holder::Other
    }

    /// For messages: `catalogd-operator-lock in namespace olmv1-system is held by …`.
    pub(super) fn describe(&self) -> String {
        format!("{} in namespace {} is held by {}", self.name, self.namespace, self.identity)
    }
}

/// Who has the lease at this time.
fn holder(spec: &LeaseSpec, now: Timestamp) -> Holder {
    match spec.holder_identity.as_deref().unwrap_or_default() {
        "" => Holder::None,
        identity if is_of_olm_rs(identity) => Holder::OlmRs,
        _ if is_held(spec, now) => Holder::Other,
        _ => Holder::OtherExpired,
    }
}

/// The leases of all namespaces.
pub(super) async fn read(client: &Client) -> Result<Vec<LeaseRow>, CommandError> {
    let api: Api<Lease> = Api::all(client.clone());
    let mut rows = Vec::new();
    for name in LEASES {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let listed = api.list(&params).await;
        let listed = listed.map_err(|error| CommandError::from_request("read leases", &error))?;
        rows.extend(listed.items.iter().map(|lease| LeaseRow::new(lease, Timestamp::now())));
    }
    Ok(rows)
}

pub(super) fn table(rows: &[LeaseRow]) -> String {
    let mut table = Table::new(["NAMESPACE", "NAME", "HELD BY", "RENEWED", "IDENTITY"]);
    for row in rows {
        let holder = match row.holder {
            Holder::None => "nothing",
            Holder::OlmRs => "olm-rs",
            Holder::Other => "the Go implementation",
            Holder::OtherExpired => "the Go implementation, expired",
        };
        let renewed = row.renewed.map(|then| format!("{} ago", age(then, Timestamp::now())));
        table.row([
            row.namespace.clone(),
            row.name.clone(),
            holder.to_owned(),
            or_dash(&renewed.unwrap_or_default()),
            or_dash(&row.identity),
        ]);
    }
    table.text("")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    #[test]
    fn lease_holder_is_recognised() {
        let second = |at: i64| Timestamp::from_second(at).unwrap();
        let (go, ours) = ("pod-1_6f1bd4f5-3c64-4a5e-b0ea-0c4f6e0b7a11", format!("pod-1_{}", "0f".repeat(16)));
        for (identity, renewed, want) in [
            ("", 1000, Holder::None),
            (go, 1000, Holder::Other),
            (go, 863, Holder::Other),
            (go, 862, Holder::OtherExpired),
            (&ours, 1000, Holder::OlmRs),
            (&ours, 1, Holder::OlmRs),
            ("another", 1000, Holder::Other),
        ] {
            let spec = LeaseSpec {
                holder_identity: Some(identity.to_owned()),
                lease_duration_seconds: Some(137),
                renew_time: Some(MicroTime(second(renewed))),
                ..LeaseSpec::default()
            };
            assert_eq!(holder(&spec, second(1000)), want, "{identity} {renewed}");
        }
        assert_eq!(holder(&LeaseSpec::default(), second(1000)), Holder::None);
    }
}
