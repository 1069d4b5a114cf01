//! ClusterCatalog: catalogd §3.

use anyhow::Result;
use kube::Client;
use kube::api::{Api, DynamicObject};
use olm_integration::{api, patched};
use olm_kit::unique;
use serde_json::{Value, json};

use crate::cases::{Case, accepted, cases, offer_all, write_statuses};
use crate::cluster;

const CASES: &str = include_str!("cases/catalog.yaml");

pub(crate) fn catalogs(client: &Client) -> Api<DynamicObject> {
    api(client, "ClusterCatalog", "clustercatalogs")
}

pub(crate) fn base() -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "offered"},
        "spec": {"source": {"type": "Image", "image": {"ref": "quay.io/a/b:latest"}}},
    })
}

const REF: &str = "spec.source.image.ref";
const R1: (&str, &str) = (
    REF,
    "must start with a valid domain. valid domains must be alphanumeric characters (lowercase and uppercase) separated by the \".\" character.",
);
const R2: (&str, &str) = (
    REF,
    "a valid name is required. valid names must contain lowercase alphanumeric characters separated only by the \".\", \"_\", \"__\", \"-\" characters.",
);
const R3: (&str, &str) = (REF, "must end with a digest or a tag");
const R4: (&str, &str) = (REF, "tag is invalid. the tag must not be more than 127 characters");
const R5: (&str, &str) = (
    REF,
    "tag is invalid. valid tags must begin with a word character (alphanumeric + \"_\") followed by word characters or \".\", and \"-\" characters",
);
const R6: (&str, &str) = (
    REF,
    "digest algorithm is not valid. valid algorithms must start with an uppercase or lowercase alpha character followed by alphanumeric characters and may contain the \"-\", \"_\", \"+\", and \".\" characters.",
);
const R7: (&str, &str) = (REF, "digest is not valid. the encoded string must be at least 32 characters");
const R8: (&str, &str) =
    (REF, "digest is not valid. the encoded string must only contain hex characters (A-F, a-f, 0-9)");

#[tokio::test]
async fn catalog_schema_validates_image_references() -> Result<()> {
    let (_, client) = cluster().await?;
    let hex = "0123456789abcdef".repeat(4);
    let by_digest =
        |algorithm: &str, length: usize| format!("quay.io/cat@{algorithm}:{}", "a".repeat(length));
    let references: Vec<(String, &[(&str, &str)])> = vec![
        ("quay.io/operatorhubio/catalog:latest".into(), &[]),
        (format!("quay.io/operatorhubio/catalog@sha256:{hex}"), &[]),
        ("localhost:5000/cat:1".into(), &[]),
        ("localhost/cat:1".into(), &[]),
        ("10.0.0.1:5000/cat:1".into(), &[]),
        (format!("quay.io/a/b:v1@sha256:{hex}"), &[]),
        ("library/catalog:latest".into(), &[]),
        ("docker.io/foo:1".into(), &[]),
        ("quay.io/foo/Cat:1".into(), &[]),
        ("https://quay.io/cat:1".into(), &[]),
        ("quay.io//cat:1".into(), &[]),
        ("quay.io/cat:a:b".into(), &[]),
        ("quay.io/ca$t:1".into(), &[]),
        (by_digest("md5", 32), &[]),
        (by_digest("sha256", 40), &[]),
        (by_digest("sha512", 128), &[]),
        ("quay.io/operatorhubio/catalog".into(), &[R3]),
        ("catalog:latest".into(), &[R2]),
        ("quay.io/Cat:1".into(), &[R2]),
        ("localhost:5000/cat".into(), &[R5]),
        ("my_registry.io/cat:1".into(), &[R1]),
        ("-x.io/cat:1".into(), &[R1]),
        ("[::1]:5000/cat:1".into(), &[R1]),
        ("quay.io/cat:".into(), &[R5]),
        ("quay.io/cat:-x".into(), &[R5]),
        ("quay.io/cat:a/b".into(), &[R5]),
        ("quay.io/cat:1 ".into(), &[R5]),
        (format!("quay.io/cat:{}", "t".repeat(127)), &[]),
        (format!("quay.io/cat:{}", "t".repeat(128)), &[R4]),
        ("quay.io/cat@sha256:abc".into(), &[R7]),
        (format!("quay.io/cat@sha256:{}", "g".repeat(64)), &[R8]),
        (format!("quay.io/cat@:{hex}"), &[R6]),
        (format!("quay.io/cat@{hex}"), &[R3]),
        (String::new(), &[R1, R2, R3]),
        (format!("quay.io/{}:1", "a".repeat(990)), &[]),
        (format!("quay.io/{}:1", "a".repeat(991)), &[(REF, "Too long: may not be more than 1000 bytes")]),
    ];
    let case = |(reference, rejected): (String, &[(&str, &str)])| {
        let object = patched(base(), &[("/spec/source/image/ref", json!(reference))]);
        Case::new(&format!("ref {reference:?}"), object, rejected)
    };
    offer_all(&catalogs(&client), references.into_iter().map(case).collect()).await
}

#[tokio::test]
async fn catalog_schema_validates_other_fields() -> Result<()> {
    let (_, client) = cluster().await?;
    offer_all(&catalogs(&client), cases(CASES, "other fields", &base())?).await
}

#[tokio::test]
async fn catalog_schema_fills_in_defaults_only() -> Result<()> {
    let (_, client) = cluster().await?;
    let stored = accepted(&catalogs(&client), base()).await?;
    let want = json!({"source": {"type": "Image", "image": {"ref": "quay.io/a/b:latest"}}, "priority": 0, "availabilityMode": "Available"});
    assert_eq!(stored.data["spec"], want);
    Ok(())
}

#[tokio::test]
async fn catalog_schema_validates_status() -> Result<()> {
    let (_, client) = cluster().await?;
    let object = patched(
        base(),
        &[("/metadata/name", json!(unique("status"))), ("/spec/availabilityMode", json!("Unavailable"))],
    );
    write_statuses(&catalogs(&client), object, cases(CASES, "status", &json!({}))?).await
}
