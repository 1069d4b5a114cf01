//! Reading a catalog straight from its image, without a cluster: reference to catalog in memory, nothing on disk.
//!
//! It does not validate and keeps no cache. The image is streamed through the same reader that catalogd has, under
//! [`CatalogLimits`]; files that do not decode are reported beside what could be read. Rules: catalogd §5.6, §5.7;
//! fbc §2 to §4.

use std::io::{Read, Write};
use std::path::PathBuf;

use olm_core::ImageRef;
use olm_fbc::{CONFIGS_LABEL, Catalog, FileError, Ingest, IngestError, IngestLimits};
use olm_oci::{
    Config, Limits, Puller, RegistriesFiles, Selection, SignaturePolicy, StoreError, Verified, VisitError,
    Visitor, parse_reference,
};

/// Access to registries for interactive use, in addition to the configuration files of the container tools.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// A docker or containers credentials file, instead of the usual places.
    pub auth_file: Option<PathBuf>,
    /// A directory with `*.crt` roots and `X.cert`/`X.key` client certificates, for every registry.
    pub cert_dir: Option<PathBuf>,
    /// A file with roots that are trusted for every registry.
    pub ca_file: Option<PathBuf>,
    /// A registries.conf, instead of those in the usual places.
    pub registries_conf: Option<PathBuf>,
    /// Allow plain HTTP and unverified TLS.
    pub insecure: bool,
}

impl Access {
    /// A puller with these settings; credentials, mirrors, proxies and certificates come from where the container tools
    /// look (catalogd §5.2 to §5.4).
    #[must_use]
    pub fn puller(&self) -> Puller {
        self.puller_under(SignaturePolicy::AcceptAnything)
    }

    /// As [`Access::puller`], with a signature policy.
    #[must_use]
    pub fn puller_under(&self, signature_policy: SignaturePolicy) -> Puller {
        Puller::new(Config { signature_policy, ..self.config() })
    }

    /// The configuration of these pullers.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut config = Config::from_env().with_certificates(self.cert_dir.as_deref());
        if let Some(file) = &self.auth_file {
            config.credentials.file = Some(file.clone());
            config.credentials.default_files.clear();
        }
        config.certificates.files.extend(self.ca_file.clone());
        if let Some(file) = &self.registries_conf {
            config.registries = RegistriesFiles { file: Some(file.clone()), ..RegistriesFiles::default() };
        }
        config.insecure = self.insecure;
        config
    }
}

/// Bounds on one catalog that is held in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogLimits {
    /// On the image.
    pub image: Limits,
    /// On the content made from it.
    pub content: IngestLimits,
}

impl Default for CatalogLimits {
    /// A catalog of 1 GiB, in an image of 4 GiB.
    fn default() -> Self {
        Self {
            image: Limits { download_bytes: 4 << 30, selected_bytes: 2 << 30, ..Limits::default() },
            content: IngestLimits { bytes: 1 << 30, ..IngestLimits::default() },
        }
    }
}

/// Progress of reading a catalog image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The digest is known; manifest and config come next.
    Resolved {
        /// Canonical reference.
        reference: ImageRef,
    },
    /// Layers are being downloaded and read.
    Reading {
        /// Bytes to download.
        bytes: u64,
        /// Number of layers.
        layers: usize,
    },
}

/// A catalog and the image that it was read from.
#[derive(Debug)]
pub struct ImageCatalog {
    /// The reference with the digest of the image.
    pub reference: ImageRef,
    /// The content that decodes.
    pub catalog: Catalog,
    /// Files that do not decode, in walk order.
    pub problems: Vec<FileError>,
}

/// A catalog cannot be read from an image.
#[derive(Debug, thiserror::Error)]
pub enum CatalogImageError {
    /// The reference, the registry or the image.
    #[error(transparent)]
    Image(#[from] olm_oci::Error),
    /// The image is none of a catalog.
    #[error("{reference} is not a catalog image: it lacks the label {label:?}{hint}", label = CONFIGS_LABEL)]
    NoLabel {
        reference: ImageRef,
        /// What the image may be instead, or empty.
        hint: &'static str,
    },
    /// A limit is reached or a path is none.
    #[error(transparent)]
    Content(#[from] IngestError),
    /// The cache on disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Cached content cannot be read.
    #[error("cannot read cached content of {reference}: {why}")]
    Cached { reference: String, why: String },
    /// The reading task died.
    #[error("reading the catalog did not end: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl CatalogImageError {
    /// As [`olm_oci::Error::is_unavailable`].
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Image(error) if error.is_unavailable())
    }

    /// Whether trying again with the same image would end the same way.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Image(error) => error.is_permanent(),
            Self::Content(error) => error.is_permanent(),
            Self::NoLabel { .. } => true,
            Self::Store(_) | Self::Cached { .. } | Self::Task(_) => false,
        }
    }
}

/// The catalog behind an image reference. A tag costs one request more than a digest.
///
/// `progress` is called before each long step, on the task of the caller.
///
/// # Errors
/// See [`CatalogImageError`].
pub async fn catalog_metas(
    puller: &Puller,
    reference: &str,
    limits: &CatalogLimits,
    mut progress: impl FnMut(Step) + Send,
) -> Result<ImageCatalog, CatalogImageError> {
    let asked = parse_reference(reference)?;
    let reference = puller.resolve(&asked).await?;
    progress(Step::Resolved { reference: reference.clone() });
    let verified = puller.verify(&asked, &reference).await?;
    let ingest = ingest(puller, &verified, limits, progress, Vec::new()).await?;
    let (ingested, problems) = ingest.finish_all()?;
    Ok(ImageCatalog { reference, catalog: Catalog::from_ingested(ingested)?, problems })
}

/// Streams the catalog of an image into `spool`.
pub(crate) async fn ingest<W: Write + Send + 'static>(
    puller: &Puller,
    verified: &Verified,
    limits: &CatalogLimits,
    mut progress: impl FnMut(Step) + Send,
    spool: W,
) -> Result<Ingest<W>, CatalogImageError> {
    let image = puller.open_verified(verified).await?;
    let Some(path) = image.labels.get(CONFIGS_LABEL) else {
        let hint = if image.labels.contains_key(BUNDLE_LABEL) {
            "; it is a bundle image, see `kubectl olm bundle`"
        } else if image.labels.contains_key(DATABASE_LABEL) {
            "; it holds an SQLite database: make a file-based catalog of it with `opm migrate`"
        } else {
            ""
        };
        return Err(CatalogImageError::NoLabel { reference: verified.canonical().clone(), hint });
    };
    let selection = Selection::beneath([path]).map_err(olm_oci::Error::Apply)?;
    progress(Step::Reading { bytes: image.download_size(), layers: image.layers.len() });
    let reader = Reader(Ingest::new(spool, limits.content));
    let read = image.visit(selection, &limits.image, reader).await;
    read.map(|Reader(ingest)| ingest).map_err(|error| match error {
        VisitError::Pull(error) => CatalogImageError::Image(error),
        VisitError::Visitor(error) => CatalogImageError::Content(error),
    })
}

/// The label of bundle images.
const BUNDLE_LABEL: &str = "operators.operatorframework.io.bundle.package.v1";

/// The label of catalog images with an SQLite database.
const DATABASE_LABEL: &str = "operators.operatorframework.io.index.database.v1";

/// Takes in the files of an image; its layers are merged before they come here.
struct Reader<W: Write>(Ingest<W>);

impl<W: Write> Visitor for Reader<W> {
    type Error = IngestError;

    fn file(&mut self, path: &str, _size: u64, mut content: &mut dyn Read) -> Result<(), IngestError> {
        self.0.file(path, &mut content)
    }

    fn alias(&mut self, path: &str, target: &str) -> Result<(), IngestError> {
        self.0.hard_link(path, target)
    }

    fn remove(&mut self, path: &str) -> Result<(), IngestError> {
        self.0.next_layer();
        self.0.whiteout(path)
    }

    fn broken_link(&mut self, path: &str, why: &str) -> Result<bool, IngestError> {
        self.0.broken_link(path, why)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_error_is_permanent_with_its_content() {
        let reference = "registry.test/c:v1".parse().unwrap();
        let too_large = IngestError::TooLarge { what: "bytes", limit: 1, path: "a.yaml".to_owned() };
        for (error, want) in [
            (CatalogImageError::NoLabel { reference, hint: "" }, true),
            (CatalogImageError::Content(too_large), true),
            (CatalogImageError::Content(IngestError::Cancelled), false),
            (CatalogImageError::Image(olm_oci::Error::ReferenceForm { why: "no digest".to_owned() }), false),
        ] {
            assert_eq!(error.is_permanent(), want, "{error}");
        }
    }
}
