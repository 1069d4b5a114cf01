//! What the engine must know of ClusterExtensions: their annotations and whether they are being deleted.
//!
//! Rule: decision 11 (deletion policies), pause.

use std::collections::HashMap;

use futures::{Stream, StreamExt};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use olm_api::{ClusterExtension, annotations};

use crate::watch::{Cache, Change, Changes, Stored};

/// What counts of an extension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Facts {
    /// Nothing of it shall be changed for the time being.
    pub(super) paused: bool,
    /// Its objects stay when it is deleted.
    pub(super) keep: bool,
    /// It must not be removed while custom resources exist.
    pub(super) protect: bool,
    /// It is there and nobody deleted it.
    pub(super) stays: bool,
}

/// The facts of all extensions.
pub(super) struct Extensions(pub(super) Cache<ClusterExtension>);

impl Extensions {
    /// The facts of an extension; all off when there is no such extension (any more).
    pub(super) fn facts(&self, name: &str) -> Facts {
        self.0.get(&ObjectRef::new(name)).map(|extension| digest(&extension)).unwrap_or_default()
    }

    /// Waits for the first listing.
    pub(super) async fn synced(&self) {
        // an error means that the process ends
        let _ = self.0.wait_until_ready().await;
    }
}

/// Names of extensions whose facts changed since they were first seen, or that are gone.
pub(super) fn changed(changes: Changes<ClusterExtension>) -> impl Stream<Item = String> + Send {
    let mut known: HashMap<String, Facts> = HashMap::new();
    changes.filter_map(move |Change { object, gone }| {
        let name = object.name_any();
        let changed = if gone {
            known.remove(&name);
            true
        } else {
            let now = digest(&object);
            known.insert(name.clone(), now.clone()).is_some_and(|before| before != now)
        };
        std::future::ready(changed.then_some(name))
    })
}

fn digest(extension: &Stored<ClusterExtension>) -> Facts {
    let annotation = |key: &str| extension.annotations().get(key).map(String::as_str);
    Facts {
        paused: annotation(annotations::PAUSED) == Some("true"),
        keep: annotation(annotations::DELETION_POLICY) == Some(annotations::DELETION_POLICY_KEEP),
        protect: annotation(annotations::PROTECT_CUSTOM_RESOURCES) == Some("true"),
        stays: extension.meta().deletion_timestamp.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn only_changed_facts_are_told() {
        let change = |name: &str, annotations: serde_json::Value, gone| {
            let object = json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"namespace": "a", "source": {"sourceType": "Catalog", "catalog": {"packageName": "a"}}},
            });
            Change { object: serde_json::from_value(object).unwrap(), gone }
        };
        let paused = json!({(annotations::PAUSED): "true"});
        let all = [
            change("a", json!({}), false),
            change("b", paused.clone(), false),
            change("a", json!({"other": "x"}), false),
            change("a", paused.clone(), false),
            change("a", paused, false),
            change("b", json!({}), true),
        ];
        let told: Vec<String> = changed(futures::stream::iter(all).boxed()).collect().await;
        assert_eq!(told, ["a", "b"]);
    }
}
