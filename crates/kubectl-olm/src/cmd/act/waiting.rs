//! Waiting for an extension: changes of its `Progressing` condition are printed to standard error.

use std::time::Duration;

use clap::Args;
use futures::TryStreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, condition};
use olm_runtime::duration::GoDuration;
use olm_runtime::error_text::chain;
use serde::de::DeserializeOwned;

use crate::extensions::condition_of;
use crate::failure::{CommandError, print_note};

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
    /// Waits until the extension is Ready for the generation that was stored, or is stalled. Returns its last state, and
    /// whether it is Ready.
    pub(crate) async fn ready(
        &self,
        client: &Client,
        stored: &ClusterExtension,
    ) -> Result<(ClusterExtension, bool), CommandError> {
        let mut last = stored.clone();
        let generation = stored.metadata.generation;
        let follow = async {
            let mut states =
                std::pin::pin!(changes::<ClusterExtension>(client, &stored.name_any()).applied_objects());
            let mut printed = String::new();
            while let Some(extension) = states.try_next().await? {
                last = extension;
                let current = |type_: &str| {
                    condition_of(&last, type_).filter(|found| found.observed_generation >= generation)
                };
                if let Some(progressing) = current(condition::PROGRESSING) {
                    let line = format!("{}: {}", progressing.reason, progressing.message);
                    print_changed(&mut printed, line);
                }
                if current(condition::READY).is_some_and(|found| found.status.as_str() == "True") {
                    return Ok(true);
                }
                if current(condition::STALLED).is_some_and(|found| found.status.as_str() == "True") {
                    return Ok(false);
                }
            }
            Ok(false)
        };
        self.within(follow).await.map(|ready| (last, ready))
    }

    /// Waits until the catalog is served.
    pub(crate) async fn served(
        &self,
        client: &Client,
        stored: &ClusterCatalog,
    ) -> Result<bool, CommandError> {
        let follow = async {
            let states = changes::<ClusterCatalog>(client, &stored.name_any()).applied_objects();
            let (mut states, mut printed) = (std::pin::pin!(states), String::new());
            while let Some(catalog) = states.try_next().await? {
                let conditions = catalog.status.map(|status| status.conditions).unwrap_or_default();
                if condition::is_true(&conditions, condition::SERVING) {
                    return Ok(true);
                }
                let Some(progressing) = condition::find(&conditions, condition::PROGRESSING) else {
                    continue;
                };
                print_changed(&mut printed, format!("{}: {}", progressing.reason, progressing.message));
                if progressing.status.as_str() == "False" {
                    return Ok(false);
                }
            }
            Ok(false)
        };
        self.within(follow).await
    }

    /// Waits until the extension is gone.
    pub(crate) async fn gone(
        &self,
        client: &Client,
        extension: &ClusterExtension,
    ) -> Result<bool, CommandError> {
        let uid = extension.uid();
        let follow = async {
            let mut events = std::pin::pin!(changes::<ClusterExtension>(client, &extension.name_any()));
            let (mut seen, mut printed) = (false, String::new());
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
                        if let Some(progressing) = condition_of(&found, condition::PROGRESSING)
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
        self.within(follow).await
    }

    async fn within(
        &self,
        follow: impl Future<Output = Result<bool, watcher::Error>>,
    ) -> Result<bool, CommandError> {
        let GoDuration(limit) = self.timeout;
        match tokio::time::timeout(limit.max(Duration::from_secs(1)), follow).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(CommandError::Unreachable(format!("cannot watch: {}", chain(&error)))),
            Err(_) => {
                print_note(&format!("not done within {limit:?}; it goes on in the cluster"));
                Ok(false)
            }
        }
    }
}

fn print_changed(printed: &mut String, line: String) {
    if *printed != line {
        print_note(&line);
        *printed = line;
    }
}

/// A kind of OLM.
trait Watched:
    kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static
{
}

impl Watched for ClusterExtension {}
impl Watched for ClusterCatalog {}

fn changes<K: Watched>(
    client: &Client,
    name: &str,
) -> impl futures::Stream<Item = Result<watcher::Event<K>, watcher::Error>> + use<K> {
    let api: Api<K> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(api, config).backoff(olm_runtime::backoff::of_watch())
}
