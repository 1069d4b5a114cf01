//! CRD upgrade safety before a revision is written: the effect of changed CRDs on existing objects.
//!
//! Three checks: a changed schema is safe in itself (`olm-crd-safety` compares each CRD with the live one; an absent one passes),
//! existing objects fit it ([`existing`]), and the new version drops no CRD that has objects ([`dropped`]). This module combines their
//! findings into an error or warnings, as `enforcement` and a [`CrdWaiver`] decide. Rule: crd-upgrade-safety §1; decisions 12 and 28.

mod dropped;
mod existing;
mod waiver;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use dropped::OwnedCrd;
pub use waiver::{CrdWaiver, WaiverError};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use olm_api::ClusterObjectSet;
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_core::{Cancellation, Object, message};
use olm_crd_safety::{ExistingObjects, Finding, Policy, SchemaError, compare_until, message_prefix};
use olm_rollout::{controller_of, keys};
use serde_json::Value;

use crate::render::Rendered;
use crate::resolution::{BundleFacts, Cause, Class, ExtensionRequest, PassError, RevisionFacts, revision};
use crate::work;

/// CRDs fetched at the same time.
const PARALLEL: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether objects that exist are read and validated against a changed schema.
    pub existing_objects: bool,
}

/// Findings that block the revision under `Strict`, and others.
#[derive(Debug, Default)]
struct Found {
    blocking: Vec<Blocker>,
    warnings: Vec<String>,
    /// The extension of each CRD that belongs to another one.
    owners: BTreeMap<String, String>,
}

/// A finding that blocks the revision.
#[derive(Debug)]
struct Blocker {
    crd: String,
    check: &'static str,
    /// The beginning of the message, once for all findings that share it.
    about: String,
    text: String,
}

/// The result of the checks that does not block the revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    pub warnings: Vec<String>,
    /// Findings that the user's waiver accepts.
    pub accepted: Vec<String>,
}

/// A cache of the CRDs of the cluster, which saves requests.
pub trait CrdCache: Sync {
    /// Whether there may be a CRD of this name. Others are not read when nothing is installed yet.
    fn may_exist(&self, name: &str) -> bool;

    /// The CRDs that carry the labels of this extension, in a state that may be a moment old; `None` before the first listing.
    fn of_extension(&self, extension: &str) -> Option<Vec<OwnedCrd>>;
}

/// An empty cache: everything is read.
#[derive(Debug, Clone, Copy)]
pub struct NoCache;

impl CrdCache for NoCache {
    fn may_exist(&self, _: &str) -> bool {
        true
    }

    fn of_extension(&self, _: &str) -> Option<Vec<OwnedCrd>> {
        None
    }
}

/// Checks the CRDs among the objects of `bundle`, and those of `revisions` that are no longer among them.
///
/// # Errors
/// With all findings of all CRDs, or when a live CRD or the number of its objects cannot be read, or a comparison takes too long.
pub async fn check(
    client: &Client,
    cache: &dyn CrdCache,
    settings: Settings,
    request: &ExtensionRequest,
    bundle: &BundleFacts,
    rendered: &Arc<Rendered>,
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<Checked, PassError> {
    if request.enforcement == CrdUpgradeSafetyEnforcement::None {
        return Ok(Checked::default());
    }
    let objects = &rendered.objects;
    let crds: Vec<usize> = (0..objects.len()).filter(|&at| is_crd(&objects[at])).collect();
    // a first install does not read CRDs that are not there; an upgrade reads each
    let may_exist = |at: &usize| !revisions.is_empty() || cache.may_exist(objects[*at].name());
    let present: Vec<Desired> = crds
        .iter()
        .copied()
        .filter(may_exist)
        .map(|at| Desired { rendered: Arc::clone(rendered), at })
        .collect();
    let mut found = check_changed(client, settings, &request.name, &present).await?;
    if !revisions.is_empty() {
        let desired: Vec<&Object> = crds.iter().map(|&at| &objects[at]).collect();
        found.blocking.extend(dropped::check(client, cache, request, &desired, revisions).await?);
    }
    let facts: Vec<RevisionFacts> = revisions.iter().map(|set| revision::facts(set)).collect();
    let waiver = request.accepted_crd_change.as_ref();
    let waiver = waiver.filter(|waiver| waiver.holds(bundle, &rendered.digest, facts.iter()));
    classify(found, request.enforcement, waiver, &waiver::annotation(bundle, &rendered.digest))
}

/// A rendered CRD, for a thread that may outlive its pass for a moment.
#[derive(Clone)]
struct Desired {
    rendered: Arc<Rendered>,
    at: usize,
}

impl Desired {
    fn crd(&self) -> &Object {
        &self.rendered.objects[self.at]
    }
}

/// Compares every CRD of `desired` with the one in the cluster.
async fn check_changed(
    client: &Client,
    settings: Settings,
    extension: &str,
    desired: &[Desired],
) -> Result<Found, PassError> {
    let api = crds(client);
    let mut found = Found::default();
    for some in desired.chunks(PARALLEL) {
        let checks = some.iter().map(|desired| check_crd(client, &api, settings, extension, desired));
        for checked in futures::future::try_join_all(checks).await? {
            found.blocking.extend(checked.blocking);
            found.warnings.extend(checked.warnings);
            found.owners.extend(checked.owners);
        }
    }
    Ok(found)
}

async fn check_crd(
    client: &Client,
    api: &Api<DynamicObject>,
    settings: Settings,
    extension: &str,
    desired: &Desired,
) -> Result<Found, PassError> {
    let name = desired.crd().name();
    let Some(live) = live(api, name).await? else { return Ok(Found::default()) };
    let live = Arc::new(live);
    let (blocking, existing) = compare(Arc::clone(&live), desired.clone(), settings).await?;
    let owners = other_owner(&live, extension).map(|owner| (name.to_owned(), owner));
    let mut found = Found { blocking, warnings: Vec::new(), owners: owners.into_iter().collect() };
    if let Some(existing) = existing {
        existing::check(client, &live, name, existing, &mut found).await;
    }
    Ok(found)
}

/// The extension that controls the CRD, if it is another one: the rollout does not change its objects.
fn other_owner(live: &Object, extension: &str) -> Option<String> {
    let controller = controller_of(live)?;
    let owner = match controller.kind.as_str() {
        keys::OBJECT_SET => (*live.labels().get(keys::OWNER_NAME)?).to_owned(),
        // of a Helm release
        keys::OWNER_KIND_VALUE => controller.name,
        _ => return None,
    };
    (owner != extension).then_some(owner)
}

/// What the change of a CRD is in itself, and, if `settings` ask for it, what judges existing objects.
async fn compare(
    live: Arc<Object>,
    desired: Desired,
    settings: Settings,
) -> Result<(Vec<Blocker>, Option<Result<Option<ExistingObjects>, SchemaError>>), PassError> {
    let name = desired.crd().name();
    let what = format!("comparing its CRD {name:?} with the one in the cluster");
    let size = work::size([&*live, desired.crd()]);
    let comparing = move |cancellation: &Cancellation| {
        let desired = desired.crd();
        let findings = compare_until(&live, desired, Policy::default(), cancellation);
        let judges = settings.existing_objects && !cancellation.is_cancelled();
        let existing = judges.then(|| ExistingObjects::new(&live, desired));
        let blocker = |finding: &Finding| Blocker {
            crd: desired.name().to_owned(),
            check: finding.check,
            about: message_prefix(desired.name()),
            text: finding.to_string(),
        };
        (findings.iter().map(blocker).collect(), existing)
    };
    work::run(&what, size, comparing).await
}

/// The findings as `enforcement` and the waiver classify them. `annotation` is the one that accepts them all.
fn classify(
    found: Found,
    enforcement: CrdUpgradeSafetyEnforcement,
    waiver: Option<&CrdWaiver>,
    annotation: &str,
) -> Result<Checked, PassError> {
    let Found { blocking, warnings, owners } = found;
    let is_accepted = |found: &Blocker| waiver.is_some_and(|waiver| waiver.covers(&found.crd, found.check));
    let (accepted, blocking): (Vec<Blocker>, Vec<Blocker>) = blocking.into_iter().partition(is_accepted);
    let accepted = messages(&accepted);
    if blocking.is_empty() || enforcement == CrdUpgradeSafetyEnforcement::Warn {
        return Ok(Checked { warnings: messages(&blocking).into_iter().chain(warnings).collect(), accepted });
    }
    let message = blocked(&blocking, &owners, annotation);
    Err(PassError { cause: Cause::CrdSafety, ..PassError::new(Class::NeedsChange, message) })
}

/// Characters of the finding that the first line of a message has.
const MAX_FINDING: usize = 60;

/// Why the upgrade is refused: the CRDs and how to accept the change, then the findings (decision 33). A CRD of another extension comes first:
/// accepting its change does not help.
fn blocked(blocking: &[Blocker], owners: &BTreeMap<String, String>, annotation: &str) -> String {
    let mut crds: Vec<&str> = blocking.iter().map(|found| found.crd.as_str()).collect();
    crds.dedup();
    let first = blocking.first().map(|found| found.text.as_str()).unwrap_or_default();
    let first = match first.char_indices().nth(MAX_FINDING) {
        Some((end, _)) => {
            format!("{}…", first[..end].rsplit_once(' ').map_or(&first[..end], |(words, _)| words))
        }
        None => first.to_owned(),
    };
    let changes = match (crds.as_slice(), blocking.len()) {
        ([crd], 1) => format!("the change of CRD {crd} is not safe ({first})"),
        ([crd], count) => format!("{count} changes of CRD {crd} are not safe ({first}, …)"),
        (crds, count) => format!("{count} changes of {} CRDs are not safe ({first}, …)", crds.len()),
    };
    let (first, advice) = match blocking.iter().find_map(|found| owners.get_key_value(&found.crd)) {
        Some((crd, owner)) => (
            format!("CRD {crd} belongs to ClusterExtension {owner}; uninstall one of the two"),
            format!(
                "{changes}; accepting that does not help, because no object of another extension is changed"
            ),
        ),
        None => (
            format!("{changes}; the annotation in Progressing accepts it"),
            format!(
                "to accept this, set spec.install.preflight.crdUpgradeSafety.enforcement to None, or for this bundle alone the \
                 annotation {annotation}"
            ),
        ),
    };
    let findings = messages(blocking);
    let details = std::iter::once(advice.as_str()).chain(findings.iter().flat_map(|text| text.lines()));
    message::with_details(&first, details)
}

/// One message for each run of findings that share its beginning.
fn messages(found: &[Blocker]) -> Vec<String> {
    let groups = found.chunk_by(|one, next| one.about == next.about);
    groups
        .map(|group| {
            let texts: Vec<&str> = group.iter().map(|found| found.text.as_str()).collect();
            format!("{}{}", group.first().map_or("", |found| found.about.as_str()), texts.join("\n"))
        })
        .collect()
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
pub(crate) fn crds(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<CustomResourceDefinition>(&()))
}

/// The CRD of this name as it is now, if there is one.
async fn live(api: &Api<DynamicObject>, name: &str) -> Result<Option<Object>, PassError> {
    let found = api.get_opt(name).await.map_err(|error| {
        PassError::new(
            Class::Transient,
            format!("getting existing resource for CRD {name:?}: {}", olm_runtime::apply::message(&error)),
        )
    })?;
    Ok(found.and_then(|found| Object::from_value(serde_json::to_value(found).ok()?).ok()))
}

/// The resource that a CRD defines, in one of its versions.
fn resource(crd: &Object, version: &str) -> ApiResource {
    let crd = crd.to_value();
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = GroupVersionKind::gvk(text("/spec/group"), version, text("/spec/names/kind"));
    ApiResource::from_gvk_with_plural(&kind, text("/spec/names/plural"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_runtime::testing;

    fn rendered(crd: Object) -> Arc<Rendered> {
        Arc::new(Rendered {
            objects: vec![crd],
            properties: None,
            warnings: Vec::new(),
            issuer: None,
            digest: format!("sha256:{}", "a".repeat(64)).parse().unwrap(),
            turn: None,
        })
    }

    #[tokio::test]
    async fn crd_that_cannot_be_read_is_retried() {
        let client =
            testing::client(|_| async { testing::failure_with(500, "InternalError", "etcd is away") });
        let api = crds(&client);
        let failure = live(&api, "gadgets.example.com").await.err().unwrap();
        assert_eq!(failure.class, Class::Transient, "{}", failure.message);
        let want = "getting existing resource for CRD \"gadgets.example.com\": ";
        assert!(failure.message.starts_with(want), "{}", failure.message);
        assert!(failure.message.contains("etcd is away"), "{}", failure.message);
    }

    #[tokio::test]
    async fn crd_enforcement_none_reads_nothing() {
        use CrdUpgradeSafetyEnforcement::{None as Unchecked, Strict};
        let client = testing::client(|_| async { testing::failure(500, "InternalError") });
        let extension = serde_json::from_value(serde_json::json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "x", "uid": "e"},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
        }))
        .unwrap();
        let set = serde_json::json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": "x-1"},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent", "phases": []},
        });
        let revisions = [Arc::new(serde_json::from_value::<ClusterObjectSet>(set).unwrap())];
        let crd = serde_json::json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "as.example.com"}, "spec": {"versions": []}});
        let rendered = rendered(Object::from_value(crd).unwrap());
        let (bundle, settings) = (BundleFacts::default(), Settings { existing_objects: true });
        let request = crate::resolution::validate(&extension).unwrap();
        for (enforcement, is_accepted) in [(Strict, false), (Unchecked, true)] {
            let request = ExtensionRequest { enforcement, ..request.clone() };
            let checked = check(&client, &NoCache, settings, &request, &bundle, &rendered, &revisions).await;
            assert_eq!(checked.is_ok(), is_accepted, "{checked:?}");
        }
    }

    fn blocker(crd: &str) -> Blocker {
        Blocker { crd: crd.to_owned(), check: "enum", about: format!("crd {crd}: "), text: "x".to_owned() }
    }

    #[test]
    fn crd_of_another_extension_is_named_with_the_remedy() {
        let live = |kind: &str, name: &str, label: &str| {
            let owner = serde_json::json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": kind, "name": name,
                "uid": "u", "controller": true}]);
            let crd = serde_json::json!({"metadata": {"name": "a", "ownerReferences": owner,
                "labels": {(keys::OWNER_NAME): label}}});
            other_owner(&Object::from_value(crd).unwrap(), "demo")
        };
        for (kind, name, label, want) in [
            ("ClusterObjectSet", "other-1", "other", Some("other")),
            ("ClusterObjectSet", "demo-1", "demo", None),
            ("ClusterExtension", "other", "", Some("other")),
            ("ClusterExtension", "demo", "", None),
            ("Deployment", "other", "other", None),
        ] {
            assert_eq!(live(kind, name, label).as_deref(), want, "{kind} {name}");
        }
        let unowned = Object::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!(other_owner(&unowned, "demo"), None);

        let found = Found {
            blocking: vec![blocker("b"), blocker("a")],
            owners: [("a".to_owned(), "other".to_owned())].into(),
            ..Found::default()
        };
        let error = classify(found, CrdUpgradeSafetyEnforcement::Strict, None, "key=value").unwrap_err();
        let want = "CRD a belongs to ClusterExtension other; uninstall one of the two\n2 changes of 2 CRDs are not safe";
        assert!(error.message.starts_with(want), "{}", error.message);
        assert!(error.message.ends_with("\ncrd b: x\ncrd a: x"), "{}", error.message);
        assert!(!error.message.contains("key=value"), "{}", error.message);
    }

    /// Versions are compared in pairs: that takes minutes.
    #[tokio::test]
    async fn crd_comparison_ends_with_its_pass() {
        let version = |at: usize| {
            serde_json::json!({"name": format!("v{at}"), "served": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}}})
        };
        let crd = |count: usize| {
            let versions: Vec<_> = (0..count).map(version).collect();
            Object::from_value(
                serde_json::json!({"metadata": {"name": "as.example.com"}, "spec": {"versions": versions}}),
            )
            .unwrap()
        };
        let rendered = rendered(crd(20_000));
        let desired = Desired { rendered: Arc::clone(&rendered), at: 0 };
        let settings = Settings { existing_objects: false };
        let mut comparing = Box::pin(compare(Arc::new(crd(1)), desired, settings));
        let early = tokio::time::timeout(std::time::Duration::from_millis(300), &mut comparing).await;
        assert!(early.is_err(), "compared within moments");
        drop(comparing);
        let ended = async {
            while Arc::strong_count(&rendered) > 1 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), ended).await;
        assert!(ended.is_ok(), "the thread runs on");
    }

    #[test]
    #[rustfmt::skip]
    fn crd_enforcement_blocks_or_warns() {
        let found = |blocking: &[&str], warnings: &[&str]| Found {
            blocking: blocking.iter().map(|&text| blocker(text)).collect(),
            warnings: warnings.iter().map(|&text| text.to_owned()).collect(),
            owners: BTreeMap::new(),
        };
        use CrdUpgradeSafetyEnforcement::{Strict, Warn};
        let waiver = |list: &str| -> CrdWaiver {
            format!("demo.v2@sha256:{} {list}", "a".repeat(64)).parse().unwrap()
        };
        let (all, one, other) = (waiver(""), waiver("a/enum"), waiver("a/type c"));
        for (found, enforcement, waiver, want) in [
            (found(&[], &[]), Strict, None, Ok("")),
            (found(&[], &["n"]), Strict, None, Ok("n")),
            (found(&["a", "b"], &["n"]), Warn, None, Ok("crd a: x,crd b: x,n")),
            (found(&["a", "b"], &["n"]), Strict, None, Err("2 changes of 2 CRDs are not safe (x, …); \ncrd a: x\ncrd b: x")),
            (found(&["a", "a"], &[]), Strict, None, Err("2 changes of CRD a are not safe (x, …); \ncrd a: x\nx")),
            (found(&["a", "b"], &["n"]), Strict, Some(&all), Ok("n accepted crd a: x,crd b: x")),
            (found(&["a", "b"], &[]), Strict, Some(&one), Err("the change of CRD b is not safe (x); \ncrd b: x")),
            (found(&["a", "b"], &[]), Warn, Some(&one), Ok("crd b: x accepted crd a: x")),
            (found(&["a"], &[]), Strict, Some(&other), Err("the change of CRD a is not safe (x); \ncrd a: x")),
        ] {
            match (classify(found, enforcement, waiver, "key=value"), want) {
                (Ok(Checked { warnings, accepted }), Ok(want)) => {
                    let accepted = accepted.join(",");
                    let accepted =
                        if accepted.is_empty() { accepted } else { format!(" accepted {accepted}") };
                    assert_eq!(format!("{}{accepted}", warnings.join(",")), want);
                }
                (Err(failure), Err(want)) => {
                    let (first, findings) = want.split_once('\n').unwrap();
                    assert!(failure.message.starts_with(first), "{}", failure.message);
                    assert!(
                        failure.message.ends_with(&format!(" key=value\n{findings}")),
                        "{}",
                        failure.message
                    );
                    assert_eq!((failure.cause, failure.class), (Cause::CrdSafety, Class::NeedsChange));
                }
                (got, want) => panic!("{got:?} instead of {want:?}"),
            }
        }
    }
}
