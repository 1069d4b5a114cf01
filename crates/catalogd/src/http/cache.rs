//! Compressed answers that were made on the way, kept as long as they fit into a bound in bytes; the one used longest
//! ago goes first.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// What one remembered answer costs beside its bytes.
const OVERHEAD: usize = 128;

/// The cache.
#[derive(Debug)]
pub(super) struct Cache {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<String, (Bytes, u64)>,
    bytes: usize,
    clock: u64,
}

impl Cache {
    /// A cache of at most `limit` bytes, keys included.
    #[must_use]
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, inner: Mutex::default() }
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

    fn get(&self, name: &str) -> Option<Bytes> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock += 1;
        let clock = inner.clock;
        let (bytes, used) = inner.entries.get_mut(name)?;
        *used = clock;
        Some(bytes.clone())
    }

    fn put(&self, name: &str, bytes: Bytes) {
        let cost = |name: &str, bytes: &Bytes| name.len() + bytes.len() + OVERHEAD;
        if cost(name, &bytes) > self.limit / 4 {
            return;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_used_within_its_bound() {
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
        let inner = cache.inner.lock().unwrap();
        assert!(inner.bytes <= cache.limit);
        assert_eq!(
            inner.bytes,
            inner.entries.iter().map(|(n, (b, _))| n.len() + b.len() + OVERHEAD).sum::<usize>()
        );
    }
}
