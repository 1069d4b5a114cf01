//! Each rendered CRD against the live one, which is read here; `olm-crd-safety` compares them.
//!
//! Rule: crd-upgrade-safety §1 (live GET by name, an absent CRD passes).

use crate::resolution::PassError;
use kube::api::DynamicObject;
use kube::{Api, Client};
use olm_core::Object;
use olm_crd_safety::{Policy, compare, error_message};

use super::{Found, Settings, crds, existing, live};

/// CRDs fetched at the same time.
const PARALLEL: usize = 8;

/// Compares every CRD of `desired` with the one in the cluster.
pub(super) async fn check(
    client: &Client,
    settings: Settings,
    desired: &[&Object],
) -> Result<Found, PassError> {
    let api = crds(client);
    let mut found = Found::default();
    for some in desired.chunks(PARALLEL) {
        let checks = some.iter().map(|desired| check_crd(client, &api, settings, desired));
        for checked in futures::future::try_join_all(checks).await? {
            found.blocking.extend(checked.blocking);
            found.warnings.extend(checked.warnings);
        }
    }
    Ok(found)
}

async fn check_crd(
    client: &Client,
    api: &Api<DynamicObject>,
    settings: Settings,
    desired: &Object,
) -> Result<Found, PassError> {
    let name = desired.name();
    let Some(live) = live(api, name).await? else { return Ok(Found::default()) };
    let mut found = Found::default();
    found.blocking.extend(error_message(name, &compare(&live, desired, Policy::default())));
    if settings.existing_objects {
        existing::check(client, &live, desired, &mut found).await;
    }
    Ok(found)
}
