//! All revisions, with those of each extension at hand: no pass walks through the others, and none is copied.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use olm_api::{ClusterObjectSet, labels};
use parking_lot::RwLock;

use crate::watch::{Cache, Stored, Watch};

/// The revisions of the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Revisions {
    /// The cache.
    pub store: Cache<ClusterObjectSet>,
    index: Arc<RwLock<Index>>,
}

impl Revisions {
    /// The revisions that `watch` is going to see.
    pub fn of_watch(watch: &mut Watch<ClusterObjectSet>) -> Self {
        let index: Arc<RwLock<Index>> = Arc::default();
        let (filled, mut listing) = (Arc::clone(&index), Index::default());
        watch.observe(move |event| {
            let mut index = filled.write();
            match event {
                Event::Init => listing = Index::default(),
                Event::InitApply(set) => listing.put(set),
                Event::InitDone => *index = std::mem::take(&mut listing),
                Event::Apply(set) => index.put(set),
                Event::Delete(set) => index.remove(&set.name_any()),
            }
        });
        Self { store: watch.store.clone(), index }
    }

    /// The readable revisions that name this extension as theirs, whatever their state, ascending by number.
    #[must_use]
    pub fn of(&self, extension: &str) -> Vec<Arc<ClusterObjectSet>> {
        let index = self.index.read();
        let mut found = index.by_extension.get(extension).cloned().unwrap_or_default();
        found.sort_by_key(|set| set.spec.revision);
        found
    }

    /// Whether a readable revision of some extension has this UID.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        let index = self.index.read();
        index.by_extension.values().flatten().any(|set| set.metadata.uid.as_deref() == Some(uid))
    }
}

#[derive(Default)]
struct Index {
    by_extension: HashMap<String, Vec<Arc<ClusterObjectSet>>>,
    /// Extension by the revision's name.
    extensions: HashMap<String, String>,
}

impl Index {
    fn put(&mut self, stored: &Stored<ClusterObjectSet>) {
        let name = stored.name_any();
        self.remove(&name);
        let extension = stored.labels().get(labels::OWNER_NAME).filter(|extension| !extension.is_empty());
        if let (Ok(set), Some(extension)) = (&stored.0, extension) {
            self.by_extension.entry(extension.clone()).or_default().push(Arc::clone(set));
            self.extensions.insert(name, extension.clone());
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(extension) = self.extensions.remove(name) else { return };
        if let Some(all) = self.by_extension.get_mut(&extension) {
            all.retain(|set| set.metadata.name.as_deref() != Some(name));
            if all.is_empty() {
                self.by_extension.remove(&extension);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(name: &str, number: i64, extension: Option<&str>) -> Stored<ClusterObjectSet> {
        let labels = extension.map_or(json!({}), |extension| json!({(labels::OWNER_NAME): extension}));
        let object = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_revision_is_found_under_the_extension_it_names_now() {
        let mut index = Index::default();
        let names = |index: &Index, extension: &str| -> Vec<String> {
            let found = index.by_extension.get(extension).into_iter().flatten();
            found.map(|set| format!("{} {}", set.name_any(), set.spec.revision)).collect()
        };
        index.put(&stored("a-2", 2, Some("a")));
        index.put(&stored("a-1", 1, Some("a")));
        index.put(&stored("free", 1, None));
        index.put(&stored("empty", 1, Some("")));
        assert_eq!(names(&index, "a"), ["a-2 2", "a-1 1"]);
        index.put(&stored("a-2", 7, Some("a")));
        assert_eq!(names(&index, "a"), ["a-1 1", "a-2 7"]);
        index.put(&stored("a-2", 7, Some("b")));
        assert_eq!((names(&index, "a"), names(&index, "b")), (vec!["a-1 1".into()], vec!["a-2 7".into()]));
        index.remove("a-2");
        index.remove("free");
        index.remove("unknown");
        assert!(names(&index, "b").is_empty() && !index.by_extension.contains_key("b"));
        assert_eq!(index.extensions.len(), 1);
    }
}
