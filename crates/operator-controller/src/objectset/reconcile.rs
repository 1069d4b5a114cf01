//! One pass over a revision: observe, decide, execute, report.
//!
//! The status is derived once from the outcome and written only if it differs. Rule: revisions §6.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch};
use olm_api::cluster_object_set::{LifecycleState, ObservedPhase};
use olm_api::condition::{self, Condition, ConditionStatus};
use olm_api::{ClusterObjectSet, ClusterObjectSetStatus, annotations, finalizers, reason};
use olm_install::resolution::revision::{has_succeeded, is_active};
use olm_rollout::outdated_by;
use olm_rollout::schedule::{self, Deadline};
use olm_rollout::status::{self, ConditionUpdate, Facts, Outcome, REMOVAL_FAILED, condition_updates};
use olm_rollout::teardown::Reason;
use olm_runtime::controller::Requeue;
use olm_runtime::metrics::Outcome as Ended;
use serde_json::json;
use tracing::{debug, info, warn};

use super::content::ContentError;
use super::errors::{is_code, text};
use super::identity::Owner;
use super::memory::Memory;
use super::removal::{Removed, Removing, wait_end};
use super::rollout::{Problems, Rollout};
use super::world::AWAITED;
use super::{Context, FIELD_MANAGER, convert, debounce, extensions};
use crate::debounce::STATUS_DEBOUNCE;
use crate::written_by;

/// The time between two checks whether the content of another revision is known, as long as that may be read for the first time.
const CONTENT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Content is usually read within this time. Then a removal that waits for it is an event, too.
const CONTENT_READ_TIME: Duration = Duration::from_secs(10);
/// How long the deletion of one revision may come after that of another of the same extension.
const SIBLING_DELETION_WINDOW: Duration = Duration::from_secs(30);

struct Pass {
    outcome: Outcome,
    requeue: Requeue,
}

/// One pass. Errors of the apiserver about the revision itself end in a retry, all others in its status.
pub(super) async fn reconcile(revision: Arc<ClusterObjectSet>, context: &Context) -> (Requeue, Ended) {
    let (name, uid) = (revision.name_any(), revision.uid().unwrap_or_default());
    let mut taken = context.memories.take(&uid);
    let passed = pass(&revision, context, &mut taken.memory).await;
    context.world.end_waits(&name);
    let requeue = match passed {
        Ok(Some(requeue)) => requeue,
        // it is gone, or will be with the next event
        Ok(None) => {
            context.evict(&name, &uid);
            return (Requeue::Gone, Ended::Success);
        }
        Err(error) if is_code(&error, 404) => {
            context.memories.evict(&uid);
            return (Requeue::Gone, Ended::Success);
        }
        Err(error) => {
            if !is_code(&error, 409) {
                warn!(revision = name, error = %text(&error), "cannot write revision");
            }
            Requeue::Backoff
        }
    };
    taken.put();
    let ended = match requeue {
        Requeue::Gone | Requeue::OnChange => Ended::Success,
        Requeue::Unfinished | Requeue::After(_) => Ended::RequeueAfter,
        Requeue::Backoff | Requeue::BackoffWithin(_) => Ended::Error,
    };
    (requeue, ended)
}

async fn pass(
    revision: &Arc<ClusterObjectSet>,
    context: &Context,
    memory: &mut Memory,
) -> Result<Option<Requeue>, kube::Error> {
    if revision.metadata.deletion_timestamp.is_some() {
        return delete(revision, context, memory).await;
    }
    let (now, known_for) = (Timestamp::now(), memory.known_for(Instant::now()));
    let archived = revision.spec.lifecycle_state == LifecycleState::Archived;
    if archived && is_archived(revision) {
        // everything is gone already: nothing is torn down twice
        if has_finalizer(revision) {
            set_finalizer(revision, context, false).await?;
        }
        release(revision, context, memory);
        return Ok(Some(Requeue::OnChange));
    }
    let finalized =
        if archived { Ok(Arc::clone(revision)) } else { set_finalizer(revision, context, true).await };
    let revision = match finalized {
        Ok(revision) => revision,
        Err(error) if is_code(&error, 404) || is_code(&error, 409) => return Err(error),
        Err(error) => {
            let outcome = Outcome::Failed(format!("error ensuring teardown finalizer: {}", text(&error)));
            return report_unwritable(revision, context, &outcome, error).await;
        }
    };
    let found = if archived {
        archive(&revision, context, memory).await
    } else {
        roll_out(&revision, context, memory).await
    };
    let deadline = deadline(&revision, context.intervals.minute, known_for, archived);
    let observed = memory.known.as_ref().map(|known| known.digests.clone());
    let status = status(&revision, &found.outcome, deadline, observed, now);
    let can_wait = match (&revision.status, &status) {
        (Some(before), Some(after)) => {
            let succession = !archived && has_successor(&revision, context);
            debounce::can_wait(before, after, succession)
        }
        _ => false,
    };
    let held = memory.debounce.hold(can_wait, STATUS_DEBOUNCE, Instant::now());
    if let Some(status) = status.filter(|_| held.is_none()) {
        let stored = write_status(&revision, context, status).await?;
        if archived && is_archived(&stored) {
            set_finalizer(&stored, context, false).await?;
            release(&stored, context, memory);
        }
    }
    Ok(Some(found.requeue.within(deadline.left()).within(held)))
}

/// Releases what an archived revision used. What is gone need not be searched when the revision is deleted.
fn release(revision: &ClusterObjectSet, context: &Context, memory: &mut Memory) {
    let uid = revision.uid().unwrap_or_default();
    context.world.release(&uid, &HashSet::new());
    context.memories.evict_inventory(&uid);
    // until now its successor may have had to read its own again, because objects change hands
    context
        .evict_secrets(std::iter::once(revision).chain(context.siblings(revision).iter().map(AsRef::as_ref)));
    *memory = Memory { gone: std::mem::take(&mut memory.gone), ..Memory::default() };
}

async fn roll_out(revision: &Arc<ClusterObjectSet>, context: &Context, memory: &mut Memory) -> Pass {
    if let Err(error) = context.know(revision, memory).await {
        return match error {
            ContentError::Blocked(text) => {
                context.await_secrets(revision);
                Pass { outcome: Outcome::Blocked(text), requeue: Requeue::Unfinished }
            }
            ContentError::Failed(text) | ContentError::Unavailable(text) => {
                Pass { outcome: Outcome::Failed(text), requeue: Requeue::Backoff }
            }
        };
    }
    if let Some(text) = memory.known.as_ref().and_then(|known| known.invalid.as_deref()) {
        return Pass {
            outcome: Outcome::Refused(format!("revision validation error: {text}")),
            requeue: Requeue::Unfinished,
        };
    }
    let siblings = context.siblings(revision);
    let owner = match context.owner(revision, memory).await {
        Ok(owner) => owner,
        Err(text) => return Pass { outcome: Outcome::Failed(text), requeue: Requeue::Backoff },
    };
    let own = convert::own_revision(revision);
    let paused = context.extensions.is_paused(revision);
    let rollout = Rollout {
        context,
        revision,
        owner,
        siblings: siblings.iter().map(|s| convert::sibling(s)).collect(),
        own,
        paused,
        problems: Problems::default(),
    };
    let outcome = rollout.run(memory).await;
    if outcome.is_complete() && siblings.iter().all(|sibling| is_archived(sibling)) {
        context.evict_secrets([&**revision]);
    }
    if outcome.is_complete() && !paused {
        let history: Vec<_> = siblings.iter().map(|sibling| convert::facts(sibling)).collect();
        for name in outdated_by(revision.spec.revision, &history) {
            let Some(sibling) = siblings.iter().find(|sibling| sibling.name_any() == name) else { continue };
            match archive_sibling(context, sibling).await {
                Ok(()) => info!(revision = %rollout.own.name, predecessor = %name, "archived predecessor"),
                // it changed since it was judged: the next pass judges it again
                Err(error) if is_code(&error, 409) => return Pass { outcome, requeue: Requeue::Backoff },
                Err(error) => {
                    let text = format!("archiving revision {name}: {}", text(&error));
                    return Pass { outcome: Outcome::Failed(text), requeue: Requeue::Backoff };
                }
            }
        }
    }
    if let Outcome::Refused(text) = &outcome {
        context.record(revision, true, "Collision", text).await;
    }
    let requeue = match &outcome {
        // namespaces are watched for
        Outcome::Failed(_) if !rollout.lacks_only_namespaces() => {
            rollout.left_alone().map_or(Requeue::Backoff, Requeue::BackoffWithin)
        }
        _ if rollout.is_contended() => Requeue::Backoff,
        outcome if outcome.is_complete() && !has_unwatched(revision, memory) => Requeue::OnChange,
        // what is missing is watched; rule: revisions §17 row 35
        _ => Requeue::Unfinished,
    };
    Pass { outcome, requeue: requeue.within(memory.next_pod_list(Instant::now())) }
}

/// Whether there are objects whose changes wake nothing: without the owner label they are watched one by one, up to a number.
fn has_unwatched(revision: &ClusterObjectSet, memory: &Memory) -> bool {
    let inventory = memory.known.iter().flat_map(|known| &known.inventory.phases);
    let count: usize = inventory.map(|(_, items)| items.len()).sum();
    convert::extension(revision).is_none() && count > AWAITED
}

/// Is a newer revision of the same extension in force that has not succeeded yet?
fn has_successor(revision: &ClusterObjectSet, context: &Context) -> bool {
    context.siblings(revision).iter().any(|sibling| {
        sibling.spec.revision > revision.spec.revision && is_active(sibling) && !has_succeeded(sibling)
    })
}

/// Archives a revision in exactly this state.
async fn archive_sibling(context: &Context, sibling: &ClusterObjectSet) -> Result<(), kube::Error> {
    let api: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let patch = json!({
        "metadata": {"uid": sibling.uid(), "resourceVersion": sibling.resource_version()},
        "spec": {"lifecycleState": "Archived"},
    });
    match api.patch(&sibling.name_any(), &written_by(FIELD_MANAGER), &Patch::Merge(&patch)).await {
        Err(error) if !is_code(&error, 404) => Err(error),
        _ => Ok(()),
    }
}

async fn archive(revision: &Arc<ClusterObjectSet>, context: &Context, memory: &mut Memory) -> Pass {
    let successors = successors(revision, context);
    let since = memory.archiving_for(Instant::now());
    if let Some(detail) = unknown(&successors, revision, context, since) {
        let after = wait_for_content(revision, context, &detail, since).await;
        return Pass { outcome: Outcome::Removing(Some(detail)), requeue: Requeue::After(after) };
    }
    let removed = |result: Result<Removed, String>| match result {
        Ok(Removed::All) => Pass { outcome: Outcome::Archived, requeue: Requeue::OnChange },
        Ok(Removed::Waiting { detail, after }) => {
            Pass { outcome: Outcome::Removing(detail), requeue: Requeue::After(after) }
        }
        Err(problem) => {
            let text = format!("error archiving revision: {problem}");
            Pass { outcome: Outcome::RemovalFailed(text), requeue: Requeue::Backoff }
        }
    };
    let owner = match context.owner(revision, memory).await {
        Ok(owner) => owner,
        Err(problem) => return removed(Err(problem)),
    };
    let removing = Removing {
        context,
        revision,
        owner,
        own: convert::own_revision(revision),
        reason: Reason::Archive,
        successors,
    };
    removed(removing.run(memory).await)
}

/// The siblings in force: objects of this revision may be theirs.
fn successors(revision: &ClusterObjectSet, context: &Context) -> Vec<Arc<ClusterObjectSet>> {
    let mut siblings = context.siblings(revision);
    siblings.retain(|sibling| is_active(sibling));
    siblings
}

/// What a removal waits for while it is not known what a revision in force has: until then, nothing goes. A newer one that has succeeded
/// has taken over everything; an older one that has not had only what it still owns. `since` is the time of the removal: no older one is
/// waited for longer than for custom resources.
fn unknown(
    successors: &[Arc<ClusterObjectSet>],
    revision: &ClusterObjectSet,
    context: &Context,
    since: Duration,
) -> Option<String> {
    let is_late = since >= context.custom_resource_wait;
    let takes_over = |set: &ClusterObjectSet| match set.spec.revision.cmp(&revision.spec.revision) {
        Ordering::Greater => !has_succeeded(set),
        Ordering::Less => !is_late && has_succeeded(set),
        Ordering::Equal => false,
    };
    let is_known = |set: &ClusterObjectSet| context.memories.is_known(&set.uid().unwrap_or_default());
    let found = successors.iter().find(|set| takes_over(set) && !is_known(set))?;
    let end = wait_end(found, revision, context);
    Some(format!("waiting for the content of revision {}; {end}", found.name_any()))
}

/// Records a wait for content as an event, if it lasts; `since` is the time of the removal. Returns the time until the next check.
async fn wait_for_content(
    revision: &ClusterObjectSet,
    context: &Context,
    detail: &str,
    since: Duration,
) -> Duration {
    if since < CONTENT_READ_TIME {
        return CONTENT_POLL_INTERVAL;
    }
    context.record_wait(revision, detail).await;
    schedule::TEARDOWN_INTERVAL
}

/// The teardown on deletion. `None` when nothing is left to do.
async fn delete(
    revision: &Arc<ClusterObjectSet>,
    context: &Context,
    memory: &mut Memory,
) -> Result<Option<Requeue>, kube::Error> {
    if !has_finalizer(revision) {
        return Ok(None);
    }
    let now = Timestamp::now();
    let (outcome, requeue) = match tear_down(revision, context, memory).await {
        Ok(Removed::All) => match set_finalizer(revision, context, false).await {
            Ok(_) => {
                info!(revision = %revision.name_any(), "removed");
                return Ok(None);
            }
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => return Err(error),
            Err(error) => {
                let outcome = Outcome::RemovalFailed(format!(
                    "{REMOVAL_FAILED}its objects are gone, but its finalizer cannot be removed: {}",
                    text(&error)
                ));
                return report_unwritable(revision, context, &outcome, error).await;
            }
        },
        Ok(Removed::Waiting { detail, after }) => (Outcome::Removing(detail), Requeue::After(after)),
        Err(problem) => (Outcome::RemovalFailed(format!("{REMOVAL_FAILED}{problem}")), Requeue::Backoff),
    };
    // most removals are over before it could be read
    let is_brief = matches!(outcome, Outcome::Removing(None));
    if let Some(status) = status(revision, &outcome, Deadline::None, None, now).filter(|_| !is_brief) {
        write_status(revision, context, status).await?;
    }
    Ok(Some(requeue))
}

/// Reports that the revision itself cannot be written, as far as its status can be. Returns the error, so that it is logged and
/// retried.
async fn report_unwritable(
    revision: &ClusterObjectSet,
    context: &Context,
    outcome: &Outcome,
    error: kube::Error,
) -> Result<Option<Requeue>, kube::Error> {
    if let Some(status) = status(revision, outcome, Deadline::None, None, Timestamp::now()) {
        write_status(revision, context, status).await?;
    }
    Err(error)
}

/// Custom resources first, then the objects; or all objects are released. While the extension stays, the revisions in force get what is
/// theirs: most often the predecessor of a revision that is deleted because it does not become ready.
async fn tear_down(
    revision: &Arc<ClusterObjectSet>,
    context: &Context,
    memory: &mut Memory,
) -> Result<Removed, String> {
    let extension = context
        .extensions
        .for_teardown(&context.client, revision, &mut memory.extension)
        .await
        .map_err(|error| format!("reading its ClusterExtension: {}", text(&error)))?;
    let owner = context.owner(revision, memory).await?;
    let recorded = memory.recorded.clone().unwrap_or_default();
    let reason = extensions::reason(revision, extension.as_ref(), &recorded);
    let deserted = extension.is_none() && matches!(owner, Owner::Extension { .. });
    let facts = extension.unwrap_or_default();
    let since = memory.deleting_for(Instant::now());
    if let Some(later) = later_sibling(revision, context, &facts, since) {
        let detail = Some(format!("waiting for revision {later} to be removed"));
        return Ok(Removed::Waiting { detail, after: schedule::TEARDOWN_INTERVAL });
    }
    // with the extension, all its revisions go
    let goes = !facts.stays && matches!(owner, Owner::Extension { .. });
    let successors = if goes { vec![] } else { successors(revision, context) };
    if let Some(detail) = unknown(&successors, revision, context, since) {
        let after = wait_for_content(revision, context, &detail, since).await;
        return Ok(Removed::Waiting { detail: Some(detail), after });
    }
    let own = convert::own_revision(revision);
    let removing = Removing { context, revision, owner, own, reason, successors };
    if reason == Reason::Delete && !memory.custom_resources_gone {
        let limit = context.custom_resource_wait;
        if let Some(waiting) = removing.custom_resources(memory, &facts, since, limit).await? {
            return Ok(waiting);
        }
        // a successor may go before it takes a CRD over: then its custom resources go, too
        memory.custom_resources_gone = removing.successors.is_empty();
    }
    let removed = removing.run(memory).await?;
    if deserted && matches!(removed, Removed::All) {
        warn!(
            revision = %revision.name_any(),
            "its ClusterExtension was gone before it, so its objects are kept; those that are not needed have the label \
             olm.operatorframework.io/owner-name and can be deleted by it"
        );
    }
    Ok(removed)
}

/// Revisions of one extension that are all being deleted go one by one, the latest first: it may hold the CRDs while an
/// older one still holds the operator that finalises their resources. When the extension goes, a later revision that
/// belongs to it will be deleted too, even if that has not been seen yet.
fn later_sibling(
    revision: &ClusterObjectSet,
    context: &Context,
    facts: &super::extensions::Facts,
    since: Duration,
) -> Option<String> {
    let expected = |sibling: &ClusterObjectSet| {
        !facts.stays
            && since < SIBLING_DELETION_WINDOW
            && !sibling.owner_references().is_empty()
            && is_active(sibling)
    };
    let is_later = |sibling: &&Arc<ClusterObjectSet>| {
        (sibling.metadata.deletion_timestamp.is_some() || expected(sibling))
            && has_finalizer(sibling)
            && sibling.spec.revision > revision.spec.revision
    };
    context.siblings(revision).iter().find(is_later).map(|sibling| sibling.name_any())
}

fn has_finalizer(revision: &ClusterObjectSet) -> bool {
    revision.finalizers().iter().any(|finalizer| finalizer == finalizers::TEARDOWN)
}

/// Adds or removes our finalizer, with the resourceVersion as precondition; gives the revision as it then is.
async fn set_finalizer(
    revision: &Arc<ClusterObjectSet>,
    context: &Context,
    present: bool,
) -> Result<Arc<ClusterObjectSet>, kube::Error> {
    if has_finalizer(revision) == present {
        return Ok(Arc::clone(revision));
    }
    let mut list: Vec<String> = revision.finalizers().to_vec();
    if present {
        list.push(finalizers::TEARDOWN.to_owned());
    } else {
        list.retain(|finalizer| finalizer != finalizers::TEARDOWN);
    }
    let patch = json!({"metadata": {"finalizers": list, "resourceVersion": revision.resource_version()}});
    let api: Api<ClusterObjectSet> = Api::all(context.client.clone());
    Ok(context
        .update(api.patch(&revision.name_any(), &written_by(FIELD_MANAGER), &Patch::Merge(&patch)).await?))
}

fn is_archived(revision: &ClusterObjectSet) -> bool {
    reports(revision, reason::ARCHIVED)
}

/// Whether `Progressing` has this reason, for the present generation.
fn reports(revision: &ClusterObjectSet, reason: &str) -> bool {
    let conditions = revision.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, condition::PROGRESSING).is_some_and(|known| {
        known.reason == reason && known.observed_generation == revision.metadata.generation
    })
}

/// A deadline that was reported stays passed, also in a process that knows the revision for a shorter time.
fn deadline(revision: &ClusterObjectSet, minute: Duration, known_for: Duration, archived: bool) -> Deadline {
    let reported = reports(revision, reason::PROGRESS_DEADLINE_EXCEEDED);
    let age = if reported { Duration::MAX } else { known_for };
    let inactive = archived || has_succeeded(revision);
    schedule::deadline(revision.spec.progress_deadline_minutes.map(i64::from), minute, age, inactive)
}

/// The status that the outcome leads to; `None` when it is there already.
fn status(
    revision: &ClusterObjectSet,
    outcome: &Outcome,
    deadline: Deadline,
    observed: Option<Vec<olm_rollout::PhaseDigest>>,
    now: Timestamp,
) -> Option<ClusterObjectSetStatus> {
    let before = revision.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let version =
        revision.annotations().get(annotations::BUNDLE_VERSION).map(String::as_str).unwrap_or_default();
    let had_available = before.conditions.iter().any(|known| known.type_ == condition::AVAILABLE);
    for ConditionUpdate { condition: type_, status: updated, reason, message } in
        condition_updates(outcome, Facts { version, had_available, deadline })
    {
        let updated = match updated {
            status::ConditionStatus::True => ConditionStatus::True,
            status::ConditionStatus::False => ConditionStatus::False,
            status::ConditionStatus::Unknown => ConditionStatus::Unknown,
        };
        let message = olm_core::message::fit(&message);
        let derived = Condition::new(type_, updated, reason, message, revision.metadata.generation, now);
        condition::set(&mut status.conditions, derived);
    }
    if let Some(observed) = observed.filter(|_| status.observed_phases.is_empty()) {
        status.observed_phases = observed
            .into_iter()
            .map(|phase| ObservedPhase { name: phase.name, digest: phase.digest })
            .collect();
    }
    (status != before).then_some(status)
}

/// Writes the status. Gives the revision as stored.
async fn write_status(
    revision: &ClusterObjectSet,
    context: &Context,
    status: ClusterObjectSetStatus,
) -> Result<Arc<ClusterObjectSet>, kube::Error> {
    let patch = json!({
        "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
        "metadata": {"resourceVersion": revision.resource_version()},
        "status": status,
    });
    let api: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let stored =
        api.patch_status(&revision.name_any(), &written_by(FIELD_MANAGER), &Patch::Merge(&patch)).await?;
    debug!(revision = %revision.name_any(), "status written");
    Ok(context.update(stored))
}

#[cfg(test)]
mod tests;
