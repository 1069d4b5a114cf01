//! One signature as it was found, not yet believed.

use rustls_pki_types::CertificateDer;

use crate::rekor::Entry;
use crate::statement::Format;

/// Signatures of one image that are looked at.
pub const MAX_SIGNATURES: usize = 64;
/// Largest signed payload, in bytes.
pub const MAX_PAYLOAD: usize = 128 << 10;
/// Largest sigstore bundle, in bytes.
pub const MAX_BUNDLE: usize = 256 << 10;
/// Certificates that come with one signature.
pub(crate) const MAX_CHAIN: usize = 8;

/// Something that claims to be a signature.
#[derive(Debug)]
pub struct Evidence {
    /// Where it was found, for messages: `signature 1 of sha256-….sig`.
    pub place: String,
    /// What it is, or why it cannot be read.
    pub claim: Result<Claim, String>,
}

/// A signature with what came with it.
#[derive(Debug)]
pub struct Claim {
    /// What was signed.
    pub(crate) payload: Vec<u8>,
    /// How to read and how to hash it.
    pub(crate) format: Format,
    pub(crate) signature: Vec<u8>,
    /// The signer's certificate.
    pub(crate) certificate: Option<CertificateDer<'static>>,
    /// Certificates that may lead from it to a root.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// The entry of the transparency log.
    pub(crate) entry: Option<Entry>,
}
