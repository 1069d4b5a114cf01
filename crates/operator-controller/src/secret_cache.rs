//! Content Secrets that this process wrote or read a moment ago, so that they need not be read again.
//!
//! Only Secrets that cannot change are cached: they are immutable, and the watch of labelled Secrets shows when one goes.
//! Bounded by bytes; the least recently used is evicted first. All of it can be lost at any time.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use olm_api::labels;
use parking_lot::Mutex;

/// Bytes of content in the cache, at most.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// What an entry takes beside its content, about.
const OVERHEAD: usize = 1024;

/// The cache. Clones share it.
#[derive(Clone, Default)]
pub struct SecretCache(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    all: HashMap<(String, String), Entry>,
    bytes: usize,
    clock: u64,
}

struct Entry {
    secret: Arc<Secret>,
    bytes: usize,
    used: u64,
}

impl SecretCache {
    /// Keeps a Secret as the apiserver gave it, if it can be kept.
    pub fn put(&self, secret: &Arc<Secret>) {
        let seen = secret.labels().contains_key(labels::REVISION_NAME);
        let bytes = OVERHEAD
            + secret.data.iter().flatten().map(|(key, value)| key.len() + value.0.len()).sum::<usize>();
        if !seen || secret.immutable != Some(true) || secret.uid().is_none() || bytes > MAX_BYTES {
            return;
        }
        let mut inner = self.0.lock();
        inner.clock += 1;
        let used = inner.clock;
        let place = (secret.namespace().unwrap_or_default(), secret.name_any());
        inner.bytes += bytes;
        if let Some(before) = inner.all.insert(place, Entry { secret: Arc::clone(secret), bytes, used }) {
            inner.bytes -= before.bytes;
        }
        while inner.bytes > MAX_BYTES {
            let oldest = inner.all.iter().min_by_key(|(_, entry)| entry.used).map(|(place, _)| place.clone());
            let Some(entry) = oldest.and_then(|place| inner.all.remove(&place)) else { break };
            inner.bytes -= entry.bytes;
        }
    }

    /// Evicts the Secrets at these places.
    pub fn remove<'a>(&self, places: impl IntoIterator<Item = &'a (String, String)>) {
        let mut inner = self.0.lock();
        for place in places {
            let bytes = inner.all.remove(place).map_or(0, |entry| entry.bytes);
            inner.bytes -= bytes;
        }
    }

    /// The Secret at this place. `edition` is what the watch shows: a UID, an empty text for a Secret that is gone, `None` when
    /// it has not seen it yet. One that contradicts it is evicted.
    #[must_use]
    pub fn get(&self, place: &(String, String), edition: Option<&str>) -> Option<Arc<Secret>> {
        let mut inner = self.0.lock();
        inner.clock += 1;
        let used = inner.clock;
        let entry = inner.all.get_mut(place)?;
        if edition.is_some_and(|edition| entry.secret.metadata.uid.as_deref() != Some(edition)) {
            drop(inner);
            self.remove([place]);
            return None;
        }
        entry.used = used;
        Some(Arc::clone(&entry.secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use kube::core::ObjectMeta;

    fn secret(name: &str, uid: &str, bytes: usize) -> Arc<Secret> {
        Arc::new(Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("s".to_owned()),
                uid: Some(uid.to_owned()),
                labels: Some([(labels::REVISION_NAME.to_owned(), "e-1".to_owned())].into()),
                ..ObjectMeta::default()
            },
            immutable: Some(true),
            data: Some([("k".to_owned(), ByteString(vec![0; bytes]))].into()),
            ..Secret::default()
        })
    }

    fn place(name: &str) -> (String, String) {
        ("s".to_owned(), name.to_owned())
    }

    #[test]
    fn secret_cache_follows_the_watch() {
        for (edition, want) in [(None, true), (Some("u1"), true), (Some(""), false), (Some("u2"), false)] {
            let kept = SecretCache::default();
            kept.put(&secret("a", "u1", 1));
            assert_eq!(kept.get(&place("a"), edition).is_some(), want, "{edition:?}");
            assert_eq!(kept.get(&place("a"), None).is_some(), want, "{edition:?}, second read");
        }
    }

    #[test]
    fn secret_cache_takes_immutable_secrets_only() {
        let kept = SecretCache::default();
        let mut mutable = Arc::unwrap_or_clone(secret("a", "u1", 1));
        mutable.immutable = None;
        kept.put(&Arc::new(mutable));
        let mut unseen = Arc::unwrap_or_clone(secret("b", "u1", 1));
        unseen.metadata.labels = None;
        kept.put(&Arc::new(unseen));
        assert!(kept.get(&place("a"), None).is_none() && kept.get(&place("b"), None).is_none());
    }

    #[test]
    fn secret_cache_is_bounded_by_bytes() {
        let kept = SecretCache::default();
        for name in ["a", "b", "c"] {
            kept.put(&secret(name, "u", MAX_BYTES / 4));
        }
        assert!(kept.get(&place("a"), None).is_some());
        kept.put(&secret("d", "u", MAX_BYTES / 4));
        assert!(kept.get(&place("b"), None).is_none(), "b was not used for longest");
        assert!(kept.get(&place("a"), None).is_some() && kept.get(&place("d"), None).is_some());
        kept.put(&secret("huge", "u", MAX_BYTES));
        assert!(kept.get(&place("huge"), None).is_none());
        for _ in 0..100 {
            kept.put(&secret("d", "u", MAX_BYTES / 4));
        }
        let inner = kept.0.lock();
        assert_eq!(inner.bytes, inner.all.values().map(|entry| entry.bytes).sum::<usize>());
        assert!(inner.bytes <= MAX_BYTES);
    }
}
