//! A new version that no longer has a CRD: its deletion deletes every object of that kind. Refused while there are any.
//!
//! Rule: decision 28. A CRD that is to be kept anyway, or that nobody could ever use, stops nothing.
//!
//! Which CRDs the extension has is listed, unless the asker knows them well enough: then all that the new version keeps are among
//! those it knows, in the hands of the extension's revisions. They were made together with those that go.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::resolution::{Class, Failure, Wish};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};
use olm_api::{ClusterObjectSet, annotations, labels};
use olm_core::Object;
use serde_json::Value;

use super::{Known, crds, live, resource};

/// What counts of a CRD that carries the labels of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedCrd {
    name: String,
    /// UID of the controlling owner.
    controller: Option<String>,
    /// It stays whatever happens, or goes already.
    stays_or_goes: bool,
}

impl OwnedCrd {
    /// From what a watch or a listing shows of it.
    #[must_use]
    pub fn of(crd: &PartialObjectMeta<DynamicObject>) -> Self {
        let controller = crd.owner_references().iter().find(|owner| owner.controller == Some(true));
        let keep = crd.annotations().get(annotations::DELETION_POLICY);
        let kept = keep.is_some_and(|policy| policy == annotations::DELETION_POLICY_KEEP);
        Self {
            name: crd.name_any(),
            controller: controller.map(|owner| owner.uid.clone()),
            stays_or_goes: kept || crd.metadata.deletion_timestamp.is_some(),
        }
    }

    /// The extension whose labels the CRD carries.
    #[must_use]
    pub fn extension(crd: &PartialObjectMeta<DynamicObject>) -> Option<&str> {
        let labels = crd.labels();
        let kind = labels.get(labels::OWNER_KIND).map(String::as_str);
        let name = labels.get(labels::OWNER_NAME).map(String::as_str);
        name.filter(|_| kind == Some(labels::OWNER_KIND_CLUSTER_EXTENSION))
    }
}

/// Refusals, one for each CRD of `revisions` that is not in `wanted` and has objects.
pub(super) async fn check(
    client: &Client,
    known: &dyn Known,
    wish: &Wish,
    wanted: &[&Object],
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<Vec<String>, Failure> {
    let api = crds(client);
    let present = match known.of_extension(&wish.name) {
        Some(known) if is_enough(&known, wish, wanted, revisions) => known,
        Some(_) | None => list(&api, wish).await?,
    };
    let kept: BTreeSet<&str> = wanted.iter().map(|crd| crd.name()).collect();
    let mut refusals = Vec::new();
    for crd in present.iter().filter(|crd| goes(crd, wish, revisions) && !kept.contains(&*crd.name)) {
        let name = &crd.name;
        let Some(live) = live(&api, name).await? else { continue };
        let count = instances(client, &live).await.map_err(|problem| {
            Failure::new(
                Class::Transient,
                format!("the new version drops CRD {name:?}; counting its objects: {problem}"),
            )
        })?;
        if count > 0 {
            let (objects, they) = if count == 1 { ("object", "it") } else { ("objects", "them") };
            refusals.push(format!(
                "validating upgrade for CRD {name:?}: the new version drops it while {count} {objects} of it exist, \
                 and deleting the CRD deletes {they}"
            ));
        }
    }
    Ok(refusals)
}

async fn list(api: &Api<DynamicObject>, wish: &Wish) -> Result<Vec<OwnedCrd>, Failure> {
    let ours = format!(
        "{}={},{}={}",
        labels::OWNER_KIND,
        labels::OWNER_KIND_CLUSTER_EXTENSION,
        labels::OWNER_NAME,
        wish.name
    );
    let listed = api.list_metadata(&ListParams::default().labels(&ours)).await.map_err(|error| {
        Failure::new(Class::Transient, format!("listing the CRDs of the installed version: {error}"))
    })?;
    Ok(listed.items.iter().map(OwnedCrd::of).collect())
}

/// Whether what is known of the extension's CRDs is new enough: every wanted one is known to be in its hands already.
fn is_enough(
    known: &[OwnedCrd],
    wish: &Wish,
    wanted: &[&Object],
    revisions: &[Arc<ClusterObjectSet>],
) -> bool {
    let held = |wanted: &&Object| {
        known.iter().any(|crd| crd.name == wanted.name() && is_controlled(crd, wish, revisions))
    };
    !wanted.is_empty() && wanted.iter().all(held)
}

/// Whether one of the revisions controls the CRD.
///
/// What a Helm release brought is controlled by the extension until its first revision has taken it over.
fn is_controlled(crd: &OwnedCrd, wish: &Wish, revisions: &[Arc<ClusterObjectSet>]) -> bool {
    crd.controller.as_ref().is_some_and(|uid| {
        *uid == wish.uid || revisions.iter().any(|set| set.metadata.uid.as_ref() == Some(uid))
    })
}

/// Whether the CRD goes away with the revisions: one of them controls it, and nobody asked to keep it.
fn goes(crd: &OwnedCrd, wish: &Wish, revisions: &[Arc<ClusterObjectSet>]) -> bool {
    is_controlled(crd, wish, revisions) && !crd.stays_or_goes
}

/// How many objects of the kind exist. One request, whatever their number.
async fn instances(client: &Client, crd: &Object) -> Result<i64, String> {
    if !was_ever_served(crd) {
        return Ok(0);
    }
    let Some(version) = served_version(crd) else {
        return Err("none of its versions is served".to_owned());
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(crd, version));
    let page = api.list_metadata(&ListParams::default().limit(1)).await.map_err(|error| error.to_string())?;
    let listed = i64::try_from(page.items.len()).unwrap_or(i64::MAX);
    let more = page.metadata.continue_.is_some_and(|token| !token.is_empty());
    Ok(listed.saturating_add(page.metadata.remaining_item_count.unwrap_or(i64::from(more))))
}

/// Established is never taken back once it is true, and before that no object can be created.
fn was_ever_served(crd: &Object) -> bool {
    let conditions =
        crd.0.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    conditions.into_iter().flatten().any(|found| found["type"] == "Established" && found["status"] == "True")
}

fn served_version(crd: &Object) -> Option<&str> {
    let versions = crd.0.get("spec")?.get("versions")?.as_array()?;
    let served = |version: &&Value| version.get("served").and_then(Value::as_bool).unwrap_or(false);
    versions.iter().find(served)?.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_a_revision_controls_and_nobody_keeps_goes() {
        let revision = |uid: &str| {
            let mut set: ClusterObjectSet = serde_json::from_value(json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": "x-1"},
                "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent", "phases": []},
            }))
            .unwrap();
            set.metadata.uid = Some(uid.to_owned());
            Arc::new(set)
        };
        let extension = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "x", "uid": "e"},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
        }))
        .unwrap();
        let wish = crate::resolution::validate(&extension).unwrap();
        let owner = |uid: &str, controller: bool| json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "x-1", "uid": uid, "controller": controller}]);
        for (case, metadata, want) in [
            ("ours", json!({"ownerReferences": owner("u", true)}), true),
            ("still the extension's own", json!({"ownerReferences": owner("e", true)}), true),
            ("of another extension", json!({"ownerReferences": owner("other", true)}), false),
            ("not controlled", json!({"ownerReferences": owner("u", false)}), false),
            ("nobody's", json!({}), false),
            (
                "going already",
                json!({"ownerReferences": owner("u", true), "deletionTimestamp": "2020-01-01T00:00:00Z"}),
                false,
            ),
            (
                "to be kept",
                json!({"ownerReferences": owner("u", true), "annotations": {"olm.operatorframework.io/deletion-policy": "keep"}}),
                false,
            ),
        ] {
            let crd = OwnedCrd::of(&serde_json::from_value(json!({"metadata": metadata})).unwrap());
            assert_eq!(goes(&crd, &wish, &[revision("u")]), want, "{case}");
        }
        let crd = |name: &str, uid: &str| {
            let metadata = json!({"name": name, "ownerReferences": owner(uid, true)});
            OwnedCrd::of(&serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        let wanted = |name: &str| Object::from_value(json!({"metadata": {"name": name}})).unwrap();
        let (a, b) = (wanted("a"), wanted("b"));
        for (case, known, wanted, want) in [
            ("all are ours", vec![crd("a", "u"), crd("b", "u"), crd("c", "u")], vec![&a, &b], true),
            ("one is not seen", vec![crd("a", "u")], vec![&a, &b], false),
            ("one is another's", vec![crd("a", "u"), crd("b", "other")], vec![&a, &b], false),
            ("nothing to compare with", vec![crd("a", "u")], vec![], false),
        ] {
            assert_eq!(is_enough(&known, &wish, &wanted, &[revision("u")]), want, "{case}");
        }
    }

    #[test]
    fn a_crd_is_an_extensions_by_both_labels() {
        for (labels, want) in [
            (json!({(labels::OWNER_KIND): "ClusterExtension", (labels::OWNER_NAME): "e"}), Some("e")),
            (json!({(labels::OWNER_KIND): "Other", (labels::OWNER_NAME): "e"}), None),
            (json!({(labels::OWNER_NAME): "e"}), None),
            (json!({}), None),
        ] {
            let crd = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            assert_eq!(OwnedCrd::extension(&crd), want, "{labels}");
        }
    }

    #[test]
    fn a_crd_that_never_was_established_has_no_objects() {
        let crd = |status: serde_json::Value| {
            Object::from_value(json!({"status": status, "spec": {"versions": [
                {"name": "v1", "served": false}, {"name": "v2", "served": true}]}}))
            .unwrap()
        };
        let condition = |status| json!({"conditions": [{"type": "Established", "status": status}]});
        assert!(was_ever_served(&crd(condition("True"))));
        assert!(!was_ever_served(&crd(condition("False"))) && !was_ever_served(&crd(json!({}))));
        assert_eq!(served_version(&crd(json!({}))), Some("v2"));
    }
}
