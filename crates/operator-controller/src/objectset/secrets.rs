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
use olm_runtime::controller::Waker;
use olm_runtime::watched::{Change, Watched};
use parking_lot::Mutex;

use super::live::ObjectRef;

/// The name of the watch in logs.
pub(super) const WATCH: &str = "watch of content Secrets";

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
    rows: Watched<ObjectRef, Row>,
    deleted: Arc<Mutex<HashSet<ObjectRef>>>,
}

impl Secrets {
    /// The edition that the watch shows, empty when the Secret was deleted; `None` when there was never such a Secret.
    pub(super) fn edition(&self, place: &ObjectRef) -> Option<Edition> {
        let deleted = || self.deleted.lock().contains(place).then(Edition::new);
        self.rows.get(place).map(|row| row.edition).or_else(deleted)
    }

    /// Waits for the first listing.
    pub(super) async fn wait_until_listed(&self) {
        self.rows.wait_until_listed().await;
    }

    /// Watches until it is dropped.
    pub(super) async fn run(self, client: Client, waker: Waker) {
        let api: Api<PartialObjectMeta<Secret>> = Api::all(client);
        let labelled = watcher::Config::default().labels(labels::REVISION_NAME);
        let mut changes = pin!(self.rows.follow(api, labelled, row));
        while let Some(change) = changes.next().await {
            self.remember_deletion(&change);
            let revisions: HashSet<&String> = change.states().map(|row| &row.revision).collect();
            for revision in revisions {
                waker.wake(revision);
            }
        }
    }

    fn remember_deletion(&self, change: &Change<ObjectRef, Row>) {
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

fn row(secret: PartialObjectMeta<Secret>) -> (ObjectRef, Row) {
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
            is_answer: false,
        };
        secrets.rows.put(place("a"), row("u1"));
        assert_eq!(secrets.edition(&place("a")).as_deref(), Some("u1"));
        assert_eq!(secrets.edition(&place("b")), None);
        secrets.rows.remove(&place("a"));
        secrets.remember_deletion(&change(Some("u1"), None));
        assert_eq!(secrets.edition(&place("a")).as_deref(), Some(""));
        secrets.remember_deletion(&change(None, Some("u2")));
        assert_eq!(secrets.edition(&place("a")), None, "the row has it");
        for number in 0..2 * TOMBSTONES {
            secrets.remember_deletion(&Change {
                key: place(&number.to_string()),
                before: None,
                after: None,
                is_answer: false,
            });
        }
        assert!(secrets.deleted.lock().len() <= TOMBSTONES);
    }

    #[test]
    fn secret_watch_panic_exits() {
        assert_panic_exits(module_path!(), "secret_watch_panic_exits", WATCH, async || {
            let follows = Secrets::default().run(panics_at("/secrets"), Waker::default());
            tokio::spawn(olm_runtime::task::supervised(WATCH, follows));
        });
    }
}
