//! Is this image signed by whom the policy names?
//!
//! Off unless a policy is configured, strict when one is: what cannot be read, found or understood is a refusal with a
//! sentence, never a "yes". [`policy`] reads containers-policy.json(5), [`judge`] decides about [`evidence::Evidence`],
//! which [`find`] brings from the registry; [`verdicts`] remembers what was accepted; `check` puts them together.
//! Everything but `find`, `check` and `verdicts` is a plain function of bytes.
//!
//! What is verified is a manifest digest, before anything below that digest is read; everything after it is asked for by
//! that digest. A signature of an image index covers the images in it (their digests are in the signed bytes); a
//! signature of the image of this platform is as good.
//!
//! Offline by design: no Rekor, Fulcio or TUF server is asked. The trust root is what the policy holds. Not done: GPG
//! (`signedBy`), timestamps of RFC 3161, Rekor v2 entries without signed entry timestamp, certificate transparency
//! (embedded SCTs are not looked at, as containers/image does not either).
//!
//! Rule: decision 18.

pub(crate) mod bundle;
pub(crate) mod certificate;
mod check;
pub(crate) mod evidence;
pub(crate) mod find;
pub(crate) mod identity;
pub(crate) mod judge;
pub(crate) mod keys;
pub(crate) mod policy;
pub(crate) mod rekor;
pub(crate) mod statement;
pub(crate) mod verdicts;

#[cfg(test)]
pub(crate) mod testing;

use olm_core::ImageRef;

/// An image that the signature policy accepts; only [`crate::Puller::verify`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub(crate) canonical: ImageRef,
    pub(crate) signer: Option<String>,
}

impl Verified {
    /// The reference with the digest that was verified.
    #[must_use]
    pub fn canonical(&self) -> &ImageRef {
        &self.canonical
    }

    /// Who signed, in words; `None` when the policy asks for no signature of this image.
    #[must_use]
    pub fn signer(&self) -> Option<&str> {
        self.signer.as_deref()
    }
}
