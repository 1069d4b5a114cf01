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

use crate::error::Fault;
use crate::http::{Ask, Place};
use crate::manifest::{self, Descriptor, MAX_DOCUMENT};
use crate::puller::Puller;

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    #[serde(default)]
    media_type: String,
    digest: Digest,
    size: u64,
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

impl Layer {
    fn descriptor(&self) -> Descriptor {
        Descriptor { media_type: self.media_type.clone(), digest: self.digest.clone(), size: self.size }
    }
}

impl Puller {
    /// What cosign's tag holds.
    pub(crate) async fn tagged_signatures(
        &self,
        place: &Place,
        image: &Digest,
    ) -> Result<Vec<Evidence>, Fault> {
        let tag = format!("{}-{}.sig", image.algorithm().as_str(), image.hex());
        let body = match self.manifest(place, &tag, None).await {
            Ok((body, _)) => body,
            Err(fault) if fault.status() == Some(404) => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        };
        let manifest: Manifest = match serde_json::from_slice(&body) {
            Ok(manifest) => manifest,
            Err(error) => return Ok(vec![broken(tag, format!("it is no manifest: {error}"))]),
        };
        let layers: Vec<Layer> =
            manifest.layers.into_iter().filter(|layer| layer.media_type == SIMPLE_SIGNING).collect();
        few(layers.len(), &tag)?;
        let mut found = Vec::new();
        for (index, layer) in layers.iter().enumerate() {
            let name = format!("signature {} of {tag}", index + 1);
            let payload = match self.small_blob(place, &layer.descriptor(), MAX_PAYLOAD, &name).await {
                Ok(payload) => payload,
                Err(fault) => {
                    found.push(unread(name, fault)?);
                    continue;
                }
            };
            found.push(Evidence { place: name, claim: Claim::from_cosign(payload, &layer.annotations) });
        }
        Ok(found)
    }

    /// Sigstore bundles that refer to the image.
    pub(crate) async fn referring_bundles(
        &self,
        place: &Place,
        image: &Digest,
    ) -> Result<Vec<Evidence>, Fault> {
        let name = format!("the referrers of {image}");
        let Some(body) = self.referrers(place, image).await? else { return Ok(Vec::new()) };
        let index: Index = match serde_json::from_slice(&body) {
            Ok(index) => index,
            Err(error) => return Ok(vec![broken(name, format!("they are no image index: {error}"))]),
        };
        let bundles: Vec<Referrer> = index
            .manifests
            .into_iter()
            .filter(|one| one.artifact_type.starts_with(BUNDLE_MEDIA_TYPE_PREFIX))
            .collect();
        few(bundles.len(), &name)?;
        let mut found = Vec::new();
        for referrer in &bundles {
            let name = format!("bundle {}", referrer.digest);
            match self.bundle(place, referrer, &name).await {
                Ok(bytes) => found.push(Evidence { place: name, claim: Claim::from_bundle(&bytes) }),
                Err(fault) => found.push(unread(name, fault)?),
            }
        }
        Ok(found)
    }

    /// The list of what refers to the image, if there is one.
    async fn referrers(&self, place: &Place, image: &Digest) -> Result<Option<Vec<u8>>, Fault> {
        let what = format!("reading referrers of {image} in {}", place.location.reference.name());
        let ask = Ask {
            method: Method::GET,
            path: format!("referrers/{image}"),
            accept: manifest::ACCEPT,
            from: 0,
            what: &what,
        };
        match self.transport().send(place, &ask).await {
            Ok(response) => return self.transport().body(response, MAX_DOCUMENT, &what).await.map(Some),
            // registries that do not know this request answer it in several ways
            Err(fault) if matches!(fault.status(), Some(400 | 404 | 405 | 501)) => {}
            Err(fault) => return Err(fault),
        }
        let tag = format!("{}-{}", image.algorithm().as_str(), image.hex());
        match self.manifest(place, &tag, None).await {
            Ok((body, _)) => Ok(Some(body)),
            Err(fault) if fault.status() == Some(404) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn bundle(&self, place: &Place, referrer: &Referrer, name: &str) -> Result<Vec<u8>, Fault> {
        let at = referrer.digest.to_string();
        let (body, _) = self.manifest(place, &at, Some(&referrer.digest)).await?;
        let manifest: Manifest = serde_json::from_slice(&body)
            .map_err(|error| Fault::Content(format!("it is no manifest: {error}")))?;
        let layer =
            manifest.layers.iter().find(|layer| layer.media_type.starts_with(BUNDLE_MEDIA_TYPE_PREFIX));
        let layer = layer.ok_or_else(|| Fault::Content("its manifest has no layer with a bundle".into()))?;
        self.small_blob(place, &layer.descriptor(), MAX_BUNDLE, name).await
    }
}

/// A signature that is there and cannot be had is a reason, unless trying again may bring it.
fn unread(place: String, fault: Fault) -> Result<Evidence, Fault> {
    match fault.retry() {
        crate::Retry::Slow | crate::Retry::Terminal => Ok(broken(place, fault.to_string())),
        crate::Retry::Backoff | crate::Retry::After(_) if fault.status() == Some(404) => {
            Ok(broken(place, fault.to_string()))
        }
        crate::Retry::Backoff | crate::Retry::After(_) => Err(fault),
    }
}

fn broken(place: String, why: String) -> Evidence {
    Evidence { place, claim: Err(why) }
}

fn few(number: usize, what: &str) -> Result<(), Fault> {
    if number <= MAX_SIGNATURES {
        return Ok(());
    }
    let what = format!("the number of signatures in {what}");
    Err(Fault::Limit { what, limit: MAX_SIGNATURES as u64, unit: "signatures" })
}
