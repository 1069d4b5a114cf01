//! From a reference to an opened image.
//!
//! [`Puller::resolve`] costs one manifest request for a tag and none for a digest. [`Puller::open`] reads manifest and
//! config, which tells labels and layers; the layers are read by [`Image`]. A tag is turned into its digest once, and
//! everything after that is asked for by digest (catalogd §12 row 5).

use std::collections::BTreeMap;
use std::sync::Arc;

use olm_core::{Digest, DigestAlgorithm, ImageRef};
use olm_signature::{ACCEPT_ANYTHING, AcceptedImages, SignaturePolicy};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

use crate::config::Config;
use crate::config::registries::{Location, Registries};
use crate::error::{Error, Fault};
use crate::http::{Ask, Place, Transport};
use crate::image::Image;
use crate::signature::Verified;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::layer::hash_of;
use crate::manifest::{self, Descriptor, Document, MAX_DOCUMENT};

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

/// Pulls images. Cheap to clone; clones share connections and tokens.
#[derive(Clone)]
pub struct Puller {
    transport: Arc<Transport>,
    accepted_images: Arc<AcceptedImages>,
}

impl std::fmt::Debug for Puller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Puller").finish_non_exhaustive()
    }
}

impl Puller {
    /// Nothing is read or contacted yet. A policy that checks nothing is said in the log, here and once.
    #[must_use]
    pub fn new(config: Config) -> Self {
        if config.signature_policy == SignaturePolicy::AcceptAnything {
            tracing::info!(policy = ACCEPT_ANYTHING, "signatures of images are not checked");
        }
        let accepted_images = Arc::new(AcceptedImages::new(config.verdicts.clone()));
        Self { transport: Arc::new(Transport::new(config)), accepted_images }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(crate) fn accepted_images(&self) -> &AcceptedImages {
        &self.accepted_images
    }

    /// The reference with the digest that its tag has now. A digest is returned as it is, without a request.
    ///
    /// # Errors
    /// [`Error::Source`] for everything between here and the registry's answer, [`Error::AuthFile`] for unreadable
    /// credentials.
    #[tracing::instrument(name = "resolve image", skip_all, fields(image = %reference))]
    pub async fn resolve(&self, reference: &ImageRef) -> Result<ImageRef, Error> {
        named(reference)?;
        let Some(tag) = reference.tag() else { return Ok(reference.clone()) };
        let places = self.places(reference)?;
        let digest = self
            .first_of(&places, |place| {
                async move {
                    let what = reading(place, tag);
                    let ask = Ask {
                        method: Method::HEAD,
                        path: format!("manifests/{tag}"),
                        accept: manifest::ACCEPT,
                        from: 0,
                        what: &what,
                    };
                    match self.transport.send(place, &ask).await {
                        Ok(response) => {
                            if let Some(digest) = stated_digest(&response) {
                                return Ok(digest);
                            }
                        }
                        // some registries know no HEAD, and its answers cannot say why
                        Err(fault) if matches!(fault.status(), Some(400 | 401 | 403..=405 | 501)) => {}
                        Err(fault) => return Err(fault),
                    }
                    let (body, _) = self.manifest(place, tag, None).await?;
                    hash_of(DigestAlgorithm::Sha256, &body)
                }
                .boxed()
            })
            .await
            .map(|(_, digest)| digest)
            .map_err(Error::Source)?;
        Ok(reference.with_digest(digest))
    }

    /// Reads manifest (of the wanted platform) and config, after the policy has accepted the image.
    ///
    /// # Errors
    /// As [`Puller::resolve`] and [`Puller::verify`]; [`Error::Manifest`] for a manifest that makes no sense,
    /// [`Error::Copy`] for a config that cannot be had.
    pub async fn open(&self, reference: &ImageRef) -> Result<Image, Error> {
        named(reference)?;
        if !self.wants_signatures(reference)? {
            return self.read(reference).await;
        }
        let canonical = self.resolve(reference).await?;
        self.open_verified(&self.verify(reference, &canonical).await?).await
    }

    /// As [`Puller::open`], for an image that was verified: its digest is what is read.
    ///
    /// # Errors
    /// As [`Puller::open`].
    pub async fn open_verified(&self, image: &Verified) -> Result<Image, Error> {
        self.read(image.canonical()).await
    }

    #[tracing::instrument(name = "open image", skip_all, fields(image = %reference))]
    async fn read(&self, reference: &ImageRef) -> Result<Image, Error> {
        let places = self.places(reference)?;
        let at = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.unwrap_or_default().to_owned(),
        };
        let (first, (body, kind)) = self
            .first_of(&places, |place| self.manifest(place, &at, reference.digest()).boxed())
            .await
            .map_err(Error::Source)?;
        let canonical = match reference.digest() {
            Some(_) => reference.clone(),
            None => {
                let digest = hash_of(DigestAlgorithm::Sha256, &body).map_err(Error::Manifest)?;
                reference.with_digest(digest)
            }
        };
        // blobs come from where the manifest came from; the others stand by
        let mut places = places;
        places.rotate_left(first);
        let (digest, config, layers) = self.image_of(&places, &canonical, body, kind).await?;
        let labels = self.labels(&places, &config).await?;
        Ok(Image::new(Arc::clone(&self.transport), places, canonical, digest, labels, layers))
    }

    /// Follows indexes down to the image of the wanted platform.
    async fn image_of(
        &self,
        places: &[Place],
        canonical: &ImageRef,
        mut body: Vec<u8>,
        mut kind: String,
    ) -> Result<(Digest, Descriptor, Vec<Descriptor>), Error> {
        let platform = &self.transport.config().platform;
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
                    (body, kind) = self
                        .first_of(places, |place| self.manifest(place, &at, Some(&child.digest)).boxed())
                        .await
                        .map(|(_, found)| found)
                        .map_err(Error::Manifest)?;
                    digest = Some(child.digest);
                }
            }
        }
        Err(Error::Manifest(Fault::Content(format!("image indexes are nested more than {MAX_NESTING} deep"))))
    }

    /// The digest of the image of the wanted platform, if `canonical` is an index.
    pub(crate) async fn instance(
        &self,
        places: &[Place],
        canonical: &ImageRef,
    ) -> Result<Option<Digest>, Error> {
        let Some(digest) = canonical.digest() else { return Ok(None) };
        let at = digest.to_string();
        let found = self.first_of(places, |place| self.manifest(place, &at, Some(digest)).boxed()).await;
        let (_, (body, kind)) = found.map_err(Error::Source)?;
        let (image, ..) = self.image_of(places, canonical, body, kind).await?;
        Ok(Some(image).filter(|image| image != digest))
    }

    async fn labels(&self, places: &[Place], config: &Descriptor) -> Result<BTreeMap<String, String>, Error> {
        let what = &format!("reading config {}", config.digest);
        let read = self.first_of(places, |place| self.small_blob(place, config, MAX_DOCUMENT, what).boxed());
        let (_, body) = read.await.map_err(Error::Copy)?;
        manifest::labels(&body).map_err(Error::Manifest)
    }

    /// A blob of at most `max` bytes, checked.
    pub(crate) async fn small_blob(
        &self,
        place: &Place,
        blob: &Descriptor,
        max: usize,
        what: &str,
    ) -> Result<Vec<u8>, Fault> {
        if blob.size > max as u64 {
            return Err(Fault::Limit { what: what.to_owned(), limit: max as u64, unit: "bytes" });
        }
        let path = format!("blobs/{}", blob.digest);
        let ask = Ask { method: Method::GET, path, accept: "*/*", from: 0, what };
        let response = self.transport.send(place, &ask).await?;
        let body = self.transport.body(response, max, what).await?;
        if body.len() as u64 != blob.size {
            let got = body.len() as u64;
            return Err(Fault::Size { what: what.to_owned(), declared: blob.size, got });
        }
        verified(body, &blob.digest, what)
    }

    /// The bytes of a manifest, checked against `digest` where it is known, and their stated media type.
    pub(crate) async fn manifest(
        &self,
        place: &Place,
        at: &str,
        digest: Option<&Digest>,
    ) -> Result<(Vec<u8>, String), Fault> {
        let what = reading(place, at);
        let ask = Ask {
            method: Method::GET,
            path: format!("manifests/{at}"),
            accept: manifest::ACCEPT,
            from: 0,
            what: &what,
        };
        let response = self.transport.send(place, &ask).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let body = self.transport.body(response, MAX_DOCUMENT, &what).await?;
        let body = match digest {
            Some(digest) => verified(body, digest, &what)?,
            None => body,
        };
        Ok((body, kind))
    }

    /// The places of a reference, as configured right now.
    pub(crate) fn places(&self, reference: &ImageRef) -> Result<Vec<Place>, Error> {
        let config = self.transport.config();
        let keyring = config.credentials.load().map_err(Error::AuthFile)?;
        let registries = Registries::load(&config.registries).map_err(Error::Source)?;
        let locations = registries.locations(reference).map_err(Error::Source)?;
        let loosened =
            |location: Location| Location { insecure: location.insecure || config.insecure, ..location };
        Ok(locations.into_iter().map(|location| Place::new(loosened(location), &keyring)).collect())
    }

    /// Tries the places in order; says which one answered. The last is the primary location.
    async fn first_of<'p, T>(
        &self,
        places: &'p [Place],
        attempt: impl Fn(&'p Place) -> BoxFuture<'p, Result<T, Fault>>,
    ) -> Result<(usize, T), Fault> {
        let mut mirrors = String::new();
        let last = places.len().saturating_sub(1);
        for (index, place) in places.iter().enumerate() {
            let fault = match attempt(place).await {
                Ok(found) => return Ok((index, found)),
                Err(fault) => fault,
            };
            let reference = &place.location.reference;
            if index < last {
                tracing::debug!(mirror = %reference, %fault, "mirror failed");
                mirrors.push_str(&format!("[{reference}: {fault}]"));
            } else if mirrors.is_empty() {
                return Err(fault);
            } else {
                return Err(Fault::Mirrors {
                    mirrors,
                    reference: reference.to_string(),
                    primary: Box::new(fault),
                });
            }
        }
        Err(Fault::Config("no place to fetch the image from".into()))
    }
}

fn reading(place: &Place, at: &str) -> String {
    format!("reading manifest {at} in {}", place.location.reference.name())
}

fn stated_digest(response: &reqwest::Response) -> Option<Digest> {
    response.headers().get("docker-content-digest")?.to_str().ok()?.parse().ok()
}

fn verified(body: Vec<u8>, want: &Digest, what: &str) -> Result<Vec<u8>, Fault> {
    let got = hash_of(want.algorithm(), &body)?;
    if got != *want {
        return Err(Fault::Digest { what: what.to_owned(), want: want.to_string(), got: got.to_string() });
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_must_name_content() {
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
