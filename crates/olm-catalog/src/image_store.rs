//! Catalog images on disk: pulled once by digest, kept as `catalog.jsonl` with its index, read by byte ranges.
//!
//! Memory grows with the requested package, not with the catalog. [`crate::image`] reads the images; files
//! that do not decode are listed beside the content. Rules: catalogd §5.7, §6.2; decision 15 (all or nothing on disk).

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use olm_core::{Digest, ImageRef};
use olm_fbc::{Finding, Index, Ingest, IngestError, file_findings};
use olm_oci::{Lease, Puller, Store, StoreError, parse_reference};
use parking_lot::Mutex;

use crate::catalogd::MAX_PACKAGE;
use crate::image::{self, CatalogImageError, CatalogLimits, Step};

const CONTENT: &str = "catalog.jsonl";
const INDEX: &str = "catalog.index";
const PASSED_OVER: &str = "passed-over.json";
const SPOOL: &str = "spool";

/// Opens catalog images. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CatalogImages {
    puller: Puller,
    store: Store,
    /// What is open: images of one digest have one index.
    opened: Arc<Mutex<HashMap<Digest, Weak<Opened>>>>,
}

/// An opened catalog image; its content stays while this is held.
#[derive(Debug)]
pub struct CatalogImage {
    /// Canonical reference with digest.
    pub(crate) reference: String,
    pub(crate) opened: Arc<Opened>,
}

/// The content of a digest, for all references that lead to it.
#[derive(Debug)]
pub(crate) struct Opened {
    lease: Lease,
    /// The position of each object.
    pub(crate) index: Index,
    /// Files that do not decode, and why.
    pub(crate) passed_over: Vec<String>,
}

impl CatalogImages {
    /// Keeps content in `store`.
    #[must_use]
    pub fn new(puller: Puller, store: Store) -> Self {
        Self { puller, store, opened: Arc::default() }
    }

    /// The same with another puller, such as one with other credentials: what is open is shared.
    #[must_use]
    pub fn with_puller(&self, puller: Puller) -> Self {
        Self { puller, ..self.clone() }
    }

    /// The catalog behind `reference`. A tag costs one manifest request; cached content is not pulled again, see [`Puller::check_stored`].
    /// `progress` is called before each long step.
    ///
    /// # Errors
    /// See [`CatalogImageError`].
    pub async fn open(
        &self,
        reference: &str,
        progress: impl FnMut(Step) + Send,
    ) -> Result<CatalogImage, CatalogImageError> {
        let (image, unchecked) = self.open_checked(reference, progress).await?;
        if let Some(error) = unchecked {
            tracing::info!(reference, %error, "cached content is used without its registry");
        }
        Ok(image)
    }

    /// As [`CatalogImages::open`], with the error of [`Puller::check_stored`] beside content that is used nevertheless.
    async fn open_checked(
        &self,
        reference: &str,
        mut progress: impl FnMut(Step) + Send,
    ) -> Result<(CatalogImage, Option<olm_oci::Error>), CatalogImageError> {
        let asked = parse_reference(reference)?;
        let canonical = self.puller.resolve(&asked).await?;
        let Some(digest) = canonical.digest() else {
            return Err(olm_oci::Error::ReferenceForm { why: format!("{canonical} has no digest") }.into());
        };
        let verified = &self.puller.verify(&asked, &canonical).await?;
        let canonical = &canonical;
        let fill = |directory: PathBuf| async move {
            progress(Step::Resolved { reference: canonical.clone() });
            let spool = File::create(directory.join(SPOOL)).map_err(IngestError::Write)?;
            let limits = CatalogLimits::default();
            let read =
                image::ingest(&self.puller, verified, &limits, progress, BufWriter::new(spool)).await?;
            tokio::task::spawn_blocking(move || finish(read, &directory)).await??;
            Ok::<(), CatalogImageError>(())
        };
        let lease = self.store.get_or_fill(digest, fill).await?;
        let unchecked = self.puller.check_stored(&self.store, verified).await?;
        let (images, reference, digest) = (self.clone(), canonical.to_string(), digest.clone());
        let opened = tokio::task::spawn_blocking(move || images.opened(reference, digest, lease));
        Ok((opened.await??, unchecked))
    }

    /// Images are opened one after the other, so that the index of a digest is read once. Blocks on the disk.
    fn opened(
        &self,
        reference: String,
        digest: Digest,
        lease: Lease,
    ) -> Result<CatalogImage, CatalogImageError> {
        let mut all = self.opened.lock();
        all.retain(|_, opened| opened.strong_count() > 0);
        let opened = match all.get(&digest).and_then(Weak::upgrade) {
            Some(opened) => opened,
            None => {
                let opened = Arc::new(Opened::read(&reference, lease)?);
                all.insert(digest, Arc::downgrade(&opened));
                opened
            }
        };
        Ok(CatalogImage { reference, opened })
    }

    /// As [`CatalogImages::open`]. While the registry of a tag is not available, or the files that a request needs cannot be used, the content
    /// that the tag had when it was opened last in the same `scope`, if that is cached, with the error; that is returned, too, beside content
    /// of a digest that [`Puller::check_stored`] accepts without its registry. Images that one scope has credentials for are not opened in
    /// another.
    ///
    /// # Errors
    /// See [`CatalogImageError`].
    pub async fn open_or_recorded(
        &self,
        scope: &str,
        reference: &str,
    ) -> Result<(CatalogImage, Option<CatalogImageError>), CatalogImageError> {
        let asked = parse_reference(reference)?;
        match self.open_checked(reference, |_| ()).await {
            Ok((image, unchecked)) => {
                self.record(scope, &asked, &image).await;
                Ok((image, unchecked.map(CatalogImageError::from)))
            }
            Err(error) if error.is_unavailable() => match self.recorded(scope, &asked).await {
                Ok(Some(image)) => Ok((image, Some(error))),
                Ok(None) => Err(error),
                Err(cause) => {
                    tracing::info!(reference, error = %cause, "cannot open the recorded content of a tag");
                    Err(error)
                }
            },
            Err(error) => Err(error),
        }
    }

    /// Records the digest of a tag.
    async fn record(&self, scope: &str, asked: &ImageRef, image: &CatalogImage) {
        let canonical: Option<ImageRef> = image.reference.parse().ok();
        let digest = canonical.and_then(|it| it.digest().cloned());
        let Some(digest) = digest.filter(|_| asked.tag().is_some()) else { return };
        let (store, scope, tag) = (self.store.clone(), scope.to_owned(), asked.clone());
        let written = tokio::task::spawn_blocking(move || store.record_tag(&scope, &tag, &digest)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(reference = %asked, %error, "cannot record the digest of a tag");
        }
    }

    /// Removes content that is not opened and that none of `references` has, each with its scope: by its digest, or by the digest that its
    /// tag had when it was opened last. Only what is in `unused` is removed, which then has what is unused now: so content goes when two
    /// calls in a row have found it unused. Returns the number of removed catalogs. Blocks on the disk.
    ///
    /// # Errors
    /// When the disk fails; what was removed before stays removed.
    pub fn collect(
        &self,
        references: &BTreeSet<(String, String)>,
        unused: &mut BTreeSet<Digest>,
    ) -> Result<usize, StoreError> {
        let digest = |(scope, reference): &(String, String)| {
            let reference = parse_reference(reference).ok()?;
            let Some(digest) = reference.digest() else { return self.store.tag_digest(scope, &reference) };
            self.store.renew_use(scope, digest);
            Some(digest.clone())
        };
        let in_use: BTreeSet<Digest> = references.iter().filter_map(digest).collect();
        let before = std::mem::take(unused);
        unused.extend(self.store.digests()?.into_iter().filter(|digest| !in_use.contains(digest)));
        let removed = self.store.collect(|digest| !(unused.contains(digest) && before.contains(digest)))?;
        Ok(removed.len())
    }

    async fn recorded(
        &self,
        scope: &str,
        asked: &ImageRef,
    ) -> Result<Option<CatalogImage>, CatalogImageError> {
        let (store, scope, tag) = (self.store.clone(), scope.to_owned(), asked.clone());
        let digest = tokio::task::spawn_blocking(move || store.tag_digest(&scope, &tag)).await?;
        let Some(digest) = digest else { return Ok(None) };
        let canonical = asked.with_digest(digest.clone());
        self.puller.verify(asked, &canonical).await?;
        let (images, reference) = (self.clone(), canonical.to_string());
        let opened = tokio::task::spawn_blocking(move || {
            let lease = images.store.get(&digest)?;
            lease.map(|lease| images.opened(reference, digest, lease)).transpose()
        });
        opened.await?
    }
}

impl Opened {
    fn read(reference: &str, lease: Lease) -> Result<Self, CatalogImageError> {
        let cached = |why: String| CatalogImageError::Cached { reference: reference.to_owned(), why };
        let read = |name: &str| {
            std::fs::read(lease.path().join(name)).map_err(|error| cached(format!("{name}: {error}")))
        };
        let index = Index::from_bytes(&read(INDEX)?).map_err(|error| cached(error.to_string()))?;
        let passed_over =
            serde_json::from_slice(&read(PASSED_OVER)?).map_err(|error| cached(error.to_string()))?;
        Ok(Self { lease, index, passed_over })
    }
}

impl CatalogImage {
    /// The reference with the digest of the image.
    #[must_use]
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// About how many bytes of memory it takes, once for all images of its digest.
    #[must_use]
    pub fn memory(&self) -> usize {
        let passed_over = self.opened.passed_over.iter().map(|text| size_of::<String>() + text.len());
        self.opened.index.memory() + passed_over.sum::<usize>()
    }

    /// Names of the packages, sorted.
    #[must_use]
    pub fn packages(&self) -> Vec<String> {
        self.opened.index.packages().into_iter().map(str::to_owned).collect()
    }

    /// The JSON lines of one package.
    ///
    /// # Errors
    /// When the file cannot be read, or the lines have too many bytes.
    pub fn package_lines(&self, package: &str) -> io::Result<Vec<u8>> {
        let sections = self.opened.index.package_sections(package);
        check_package(sections.iter().map(|it| it.end - it.start).sum())?;
        let file = &mut File::open(self.opened.lease.path().join(CONTENT))?;
        let mut lines = Vec::new();
        for section in sections {
            file.seek(SeekFrom::Start(section.start))?;
            let length = section.end - section.start;
            if Read::take(&mut *file, length).read_to_end(&mut lines)? as u64 != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(lines)
    }
}

/// # Errors
/// When the lines of a package have more bytes than one that catalogd serves may have.
fn check_package(bytes: u64) -> io::Result<()> {
    let limit = MAX_PACKAGE as u64;
    match bytes > limit {
        true => Err(io::Error::other(format!("it has {bytes} bytes, the limit is {limit}"))),
        false => Ok(()),
    }
}

/// Writes the content and the index that [`Opened::read`] reads.
fn finish(read: Ingest<BufWriter<File>>, directory: &Path) -> Result<(), IngestError> {
    let (ingested, problems) = read.finish_all()?;
    let written = || -> io::Result<()> {
        let spool = directory.join(SPOOL);
        if ingested.in_order() {
            std::fs::rename(&spool, directory.join(CONTENT))?;
        } else {
            let mut content = BufWriter::new(File::create(directory.join(CONTENT))?);
            ingested.emit(&mut File::open(&spool)?, &mut content)?;
            content.flush()?;
            std::fs::remove_file(&spool)?;
        }
        std::fs::write(directory.join(INDEX), ingested.index.to_bytes())?;
        let passed_over: Vec<String> = file_findings(&problems).iter().map(Finding::located).collect();
        std::fs::write(directory.join(PASSED_OVER), serde_json::to_vec(&passed_over)?)
    };
    written().map_err(IngestError::Write)
}

#[cfg(test)]
mod tests {
    use olm_fbc::IngestLimits;
    use olm_oci::{Config, Credentials};

    use super::*;

    /// An empty catalog of this digest in the store.
    fn put(store: &Store, digest: &str) {
        let staging = store.begin(&digest.parse().unwrap()).unwrap();
        let spool = File::create(staging.path().join(SPOOL)).unwrap();
        finish(Ingest::new(BufWriter::new(spool), IngestLimits::default()), staging.path()).unwrap();
        staging.commit().unwrap();
    }

    #[test]
    fn package_lines_of_an_image_are_limited() {
        let limit = MAX_PACKAGE as u64;
        assert!(check_package(limit).is_ok());
        let error = check_package(limit + 1).unwrap_err().to_string();
        assert_eq!(error, "it has 67108865 bytes, the limit is 67108864");
    }

    #[tokio::test]
    async fn recorded_tag_opens_without_its_registry() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let digest = format!("sha256:{}", "1".repeat(64));
        put(&store, &digest);
        let images = CatalogImages::new(Puller::new(Config::default()), store.clone());
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (tag, canonical) = (format!("{unused}/c:v1"), format!("{unused}/c@{digest}"));
        let error = images.open_or_recorded("ns", &tag).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        let image = images.open(&canonical, |_| ()).await.unwrap();
        images.record("ns", &tag.parse().unwrap(), &image).await;
        for (scope, tag, want) in [
            ("ns", tag.clone(), true),
            ("other", tag.clone(), false),
            ("ns", format!("{unused}/c:v2"), false),
        ] {
            match images.open_or_recorded(scope, &tag).await {
                Ok((image, error)) => {
                    assert!(want && image.reference() == canonical, "{scope} {tag}: {}", image.reference());
                    assert!(error.is_some_and(|it| it.is_unavailable()), "{scope} {tag}");
                }
                Err(error) => assert!(!want && error.is_unavailable(), "{scope} {tag}: {error}"),
            }
        }
        let file = directory.path().join("auth.json");
        std::fs::write(&file, "{").unwrap();
        let credentials = Credentials { file: Some(file), ..Credentials::default() };
        let unreadable = images.with_puller(Puller::new(Config { credentials, ..Config::default() }));
        let (_, error) = unreadable.open_or_recorded("ns", &tag).await.unwrap();
        assert!(error.is_some_and(|it| it.to_string().contains("auth file")));
        drop(image);
        store.collect(|_| false).unwrap();
        let error = images.open_or_recorded("ns", &tag).await.unwrap_err();
        assert!(error.is_unavailable(), "its content is gone: {error}");
    }

    #[tokio::test]
    async fn cached_digest_without_its_registry_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let digest = format!("sha256:{}", "1".repeat(64));
        put(&store, &digest);
        store.record_use("ns", &digest.parse().unwrap()).unwrap();
        let images = CatalogImages::new(Puller::new(Config::default()), store);
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let canonical = format!("{unused}/c@{digest}");
        for (scope, want) in [("ns", true), ("other", false)] {
            let images = images.with_puller(images.puller.in_scope(scope));
            let (error, is_opened) = match images.open_or_recorded(scope, &canonical).await {
                Ok((image, error)) => {
                    assert_eq!(image.reference(), canonical);
                    (error.unwrap(), true)
                }
                Err(error) => (error, false),
            };
            assert!(error.is_unavailable() && is_opened == want, "{scope}: {error}");
            assert_eq!(images.open(&canonical, |_| ()).await.is_ok(), want, "{scope}");
        }
    }

    #[tokio::test]
    async fn index_of_a_digest_is_in_memory_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        ["1", "2"].into_iter().for_each(|digit| put(&store, &digest(digit)));
        let images = CatalogImages::new(Puller::new(Config::default()), store.clone());
        let others = images.with_puller(Puller::new(Config::default()));
        let open = async |images: &CatalogImages, repository: &str, digit: &str| {
            images.open(&format!("{repository}@{}", digest(digit)), |_| ()).await.unwrap()
        };
        let first = open(&images, "r.test/c", "1").await;
        let same = open(&others, "mirror.test/c", "1").await;
        let other = open(&others, "r.test/c", "2").await;
        assert!(Arc::ptr_eq(&first.opened, &same.opened) && !Arc::ptr_eq(&first.opened, &other.opened));
        assert_eq!(same.reference(), format!("mirror.test/c@{}", digest("1")));
        assert!(first.memory() > 0);
        drop((first, same));
        let left = open(&images, "r.test/c", "2").await;
        assert!(Arc::ptr_eq(&left.opened, &other.opened));
        assert_eq!(images.opened.lock().len(), 1, "what is not open any more leaves nothing behind");
    }

    #[tokio::test]
    async fn catalog_collection_spares_what_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let digest = |digit: u8| format!("sha256:{}", digit.to_string().repeat(64));
        (1..=5).for_each(|digit| put(&store, &digest(digit)));
        let images = CatalogImages::new(Puller::new(Config::default()), store.clone());
        let open =
            async |digit: u8| images.open(&format!("r.test/c@{}", digest(digit)), |_| ()).await.unwrap();
        for (scope, tag, digit) in [("ns", "r.test/c:v1", 2), ("gone", "r.test/c:v1", 3)] {
            images.record(scope, &tag.parse().unwrap(), &open(digit).await).await;
        }
        let by_digest = format!("r.test/c@{}", digest(1));
        let references =
            [("ns", by_digest.as_str()), ("ns", "r.test/c:v1"), ("ns", "r.test/c:v2"), ("ns", "C:")];
        let references = references.map(|(scope, text)| (scope.to_owned(), text.to_owned())).into();
        let opened = open(4).await;
        let mut unused = BTreeSet::new();
        for (removed, left) in [(0, &[1, 2, 3, 4, 5][..]), (2, &[1, 2, 4]), (0, &[1, 2, 4])] {
            assert_eq!(images.collect(&references, &mut unused).unwrap(), removed);
            let left = left.iter().map(|digit| digest(*digit).parse::<Digest>().unwrap());
            assert!(store.digests().unwrap().into_iter().eq(left), "{:?}", store.digests());
        }
        drop(opened);
        assert_eq!(images.collect(&references, &mut unused).unwrap(), 1);
    }

    /// The records that were not read for the longest time are evicted first.
    #[test]
    fn catalog_collection_reads_the_records_in_use() {
        use std::time::SystemTime;

        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (tag, digest) = ("r.test/c:v1", format!("sha256:{}", "1".repeat(64)));
        put(&store, &digest);
        let image = digest.parse().unwrap();
        store.record_tag("ns", &tag.parse().unwrap(), &image).unwrap();
        store.record_use("ns", &image).unwrap();
        let first = |folder: &Path| std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        let records = ["tags", "used"].map(|name| {
            let record = File::open(first(&first(&directory.path().join(name)))).unwrap();
            record.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            record
        });
        let images = CatalogImages::new(Puller::new(Config::default()), store);
        let references = [tag.to_owned(), format!("r.test/c@{digest}")].map(|text| ("ns".to_owned(), text));
        images.collect(&references.into(), &mut BTreeSet::new()).unwrap();
        for record in records {
            assert!(record.metadata().unwrap().modified().unwrap() > SystemTime::UNIX_EPOCH, "{record:?}");
        }
    }
}
