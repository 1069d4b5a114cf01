//! ClusterCatalog: catalogd §3.

use anyhow::{Result, anyhow};
use kube::Client;
use kube::api::{Api, DynamicObject};
use olm_integration::Want::{Accepted, Refused};
use olm_integration::{Want, api, change_status, check, create, with};
use olm_kit::unique;
use serde_json::{Value, json};

use crate::{Changes, cluster, offer_all, report};

pub(crate) fn catalogs(client: &Client) -> Api<DynamicObject> {
    api(client, "ClusterCatalog", "clustercatalogs")
}

pub(crate) fn base() -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": {"name": "offered"},
        "spec": {"source": {"type": "Image", "image": {"ref": "quay.io/a/b:latest"}}}
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
async fn image_references() -> Result<()> {
    let (_, client) = cluster().await?;
    let hex = "0123456789abcdef".repeat(4);
    let by_digest =
        |algorithm: &str, length: usize| format!("quay.io/cat@{algorithm}:{}", "a".repeat(length));
    let cases: Vec<(String, Want)> = vec![
        ("quay.io/operatorhubio/catalog:latest".into(), Accepted),
        (format!("quay.io/operatorhubio/catalog@sha256:{hex}"), Accepted),
        ("localhost:5000/cat:1".into(), Accepted),
        ("localhost/cat:1".into(), Accepted),
        ("10.0.0.1:5000/cat:1".into(), Accepted),
        (format!("quay.io/a/b:v1@sha256:{hex}"), Accepted),
        ("library/catalog:latest".into(), Accepted),
        ("docker.io/foo:1".into(), Accepted),
        ("quay.io/foo/Cat:1".into(), Accepted),
        ("https://quay.io/cat:1".into(), Accepted),
        ("quay.io//cat:1".into(), Accepted),
        ("quay.io/cat:a:b".into(), Accepted),
        ("quay.io/ca$t:1".into(), Accepted),
        (by_digest("md5", 32), Accepted),
        (by_digest("sha256", 40), Accepted),
        (by_digest("sha512", 128), Accepted),
        ("quay.io/operatorhubio/catalog".into(), Refused(&[R3])),
        ("catalog:latest".into(), Refused(&[R2])),
        ("quay.io/Cat:1".into(), Refused(&[R2])),
        ("localhost:5000/cat".into(), Refused(&[R5])),
        ("my_registry.io/cat:1".into(), Refused(&[R1])),
        ("-x.io/cat:1".into(), Refused(&[R1])),
        ("[::1]:5000/cat:1".into(), Refused(&[R1])),
        ("quay.io/cat:".into(), Refused(&[R5])),
        ("quay.io/cat:-x".into(), Refused(&[R5])),
        ("quay.io/cat:a/b".into(), Refused(&[R5])),
        ("quay.io/cat:1 ".into(), Refused(&[R5])),
        (format!("quay.io/cat:{}", "t".repeat(127)), Accepted),
        (format!("quay.io/cat:{}", "t".repeat(128)), Refused(&[R4])),
        ("quay.io/cat@sha256:abc".into(), Refused(&[R7])),
        (format!("quay.io/cat@sha256:{}", "g".repeat(64)), Refused(&[R8])),
        (format!("quay.io/cat@:{hex}"), Refused(&[R6])),
        (format!("quay.io/cat@{hex}"), Refused(&[R3])),
        (String::new(), Refused(&[R1, R2, R3])),
        (format!("quay.io/{}:1", "a".repeat(990)), Accepted),
        (
            format!("quay.io/{}:1", "a".repeat(991)),
            Refused(&[(REF, "Too long: may not be more than 1000 bytes")]),
        ),
    ];
    let case = |(reference, want): (String, Want)| {
        let object = with(base(), &[("/spec/source/image/ref", json!(reference))]);
        (format!("ref {reference:?}"), object, want)
    };
    offer_all(&catalogs(&client), cases.into_iter().map(case).collect()).await
}

#[tokio::test]
async fn everything_else() -> Result<()> {
    const UNION: &str = "image is required when source type is Image, and forbidden otherwise";
    let (_, client) = cluster().await?;
    let digest = format!("quay.io/a/b@sha256:{}", "a".repeat(64));
    let poll = "/spec/source/image/pollIntervalMinutes";
    let cases: Vec<(&str, Changes, Want)> = vec![
        ("the smallest object", vec![], Accepted),
        ("no spec", vec![("/spec", Value::Null)], Refused(&[("spec", "Required value")])),
        ("no source", vec![("/spec/source", Value::Null)], Refused(&[("spec.source", "Required value")])),
        (
            "no type",
            vec![("/spec/source/type", Value::Null)],
            Refused(&[("spec.source.type", "Required value")]),
        ),
        (
            "another type",
            vec![("/spec/source/type", json!("Git"))],
            Refused(&[("spec.source.type", "Unsupported value: \"Git\": supported values: \"Image\"")]),
        ),
        ("no image", vec![("/spec/source/image", Value::Null)], Refused(&[("spec.source", UNION)])),
        ("no ref", vec![("/spec/source/image", json!({}))], Refused(&[(REF, "Required value")])),
        ("polls", vec![(poll, json!(1))], Accepted),
        ("polls rarely", vec![(poll, json!(100_000_000_000_i64))], Accepted),
        (
            "polls all the time",
            vec![(poll, json!(0))],
            Refused(&[("spec.source.image.pollIntervalMinutes", "should be greater than or equal to 1")]),
        ),
        (
            "polls a digest",
            vec![("/spec/source/image/ref", json!(digest)), (poll, json!(5))],
            Refused(&[(
                "spec.source.image",
                "cannot specify pollIntervalMinutes while using digest-based image",
            )]),
        ),
        ("the lowest priority", vec![("/spec/priority", json!(i32::MIN))], Accepted),
        ("the highest priority", vec![("/spec/priority", json!(i32::MAX))], Accepted),
        (
            "too high a priority",
            vec![("/spec/priority", json!(2_147_483_648_i64))],
            Refused(&[
                ("<nil>", "Checked value must be of type integer with format int32 in spec.priority"),
                ("spec.priority", "should be less than or equal to 2147483647"),
            ]),
        ),
        (
            "a priority in words",
            vec![("/spec/priority", json!("high"))],
            Refused(&[("spec.priority", "must be of type integer: \"string\"")]),
        ),
        ("switched off", vec![("/spec/availabilityMode", json!("Unavailable"))], Accepted),
        (
            "half available",
            vec![("/spec/availabilityMode", json!("Maybe"))],
            Refused(&[("spec.availabilityMode", "supported values: \"Unavailable\", \"Available\"")]),
        ),
    ];
    let case = |(case, changes, want): (&str, Changes, Want)| (case.to_owned(), with(base(), &changes), want);
    offer_all(&catalogs(&client), cases.into_iter().map(case).collect()).await
}

#[tokio::test]
async fn defaults_are_filled_in_and_nothing_else() -> Result<()> {
    let (_, client) = cluster().await?;
    let stored =
        olm_integration::offer(&catalogs(&client), base()).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    let want = json!({
        "source": {"type": "Image", "image": {"ref": "quay.io/a/b:latest"}},
        "priority": 0, "availabilityMode": "Available"
    });
    assert_eq!(stored.data["spec"], want);
    Ok(())
}

#[tokio::test]
async fn status_rules() -> Result<()> {
    let (_, client) = cluster().await?;
    let api = catalogs(&client);
    let name = unique("status");
    let object =
        with(base(), &[("/metadata/name", json!(name)), ("/spec/availabilityMode", json!("Unavailable"))]);
    let stored = create(&api, object).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    let resolved =
        |reference: &str| json!({"resolvedSource": {"type": "Image", "image": {"ref": reference}}});
    let base_url = |base: &str| json!({"urls": {"base": base}});
    let digest = "a".repeat(64);
    let cases = [
        ("a digest", resolved(&format!("quay.io/a/b@sha256:{digest}")), Accepted),
        (
            "a tag",
            resolved("quay.io/a/b:latest"),
            Refused(&[("status.resolvedSource.image.ref", "must end with a digest")]),
        ),
        (
            "no image",
            json!({"resolvedSource": {"type": "Image"}}),
            Refused(&[("status.resolvedSource.image", "Required value")]),
        ),
        ("https", base_url("https://catalogd-service.olmv1-system.svc/catalogs/a"), Accepted),
        ("http", base_url("http://localhost:8080/catalogs/a"), Accepted),
        (
            "ftp",
            base_url("ftp://host/a"),
            Refused(&[("status.urls.base", "scheme must be either http or https")]),
        ),
        ("no URL", base_url("host and path"), Refused(&[("status.urls.base", "must be a valid URL")])),
        ("no base", json!({"urls": {}}), Refused(&[("status.urls.base", "Required value")])),
        (
            "a long URL",
            base_url(&format!("https://host/{}", "a".repeat(513))),
            Refused(&[("status.urls.base", "Too long: may not be more than 525 bytes")]),
        ),
        ("a time", json!({"lastUnpacked": "2026-01-01T00:00:00Z"}), Accepted),
        (
            "no time",
            json!({"lastUnpacked": "yesterday"}),
            Refused(&[("status.lastUnpacked", "must be of type date-time: \"yesterday\"")]),
        ),
    ];
    let count = cases.len();
    let mut wrong = Vec::new();
    let mut latest = stored;
    for (case, status, want) in cases {
        let answer = change_status(&api, &latest, |object| object["status"] = status).await?;
        wrong.extend(check(case, want, &answer).err().map(|error| error.to_string()));
        if let Ok(object) = answer {
            latest = object;
        }
    }
    api.delete(&name, &kube::api::DeleteParams::default()).await?;
    report(count, &wrong)
}
