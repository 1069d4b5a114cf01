//! Deleting a ClusterExtension: its revisions go first, each tearing down its objects in order; then the finalizers.
//!
//! The teardown itself is the revisions' finalizer (decision 11). With `kubectl delete --cascade=orphan` nothing is
//! deleted: the garbage collector takes our owner reference off the revisions, and they are no longer ours.
//!
//! The watches of extensions and of revisions have no common order. So a revision is deleted only in the state that was judged, and a
//! live list decides that none is left.

use std::collections::HashSet;
use std::sync::Arc;

use kube::api::{DeleteParams, ListParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, condition, finalizers, labels};
use olm_bundle::CertProvider;
use olm_install::issuer;
use olm_install::resolution::{UpgradeUpdate, revision};
use olm_rollout::status::Obstacle;
use olm_runtime::apply;
use olm_runtime::controller::Requeue;

use super::context::Context;
use super::report::{ReconcileError, patch_finalizers, report};
use super::result::{PassResult, Progress, Trace};
use super::writer::is_not_found;
use crate::certificates;

/// The garbage collector's finalizer for orphaning deletion.
const ORPHAN: &str = "orphan";

/// One pass over an extension that is being deleted.
///
/// # Errors
/// When the apiserver refuses.
pub async fn uninstall(
    extension: &ClusterExtension,
    revisions: &[Arc<ClusterObjectSet>],
    context: &Context,
) -> Result<Requeue, ReconcileError> {
    let ours = [finalizers::CLEANUP_UNPACK_CACHE, finalizers::CLEANUP_CONTENT_MANAGER_CACHE];
    let present = extension.finalizers();
    if !present.iter().any(|found| ours.contains(&found.as_str())) {
        return Ok(Requeue::OnChange);
    }
    let (name, uid) = (extension.name_any(), extension.uid().unwrap_or_default());
    let orphaning = present.iter().any(|found| found == ORPHAN);
    let mut others = HashSet::new();
    if !orphaning {
        let left = delete_revisions(&context.client, &name, &uid, revisions).await;
        let left = left.map_err(ReconcileError::Uninstall)?;
        if !left.owned.is_empty() {
            let (message, obstacle) = waiting(&name, left.owned, revisions);
            let states = revision::states(revisions.iter().map(AsRef::as_ref));
            let progress = Progress::Uninstalling { message, obstacle };
            let result =
                PassResult { upgrade: UpgradeUpdate::NONE, ..PassResult::unchanged(states, progress) };
            let held = report(extension, &result, Trace::default(), context).await?;
            return Ok(Requeue::Unfinished.within(held));
        }
        others = left.others;
    }
    if annotations::keeps_objects(extension.annotations()) {
        // its pods keep serving with them
        certificates::leave_behind(&context.client, &name, &uid).await.map_err(ReconcileError::Uninstall)?;
    } else if !orphaning
        && issuer::recorded(extension) == Some(CertProvider::BuiltIn)
        && let Err(error) = certificates::take_away(&context.client, &name, &uid).await
    {
        tracing::warn!(extension = name, %error, "certificates are left to the garbage collector");
    }
    // a Secret whose revision was never created has no owner: nothing else deletes it
    if !orphaning && let Err(error) = context.writer.sweep(&name, &others).await {
        if !is_forbidden(&error) {
            return Err(ReconcileError::Uninstall(error));
        }
        tracing::warn!(extension = name, %error, "Secrets of revisions that are gone are left");
    }
    let rest: Vec<String> = present.iter().filter(|found| !ours.contains(&found.as_str())).cloned().collect();
    patch_finalizers(extension, &rest, context).await?;
    Ok(Requeue::OnChange)
}

/// Whether another try is of no use without another right.
fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The revisions that bear the name of an extension, as the apiserver has them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remaining {
    /// Names of those that the extension owns: they are torn down first.
    owned: Vec<String>,
    /// Names of the others, orphaned ones for example: they stay, with their Secrets.
    others: HashSet<String>,
}

/// Deletes the revisions that the extension owns, and returns what remains.
///
/// First those that `cached` shows, exactly as it shows them: by the precondition on the resourceVersion the apiserver rejects the
/// deletion of one whose owner the garbage collector took off since. If there are none, or one has changed, they are listed live:
/// the cache may also lack a revision that was just created.
///
/// # Errors
/// When the apiserver refuses, a conflict with the list included: the next pass lists again.
async fn delete_revisions(
    client: &Client,
    extension: &str,
    uid: &str,
    cached: &[Arc<ClusterObjectSet>],
) -> Result<Remaining, kube::Error> {
    let api: Api<ClusterObjectSet> = Api::all(client.clone());
    let mut is_current = !cached.is_empty();
    for set in cached {
        is_current &= delete(&api, &set.metadata).await?.is_none();
    }
    if is_current {
        let owned = cached.iter().map(|set| set.name_any()).collect();
        return Ok(Remaining { owned, others: HashSet::new() });
    }
    let labelled = ListParams::default().labels(&format!("{}={extension}", labels::OWNER_NAME));
    let live = match api.list_metadata(&labelled).await {
        Ok(live) => live.items,
        // the CRD is gone, and all revisions with it
        Err(error) if is_not_found(&error) => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut remaining = Remaining::default();
    let mut conflict = None;
    for set in live {
        if !set.owner_references().iter().any(|owner| owner.uid == uid) {
            remaining.others.insert(set.name_any());
            continue;
        }
        if let Some(error) = delete(&api, &set.metadata).await? {
            conflict = Some(error);
        }
        remaining.owned.push(set.name_any());
    }
    conflict.map_or(Ok(remaining), Err)
}

/// Deletes a revision in exactly this state, unless it is being deleted already; returns the conflict if it is in another state.
async fn delete(api: &Api<ClusterObjectSet>, metadata: &ObjectMeta) -> kube::Result<Option<kube::Error>> {
    if metadata.deletion_timestamp.is_some() {
        return Ok(None);
    }
    apply::delete(api, metadata, DeleteParams::background()).await
}

/// The revisions that are still there, and what keeps the one from going that is being torn down: the newest that reports something.
/// Before that, their conditions are those of the last rollout.
fn waiting(
    extension: &str,
    mut names: Vec<String>,
    revisions: &[Arc<ClusterObjectSet>],
) -> (String, Option<Obstacle>) {
    // by number, whichever list they come from
    names.sort_by_key(|name| (name.len(), name.clone()));
    let noun = if names.len() == 1 { "revision" } else { "revisions" };
    let names = names.join(", ");
    let deleted = revisions.iter().rev().filter(|set| set.metadata.deletion_timestamp.is_some());
    let obstacle = deleted
        .filter_map(|set| condition::find(&set.status.as_ref()?.conditions, condition::PROGRESSING))
        .find_map(|found| Obstacle::read(&found.message));
    let message = match &obstacle {
        Some(found) => {
            let is_forbidden = found.text.contains("is forbidden: ");
            let remedy =
                is_forbidden.then(|| format!("; run `kubectl olm rbac {extension} | kubectl apply -f -`"));
            format!("uninstalling: {} ({noun} {names}){}", found.text, remedy.unwrap_or_default())
        }
        None => format!("uninstalling: waiting for {noun} {names} to be torn down"),
    };
    (message, obstacle)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Apiserver, failure};

    const URI: &str = "/apis/olm.operatorframework.io/v1/clusterobjectsets";

    /// Revision `demo-1`, changed by `metadata`.
    fn set(metadata: Value) -> Value {
        let mut set = json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
            "metadata": {"name": "demo-1", "uid": "r1", "resourceVersion": "7", "ownerReferences": [
                {"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "demo", "uid": "u1", "controller": true}]},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        });
        set["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        set
    }

    /// What `delete_revisions` comes to, and the requests that change something.
    async fn deleted(cached: &[Value], live: &[Value], code: u16) -> (Result<Remaining, u16>, Vec<String>) {
        let list = json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": live});
        let version = |sets: &[Value]| sets.first().map(|set| set["metadata"]["resourceVersion"].clone());
        let is_stale = !cached.is_empty() && version(cached) != version(live);
        let apiserver = Apiserver::new(move |method, uri| {
            if method == "GET" && uri.starts_with(&format!("{URI}?")) {
                (200, list.clone())
            } else {
                // the resourceVersion that the apiserver has is that of the list
                let (code, reason) = (if is_stale { 409 } else { code }, "Test");
                failure(code, reason)
            }
        });
        let cached: Vec<_> =
            cached.iter().map(|set| Arc::new(serde_json::from_value(set.clone()).unwrap())).collect();
        let found = delete_revisions(&apiserver.client(), "demo", "u1", &cached).await;
        let found = found.map_err(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("{other}"),
        });
        (found, apiserver.requests().into_iter().filter(|request| !request.starts_with("GET ")).collect())
    }

    fn owned(names: &[&str]) -> Result<Remaining, u16> {
        let owned = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(Remaining { owned, others: HashSet::new() })
    }

    #[tokio::test]
    async fn uninstall_leaves_orphaned_revision_alone() {
        // orphaned, or owned by an earlier extension of that name
        let earlier = json!([{"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "demo", "uid": "u0"}]);
        for owners in [json!([]), earlier] {
            let orphaned = set(json!({"ownerReferences": owners, "resourceVersion": "8"}));
            let (found, writes) = deleted(&[set(json!({}))], &[orphaned], 200).await;
            // the cache still shows the owner: the precondition prevents the deletion
            let [delete] = &writes[..] else { panic!("{writes:?}") };
            assert!(delete.contains(r#""preconditions":{"resourceVersion":"7","uid":"r1"}"#), "{delete}");
            assert_eq!(found, Ok(Remaining { owned: vec![], others: HashSet::from(["demo-1".to_owned()]) }));
        }
    }

    #[tokio::test]
    async fn uninstall_finds_revision_that_cache_lacks() {
        let (found, writes) = deleted(&[], &[set(json!({}))], 200).await;
        assert_eq!(found, owned(&["demo-1"]), "the extension must not go before it");
        assert_eq!(writes.len(), 1);
    }

    #[tokio::test]
    async fn uninstall_deletes_exactly_what_was_judged() {
        for cached in [vec![set(json!({}))], vec![]] {
            let (found, writes) = deleted(&cached, &[set(json!({}))], 200).await;
            assert_eq!(found, owned(&["demo-1"]));
            let [delete] = &writes[..] else { panic!("{writes:?}") };
            assert!(delete.starts_with(&format!("DELETE {URI}/demo-1")), "{delete}");
            assert!(delete.contains(r#""preconditions":{"resourceVersion":"7","uid":"r1"}"#), "{delete}");
        }
        // changed since: the next pass judges it again
        assert_eq!(deleted(&[], &[set(json!({}))], 409).await.0, Err(409));
        assert!(
            ReconcileError::Uninstall(kube::Error::Api(Box::new(kube::core::Status {
                code: 409,
                ..Default::default()
            })))
            .is_conflict()
        );
        // gone since
        assert_eq!(deleted(&[set(json!({}))], &[set(json!({}))], 404).await.0, owned(&["demo-1"]));
    }

    #[tokio::test]
    async fn uninstall_waits_without_requests_for_teardown() {
        let terminating = set(json!({"deletionTimestamp": "2030-01-01T00:00:00Z"}));
        let (found, writes) = deleted(&[terminating], &[], 500).await;
        assert_eq!((found, writes), (owned(&["demo-1"]), vec![]));
    }

    #[test]
    fn uninstall_message_names_revisions_by_number() {
        let names = ["demo-10", "demo-2"].map(str::to_owned).to_vec();
        assert_eq!(
            waiting("demo", names, &[]).0,
            "uninstalling: waiting for revisions demo-2, demo-10 to be torn down"
        );
    }

    #[test]
    fn uninstall_message_names_the_obstacle() {
        let deleted = |message: &str| {
            let mut found = set(json!({"deletionTimestamp": "2030-01-01T00:00:00Z"}));
            found["status"] = json!({"conditions": [{"type": "Progressing", "status": "True", "reason": "Retrying",
                "message": message, "lastTransitionTime": "2030-01-01T00:00:00Z"}]});
            Arc::new(serde_json::from_value(found).unwrap())
        };
        for (message, want) in [
            ("Revision 1.0.0 has rolled out.", "uninstalling: waiting for revision demo-1 to be torn down"),
            (
                "removing revision resources that are not owned by another revision; custom resources are protected and must be \
                 deleted first: 3 greetings.example.com",
                "uninstalling: custom resources are protected and must be deleted first: 3 greetings.example.com (revision demo-1)",
            ),
            (
                "error removing revision: teardown x: x is forbidden: User \"u\" cannot delete",
                "uninstalling: teardown x: x is forbidden: User \"u\" cannot delete (revision demo-1); \
                 run `kubectl olm rbac demo | kubectl apply -f -`",
            ),
        ] {
            let found = waiting("demo", vec!["demo-1".to_owned()], &[deleted(message)]).0;
            assert_eq!(found, want);
        }
    }
}
