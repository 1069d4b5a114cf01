//! Watches the Secrets that hold content, as metadata only: a revision is reconciled again when one of them changes.
//!
//! Only Secrets with the revision-name label are watched. A Secret without it (in a hand-made revision) is read again
//! whenever the revision itself is touched. Rule: revisions §17 row 10.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use olm_api::labels;
use olm_runtime::task;
use olm_runtime::watched::{Change, Watched};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::live::Place;
use super::world::Wake;

/// UID of a Secret, empty when it does not exist. An immutable Secret of the same UID has the same content.
pub(super) type Edition = String;

/// Deleted Secrets that are remembered, at most.
const TOMBSTONES: usize = 4096;

/// What is stored of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    edition: Edition,
    resource_version: Option<String>,
    /// The revision that its label names.
    revision: String,
}

/// The editions of all labelled Secrets. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    rows: Watched<Place, Row>,
    deleted: Arc<Mutex<HashSet<Place>>>,
}

impl Secrets {
    /// Starts the watch; it ends with the runtime's tasks.
    pub(super) fn start(client: Client, wake: Wake, tasks: &mut JoinSet<()>) -> Self {
        let secrets = Self::default();
        tasks.spawn(task::supervised("watch of content Secrets", secrets.clone().run(client, wake)));
        secrets
    }

    /// The edition that the watch shows, empty when the Secret was deleted; `None` when there was never such a Secret.
    pub(super) fn edition(&self, place: &Place) -> Option<Edition> {
        let deleted = || self.deleted.lock().contains(place).then(Edition::new);
        self.rows.get(place).map(|row| row.edition).or_else(deleted)
    }

    /// Waits for the first listing.
    pub(super) async fn synced(&self) {
        self.rows.wait_until_listed().await;
    }

    async fn run(self, client: Client, wake: Wake) {
        let api: Api<PartialObjectMeta<Secret>> = Api::all(client);
        let labelled = watcher::Config::default().labels(labels::REVISION_NAME);
        let mut changes = pin!(self.rows.follow(api, labelled, row));
        while let Some(change) = changes.next().await {
            self.remember_deletion(&change);
            let revisions: HashSet<&String> = change.states().map(|row| &row.revision).collect();
            for revision in revisions {
                wake.revision(revision).await;
            }
        }
    }

    fn remember_deletion(&self, change: &Change<Place, Row>) {
        let mut deleted = self.deleted.lock();
        if change.after.is_some() {
            deleted.remove(&change.key);
            return;
        }
        if deleted.len() >= TOMBSTONES {
            deleted.clear();
        }
        deleted.insert(change.key.clone());
    }
}

fn row(secret: PartialObjectMeta<Secret>) -> (Place, Row) {
    let place = (secret.namespace().unwrap_or_default(), secret.name_any());
    let revision = secret.labels().get(labels::REVISION_NAME).cloned().unwrap_or_default();
    let edition = secret.uid().unwrap_or_default();
    (place, Row { edition, resource_version: secret.resource_version(), revision })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_panic_exits, panics_at};

    #[test]
    fn secret_that_was_deleted_has_an_empty_edition() {
        let secrets = Secrets::default();
        let place = |name: &str| ("n".to_owned(), name.to_owned());
        let row =
            |edition: &str| Row { edition: edition.into(), resource_version: None, revision: "r".into() };
        let change = |before: Option<&str>, after: Option<&str>| Change {
            key: place("a"),
            before: before.map(row),
            after: after.map(row),
        };
        secrets.rows.put(place("a"), row("u1"));
        assert_eq!(secrets.edition(&place("a")).as_deref(), Some("u1"));
        assert_eq!(secrets.edition(&place("b")), None);
        secrets.rows.remove(&place("a"));
        secrets.remember_deletion(&change(Some("u1"), None));
        assert_eq!(secrets.edition(&place("a")).as_deref(), Some(""));
        secrets.remember_deletion(&change(None, Some("u2")));
        assert_eq!(secrets.edition(&place("a")), None, "the row says it");
        for number in 0..2 * TOMBSTONES {
            secrets.remember_deletion(&Change { key: place(&number.to_string()), before: None, after: None });
        }
        assert!(secrets.deleted.lock().len() <= TOMBSTONES);
    }

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
