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

/// A catalog that does not fit. It may be read in part: its bytes are those until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error(
        "the content does not fit: it takes more than the limit of {MAX_CATALOG} bytes of memory, at least {bytes}; \
         use a catalog with fewer packages or bundles"
    )]
    Catalog { bytes: usize },
    #[error(
        "the content does not fit: with at least {bytes} bytes of it, the content of all catalogs takes more than the limit of \
         {MAX_CATALOGS} bytes of memory; delete CatalogSources that are not needed, or use a smaller catalog"
    )]
    AllCatalogs { bytes: usize },
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

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts these bytes, too, if they fit.
    ///
    /// # Errors
    /// When the catalog, or all of them together, would have more than their limit.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), MemoryError> {
        self.add_instead(bytes, 0)
    }

    /// As [`Self::add`] for bytes that take the place of `replaced` other ones, which are still counted: only the growth has to fit. All
    /// catalogs together have at most `replaced` bytes above their limit, however many are replaced at the same time, and only as long as
    /// what was replaced is in use; meanwhile no others are added.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(crate) fn add_instead(&mut self, bytes: usize, replaced: usize) -> Result<(), MemoryError> {
        let of_catalog = self.others + self.bytes + bytes;
        if of_catalog > MAX_CATALOG {
            return Err(MemoryError::Catalog { bytes: of_catalog });
        }
        // in one step: bytes that do not fit are in no other catalog's way
        let with = |all: usize| Some(all + bytes).filter(|all| *all <= MAX_CATALOGS + replaced);
        self.all
            .try_update(Ordering::Relaxed, Ordering::Relaxed, with)
            .map_err(|_| MemoryError::AllCatalogs { bytes: of_catalog })?;
        self.bytes += bytes;
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
        assert_eq!(
            error.to_string(),
            "the content does not fit: it takes more than the limit of 134217728 bytes of memory, at least 134217729; use a \
             catalog with fewer packages or bundles"
        );
        assert_eq!((large.add(MAX_CATALOG), other.add(MAX_CATALOG)), (Ok(()), Ok(())));
        let error = third.add(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the content does not fit: with at least 1 bytes of it, the content of all catalogs takes more than the limit of \
             268435456 bytes of memory; delete CatalogSources that are not needed, or use a smaller catalog"
        );
        drop(large);
        assert_eq!((third.add(2), memory.reserve().add(MAX_CATALOG - 2)), (Ok(()), Ok(())));
        let mut more = third.more();
        assert_eq!(more.add(MAX_CATALOG - 2), Ok(()), "the other two are in the first reservation");
        assert!(more.add(1).is_err(), "both are of one catalog");
        drop(third);
        let error = MemoryError::AllCatalogs { bytes: 3 };
        assert_eq!(memory.reserve().add(3), Err(error), "each counts by itself");
    }

    #[test]
    fn memory_that_does_not_fit_is_not_counted() {
        let memory = Memory::default();
        let (mut first, mut second, mut third) = (memory.reserve(), memory.reserve(), memory.reserve());
        assert_eq!((first.add(MAX_CATALOG), second.add(MAX_CATALOG - 1)), (Ok(()), Ok(())));
        // both are still there while the others reserve
        assert!(second.add(2).is_err() && third.add(2).is_err());
        assert_eq!((second.add(1), third.add(0)), (Ok(()), Ok(())));
        drop(first);
        assert_eq!(third.add(MAX_CATALOG), Ok(()));
    }

    #[test]
    fn memory_of_a_replacement_is_limited() {
        let memory = Memory::default();
        let (mut replaced, mut other) = (memory.reserve(), memory.reserve());
        assert_eq!((other.add(MAX_CATALOG), replaced.add(MAX_CATALOG - 10)), (Ok(()), Ok(())));
        let (mut next, mut after) = (memory.reserve(), memory.reserve());
        assert!(next.add_instead(MAX_CATALOG + 1, MAX_CATALOG - 10).is_err(), "it is too large itself");
        assert!(next.add_instead(MAX_CATALOG, MAX_CATALOG - 11).is_err(), "it grows by 11 bytes");
        assert_eq!(next.add_instead(MAX_CATALOG, MAX_CATALOG - 10), Ok(()));
        let again = after.add_instead(1, MAX_CATALOG - 10);
        assert!(again.is_err(), "no other replacement while this one is in use");
        assert!(after.add(1).is_err(), "all are full");
        drop(replaced);
        assert!(after.add(1).is_err(), "all are full still");
        drop(other);
        assert_eq!(after.add(1), Ok(()));
    }
}
