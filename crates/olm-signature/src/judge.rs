//! Does one of these signatures fulfil the requirement? Pure.
//!
//! The order is that of trust: first the signer (key, or certificate at the time which the log promises), then the
//! signature over the bytes, and only then the content of the bytes.

use olm_core::{Digest, ImageRef};

use crate::certificate::Leaf;
use crate::evidence::{Claim, Evidence};
use crate::policy::{Signer, Sigstore};
use crate::rekor;
use crate::statement;

/// Reasons in the error message; more would drown it.
const MAX_REASONS: usize = 3;

/// What is to be signed.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// The reference that the user wrote.
    pub asked: &'a ImageRef,
    /// The digest of the manifest.
    pub digest: &'a Digest,
    /// Seconds since 1970, for certificates without a log.
    pub now: i64,
}

/// A requirement that is fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// By whom, in words.
    pub signer: String,
    /// It will be so tomorrow, too.
    pub lasting: bool,
}

/// The first signature that fulfils the requirement.
///
/// # Errors
/// Why each does not, in one text; `None` when there is none at all.
pub fn judge(
    required: &Sigstore,
    evidence: &[Evidence],
    image: Image<'_>,
) -> Result<Accepted, Option<String>> {
    let mut reasons: Vec<String> = Vec::new();
    for found in evidence {
        match found.claim.as_ref().map_err(Clone::clone).and_then(|claim| judge_claim(required, claim, image))
        {
            Ok(accepted) => return Ok(accepted),
            Err(why) => reasons.push(format!("{}: {why}", found.place)),
        }
    }
    if reasons.is_empty() {
        return Err(None);
    }
    let more = reasons.len().saturating_sub(MAX_REASONS);
    reasons.truncate(MAX_REASONS);
    let mut text = reasons.join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    Err(Some(text))
}

fn judge_claim(required: &Sigstore, claim: &Claim, image: Image<'_>) -> Result<Accepted, String> {
    let signed = claim.format.signed(&claim.payload);
    let accepted = match &required.signer {
        Signer::Keys(keys) => {
            let key = keys
                .iter()
                .find(|key| key.verifies(&signed, &claim.signature))
                .ok_or("it is not made with a key of the policy, or its payload was changed")?;
            if !required.rekor.is_empty() {
                logged(required, claim, rekor::Signer::Key(key))?;
            }
            Accepted { signer: format!("key {}", key.name), lasting: true }
        }
        Signer::Certified { roots, issuer, subject } => {
            let der = claim.certificate.as_ref().ok_or("it comes without a certificate")?;
            let leaf = Leaf::read(der)?;
            let promised = !required.rekor.is_empty();
            let at = match promised {
                true => logged(required, claim, rekor::Signer::Certificate(der))?,
                false => image.now,
            };
            roots.verify(der, &claim.chain, at)?;
            if let Some(issuer) = issuer {
                leaf.issued_by(issuer)?;
            }
            leaf.names(subject)?;
            if !leaf.key.verifies(&signed, &claim.signature) {
                return Err(
                    "it is not made with the key of its certificate, or its payload was changed".into()
                );
            }
            let provider = issuer.as_ref().map(|issuer| format!(" of {issuer}")).unwrap_or_default();
            Accepted { signer: leaf.described() + &provider, lasting: promised }
        }
    };
    let named = statement::read(claim.format, &claim.payload, image.digest)?;
    required.identity.accepts(image.asked, named.as_deref())?;
    Ok(accepted)
}

/// The time at which the log took in the signature.
fn logged(required: &Sigstore, claim: &Claim, signer: rekor::Signer<'_>) -> Result<i64, String> {
    let entry =
        claim.entry.as_ref().ok_or("it comes without a signed entry timestamp of a transparency log")?;
    entry.verify(&required.rekor, &claim.payload, &claim.signature, signer)
}

#[cfg(test)]
mod tests;
