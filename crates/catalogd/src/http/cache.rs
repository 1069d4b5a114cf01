//! Compressed answers that were made on the way, kept as long as they fit into a bound in bytes; the one used longest
//! ago goes first.
//!
//! An answer that is compressed while it is sent is collected on the side ([`Cache::collect`]), each once at a time and
//! few at a time, so that what is being collected is bounded too. So is the number of encoders ([`Cache::encoder`]).

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// What one remembered answer costs beside its bytes.
const OVERHEAD: usize = 128;
/// The share of the bound that one answer may take.
const SHARE: usize = 4;
/// Answers collected at a time.
const MAX_COLLECTORS: usize = 4;
/// Answers compressed while they are sent, at a time.
const MAX_ENCODERS: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct Cache {
    limit: usize,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<String, (Bytes, u64)>,
    bytes: usize,
    clock: u64,
    collected: HashSet<String>,
    encoders: usize,
}

/// The right to compress an answer while it is sent, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit(Cache);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.inner.lock().encoders -= 1;
    }
}

impl Cache {
    /// A cache of at most `limit` bytes, keys included.
    #[must_use]
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, inner: Arc::default() }
    }

    /// The answer of this name, made now if it is not known. Two requests may make it at the same time; making never
    /// blocks others.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn get_or_make(
        &self,
        name: &str,
        make: impl FnOnce() -> io::Result<Bytes>,
    ) -> io::Result<Bytes> {
        if let Some(bytes) = self.get(name) {
            return Ok(bytes);
        }
        let bytes = make()?;
        self.put(name, bytes.clone());
        Ok(bytes)
    }

    /// The answer of this name, if it is known.
    pub(super) fn get(&self, name: &str) -> Option<Bytes> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let clock = inner.clock;
        let (bytes, used) = inner.entries.get_mut(name)?;
        *used = clock;
        Some(bytes.clone())
    }

    /// The right to compress one more answer while it is sent; `None` when enough are.
    pub(super) fn encoder(&self) -> Option<Permit> {
        let mut inner = self.inner.lock();
        if inner.encoders >= MAX_ENCODERS {
            return None;
        }
        inner.encoders += 1;
        Some(Permit(self.clone()))
    }

    /// Begins to collect an answer that is sent in pieces. `None` when another request collects the same, or enough
    /// others do.
    pub(super) fn collect(&self, name: &str) -> Option<Collector> {
        let mut inner = self.inner.lock();
        if inner.collected.len() >= MAX_COLLECTORS || !inner.collected.insert(name.to_owned()) {
            return None;
        }
        drop(inner);
        Some(Collector { cache: self.clone(), name: name.to_owned(), bytes: Vec::new() })
    }

    fn put(&self, name: &str, bytes: Bytes) {
        let cost = |name: &str, bytes: &Bytes| name.len() + bytes.len() + OVERHEAD;
        if cost(name, &bytes) > self.limit / SHARE {
            return;
        }
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let clock = inner.clock;
        inner.bytes += cost(name, &bytes);
        if let Some((old, _)) = inner.entries.insert(name.to_owned(), (bytes, clock)) {
            inner.bytes -= cost(name, &old);
        }
        while inner.bytes > self.limit {
            let oldest =
                inner.entries.iter().min_by_key(|(_, (_, used))| *used).map(|(name, _)| name.clone());
            let Some((name, (bytes, _))) = oldest.and_then(|name| inner.entries.remove_entry(&name)) else {
                break;
            };
            inner.bytes -= cost(&name, &bytes);
        }
    }
}

/// The pieces of an answer so far. Dropped early, it leaves nothing.
#[derive(Debug)]
pub(super) struct Collector {
    cache: Cache,
    name: String,
    bytes: Vec<u8>,
}

impl Collector {
    /// Adds the next piece and gives itself back, unless the answer has become too large to be kept.
    pub(super) fn push(mut self, piece: &[u8]) -> Option<Self> {
        self.bytes.extend_from_slice(piece);
        (self.bytes.len() <= self.cache.limit / SHARE).then_some(self)
    }

    /// The answer is whole: keeps it.
    pub(super) fn finish(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        // a copy of exactly its length: the buffer has grown beyond it
        self.cache.put(&self.name, Bytes::copy_from_slice(&bytes));
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.cache.inner.lock().collected.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_evicts_the_least_recently_used() {
        let cache = Cache::new(10 * (OVERHEAD + 101));
        let mut made = 0;
        let mut get = |cache: &Cache, name: &str, size: usize| {
            cache
                .get_or_make(name, || {
                    made += 1;
                    Ok(Bytes::from(vec![0; size]))
                })
                .unwrap();
            made
        };
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
            get(&cache, name, 100);
        }
        assert_eq!(get(&cache, "a", 100), 10, "still there");
        assert_eq!(get(&cache, "k", 100), 11, "new");
        assert_eq!(get(&cache, "a", 100), 11, "used lately, kept");
        assert_eq!(get(&cache, "b", 100), 12, "used longest ago, gone");
        let large = 10 * (OVERHEAD + 101);
        get(&cache, "large", large);
        assert_eq!(get(&cache, "large", large), 14, "too large to be kept");
        let inner = cache.inner.lock();
        assert!(inner.bytes <= cache.limit);
        assert_eq!(
            inner.bytes,
            inner.entries.iter().map(|(n, (b, _))| n.len() + b.len() + OVERHEAD).sum::<usize>()
        );
    }

    #[test]
    fn cache_collects_an_answer_once_at_a_time() {
        let cache = Cache::new(10_000);
        let collector = cache.collect("a").unwrap();
        assert!(cache.collect("a").is_none(), "another request collects it");
        drop(collector.push(b"half"));
        assert!(cache.get("a").is_none(), "an answer that was cut off is not kept");
        cache.collect("a").unwrap().push(b"who").unwrap().push(b"le").unwrap().finish();
        assert_eq!(cache.get("a").unwrap(), "whole");
        let all: Vec<_> = ["b", "c", "d", "e"].iter().map(|name| cache.collect(name).unwrap()).collect();
        assert!(cache.collect("f").is_none(), "enough are collected");
        drop(all);
        assert!(cache.collect("f").unwrap().push(&[0; 5000]).is_none(), "too large to be kept");
        assert!(cache.get("f").is_none() && cache.inner.lock().collected.is_empty());
        let permits: Vec<_> = (0..MAX_ENCODERS).map(|_| cache.encoder().unwrap()).collect();
        assert!(cache.encoder().is_none(), "enough are compressed");
        drop(permits);
        assert!(cache.encoder().is_some());
    }
}
