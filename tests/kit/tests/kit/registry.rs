//! The images that the builders make, pushed to the registry and fetched again.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use olm_kit::image::{Compression, Defect, sha256};
use olm_kit::{BundleImage, Ca, CatalogImage, Entry, Image, Index, Layer, Package, Registry, unique};
use reqwest::StatusCode;

async fn get(registry: &Registry, path: &str) -> (StatusCode, Vec<u8>) {
    let url = format!("https://{}/v2/{path}", registry.address());
    let accept = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                  application/vnd.docker.distribution.manifest.v2+json";
    let client = Ca::shared().unwrap().http_client().unwrap();
    let answer = client.get(url).header("Accept", accept).send().await.unwrap();
    (answer.status(), answer.bytes().await.unwrap().to_vec())
}

#[tokio::test]
async fn registry_serves_images_by_tag_and_digest() {
    let registry = Registry::shared().await.unwrap();
    let repository = unique("images");
    for (tag, image) in [
        ("gzip", BundleImage::new("demo", "1.0.0").image()),
        ("zstd", BundleImage::new("demo", "1.0.1").image().compression(Compression::Zstd)),
        ("docker", BundleImage::new("demo", "1.0.2").image().docker()),
    ] {
        let pushed = registry.push(&repository, tag, &image).await.unwrap();
        let (status, by_tag) = get(registry, &format!("{repository}/manifests/{tag}")).await;
        assert_eq!((status, sha256(&by_tag)), (StatusCode::OK, pushed.digest.clone()), "{tag}");
        let manifest: serde_json::Value = serde_json::from_slice(&by_tag).unwrap();
        let layer = manifest["layers"][0]["digest"].as_str().unwrap();
        let (status, bytes) = get(registry, &format!("{repository}/blobs/{layer}")).await;
        assert_eq!((status, sha256(&bytes).as_str()), (StatusCode::OK, layer), "{tag}");
    }
}

#[tokio::test]
async fn registry_index_lists_platforms_and_tags_move() {
    let registry = Registry::shared().await.unwrap();
    let repository = unique("index");
    let image = |text: &[u8], architecture| {
        Image::new().layer(Layer::new().file("f", text)).platform("linux", architecture)
    };
    let index = Index::new().image(image(b"1", "amd64")).image(image(b"2", "arm64"));
    let pushed = registry.push_index(&repository, "v1", &index).await.unwrap();
    let (status, body) = get(registry, &format!("{repository}/manifests/{}", pushed.digest)).await;
    assert_eq!(status, StatusCode::OK);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["manifests"][1]["platform"]["architecture"], "arm64");

    let moved = registry.retag(&pushed, "v2").await.unwrap();
    assert_eq!(moved.by_tag(), format!("{}/{repository}:v2", registry.address()));
    assert_eq!(get(registry, &format!("{repository}/manifests/v2")).await.0, StatusCode::OK);
    registry.delete(&pushed).await.unwrap();
    assert_eq!(get(registry, &format!("{repository}/manifests/v2")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn registry_broken_images_are_really_broken() {
    let registry = Registry::shared().await.unwrap();
    let repository = unique("broken");
    let package = Package::new("demo").channel("stable", [Entry::new("1.0.0")]).bundle("1.0.0", "x");
    let image = CatalogImage::new().package(&package).image();
    let layer = async |fault: Defect| {
        let tag = format!("{fault:?}").to_lowercase();
        // content of its own, so that damage in the storage does not hit another image
        let image = image.clone().layer(Layer::new().file("fault", tag.as_bytes())).fault(fault);
        registry.push(&repository, &tag, &image).await.unwrap();
        let (_, manifest) = get(registry, &format!("{repository}/manifests/{tag}")).await;
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let digest = manifest["layers"][1]["digest"].as_str().map(str::to_owned)?;
        let (status, bytes) = get(registry, &format!("{repository}/blobs/{digest}")).await;
        Some((status, sha256(&bytes) == digest))
    };
    assert_eq!(layer(Defect::NoLayers).await, None);
    assert_eq!(layer(Defect::TruncatedLayer).await, Some((StatusCode::OK, true)));
    assert_eq!(layer(Defect::CorruptBlob).await, Some((StatusCode::OK, false)));
    assert_eq!(layer(Defect::MissingBlob).await, Some((StatusCode::NOT_FOUND, false)));
}

#[tokio::test]
async fn registry_with_authentication_rejects_anonymous_clients() {
    let registry = Registry::start_with_auth().await.unwrap();
    let image = BundleImage::new("demo", "1.0.0").image();
    registry.push("private", "v1", &image).await.unwrap();
    assert_eq!(get(&registry, "private/manifests/v1").await.0, StatusCode::UNAUTHORIZED);
    assert!(registry.docker_config().contains(registry.address()));
}
