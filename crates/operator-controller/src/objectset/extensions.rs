//! What the engine must know of ClusterExtensions: their annotations and whether they are being deleted. Metadata only.
//!
//! Rule: decision 11 (deletion policies), pause.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use futures::StreamExt;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use olm_api::{ClusterExtension, annotations};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::world::{read, write};

/// What counts of an extension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Facts {
    /// Nothing of it shall be changed for the time being.
    pub(super) paused: bool,
    /// Its objects stay when it is deleted.
    pub(super) keep: bool,
    /// It must not be removed while custom resources exist.
    pub(super) protect: bool,
    /// It is there and nobody deleted it.
    pub(super) stays: bool,
}

/// The facts of all extensions.
pub(super) struct Extensions {
    facts: Arc<RwLock<HashMap<String, Facts>>>,
    synced: watch::Receiver<bool>,
}

impl Extensions {
    /// Starts the watch; names of extensions whose facts changed are sent to `changed`.
    pub(super) fn start(
        client: Client,
        changed: mpsc::Sender<String>,
        tasks: &mut tokio::task::JoinSet<()>,
    ) -> Self {
        let facts = Arc::new(RwLock::new(HashMap::new()));
        let (state, synced) = watch::channel(false);
        tasks.spawn(follow(client, changed, Arc::clone(&facts), state));
        Self { facts, synced }
    }

    /// The facts of an extension; all off when there is no such extension (any more).
    pub(super) fn facts(&self, name: &str) -> Facts {
        read(&self.facts).get(name).cloned().unwrap_or_default()
    }

    /// Waits for the first listing.
    pub(super) async fn synced(&self) {
        let _ = self.synced.clone().wait_for(|synced| *synced).await;
    }
}

async fn follow(
    client: Client,
    changed: mpsc::Sender<String>,
    facts: Arc<RwLock<HashMap<String, Facts>>>,
    state: watch::Sender<bool>,
) {
    let api: Api<PartialObjectMeta<ClusterExtension>> = Api::all(client);
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut listing = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listing = HashMap::new(),
            Ok(watcher::Event::InitApply(extension)) => {
                listing.insert(extension.name_any(), digest(&extension));
            }
            Ok(watcher::Event::InitDone) => {
                let now = std::mem::take(&mut listing);
                let before = std::mem::replace(&mut *write(&facts), now.clone());
                state.send_replace(true);
                for (name, facts) in &now {
                    if before.get(name).is_some_and(|known| known != facts) {
                        let _ = changed.send(name.clone()).await;
                    }
                }
            }
            Ok(watcher::Event::Apply(extension)) => {
                let now = digest(&extension);
                let before = write(&facts).insert(extension.name_any(), now.clone());
                if before.is_some_and(|before| before != now) {
                    let _ = changed.send(extension.name_any()).await;
                }
            }
            Ok(watcher::Event::Delete(extension)) => {
                write(&facts).remove(&extension.name_any());
                let _ = changed.send(extension.name_any()).await;
            }
            Err(error) => warn!(%error, "watch of extensions failed"),
        }
    }
}

fn digest(extension: &PartialObjectMeta<ClusterExtension>) -> Facts {
    let annotation = |key: &str| extension.annotations().get(key).map(String::as_str);
    Facts {
        paused: annotation(annotations::PAUSED) == Some("true"),
        keep: annotation(annotations::DELETION_POLICY) == Some(annotations::DELETION_POLICY_KEEP),
        protect: annotation(annotations::PROTECT_CUSTOM_RESOURCES) == Some("true"),
        stays: extension.metadata.deletion_timestamp.is_none(),
    }
}
