//! Invalid input gets an error message that names the object and what to do, and fixing it is enough.

use anyhow::Result;
use kube::api::DeleteParams;
use olm_kit::{BundleImage, CatalogImage, Entry, Package, Wait, free_port};
use serde_json::json;

use crate::world::{LIMIT, World};

#[tokio::test]
async fn error_names_an_unknown_package_and_an_invalid_range() -> Result<()> {
    let world = World::new("unknown").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    let name = &world.name;

    world.want(json!({"version": "1.0.0-01"})).await?;
    let text = world.progressing("Retrying", "desired version range \"1.0.0-01\" is invalid: ").await?;
    assert!(text.starts_with("desired version range \"1.0.0-01\" is invalid: "), "{text}");

    world.want(json!({"version": "2.x"})).await?;
    let text = world.progressing("Retrying", "matching version \"2.x\"").await?;
    assert!(
        text.starts_with(&format!("no bundles found for package {name:?} matching version \"2.x\"")),
        "{text}"
    );

    world.want(json!({"channels": ["fast"]})).await?;
    let text = world.progressing("Retrying", "in channels [fast]").await?;
    assert!(text.starts_with(&format!("no bundles found for package {name:?} in channels [fast]")), "{text}");

    world.want(json!({"version": "1.x"})).await?;
    world.installed("1.0.0").await?;
    Ok(())
}

#[tokio::test]
async fn error_explains_a_bundle_that_cannot_be_pulled_or_read() -> Result<()> {
    let world = World::new("unreadable").await?;
    let nowhere = format!("127.0.0.1:{}/bundle:v1", free_port()?);
    let bare = BundleImage::from_files(
        [("metadata/annotations.yaml".to_owned(), b"annotations: {}".to_vec())].into(),
    );
    let bare = world.stack.registry.push(&format!("{}/bare", world.name), "v2", &bare.image()).await?;
    let package = Package::new(&world.name)
        .channel("stable", [Entry::new("1.0.0"), Entry::new("2.0.0"), Entry::new("3.0.0")])
        .bundle("1.0.0", &nowhere)
        .bundle("2.0.0", &bare.by_digest())
        .bundle("3.0.0", "Not A Reference");
    world.serve_package(&package).await?;

    world.want(json!({"version": "1.0.0"})).await?;
    let text = world.progressing("Retrying", "error for resolved bundle ").await?;
    let about = format!("error for resolved bundle \"{}.v1.0.0\" with version \"1.0.0\": ", world.name);
    assert!(
        text.starts_with(&about) && text.contains(nowhere.split('/').next().unwrap_or_default()),
        "{text}"
    );

    world.want(json!({"version": "2.0.0"})).await?;
    let text = world.progressing("Retrying", "manifests").await?;
    assert!(text.contains("manifests"), "{text}");

    world.want(json!({"version": "3.0.0"})).await?;
    let text = world.progressing("Blocked", "error parsing image reference").await?;
    assert!(text.contains("error parsing image reference \"Not A Reference\""), "{text}");
    assert_eq!(world.revisions().await?, []);
    // an extension that was never installed is deleted without a wait
    world.extensions.delete(&world.name, &DeleteParams::default()).await?;
    Wait::new(&world.extensions, &world.name).within(LIMIT).to_be_gone().await
}

#[tokio::test]
async fn error_explains_a_catalog_without_label_or_with_bad_json() -> Result<()> {
    let world = World::new("bad-catalog").await?;
    let push = async |tag: &str, image: CatalogImage| {
        world.stack.registry.push(&format!("{}/catalog", world.name), tag, &image.image()).await
    };
    let good = "{\"schema\": \"olm.package\", \"name\": \"x\"}\n";
    let unlabelled = push("unlabelled", CatalogImage::from_text(good).without_label()).await?;
    world.catalog(&unlabelled.by_digest()).await?;
    world.catalog_progressing("Blocked", "operators.operatorframework.io.index.configs.v1").await?;

    let broken = CatalogImage::new()
        .file("demo/catalog.json", &format!("{good}{{\"schema\": \"olm.channel\", \"name\": ]}}"));
    let broken = push("broken", broken).await?;
    world.catalog(&broken.by_digest()).await?;
    let text = world.catalog_progressing("Retrying", "demo/catalog.json").await?.message;
    assert!(text.contains("line 2") || text.contains("offset"), "the place is named: {text}");

    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    Ok(())
}
