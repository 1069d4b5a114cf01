//! The memory for the content of catalogs, within which each of them and all of them together stay.
//!
//! Users of a namespace create CatalogSources, and one process reads those of the whole cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of one catalog.
const MAX_CATALOG: usize = 128 << 20;
/// Bytes of all catalogs, those that are being read among them.
const MAX_CATALOGS: usize = 256 << 20;

/// Counts the bytes of all catalogs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory(Arc<AtomicUsize>);

/// The bytes of one catalog. They count until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    all: Arc<AtomicUsize>,
    bytes: usize,
    /// Of the same catalog, in another reservation.
    others: usize,
}

impl Memory {
    pub(crate) fn reserve(&self) -> Reservation {
        Reservation { all: Arc::clone(&self.0), bytes: 0, others: 0 }
    }
}

impl Reservation {
    /// More bytes of the same catalog, which count by themselves.
    pub(crate) fn more(&self) -> Self {
        Self { all: Arc::clone(&self.all), bytes: 0, others: self.others + self.bytes }
    }

    /// # Errors
    /// When the catalog, or all of them together, would have more than their limit.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.others + self.bytes > MAX_CATALOG {
            return Err(format!("the content takes more than the limit of {MAX_CATALOG} bytes of memory"));
        }
        if all > MAX_CATALOGS {
            return Err(format!(
                "the content of all catalogs takes more than the limit of {MAX_CATALOGS} bytes of memory; delete \
                 CatalogSources that are not needed"
            ));
        }
        Ok(())
    }

    /// Begins to count again.
    pub(crate) fn clear(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_one_and_of_all_catalogs_is_limited() {
        let memory = Memory::default();
        let (mut large, mut other, mut third) = (memory.reserve(), memory.reserve(), memory.reserve());
        let error = large.add(MAX_CATALOG + 1).unwrap_err();
        assert_eq!(error, "the content takes more than the limit of 134217728 bytes of memory");
        large.clear();
        assert_eq!((large.add(MAX_CATALOG), other.add(MAX_CATALOG)), (Ok(()), Ok(())));
        let error = third.add(1).unwrap_err();
        assert!(error.contains("all catalogs takes more than the limit of 268435456 bytes"), "{error}");
        drop(large);
        assert_eq!((third.add(1), memory.reserve().add(MAX_CATALOG - 2)), (Ok(()), Ok(())));
        let mut more = third.more();
        assert_eq!(more.add(MAX_CATALOG - 2), Ok(()), "the other two are in the first reservation");
        assert!(more.add(1).is_err(), "both are of one catalog");
        drop(third);
        assert_eq!(memory.reserve().add(2), Err(error), "each counts by itself");
    }
}
