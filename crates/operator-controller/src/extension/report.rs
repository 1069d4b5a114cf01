//! What a pass leaves on the extension itself: finalizers, one status, and the events that tell what is new.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use olm_api::ClusterExtension;
use olm_runtime::events::NewEvent;
use serde_json::json;

use super::attempt::{Attempt, Story};
use super::shell::Shell;
use super::writer::{FIELD_MANAGER, is_conflict, is_not_found};
use super::{status, tell};
use crate::workers::Stopping;

/// An error that leaves no trace in the status because the status could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Finalizers could not be changed.
    #[error("error updating finalizers: {0}")]
    Finalizers(#[source] kube::Error),
    /// The status could not be written.
    #[error(transparent)]
    Status(#[from] olm_runtime::status::StatusError),
    /// The deletion policy could not be written on a revision.
    #[error("error writing the deletion policy on a revision: {0}")]
    Policy(#[source] kube::Error),
    /// Revisions could not be deleted.
    #[error("error deleting revisions: {0}")]
    Uninstall(#[source] kube::Error),
    /// The pass was given up.
    #[error(transparent)]
    Stopping(#[from] Stopping),
}

impl ReconcileError {
    /// Whether somebody else has changed the object meanwhile; the next pass looks at it as it is then.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Status(error) => error.is_conflict(),
            Self::Finalizers(error) | Self::Policy(error) | Self::Uninstall(error) => is_conflict(error),
            Self::Stopping(_) => false,
        }
    }
}

/// Replaces the finalizers, unless the object changed meanwhile. Returns the new resourceVersion, `None` when the object is gone.
pub(super) async fn patch_finalizers(
    extension: &ClusterExtension,
    all: &[String],
    shell: &Shell,
) -> Result<Option<String>, ReconcileError> {
    let api: Api<ClusterExtension> = Api::all(shell.client.clone());
    let patch = json!({"metadata": {"resourceVersion": extension.resource_version(), "finalizers": all}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_metadata(&extension.name_any(), &params, &Patch::Merge(&patch)).await {
        Ok(patched) => Ok(patched.metadata.resource_version),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(ReconcileError::Finalizers(error)),
    }
}

/// Writes the status, if it differs, and tells what is new. Gives how long the write is put off, if it can wait ([`details`]).
pub(super) async fn report(
    extension: &ClusterExtension,
    attempt: &Attempt,
    story: Story,
    shell: &Shell,
) -> Result<Option<Duration>, ReconcileError> {
    let generation = extension.metadata.generation.unwrap_or_default();
    let derived = status::derive(
        attempt,
        extension.status.as_ref(),
        generation,
        shell.settings.separate_release,
        Timestamp::now(),
    );
    let uid = extension.uid().unwrap_or_default();
    if story.notes.is_empty()
        && let Some(left) = shell.details.hold(&uid, extension.status.as_ref(), &derived, Instant::now())
    {
        return Ok(Some(left));
    }
    let events = tell::events(extension.status.as_ref(), &derived, attempt, story);
    let api: Api<ClusterExtension> = Api::all(shell.client.clone());
    match olm_runtime::write_status(&api, extension, derived, FIELD_MANAGER).await {
        Err(error) if !error.is_gone() => return Err(ReconcileError::Status(error)),
        Ok(Some(written)) => shell.written.put(written),
        Ok(None) | Err(_) => {}
    }
    for tell::Event { note, key } in events {
        let event =
            NewEvent { warning: note.warning, reason: note.reason, action: "Reconcile", note: &note.text };
        shell.events.publish_once(&extension.object_ref(&()), &key, event).await;
    }
    Ok(None)
}
