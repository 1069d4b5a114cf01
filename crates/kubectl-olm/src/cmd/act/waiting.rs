//! Waiting for an extension or a catalog: what is waited for is printed to standard error whenever it changes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, Condition, condition, reason};
use olm_core::message::first_line;
use olm_rollout::report::readable;
use olm_runtime::duration::GoDuration;
use olm_runtime::error_text::chain;

use super::pause::is_paused;
use crate::cmd::output::{full_message, indented};
use crate::extensions::{self, UNINSTALLING, condition_of, is_deleted};
use crate::failure::{CommandError, print_note};
use crate::rights::in_words;
use crate::{interrupt, watch};

/// Whether and how long to wait.
#[derive(Debug, Args)]
pub(crate) struct Waiting {
    /// Wait until it is done; exit 1 if it can't be
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait at most, such as 90s or 10m
    #[arg(long, default_value = "5m", value_name = "DURATION")]
    timeout: GoDuration,
}

/// What is waited for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct WaitState {
    /// The first line of the message.
    line: String,
    /// The whole message.
    whole: String,
}

impl WaitState {
    fn new(head: &str, message: &str) -> Self {
        let whole = indented(full_message(message), "  ");
        Self { line: format!("{head}{}", first_line(message)), whole: format!("{head}{whole}") }
    }

    fn of_condition(found: &Condition) -> Self {
        Self::new(&format!("{}: ", found.reason), &found.message)
    }
}

/// What was printed about the states.
#[derive(Debug, Default)]
struct Progress {
    last: RefCell<WaitState>,
    /// The last line.
    printed: RefCell<String>,
    /// Lines about a rollout, which returns between waits for its objects.
    rollouts: RefCell<BTreeSet<String>>,
}

impl Progress {
    /// Prints the line of the state, unless it was printed just now.
    fn print(&self, state: WaitState) {
        if self.is_new(&state.line) {
            print_note(&state.line);
        }
        self.last.replace(state);
    }

    /// Whether the line is to be printed; then it is recorded as printed.
    fn is_new(&self, line: &str) -> bool {
        let is_rollout = line.starts_with(&format!("{}: ", reason::ROLLING_OUT));
        let is_known = is_rollout && !self.rollouts.borrow_mut().insert(line.to_owned());
        !is_known && self.printed.replace(line.to_owned()) != line
    }

    /// Prints the whole message of the state with which a wait ends in vain.
    fn print_whole(&self, state: &WaitState) {
        if *self.printed.borrow() != state.whole {
            print_note(&state.whole);
        }
    }

    /// What is printed after the time is over.
    fn timed_out(&self, limit: Duration, hint: &str) -> String {
        let last = &self.last.borrow().whole;
        let last = if last.is_empty() { " ".to_owned() } else { format!(" Last state: {last}\n") };
        format!("timed out after {limit:?}; it continues in the cluster.{last}{hint}")
    }
}

/// A change of the extension or of one of its revisions.
enum Change {
    /// `None`: it is gone.
    Extension(Option<Box<ClusterExtension>>),
    Revision(Box<ClusterObjectSet>),
}

impl Waiting {
    /// Waits until the extension is Ready for the generation that was stored, or cannot become Ready. Returns its last state, and
    /// whether it is Ready. `undo` is the command that takes the change back.
    pub(crate) async fn ready(
        &self,
        client: &Client,
        stored: &ClusterExtension,
        undo: &str,
    ) -> Result<(ClusterExtension, bool), CommandError> {
        let name = stored.name_any();
        if is_paused(stored) {
            print_note(&format!(
                "clusterextension/{name} is paused, so nothing happens; run `kubectl olm resume {name}`"
            ));
            return Ok((stored.clone(), false));
        }
        let mut last = stored.clone();
        let progress = Progress::default();
        let follow = async {
            let own = watch::states(client, stored);
            let sets = watch::revisions(client, &name).applied_objects();
            let own = own.map_ok(|extension| Change::Extension(extension.map(Box::new)));
            let sets = sets.map_ok(|set| Change::Revision(Box::new(set)));
            let mut changes = std::pin::pin!(futures::stream::select(own.boxed(), sets.boxed()));
            let mut newest: Option<ClusterObjectSet> = None;
            while let Some(change) = changes.try_next().await? {
                match change {
                    Change::Extension(None) => {
                        print_note(&format!("clusterextension/{name} is gone"));
                        return Ok(false);
                    }
                    Change::Extension(Some(extension)) => last = *extension,
                    Change::Revision(set) => {
                        let is_newer = |newest: &ClusterObjectSet| set.spec.revision >= newest.spec.revision;
                        if newest.as_ref().is_none_or(is_newer) {
                            newest = Some(*set);
                        }
                    }
                }
                if let Some(done) = end(&last, stored.metadata.generation) {
                    if let Err(deleted) = extensions::refuse_deleted(&last) {
                        print_note(&deleted.to_string());
                    } else if !done
                        && !is_paused(&last)
                        && let Some(state) = waited_for(&last, stored, None)
                    {
                        progress.print_whole(&state);
                    }
                    return Ok(done);
                }
                if let Some(state) = waited_for(&last, stored, newest.as_ref()) {
                    progress.print(state);
                }
            }
            Ok(false)
        };
        let ready = self.within(follow, &progress, &format!("To undo: {undo}")).await?;
        if is_paused(&last) {
            print_note(&format!("clusterextension/{name} was paused; `kubectl olm resume {name}` ends that"));
        }
        Ok((last, ready))
    }

    /// Waits until the catalog is served.
    pub(crate) async fn served(
        &self,
        client: &Client,
        stored: &ClusterCatalog,
        undo: &str,
    ) -> Result<bool, CommandError> {
        let progress = Progress::default();
        let follow = async {
            let mut states = std::pin::pin!(watch::states(client, stored));
            while let Some(catalog) = states.try_next().await? {
                let Some(catalog) = catalog else {
                    print_note(&format!("clustercatalog/{} is gone", stored.name_any()));
                    return Ok(false);
                };
                let conditions = catalog.status.map(|status| status.conditions).unwrap_or_default();
                if condition::is_true(&conditions, condition::SERVING) {
                    return Ok(true);
                }
                let Some(progressing) = condition::find(&conditions, condition::PROGRESSING) else {
                    continue;
                };
                let state = WaitState::of_condition(progressing);
                if progressing.status.as_str() == "False" {
                    progress.print_whole(&state);
                    return Ok(false);
                }
                progress.print(state);
            }
            Ok(false)
        };
        self.within(follow, &progress, &format!("To undo: {undo}")).await
    }

    /// Waits until the extension is gone.
    pub(crate) async fn gone(
        &self,
        client: &Client,
        extension: &ClusterExtension,
    ) -> Result<bool, CommandError> {
        let progress = Progress::default();
        let follow = async {
            let mut states = std::pin::pin!(watch::states(client, extension));
            while let Some(state) = states.try_next().await? {
                let Some(found) = state else { return Ok(true) };
                // before, its condition is that of the last rollout
                let progressing = condition_of(&found, condition::PROGRESSING)
                    .filter(|found| found.message.starts_with(UNINSTALLING));
                if let Some(progressing) = progressing {
                    progress.print(WaitState::new("", &progressing.message));
                }
            }
            Ok(false)
        };
        self.within(follow, &progress, "A deletion cannot be undone.").await
    }

    async fn within(
        &self,
        follow: impl Future<Output = Result<bool, watcher::Error>>,
        progress: &Progress,
        hint: &str,
    ) -> Result<bool, CommandError> {
        let GoDuration(limit) = self.timeout;
        let limit = limit.max(Duration::from_secs(1));
        tokio::select! {
            followed = tokio::time::timeout(limit, follow) => match followed {
                Ok(Ok(done)) => Ok(done),
                Ok(Err(error)) => Err(CommandError::Unreachable(format!(
                    "cannot watch: {}; it continues in the cluster. {hint}",
                    in_words(&chain(&error))
                ))),
                Err(_) => {
                    print_note(&progress.timed_out(limit, hint));
                    Ok(false)
                }
            },
            () = interrupt::received() => {
                print_note(&format!("\ninterrupted; it continues in the cluster. {hint}"));
                Err(CommandError::Interrupted)
            }
        }
    }
}

/// Whether waiting ends: with success, or because nothing more can happen.
fn end(extension: &ClusterExtension, generation: Option<i64>) -> Option<bool> {
    let is_true = |type_: &str| {
        let found = condition_of(extension, type_).filter(|found| found.observed_generation >= generation);
        found.is_some_and(|found| found.status.as_str() == "True")
    };
    if is_deleted(extension) || is_paused(extension) || is_true(condition::STALLED) {
        return Some(false);
    }
    is_true(condition::READY).then_some(true)
}

/// What an extension waits for since it was stored: the objects of its newest revision, else the message of its condition `Progressing`.
fn waited_for(
    extension: &ClusterExtension,
    stored: &ClusterExtension,
    newest: Option<&ClusterObjectSet>,
) -> Option<WaitState> {
    let before = condition_of(stored, condition::PROGRESSING);
    let progressing = condition_of(extension, condition::PROGRESSING)
        .filter(|found| found.observed_generation >= stored.metadata.generation)
        // the success of an earlier request
        .filter(|found| found.reason != reason::SUCCEEDED || before != Some(found))
        .map(WaitState::of_condition);
    let active = newest.filter(|set| {
        set.spec.lifecycle_state == LifecycleState::Active && set.metadata.deletion_timestamp.is_none()
    });
    let unavailable = active.and_then(|set| {
        let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let found = condition::find(conditions, condition::AVAILABLE)?;
        let is_waiting = found.status.as_str() != "True" && !found.message.is_empty();
        is_waiting.then(|| {
            if found.reason == reason::PROBE_FAILURE {
                let lines: Vec<String> = found.message.lines().map(readable).collect();
                WaitState::new("waiting for ", &lines.join("\n"))
            } else {
                let head = format!("waiting for {}: {}: ", set.name_any(), found.reason);
                WaitState::new(&head, &found.message)
            }
        })
    });
    unavailable.or(progressing)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::stand_in;

    fn condition(type_: &str, status: &str, reason: &str, message: &str, generation: i64) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation})
    }

    fn extension(annotations: &Value, conditions: &[Value]) -> ClusterExtension {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
            "metadata": {"name": "x", "generation": 2, "annotations": annotations},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn with_conditions(conditions: &[Value]) -> ClusterExtension {
        extension(&json!({}), conditions)
    }

    #[test]
    fn wait_ends_when_nothing_can_happen() {
        let ready = |status: &str, generation| condition("Ready", status, "R", "", generation);
        let stalled = |generation| condition("Stalled", "True", "S", "", generation);
        let none = json!({});
        let paused = json!({"olm.operatorframework.io/paused": "true"});
        // the controller ignores other values
        let misspelt = json!({"olm.operatorframework.io/paused": "yes"});
        for (annotations, conditions, want) in [
            (&none, vec![], None),
            (&none, vec![ready("True", 2)], Some(true)),
            (&none, vec![ready("True", 1)], None),
            (&none, vec![ready("False", 2), stalled(2)], Some(false)),
            (&none, vec![ready("False", 2), stalled(1)], None),
            (&paused, vec![ready("True", 2)], Some(false)),
            (&misspelt, vec![ready("False", 2)], None),
        ] {
            assert_eq!(
                end(&extension(annotations, &conditions), Some(2)),
                want,
                "{annotations} {conditions:?}"
            );
        }
    }

    /// An extension as the apiserver stores it.
    fn persisted(uid: &str, conditions: &[Value]) -> ClusterExtension {
        let mut extension = with_conditions(conditions);
        extension.metadata.uid = Some(uid.to_owned());
        extension.metadata.resource_version = Some("2".to_owned());
        extension
    }

    /// Waits for an extension that is not Ready yet, whose watch is answered like this, one request after the other.
    async fn waited(answers: Vec<(u16, String)>) -> Result<bool, CommandError> {
        let first = persisted("u", &[]);
        let listed = json!([first]);
        let answers = Mutex::new(answers.into_iter());
        let client = stand_in::cluster(move |request| {
            let is_extension = request.contains("/clusterextensions?");
            if request.contains("watch=true") {
                return if is_extension { answers.lock().unwrap().next() } else { None };
            }
            let items = if is_extension { listed.clone() } else { json!([]) };
            Some(stand_in::list(&items))
        });
        let waiting = Waiting { wait: true, timeout: GoDuration(Duration::from_secs(30)) };
        waiting.ready(&client, &first, "undo").await.map(|(_, ready)| ready)
    }

    #[tokio::test]
    async fn wait_survives_interruptions_and_ends_with_its_object() {
        let event = |type_: &str, extension: &ClusterExtension| {
            (200, json!({"type": type_, "object": extension}).to_string() + "\n")
        };
        let ready = persisted("u", &[condition("Ready", "True", "R", "", 2)]);
        let mut deleted = persisted("u", &[]);
        deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let expired = json!({"type": "ERROR", "object": {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "the storage is gone"}});
        for (case, answers, want) in [
            ("restart", vec![stand_in::failure(503, "shutting down"), event("MODIFIED", &ready)], true),
            ("error in the watch", vec![(200, format!("{expired}\n")), event("MODIFIED", &ready)], true),
            ("gone", vec![event("DELETED", &persisted("u", &[]))], false),
            ("being deleted", vec![event("MODIFIED", &deleted)], false),
            (
                "another one",
                vec![event("ADDED", &persisted("v", &[condition("Ready", "True", "R", "", 2)]))],
                false,
            ),
        ] {
            let started = std::time::Instant::now();
            let got = waited(answers).await.map_err(|failure| failure.to_string());
            assert_eq!(got, Ok(want), "{case}");
            assert!(started.elapsed() < Duration::from_secs(20), "{case}: it is waited for");
        }
    }

    #[test]
    fn wait_names_the_object_that_is_not_available() {
        let set = |lifecycle: &str, status: &str, message: &str| -> ClusterObjectSet {
            serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": {"name": "x-2"},
                "spec": {"revision": 2, "lifecycleState": lifecycle, "phases": [], "collisionProtection": "Prevent"},
                "status": {"conditions": [condition("Available", status, "ProbeFailure", message, 1)]},
            }))
            .unwrap()
        };
        let rolling = extension(
            &json!({}),
            &[condition("Progressing", "True", "RollingOut", "Revision 2 is rolling out.", 2)],
        );
        let rolling_out = "RollingOut: Revision 2 is rolling out.";
        let lagging =
            "Object CustomResourceDefinition.apiextensions.k8s.io/v1 /aops.x: malformed .status.conditions";
        for (set, want) in [
            (None, rolling_out),
            (Some(set("Active", "Unknown", "")), rolling_out),
            (Some(set("Active", "True", "all")), rolling_out),
            (Some(set("Archived", "False", "gone")), rolling_out),
            (
                Some(set("Active", "False", "Deployment a/b: quota exceeded\nmore")),
                "waiting for Deployment a/b: quota exceeded",
            ),
            (
                Some(set("Active", "False", lagging)),
                "waiting for CustomResourceDefinition aops.x has no conditions yet",
            ),
        ] {
            let state = waited_for(&rolling, &with_conditions(&[]), set.as_ref()).unwrap_or_default();
            assert_eq!(state.line, want);
        }
        let later = |generation| {
            let mut later = with_conditions(&[]);
            later.metadata.generation = Some(generation);
            later
        };
        assert_eq!(waited_for(&with_conditions(&[]), &with_conditions(&[]), None), None);
        assert_eq!(waited_for(&rolling, &later(3), None), None, "of an earlier generation");
    }

    #[test]
    fn wait_prints_no_success_of_an_earlier_request() {
        let succeeded =
            |message: &str| with_conditions(&[condition("Progressing", "True", "Succeeded", message, 2)]);
        let retrying = with_conditions(&[condition("Progressing", "True", "Retrying", "m", 2)]);
        for (now, before, want) in [
            (&succeeded("1"), &succeeded("1"), None),
            (&succeeded("2"), &succeeded("1"), Some("Succeeded: 2")),
            (&retrying, &retrying, Some("Retrying: m")),
        ] {
            let state = waited_for(now, before, None);
            assert_eq!(state.as_ref().map(|state| state.line.as_str()), want);
        }
    }

    #[test]
    fn wait_prints_each_state_once_and_the_last_in_full() {
        let progress = Progress::default();
        for (line, want) in [
            ("RollingOut: Revision 2 is rolling out.", true),
            ("waiting for Deployment a/b: 0 of 1", true),
            ("waiting for Deployment a/b: 0 of 1", false),
            ("RollingOut: Revision 2 is rolling out.", false),
            ("waiting for Deployment a/b: 0 of 1", false),
            ("waiting for Deployment a/c: 0 of 1", true),
            ("waiting for Deployment a/b: 0 of 1", true),
        ] {
            assert_eq!(progress.is_new(line), want, "{line}");
        }
        let (limit, hint) = (Duration::from_secs(5), "To undo: `undo`");
        progress.last.replace(WaitState::new("Retrying: ", "refused\ndetail"));
        let end = "timed out after 5s; it continues in the cluster.";
        assert_eq!(
            progress.timed_out(limit, hint),
            format!("{end} Last state: Retrying: refused\n  detail\nTo undo: `undo`")
        );
        assert_eq!(Progress::default().timed_out(limit, hint), format!("{end} To undo: `undo`"));
    }
}
