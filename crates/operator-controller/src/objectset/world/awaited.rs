//! Watches of single objects without the owner label that revisions wait for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use olm_runtime::controller::Waker;
use olm_runtime::task;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The delay before a revision is reconciled because an object that it lacks is there after all.
const PRESENT_OBJECT_DELAY: Duration = Duration::from_secs(5);
/// Objects without the owner label that one revision watches for, at most.
pub(in crate::objectset) const AWAITED: usize = 50;

/// A watch of one object that a revision waits for.
pub(super) struct Awaited {
    /// Resource, name and the state that was judged.
    pub(super) what: (String, String, String),
    /// It has woken the revision and is of no further use.
    pub(super) is_spent: Arc<AtomicBool>,
    /// The present pass has not asked for it yet.
    unasked: bool,
    pub(super) task: AbortHandle,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The watches of all revisions, by name.
#[derive(Default)]
pub(super) struct Foreign(pub(super) Mutex<HashMap<String, Vec<Awaited>>>);

impl Foreign {
    /// A pass begins: what it asks for again stays watched, without a new listing.
    pub(super) fn begin(&self, revision: &str) {
        for awaited in self.0.lock().get_mut(revision).into_iter().flatten() {
            awaited.unasked = true;
        }
    }

    /// The pass has ended: what it did not ask for is watched no more.
    pub(super) fn end(&self, revision: &str) {
        let mut foreign = self.0.lock();
        let Some(all) = foreign.get_mut(revision) else { return };
        all.retain(|awaited| !awaited.unasked);
        if all.is_empty() {
            foreign.remove(revision);
        }
    }

    /// Ends all watches of a revision.
    pub(super) fn remove(&self, revision: &str) {
        self.0.lock().remove(revision);
    }

    /// The objects that a revision waits for.
    pub(super) fn names(&self, revision: &str) -> Vec<String> {
        let foreign = self.0.lock();
        let all = foreign.get(revision).into_iter().flatten();
        all.map(|Awaited { what: (resource, name, _), .. }| format!("{resource}/{name}")).collect()
    }

    /// Wakes the revision when the object is not in the state `version` any more.
    pub(super) fn watch(
        &self,
        revision: &str,
        api: Api<PartialObjectMeta<DynamicObject>>,
        name: &str,
        version: &str,
        waker: &Waker,
    ) {
        let what = (api.resource_url().to_owned(), name.to_owned(), version.to_owned());
        let mut foreign = self.0.lock();
        let all = foreign.entry(revision.to_owned()).or_default();
        all.retain(|awaited| !awaited.is_spent.load(Ordering::Acquire));
        if let Some(awaited) = all.iter_mut().find(|awaited| awaited.what == what) {
            awaited.unasked = false;
            return;
        }
        if all.iter().filter(|awaited| !awaited.unasked).count() >= AWAITED {
            return;
        }
        let is_spent = Arc::new(AtomicBool::new(false));
        let spent = Arc::clone(&is_spent);
        let (waker, revision, version) = (waker.clone(), revision.to_owned(), version.to_owned());
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let waits = async move {
            let mut events = watcher(api, config).backoff(olm_runtime::backoff::of_watch()).boxed();
            let unjudged = version.is_empty();
            let mut seen = unjudged;
            while let Some(event) = events.next().await {
                let changed = match event {
                    // it came just now, or it was there all the time and does not help: no reason to hurry
                    Ok(Event::InitApply(_)) if unjudged => {
                        tokio::time::sleep(PRESENT_OBJECT_DELAY).await;
                        true
                    }
                    Ok(Event::InitApply(object)) => {
                        seen = true;
                        object.resource_version().as_deref() != Some(version.as_str())
                    }
                    // listed, and it is not there any more
                    Ok(Event::InitDone) => !seen,
                    Ok(Event::Apply(_) | Event::Delete(_)) => true,
                    // it may have gone while the watch was broken
                    Ok(Event::Init) => {
                        seen = unjudged;
                        false
                    }
                    Err(_) => false,
                };
                if changed {
                    spent.store(true, Ordering::Release);
                    waker.wake(&revision);
                    return;
                }
            }
        };
        let task = tokio::spawn(task::supervised("watch of an awaited object", waits));
        all.push(Awaited { what, is_spent, unasked: false, task: task.abort_handle() });
    }
}
