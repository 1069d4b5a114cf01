//! Facts about ClusterExtensions that a rollout or teardown depends on: their annotations and whether they are being deleted.
//!
//! Rule: decision 11 (deletion policies), pause.

use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_rollout::teardown::Reason;
use olm_runtime::watched::{Change, Object, Objects};

use super::convert;
use crate::recorded::Recorded;

/// The facts of an extension that a pass uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Facts {
    /// None of its objects is changed for the time being.
    pub(super) paused: bool,
    /// Its objects stay when it is deleted.
    pub(super) keep: bool,
    /// It must not be removed while custom resources exist.
    pub(super) protect: bool,
    /// It exists and is not being deleted.
    pub(super) stays: bool,
}

/// The facts of all extensions.
pub(super) struct Extensions(pub(super) Objects<ClusterExtension>);

impl Extensions {
    /// Whether the owner of a revision is paused.
    pub(super) fn is_paused(&self, revision: &ClusterObjectSet) -> bool {
        let observed = convert::owner(revision).and_then(|owner| self.cached(owner));
        observed.is_some_and(|observed| observed.facts.paused)
    }

    /// What the cache shows of the owner of a revision.
    fn cached(&self, (name, uid): (&str, &str)) -> Option<Observed> {
        self.0.meta(name, |metadata| Observed::new(metadata, uid))?
    }

    /// What the teardown of a revision goes by, kept in `before` from pass to pass; `None` when the extension is absent.
    ///
    /// The apiserver is asked first, unless the cache shows that the extension is being deleted: what was set before is in the cache
    /// then. Else it proves nothing that the cache lacks the extension, or an annotation of it. Later the cache counts where it is not
    /// behind that answer. An extension that goes meanwhile leaves the policy that it had.
    ///
    /// # Errors
    /// When the apiserver does not answer whether the extension exists.
    pub(super) async fn for_teardown(
        &self,
        client: &Client,
        revision: &ClusterObjectSet,
        before: &mut Option<Option<Observed>>,
    ) -> Result<Option<Facts>, kube::Error> {
        let Some(extension) = convert::owner(revision) else { return Ok(None) };
        let observed = match before.take() {
            None => match self.cached(extension).filter(|cached| !cached.facts.stays) {
                Some(cached) => Some(cached),
                None => live(client, extension).await?,
            },
            Some(before) => newest(before, self.cached(extension)),
        };
        let facts = observed.as_ref().map(|observed| observed.facts.clone());
        *before = Some(observed);
        Ok(facts)
    }
}

/// An extension at one of its resourceVersions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    version: Option<u64>,
    facts: Facts,
}

impl Observed {
    /// `None` when it is another one than the extension with that UID.
    fn new(metadata: &ObjectMeta, uid: &str) -> Option<Self> {
        let version = metadata.resource_version.as_ref().and_then(|version| version.parse().ok());
        (metadata.uid.as_deref() == Some(uid)).then(|| Self { version, facts: digest(metadata) })
    }
}

async fn live(client: &Client, (name, uid): (&str, &str)) -> Result<Option<Observed>, kube::Error> {
    let api: Api<ClusterExtension> = Api::all(client.clone());
    Ok(api.get_metadata_opt(name).await?.and_then(|found| Observed::new(&found.metadata, uid)))
}

/// The newer of what was observed before and what the cache shows now.
fn newest(before: Option<Observed>, cached: Option<Observed>) -> Option<Observed> {
    match (before, cached) {
        (Some(before), Some(cached)) if cached.version < before.version => Some(before),
        (_, Some(cached)) => Some(cached),
        (Some(Observed { version, facts }), None) => {
            Some(Observed { version, facts: Facts { stays: false, ..facts } })
        }
        (None, None) => None,
    }
}

/// Whether the objects of a revision that is being deleted go or stay.
///
/// The extension's annotation decides. An extension that is gone although the revision still names it as owner did not wait for the
/// revision (its finalizers were removed by hand, for example), so nothing proves that its objects should go, and they stay. A revision
/// without an owner was deleted by a user: its objects go, unless the Secrets record `keep` of the extension that it had, or the user
/// wrote that on the revision.
pub(super) fn reason(revision: &ClusterObjectSet, extension: Option<&Facts>, recorded: &Recorded) -> Reason {
    let orphaned =
        revision.finalizers().iter().any(|finalizer| finalizer == olm_rollout::keys::ORPHAN_FINALIZER);
    let keep = match extension {
        Some(facts) => facts.keep,
        None => {
            convert::owner(revision).is_some()
                || recorded.keep
                || annotations::keeps_objects(revision.annotations())
        }
    };
    if orphaned || keep { Reason::Keep } else { Reason::Delete }
}

/// Whether the facts of an extension changed or it is gone. One that appears changes nothing: its revisions come later.
pub(super) fn concerns(change: &Change<String, Object<ClusterExtension>>) -> bool {
    let digest = |extension: &Object<ClusterExtension>| digest(extension.meta());
    change.after.is_none() || change.before.is_some() && change.concerns(digest)
}

fn digest(metadata: &ObjectMeta) -> Facts {
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).map(String::as_str);
    Facts {
        paused: annotation(annotations::PAUSED) == Some("true"),
        keep: metadata.annotations.as_ref().is_some_and(annotations::keeps_objects),
        protect: annotation(annotations::PROTECT_CUSTOM_RESOURCES) == Some("true"),
        stays: metadata.deletion_timestamp.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Apiserver, failure};
    use kube::runtime::watcher::Event;
    use serde_json::json;

    #[test]
    fn sources_extension_changes() {
        let extension = |annotations: &serde_json::Value| {
            let object = serde_json::from_value(json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                "metadata": {"name": "a", "annotations": annotations},
                "spec": {"namespace": "a", "source": {"sourceType": "Catalog", "catalog": {"packageName": "a"}}},
            }));
            Some(Object::new(object.unwrap()))
        };
        let (plain, paused) = (json!({}), json!({(annotations::PAUSED): "true"}));
        for (before, after, want) in [
            (None, extension(&paused), false),
            (extension(&plain), extension(&json!({"other": "x"})), false),
            (extension(&plain), extension(&paused), true),
            (extension(&paused), extension(&paused), false),
            (extension(&paused), None, true),
        ] {
            let change = Change { key: "a".to_owned(), before, after, is_answer: false };
            assert_eq!(concerns(&change), want, "{change:?}");
        }
    }

    fn revision(metadata: serde_json::Value) -> ClusterObjectSet {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": metadata,
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        }))
        .unwrap()
    }

    fn owned(annotations: serde_json::Value) -> ClusterObjectSet {
        revision(json!({"name": "demo-1", "annotations": annotations, "ownerReferences": [{
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "demo", "uid": "u1", "controller": true}]}))
    }

    fn keep() -> serde_json::Value {
        json!({(annotations::DELETION_POLICY): annotations::DELETION_POLICY_KEEP})
    }

    #[test]
    fn teardown_reason_without_extension_is_keep() {
        let foreign = revision(json!({"name": "x", "ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "f", "uid": "u9", "controller": true}]}));
        let orphan = revision(json!({"name": "x", "finalizers": ["orphan"]}));
        let present = |keep| Some(Facts { keep, ..Facts::default() });
        let recorded = |keep| Recorded { keep, account: None };
        for (case, revision, extension, want) in [
            ("present", owned(json!({})), present(false), Reason::Delete),
            ("present, keep", owned(json!({})), present(true), Reason::Keep),
            ("absent", owned(json!({})), None, Reason::Keep),
            ("orphaned, then deleted", revision(json!({"name": "x"})), None, Reason::Delete),
            (
                "orphaned, marked by a user, then deleted",
                revision(json!({"name": "x", "annotations": keep()})),
                None,
                Reason::Keep,
            ),
            ("deleted with its objects orphaned", orphan, present(false), Reason::Keep),
            ("owned by another kind", foreign, None, Reason::Delete),
        ] {
            assert_eq!(reason(&revision, extension.as_ref(), &recorded(false)), want, "{case}");
        }
        let orphaned =
            revision(json!({"name": "x", "labels": {"olm.operatorframework.io/owner-name": "demo"}}));
        for (keep, want) in [(false, Reason::Delete), (true, Reason::Keep)] {
            assert_eq!(reason(&orphaned, None, &recorded(keep)), want, "recorded {keep}");
        }
    }

    #[tokio::test]
    async fn teardown_asks_apiserver_for_the_extension() {
        let answer = |annotations: serde_json::Value, uid: &'static str| {
            move |_: &str, _: &str| {
                (
                    200,
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"name": "demo", "uid": uid, "resourceVersion": "5", "annotations": annotations}}),
                )
            }
        };
        let missing = |_: &str, _: &str| failure(404, "NotFound");
        let failing = |_: &str, _: &str| failure(500, "InternalError");
        let ask = async |apiserver: Apiserver| {
            // its cache is empty
            let extensions = Extensions(Objects::empty());
            let mut before = None;
            let first = extensions.for_teardown(&apiserver.client(), &owned(json!({})), &mut before).await;
            let again = extensions.for_teardown(&apiserver.client(), &owned(json!({})), &mut before).await;
            let keeps =
                |facts: Result<Option<Facts>, kube::Error>| facts.map(|facts| facts.map(|facts| facts.keep));
            (keeps(first).map_err(|_| "no answer"), keeps(again).ok(), apiserver.requests().len())
        };
        let kept = ask(Apiserver::new(answer(keep(), "u1"))).await;
        assert_eq!(kept, (Ok(Some(true)), Some(Some(true)), 1));
        assert_eq!(
            ask(Apiserver::new(answer(json!({}), "u1"))).await,
            (Ok(Some(false)), Some(Some(false)), 1)
        );
        // another extension has the name by now
        assert_eq!(ask(Apiserver::new(answer(json!({}), "u2"))).await, (Ok(None), Some(None), 1));
        assert_eq!(ask(Apiserver::new(missing)).await, (Ok(None), Some(None), 1));
        assert_eq!(ask(Apiserver::new(failing)).await, (Err("no answer"), None, 2));
    }

    /// What was set before the deletion is in the cache then: no request.
    #[tokio::test]
    async fn teardown_believes_a_cache_that_shows_the_deletion() {
        let apiserver = Apiserver::new(|_, _| (500, json!({})));
        for (metadata, keeps) in [
            (
                json!({"uid": "u1", "deletionTimestamp": "2030-01-01T00:00:00Z", "annotations": keep()}),
                Some(true),
            ),
            (json!({"uid": "u1", "deletionTimestamp": "2030-01-01T00:00:00Z"}), Some(false)),
            (json!({"uid": "u1", "annotations": keep()}), None),
            (json!({"uid": "u0", "deletionTimestamp": "2030-01-01T00:00:00Z"}), None),
        ] {
            let mut extension = json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "demo"},
                "spec": {"namespace": "a", "source": {"sourceType": "Catalog", "catalog": {"packageName": "a"}}},
            });
            extension["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
            let extensions = Extensions(Objects::empty());
            let object = Object::new(serde_json::from_value(extension).unwrap());
            extensions.0.apply(Event::Apply(object), |object| (object.name(), object));
            let facts = extensions.for_teardown(&apiserver.client(), &owned(json!({})), &mut None).await;
            assert_eq!(facts.ok().flatten().map(|facts| facts.keep), keeps, "{metadata}");
        }
        assert_eq!(apiserver.requests().len(), 2);
    }

    #[test]
    fn teardown_ignores_a_cache_that_is_behind() {
        let observed = |version, keep| {
            Some(Observed { version: Some(version), facts: Facts { keep, stays: true, ..Facts::default() } })
        };
        for (before, cached, want) in [
            (observed(5, true), observed(4, false), Some((true, true))),
            (observed(5, true), observed(6, false), Some((false, true))),
            (observed(5, true), None, Some((true, false))),
            (None, observed(6, true), Some((true, true))),
            (None, None, None),
        ] {
            let got = newest(before.clone(), cached.clone());
            let got = got.map(|observed| (observed.facts.keep, observed.facts.stays));
            assert_eq!(got, want, "{before:?} {cached:?}");
        }
    }
}
