//! Signatures of images as `cosign sign --key` attaches them.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::image::OCI_MANIFEST;
use crate::{Pushed, Registry};

/// A key pair (ECDSA P-256, as cosign makes them) that signs.
#[derive(Debug)]
pub struct Signer(KeyPair);

impl Signer {
    /// A new key.
    pub fn new() -> Result<Self> {
        Ok(Self(KeyPair::generate()?))
    }

    /// `cosign.pub`
    pub fn public_key(&self) -> String {
        self.0.public_key_pem()
    }

    /// A requirement of a policy.json that this key signed, for the repository that the signature names.
    pub fn requirement(&self) -> serde_json::Value {
        json!({"type": "sigstoreSigned", "keyData": STANDARD.encode(self.public_key()), "signedIdentity": {"type": "matchRepository"}})
    }
}

impl Registry {
    /// Signs what was pushed; the only signature of it from now on.
    pub async fn sign(&self, pushed: &Pushed, signer: &Signer) -> Result<()> {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": pushed.repository}, "image": {"docker-manifest-digest": pushed.digest},
                "type": "cosign container image signature",
            },
            "optional": null,
        })
        .to_string();
        let signature = STANDARD.encode(signer.0.sign(payload.as_bytes())?);
        let annotations = json!({"dev.cosignproject.cosign/signature": signature});
        self.attach_signatures(pushed, &[(payload.into_bytes(), annotations)]).await
    }

    /// Puts payloads, with the annotations that sign them, where cosign looks for signatures of what was pushed.
    pub async fn attach_signatures(&self, pushed: &Pushed, signatures: &[(Vec<u8>, Value)]) -> Result<()> {
        let repository = self.repository_name(pushed)?;
        let described = |media_type: &str, blob: &[u8]| {
            let hex: String = sha2::Sha256::digest(blob).iter().map(|byte| format!("{byte:02x}")).collect();
            json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": blob.len()})
        };
        let rootfs = json!({"type": "layers", "diff_ids": []});
        let config = json!({"architecture": "", "os": "", "config": {}, "rootfs": rootfs}).to_string();
        let mut layers = Vec::new();
        for (payload, annotations) in signatures {
            let mut layer = described("application/vnd.dev.cosign.simplesigning.v1+json", payload);
            layer["annotations"] = annotations.clone();
            layers.push(layer);
            self.put_blob(repository, payload).await?;
        }
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "config": described("application/vnd.oci.image.config.v1+json", config.as_bytes()), "layers": layers,
        });
        self.put_blob(repository, config.as_bytes()).await?;
        let hex = pushed.digest.strip_prefix("sha256:").context("not named by SHA-256")?;
        let tag = format!("sha256-{hex}.sig");
        self.put_manifest(repository, &tag, OCI_MANIFEST, manifest.to_string().as_bytes()).await
    }
}
