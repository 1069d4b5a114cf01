//! Each rendered CRD against the live one: the comparison is `olm-crd-safety`'s, this room fetches the live side.
//!
//! Rule: crd-upgrade-safety §1 (live GET by name, an absent CRD passes).

use crate::resolution::Failure;
use kube::api::DynamicObject;
use kube::{Api, Client};
use olm_core::Object;
use olm_crd_safety::{Policy, compare, error_message};

use super::{Found, Settings, crds, existing, live};

/// CRDs fetched at the same time.
const PARALLEL: usize = 8;

/// Compares every CRD of `wanted` with the one in the cluster.
pub(super) async fn check(client: &Client, settings: Settings, wanted: &[&Object]) -> Result<Found, Failure> {
    let api = crds(client);
    let mut found = Found::default();
    for some in wanted.chunks(PARALLEL) {
        let asked = some.iter().map(|wanted| one(client, &api, settings, wanted));
        for one in futures::future::try_join_all(asked).await? {
            found.refusals.extend(one.refusals);
            found.notes.extend(one.notes);
        }
    }
    Ok(found)
}

async fn one(
    client: &Client,
    api: &Api<DynamicObject>,
    settings: Settings,
    wanted: &Object,
) -> Result<Found, Failure> {
    let name = wanted.name();
    let Some(live) = live(api, name).await? else { return Ok(Found::default()) };
    let mut found = Found::default();
    found.refusals.extend(error_message(name, &compare(&live, wanted, Policy::default())));
    if settings.existing_objects {
        existing::check(client, &live, wanted, &mut found).await;
    }
    Ok(found)
}
