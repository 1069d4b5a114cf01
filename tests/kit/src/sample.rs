//! The sample operator of `hack/demo`: five versions of the package *greeter* in two channels, for the demo and for tests
//! that want something lifelike.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::image::read_dir;
use crate::{BundleImage, CatalogImage, Registry, repository};

/// All versions, lowest first.
pub const VERSIONS: [&str; 5] = ["1.0.0", "1.0.1", "1.1.0", "2.0.0", "2.1.0-rc.1"];

/// The folder of the sample's files.
pub fn source() -> PathBuf {
    repository().join("hack/demo")
}

/// The bundle of one version: what all versions share, with the version's own files on top.
pub fn bundle(version: &str) -> Result<BundleImage> {
    let operator = source().join("operator");
    let mut files = read_dir(&operator.join("common"), "")?;
    let own = operator.join(version);
    if own.is_dir() {
        files.extend(read_dir(&own, "")?);
    }
    for content in files.values_mut() {
        *content = String::from_utf8(std::mem::take(content))?.replace("${VERSION}", version).into_bytes();
    }
    Ok(BundleImage::from_files(files))
}

/// The catalog's text; `digests` has a digest for each of [`VERSIONS`].
pub fn catalog(registry: &str, digests: &[String]) -> Result<String> {
    let mut text = std::fs::read_to_string(source().join("catalog/greeter/catalog.yaml"))?;
    text = text.replace("${REGISTRY}", registry);
    for (version, digest) in VERSIONS.iter().zip(digests) {
        text = text.replace(&format!("${{DIGEST {version}}}"), digest);
    }
    ensure!(!text.contains("${"), "the sample catalog has a placeholder that nothing fills");
    Ok(text)
}

/// Pushes all bundles and the catalog; returns the catalog's image reference (by tag).
pub async fn push(registry: &Registry) -> Result<String> {
    let mut digests = Vec::new();
    for version in VERSIONS {
        let image = bundle(version)?.image();
        digests.push(registry.push("greeter-bundle", &format!("v{version}"), &image).await?.digest);
    }
    let text = catalog(registry.address(), &digests)?;
    let image = CatalogImage::new().file("greeter/catalog.yaml", &text).image();
    Ok(registry.push("greeter-catalog", "latest", &image).await?.by_tag())
}
