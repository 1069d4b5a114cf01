//! `catalog validate IMAGE` against a real registry: what a user sees, and the exit codes.

use std::path::Path;

use anyhow::{Context as _, Result};
use olm_kit::image::{Compression, Defect};
use olm_kit::{BundleImage, Ca, CatalogImage, Entry, Package, Registry, RunDir};

use crate::support::olm;

/// `catalog validate` with these arguments.
fn validate(home: &Path, arguments: &[&str]) -> Result<(i32, String, String)> {
    olm(home, &[&["catalog", "validate"], arguments].concat())
}

fn sound() -> CatalogImage {
    let package =
        Package::new("demo").bundle("1.0.0", "example.com/demo:v1").channel("stable", [Entry::new("1.0.0")]);
    CatalogImage::new().package(&package)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_a_catalog_image_as_a_directory() -> Result<()> {
    let registry = Registry::shared().await?;
    let home = RunDir::new("home")?;
    let (cas, ca) = (Ca::shared()?.dir(), Ca::shared()?.certificate());
    let (cas, ca) = (cas.to_str().context("path")?, ca.to_str().context("path")?);
    let pushed =
        registry.push("validate/sound", "1", &sound().image().compression(Compression::Zstd)).await?;

    let (code, out, error) = validate(home.path(), &[&pushed.by_tag(), "--ca-file", ca])?;
    assert_eq!((code, out.as_str()), (0, "0 errors, 0 warnings\n"), "{error}");
    assert!(error.starts_with(&format!("reading {}\ndownloading ", pushed.by_digest())), "{error}");
    for more in [&["--cert-dir", cas][..], &["--insecure"]] {
        let (code, _, error) = validate(home.path(), &[&[pushed.by_digest().as_str()], more].concat())?;
        assert_eq!(code, 0, "{more:?} {error}");
    }

    // Several files that do not decode, and the errors of those that do, in one report.
    let broken = sound()
        .file("a.yaml", "schema: [\n")
        .file("README.md", "# Catalog\ntext: : text\n")
        .file("b.yaml", "schema: olm.channel\npackage: demo\nname: beta\nentries: [{name: gone}]\n");
    let pushed = registry.push("validate/broken", "1", &broken.image()).await?;
    let (code, out, _) = validate(home.path(), &[&pushed.by_tag(), "--ca-file", ca, "-o", "json"])?;
    let rows: serde_json::Value = serde_json::from_str(&out)?;
    let rows = rows.as_array().context("list")?.iter();
    let messages: Vec<String> = rows
        .map(|row| format!("{}:{}:{} {}", row["file"], row["line"], row["column"], row["message"]))
        .collect();
    assert_eq!(code, 1, "{out}");
    for want in [
        "\"configs/a.yaml\":",
        "\"configs/README.md\":",
        "\"configs/b.yaml\":1:1 \"no olm.bundle blobs found",
    ] {
        assert!(messages.iter().any(|message| message.contains(want)), "{want}: {messages:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_exits_with_2_for_images_that_cannot_be_read() -> Result<()> {
    let registry = Registry::start_with_auth().await?;
    let home = RunDir::new("home")?;
    let ca = Ca::shared()?.certificate();
    let ca = ca.to_str().context("path")?;
    let good = registry.push("cat", "1", &sound().image()).await?;
    let bundle = registry.push("bundle", "1", &BundleImage::new("demo", "1.0.0").image()).await?;
    let torn = registry.push("torn", "1", &sound().image().fault(Defect::TruncatedLayer)).await?;
    let rotten = registry
        .push("rotten", "1", &sound().file("own.yaml", "schema: own\n").image().fault(Defect::CorruptBlob))
        .await?;
    let auth = home.path().join("auth.json");
    std::fs::write(&auth, registry.docker_config())?;
    let auth = auth.to_str().context("path")?;
    let with = ["--ca-file", ca, "--authfile", auth];

    let error_for = |reference: &str, more: &[&str]| -> Result<String> {
        let (code, out, error) = validate(home.path(), &[&[reference], more].concat())?;
        assert_eq!((code, out.as_str()), (2, ""), "{reference} {error}");
        Ok(error)
    };
    for (reference, more, want) in [
        (good.by_tag().as_str(), &["--ca-file", ca][..], "401"),
        (&good.by_tag(), &["--authfile", auth], "certificate"),
        (&good.by_tag(), &["--ca-file", "/no/such/file", "--authfile", auth], "/no/such/file"),
        (&bundle.by_tag(), &with, "is not a catalog image: it lacks the label"),
        (&bundle.by_tag(), &with, "see `kubectl olm bundle`"),
        (&torn.by_tag(), &with, "unexpected EOF"),
        (&rotten.by_tag(), &with, "digest mismatch"),
        (&format!("{}/none:1", registry.address()), &with, "manifest unknown"),
        ("no-such-directory", &with, "there is no such directory, and an image is named with its registry"),
        ("quay.io/Cat:1", &with, "repository name must be lowercase"),
        ("./no-such-directory", &with, "No such file or directory"),
    ] {
        let error = error_for(reference, more)?;
        assert!(error.contains(want), "{reference} {more:?}: {error}");
    }
    let (code, _, error) = validate(home.path(), &[&[good.by_tag().as_str()], &with[..]].concat())?;
    assert_eq!(code, 0, "{error}");

    // The usual place of docker's credentials.
    std::fs::create_dir(home.path().join(".docker"))?;
    std::fs::write(home.path().join(".docker/config.json"), registry.docker_config())?;
    let (code, _, error) = validate(home.path(), &[&good.by_tag(), "--ca-file", ca])?;
    assert_eq!(code, 0, "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_pulls_an_image_once_for_all_verbs() -> Result<()> {
    let registry = Registry::start().await?;
    let home = RunDir::new("home")?;
    let ca = Ca::shared()?.certificate();
    let ca = ca.to_str().context("path")?;
    let catalog = sound().file("a.yaml", "schema: [\n");
    let pushed = registry.push("shop/operators", "1", &catalog.image()).await?;
    let image = ["--image", &pushed.by_tag(), "--ca-file", ca];

    let (code, out, error) = olm(home.path(), &[&["search", "-o", "name"], &image[..]].concat())?;
    assert_eq!((code, out.as_str()), (0, "demo\n"), "{error}");
    for want in [&format!("reading {}\ndownloading ", pushed.by_digest()), "passed over: ", "a.yaml"] {
        assert!(error.contains(want), "{want}: {error}");
    }
    // the second time nothing is downloaded, and a digest needs no registry at all
    let (code, out, error) = olm(home.path(), &[&["show", "demo"], &image[..]].concat())?;
    assert!(
        code == 0 && out.contains("Catalog:         operators") && !error.contains("downloading"),
        "{out}{error}"
    );
    drop(registry);
    let cached = ["--image", &pushed.by_digest(), "--ca-file", ca];
    let (code, out, error) = olm(home.path(), &[&["versions", "demo", "-o", "name"], &cached[..]].concat())?;
    assert_eq!((code, out.as_str()), (0, "demo.v1.0.0\n"), "{error}");
    let (code, out, _) = olm(home.path(), &[&["resolve", "demo", "-o", "name"], &cached[..]].concat())?;
    assert_eq!((code, out.as_str()), (0, "demo.v1.0.0\n"));
    let (code, _, error) = olm(home.path(), &[&["search"], &image[..]].concat())?;
    assert_eq!(code, 3, "{error}");
    Ok(())
}
