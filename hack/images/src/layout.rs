//! An image as files: the OCI image layout, which `skopeo`, `podman`, `crane` and container runtimes read.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::image::{Blob, Part};

/// Writes a program's image: its index under the name `tag`, and the bill of materials as its referrer. What was in the
/// folder is replaced.
///
/// # Errors
/// When a file cannot be written; the error message names it.
pub fn write(folder: &Path, index: &Blob, tag: &str, parts: &[&Part], referrers: &[Part]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot replace {}", folder.display()))?;
    }
    let blobs = folder.join("blobs").join("sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("cannot create {}", blobs.display()))?;
    let put = |blob: &Blob| {
        let path = blobs.join(blob.digest.trim_start_matches("sha256:"));
        fs::write(&path, &blob.bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    for part in parts.iter().copied().chain(referrers) {
        put(&part.manifest)?;
        part.blobs.iter().try_for_each(put)?;
    }
    put(index)?;
    let mut named = index.descriptor();
    named["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
    let mut manifests = vec![named];
    manifests.extend(referrers.iter().map(|referrer| referrer.manifest.descriptor()));
    let list = json!({"schemaVersion": 2, "mediaType": crate::image::INDEX, "manifests": manifests});
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    fs::write(folder.join("index.json"), list.to_string())?;
    Ok(())
}
