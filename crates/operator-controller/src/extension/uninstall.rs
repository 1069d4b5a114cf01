//! Deleting a ClusterExtension: its revisions go first, each tearing down its objects in order; then the finalizers.
//!
//! The teardown itself is the revisions' finalizer (decision 11). With `kubectl delete --cascade=orphan` nothing is
//! deleted: the garbage collector takes our owner reference off the revisions, and they are no longer ours.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Preconditions};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};
use olm_api::cluster_extension::WebhookCertificateProvider;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, condition, finalizers};
use olm_client::resolution::{Learnt, revision};

use super::attempt::{Attempt, Progress, Story};
use super::report::{ReconcileError, patch_finalizers, report};
use super::shell::Shell;
use super::writer::{is_conflict, is_not_found};
use crate::certificates;

/// The garbage collector's finalizer for orphaning deletion.
const ORPHAN: &str = "orphan";
/// Revisions wake us when they go; this is only the net below.
const CHECK: Duration = Duration::from_secs(60);

/// One pass over an extension that is being deleted.
///
/// # Errors
/// When the apiserver refuses.
pub async fn uninstall(
    extension: &ClusterExtension,
    revisions: &[Arc<ClusterObjectSet>],
    shell: &Shell,
) -> Result<Action, ReconcileError> {
    let ours = [finalizers::CLEANUP_UNPACK_CACHE, finalizers::CLEANUP_CONTENT_MANAGER_CACHE];
    let present = extension.finalizers();
    if !present.iter().any(|found| ours.contains(&found.as_str())) {
        return Ok(Action::await_change());
    }
    let orphaning = present.iter().any(|found| found == ORPHAN);
    if !orphaning && !revisions.is_empty() {
        delete_revisions(revisions, shell).await?;
        let attempt = Attempt {
            revisions: revision::states(revisions.iter().map(AsRef::as_ref)),
            deprecations: Learnt::Nothing,
            progress: Progress::Uninstalling { message: waiting(revisions) },
            unread: false,
        };
        report(extension, &attempt, Story::default(), shell).await?;
        return Ok(Action::requeue(CHECK));
    }
    if let Some(uid) = extension.uid() {
        shell.forget(&extension.name_any(), &uid);
    }
    if keeps_objects(extension) {
        // its pods go on to serve with them
        let uid = extension.uid().unwrap_or_default();
        certificates::leave_behind(&shell.client, &extension.name_any(), &uid)
            .await
            .map_err(ReconcileError::Uninstall)?;
    } else if !orphaning && has_certificates(extension) {
        let (name, uid) = (extension.name_any(), extension.uid().unwrap_or_default());
        if let Err(error) = certificates::take_away(&shell.client, &name, &uid).await {
            tracing::warn!(extension = name, %error, "certificates are left to the garbage collector");
        }
    }
    if !orphaning {
        let uids = shell.revisions.store.state().iter().filter_map(|set| set.uid()).collect();
        if let Err(error) = shell.writer.sweep(&extension.name_any(), &uids).await {
            tracing::warn!(extension = extension.name_any(), %error, "Secrets are left to the garbage collector");
        }
    }
    let rest: Vec<String> = present.iter().filter(|found| !ours.contains(&found.as_str())).cloned().collect();
    patch_finalizers(extension, &rest, shell).await?;
    Ok(Action::await_change())
}

fn has_certificates(extension: &ClusterExtension) -> bool {
    let chosen = extension.status.as_ref().and_then(|status| status.webhook_certificates.as_ref());
    chosen.is_some_and(|chosen| chosen.provider == WebhookCertificateProvider::BuiltIn)
}

fn keeps_objects(extension: &ClusterExtension) -> bool {
    extension.annotations().get(annotations::DELETION_POLICY).map(String::as_str)
        == Some(annotations::DELETION_POLICY_KEEP)
}

async fn delete_revisions(revisions: &[Arc<ClusterObjectSet>], shell: &Shell) -> Result<(), ReconcileError> {
    let api: Api<ClusterObjectSet> = Api::all(shell.client.clone());
    for set in revisions.iter().filter(|set| set.metadata.deletion_timestamp.is_none()) {
        let same = Preconditions { uid: set.uid(), resource_version: None };
        match api.delete(&set.name_any(), &DeleteParams::background().preconditions(same)).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => {
                return Err(ReconcileError::Uninstall(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Which revisions are still there, with what the newest of them says.
fn waiting(revisions: &[Arc<ClusterObjectSet>]) -> String {
    let names: Vec<String> = revisions.iter().map(|set| set.name_any()).collect();
    let said = revisions
        .iter()
        .rev()
        .find_map(|set| condition::find(&set.status.as_ref()?.conditions, condition::PROGRESSING))
        .map(|found| format!(": {}", found.message))
        .unwrap_or_default();
    format!("uninstalling: waiting for revisions {} to be torn down{said}", names.join(", "))
}
