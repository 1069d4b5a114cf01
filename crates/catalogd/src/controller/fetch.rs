//! From a reference to stored content: resolve, check whether it is stored already, pull, ingest.
//!
//! Knows registries and the store, not the API server. Pulls run side by side with a bound for all and a smaller one for
//! each registry, so that a slow registry does not hold up the others. Rules: catalogd §4.6 (texts), §5.6, §12 rows
//! 3 to 6; decision 15.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use olm_api::annotations;
use olm_core::{Digest, ImageRef};
use olm_fbc::IngestLimits;
use olm_oci::{Limits, Puller, Selection, Verified, VisitError, parse_reference};
use olm_runtime::pull_secrets;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::credentials::Credentials;
use super::plan::Retry;
use crate::ingest::{Ingest, IngestError};
use crate::store::{Content, Lease, Store};

/// The label that names the catalog's directory in the image.
const LABEL: &str = "operators.operatorframework.io.index.configs.v1";
const MAX_PULLS: u32 = 4;
const MAX_PULLS_OF_A_REGISTRY: usize = 2;
/// How long one pull may take; stalls end it much earlier.
const PULL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Attempts to read an image that may end with the process before it is refused.
const MAX_ATTEMPTS: u32 = 2;
/// How long finding out a digest may take: long enough for several mirrors that do not answer.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(300);

/// Content for a reference, safe from collection while this is held.
#[derive(Debug)]
pub struct Fetched {
    /// Canonical reference with digest.
    pub reference: String,
    pub content: Arc<Content>,
    /// Who signed the image, if the signature policy asks for that.
    pub signer: Option<String>,
    /// Keeps it until it is published.
    pub lease: Lease,
}

/// Why there is no content, in the words of the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchError {
    /// The whole chain of causes.
    pub message: String,
    /// When another attempt may help.
    pub retry: Retry,
    /// The content that the signature policy does not accept.
    pub rejected: Option<Digest>,
    /// The image is not read again, because reading it ended the process.
    pub quarantined: bool,
}

/// How the end of earlier processes counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History<'a> {
    /// The image that the message of [`super::plan::quarantine`] names is not read, and no image that ended this process.
    Counts(Option<&'a str>),
    /// The user asks for an attempt whatever happened before.
    Ignored,
}

impl FetchError {
    fn new(message: String, retry: Retry) -> Self {
        Self { message, retry, rejected: None, quarantined: false }
    }
}

/// Fetches content.
pub struct Fetch {
    puller: Puller,
    credentials: Credentials,
    store: Store,
    image_limits: Limits,
    content_limits: IngestLimits,
    places: Semaphore,
    registries: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Images whose content was refused, so that a poll of the same digest does not pull it again.
    refused: Mutex<HashMap<Digest, FetchError>>,
}

impl Fetch {
    /// Nothing is contacted yet.
    #[must_use]
    pub fn new(puller: Puller, credentials: Credentials, store: Store) -> Self {
        Self {
            puller,
            credentials,
            store,
            image_limits: Limits::default(),
            content_limits: IngestLimits::default(),
            places: Semaphore::new(MAX_PULLS as usize),
            registries: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Reads within other limits.
    #[must_use]
    pub fn with_limits(self, image_limits: Limits, content_limits: IngestLimits) -> Self {
        Self { image_limits, content_limits, ..self }
    }

    /// The content that a reference leads to now. If it is stored already, only the digest is asked for, and signatures if
    /// the policy wants to see them. `source` is the user's reference, where `text` is what it was resolved to.
    ///
    /// When the future is dropped, the threads that read and store the image stop at their next check.
    ///
    /// # Errors
    /// The error message for the condition, and when to try again.
    pub async fn by_reference(
        &self,
        text: &str,
        source: Option<&str>,
        history: History<'_>,
    ) -> Result<Fetched, FetchError> {
        let reference = parse_reference(text).map_err(|error| pulling(&error))?;
        let asked = match source {
            Some(source) => parse_reference(source).map_err(|error| pulling(&error))?,
            None => reference.clone(),
        };
        if reference.digest().is_none() {
            self.credentials.refresh().await;
        }
        let resolving = self.puller.resolve(&reference);
        let canonical = match tokio::time::timeout(RESOLVE_TIMEOUT, resolving).await {
            Ok(resolved) => resolved.map_err(|error| pulling(&error))?,
            Err(_) => return Err(slow("resolving the reference", RESOLVE_TIMEOUT)),
        };
        let Some(digest) = canonical.digest().cloned() else {
            let message = format!("source catalog content: {canonical} has no digest");
            return Err(FetchError::new(message, Retry::Never));
        };
        let verified = self.verify(&asked, &canonical, &digest, reference.digest().is_none()).await?;
        let signer = verified.signer().map(str::to_owned);
        let lease = self.store.lease(&digest);
        let (store, lease, stored) = {
            let store = self.store.clone();
            let found = tokio::task::spawn_blocking(move || {
                let stored = store.find(&lease);
                (store, lease, stored)
            });
            found.await.map_err(|error| FetchError::new(error.to_string(), Retry::Backoff))?
        };
        if let Some(content) = stored {
            return Ok(Fetched { reference: canonical.to_string(), content, signer, lease });
        }
        match history {
            History::Ignored => drop(self.refused.lock().remove(&digest)),
            History::Counts(_) => {
                if let Some(known) = self.refused.lock().get(&digest) {
                    return Err(known.clone());
                }
            }
        }
        let suspected = self.check_history(&digest, history)?;
        if reference.digest().is_some() {
            self.credentials.refresh().await;
        }
        let registry = self.registry(canonical.registry());
        // The place at the registry comes first: waiting for a slow registry takes no place from others.
        let _one = registry.acquire().await.ok();
        // An image that may have ended the process is read alone, so that a second death is not counted for others.
        let _all = self.places.acquire_many(if suspected { MAX_PULLS } else { 1 }).await.ok();
        let by_tag = reference.digest().is_none();
        let pulling = self.pull(&verified, by_tag, &store, lease);
        let (content, lease) = match tokio::time::timeout(PULL_TIMEOUT, pulling).await {
            Ok(pulled) => pulled?,
            Err(_) => return Err(slow("the pull", PULL_TIMEOUT)),
        };
        Ok(Fetched { reference: canonical.to_string(), content, signer, lease })
    }

    /// Refuses an image that has ended processes again and again; returns whether it may have ended one.
    fn check_history(&self, digest: &Digest, history: History<'_>) -> Result<bool, FetchError> {
        let attempts = self.store.unfinished_attempts(digest);
        let message = match history {
            History::Ignored => {
                self.store.clear_attempts(digest).map_err(|error| storing(&error.into()))?;
                return Ok(attempts > 0);
            }
            // of this replica or of another one
            History::Counts(Some(message)) if message.contains(digest.as_str()) => message.to_owned(),
            History::Counts(_) if attempts < MAX_ATTEMPTS => return Ok(attempts > 0),
            History::Counts(_) => quarantined(digest, attempts),
        };
        Err(FetchError { quarantined: true, ..FetchError::new(message, Retry::Slow) })
    }

    /// Asks the signature policy, before anything of the image is read. `refreshed`: the credentials are those of now.
    async fn verify(
        &self,
        asked: &ImageRef,
        canonical: &ImageRef,
        digest: &Digest,
        refreshed: bool,
    ) -> Result<Verified, FetchError> {
        let verifying = self.puller.verify(asked, canonical).await;
        let error = match verifying {
            Ok(verified) => return Ok(verified),
            Err(error) if refreshed => error,
            // without credentials a registry may answer that there is nothing
            Err(_) => {
                self.credentials.refresh().await;
                match self.puller.verify(asked, canonical).await {
                    Ok(verified) => return Ok(verified),
                    Err(error) => error,
                }
            }
        };
        Err(FetchError { rejected: error.is_rejection().then(|| digest.clone()), ..pulling(&error) })
    }

    async fn pull(
        &self,
        verified: &Verified,
        by_tag: bool,
        store: &Store,
        lease: Lease,
    ) -> Result<(Arc<Content>, Lease), FetchError> {
        let image = self.puller.open_verified(verified).await.map_err(|error| pulling(&error))?;
        let selection = selection(&image.labels, by_tag)?;
        let digest = lease.digest().clone();
        let attempt = store.attempt(&digest).map_err(|error| storing(&error.into()))?;
        let staged = store.stage(lease).map_err(IngestError::Store);
        let staged = staged.and_then(|staging| Ingest::new(staging, self.content_limits));
        let ingest = staged.map_err(|error| storing(&error))?;
        // threads cannot be dropped: they look at this
        let _cancel = ingest.cancellation().drop_guard();
        let ingest = match image.visit(selection, &self.image_limits, ingest).await {
            Ok(ingest) => ingest,
            Err(VisitError::Pull(error)) if error.is_permanent() => {
                attempt.finish();
                return Err(self.refuse(&digest, pulling(&error)));
            }
            Err(VisitError::Pull(error)) => return Err(pulling(&error)),
            Err(VisitError::Visitor(error)) => {
                attempt.finish();
                return Err(self.refuse(&digest, storing(&error)));
            }
        };
        let committed = tokio::task::spawn_blocking(move || ingest.commit()).await;
        let committed = committed.map_err(|error| FetchError::new(error.to_string(), Retry::Backoff))?;
        attempt.finish();
        committed.map_err(|error| self.refuse(&digest, storing(&error)))
    }

    /// Remembers content that will be refused again.
    fn refuse(&self, digest: &Digest, error: FetchError) -> FetchError {
        if error.retry == Retry::Slow {
            let mut refused = self.refused.lock();
            if refused.len() >= MAX_REFUSED {
                refused.clear();
            }
            refused.insert(digest.clone(), error.clone());
        }
        error
    }

    fn registry(&self, name: &str) -> Arc<Semaphore> {
        let mut registries = self.registries.lock();
        registries.retain(|_, places| Arc::strong_count(places) > 1);
        Arc::clone(
            registries
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(MAX_PULLS_OF_A_REGISTRY))),
        )
    }
}

/// Refused images remembered at most.
const MAX_REFUSED: usize = 256;

/// The directory of the catalog that the label names.
pub(super) fn selection(labels: &BTreeMap<String, String>, by_tag: bool) -> Result<Selection, FetchError> {
    let Some(path) = labels.get(LABEL) else {
        // A tag may be pushed again with the label; a digest stays as it is.
        let (prefix, retry) = if by_tag { ("", Retry::Backoff) } else { ("terminal error: ", Retry::Never) };
        let message = format!(
            "source catalog content: error applying image: {prefix}catalog image is missing the required label \"{LABEL}\""
        );
        return Err(FetchError::new(message, retry));
    };
    let path = path.strip_prefix('/').unwrap_or(path);
    if path.is_empty() || path == "." {
        return Ok(Selection::everything());
    }
    Selection::beneath([path]).map_err(|fault| {
        FetchError::new(format!("source catalog content: error applying image: {fault}"), Retry::Slow)
    })
}

pub(super) fn quarantined(digest: &Digest, attempts: u32) -> String {
    format!(
        "error storing fbc: catalogd ended {attempts} times without a shutdown while it read the image {digest} \
         (memory limit, kill or crash), so the image is not read again; publish another image, or raise the memory \
         limit and change the annotation {}",
        annotations::REQUESTED_AT
    )
}

pub(super) fn slow(what: &str, limit: Duration) -> FetchError {
    let message = format!("source catalog content: {what} took longer than {} s", limit.as_secs());
    FetchError::new(message, Retry::Backoff)
}

pub(super) fn pulling(error: &olm_oci::Error) -> FetchError {
    let (prefix, retry) = match error.retry() {
        olm_oci::Retry::Terminal => ("terminal error: ", Retry::Never),
        olm_oci::Retry::Slow => ("", Retry::Slow),
        olm_oci::Retry::Backoff => ("", Retry::Backoff),
        olm_oci::Retry::After(pause) => ("", Retry::After(pause)),
    };
    let remedy = if error.is_unauthorized() {
        format!("; {}", pull_secrets::remedy("catalogd"))
    } else {
        String::new()
    };
    FetchError::new(format!("source catalog content: {prefix}{error}{remedy}"), retry)
}

pub(super) fn storing(error: &IngestError) -> FetchError {
    let retry = if error.is_permanent() { Retry::Slow } else { Retry::Backoff };
    FetchError::new(format!("error storing fbc: {error}"), retry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rule: catalogd §4.6
    #[test]
    fn fetch_retries_a_missing_label_of_a_tag() {
        for (by_tag, want) in [(true, Retry::Backoff), (false, Retry::Never)] {
            assert_eq!(selection(&BTreeMap::new(), by_tag).unwrap_err().retry, want, "{by_tag}");
        }
    }

    /// rule: catalogd §5.7
    #[test]
    fn fetch_names_a_label_that_leads_out_of_the_image() {
        let error = selection(&[(LABEL.to_owned(), "../x".to_owned())].into(), false).unwrap_err();
        let want = "source catalog content: error applying image: error getting relative path: \"../x\" leads out of the image";
        assert_eq!(error.message, want);
    }
}
