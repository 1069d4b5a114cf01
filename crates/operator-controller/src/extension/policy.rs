//! The deletion policy of an extension, copied to its revisions when it changes.
//!
//! The teardown of a revision goes by the extension; the copy counts while the extension is absent. At a start nothing is written: the
//! first policy that a process observes counts as copied, so that revisions of an older version stay as they are.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt as _;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_install::resolution::revision;
use parking_lot::Mutex;

use super::writer::Writer;

/// Whether the objects of an extension are kept, as last copied, by UID of the extension.
#[derive(Debug, Default)]
pub struct Policies(Mutex<HashMap<String, bool>>);

impl Policies {
    /// Copies the policy to the active revisions if it has changed.
    ///
    /// # Errors
    /// When the apiserver refuses; it can be repeated.
    pub async fn copy(
        &self,
        extension: &ClusterExtension,
        revisions: &[Arc<ClusterObjectSet>],
        writer: &Writer,
    ) -> Result<(), kube::Error> {
        let uid = extension.uid().unwrap_or_default();
        let keep = annotations::keeps_objects(extension.annotations());
        let copied = self.0.lock().get(&uid).copied();
        if copied.is_some_and(|copied| copied != keep) {
            let active = revisions.iter().filter(|set| revision::is_active(set));
            for set in active.filter(|set| annotations::keeps_objects(set.annotations()) != keep) {
                writer.stamp_policy(set, keep).await?;
            }
        }
        self.0.lock().insert(uid, keep);
        Ok(())
    }

    /// Evicts all but the extensions with these UIDs.
    pub fn retain(&self, uids: &BTreeSet<String>) {
        self.0.lock().retain(|uid, _| uids.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kept::Kept;
    use crate::testing::Apiserver;

    #[tokio::test]
    async fn deletion_policy_is_copied_when_it_changes() {
        let keep = json!({(annotations::DELETION_POLICY): annotations::DELETION_POLICY_KEEP});
        let extension = |annotations: &Value| -> ClusterExtension {
            serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
                "metadata": {"name": "demo", "uid": "u1", "annotations": annotations},
                "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
            }))
            .unwrap()
        };
        let set = |number: i64, state: &str, annotations: &Value| {
            let set = serde_json::from_value::<ClusterObjectSet>(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
                "metadata": {"name": format!("demo-{number}"), "uid": "r", "annotations": annotations},
                "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
            }));
            Arc::new(set.unwrap())
        };
        let apiserver = Apiserver::new(|_, _| {
            (200, json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {}}))
        });
        let writer = Writer::new(apiserver.client(), "olmv1-system", Kept::default());
        let policies = Policies::default();
        let none = json!({});
        let plain = [set(1, "Archived", &none), set(2, "Active", &none)];
        // a start of the process: a revision of an older version stays as it is
        policies.copy(&extension(&keep), &plain, &writer).await.unwrap();
        assert_eq!(apiserver.requests(), Vec::<String>::new());
        policies.copy(&extension(&none), &plain, &writer).await.unwrap();
        assert_eq!(apiserver.requests(), Vec::<String>::new(), "it has none");
        policies.copy(&extension(&keep), &plain, &writer).await.unwrap();
        policies.copy(&extension(&keep), &plain, &writer).await.unwrap();
        policies.copy(&extension(&none), &[set(2, "Active", &keep)], &writer).await.unwrap();
        let requests = apiserver.requests();
        let [stamped, removed] = &requests[..] else { panic!("{requests:#?}") };
        assert!(stamped.starts_with("PATCH ") && stamped.contains("/demo-2?"), "{stamped}");
        assert!(stamped.contains(r#""olm.operatorframework.io/deletion-policy":"keep""#), "{stamped}");
        assert!(removed.contains(r#""olm.operatorframework.io/deletion-policy":null"#), "{removed}");
        policies.retain(&BTreeSet::new());
        assert!(policies.0.lock().is_empty());
    }
}
