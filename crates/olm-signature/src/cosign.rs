//! Cosign's signature: a simple-signing payload, with everything else in the annotations of its layer.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::certificate::certificates;
use crate::evidence::{Claim, MAX_CHAIN};
use crate::rekor::Entry;
use crate::statement::Format;

/// Media type of cosign's payloads.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const ENTRY: &str = "dev.sigstore.cosign/bundle";

impl Claim {
    /// Reads cosign's signature: the payload with the annotations of its layer.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn from_cosign(payload: Vec<u8>, annotations: &BTreeMap<String, String>) -> Result<Self, String> {
        let signature =
            annotations.get(SIGNATURE).ok_or_else(|| format!("it has no annotation {SIGNATURE}"))?;
        let signature = STANDARD.decode(signature).map_err(|error| format!("it is no base64: {error}"))?;
        // cosign writes empty annotations where it has no value
        let given = |name: &str| annotations.get(name).filter(|text| !text.is_empty());
        let all = |name: &str| given(name).map(|pem| certificates(pem.as_bytes(), name)).transpose();
        let mut certificate = all(CERTIFICATE)?.unwrap_or_default();
        if certificate.len() > 1 {
            return Err(format!("{CERTIFICATE} holds {} certificates, not one", certificate.len()));
        }
        let chain = all(CHAIN)?.unwrap_or_default();
        if chain.len() > MAX_CHAIN {
            return Err(format!("it comes with more than {MAX_CHAIN} certificates"));
        }
        let entry = given(ENTRY).map(|text| Entry::from_annotation(text)).transpose()?;
        Ok(Self { payload, format: Format::Simple, signature, certificate: certificate.pop(), chain, entry })
    }
}
