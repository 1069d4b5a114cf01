//! Images that CatalogSources name: one of a digest is in memory once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::error::CatalogError;
use super::memory::{Memory, MemoryError, Reservation};
use super::snapshot::Snapshot;
use crate::image_source::CatalogContent;

/// What the catalogs of one digest share.
pub(super) struct Shared {
    /// Of the opened image.
    pub(super) memory: Reservation,
    /// The last attempt to read it. Held by the task that reads it; the others wait.
    pub(super) read: Arc<tokio::sync::Mutex<Option<SharedRead>>>,
}

/// An attempt to read the content of an image.
pub(super) struct SharedRead(Result<Weak<Snapshot>, CatalogError>);

impl SharedRead {
    pub(super) fn new(outcome: &Result<Arc<Snapshot>, CatalogError>) -> Self {
        Self(outcome.as_ref().map(Arc::downgrade).map_err(CatalogError::clone))
    }

    /// The outcome, if it counts: content while a catalog uses it, an error for those that `has_waited` for this attempt.
    pub(super) fn outcome(&self, has_waited: bool) -> Option<Result<Arc<Snapshot>, CatalogError>> {
        match &self.0 {
            Ok(snapshot) => snapshot.upgrade().map(Ok),
            Err(error) => has_waited.then(|| Err(error.clone())),
        }
    }
}

/// An image as one CatalogSource names it.
#[derive(Clone)]
pub(crate) struct Image {
    pub(super) content: Arc<dyn CatalogContent>,
    pub(super) shared: Arc<Shared>,
}

/// The images of all catalogs, by digest.
pub(super) struct SharedImages {
    memory: Memory,
    by_digest: Mutex<HashMap<String, Weak<Shared>>>,
}

impl SharedImages {
    /// Counts what they take here.
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory, by_digest: Mutex::default() }
    }

    /// Counts the memory of an image that was opened, in the place of one whose index has `replaced` bytes. As long as that one is still in
    /// use, all catalogs together may have so many bytes above their limit.
    ///
    /// # Errors
    /// When there is not enough.
    pub(super) fn add(
        &self,
        content: Arc<dyn CatalogContent>,
        replaced: usize,
    ) -> Result<Image, MemoryError> {
        let digest = content.reference().rsplit_once('@').map(|(_, digest)| digest.to_owned());
        let mut by_digest = self.by_digest.lock();
        by_digest.retain(|_, shared| shared.strong_count() > 0);
        let known = digest.as_ref().and_then(|digest| by_digest.get(digest)?.upgrade());
        if let Some(shared) = known {
            return Ok(Image { content, shared });
        }
        let mut memory = self.memory.reserve();
        memory.add_instead(content.memory(), replaced)?;
        let shared = Arc::new(Shared { memory, read: Arc::default() });
        if let Some(digest) = digest {
            by_digest.insert(digest, Arc::downgrade(&shared));
        }
        Ok(Image { content, shared })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Takes 128 MiB.
    struct Content(String);

    impl CatalogContent for Content {
        fn reference(&self) -> &str {
            &self.0
        }

        fn memory(&self) -> usize {
            128 << 20
        }

        fn packages(&self) -> Vec<String> {
            Vec::new()
        }

        fn package_lines(&self, _: &str) -> io::Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn image_memory_counts_once_for_a_digest() {
        let images = SharedImages::new(Memory::default());
        let add = |reference: &str| images.add(Arc::new(Content(reference.to_owned())), 0);
        let first = add("r.test/c@sha256:1").unwrap();
        let same = add("mirror.test/c@sha256:1").unwrap();
        assert!(Arc::ptr_eq(&first.shared, &same.shared));
        assert_eq!(same.content.reference(), "mirror.test/c@sha256:1");
        let other = add("r.test/c@sha256:2").unwrap();
        let error = add("r.test/c@sha256:3").err().unwrap().to_string();
        assert!(error.contains("all catalogs takes more than the limit of 268435456 bytes"), "{error}");
        drop(first);
        assert!(add("r.test/c@sha256:3").is_err(), "one catalog has it still");
        drop(same);
        assert!(add("r.test/c@sha256:3").is_ok());
        drop(other);
        assert!(add("no digest").is_ok());
    }
}
