//! Adopting an extension whose objects are there before it: those of a backup ([`restored`]), or of a Helm release.
//!
//! An extension that the reference installed through a Helm release: its objects become those of revision 1, which
//! counts as succeeded from the start, so that the same pass sees an installed bundle. The revision that the pass then makes
//! adopts the objects as in any upgrade. No object is deleted or created again, and the release's Secrets stay until the
//! extension is deleted.
//!
//! It runs before anything else is read; a release only while the extension has no revision. Every step can be repeated: a
//! revision 1 that was left without its `Succeeded` condition gets it in the next pass. A release that cannot be read stops
//! the extension with an error message; nothing is written then. `olm_install::release` reads releases.
//! Rule: revisions §4.6, decision 1.

mod restored;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterObjectSet, Condition, ConditionStatus, condition, field_managers, labels, reason};
use olm_install::release::{self, FIRST, InstalledRelease};
use olm_install::resolution::{Class, ExtensionRequest, PassError, revision};
use serde_json::json;

use super::context::Context;
use super::result::Notice;
use super::writer::{StepError, WriteError, is_conflict};
use crate::recorded::Recorded;
use crate::written_by;

/// Message of the revision's `Succeeded` condition.
const SUCCEEDED: &str = "Revision succeeded - migrated from Helm release";
/// Attempts to write the condition when others write the revision at the same time.
const MAX_ATTEMPTS: usize = 5;

/// Adopts the extension if its revisions were restored, or a Helm release installed it. `revisions` are the extension's. Returns the
/// revisions that this pass made or changed, and the event for the user.
///
/// # Errors
/// With the text for the `Progressing` condition, or because the cluster has changed meanwhile.
pub async fn adopt(
    context: &Context,
    request: &ExtensionRequest,
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<(Vec<ClusterObjectSet>, Option<Notice>), StepError> {
    if let Some(first) = revisions.iter().find(|set| is_unfinished(set)) {
        let set = succeed(&context.client, (**first).clone(), SUCCEEDED).await?;
        return Ok((vec![set], None));
    }
    let mut others = context.revisions.of_extension(&request.name);
    others.retain(|set| !revision::is_owned_by(set, &request.uid));
    if !others.is_empty() {
        return restored::adopt(context, request, revisions, &others).await;
    }
    if !revisions.is_empty() {
        return Ok((Vec::new(), None));
    }
    let system = &context.settings.system_namespace;
    let Some(InstalledRelease { secret, bundle, revision, .. }) =
        release::read(&context.client, system, request).await?
    else {
        return Ok((Vec::new(), None));
    };
    let recorded = Recorded::from_request(request);
    // the objects are there before the revision: they must not go with an extension that orphans them
    context.writer.ensure_present(&request.name, &request.uid).await?;
    let stored = match context.writer.create(&revision, &[], "", &recorded).await {
        Err(error @ WriteError::Changed(_)) => return Err(error.into()),
        stored => stored.map_err(|error| transient(&error))?,
    };
    tracing::info!(extension = request.name, release = secret, bundle = bundle.name, "Helm release adopted");
    let text = format!(
        "bundle {} was installed through the Helm release in Secret {system}/{secret}; revision {} takes its objects over",
        bundle.name,
        stored.name_any()
    );
    let notice = Notice::normal("Adopted", text);
    let set = succeed(&context.client, stored, SUCCEEDED).await?;
    Ok((vec![set], Some(notice)))
}

/// A revision that was made from a release and then left alone.
fn is_unfinished(set: &ClusterObjectSet) -> bool {
    set.spec.revision == FIRST
        && revision::is_active(set)
        && set.labels().get(labels::MIGRATED_FROM_HELM).is_some_and(|value| value == "true")
        && !revision::has_succeeded(set)
}

/// Gives the revision its `Succeeded` condition, unless it has it.
async fn succeed(
    client: &Client,
    mut set: ClusterObjectSet,
    message: &str,
) -> Result<ClusterObjectSet, PassError> {
    let api: Api<ClusterObjectSet> = Api::all(client.clone());
    for _ in 0..MAX_ATTEMPTS {
        let mut status = set.status.clone().unwrap_or_default();
        if condition::is_true(&status.conditions, condition::SUCCEEDED) {
            return Ok(set);
        }
        let succeeded = Condition::new(
            condition::SUCCEEDED,
            ConditionStatus::True,
            reason::SUCCEEDED,
            message,
            set.metadata.generation,
            Timestamp::now(),
        );
        condition::set(&mut status.conditions, succeeded);
        let patch = json!({"metadata": {"resourceVersion": set.resource_version()}, "status": status});
        let params = written_by(field_managers::CLUSTER_EXTENSION_CONTROLLER);
        match api.patch_status(&set.name_any(), &params, &Patch::Merge(&patch)).await {
            Ok(stored) => return Ok(stored),
            // the revision's own controller was faster
            Err(error) if is_conflict(&error) => {
                let found = api.get(&set.name_any()).await;
                let found = found.map_err(|error| transient(&olm_runtime::apply::message(&error)))?;
                if found.uid() != set.uid() {
                    let name = set.name_any();
                    return Err(transient(&format!("revision {name} was deleted and created again")));
                }
                set = found;
            }
            Err(error) => return Err(transient(&olm_runtime::apply::message(&error))),
        }
    }
    Err(transient(&format!("revision {} changes faster than it can be written", set.name_any())))
}

fn transient(error: &impl std::fmt::Display) -> PassError {
    PassError::new(Class::Transient, format!("migrating storage: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::testing::{Apiserver, failure};
    use serde_json::Value;

    fn set(name: &str, number: i64, labels: Value, state: &str, conditions: Value) -> ClusterObjectSet {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": {"name": name, "labels": labels},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "None"}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn adoption_is_unfinished_without_the_condition() {
        let migrated = json!({(labels::MIGRATED_FROM_HELM): "true"});
        let condition = |status: &str| json!([{"type": "Succeeded", "status": status, "reason": "Succeeded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        for (case, set, want) in [
            ("left alone", set("e-1", 1, migrated.clone(), "Active", json!([])), true),
            ("not succeeded", set("e-1", 1, migrated.clone(), "Active", condition("False")), true),
            ("done", set("e-1", 1, migrated.clone(), "Active", condition("True")), false),
            ("archived", set("e-1", 1, migrated.clone(), "Archived", json!([])), false),
            ("not migrated", set("e-1", 1, json!({}), "Active", json!([])), false),
            ("another number", set("e-2", 2, migrated, "Active", json!([])), false),
        ] {
            assert_eq!(is_unfinished(&set), want, "{case}");
        }
    }

    #[tokio::test]
    async fn adoption_does_not_count_for_a_revision_created_again() {
        let revision = |uid: &str, version: &str| {
            let mut set = set("e-1", 1, json!({}), "Active", json!([]));
            set.metadata.uid = Some(uid.to_owned());
            set.metadata.resource_version = Some(version.to_owned());
            set
        };
        for (live, patches) in [("u", 2), ("created again", 1)] {
            let found = serde_json::to_value(revision(live, "2")).unwrap();
            let tried = AtomicU32::new(0);
            let apiserver = Apiserver::new(move |method, _| match method {
                "PATCH" if tried.fetch_add(1, Ordering::Relaxed) == 0 => failure(409, "Conflict"),
                _ => (200, found.clone()),
            });
            let done = succeed(&apiserver.client(), revision("u", "1"), SUCCEEDED).await;
            assert_eq!(done.is_ok(), patches == 2, "{live}: {done:?}");
            let requests = apiserver.requests();
            let sent = requests.iter().filter(|line| line.starts_with("PATCH ")).count();
            assert_eq!(sent, patches, "{live}: {requests:?}");
        }
    }
}
