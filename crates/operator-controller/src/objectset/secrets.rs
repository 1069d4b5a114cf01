//! Watches the Secrets that hold content, as metadata only: a revision is looked at again when one of them changes.
//!
//! Only Secrets with the revision-name label are seen. A Secret without it (in a hand-made revision) is read again
//! whenever the revision itself is touched. Rule: revisions §17 row 10.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use olm_runtime::task;
use tokio::sync::watch;
use tracing::warn;

use super::live::Place;
use super::world::{Wake, read, write};

/// UID of a Secret, empty when it does not exist. An immutable Secret of the same UID has the same content.
pub(super) type Edition = String;

/// Deleted Secrets that are remembered, at most.
const TOMBSTONES: usize = 4096;

/// The editions of all labelled Secrets.
pub(super) struct Secrets {
    editions: Arc<RwLock<HashMap<Place, (Edition, String)>>>,
    synced: watch::Receiver<bool>,
}

impl Secrets {
    /// Starts the watch; it ends with the runtime's tasks.
    pub(super) fn start(client: Client, wake: Wake, tasks: &mut tokio::task::JoinSet<()>) -> Self {
        let editions = Arc::new(RwLock::new(HashMap::new()));
        let (state, synced) = watch::channel(false);
        let follows = follow(client, wake, Arc::clone(&editions), state);
        tasks.spawn(task::supervised("watch of content Secrets", follows));
        Self { editions, synced }
    }

    /// The edition that the watch shows, empty when it saw the Secret go; `None` when it never saw such a Secret.
    pub(super) fn edition(&self, place: &Place) -> Option<Edition> {
        read(&self.editions).get(place).map(|(edition, _)| edition.clone())
    }

    /// Waits for the first listing.
    pub(super) async fn synced(&self) {
        let _ = self.synced.clone().wait_for(|synced| *synced).await;
    }
}

async fn follow(
    client: Client,
    wake: Wake,
    editions: Arc<RwLock<HashMap<Place, (Edition, String)>>>,
    state: watch::Sender<bool>,
) {
    let api: Api<PartialObjectMeta<Secret>> = Api::all(client);
    let config = watcher::Config::default().labels(olm_api::labels::REVISION_NAME);
    let mut events = watcher(api, config).backoff(olm_runtime::backoff::of_watch()).boxed();
    let mut listing = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listing = HashMap::new(),
            Ok(watcher::Event::InitApply(secret)) => {
                let (place, known) = digest(&secret);
                listing.insert(place, known);
            }
            Ok(watcher::Event::InitDone) => {
                let (before, now) = replace(&editions, std::mem::take(&mut listing));
                state.send_replace(true);
                for (place, (edition, revision)) in now.iter().chain(&before) {
                    let same = |known: &(Edition, String)| known.0 == *edition;
                    if !(before.get(place).is_some_and(same) && now.get(place).is_some_and(same)) {
                        wake.revision(revision).await;
                    }
                }
            }
            Ok(watcher::Event::Apply(secret)) => {
                let (place, known) = digest(&secret);
                let revision = known.1.clone();
                write(&editions).insert(place, known);
                wake.revision(&revision).await;
            }
            Ok(watcher::Event::Delete(secret)) => {
                let (place, (_, revision)) = digest(&secret);
                write(&editions).insert(place, (Edition::new(), revision.clone()));
                wake.revision(&revision).await;
            }
            Err(error) => warn!(%error, "watch of content Secrets failed"),
        }
    }
}

type Editions = HashMap<Place, (Edition, String)>;

/// Takes a new listing in; what is listed no more has gone. Gives the editions before and after.
fn replace(editions: &RwLock<Editions>, mut now: Editions) -> (Editions, Editions) {
    let mut editions = write(editions);
    for (place, (_, revision)) in editions.iter().take(TOMBSTONES) {
        now.entry(place.clone()).or_insert_with(|| (Edition::new(), revision.clone()));
    }
    (std::mem::replace(&mut *editions, now.clone()), now)
}

fn digest(secret: &PartialObjectMeta<Secret>) -> (Place, (Edition, String)) {
    let place = (secret.namespace().unwrap_or_default(), secret.name_any());
    let edition = secret.uid().unwrap_or_default();
    let revision = secret.labels().get(olm_api::labels::REVISION_NAME).cloned().unwrap_or_default();
    (place, (edition, revision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_panic_exits, panics_at};

    #[test]
    fn secret_watch_panic_exits() {
        let task = "watch of content Secrets";
        assert_panic_exits(module_path!(), "secret_watch_panic_exits", task, async || {
            let mut tasks = tokio::task::JoinSet::new();
            Secrets::start(panics_at("/secrets"), Wake::channel().0, &mut tasks);
            tasks.detach_all();
        });
    }
}
