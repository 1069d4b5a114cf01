//! Where signatures of an image are kept: beside it in its repository.
//!
//! Cosign's tag `sha256-<hex>.sig` (one manifest, one layer for each signature) and sigstore bundles that refer to the
//! image, by the referrers API or the tag `sha256-<hex>` where a registry lacks it. What is there but cannot be read
//! becomes [`Evidence`] with a reason; what is not there is no error. Everything is bounded.

use std::collections::BTreeMap;

use olm_core::Digest;
use olm_signature::{
    BUNDLE_MEDIA_TYPE_PREFIX, Claim, Evidence, MAX_BUNDLE, MAX_PAYLOAD, MAX_SIGNATURES, SIMPLE_SIGNING,
};
use reqwest::Method;
use serde::Deserialize;

use crate::error::{ImageError, Retry, check_limit};
use crate::http::{Ask, Endpoint};
use crate::manifest::{Descriptor, MAX_DOCUMENT};
use crate::puller::Puller;

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(flatten)]
    blob: Descriptor,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Referrer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    #[serde(default)]
    artifact_type: String,
    digest: Digest,
}

impl Puller {
    /// What cosign's tag holds.
    pub(crate) async fn tagged_signatures(
        &self,
        endpoint: &Endpoint,
        image: &Digest,
    ) -> Result<Vec<Evidence>, ImageError> {
        let tag = format!("{}-{}.sig", image.algorithm().as_str(), image.hex());
        let Some(body) = self.tagged(endpoint, &tag).await? else { return Ok(Vec::new()) };
        let manifest: Manifest = match serde_json::from_slice(&body) {
            Ok(manifest) => manifest,
            Err(error) => return Ok(vec![broken(tag, format!("it is no manifest: {error}"))]),
        };
        let layers: Vec<Layer> =
            manifest.layers.into_iter().filter(|layer| layer.blob.media_type == SIMPLE_SIGNING).collect();
        check_number(layers.len(), &tag)?;
        let mut found = Vec::new();
        for (index, layer) in layers.iter().enumerate() {
            let name = format!("signature {} of {tag}", index + 1);
            let claim = match self.small_blob(endpoint, &layer.blob, MAX_PAYLOAD, &name).await {
                Ok(payload) => Claim::from_cosign(payload, &layer.annotations),
                Err(cause) => Err(unread(cause)?),
            };
            found.push(Evidence { place: name, claim });
        }
        Ok(found)
    }

    /// Sigstore bundles that refer to the image.
    pub(crate) async fn referring_bundles(
        &self,
        endpoint: &Endpoint,
        image: &Digest,
    ) -> Result<Vec<Evidence>, ImageError> {
        let name = format!("the referrers of {image}");
        let Some(body) = self.referrers(endpoint, image).await? else { return Ok(Vec::new()) };
        let index: Index = match serde_json::from_slice(&body) {
            Ok(index) => index,
            Err(error) => return Ok(vec![broken(name, format!("they are no image index: {error}"))]),
        };
        let bundles: Vec<Referrer> = index
            .manifests
            .into_iter()
            .filter(|one| one.artifact_type.starts_with(BUNDLE_MEDIA_TYPE_PREFIX))
            .collect();
        check_number(bundles.len(), &name)?;
        let mut found = Vec::new();
        for referrer in &bundles {
            let name = format!("bundle {}", referrer.digest);
            let claim = match self.bundle(endpoint, referrer, &name).await {
                Ok(bytes) => Claim::from_bundle(&bytes),
                Err(cause) => Err(unread(cause)?),
            };
            found.push(Evidence { place: name, claim });
        }
        Ok(found)
    }

    /// The list of what refers to the image, if there is one.
    async fn referrers(&self, endpoint: &Endpoint, image: &Digest) -> Result<Option<Vec<u8>>, ImageError> {
        let what = format!("reading referrers of {image} in {}", endpoint.location.reference.name());
        let ask = Ask::manifest(Method::GET, format!("referrers/{image}"), &what);
        match self.transport.send(endpoint, &ask).await {
            Ok(response) => return self.transport.body(response, MAX_DOCUMENT, &what).await.map(Some),
            // registries without this endpoint respond in several ways
            Err(cause) if matches!(cause.status(), Some(400 | 404 | 405 | 501)) => {}
            Err(cause) => return Err(cause),
        }
        let tag = format!("{}-{}", image.algorithm().as_str(), image.hex());
        self.tagged(endpoint, &tag).await
    }

    /// The manifest of a tag, if there is one.
    async fn tagged(&self, endpoint: &Endpoint, tag: &str) -> Result<Option<Vec<u8>>, ImageError> {
        match self.manifest(endpoint, tag, None).await {
            Ok((body, _)) => Ok(Some(body)),
            Err(cause) if cause.status() == Some(404) => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    async fn bundle(
        &self,
        endpoint: &Endpoint,
        referrer: &Referrer,
        name: &str,
    ) -> Result<Vec<u8>, ImageError> {
        let at = referrer.digest.to_string();
        let (body, _) = self.manifest(endpoint, &at, Some(&referrer.digest)).await?;
        let manifest: Manifest = serde_json::from_slice(&body)
            .map_err(|error| ImageError::Content(format!("it is no manifest: {error}")))?;
        let layer =
            manifest.layers.iter().find(|layer| layer.blob.media_type.starts_with(BUNDLE_MEDIA_TYPE_PREFIX));
        let layer =
            layer.ok_or_else(|| ImageError::Content("its manifest has no layer with a bundle".into()))?;
        self.small_blob(endpoint, &layer.blob, MAX_BUNDLE, name).await
    }
}

/// A signature that is there and cannot be had is a reason, unless trying again may bring it.
fn unread(cause: ImageError) -> Result<String, ImageError> {
    let may_come = matches!(cause.retry(), Retry::Backoff | Retry::After(_)) && cause.status() != Some(404);
    if may_come { Err(cause) } else { Ok(cause.to_string()) }
}

fn broken(place: String, why: String) -> Evidence {
    Evidence { place, claim: Err(why) }
}

fn check_number(number: usize, what: &str) -> Result<(), ImageError> {
    let what = format_args!("the number of signatures in {what}");
    check_limit(number as u64, MAX_SIGNATURES as u64, "signatures", what)
}
