//! Keeps what the content Secrets of an extension record of it as the extension is ([`Recorded`]).

use std::sync::Arc;

use kube::ResourceExt as _;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_install::resolution::revision;

use super::context::Context;
use super::writer::WriteError;
use crate::recorded::Recorded;

/// Writes it on the Secrets of the active revisions if it has changed since the last pass. The first pass of a process reads them.
///
/// # Errors
/// When the apiserver refuses; it can be repeated.
pub async fn sync(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<(), WriteError> {
    let (name, uid) = (extension.name_any(), extension.uid().unwrap_or_default());
    let desired = Recorded::from_extension(extension);
    if context.states.update(&name, &uid, |state| state.recorded.as_ref() == Some(&desired)) {
        return Ok(());
    }
    let active: Vec<&ClusterObjectSet> =
        revisions.iter().map(AsRef::as_ref).filter(|set| revision::is_active(set)).collect();
    let inputs = if active.is_empty() {
        Default::default()
    } else {
        context.writer.mark_secrets(&name, &active, &desired).await?
    };
    context.states.update(&name, &uid, |state| {
        state.recorded = Some(desired);
        state.inputs = inputs;
    });
    Ok(())
}
