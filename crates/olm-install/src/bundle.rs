//! Fetching a bundle: image reference to parsed registry+v1 content, with a cache on disk by image digest.
//!
//! It does not render and does not know who asks: whose bundles are still needed is told to [`BundleFetcher::collect`].
//! Rule: operator-controller §7.7.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_bundle::{ParseError, RegistryV1};
use olm_core::Digest;
use olm_oci::store::{Lease, Seal};
use olm_oci::{Limits, Puller, Retry, Selection, Store, StoreError, Verified, parse_reference};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Directories of a bundle image that are read; everything else stays in the registry's layers.
const CONTENT: [&str; 2] = ["manifests", "metadata"];
/// Bundles that are pulled from one registry at the same time: one that does not answer holds up nobody else.
const PARALLEL: usize = 4;

/// Bundles that are parsed and rendered at the same time in the whole process, whatever registry they come from. One
/// hostile bundle within the limits takes up to 350 MiB, and operator-controller has 512 MiB.
const PARALLEL_READS: usize = 1;
static READS: Semaphore = Semaphore::const_new(PARALLEL_READS);

/// Why a bundle could not be had.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The reference, the registry, the image or the disk.
    #[error(transparent)]
    Image(#[from] olm_oci::Error),
    /// The files are no registry+v1 bundle.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The reading task died.
    #[error("reading the bundle did not end: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl From<olm_oci::StoreError> for BundleError {
    fn from(error: olm_oci::StoreError) -> Self {
        Self::Image(error.into())
    }
}

impl BundleError {
    /// When another attempt is worth making.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Image(error) => error.retry(),
            Self::Parse(_) => Retry::Slow,
            Self::Task(_) => Retry::Backoff,
        }
    }
}

/// Fetches bundles. Cheap to clone.
#[derive(Clone)]
pub struct BundleFetcher {
    puller: Puller,
    store: Store,
    permits: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
    /// Which digest a reference led to, and when. What is neither needed nor recent is dropped when bundles are collected.
    used: Arc<Mutex<HashMap<String, (Digest, Instant)>>>,
    began: Instant,
}

impl BundleFetcher {
    /// Keeps unpacked bundles in `store`.
    #[must_use]
    pub fn new(puller: Puller, store: Store) -> Self {
        Self { puller, store, permits: Arc::default(), used: Arc::default(), began: Instant::now() }
    }

    /// The bundle behind a reference, as [`Self::pull`] and [`PulledBundle::read`] bring it.
    ///
    /// # Errors
    /// See [`BundleError`]; [`BundleError::retry`] says what helps.
    pub async fn fetch(&self, text: &str) -> Result<RegistryV1, BundleError> {
        Ok(self.pull(text).await?.read().await?.bundle)
    }

    /// The files of the bundle behind a reference, on disk. A tag costs one manifest request, a digest that is in the cache
    /// none. The signature policy is asked about what is in the cache, too.
    ///
    /// Layers are unpacked while they are downloaded, so this takes no permit of the process: a slow registry would keep it.
    /// The memory that it needs does not grow with the bundle.
    ///
    /// # Errors
    /// See [`BundleError`]; [`BundleError::retry`] says what helps.
    pub async fn pull(&self, text: &str) -> Result<PulledBundle, BundleError> {
        let reference = parse_reference(text)?;
        let canonical = self.puller.resolve(&reference).await?;
        let verified = self.puller.verify(&reference, &canonical).await?;
        match canonical.digest() {
            Some(digest) => {
                self.note_use(text, digest);
                let files = self
                    .store
                    .get_or_fill(digest, Seal::Sizes, |directory| self.unpack(&verified, directory))
                    .await?;
                Ok(PulledBundle { files })
            }
            None => {
                let why = format!("{canonical} has no digest");
                Err(BundleError::Image(olm_oci::Error::ReferenceForm { why }))
            }
        }
    }

    /// Takes bundles away that none of the references `needed` led to and that were not asked for within `spare`. What an
    /// earlier process left stays for as long: whoever needs it asks for it soon. Returns how many went.
    ///
    /// # Errors
    /// The disk refuses; what was removed before stays removed.
    pub fn collect(&self, needed: &BTreeSet<String>, spare: Duration) -> Result<usize, StoreError> {
        if self.began.elapsed() < spare {
            return Ok(0);
        }
        let digests = needed.iter().filter_map(|text| parse_reference(text).ok()?.digest().cloned());
        let mut kept: BTreeSet<Digest> = digests.collect();
        {
            let mut used = self.used.lock();
            used.retain(|text, (_, when)| needed.contains(text) || when.elapsed() < spare);
            kept.extend(used.values().map(|(digest, _)| digest.clone()));
        }
        self.store.collect(|digest| kept.contains(digest)).map(|done| done.removed.len())
    }

    fn note_use(&self, text: &str, digest: &Digest) {
        let mut used = self.used.lock();
        used.insert(text.to_owned(), (digest.clone(), Instant::now()));
    }

    async fn unpack(&self, verified: &Verified, directory: PathBuf) -> Result<(), BundleError> {
        let permits = self.permits(verified.canonical().registry());
        let _permit = permits.acquire().await;
        let image = self.puller.open_verified(verified).await?;
        let selection = Selection::beneath(CONTENT).map_err(olm_oci::Error::Copy)?;
        image.unpack_to(&directory, selection, &Limits::bundle()).await?;
        Ok(())
    }

    /// The permits of a registry; those of registries that nobody pulls from are dropped.
    fn permits(&self, registry: &str) -> Arc<Semaphore> {
        let mut all = self.permits.lock();
        all.retain(|_, permits| Arc::strong_count(permits) > 1);
        let permits = all.entry(registry.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(PARALLEL)));
        Arc::clone(permits)
    }
}

/// The files of a bundle on disk.
#[derive(Debug)]
pub struct PulledBundle {
    files: Lease,
}

impl PulledBundle {
    /// Parses the files, once the process has room for it.
    ///
    /// # Errors
    /// When they are no registry+v1 bundle.
    pub async fn read(self) -> Result<ReadBundle, BundleError> {
        let permit = READS.acquire().await.ok();
        // the thread keeps the permit even if the waiting future was dropped
        let (bundle, permit) =
            tokio::task::spawn_blocking(move || (RegistryV1::load_dir(self.files.path()), permit)).await?;
        Ok(ReadBundle { bundle: bundle?, permit })
    }
}

/// A parsed bundle. The process reads no other one until it is rendered or dropped.
#[derive(Debug)]
pub struct ReadBundle {
    /// The content.
    pub bundle: RegistryV1,
    permit: Option<SemaphorePermit<'static>>,
}

impl ReadBundle {
    /// Runs `render` on a thread for blocking work.
    ///
    /// # Errors
    /// When it panicked.
    pub async fn render<T: Send + 'static>(
        self,
        render: impl FnOnce(RegistryV1) -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        tokio::task::spawn_blocking(move || {
            let _permit = self.permit;
            render(self.bundle)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle that was pulled into a store of its own.
    fn pulled(directory: &std::path::Path) -> PulledBundle {
        let store = Store::open(directory).unwrap();
        let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let staging = store.begin(&digest).unwrap();
        let csv = "{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: p.v1}}";
        for (folder, file, text) in
            [("manifests", "csv.yaml", csv), ("metadata", "annotations.yaml", "annotations: {}")]
        {
            let folder = staging.path().join(folder);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(file), text).unwrap();
        }
        PulledBundle { files: staging.commit(Seal::Sizes).unwrap() }
    }

    /// One test, because the permits are those of the process.
    #[tokio::test]
    async fn bundle_reads_share_the_permits_of_the_process() {
        let directories: Vec<_> = (0..=PARALLEL_READS).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut pulled: Vec<_> = directories.iter().map(|directory| pulled(directory.path())).collect();
        let last = pulled.pop().unwrap();
        let mut reading = Vec::new();
        for bundle in pulled {
            reading.push(bundle.read().await.unwrap());
        }
        assert_eq!(READS.available_permits(), 0);

        // a bundle of another registry waits; a dropped wait takes no permit
        let mut waiting = Box::pin(last.read());
        let short = Duration::from_millis(20);
        assert!(
            tokio::time::timeout(short, &mut waiting).await.is_err(),
            "more than {PARALLEL_READS} are read"
        );

        // a rendering that was given up keeps its permit until its thread ends
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel();
        let mut rendering = Box::pin(reading.pop().unwrap().render(move |bundle| {
            begin.send(()).unwrap();
            let _ = ended.recv();
            bundle.csv.name
        }));
        assert!(futures::poll!(&mut rendering).is_pending());
        begun.recv().unwrap();
        drop(rendering);
        assert!(tokio::time::timeout(short, &mut waiting).await.is_err(), "the thread has not ended");
        drop(end);
        let next = waiting.await.unwrap();
        assert_eq!(next.render(|bundle| bundle.csv.name).await.unwrap(), "p.v1");

        // a bundle that is refused, and one that is no longer waited for, give it back
        drop(reading);
        let empty = tempfile::tempdir().unwrap();
        let store = Store::open(empty.path()).unwrap();
        let digest = format!("sha256:{}", "b".repeat(64)).parse().unwrap();
        let nothing = PulledBundle { files: store.begin(&digest).unwrap().commit(Seal::Sizes).unwrap() };
        assert!(nothing.read().await.is_err());
        assert_eq!(READS.available_permits(), PARALLEL_READS);
    }

    #[test]
    fn only_what_is_needed_or_recent_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let digest =
            |letter: char| -> Digest { format!("sha256:{}", letter.to_string().repeat(64)).parse().unwrap() };
        for letter in ['a', 'b', 'c', 'd'] {
            store.begin(&digest(letter)).unwrap().commit(Seal::Sizes).unwrap();
        }
        let mut fetcher = BundleFetcher::new(Puller::new(olm_oci::Config::default()), store.clone());
        fetcher.note_use("example.com/b:tag", &digest('b'));
        fetcher.note_use("example.com/c:tag", &digest('c'));
        let by_digest = format!("example.com/a@{}", digest('a'));
        let needed = BTreeSet::from([by_digest, "example.com/b:tag".to_owned()]);

        let hour = Duration::from_secs(3600);
        assert_eq!(fetcher.collect(&needed, hour).unwrap(), 0, "the process is young");
        let Some(earlier) = Instant::now().checked_sub(hour * 2) else { return };
        fetcher.began = earlier;
        assert_eq!(fetcher.collect(&needed, hour).unwrap(), 1);
        assert_eq!(store.digests().unwrap(), [digest('a'), digest('b'), digest('c')]);
        for (_, when) in fetcher.used.lock().values_mut() {
            *when = earlier;
        }
        assert_eq!(fetcher.collect(&needed, hour).unwrap(), 1, "nobody asked for c lately");
        assert_eq!(store.digests().unwrap(), [digest('a'), digest('b')]);
        assert_eq!(fetcher.collect(&BTreeSet::new(), hour).unwrap(), 2);
        assert!(fetcher.used.lock().is_empty());
    }
}
