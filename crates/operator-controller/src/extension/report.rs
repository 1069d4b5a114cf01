//! Writes of a pass to the extension itself: finalizers, one status, and events about changes.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Resource as _, ResourceExt as _};
use olm_api::ClusterExtension;
use olm_runtime::controller::Stopping;
use olm_runtime::events::NewEvent;
use olm_runtime::watched::Object;
use serde_json::json;

use super::context::Context;
use super::result::{PassResult, Progress, Trace};
use super::writer::{FIELD_MANAGER, WriteError, is_conflict, is_not_found};
use super::{debounce, events, status};
use crate::debounce::STATUS_DEBOUNCE;
use crate::written_by;

/// An error that leaves no trace in the status because the status could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Finalizers could not be changed.
    #[error("error updating finalizers: {0}")]
    Finalizers(#[source] kube::Error),
    /// The status could not be written.
    #[error(transparent)]
    Status(#[from] olm_runtime::status::StatusError),
    /// A revision, or what its Secrets record of the extension, could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Revisions could not be deleted.
    #[error("error deleting revisions: {0}")]
    Uninstall(#[source] kube::Error),
    /// The pass was given up.
    #[error(transparent)]
    Stopping(#[from] Stopping),
}

impl ReconcileError {
    /// Whether another writer has changed the object meanwhile; the next pass reads it as it is then.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Status(error) => error.is_conflict(),
            Self::Finalizers(error) | Self::Uninstall(error) | Self::Write(WriteError::Owner(error)) => {
                is_conflict(error)
            }
            Self::Write(error) => matches!(error, WriteError::Changed(_)),
            Self::Stopping(_) => false,
        }
    }
}

/// Replaces the finalizers, unless the object changed meanwhile. Returns the new resourceVersion, `None` when the object is gone.
pub(super) async fn patch_finalizers(
    extension: &ClusterExtension,
    all: &[String],
    context: &Context,
) -> Result<Option<String>, ReconcileError> {
    let api: Api<ClusterExtension> = Api::all(context.client.clone());
    let patch = json!({"metadata": {"resourceVersion": extension.resource_version(), "finalizers": all}});
    match api.patch_metadata(&extension.name_any(), &written_by(FIELD_MANAGER), &Patch::Merge(&patch)).await {
        Ok(patched) => Ok(patched.metadata.resource_version),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(ReconcileError::Finalizers(error)),
    }
}

/// Writes the status, if it differs, and records events. Returns how long the write is put off, if it can wait ([`debounce`]).
pub(super) async fn report(
    extension: &ClusterExtension,
    result: &PassResult,
    trace: Trace,
    context: &Context,
) -> Result<Option<Duration>, ReconcileError> {
    let generation = extension.metadata.generation.unwrap_or_default();
    let derived = status::derive(
        result,
        extension.status.as_ref(),
        generation,
        context.settings.resolution.separate_release,
        Timestamp::now(),
    );
    let (name, uid) = (extension.name_any(), extension.uid().unwrap_or_default());
    if trace.notices.is_empty() {
        // what the user has to remove is reported immediately
        let is_uninstalling = match &result.progress {
            Progress::Uninstalling { obstacle, .. } => obstacle.as_ref().is_none_or(|found| !found.lasts),
            _ => false,
        };
        let can_wait = extension
            .status
            .as_ref()
            .is_some_and(|before| debounce::can_wait(before, &derived, is_uninstalling));
        let limit = if is_uninstalling { debounce::UNINSTALL } else { STATUS_DEBOUNCE };
        let held =
            context.states.update(&name, &uid, |state| state.debounce.hold(can_wait, limit, Instant::now()));
        if held.is_some() {
            return Ok(held);
        }
    }
    let new_events = events::events(extension.status.as_ref(), &derived, result, trace);
    let api: Api<ClusterExtension> = Api::all(context.client.clone());
    let written = olm_runtime::write_status(&api, extension, derived, FIELD_MANAGER).await;
    if !matches!(written, Ok(None)) {
        context.states.update(&name, &uid, |state| state.is_status_unknown = written.is_err());
    }
    match written {
        Err(error) if !error.is_gone() => return Err(ReconcileError::Status(error)),
        Ok(Some(written)) => context.extensions.update(name, Object::new(written)),
        Ok(None) | Err(_) => {}
    }
    for events::Event { note, key } in new_events {
        let event =
            NewEvent { warning: note.warning, reason: note.reason, action: "Reconcile", note: &note.text };
        context.events.publish_once(&extension.object_ref(&()), &key, event).await;
    }
    Ok(None)
}
