//! Waiting for an extension or a catalog: what is waited for is printed to standard error whenever it changes.

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, condition};
use olm_runtime::duration::GoDuration;
use olm_runtime::error_text::chain;

use super::pause::is_paused;
use crate::extensions::condition_of;
use crate::failure::{CommandError, print_note};
use crate::{interrupt, watch};

/// The message of `Progressing` begins with this while an extension is uninstalled.
const UNINSTALLING: &str = "uninstalling: ";

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
#[derive(Debug, Default)]
struct Progress {
    line: RefCell<String>,
}

impl Progress {
    /// Prints the line, unless it is the last one.
    fn print(&self, line: String) {
        if *self.line.borrow() != line {
            print_note(&line);
            self.line.replace(line);
        }
    }
}

/// A change of the extension or of one of its revisions.
enum Change {
    Extension(Box<ClusterExtension>),
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
        let (mut last, generation) = (stored.clone(), stored.metadata.generation);
        let progress = Progress::default();
        let follow = async {
            let own = watch::single::<ClusterExtension>(client, &name).applied_objects();
            let sets = watch::revisions(client, &name).applied_objects();
            let own = own.map_ok(|extension| Change::Extension(Box::new(extension)));
            let sets = sets.map_ok(|set| Change::Revision(Box::new(set)));
            let mut changes = std::pin::pin!(futures::stream::select(own.boxed(), sets.boxed()));
            let mut newest: Option<ClusterObjectSet> = None;
            while let Some(change) = changes.try_next().await? {
                match change {
                    Change::Extension(extension) => last = *extension,
                    Change::Revision(set) => {
                        let is_newer = |newest: &ClusterObjectSet| set.spec.revision >= newest.spec.revision;
                        if newest.as_ref().is_none_or(is_newer) {
                            newest = Some(*set);
                        }
                    }
                }
                if let Some(done) = end(&last, generation) {
                    if !done {
                        progress.print(waited_for(&last, generation, None).unwrap_or_default());
                    }
                    return Ok(done);
                }
                if let Some(line) = waited_for(&last, generation, newest.as_ref()) {
                    progress.print(line);
                }
            }
            Ok(false)
        };
        let ready = self.within(follow, &progress, undo).await?;
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
            let states = watch::single::<ClusterCatalog>(client, &stored.name_any()).applied_objects();
            let mut states = std::pin::pin!(states);
            while let Some(catalog) = states.try_next().await? {
                let conditions = catalog.status.map(|status| status.conditions).unwrap_or_default();
                if condition::is_true(&conditions, condition::SERVING) {
                    return Ok(true);
                }
                let Some(progressing) = condition::find(&conditions, condition::PROGRESSING) else {
                    continue;
                };
                progress.print(format!("{}: {}", progressing.reason, progressing.message));
                if progressing.status.as_str() == "False" {
                    return Ok(false);
                }
            }
            Ok(false)
        };
        self.within(follow, &progress, undo).await
    }

    /// Waits until the extension is gone.
    pub(crate) async fn gone(
        &self,
        client: &Client,
        extension: &ClusterExtension,
    ) -> Result<bool, CommandError> {
        let uid = extension.uid();
        let progress = Progress::default();
        let follow = async {
            let mut events = std::pin::pin!(watch::single::<ClusterExtension>(client, &extension.name_any()));
            let mut seen = false;
            while let Some(event) = events.try_next().await? {
                match event {
                    watcher::Event::Delete(_) => return Ok(true),
                    watcher::Event::InitDone if !seen => return Ok(true),
                    watcher::Event::Init | watcher::Event::InitDone => {}
                    watcher::Event::InitApply(found) | watcher::Event::Apply(found) => {
                        if found.uid() != uid {
                            return Ok(true);
                        }
                        seen = true;
                        // before, its condition is that of the last rollout
                        let progressing = condition_of(&found, condition::PROGRESSING)
                            .filter(|found| found.message.starts_with(UNINSTALLING));
                        if let Some(progressing) = progressing {
                            progress.print(first_line(&progressing.message).to_owned());
                        }
                    }
                }
            }
            Ok(false)
        };
        self.within(follow, &progress, "a deletion cannot be undone").await
    }

    async fn within(
        &self,
        follow: impl Future<Output = Result<bool, watcher::Error>>,
        progress: &Progress,
        undo: &str,
    ) -> Result<bool, CommandError> {
        let GoDuration(limit) = self.timeout;
        let limit = limit.max(Duration::from_secs(1));
        tokio::select! {
            followed = tokio::time::timeout(limit, follow) => match followed {
                Ok(Ok(done)) => Ok(done),
                Ok(Err(error)) => Err(CommandError::Unreachable(format!("cannot watch: {}", chain(&error)))),
                Err(_) => {
                    let line = progress.line.borrow();
                    let last = if line.is_empty() { String::new() } else { format!(" Last state: {line}.") };
                    print_note(&format!("timed out after {limit:?}; it continues in the cluster.{last} To undo: {undo}"));
                    Ok(false)
                }
            },
            () = interrupt::received() => {
                print_note(&format!("\ninterrupted; it continues in the cluster. To undo: {undo}"));
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
    if is_paused(extension) || is_true(condition::STALLED) {
        return Some(false);
    }
    is_true(condition::READY).then_some(true)
}

/// What an extension waits for: the objects of its newest revision, else the message of its condition `Progressing`.
fn waited_for(
    extension: &ClusterExtension,
    generation: Option<i64>,
    newest: Option<&ClusterObjectSet>,
) -> Option<String> {
    let progressing = condition_of(extension, condition::PROGRESSING)
        .filter(|found| found.observed_generation >= generation)
        .map(|found| format!("{}: {}", found.reason, first_line(&found.message)));
    let active = newest.filter(|set| {
        set.spec.lifecycle_state == LifecycleState::Active && set.metadata.deletion_timestamp.is_none()
    });
    let unavailable = active.and_then(|set| {
        let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let found = condition::find(conditions, condition::AVAILABLE)?;
        let is_waiting = found.status.as_str() != "True" && !found.message.is_empty();
        is_waiting.then(|| {
            format!("waiting for {}: {}: {}", set.name_any(), found.reason, first_line(&found.message))
        })
    });
    unavailable.or(progressing)
}

/// `kubectl olm status` shows the rest.
fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
        for (set, want) in [
            (None, rolling_out),
            (Some(set("Active", "Unknown", "")), rolling_out),
            (Some(set("Active", "True", "all")), rolling_out),
            (Some(set("Archived", "False", "gone")), rolling_out),
            (
                Some(set("Active", "False", "Deployment a/b: quota exceeded\nmore")),
                "waiting for x-2: ProbeFailure: Deployment a/b: quota exceeded",
            ),
        ] {
            assert_eq!(waited_for(&rolling, Some(2), set.as_ref()).as_deref(), Some(want));
        }
        assert_eq!(waited_for(&extension(&json!({}), &[]), Some(2), None), None);
        assert_eq!(waited_for(&rolling, Some(3), None), None, "of an earlier generation");
    }
}
