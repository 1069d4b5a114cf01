//! Fetching a bundle: image reference to parsed registry+v1 content, with a cache on disk by image digest.
//!
//! It does not render. The caller of [`BundleFetcher::collect`] names the bundles that are still needed.
//! Rule: operator-controller §7.7.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_bundle::{BundleLimits, ParseError, RegistryV1};
use olm_core::{Cancellation, Digest};
use olm_oci::store::{Lease, attempts};
use olm_oci::{Limits, Puller, Retry, Selection, Store, StoreError, Verified, parse_reference};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::resolution::PassError;
use crate::work;

/// Directories of a bundle image that are read; everything else stays in the registry's layers.
const CONTENT: [&str; 2] = ["manifests", "metadata"];
/// Bundles that are pulled from one registry at the same time: one that does not answer delays no other registry.
const PARALLEL_PULLS: usize = 4;

/// Bundles that are parsed and rendered at the same time in the whole process, whatever registry they come from. One
/// hostile bundle within the limits takes up to 200 MiB, and operator-controller has 512 MiB.
const PARALLEL_READS: usize = 1;
static READS: Semaphore = Semaphore::const_new(PARALLEL_READS);

/// Times that reading an image may end with the process before it is not read again.
const MAX_ATTEMPTS: u32 = 2;
/// How long one pull may take; stalls end it much earlier.
const PULL_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How long the files of one bundle may be read. The largest that the limits allow takes seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The error of fetching a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The reference, the registry, the image or the disk.
    #[error(transparent)]
    Image(#[from] olm_oci::Error),
    /// The files are not a registry+v1 bundle.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The pull took longer than [`PULL_TIMEOUT`].
    #[error("the pull of {reference} took longer than {} s", PULL_TIMEOUT.as_secs())]
    Slow { reference: String },
    /// Reading the files took longer than [`READ_TIMEOUT`].
    #[error("reading the bundle {digest} took longer than {} s", READ_TIMEOUT.as_secs())]
    SlowRead { digest: Digest },
    /// Reading the image ended the process, this one or that of another replica.
    #[error("{text}")]
    Quarantined { text: String },
    /// The reading task died.
    #[error("reading the bundle did not end: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// How every text about a bundle in quarantine begins.
const QUARANTINED: &str = "the process ended ";

/// The text of [`BundleError::Quarantined`]. It names the digest, and the request that counted.
fn quarantined(digest: &Digest, attempts: u32, request: &str) -> String {
    let annotation = olm_api::annotations::REQUESTED_AT;
    format!(
        "{QUARANTINED}{attempts} times without a shutdown while it read the bundle {digest} (memory limit, kill or crash), so the \
         bundle is not read again (request {request:?}); publish another image, or raise the memory limit and change the \
         annotation {annotation}"
    )
}

/// The text about this bundle and this request in the message of a condition, if there is one.
fn quarantined_by(message: &str, digest: &Digest, request: &str) -> Option<String> {
    // a long first line stands in full among the details
    let text = message[message.rfind(QUARANTINED)?..].lines().next()?;
    let is_same = text.contains(&format!(" {digest} ")) && text.contains(&format!("(request {request:?})"));
    is_same.then(|| text.to_owned())
}

impl From<olm_oci::StoreError> for BundleError {
    fn from(error: olm_oci::StoreError) -> Self {
        Self::Image(error.into())
    }
}

impl BundleError {
    /// A bundle that is not read again after this many attempts.
    #[must_use]
    pub fn quarantined(digest: &Digest, attempts: u32, request: &str) -> Self {
        Self::Quarantined { text: quarantined(digest, attempts, request) }
    }

    /// When to retry.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Image(error) => error.retry(),
            Self::Parse(_) | Self::SlowRead { .. } | Self::Quarantined { .. } => Retry::Slow,
            Self::Task(_) | Self::Slow { .. } => Retry::Backoff,
        }
    }
}

/// Fetches bundles. Cheap to clone.
#[derive(Clone)]
pub struct BundleFetcher {
    puller: Puller,
    store: Store,
    permits: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
    /// The digest that a reference led to, and when. Entries that are neither needed nor recent are removed by `collect`.
    used: Arc<Mutex<HashMap<String, (Digest, Instant)>>>,
    began: Instant,
    quarantines: bool,
    image_limits: Limits,
    limits: BundleLimits,
}

impl BundleFetcher {
    /// Caches unpacked bundles in `store`.
    #[must_use]
    pub fn new(puller: Puller, store: Store) -> Self {
        Self {
            puller,
            store,
            permits: Arc::default(),
            used: Arc::default(),
            began: Instant::now(),
            quarantines: false,
            image_limits: Limits::bundle(),
            limits: BundleLimits::default(),
        }
    }

    /// Records on disk which bundle is read, and does not read one again that ended the process.
    #[must_use]
    pub fn quarantining(self) -> Self {
        Self { quarantines: true, ..self }
    }

    /// The same with another puller, such as one with other credentials: both record uses in one place, and share the permits of a
    /// registry.
    #[must_use]
    pub fn with_puller(&self, puller: Puller) -> Self {
        Self { puller, ..self.clone() }
    }

    /// Reads within other limits.
    #[must_use]
    pub fn with_limits(self, image_limits: Limits, limits: BundleLimits) -> Self {
        Self { image_limits, limits, ..self }
    }

    /// The bundle behind a reference, as [`Self::pull`] and [`PulledBundle::read`] bring it.
    ///
    /// # Errors
    /// See [`BundleError`] and [`BundleError::retry`].
    pub async fn fetch(&self, text: &str) -> Result<RegistryV1, BundleError> {
        Ok(self.pull(text).await?.read().await?.bundle)
    }

    /// The files of the bundle behind a reference, on disk. A tag costs one manifest request, a digest that is in the cache
    /// none, see [`Puller::check_stored`]. The signature policy applies to cached bundles, too.
    ///
    /// Layers are unpacked while they are downloaded, so this takes no permit of the process: a slow registry would keep it.
    /// The memory that it needs does not grow with the bundle.
    ///
    /// # Errors
    /// See [`BundleError`] and [`BundleError::retry`].
    pub async fn pull(&self, text: &str) -> Result<PulledBundle, BundleError> {
        let reference = parse_reference(text)?;
        let canonical = self.puller.resolve(&reference).await?;
        let verified = self.puller.verify(&reference, &canonical).await?;
        match canonical.digest() {
            Some(digest) => {
                self.record_use(text, digest);
                let pulling = async {
                    let unpack = |directory| self.unpack(&verified, directory);
                    let files = self.store.get_or_fill(digest, unpack).await?;
                    let unchecked = self.puller.check_stored(&self.store, &verified).await?;
                    Ok::<_, BundleError>((files, unchecked))
                };
                let pulled = tokio::time::timeout(PULL_TIMEOUT, pulling).await;
                let slow = |_| BundleError::Slow { reference: canonical.to_string() };
                let (files, unchecked) = pulled.map_err(slow)??;
                if let Some(error) = unchecked {
                    tracing::info!(image = %canonical, %error, "a stored bundle is used without its registry");
                }
                let record = self.quarantines.then(|| self.store.attempt_file(digest));
                let (digest, request) = (digest.clone(), String::new());
                Ok(PulledBundle { files, digest, record, request, limits: self.limits })
            }
            None => {
                let why = format!("{canonical} has no digest");
                Err(BundleError::Image(olm_oci::Error::ReferenceForm { why }))
            }
        }
    }

    /// Removes bundles that none of the references `needed` led to and that were not used within `age`. Bundles of an earlier
    /// process stay as long, so that this one can use them. Returns the number of removed bundles.
    ///
    /// # Errors
    /// When a file cannot be removed; what was removed before stays removed.
    pub fn collect(&self, needed: &BTreeSet<String>, age: Duration) -> Result<usize, StoreError> {
        if self.began.elapsed() < age {
            return Ok(0);
        }
        let digests = needed.iter().filter_map(|text| parse_reference(text).ok()?.digest().cloned());
        let mut in_use: BTreeSet<Digest> = digests.collect();
        {
            let mut used = self.used.lock();
            used.retain(|text, (_, when)| needed.contains(text) || when.elapsed() < age);
            in_use.extend(used.values().map(|(digest, _)| digest.clone()));
        }
        self.store.collect(|digest| in_use.contains(digest)).map(|removed| removed.len())
    }

    fn record_use(&self, text: &str, digest: &Digest) {
        self.used.lock().insert(text.to_owned(), (digest.clone(), Instant::now()));
    }

    async fn unpack(&self, verified: &Verified, directory: PathBuf) -> Result<(), BundleError> {
        let permits = self.permits(verified.canonical().registry());
        let _permit = permits.acquire().await;
        let image = self.puller.open_verified(verified).await?;
        let selection = Selection::beneath(CONTENT).map_err(olm_oci::Error::Copy)?;
        image.unpack_to(&directory, selection, &self.image_limits).await?;
        Ok(())
    }

    /// The permits of a registry; those of registries without a pull are removed.
    fn permits(&self, registry: &str) -> Arc<Semaphore> {
        let mut all = self.permits.lock();
        all.retain(|_, permits| Arc::strong_count(permits) > 1);
        let permits =
            all.entry(registry.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(PARALLEL_PULLS)));
        Arc::clone(permits)
    }
}

/// The files of a bundle on disk.
#[derive(Debug)]
pub struct PulledBundle {
    files: Lease,
    digest: Digest,
    /// Where attempts to read it are recorded.
    record: Option<PathBuf>,
    request: String,
    limits: BundleLimits,
}

impl PulledBundle {
    /// The value of the annotation `requested-at`: with another one than before, earlier attempts do not count.
    ///
    /// `quarantine` is the message of the condition `Quarantined`, which another replica may have written.
    ///
    /// # Errors
    /// When the message is about this bundle and this request.
    pub fn requested(self, request: Option<&str>, quarantine: Option<&str>) -> Result<Self, BundleError> {
        let request = request.unwrap_or_default().to_owned();
        match quarantine.and_then(|message| quarantined_by(message, &self.digest, &request)) {
            Some(text) if self.record.is_some() => Err(BundleError::Quarantined { text }),
            Some(_) | None => Ok(Self { request, ..self }),
        }
    }

    /// Parses the files, once a read of the process is free.
    ///
    /// # Errors
    /// When they are not a registry+v1 bundle.
    pub async fn read(self) -> Result<ReadBundle, BundleError> {
        let permit = READS.acquire().await.ok();
        let digest = self.digest.clone();
        // the thread keeps the permit even if the waiting future was dropped
        let cancellation = Cancellation::default();
        // threads cannot be dropped: they look at this
        let _cancel = cancellation.drop_guard();
        let reading = tokio::task::spawn_blocking(move || {
            let attempt = match &self.record {
                Some(record) => Some(Attempt::begin(record, &self.digest, &self.request)?),
                None => None,
            };
            let bundle = RegistryV1::load_dir_until(self.files.path(), self.limits, &cancellation)?;
            Ok::<_, BundleError>((bundle, Reading { _permit: permit, _attempt: attempt }))
        });
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(read) => {
                let (bundle, reading) = read??;
                Ok(ReadBundle { bundle, digest, reading })
            }
            Err(_) => Err(BundleError::SlowRead { digest }),
        }
    }
}

/// A read that is recorded on disk until it is dropped: no other one runs beside it, so what ends the process is this one.
#[derive(Debug)]
struct Attempt(PathBuf);

impl Attempt {
    fn begin(record: &Path, digest: &Digest, request: &str) -> Result<Self, BundleError> {
        let before = if attempts::request(record) == request { attempts::read(record) } else { 0 };
        if before >= MAX_ATTEMPTS {
            return Err(BundleError::quarantined(digest, before, request));
        }
        let path = record.to_owned();
        attempts::write_for(record, before + 1, request).map_err(|source| StoreError::Io {
            action: "write",
            path: path.clone(),
            source,
        })?;
        Ok(Self(path))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // a record that stays counts as an attempt, until the next one comes to an end
        let _ = attempts::write(&self.0, 0);
    }
}

/// The turn of a bundle to be in memory. The process reads no other one until it is dropped.
#[derive(Debug)]
pub struct Reading {
    _permit: Option<SemaphorePermit<'static>>,
    _attempt: Option<Attempt>,
}

/// A parsed bundle. The process reads no other one until it is rendered or dropped.
#[derive(Debug)]
pub struct ReadBundle {
    pub bundle: RegistryV1,
    /// The digest of the image.
    pub digest: Digest,
    reading: Reading,
}

impl ReadBundle {
    /// Runs `render` on a thread for blocking work, for a bounded time. The turn ends with what it returns.
    ///
    /// # Errors
    /// When it took too long or panicked.
    pub async fn render<T: Send + 'static>(
        self,
        render: impl FnOnce(RegistryV1, Reading, &Cancellation) -> T + Send + 'static,
    ) -> Result<T, PassError> {
        let render = move |cancellation: &Cancellation| render(self.bundle, self.reading, cancellation);
        work::run("rendering it", usize::MAX, render).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle that was pulled into a store of its own.
    fn pulled(directory: &std::path::Path) -> PulledBundle {
        let store = Store::open(directory).unwrap();
        let digest: Digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let staging = store.begin(&digest).unwrap();
        let csv = "{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: p.v1}}";
        for (folder, file, text) in
            [("manifests", "csv.yaml", csv), ("metadata", "annotations.yaml", "annotations: {}")]
        {
            let folder = staging.path().join(folder);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(file), text).unwrap();
        }
        let files = staging.commit().unwrap();
        PulledBundle { files, digest, record: None, request: String::new(), limits: BundleLimits::default() }
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

        // a rendering whose future was dropped is cancelled, and keeps its permit until its thread ends
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel();
        let (report, is_cancelled) = std::sync::mpsc::channel();
        let mut rendering = Box::pin(reading.pop().unwrap().render(move |bundle, _reading, cancellation| {
            begin.send(()).unwrap();
            let _ = ended.recv();
            report.send(cancellation.is_cancelled()).unwrap();
            bundle.csv.name
        }));
        assert!(futures::poll!(&mut rendering).is_pending());
        begun.recv().unwrap();
        drop(rendering);
        assert!(tokio::time::timeout(short, &mut waiting).await.is_err(), "the thread has not ended");
        drop(end);
        assert!(is_cancelled.recv().unwrap());
        let next = waiting.await.unwrap();
        let (name, turn) = next.render(|bundle, reading, _| (bundle.csv.name, reading)).await.unwrap();
        assert_eq!(
            (name.as_str(), READS.available_permits()),
            ("p.v1", PARALLEL_READS - 1),
            "the turn lasts"
        );
        drop(turn);

        // an invalid bundle, and one whose future was dropped, release it
        drop(reading);
        let empty = tempfile::tempdir().unwrap();
        let store = Store::open(empty.path()).unwrap();
        let digest: Digest = format!("sha256:{}", "b".repeat(64)).parse().unwrap();
        let files = store.begin(&digest).unwrap().commit().unwrap();
        let limits = BundleLimits::default();
        let nothing = PulledBundle { files, digest, record: None, request: String::new(), limits };
        assert!(nothing.read().await.is_err());
        assert_eq!(READS.available_permits(), PARALLEL_READS);
    }

    #[tokio::test(start_paused = true)]
    async fn bundle_check_counts_in_the_time_of_a_pull() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let digest: Digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        store.begin(&digest).unwrap().commit().unwrap();
        // it never answers
        let registry = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let longer = PULL_TIMEOUT * 2;
        let timeouts = olm_oci::Timeouts { connect: longer, answer: longer, ..olm_oci::Timeouts::default() };
        let puller = Puller::new(olm_oci::Config { timeouts, ..olm_oci::Config::default() });
        let fetcher = BundleFetcher::new(puller.in_scope("ns"), store);
        let image = format!("{}/b@{digest}", registry.local_addr().unwrap());
        let error = fetcher.pull(&image).await.unwrap_err();
        assert!(matches!(error, BundleError::Slow { .. }), "{error}");
    }

    #[test]
    fn bundle_in_quarantine_by_the_status_is_not_read() {
        let at = |request: Option<&str>, message: &str| {
            let directory = tempfile::tempdir().unwrap();
            let record = Some(directory.path().join("record"));
            let pulled = PulledBundle { record, ..pulled(directory.path()) };
            pulled.requested(request, Some(message)).map(drop).map_err(|error| error.to_string())
        };
        let text = |digit: &str, request: &str| {
            quarantined(&format!("sha256:{}", digit.repeat(64)).parse().unwrap(), 2, request)
        };
        let message =
            |text: &str| format!("error for resolved bundle \"p.v1\" with version \"1.0.0\": {text}");
        assert_eq!(at(None, &message(&text("a", ""))), Err(text("a", "")));
        assert_eq!(at(Some("t1"), &message(&text("a", "t1"))), Err(text("a", "t1")));
        assert_eq!(at(Some("t2"), &message(&text("a", "t1"))), Ok(()), "another request");
        assert_eq!(at(None, &message(&text("b", ""))), Ok(()), "another bundle");
        assert_eq!(at(None, "another message"), Ok(()));
    }

    #[test]
    fn bundle_that_ended_the_process_twice_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let record = dir.path().join("record");
        let digest: Digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let begin = |request: &str| Attempt::begin(&record, &digest, request);
        // a process that dies drops nothing
        let dies = |request: &str| {
            let _record = std::mem::ManuallyDrop::new(begin(request).unwrap());
        };
        dies("");
        drop(begin("").unwrap());
        assert!(!record.exists(), "a read that comes to an end counts for nothing");
        dies("");
        dies("");
        let error = begin("").unwrap_err();
        assert_eq!(error.retry(), Retry::Slow);
        assert!(error.to_string().starts_with("the process ended 2 times without a shutdown"), "{error}");
        for _ in 0..2 {
            dies("now");
        }
        let error = begin("now").unwrap_err().to_string();
        assert!(
            error.starts_with("the process ended 2 times") && error.contains("(request \"now\")"),
            "{error}"
        );
    }

    #[test]
    fn bundle_collection_spares_needed_and_recent_ones() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let digest =
            |letter: char| -> Digest { format!("sha256:{}", letter.to_string().repeat(64)).parse().unwrap() };
        for letter in ['a', 'b', 'c', 'd'] {
            store.begin(&digest(letter)).unwrap().commit().unwrap();
        }
        let mut fetcher = BundleFetcher::new(Puller::new(olm_oci::Config::default()), store.clone());
        fetcher.record_use("example.com/b:tag", &digest('b'));
        let other = fetcher.with_puller(Puller::new(olm_oci::Config::default()));
        other.record_use("example.com/c:tag", &digest('c'));
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
        assert_eq!(fetcher.collect(&needed, hour).unwrap(), 1, "c was not used lately");
        assert_eq!(store.digests().unwrap(), [digest('a'), digest('b')]);
        assert_eq!(fetcher.collect(&BTreeSet::new(), hour).unwrap(), 2);
        assert!(fetcher.used.lock().is_empty());
    }
}
