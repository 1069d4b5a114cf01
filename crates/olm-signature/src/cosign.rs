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

/// A payload with the annotations of its layer.
pub(crate) fn read(payload: Vec<u8>, annotations: &BTreeMap<String, String>) -> Result<Claim, String> {
    let signature = annotations.get(SIGNATURE).ok_or_else(|| format!("it has no annotation {SIGNATURE}"))?;
    let signature = STANDARD.decode(signature).map_err(|error| format!("it is no base64: {error}"))?;
    // cosign writes empty annotations where it has no value
    let given = |name: &str| annotations.get(name).filter(|text| !text.is_empty());
    let mut certificate = match given(CERTIFICATE) {
        Some(pem) => certificates(pem.as_bytes(), CERTIFICATE)?,
        None => Vec::new(),
    };
    if certificate.len() > 1 {
        return Err(format!("{CERTIFICATE} holds {} certificates, not one", certificate.len()));
    }
    let chain = match given(CHAIN) {
        Some(pem) => certificates(pem.as_bytes(), CHAIN)?,
        None => Vec::new(),
    };
    if chain.len() > MAX_CHAIN {
        return Err(format!("it comes with more than {MAX_CHAIN} certificates"));
    }
    let entry = given(ENTRY).map(|text| Entry::from_annotation(text)).transpose()?;
    Ok(Claim { payload, format: Format::Simple, signature, certificate: certificate.pop(), chain, entry })
}
