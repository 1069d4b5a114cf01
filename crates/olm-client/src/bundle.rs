//! Fetching a bundle: image reference to parsed registry+v1 content, with a cache on disk by image digest.
//!
//! It does not render and does not know who asks. Rule: resolution §7.7.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use olm_bundle::{ParseError, RegistryV1};
use olm_oci::store::Seal;
use olm_oci::{Limits, Puller, Retry, Selection, Store, Verified, parse_reference};
use tokio::sync::Semaphore;

/// Directories of a bundle image that are read; everything else stays in the registry's layers.
const CONTENT: [&str; 2] = ["manifests", "metadata"];
/// Bundles that are pulled from one registry at the same time: one that does not answer holds up nobody else.
const PARALLEL: usize = 4;

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
}

impl BundleFetcher {
    /// Keeps unpacked bundles in `store`.
    #[must_use]
    pub fn new(puller: Puller, store: Store) -> Self {
        Self { puller, store, permits: Arc::default() }
    }

    /// The bundle behind `reference`. A tag costs one manifest request, a digest that is in the cache none. The signature
    /// policy is asked about what is in the cache, too.
    ///
    /// # Errors
    /// See [`BundleError`]; [`BundleError::retry`] says what helps.
    pub async fn fetch(&self, reference: &str) -> Result<RegistryV1, BundleError> {
        let reference = parse_reference(reference)?;
        let canonical = self.puller.resolve(&reference).await?;
        let verified = self.puller.verify(&reference, &canonical).await?;
        let lease = match canonical.digest() {
            Some(digest) => {
                self.store
                    .get_or_fill(digest, Seal::Sizes, |directory| self.unpack(&verified, directory))
                    .await?
            }
            None => {
                let why = format!("{canonical} has no digest");
                return Err(BundleError::Image(olm_oci::Error::ReferenceForm { why }));
            }
        };
        let bundle = tokio::task::spawn_blocking(move || RegistryV1::load_dir(lease.path())).await??;
        Ok(bundle)
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
        let mut all = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, permits| Arc::strong_count(permits) > 1);
        let permits = all.entry(registry.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(PARALLEL)));
        Arc::clone(permits)
    }
}
