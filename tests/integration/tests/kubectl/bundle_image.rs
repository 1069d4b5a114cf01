//! `bundle`, `config` and `crd diff` on a bundle image of a real registry answer as they do for its directory.

use std::path::Path;

use anyhow::{Context as _, Result};
use olm_kit::{BundleImage, Ca, Registry, RunDir};

use crate::support::olm;

fn unpacked(dir: &Path, bundle: &BundleImage) -> Result<()> {
    for (path, content) in bundle.files() {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().context("no parent")?)?;
        std::fs::write(path, content)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_a_bundle_image_as_a_directory_and_caches_it() -> Result<()> {
    let registry = Registry::start().await?;
    let home = RunDir::new("home")?;
    let ca = Ca::shared()?.certificate();
    let ca = ca.to_str().context("path")?;
    let image = BundleImage::new("demo", "1.0.0");
    let pushed = registry.push("verbs/bundle", "v1", &image.image()).await?.by_digest();
    let dir = home.path().join("bundle");
    unpacked(&dir, &image)?;
    let path = dir.to_str().context("path")?;
    for verb in [
        &["bundle", "inspect"][..],
        &["bundle", "lint"],
        &["bundle", "render", "-n", "here"],
        &["config", "schema"],
        &["config", "defaults"],
        &["config", "validate", "-n", "here"],
    ] {
        let (code, of_image, error) = olm(home.path(), &[verb, &[&pushed, "--ca-file", ca]].concat())?;
        let (want, of_dir, _) = olm(home.path(), &[verb, &[path]].concat())?;
        assert_eq!((code, &of_image), (want, &of_dir), "{verb:?} {error}");
    }
    assert_eq!(olm(home.path(), &["crd", "diff", path, &pushed, "--ca-file", ca])?.0, 0);

    drop(registry);
    let (code, _, error) = olm(home.path(), &["bundle", "inspect", &pushed, "--ca-file", ca])?;
    assert_eq!(code, 0, "a digest is in the cache: {error}");
    let tag = format!("{}:v1", pushed.split('@').next().unwrap_or_default());
    let (code, _, error) = olm(home.path(), &["bundle", "inspect", &tag, "--ca-file", ca])?;
    assert_eq!(code, 3, "{error}");
    let (code, _, error) = olm(home.path(), &["bundle", "inspect", "Not/A Reference"])?;
    assert_eq!(code, 2, "{error}");
    let (code, _, error) = olm(home.path(), &["bundle", "lint", "nowhere"])?;
    assert_eq!((code, error.contains("there is no such directory")), (2, true), "{error}");
    Ok(())
}
