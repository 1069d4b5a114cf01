//! CRD upgrade safety before a revision is written: each rendered CRD against the live one.
//!
//! The comparison is `olm-crd-safety`'s; this room fetches the live side. Rule: CRD upgrade safety §1.

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_client::resolution::{Class, Failure};
use olm_core::Object;
use olm_crd_safety::{Policy, compare, refusal};

/// CRDs fetched at the same time.
const PARALLEL: usize = 8;

/// What the check came to when it does not stop the revision: findings to report, one text a CRD.
pub type Warnings = Vec<String>;

/// Compares every CRD among `objects` with the one in the cluster.
///
/// # Errors
/// With all findings of all CRDs, or when a live CRD cannot be read.
pub async fn check(
    client: &Client,
    objects: &[Object],
    enforcement: CrdUpgradeSafetyEnforcement,
) -> Result<Warnings, Failure> {
    if enforcement == CrdUpgradeSafetyEnforcement::None {
        return Ok(Warnings::new());
    }
    let api = crds(client);
    let wanted: Vec<&Object> = objects.iter().filter(|object| is_crd(object)).collect();
    let mut refusals = Vec::new();
    for some in wanted.chunks(PARALLEL) {
        let asked = some.iter().map(|wanted| one(&api, wanted));
        refusals.extend(futures::future::try_join_all(asked).await?.into_iter().flatten());
    }
    if refusals.is_empty() || enforcement == CrdUpgradeSafetyEnforcement::Warn {
        return Ok(refusals);
    }
    let mend = "; to accept this, set spec.install.preflight.crdUpgradeSafety.enforcement to None";
    Err(Failure::new(Class::NeedsChange, format!("{}{mend}", refusals.join("\n"))))
}

async fn one(api: &Api<DynamicObject>, wanted: &Object) -> Result<Option<String>, Failure> {
    let name = wanted.name();
    let live = api.get_opt(name).await.map_err(|error| {
        Failure::new(Class::Transient, format!("getting existing resource for CRD {name:?}: {error}"))
    })?;
    let Some(live) = live else { return Ok(None) };
    let live =
        serde_json::to_value(live).ok().and_then(|value| Object::from_value(value).ok()).unwrap_or_default();
    Ok(refusal(name, &compare(&live, wanted, Policy::default())))
}

fn is_crd(object: &Object) -> bool {
    object.api_version() == "apiextensions.k8s.io/v1" && object.kind() == "CustomResourceDefinition"
}

/// CRDs of the cluster as untyped objects: the typed form would drop unknown fields.
fn crds(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions"))
}
