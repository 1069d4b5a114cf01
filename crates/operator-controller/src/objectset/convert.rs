//! From the API's types to those of the pure engine.

use kube::ResourceExt;
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::{ClusterObjectSet, labels};
use olm_install::resolution::revision::{has_succeeded, is_active};
use olm_rollout::{Protection, Revision, RevisionFacts, Sibling};

/// The revision as the engine names it.
pub(super) fn own_revision(revision: &ClusterObjectSet) -> Revision {
    Revision {
        api_version: olm_api::API_VERSION.to_owned(),
        kind: "ClusterObjectSet".to_owned(),
        name: revision.name_any(),
        uid: revision.uid().unwrap_or_default(),
        number: revision.spec.revision,
        extension: extension(revision).map(str::to_owned),
    }
}

/// The extension that a revision names as its owner.
pub(super) fn extension(revision: &ClusterObjectSet) -> Option<&str> {
    revision.labels().get(labels::OWNER_NAME).map(String::as_str).filter(|name| !name.is_empty())
}

/// Name and UID of the ClusterExtension that owns a revision. Its label proves nothing: another extension may have that name by now.
pub(super) fn owner(revision: &ClusterObjectSet) -> Option<(&str, &str)> {
    let owner = revision.owner_references().iter().find(|owner| {
        owner.kind == labels::OWNER_KIND_CLUSTER_EXTENSION && owner.api_version == olm_api::API_VERSION
    });
    owner.map(|owner| (owner.name.as_str(), owner.uid.as_str()))
}

/// UID of the controlling owner.
fn parent(revision: &ClusterObjectSet) -> Option<&str> {
    let owners = revision.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// Do both belong to the same extension: the same name, and not to different parents (an orphaned one has none)?
pub(super) fn are_siblings(a: &ClusterObjectSet, b: &ClusterObjectSet) -> bool {
    let same_name = extension(a).is_some() && extension(a) == extension(b);
    let same_parent = match (parent(a), parent(b)) {
        (Some(a), Some(b)) => a == b,
        (None, _) | (_, None) => true,
    };
    same_name && same_parent && a.uid() != b.uid()
}

/// A sibling as the decision table sees it.
pub(super) fn sibling(revision: &ClusterObjectSet) -> Sibling {
    Sibling {
        uid: revision.uid().unwrap_or_default(),
        number: revision.spec.revision,
        retired: !is_active(revision),
    }
}

/// A sibling as the history sees it.
pub(super) fn facts(revision: &ClusterObjectSet) -> RevisionFacts {
    RevisionFacts {
        name: revision.name_any(),
        number: revision.spec.revision,
        archived: !is_active(revision),
        succeeded: has_succeeded(revision),
    }
}

/// The words of collision protection.
pub(super) fn protection(protection: CollisionProtection) -> Protection {
    match protection {
        CollisionProtection::Prevent => Protection::Prevent,
        CollisionProtection::IfNoController => Protection::IfNoController,
        CollisionProtection::None => Protection::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_api::{annotations, field_managers, secret_types};
    use olm_rollout::keys;
    use serde_json::json;

    /// The pure engine has its own copy of the words; they must be those of the API.
    #[test]
    fn words_are_the_same_on_both_sides() {
        for (engine, api) in [
            (keys::OWNER_KIND, labels::OWNER_KIND),
            (keys::OWNER_KIND_VALUE, labels::OWNER_KIND_CLUSTER_EXTENSION),
            (keys::OWNER_NAME, labels::OWNER_NAME),
            (keys::REVISION_NAME, labels::REVISION_NAME),
            (keys::MANAGED_BY, labels::MANAGED_BY),
            (keys::MANAGED_BY_VALUE, labels::MANAGED_BY_OLM),
            (keys::REVISION, annotations::REVISION),
            (keys::BUNDLE_VERSION, annotations::BUNDLE_VERSION),
            (keys::PACKAGE_NAME, annotations::PACKAGE_NAME),
            (keys::DELETION_POLICY, annotations::DELETION_POLICY),
            (keys::DELETION_POLICY_KEEP, annotations::DELETION_POLICY_KEEP),
            (keys::FIELD_MANAGER, field_managers::OBJECTS),
            (keys::OBJECT_DATA, secret_types::OBJECT_DATA),
            (keys::HELM_RELEASE_NAME, annotations::HELM_RELEASE_NAME),
        ] {
            assert_eq!(engine, api);
        }
    }

    fn revision(name: &str, label: Option<&str>, parent: Option<&str>) -> ClusterObjectSet {
        let owners: Vec<_> = parent
            .iter()
            .map(|uid| json!({"apiVersion": "v1", "kind": "ClusterExtension", "name": "e", "uid": uid, "controller": true}))
            .collect();
        let labels = label.map(|name| json!({(labels::OWNER_NAME): name})).unwrap_or(json!({}));
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": name, "uid": name, "labels": labels, "ownerReferences": owners},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        }))
        .unwrap()
    }

    #[test]
    fn siblings_share_name_and_parent() {
        for (a, b, want) in [
            ((Some("e"), Some("1")), (Some("e"), Some("1")), true),
            ((Some("e"), Some("1")), (Some("e"), Some("2")), false),
            ((Some("e"), Some("1")), (Some("e"), None), true),
            ((Some("e"), Some("1")), (Some("f"), Some("1")), false),
            ((None, Some("1")), (None, Some("1")), false),
            ((Some(""), None), (Some(""), None), false),
        ] {
            assert_eq!(are_siblings(&revision("a", a.0, a.1), &revision("b", b.0, b.1)), want, "{a:?} {b:?}");
        }
        let a = revision("a", Some("e"), None);
        assert!(!are_siblings(&a, &a));
    }
}
