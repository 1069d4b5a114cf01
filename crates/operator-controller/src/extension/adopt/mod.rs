//! Adopting an extension that the reference installed through a Helm release: its objects become those of revision 1, which
//! counts as succeeded from the start, so that the same pass sees an installed bundle. The revision that the pass then makes
//! takes the objects over as in any upgrade. No object is deleted or created anew, and the release's Secrets stay until the
//! extension goes.
//!
//! It runs before anything else is looked at, and only while the extension has no revision. Every step can be repeated: a
//! revision 1 that was left without its `Succeeded` condition gets it in the next pass. A release that cannot be read stops
//! the extension with a sentence; nothing is written then. What a release says is read in [`release`], as values.
//! Rule: revisions §4.6, decision 1.

#[doc(hidden)]
pub mod fuzz;
mod release;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use olm_api::{
    ClusterObjectSet, Condition, ConditionStatus, condition, field_managers, labels, reason, secret_types,
};
use olm_install::desired::Desired;
use olm_install::resolution::{Class, Failure, Wish, revision};
use serde_json::json;

use self::release::{Index, Release, ReleaseError, deployed, further_chunks, payload};
use super::attempt::Note;
use super::shell::Shell;
use super::writer::is_conflict;

/// The number of the revision that a release becomes.
const FIRST: i64 = 1;
/// What the revision's `Succeeded` condition says.
const SUCCEEDED: &str = "Revision succeeded - migrated from Helm release";
/// What a user can do about a release that cannot be read.
const MEND: &str = "nothing was changed; restore the Secret from a backup, or delete the ClusterExtension, which removes its \
                    objects, and create it again";
/// How often the condition is tried when others write the revision at the same time.
const ROUNDS: usize = 5;

/// Revision 1 with its `Succeeded` condition, when this pass made it or gave it the condition.
#[derive(Debug)]
pub struct Adopted {
    /// The revision as it is stored now.
    pub set: ClusterObjectSet,
    /// What a user should hear of.
    pub note: Option<Note>,
}

/// Adopts the extension if a Helm release installed it. `revisions` are the extension's.
///
/// # Errors
/// With the text for the `Progressing` condition.
pub async fn adopt(
    shell: &Shell,
    wish: &Wish,
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<Option<Adopted>, Failure> {
    if let Some(first) = revisions.iter().find(|set| is_unfinished(set)) {
        let set = succeed(shell, (**first).clone()).await?;
        return Ok(Some(Adopted { set, note: None }));
    }
    if !revisions.is_empty() || has_orphans(shell, wish) {
        return Ok(None);
    }
    let secrets: Api<Secret> = Api::namespaced(shell.client.clone(), &shell.settings.system_namespace);
    let Some((index, release)) = installed(shell, &secrets, wish).await? else { return Ok(None) };
    let refused = |problem: String| broken(shell, wish, &index.secret, &problem);
    let bundle = release.bundle;
    let desired = Desired::new(wish, &bundle, release.properties.as_deref(), release.objects)
        .map_err(|error| refused(error.to_string()))?;
    let revision = desired
        .migrated(FIRST, &shell.settings.system_namespace)
        .map_err(|error| refused(error.to_string()))?;
    let stored = shell.writer.create(&revision, &[], "").await.map_err(|error| transient(&error))?;
    tracing::info!(
        extension = wish.name,
        release = index.secret,
        bundle = bundle.name,
        "Helm release adopted"
    );
    let note = Note::normal(
        "Adopted",
        format!(
            "bundle {} was installed through the Helm release in Secret {}/{}; revision {} takes its objects over",
            bundle.name,
            shell.settings.system_namespace,
            index.secret,
            stored.name_any()
        ),
    );
    let set = succeed(shell, stored).await?;
    Ok(Some(Adopted { set, note: Some(note) }))
}

/// A revision that was made from a release and then left alone.
fn is_unfinished(set: &ClusterObjectSet) -> bool {
    set.spec.revision == FIRST
        && revision::is_active(set)
        && set.labels().get(labels::MIGRATED_FROM_HELM).is_some_and(|value| value == "true")
        && !olm_install::dependencies::has_succeeded(set)
}

/// Whether there are revisions under the extension's name that are not its own: those left by `--cascade=orphan`.
fn has_orphans(shell: &Shell, wish: &Wish) -> bool {
    !shell.revisions.of(&wish.name).is_empty()
}

/// The release in force, read and checked; `None` when there is none.
async fn installed(
    shell: &Shell,
    secrets: &Api<Secret>,
    wish: &Wish,
) -> Result<Option<(Index, Release)>, Failure> {
    let system = &shell.settings.system_namespace;
    let looking = |error: &kube::Error| {
        let text = format!(
            "migrating storage: looking for a Helm release of {:?} in namespace {system}: {error}",
            wish.name
        );
        Failure::new(Class::Transient, text)
    };
    let indexes = ListParams::default()
        .labels(&format!("name={},owner=operator-controller", wish.name))
        .fields(&format!("type={}", secret_types::HELM_INDEX));
    let mut releases = Vec::new();
    for found in secrets.list_metadata(&indexes).await.map_err(|error| looking(&error))? {
        let index = Index::read(&found.metadata, &wish.uid)
            .map_err(|error| broken(shell, wish, &found.name_any(), &error.to_string()))?;
        releases.extend(index);
    }
    let Some(index) = deployed(&releases).cloned() else { return Ok(None) };
    let wrong = |error: ReleaseError| broken(shell, wish, &index.secret, &error.to_string());
    let first = secrets.get(&index.secret).await.map_err(|error| looking(&error))?;
    let mut further = Vec::new();
    for name in further_chunks(&first).map_err(wrong)? {
        let chunk = secrets.get_opt(&name).await.map_err(|error| looking(&error))?;
        further.push((name, chunk));
    }
    let joined = payload(&first, &further).map_err(wrong)?;
    let (name, described) = (wish.name.clone(), index.clone());
    let read = tokio::task::spawn_blocking(move || Release::read(&name, &described, &joined)).await;
    let read = read.map_err(|error| transient(&error))?;
    read.map_err(wrong).map(|release| Some((index, release)))
}

/// Gives the revision its `Succeeded` condition, unless it has it.
async fn succeed(shell: &Shell, mut set: ClusterObjectSet) -> Result<ClusterObjectSet, Failure> {
    let api: Api<ClusterObjectSet> = Api::all(shell.client.clone());
    for _ in 0..ROUNDS {
        let mut status = set.status.clone().unwrap_or_default();
        if condition::is_true(&status.conditions, condition::SUCCEEDED) {
            return Ok(set);
        }
        let succeeded = Condition::new(
            condition::SUCCEEDED,
            ConditionStatus::True,
            reason::SUCCEEDED,
            SUCCEEDED,
            set.metadata.generation,
            Timestamp::now(),
        );
        condition::set(&mut status.conditions, succeeded);
        let patch = json!({"metadata": {"resourceVersion": set.resource_version()}, "status": status});
        let manager = Some(field_managers::CLUSTER_EXTENSION_CONTROLLER.to_owned());
        let params = PatchParams { field_manager: manager, ..PatchParams::default() };
        match api.patch_status(&set.name_any(), &params, &Patch::Merge(&patch)).await {
            Ok(stored) => return Ok(stored),
            // the revision's own controller was faster
            Err(error) if is_conflict(&error) => {
                set = api.get(&set.name_any()).await.map_err(|error| transient(&error))?;
            }
            Err(error) => return Err(transient(&error)),
        }
    }
    Err(transient(&format!("revision {} changes faster than it can be written", set.name_any())))
}

fn transient(error: &impl std::fmt::Display) -> Failure {
    Failure::new(Class::Transient, format!("migrating storage: {error}"))
}

fn broken(shell: &Shell, wish: &Wish, secret: &str, problem: &str) -> Failure {
    let system = &shell.settings.system_namespace;
    let text = format!(
        "migrating storage: extension {:?} was installed through the Helm release in Secret {system}/{secret}, which cannot be read: \
         {problem}; {MEND}",
        wish.name
    );
    Failure::new(Class::NeedsChange, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn set(name: &str, number: i64, labels: Value, state: &str, conditions: Value) -> ClusterObjectSet {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": {"name": name, "labels": labels},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "None"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_migrated_first_revision_without_its_condition_is_unfinished() {
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
}
