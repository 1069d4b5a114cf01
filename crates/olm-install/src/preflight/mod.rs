//! CRD upgrade safety before a revision is written: what the change of CRDs means for objects that exist.
//!
//! Three questions, one room each: is a changed schema safe in itself ([`changed`]), do the objects that exist fit it
//! ([`existing`]), and does the new version drop a CRD that has objects ([`dropped`]). This module asks them and makes of
//! the answers a refusal or warnings, as `enforcement` says. Rule: crd-upgrade-safety §1; decisions 12 and 28.

mod changed;
mod dropped;
mod existing;

use std::sync::Arc;

pub use dropped::OwnedCrd;

use crate::resolution::{Cause, Class, Failure, Wish};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use olm_api::ClusterObjectSet;
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_core::Object;

/// What the check came to when it does not stop the revision: findings to report, one text each.
pub type Warnings = Vec<String>;

/// Settings of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether objects that exist are read and validated against a changed schema.
    pub existing_objects: bool,
}

/// What was found: things that stop the revision under `Strict`, and things that are worth a word.
#[derive(Debug, Default)]
struct Found {
    refusals: Vec<String>,
    notes: Vec<String>,
}

/// Judges the CRDs among `objects`, and those of `revisions` that are no longer among them.
///
/// # Errors
/// With all findings of all CRDs, or when a live CRD or the number of its objects cannot be read.
pub async fn check(
    client: &Client,
    settings: Settings,
    wish: &Wish,
    objects: &[Object],
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<Warnings, Failure> {
    check_knowing(client, &Nothing, settings, wish, objects, revisions).await
}

/// What the asker knows of the CRDs of the cluster already.
pub trait Known: Sync {
    /// Whether there may be a CRD of this name. Of the others none is asked for when nothing is installed yet.
    fn may_exist(&self, name: &str) -> bool;

    /// The CRDs that carry the labels of this extension, in a state that may be a moment old; `None` when they are not known.
    fn of_extension(&self, extension: &str) -> Option<Vec<OwnedCrd>>;
}

/// Nothing is known.
struct Nothing;

impl Known for Nothing {
    fn may_exist(&self, _: &str) -> bool {
        true
    }

    fn of_extension(&self, _: &str) -> Option<Vec<OwnedCrd>> {
        None
    }
}

/// As [`check`], by one who knows something: less is asked.
///
/// # Errors
/// As [`check`].
pub async fn check_knowing(
    client: &Client,
    known: &dyn Known,
    settings: Settings,
    wish: &Wish,
    objects: &[Object],
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<Warnings, Failure> {
    if wish.enforcement == CrdUpgradeSafetyEnforcement::None {
        return Ok(Warnings::new());
    }
    let wanted: Vec<&Object> = objects.iter().filter(|object| is_crd(object)).collect();
    // a first install needs no answer about what is not there; an upgrade asks for each
    let asked = |crd: &&&Object| !revisions.is_empty() || known.may_exist(crd.name());
    let present: Vec<&Object> = wanted.iter().filter(asked).copied().collect();
    let mut found = changed::check(client, settings, &present).await?;
    if !revisions.is_empty() {
        found.refusals.extend(dropped::check(client, known, wish, &wanted, revisions).await?);
    }
    judge(found, wish.enforcement)
}

/// Pure: what `enforcement` makes of the findings.
fn judge(found: Found, enforcement: CrdUpgradeSafetyEnforcement) -> Result<Warnings, Failure> {
    let Found { refusals, notes } = found;
    if refusals.is_empty() || enforcement == CrdUpgradeSafetyEnforcement::Warn {
        return Ok(refusals.into_iter().chain(notes).collect());
    }
    let mend = "; to accept this, set spec.install.preflight.crdUpgradeSafety.enforcement to None";
    let message = format!("{}{mend}", refusals.join("\n"));
    Err(Failure { cause: Cause::CrdSafety, ..Failure::new(Class::NeedsChange, message) })
}

/// Names of the CRDs among `objects`.
#[must_use]
pub fn names(objects: &[Object]) -> Vec<String> {
    objects.iter().filter(|object| is_crd(object)).map(|crd| crd.name().to_owned()).collect()
}

fn is_crd(object: &Object) -> bool {
    object.api_version() == "apiextensions.k8s.io/v1" && object.kind() == "CustomResourceDefinition"
}

/// CRDs of the cluster as untyped objects: the typed form would drop unknown fields.
fn crds(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions"))
}

/// The CRD of this name as it is now, if there is one.
async fn live(api: &Api<DynamicObject>, name: &str) -> Result<Option<Object>, Failure> {
    let found = api.get_opt(name).await.map_err(|error| {
        Failure::new(Class::Transient, format!("getting existing resource for CRD {name:?}: {error}"))
    })?;
    Ok(found.and_then(|found| Object::from_value(serde_json::to_value(found).ok()?).ok()))
}

/// The resource that a CRD defines, in one of its versions.
fn resource(crd: &Object, version: &str) -> ApiResource {
    let text = |pointer: &str| crd.to_value().pointer(pointer).and_then(|v| v.as_str().map(str::to_owned));
    let kind = GroupVersionKind {
        group: text("/spec/group").unwrap_or_default(),
        version: version.to_owned(),
        kind: text("/spec/names/kind").unwrap_or_default(),
    };
    ApiResource::from_gvk_with_plural(&kind, &text("/spec/names/plural").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;

    #[tokio::test]
    async fn crd_that_cannot_be_read_is_retried() {
        let server = tower::service_fn(|_: http::Request<Body>| async {
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                "reason": "InternalError", "message": "etcd is away"});
            let answer =
                http::Response::builder().status(500).body(Body::from(status.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(answer.unwrap())
        });
        let api = crds(&Client::new(server, "default"));
        let failure = live(&api, "gadgets.example.com").await.err().unwrap();
        assert_eq!(failure.class, Class::Transient, "{}", failure.message);
        let want = "getting existing resource for CRD \"gadgets.example.com\": ";
        assert!(failure.message.starts_with(want), "{}", failure.message);
        assert!(failure.message.contains("etcd is away"), "{}", failure.message);
    }

    #[test]
    fn enforcement_decides_between_refusal_and_warnings() {
        let found = |refusals: &[&str], notes: &[&str]| Found {
            refusals: refusals.iter().map(|&text| text.to_owned()).collect(),
            notes: notes.iter().map(|&text| text.to_owned()).collect(),
        };
        use CrdUpgradeSafetyEnforcement::{Strict, Warn};
        for (found, enforcement, want) in [
            (found(&[], &[]), Strict, Ok("")),
            (found(&[], &["n"]), Strict, Ok("n")),
            (found(&["a", "b"], &["n"]), Warn, Ok("a,b,n")),
            (found(&["a", "b"], &["n"]), Strict, Err("a\nb; to accept this, set ")),
        ] {
            match (judge(found, enforcement), want) {
                (Ok(warnings), Ok(want)) => assert_eq!(warnings.join(","), want),
                (Err(failure), Err(want)) => {
                    assert!(failure.message.starts_with(want), "{}", failure.message);
                    assert_eq!((failure.cause, failure.class), (Cause::CrdSafety, Class::NeedsChange));
                }
                (got, want) => panic!("{got:?} instead of {want:?}"),
            }
        }
    }
}
