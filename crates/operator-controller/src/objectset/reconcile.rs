//! The story of one pass over a revision: observe, decide, do, say.
//!
//! The status is derived once from the outcome and written only if it differs. Rule: revisions §6.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use olm_api::cluster_object_set::{LifecycleState, ObservedPhase};
use olm_api::condition::{self, Condition, ConditionStatus};
use olm_api::{ClusterObjectSet, ClusterObjectSetStatus, annotations, finalizers, reason};
use olm_rollout::outdated_by;
use olm_rollout::schedule::{self, Deadline};
use olm_rollout::status::{self, ConditionUpdate, Facts, Outcome, condition_updates};
use olm_rollout::teardown::Reason;
use olm_runtime::metrics::Outcome as Ended;
use serde_json::json;
use tracing::{debug, info, warn};

use super::content::ContentError;
use super::errors::{is_code, text};
use super::memory::Memory;
use super::removal::{Removed, Removing};
use super::rollout::{Problems, Rollout};
use super::{FIELD_MANAGER, Shell, convert, details, extensions};

/// How long the deletion of one revision may come after that of another of the same extension.
const LATE: Duration = Duration::from_secs(30);

/// When to look at a revision again, if nothing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// Only when something changes.
    OnChange,
    /// After a failure: later and later.
    Backoff,
    /// After a failure: later and later, at the latest after this time.
    BackoffWithin(Duration),
    /// After this time.
    After(Duration),
}

impl Retry {
    /// When that is. `failures` counts failed passes in a row.
    fn delay(self, failures: &mut u32) -> Option<Duration> {
        match self {
            Self::OnChange | Self::After(_) => *failures = 0,
            Self::Backoff | Self::BackoffWithin(_) => *failures = failures.saturating_add(1),
        }
        match self {
            Self::OnChange => None,
            Self::After(delay) => Some(delay),
            Self::Backoff => Some(schedule::backoff(*failures)),
            Self::BackoffWithin(limit) => Some(schedule::backoff(*failures).min(limit)),
        }
    }
}

/// What a pass found.
struct Pass {
    outcome: Outcome,
    retry: Retry,
}

/// One pass. Errors of the apiserver about the revision itself end in a retry, all others in its status.
pub(super) async fn reconcile(stored: Arc<ClusterObjectSet>, shell: &Shell) -> (Action, Ended) {
    let uid = stored.uid().unwrap_or_default();
    let mut memory = shell.memories.take(&uid);
    let revision = newest(&stored, &memory);
    let passed = pass(&revision, shell, &mut memory).await;
    shell.world.waited_anew(&revision.name_any());
    match passed {
        Ok(Some(action)) => {
            let ended = match memory.failures {
                0 if action == Action::await_change() => Ended::Success,
                0 => Ended::RequeueAfter,
                _ => Ended::Error,
            };
            memory.put();
            (action, ended)
        }
        // it is gone, or will be with the next event
        Ok(None) => {
            shell.world.stop_waiting(&revision.name_any());
            shell.world.release(&uid, &std::collections::HashSet::new());
            shell.memories.forget(&uid);
            (Action::await_change(), Ended::Success)
        }
        Err(error) if is_code(&error, 404) => {
            shell.memories.forget(&uid);
            (Action::await_change(), Ended::Success)
        }
        Err(error) => {
            if !is_code(&error, 409) {
                warn!(revision = %revision.name_any(), error = %text(&error), "cannot write revision");
            }
            memory.failures = memory.failures.saturating_add(1);
            memory.written = None;
            let delay = schedule::backoff(memory.failures);
            memory.put();
            (Action::requeue(delay), Ended::Error)
        }
    }
}

/// The cache can lag behind our own last write.
fn newest(stored: &Arc<ClusterObjectSet>, memory: &Memory) -> Arc<ClusterObjectSet> {
    let number = |revision: &ClusterObjectSet| {
        revision.resource_version().and_then(|version| version.parse::<u64>().ok())
    };
    match &memory.written {
        Some(written) if number(written) > number(stored) => Arc::clone(written),
        _ => Arc::clone(stored),
    }
}

async fn pass(
    revision: &Arc<ClusterObjectSet>,
    shell: &Shell,
    memory: &mut Memory,
) -> Result<Option<Action>, kube::Error> {
    if revision.metadata.deletion_timestamp.is_some() {
        return delete(revision, shell, memory).await;
    }
    let now = Timestamp::now();
    let archived = revision.spec.lifecycle_state == LifecycleState::Archived;
    if archived && says_archived(revision) {
        // everything is gone already: nothing is torn down twice
        if has_finalizer(revision) {
            set_finalizer(revision, shell, memory, false).await?;
        }
        shell.world.release(&revision.uid().unwrap_or_default(), &std::collections::HashSet::new());
        // what is gone need not be looked for when the revision is deleted; nothing else of it is looked at any more
        let (written, gone) = (memory.written.take(), std::mem::take(&mut memory.gone));
        *memory = Memory { written, gone, ..Memory::default() };
        shell.memories.forget_inventory(&revision.uid().unwrap_or_default());
        return Ok(Some(Action::await_change()));
    }
    let revision =
        if archived { Arc::clone(revision) } else { set_finalizer(revision, shell, memory, true).await? };
    let found = if archived {
        archive(&revision, shell, memory).await
    } else {
        roll_out(&revision, shell, memory).await
    };
    let deadline = deadline(&revision, shell.intervals.minute, now, archived);
    let observed = memory.known.as_ref().map(|known| known.digests.clone());
    let mut held = None;
    let stored = match status(&revision, &found.outcome, deadline, observed, now) {
        Some(status) => {
            let succession = !archived && has_successor(&revision, shell);
            let before = revision.status.as_ref();
            match details::hold(&mut memory.held, before, &status, succession, Instant::now()) {
                Some(left) => {
                    held = Some(left);
                    None
                }
                None => Some(write_status(&revision, shell, status).await?),
            }
        }
        None => {
            memory.held = None;
            None
        }
    };
    if let Some(stored) = stored {
        memory.written = Some(Arc::clone(&stored));
        if archived && says_archived(&stored) {
            set_finalizer(&stored, shell, memory, false).await?;
            shell.world.release(&stored.uid().unwrap_or_default(), &std::collections::HashSet::new());
        }
    }
    let retry = found.retry.delay(&mut memory.failures);
    let wake = schedule::wake(retry, deadline);
    let wake = wake.into_iter().chain(held).min();
    Ok(Some(wake.map_or_else(Action::await_change, Action::requeue)))
}

async fn roll_out(revision: &Arc<ClusterObjectSet>, shell: &Shell, memory: &mut Memory) -> Pass {
    if let Err(error) = shell.know(revision, memory).await {
        return match error {
            ContentError::Blocked(text) => {
                shell.await_secrets(revision);
                Pass { outcome: Outcome::Blocked(text), retry: Retry::OnChange }
            }
            ContentError::Failed(text) => Pass { outcome: Outcome::Failed(text), retry: Retry::Backoff },
        };
    }
    if let Some(text) = memory.known.as_ref().and_then(|known| known.invalid()) {
        return Pass {
            outcome: Outcome::Refused(format!("revision validation error: {text}")),
            retry: Retry::OnChange,
        };
    }
    let siblings = shell.siblings(revision);
    let us = convert::us(revision);
    let paused = us.extension.as_deref().is_some_and(|extension| shell.extensions.facts(extension).paused);
    let rollout = Rollout {
        shell,
        revision,
        siblings: siblings.iter().map(|s| convert::sibling(s)).collect(),
        us,
        paused,
        problems: Problems::default(),
    };
    let outcome = rollout.run(memory).await;
    if outcome.is_complete() && !paused {
        let history: Vec<_> = siblings.iter().map(|sibling| convert::facts(sibling)).collect();
        for name in outdated_by(revision.spec.revision, &history) {
            if let Err(error) = archive_sibling(shell, name).await {
                let text = format!("archiving revision {name}: {}", text(&error));
                return Pass { outcome: Outcome::Failed(text), retry: Retry::Backoff };
            }
            info!(revision = %rollout.us.name, predecessor = %name, "archived predecessor");
        }
    }
    if let Outcome::Refused(text) = &outcome {
        shell.tell(revision, true, "Collision", text).await;
    }
    let retry = match &outcome {
        // a namespace is watched for
        Outcome::Failed(_) if rollout.lacks_only_namespaces() => Retry::After(schedule::MAX_RETRY_DELAY),
        Outcome::Failed(_) => rollout.left_alone().map_or(Retry::Backoff, Retry::BackoffWithin),
        // what stands in the way is watched; this is for what could not be
        Outcome::Refused(_) => Retry::After(schedule::MAX_RETRY_DELAY),
        _ => Retry::OnChange,
    };
    Pass { outcome, retry }
}

/// Is a newer revision of the same extension in force that has not succeeded yet?
fn has_successor(revision: &ClusterObjectSet, shell: &Shell) -> bool {
    shell.siblings(revision).iter().any(|sibling| {
        sibling.spec.revision > revision.spec.revision
            && !convert::is_retired(sibling)
            && !convert::succeeded(sibling)
    })
}

async fn archive_sibling(shell: &Shell, name: &str) -> Result<(), kube::Error> {
    let api: Api<ClusterObjectSet> = Api::all(shell.client.clone());
    let patch = json!({"spec": {"lifecycleState": "Archived"}});
    match api.patch(name, &params(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 404) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn archive(revision: &Arc<ClusterObjectSet>, shell: &Shell, memory: &mut Memory) -> Pass {
    // an object that a revision in force will take over must stay; until it is known what that one has, nothing goes
    let unknown = shell.siblings(revision).into_iter().find(|sibling| {
        let uid = sibling.uid().unwrap_or_default();
        !convert::is_retired(sibling) && !convert::succeeded(sibling) && !shell.memories.is_known(&uid)
    });
    if let Some(sibling) = unknown {
        let detail = Some(format!("waiting for the content of revision {}", sibling.name_any()));
        return Pass { outcome: Outcome::Removing(detail), retry: Retry::After(Duration::from_secs(1)) };
    }
    let removing = Removing {
        shell,
        revision,
        us: convert::us(revision),
        reason: Reason::Archive,
        successors: shell
            .siblings(revision)
            .iter()
            .filter(|sibling| !convert::is_retired(sibling))
            .filter_map(|sibling| sibling.uid())
            .collect(),
    };
    match removing.run(memory).await {
        Ok(Removed::All) => Pass { outcome: Outcome::Archived, retry: Retry::OnChange },
        Ok(Removed::Waiting { detail, after }) => {
            Pass { outcome: Outcome::Removing(detail), retry: Retry::After(after) }
        }
        Err(problem) => {
            let text = format!("error archiving revision: {problem}");
            Pass { outcome: Outcome::RemovalFailed(text), retry: Retry::Backoff }
        }
    }
}

/// The teardown on deletion. `None` when nothing is left to do.
async fn delete(
    revision: &Arc<ClusterObjectSet>,
    shell: &Shell,
    memory: &mut Memory,
) -> Result<Option<Action>, kube::Error> {
    if !has_finalizer(revision) {
        return Ok(None);
    }
    let now = Timestamp::now();
    let (outcome, retry) = match tear_down(revision, shell, memory, now).await {
        Ok(Removed::All) => {
            set_finalizer(revision, shell, memory, false).await?;
            info!(revision = %revision.name_any(), "removed");
            return Ok(None);
        }
        Ok(Removed::Waiting { detail, after }) => (Outcome::Removing(detail), after),
        Err(problem) => {
            memory.failures = memory.failures.saturating_add(1);
            let delay = schedule::backoff(memory.failures);
            (Outcome::RemovalFailed(format!("error removing revision: {problem}")), delay)
        }
    };
    if let Some(status) = status(revision, &outcome, Deadline::None, None, now) {
        memory.written = Some(write_status(revision, shell, status).await?);
    }
    Ok(Some(Action::requeue(retry)))
}

/// Custom resources first, then the objects; or all objects are released.
async fn tear_down(
    revision: &Arc<ClusterObjectSet>,
    shell: &Shell,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<Removed, String> {
    let extension = shell
        .extensions
        .for_teardown(&shell.client, revision, &mut memory.extension)
        .await
        .map_err(|error| format!("reading its ClusterExtension: {}", text(&error)))?;
    let reason = extensions::reason(revision, extension.as_ref());
    let deserted = extension.is_none() && extensions::is_owned_by_extension(revision);
    let facts = extension.unwrap_or_default();
    let since = elapsed(revision.metadata.deletion_timestamp.as_ref().map(|time| time.0), now);
    if let Some(later) = later_sibling(revision, shell, &facts, since) {
        let detail = Some(format!("waiting for revision {later} to be removed"));
        return Ok(Removed::Waiting { detail, after: schedule::TEARDOWN_INTERVAL });
    }
    let removing = Removing { shell, revision, us: convert::us(revision), reason, successors: vec![] };
    if reason == Reason::Delete
        && let Some(waiting) =
            removing.custom_resources(memory, &facts, since, shell.custom_resource_wait).await?
    {
        return Ok(waiting);
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
    shell: &Shell,
    facts: &super::extensions::Facts,
    since: Duration,
) -> Option<String> {
    let expected = |sibling: &ClusterObjectSet| {
        !facts.stays
            && since < LATE
            && !sibling.owner_references().is_empty()
            && !convert::is_retired(sibling)
    };
    shell
        .siblings(revision)
        .iter()
        .find(|sibling| {
            (sibling.metadata.deletion_timestamp.is_some() || expected(sibling))
                && has_finalizer(sibling)
                && sibling.spec.revision > revision.spec.revision
        })
        .map(|sibling| sibling.name_any())
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn has_finalizer(revision: &ClusterObjectSet) -> bool {
    revision.finalizers().iter().any(|finalizer| finalizer == finalizers::TEARDOWN)
}

/// Adds or removes our finalizer, with the resourceVersion as precondition; gives the revision as it then is.
async fn set_finalizer(
    revision: &Arc<ClusterObjectSet>,
    shell: &Shell,
    memory: &mut Memory,
    wanted: bool,
) -> Result<Arc<ClusterObjectSet>, kube::Error> {
    if has_finalizer(revision) == wanted {
        return Ok(Arc::clone(revision));
    }
    let mut list: Vec<String> = revision.finalizers().to_vec();
    if wanted {
        list.push(finalizers::TEARDOWN.to_owned());
    } else {
        list.retain(|finalizer| finalizer != finalizers::TEARDOWN);
    }
    let patch = json!({"metadata": {"finalizers": list, "resourceVersion": revision.resource_version()}});
    let api: Api<ClusterObjectSet> = Api::all(shell.client.clone());
    let stored = Arc::new(api.patch(&revision.name_any(), &params(), &Patch::Merge(&patch)).await?);
    memory.written = Some(Arc::clone(&stored));
    Ok(stored)
}

fn says_archived(revision: &ClusterObjectSet) -> bool {
    let conditions = revision.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|known| {
        known.type_ == condition::PROGRESSING
            && known.reason == reason::ARCHIVED
            && known.observed_generation == revision.metadata.generation
    })
}

fn deadline(revision: &ClusterObjectSet, minute: Duration, now: Timestamp, archived: bool) -> Deadline {
    let age = elapsed(revision.metadata.creation_timestamp.as_ref().map(|time| time.0), now);
    let inactive = archived || convert::succeeded(revision);
    schedule::deadline(revision.spec.progress_deadline_minutes.map(i64::from), minute, age, inactive)
}

fn elapsed(since: Option<Timestamp>, now: Timestamp) -> Duration {
    let seconds = since.map_or(0, |since| now.as_second().saturating_sub(since.as_second()));
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
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
    shell: &Shell,
    status: ClusterObjectSetStatus,
) -> Result<Arc<ClusterObjectSet>, kube::Error> {
    let patch = json!({
        "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
        "metadata": {"resourceVersion": revision.resource_version()},
        "status": status,
    });
    let api: Api<ClusterObjectSet> = Api::all(shell.client.clone());
    let stored = api.patch_status(&revision.name_any(), &params(), &Patch::Merge(&patch)).await?;
    debug!(revision = %revision.name_any(), "status written");
    Ok(Arc::new(stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_grows_within_its_limit() {
        let millis = Duration::from_millis;
        for (retry, before, want, after) in [
            (Retry::OnChange, 4, None, 0),
            (Retry::After(millis(7)), 4, Some(millis(7)), 0),
            (Retry::Backoff, 0, Some(millis(100)), 1),
            (Retry::Backoff, 10, Some(millis(102_400)), 11),
            (Retry::BackoffWithin(millis(30_000)), 0, Some(millis(100)), 1),
            (Retry::BackoffWithin(millis(30_000)), 10, Some(millis(30_000)), 11),
        ] {
            let mut failures = before;
            assert_eq!((retry.delay(&mut failures), failures), (want, after), "{retry:?} after {before}");
        }
    }

    #[test]
    fn an_apiserver_whose_clock_is_ahead_or_far_behind_breaks_no_sum() {
        let now = Timestamp::from_second(1_000).unwrap();
        for (since, want) in [
            (None, 0),
            (Some(Timestamp::from_second(900).unwrap()), 100),
            (Some(Timestamp::from_second(4_000).unwrap()), 0),
            (Some(Timestamp::MAX), 0),
        ] {
            assert_eq!(elapsed(since, now), Duration::from_secs(want), "{since:?}");
        }
        assert!(elapsed(Some(Timestamp::MIN), now) > Duration::from_secs(1_000));
    }
}
