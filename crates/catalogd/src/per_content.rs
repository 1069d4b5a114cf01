//! Values that are made of a content at the first request, and cached while the content is served.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::{Content, Store};

/// One `T` for each served content, by digest; those of contents no longer served go when another one is made.
#[derive(Debug)]
pub(crate) struct PerContent<T>(Mutex<BTreeMap<String, Cell<T>>>);

/// Locked while its value is made.
type Cell<T> = Arc<tokio::sync::Mutex<Option<T>>>;

impl<T> Default for PerContent<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + Send + Sync + 'static> PerContent<T> {
    /// The `T` of a content, made by `make` on a thread that may block if there is none. The thread does not stop with the request: later
    /// requests wait for it instead of beginning another.
    ///
    /// # Errors
    /// Those of `make`, which is tried again at the next request.
    pub(crate) async fn get_or_make(
        &self,
        store: &Store,
        content: &Arc<Content>,
        make: impl FnOnce(&Arc<Content>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        // what waits ends with its request; what makes the value has the lock until it has ended
        let mut cell = self.cell(store, content).lock_owned().await;
        if let Some(made) = &*cell {
            return Ok(made.clone());
        }
        let content = Arc::clone(content);
        let making = tokio::task::spawn_blocking(move || {
            let made = make(&content)?;
            *cell = Some(made.clone());
            Ok(made)
        });
        making.await.map_err(io::Error::other)?
    }
}

impl<T> PerContent<T> {
    fn cell(&self, store: &Store, content: &Content) -> Cell<T> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Served;

    #[tokio::test]
    async fn content_value_is_made_once_though_its_request_ends() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let staging = store.stage(store.lease(&digest)).unwrap();
        let ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
        let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
        let (reference, source) = (String::new(), None);
        let served = Served { content: Arc::clone(&content), reference, source, last_unpacked: 1 };
        store.publish("cat", served).unwrap();
        let values: PerContent<u32> = PerContent::default();
        let (begins, mut began) = tokio::sync::mpsc::unbounded_channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let first = values.get_or_make(&store, &content, move |_| {
            begins.send(()).unwrap();
            wait.recv().unwrap();
            Ok(1)
        });
        tokio::select! {
            made = first => panic!("it is made already: {made:?}"),
            begun = began.recv() => begun.unwrap(),
        }
        let second = values.get_or_make(&store, &content, |_| Ok(2));
        go.send(()).unwrap();
        assert_eq!(second.await.unwrap(), 1);
    }
}
