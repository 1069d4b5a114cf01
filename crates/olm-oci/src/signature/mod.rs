//! Verification of the signatures of images.
//!
//! [`find`] brings the signatures of an image from its registry, [`check`] has them verified by `olm-signature`, before
//! anything below the manifest's digest is read.
//!
//! Rule: decision 18.

mod check;
mod find;

use olm_core::ImageRef;

/// An image that the signature policy accepts; only [`crate::Puller::verify`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub(crate) canonical: ImageRef,
    /// The user wrote a tag: mirrors for tags have the image, too.
    pub(crate) from_tag: bool,
    pub(crate) signer: Option<String>,
}

impl Verified {
    /// The reference with the digest that was verified.
    #[must_use]
    pub fn canonical(&self) -> &ImageRef {
        &self.canonical
    }

    /// A description of the signer; `None` if the policy requires no signature of this image.
    #[must_use]
    pub fn signer(&self) -> Option<&str> {
        self.signer.as_deref()
    }
}
