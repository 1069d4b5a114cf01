//! The policy applied to one image: [`Puller::verify`] and its relatives.

use std::time::{Duration, SystemTime};

use olm_core::{Digest, ImageRef};
use olm_signature::{
    Accepted, AcceptedImage, Demand, Evidence, Image, Policy, SignaturePolicy, Sigstore, judge,
};

use super::Verified;
use crate::error::{Error, ImageError};
use crate::http::Endpoint;
use crate::puller::Puller;

/// Timeout of finding and verifying the signatures of one image.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(120);

impl Puller {
    /// Reads the policy with its keys and roots, so that a mistake in it shows before the first image.
    ///
    /// # Errors
    /// [`Error::Policy`], naming file, field and flag.
    pub fn check_policy(&self) -> Result<(), Error> {
        match self.policy() {
            Ok(_) => {
                if let SignaturePolicy::File(file) = &self.transport.config.signature_policy {
                    tracing::info!(file = %file.display(), "signatures of images are checked by this policy");
                }
                Ok(())
            }
            Err(Error::Policy(cause)) => Err(Error::Policy(ImageError::Config(format!(
                "{cause}; correct the file, or name another one in --signature-policy"
            )))),
            Err(error) => Err(error),
        }
    }

    /// Does the current policy accept content of `digest` that is stored already, without a request? `false` if it would
    /// have to be verified first.
    ///
    /// # Errors
    /// [`Error::Policy`] for an unreadable policy.
    pub fn accepts_stored(&self, asked: &ImageRef, digest: &Digest) -> Result<bool, Error> {
        let Some(policy) = self.policy()? else { return Ok(true) };
        Ok(match policy.demand(asked) {
            Err(_) => false,
            Ok(Demand::Nothing) => true,
            Ok(Demand::Signatures(_)) => {
                self.accepted_images.contains(&AcceptedImage::new(&policy, asked, digest))
            }
        })
    }

    /// Makes sure that the policy accepts the image. `asked` is the reference that the user wrote: scopes and identities of
    /// the policy are about it. `canonical` is what it resolves to: signatures are of its digest. What was accepted
    /// before is accepted without a request.
    ///
    /// # Errors
    /// [`Error::Policy`] for an unreadable policy, [`Error::Copy`] for an image that is not accepted, and whatever keeps
    /// the registry from answering.
    pub async fn verify(&self, asked: &ImageRef, canonical: &ImageRef) -> Result<Verified, Error> {
        let from_tag = asked.digest().is_none();
        let accepted = |signer| Ok(Verified { canonical: canonical.clone(), from_tag, signer });
        let Some(policy) = self.policy()? else { return accepted(None) };
        let requirements = match policy.demand(asked).map_err(rejected)? {
            Demand::Nothing => return accepted(None),
            Demand::Signatures(requirements) => requirements,
        };
        let Some(digest) = canonical.digest() else {
            return Err(Error::ReferenceForm { why: format!("{canonical} has no digest") });
        };
        let image = AcceptedImage::new(&policy, asked, digest);
        if self.accepted_images.contains(&image) {
            return accepted(Some("a signature that was verified before".to_owned()));
        }
        let search = self.find_signatures(&policy, asked, canonical, digest, &requirements);
        let all = match tokio::time::timeout(VERIFY_TIMEOUT, search).await {
            Ok(found) => found?,
            Err(_) => {
                return Err(Error::Copy(ImageError::Network {
                    what: format!("reading signatures of {canonical}"),
                    why: format!("it took longer than {} s", VERIFY_TIMEOUT.as_secs()),
                }));
            }
        };
        let signer = all.iter().map(|one| one.signer.as_str()).collect::<Vec<_>>().join(" and ");
        tracing::info!(image = %canonical, signer, "signature verified");
        if all.iter().all(|one| one.lasting) {
            self.accepted_images.insert(image);
        }
        accepted(Some(signer))
    }

    /// Whether the policy requires signatures of the image of `asked`.
    ///
    /// # Errors
    /// As [`Puller::verify`], before the first request.
    pub(crate) fn wants_signatures(&self, asked: &ImageRef) -> Result<bool, Error> {
        let Some(policy) = self.policy()? else { return Ok(false) };
        Ok(matches!(policy.demand(asked).map_err(rejected)?, Demand::Signatures(_)))
    }

    fn policy(&self) -> Result<Option<Policy>, Error> {
        Policy::load(&self.transport.config.signature_policy).map_err(|error| Error::Policy(error.into()))
    }

    async fn find_signatures(
        &self,
        policy: &Policy,
        asked: &ImageRef,
        canonical: &ImageRef,
        digest: &Digest,
        requirements: &[&Sigstore],
    ) -> Result<Vec<Accepted>, Error> {
        let endpoints = self.endpoints(canonical, asked.digest().is_none())?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let refused = match self.signed(&endpoints, Image { asked, digest, now }, requirements).await? {
            Ok(all) => return Ok(all),
            Err(refused) => refused,
        };
        // images of an index may be signed one by one; the digest of the index leads to this one and to no other
        if let Some(child) = self.instance(&endpoints, canonical).await?
            && let Ok(all) =
                self.signed(&endpoints, Image { asked, digest: &child, now }, requirements).await?
        {
            return Ok(all);
        }
        Err(rejected(policy.rejection(asked, canonical, refused)))
    }

    /// Searches one endpoint after the other until all requirements are fulfilled; else returns the reasons.
    async fn signed(
        &self,
        endpoints: &[Endpoint],
        image: Image<'_>,
        requirements: &[&Sigstore],
    ) -> Result<Result<Vec<Accepted>, Option<String>>, Error> {
        let (mut reasons, mut unreachable) = (Vec::new(), None);
        for endpoint in endpoints {
            // the last endpoint, which is the registry itself if it is not blocked, decides
            unreachable = None;
            let mut evidence: Vec<Evidence> = Vec::new();
            let mut refused = None;
            for bundles in [false, true] {
                let found = match bundles {
                    false => self.tagged_signatures(endpoint, image.digest).await,
                    true => self.referring_bundles(endpoint, image.digest).await,
                };
                match found {
                    Ok(found) => evidence.extend(found),
                    Err(cause @ ImageError::Limit { .. }) => refused = Some(cause.to_string()),
                    Err(cause) => {
                        tracing::debug!(endpoint = %endpoint.location.reference, %cause, "cannot look for signatures");
                        unreachable = Some(cause);
                        break;
                    }
                }
                let judged: Result<Vec<_>, _> =
                    requirements.iter().map(|requirement| judge(requirement, &evidence, image)).collect();
                match judged {
                    Ok(all) => return Ok(Ok(all)),
                    Err(why) => refused = why.or(refused),
                }
            }
            reasons.extend(refused);
        }
        match unreachable {
            // the unreachable endpoint may have a signature
            Some(cause) => Err(Error::Copy(cause)),
            None if reasons.is_empty() => Ok(Err(None)),
            None => {
                reasons.dedup();
                Ok(Err(Some(reasons.join("; "))))
            }
        }
    }
}

fn rejected(why: String) -> Error {
    Error::Copy(ImageError::Rejected(why))
}
