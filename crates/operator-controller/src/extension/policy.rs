//! The deletion policy of an extension, copied to its revisions when it changes.
//!
//! The teardown of a revision goes by the extension; the copy counts while the extension is absent. At a start nothing is written: the
//! first policy that a process observes counts as copied, so that revisions of an older version stay as they are.

use std::sync::Arc;

use kube::ResourceExt as _;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_install::resolution::revision;

use super::context::Context;
use super::writer::RevisionWriter;

/// Copies the policy to the active revisions if it has changed since the last pass.
///
/// # Errors
/// When the apiserver refuses; it can be repeated.
pub async fn sync(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<(), kube::Error> {
    let (name, uid) = (extension.name_any(), extension.uid().unwrap_or_default());
    let copied = context.states.update(&name, &uid, |state| state.keeps_objects);
    let keep = stamp(copied, extension, revisions, &context.writer).await?;
    context.states.update(&name, &uid, |state| state.keeps_objects = Some(keep));
    Ok(())
}

/// Writes the policy on the active revisions if it is not the one that was `copied` last. Returns it.
async fn stamp(
    copied: Option<bool>,
    extension: &ClusterExtension,
    revisions: &[Arc<ClusterObjectSet>],
    writer: &RevisionWriter,
) -> Result<bool, kube::Error> {
    let keep = annotations::keeps_objects(extension.annotations());
    if copied.is_some_and(|copied| copied != keep) {
        let active = revisions.iter().filter(|set| revision::is_active(set));
        for set in active.filter(|set| annotations::keeps_objects(set.annotations()) != keep) {
            writer.stamp_policy(set, keep).await?;
        }
    }
    Ok(keep)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::secret_cache::SecretCache;
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
        let writer = RevisionWriter::new(apiserver.client(), "olmv1-system", SecretCache::default());
        let mut copied = None;
        let mut copy = async |extension: &ClusterExtension, revisions: &[Arc<ClusterObjectSet>]| {
            copied = Some(stamp(copied, extension, revisions, &writer).await.unwrap());
        };
        let none = json!({});
        let plain = [set(1, "Archived", &none), set(2, "Active", &none)];
        // a start of the process: a revision of an older version stays as it is
        copy(&extension(&keep), &plain).await;
        assert_eq!(apiserver.requests(), Vec::<String>::new());
        copy(&extension(&none), &plain).await;
        assert_eq!(apiserver.requests(), Vec::<String>::new(), "it has none");
        copy(&extension(&keep), &plain).await;
        copy(&extension(&keep), &plain).await;
        copy(&extension(&none), &[set(2, "Active", &keep)]).await;
        let requests = apiserver.requests();
        let [stamped, removed] = &requests[..] else { panic!("{requests:#?}") };
        assert!(stamped.starts_with("PATCH ") && stamped.contains("/demo-2?"), "{stamped}");
        assert!(stamped.contains(r#""olm.operatorframework.io/deletion-policy":"keep""#), "{stamped}");
        assert!(removed.contains(r#""olm.operatorframework.io/deletion-policy":null"#), "{removed}");
    }
}
