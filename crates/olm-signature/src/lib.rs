//! Signatures of images: does the policy accept this image?
//!
//! Off unless a policy is configured, strict when one is: content that cannot be read, found or understood is rejected with
//! an error message, never accepted. [`Policy`] is containers-policy.json(5), [`judge`] decides about [`Evidence`], which
//! the caller brings from the registry, and [`AcceptedImages`] remembers what was accepted. Apart from reading the policy
//! and that memory everything is a plain function of bytes; registries and their protocol are not known here.
//!
//! What is verified is a manifest digest, before anything below that digest is read; everything after it is requested by
//! that digest. A signature of an image index covers the images in it (their digests are in the signed bytes); a
//! signature of the image of this platform is as good.
//!
//! Offline by design: no request goes to Rekor, Fulcio or TUF servers. The trust root is what the policy holds. Not done:
//! GPG (`signedBy`), timestamps of RFC 3161, Rekor v2 entries without signed entry timestamp, certificate transparency
//! (embedded SCTs are not checked, as containers/image does not either).
//!
//! Rule: decision 18; no library for sigstore bundles: decision 41.

mod accepted_images;
mod bundle;
mod certificate;
mod cosign;
mod demand;
mod evidence;
#[doc(hidden)]
pub mod fuzz;
mod identity;
mod judge;
mod keys;
mod policy;
mod rekor;
mod statement;
#[doc(hidden)]
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use accepted_images::{AcceptedImage, AcceptedImages};
pub use bundle::MEDIA_TYPE_PREFIX as BUNDLE_MEDIA_TYPE_PREFIX;
pub use cosign::SIMPLE_SIGNING;
pub use demand::Demand;
pub use evidence::{Claim, Evidence, MAX_BUNDLE, MAX_PAYLOAD, MAX_SIGNATURES};
pub use judge::{Accepted, Image, judge};
pub use policy::{ACCEPT_ANYTHING, Policy, PolicyError, SignaturePolicy, Sigstore};
