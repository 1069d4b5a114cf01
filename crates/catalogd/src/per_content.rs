//! Values that are made of a content at the first request, and cached while the content is served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::store::{Content, Store};

/// One `T` for each served content, by digest; those of contents no longer served go when another one is made.
#[derive(Debug)]
pub(crate) struct PerContent<T>(Mutex<BTreeMap<String, Arc<OnceCell<T>>>>);

impl<T> Default for PerContent<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> PerContent<T> {
    /// The cell of a content's `T`: concurrent requests wait for one making.
    pub(crate) fn cell(&self, store: &Store, content: &Content) -> Arc<OnceCell<T>> {
        let mut made = self.0.lock();
        let digest = content.digest().to_string();
        if !made.contains_key(&digest) {
            let serving = store.serving();
            let digests: BTreeSet<String> =
                serving.values().map(|served| served.content.digest().to_string()).collect();
            made.retain(|digest, _| digests.contains(digest));
        }
        Arc::clone(made.entry(digest).or_default())
    }
}
