//! Published bundles and catalogs of the shared reference material.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use olm_kit::image::read_dir;
use olm_kit::{BundleImage, Registry};
use serde_json::Value;

/// The folder of the sample; prints that the test is skipped if there is none.
#[expect(clippy::print_stdout, reason = "the test run counts what was skipped")]
pub fn data() -> Option<PathBuf> {
    let data = olm_kit::shared_material().map(|folder| folder.join("data")).filter(|it| it.is_dir());
    if data.is_none() {
        println!("SKIPPED real content: there is no ../shared/data (OLM_SHARED names another place)");
    }
    data
}

/// Pushes the bundles of a package; gives the blobs of its catalog, which refer to them.
pub async fn pushed(
    registry: &Registry,
    data: &Path,
    package: &str,
    versions: &[&str],
) -> Result<Vec<Value>> {
    let mut blobs = catalog(data, package)?;
    for version in versions {
        let bundle = BundleImage::from_dir(&data.join("bundles").join(package).join(version))?;
        let repository = format!("bundles/community/{package}");
        let image = registry.push(&repository, version, &bundle.image()).await?.by_digest();
        let written = format!("localhost:5000/bundles/community/{package}:{version}");
        let blob = blobs.iter_mut().find(|blob| blob["image"] == *written);
        blob.with_context(|| format!("no bundle has the image {written}"))?["image"] = image.into();
    }
    Ok(blobs)
}

/// The blobs of a package's catalog. The sample's derived catalogs call the range of a needed package `version`, as a bundle's
/// `dependencies.yaml` does; in a catalog its name is `versionRange`, and anything else is refused.
fn catalog(data: &Path, package: &str) -> Result<Vec<Value>> {
    let mut blobs = Vec::new();
    for text in read_dir(&data.join("bundles-catalog").join(package), "")?.values() {
        let stream = serde_json::Deserializer::from_slice(text).into_iter();
        blobs.extend(stream.collect::<Result<Vec<Value>, _>>()?);
    }
    let properties = blobs.iter_mut().filter_map(|blob| blob.get_mut("properties")?.as_array_mut()).flatten();
    for property in properties.filter(|property| property["type"] == "olm.package.required") {
        let value = property["value"].as_object_mut().context("a needed package is no object")?;
        if let Some(range) = value.remove("version") {
            value.insert("versionRange".to_owned(), range);
        }
    }
    Ok(blobs)
}
