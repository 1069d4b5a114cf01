//! Reading ClusterObjectSets as the extension controller sees them: whose they are, which bundle, how far.

use std::collections::BTreeMap;

use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterObjectSet, annotations};

use super::attempt::{BundleFacts, RevisionFacts, RevisionStates};

/// Facts of one revision.
#[must_use]
pub fn facts(revision: &ClusterObjectSet) -> RevisionFacts {
    RevisionFacts {
        name: revision.metadata.name.clone().unwrap_or_default(),
        number: revision.spec.revision,
        bundle: bundle(revision.metadata.annotations.as_ref()),
        conditions: revision.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default(),
    }
}

/// Whether the revision still counts: neither archived nor being deleted.
#[must_use]
pub fn is_active(revision: &ClusterObjectSet) -> bool {
    revision.spec.lifecycle_state == LifecycleState::Active && revision.metadata.deletion_timestamp.is_none()
}

/// Whether the extension with this UID owns the revision (GC orphaning and foreign objects with our label do not count).
#[must_use]
pub fn is_owned_by(revision: &ClusterObjectSet, uid: &str) -> bool {
    revision.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// Installed and rolling revisions among all revisions of one extension.
#[must_use]
pub fn states<'a>(revisions: impl IntoIterator<Item = &'a ClusterObjectSet>) -> RevisionStates {
    RevisionStates::split(revisions.into_iter().filter(|revision| is_active(revision)).map(facts).collect())
}

fn bundle(found: Option<&BTreeMap<String, String>>) -> BundleFacts {
    let text = |key: &str| found.and_then(|all| all.get(key)).cloned();
    BundleFacts {
        name: text(annotations::BUNDLE_NAME).unwrap_or_default(),
        package: text(annotations::PACKAGE_NAME).unwrap_or_default(),
        version: text(annotations::BUNDLE_VERSION).unwrap_or_default(),
        release: text(annotations::BUNDLE_RELEASE),
        reference: text(annotations::BUNDLE_REFERENCE).unwrap_or_default(),
    }
}
