//! All revisions, with those of each extension at hand: no pass walks through the others, and none is copied.

use std::ops::Deref;
use std::sync::Arc;

use olm_api::{ClusterObjectSet, labels};
use olm_runtime::watched::{Object, Objects};

/// The revisions of the cluster. Clones share them.
#[derive(Debug, Clone)]
pub struct Revisions(Objects<ClusterObjectSet>);

impl Default for Revisions {
    fn default() -> Self {
        Self(Objects::grouped_by(|set| set.label(labels::OWNER_NAME)))
    }
}

impl Deref for Revisions {
    type Target = Objects<ClusterObjectSet>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Revisions {
    /// The readable revisions that name this extension as theirs, whatever their state, ascending by number.
    #[must_use]
    pub fn of_extension(&self, extension: &str) -> Vec<Arc<ClusterObjectSet>> {
        let mut found: Vec<_> = self.read().group(extension).filter_map(Object::ok).cloned().collect();
        found.sort_by_key(|set| set.spec.revision);
        found
    }

    /// The names of the revisions that name this extension as theirs.
    #[must_use]
    pub(crate) fn names_of_extension(&self, extension: &str) -> Vec<String> {
        self.read().group(extension).map(Object::name).collect()
    }

    /// Whether some revision has this UID.
    #[must_use]
    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        self.read().rows().values().any(|set| set.meta().uid.as_deref() == Some(uid))
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::testing::{assert_panic_exits, panics_at};

    #[test]
    fn revisions_are_found_by_the_extension_that_they_name() {
        let revisions = Revisions::default();
        for (name, number, extension) in [("a-2", 2, "a"), ("a-1", 1, "a"), ("free", 1, "")] {
            let set = serde_json::from_value(json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
                "metadata": {"name": name, "uid": name, "labels": {(labels::OWNER_NAME): extension}},
                "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"},
            }))
            .unwrap();
            revisions.apply(Event::Apply(Object::new(set)), |set| (set.name(), set));
        }
        let numbers: Vec<i64> = revisions.of_extension("a").iter().map(|set| set.spec.revision).collect();
        assert_eq!((numbers, revisions.names_of_extension("a").len()), (vec![1, 2], 2));
        assert!(
            revisions.of_extension("").is_empty() && revisions.has_uid("free") && !revisions.has_uid("b-1")
        );
    }

    #[test]
    fn revision_watch_panic_exits() {
        let task = "watch of clusterobjectsets";
        assert_panic_exits(module_path!(), "revision_watch_panic_exits", task, async || {
            let revisions = Revisions::default();
            let watch = revisions.watch(&panics_at("/clusterobjectsets"));
            (revisions, watch)
        });
    }
}
