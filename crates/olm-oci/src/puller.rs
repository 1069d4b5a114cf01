//! From a reference to an opened image.
//!
//! [`Puller::resolve`] costs one manifest request for a tag and none for a digest. [`Puller::open`] reads manifest and
//! config, which have the labels and layers; the layers are read by [`Image`]. A tag is turned into its digest once, and
//! everything after that is requested by digest (catalogd §12 row 5).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use olm_core::{Digest, DigestAlgorithm, ImageRef};
use olm_signature::{ACCEPT_ANYTHING, AcceptedImages, SignaturePolicy};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

use crate::access::Access;
use crate::config::registries::{Location, Registries};
use crate::config::{Config, Credentials, SharedKeyring};
use crate::error::{Error, ImageError, check_limit};
use crate::http::{Ask, Endpoint, Transport};
use crate::image::Image;
use crate::layer::hash_of;
use crate::manifest::{self, Descriptor, Document, MAX_DOCUMENT};
use crate::signature::Verified;

/// Indexes inside of indexes.
const MAX_NESTING: usize = 3;

/// Reads an image reference and demands that it names content: a tag or a digest.
///
/// # Errors
/// [`Error::ReferenceSyntax`] or [`Error::ReferenceForm`], both terminal.
pub fn parse_reference(text: &str) -> Result<ImageRef, Error> {
    let reference: ImageRef = text.parse().map_err(|error: olm_core::ImageRefError| match error {
        olm_core::ImageRefError::TagAndDigest => Error::ReferenceForm { why: error.to_string() },
        error => Error::ReferenceSyntax { reference: text.to_owned(), why: error.to_string() },
    })?;
    named(&reference)?;
    Ok(reference)
}

fn named(reference: &ImageRef) -> Result<(), Error> {
    if reference.tag().is_none() && reference.digest().is_none() {
        let why = format!("Docker reference {reference} has neither a tag nor a digest");
        return Err(Error::ReferenceForm { why });
    }
    Ok(())
}

/// The location that answered for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundManifest {
    /// The reference there: of a mirror, or of the image itself.
    pub location: ImageRef,
    /// Whether it is another location than the reference names.
    pub is_mirror: bool,
    /// The digest of the manifest.
    pub digest: Digest,
}

/// Pulls images. Cheap to clone; clones share connections and tokens.
#[derive(Clone)]
pub struct Puller {
    pub(crate) transport: Arc<Transport>,
    pub(crate) accepted_images: Arc<AcceptedImages>,
    pub(crate) access: Arc<Access>,
    /// The user of stored content, see [`Puller::check_stored`]; `None`: the only one.
    pub(crate) scope: Option<Arc<str>>,
}

impl std::fmt::Debug for Puller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Puller").finish_non_exhaustive()
    }
}

impl Puller {
    /// Reads no file and contacts no registry yet. Logs once if the policy accepts everything.
    #[must_use]
    pub fn new(config: Config) -> Self {
        if config.signature_policy == SignaturePolicy::AcceptAnything {
            tracing::info!(policy = ACCEPT_ANYTHING, "signatures of images are not checked");
        }
        let accepted_images = Arc::new(AcceptedImages::new(config.verdicts.clone()));
        Self {
            transport: Arc::new(Transport::new(config)),
            accepted_images,
            access: Arc::default(),
            scope: None,
        }
    }

    /// The same with credentials that come before those of the files. Connections are its own; what is known of images is shared.
    #[must_use]
    pub fn with_keyring(&self, keyring: SharedKeyring) -> Self {
        let config = &self.transport.config;
        let credentials = Credentials { shared: Some(keyring), ..config.credentials.clone() };
        let transport = Transport::new(Config { credentials, ..config.clone() });
        Self { transport: Arc::new(transport), ..self.clone() }
    }

    /// The reference with the digest that its tag has now. A digest is returned as it is, without a request.
    ///
    /// # Errors
    /// [`Error::Source`] for everything between here and the registry's answer, [`Error::AuthFile`] for unreadable
    /// credentials, [`Error::Registries`] for an unreadable configuration of registries.
    #[tracing::instrument(name = "resolve image", skip_all, fields(image = %reference))]
    pub async fn resolve(&self, reference: &ImageRef) -> Result<ImageRef, Error> {
        named(reference)?;
        let Some(tag) = reference.tag() else { return Ok(reference.clone()) };
        let endpoints = self.endpoints(reference, false)?;
        let resolved = self.first_of(&endpoints, |endpoint| self.digest_of(endpoint, tag).boxed()).await;
        let (_, digest) = resolved.map_err(Error::Source)?;
        Ok(reference.with_digest(digest))
    }

    async fn digest_of(&self, endpoint: &Endpoint, tag: &str) -> Result<Digest, ImageError> {
        let what = reading(endpoint, tag);
        let ask = Ask::manifest(Method::HEAD, format!("manifests/{tag}"), &what);
        match self.transport.send(endpoint, &ask).await.map(|response| stated_digest(&response)) {
            Ok(Some(digest)) => return Ok(digest),
            Ok(None) => {}
            // some registries do not support HEAD, and responses to it have no error message
            Err(cause) if matches!(cause.status(), Some(400 | 401 | 403..=405 | 501)) => {}
            Err(cause) => return Err(cause),
        }
        let (body, _) = self.manifest(endpoint, tag, None).await?;
        hash_of(DigestAlgorithm::Sha256, &body)
    }

    /// Reads manifest (of the configured platform) and config, after the policy has accepted the image.
    ///
    /// # Errors
    /// As [`Puller::resolve`] and [`Puller::verify`]; [`Error::Manifest`] for a manifest that makes no sense,
    /// [`Error::Copy`] for a config that cannot be had.
    pub async fn open(&self, reference: &ImageRef) -> Result<Image, Error> {
        named(reference)?;
        if !self.wants_signatures(reference)? {
            return self.read(reference, false).await;
        }
        let canonical = self.resolve(reference).await?;
        self.open_verified(&self.verify(reference, &canonical).await?).await
    }

    /// Reads the manifest of an image, from the first location that has it. An index counts for any platform; signatures
    /// are not checked. With `mirrors_only` the registry that the reference names is not asked.
    ///
    /// # Errors
    /// As [`Puller::resolve`]; with `mirrors_only` also if no mirror is configured.
    #[tracing::instrument(name = "find image", skip_all, fields(image = %reference))]
    pub async fn find(&self, reference: &ImageRef, mirrors_only: bool) -> Result<FoundManifest, Error> {
        named(reference)?;
        let is_mirror = |endpoint: &Endpoint| endpoint.location.reference.name() != reference.name();
        let mut endpoints = self.endpoints(reference, false)?;
        if mirrors_only {
            endpoints.retain(is_mirror);
        }
        if endpoints.is_empty() {
            let why = format!("no mirror is configured for {}", reference.name());
            return Err(Error::Source(ImageError::Config(why)));
        }
        let (index, (body, _)) = self.first_manifest(&endpoints, reference).await.map_err(Error::Source)?;
        let digest = match reference.digest() {
            Some(digest) => digest.clone(),
            None => hash_of(DigestAlgorithm::Sha256, &body).map_err(Error::Manifest)?,
        };
        let found = &endpoints[index];
        Ok(FoundManifest { location: found.location.reference.clone(), is_mirror: is_mirror(found), digest })
    }

    /// The manifest that a reference names, and the index of the endpoint that has it.
    pub(crate) async fn first_manifest(
        &self,
        endpoints: &[Endpoint],
        reference: &ImageRef,
    ) -> Result<(usize, (Vec<u8>, String)), ImageError> {
        let at = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.unwrap_or_default().to_owned(),
        };
        self.first_of(endpoints, |endpoint| self.manifest(endpoint, &at, reference.digest()).boxed()).await
    }

    /// As [`Puller::open`], for an image that was verified: its digest is what is read.
    ///
    /// # Errors
    /// As [`Puller::open`].
    pub async fn open_verified(&self, image: &Verified) -> Result<Image, Error> {
        self.read(image.canonical(), image.from_tag).await
    }

    #[tracing::instrument(name = "open image", skip_all, fields(image = %reference))]
    async fn read(&self, reference: &ImageRef, from_tag: bool) -> Result<Image, Error> {
        let endpoints = self.endpoints(reference, from_tag)?;
        let read = self.first_manifest(&endpoints, reference).await;
        let (first, (body, kind)) = read.map_err(Error::Source)?;
        if self.scope.is_some() {
            self.access.accept(reference, &endpoints);
        }
        let canonical = match reference.digest() {
            Some(_) => reference.clone(),
            None => {
                let digest = hash_of(DigestAlgorithm::Sha256, &body).map_err(Error::Manifest)?;
                reference.with_digest(digest)
            }
        };
        // blobs come from the endpoint of the manifest; the others are fallbacks
        let mut endpoints = endpoints;
        endpoints.rotate_left(first);
        let (_, config, layers) = self.image_of(&endpoints, &canonical, body, kind).await?;
        let labels = self.labels(&endpoints, &config).await?;
        Ok(Image { transport: Arc::clone(&self.transport), endpoints, canonical, labels, layers })
    }

    /// Follows indexes down to the image of the configured platform.
    async fn image_of(
        &self,
        endpoints: &[Endpoint],
        canonical: &ImageRef,
        mut body: Vec<u8>,
        mut kind: String,
    ) -> Result<(Digest, Descriptor, Vec<Descriptor>), Error> {
        let platform = &self.transport.config.platform;
        let mut digest = canonical.digest().cloned();
        for _ in 0..MAX_NESTING {
            match manifest::parse(&body, &kind, platform).map_err(Error::Manifest)? {
                Document::Image { config, layers } => {
                    let digest = match digest {
                        Some(digest) => digest,
                        None => hash_of(DigestAlgorithm::Sha256, &body).map_err(Error::Manifest)?,
                    };
                    return Ok((digest, config, layers));
                }
                Document::Index(child) => {
                    let at = child.digest.to_string();
                    let read = self.first_of(endpoints, |endpoint| {
                        self.manifest(endpoint, &at, Some(&child.digest)).boxed()
                    });
                    (_, (body, kind)) = read.await.map_err(Error::Manifest)?;
                    digest = Some(child.digest);
                }
            }
        }
        Err(Error::Manifest(ImageError::Content(format!(
            "image indexes are nested more than {MAX_NESTING} deep"
        ))))
    }

    /// The digest of the image of the configured platform, if `canonical` is an index.
    pub(crate) async fn instance(
        &self,
        endpoints: &[Endpoint],
        canonical: &ImageRef,
    ) -> Result<Option<Digest>, Error> {
        let Some(digest) = canonical.digest() else { return Ok(None) };
        let at = digest.to_string();
        let found =
            self.first_of(endpoints, |endpoint| self.manifest(endpoint, &at, Some(digest)).boxed()).await;
        let (_, (body, kind)) = found.map_err(Error::Source)?;
        let (image, ..) = self.image_of(endpoints, canonical, body, kind).await?;
        Ok(Some(image).filter(|image| image != digest))
    }

    async fn labels(
        &self,
        endpoints: &[Endpoint],
        config: &Descriptor,
    ) -> Result<BTreeMap<String, String>, Error> {
        let what = &format!("reading config {}", config.digest);
        let read = self
            .first_of(endpoints, |endpoint| self.small_blob(endpoint, config, MAX_DOCUMENT, what).boxed());
        let (_, body) = read.await.map_err(Error::Copy)?;
        manifest::labels(&body).map_err(Error::Manifest)
    }

    /// A blob of at most `max` bytes, checked.
    pub(crate) async fn small_blob(
        &self,
        endpoint: &Endpoint,
        blob: &Descriptor,
        max: usize,
        what: &str,
    ) -> Result<Vec<u8>, ImageError> {
        check_limit(blob.size, max as u64, "bytes", what)?;
        let ask = Ask::blob(&blob.digest, 0, what);
        let response = self.transport.send(endpoint, &ask).await?;
        let body = self.transport.body(response, max, what).await?;
        if body.len() as u64 != blob.size {
            let got = body.len() as u64;
            return Err(ImageError::Size { what: what.to_owned(), declared: blob.size, got });
        }
        verified(body, &blob.digest, what)
    }

    /// The bytes of a manifest, checked against `digest` where it is known, and their stated media type.
    pub(crate) async fn manifest(
        &self,
        endpoint: &Endpoint,
        at: &str,
        digest: Option<&Digest>,
    ) -> Result<(Vec<u8>, String), ImageError> {
        let what = reading(endpoint, at);
        let ask = Ask::manifest(Method::GET, format!("manifests/{at}"), &what);
        let response = self.transport.send(endpoint, &ask).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let body = self.transport.body(response, MAX_DOCUMENT, &what).await?;
        let body = match digest {
            Some(digest) => verified(body, digest, &what)?,
            None => body,
        };
        Ok((body, kind))
    }

    /// The endpoints of a reference in the current configuration; `from_tag` as of [`Registries::locations`].
    pub(crate) fn endpoints(&self, reference: &ImageRef, from_tag: bool) -> Result<Vec<Endpoint>, Error> {
        let config = &self.transport.config;
        let keyring = config.credentials.load().map_err(Error::AuthFile)?;
        let registries = Registries::load(&config.registries).map_err(Error::Registries)?;
        let locations = registries.locations(reference, from_tag).map_err(Error::Source)?;
        let loosened =
            |location: Location| Location { insecure: location.insecure || config.insecure, ..location };
        Ok(locations.into_iter().map(|location| Endpoint::new(loosened(location), &keyring)).collect())
    }

    /// Tries the endpoints in order; returns the index of the one that succeeded. The last is the primary location, or the
    /// last mirror if that is blocked.
    async fn first_of<'p, T>(
        &self,
        endpoints: &'p [Endpoint],
        attempt: impl Fn(&'p Endpoint) -> BoxFuture<'p, Result<T, ImageError>>,
    ) -> Result<(usize, T), ImageError> {
        let mut mirrors = String::new();
        let last = endpoints.len().saturating_sub(1);
        for (index, endpoint) in endpoints.iter().enumerate() {
            let cause = match attempt(endpoint).await {
                Ok(found) => return Ok((index, found)),
                Err(cause) => cause,
            };
            let reference = &endpoint.location.reference;
            if index < last {
                tracing::debug!(mirror = %reference, %cause, "mirror failed");
                mirrors.push_str(&format!("[{reference}: {cause}]"));
            } else if mirrors.is_empty() {
                return Err(cause);
            } else {
                return Err(ImageError::Mirrors {
                    mirrors,
                    reference: reference.to_string(),
                    primary: Box::new(cause),
                });
            }
        }
        Err(ImageError::Config("no place to fetch the image from".into()))
    }
}

fn reading(endpoint: &Endpoint, at: &str) -> String {
    format!("reading manifest {at} in {}", endpoint.location.reference.name())
}

fn stated_digest(response: &reqwest::Response) -> Option<Digest> {
    response.headers().get("docker-content-digest")?.to_str().ok()?.parse().ok()
}

fn verified(body: Vec<u8>, want: &Digest, what: &str) -> Result<Vec<u8>, ImageError> {
    let got = hash_of(want.algorithm(), &body)?;
    if got != *want {
        return Err(ImageError::Digest {
            what: what.to_owned(),
            want: want.to_string(),
            got: got.to_string(),
        });
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_must_have_tag_or_digest() {
        for (text, want) in [
            (
                "Not A Reference",
                r#"error parsing image reference "Not A Reference": invalid reference format"#,
            ),
            (
                "quay.io/a/b",
                "error creating reference: Docker reference quay.io/a/b has neither a tag nor a digest",
            ),
            (
                "quay.io/a/b:1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "error creating reference: Docker references with both a tag and digest are currently not supported",
            ),
        ] {
            let got = parse_reference(text).unwrap_err();
            assert!(got.to_string().starts_with(want), "{text}: {got}");
            assert_eq!(got.retry(), crate::Retry::Terminal, "{text}");
        }
        assert!(parse_reference("quay.io/a/b:1").is_ok());
    }
}
