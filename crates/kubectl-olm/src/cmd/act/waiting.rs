//! Waiting for an extension: what is waited for is printed to standard error, and again when the time is over.

use std::time::Duration;

use clap::Args;
use futures::TryStreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterExtension, annotations, condition};
use olm_runtime::duration::GoDuration;
use olm_runtime::error_text::chain;

use crate::extensions::condition_of;
use crate::failure::{CommandError, print_note};

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

impl Waiting {
    /// Waits until the extension is Ready for the generation that was stored, or is stalled or paused. Returns its last state, and
    /// whether it is Ready.
    pub(crate) async fn ready(
        &self,
        client: &Client,
        stored: &ClusterExtension,
    ) -> Result<(ClusterExtension, bool), CommandError> {
        let mut last = stored.clone();
        let mut printed = String::new();
        let generation = stored.metadata.generation;
        let follow = async {
            let mut states = std::pin::pin!(changes(client, &stored.name_any()).applied_objects());
            while let Some(extension) = states.try_next().await? {
                last = extension;
                if is_paused(&last) {
                    return Ok(false);
                }
                if let Some(line) = line(&last, generation)
                    && line != printed
                {
                    print_note(&line);
                    printed = line;
                }
                if let Some(is_ready) = end(&last, generation) {
                    return Ok(is_ready);
                }
            }
            Ok(false)
        };
        let ready = self.within(follow).await?;
        if is_paused(&last) {
            let name = last.name_any();
            print_note(&format!(
                "ClusterExtension {name} is paused, so nothing happens; resume it with: kubectl annotate clusterextension {name} {}-",
                annotations::PAUSED
            ));
        } else if ready.is_none() {
            self.print_timeout("rollout", &printed);
        }
        Ok((last, ready.unwrap_or(false)))
    }

    /// Waits until the extension is gone.
    pub(crate) async fn gone(
        &self,
        client: &Client,
        extension: &ClusterExtension,
    ) -> Result<bool, CommandError> {
        let uid = extension.uid();
        let mut printed = String::new();
        let follow = async {
            let mut events = std::pin::pin!(changes(client, &extension.name_any()));
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
                        if let Some(progressing) = progressing
                            && progressing.message != printed
                        {
                            print_note(&progressing.message);
                            printed.clone_from(&progressing.message);
                        }
                    }
                }
            }
            Ok(false)
        };
        let gone = self.within(follow).await?;
        if gone.is_none() {
            self.print_timeout("uninstall", printed.strip_prefix(UNINSTALLING).unwrap_or(&printed));
        }
        Ok(gone.unwrap_or(false))
    }

    /// The result of `follow`; `None` when it takes too long.
    async fn within(
        &self,
        follow: impl Future<Output = Result<bool, watcher::Error>>,
    ) -> Result<Option<bool>, CommandError> {
        let GoDuration(limit) = self.timeout;
        match tokio::time::timeout(limit.max(Duration::from_secs(1)), follow).await {
            Ok(Ok(done)) => Ok(Some(done)),
            Ok(Err(error)) => Err(CommandError::Unreachable(format!("cannot watch: {}", chain(&error)))),
            Err(_) => Ok(None),
        }
    }

    fn print_timeout(&self, what: &str, last: &str) {
        let GoDuration(limit) = self.timeout;
        let waiting = if last.is_empty() { String::new() } else { format!(". Last state: {last}") };
        print_note(&format!("timed out after {limit:?}; the {what} continues in the cluster{waiting}"));
    }
}

/// What is waited for: the reason and message of `Ready`, which names the object that is not available.
fn line(extension: &ClusterExtension, generation: Option<i64>) -> Option<String> {
    let current =
        |type_: &str| condition_of(extension, type_).filter(|found| found.observed_generation >= generation);
    let found = current(condition::READY)
        .filter(|found| found.status.as_str() != "True")
        .or_else(|| current(condition::PROGRESSING))?;
    Some(format!("{}: {}", found.reason, found.message))
}

/// Whether the extension is Ready, once it is that or stalled.
fn end(extension: &ClusterExtension, generation: Option<i64>) -> Option<bool> {
    let is_true = |type_: &str| {
        condition_of(extension, type_)
            .is_some_and(|found| found.observed_generation >= generation && found.status.as_str() == "True")
    };
    match (is_true(condition::READY), is_true(condition::STALLED)) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

fn is_paused(extension: &ClusterExtension) -> bool {
    extension.annotations().get(annotations::PAUSED).is_some_and(|value| value == "true")
}

fn changes(
    client: &Client,
    name: &str,
) -> impl futures::Stream<Item = Result<watcher::Event<ClusterExtension>, watcher::Error>> + use<> {
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(api, config).backoff(olm_runtime::backoff::of_watch())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn extension(conditions: Value) -> ClusterExtension {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "x"},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn waiting_ignores_conditions_of_an_older_spec() {
        let condition = |type_: &str, status: &str, generation: i64| {
            json!({"type": type_, "status": status, "reason": "R", "message": format!("{type_} {status}"),
                "observedGeneration": generation, "lastTransitionTime": "2030-01-01T00:00:00Z"})
        };
        for (conditions, want_end, want_line) in [
            (json!([condition("Ready", "True", 1), condition("Progressing", "True", 1)]), None, None),
            (
                json!([condition("Ready", "False", 2), condition("Progressing", "True", 2)]),
                None,
                Some("R: Ready False"),
            ),
            (
                json!([condition("Ready", "True", 2), condition("Progressing", "True", 2)]),
                Some(true),
                Some("R: Progressing True"),
            ),
            (
                json!([condition("Ready", "False", 2), condition("Stalled", "True", 2)]),
                Some(false),
                Some("R: Ready False"),
            ),
        ] {
            let found = extension(conditions.clone());
            assert_eq!(end(&found, Some(2)), want_end, "{conditions}");
            assert_eq!(line(&found, Some(2)).as_deref(), want_line, "{conditions}");
        }
    }
}
