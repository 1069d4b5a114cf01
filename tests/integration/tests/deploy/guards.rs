//! The admission policies that can be applied beside an overlay.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use olm_api::annotations::{self, ANNOTATIONS, ON_EXTENSION, Values};
use olm_api::{ClusterCatalog, ClusterExtension, labels};
use olm_kit::{Cluster, Options, eventually, unique};
use serde_json::{Value, json};

use crate::manifests::{apply, prepare};
use crate::world::LIMIT;

async fn cluster(option: &str) -> Result<Cluster> {
    let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
    prepare(&cluster).await?;
    apply(&cluster, "overlays/kubernetes")?;
    apply(&cluster, option)?;
    Ok(cluster)
}

fn extension(package: &str, catalog: Option<&str>) -> Value {
    let mut source = json!({"packageName": package});
    if let Some(catalog) = catalog {
        source["selector"] = json!({"matchLabels": {labels::METADATA_NAME: catalog}});
    }
    json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": unique("guarded")},
        "spec": {"namespace": "default", "source": {"sourceType": "Catalog", "catalog": source}}})
}

fn catalog(reference: &str) -> Value {
    json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": unique("guarded")},
        "spec": {"source": {"type": "Image", "image": {"ref": reference}}}})
}

/// The apiserver's message if it rejects the object.
async fn rejection(cluster: &Cluster, object: &Value) -> Result<Option<String>> {
    let client = cluster.client().await?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let created = match object["kind"].as_str() {
        Some("ClusterExtension") => Api::<ClusterExtension>::all(client)
            .create(&params, &serde_json::from_value(object.clone())?)
            .await
            .map(drop),
        _ => Api::<ClusterCatalog>::all(client)
            .create(&params, &serde_json::from_value(object.clone())?)
            .await
            .map(drop),
    };
    match created {
        Ok(()) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn guard_rails_allow_listed_values_only() -> Result<()> {
    let cluster = cluster("options/guard-rails").await?;
    let configure = async |data: Value| -> Result<Vec<DynamicObject>> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "olmv1-guard-rails", "namespace": "olmv1-system"}, "data": data});
        cluster.apply(&map.to_string()).await
    };
    // as applied they forbid nothing
    let images = "registry.example.com/catalogs/one:v1";
    for object in [extension("any", None), catalog("quay.io/any/catalog:v1")] {
        // a policy refuses while the apiserver has not read its list yet
        eventually("what is in no list is allowed", LIMIT, || async {
            let refused = rejection(&cluster, &object).await?;
            ensure!(refused.is_none(), "{object}: {refused:?}");
            Ok(())
        })
        .await?;
    }
    configure(json!({"packages": "cert-manager\n  prometheus\n\n", "catalogs": "operatorhubio", "catalog-images": "registry.example.com/catalogs/\n"})).await?;
    let from_template = |template: &str| {
        let mut object = catalog(images);
        object["metadata"]["annotations"] = json!({(annotations::CATALOG_IMAGE_TEMPLATE): template});
        object
    };
    let wrong_template = "metadata.annotations[olm.catalogImageTemplate]: catalogs may come from these places only: registry.example.com/catalogs/";
    let cases = [
        (extension("cert-manager", Some("operatorhubio")), None),
        (extension("prometheus", Some("operatorhubio")), None),
        (
            extension("other", Some("operatorhubio")),
            Some("package other is not among those that may be installed here: cert-manager, prometheus"),
        ),
        (
            extension("cert-manager", Some("mine")),
            Some("must name a catalog that may be used here: operatorhubio"),
        ),
        (extension("cert-manager", None), Some("must name a catalog that may be used here: operatorhubio")),
        (catalog(images), None),
        (
            catalog("registry.example.com/catalogs-of-mine/one:v1"),
            Some("catalogs may come from these places only: registry.example.com/catalogs/"),
        ),
        (from_template("registry.example.com/catalogs/one:v{kube_major_version}"), None),
        (from_template("evil.example.com/one:v1"), Some(wrong_template)),
    ];
    // policies and lists count from a moment after they are stored, each from its own
    eventually("the lists count", LIMIT, || async {
        for (object, expected) in &cases {
            let refused = rejection(&cluster, object).await?;
            let as_expected = match expected {
                None => refused.is_none(),
                Some(expected) => refused.as_ref().is_some_and(|text| text.contains(expected)),
            };
            ensure!(as_expected, "{object}: {refused:?}");
        }
        Ok(())
    })
    .await?;
    let catalogs: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    let stored = catalogs.create(&PostParams::default(), &serde_json::from_value(catalog(images))?).await?;
    let patch = json!({"metadata": {"annotations": {(annotations::CATALOG_IMAGE_TEMPLATE): "evil.example.com/one:v1"}}});
    let name = stored.metadata.name.unwrap_or_default();
    let changed = catalogs.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    let text = changed.err().context("the annotation of a catalog is accepted")?.to_string();
    ensure!(text.contains(wrong_template), "{text}");
    // an empty list allows nothing
    configure(json!({"packages": ""})).await?;
    eventually("the empty list counts", LIMIT, || async {
        rejection(&cluster, &extension("cert-manager", Some("operatorhubio")))
            .await?
            .map(drop)
            .context("not refused")
    })
    .await
}

/// The values of the policy are those of the table of annotations.
#[tokio::test]
async fn annotation_policy_accepts_the_values_of_the_table_only() -> Result<()> {
    let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
    cluster.install_crds().await?;
    // stored before the policy
    let extensions: Api<ClusterExtension> = Api::all(cluster.client().await?);
    let annotated = |key: &str, value: &str| {
        let mut object = extension("any", None);
        object["metadata"]["annotations"] = json!({key: value, "example.com/mine": "yes"});
        object
    };
    let stored: ClusterExtension = serde_json::from_value(annotated(annotations::PAUSED, "yes"))?;
    let stored = extensions.create(&PostParams::default(), &stored).await?;
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/policies/olm-annotation-values.yaml");
    cluster.apply(&std::fs::read_to_string(policy)?).await?;
    eventually("the policy is in force", LIMIT, || async {
        rejection(&cluster, &annotated(annotations::PAUSED, "yes")).await?.map(drop).context("not refused")
    })
    .await?;
    let mut checked = 0;
    for row in ANNOTATIONS.iter().filter(|row| row.on.split(", ").any(|kind| kind == ON_EXTENSION)) {
        let (accepted, other) = match row.values {
            Values::OneOf(values) => (values.to_vec(), Some(values)),
            Values::Text(_) => (vec!["yes"], None),
        };
        for value in accepted {
            let refused = rejection(&cluster, &annotated(row.key, value)).await?;
            ensure!(refused.is_none(), "{}={value}: {refused:?}", row.key);
        }
        let Some(values) = other else { continue };
        for wrong in ["yes", "", &values[0].to_uppercase()] {
            let refused = rejection(&cluster, &annotated(row.key, wrong)).await?.unwrap_or_default();
            let want = format!(
                "metadata.annotations[{}]: unknown value \"{wrong}\"; available: {}",
                row.key,
                values.join(", ")
            );
            ensure!(refused.contains(&want), "{}={wrong}: {refused}", row.key);
            checked += 1;
        }
    }
    ensure!(checked == 18, "six annotations of an extension have known values: {checked}");
    // what is there may stay while something else changes, and may not change to another unknown value
    let name = stored.metadata.name.unwrap_or_default();
    let patch = async |value: &str| -> Result<Option<String>> {
        let patch = json!({"metadata": {"annotations": {(annotations::PAUSED): value}, "labels": {"changed": "true"}}});
        match extensions.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
            Err(error) => Err(error.into()),
        }
    };
    let kept = patch("yes").await?;
    ensure!(kept.is_none(), "{kept:?}");
    ensure!(patch("on").await?.is_some(), "another unknown value");
    let fixed = patch("false").await?;
    ensure!(fixed.is_none(), "{fixed:?}");
    Ok(())
}

#[tokio::test]
async fn mutating_policy_labels_catalogs_at_creation() -> Result<()> {
    let cluster = cluster("options/mutating-policy").await?;
    let catalogs: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    for (given, case) in
        [(json!({}), "none"), (json!({labels::METADATA_NAME: "wrong", "mine": "stays"}), "wrong")]
    {
        let mut object = catalog("quay.io/any/catalog:v1");
        object["metadata"]["labels"] = given;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let object: ClusterCatalog = serde_json::from_value(object)?;
        // a policy counts from a moment after its creation
        eventually(&format!("the label is set where it was {case}"), LIMIT, || async {
            let labels = catalogs.create(&params, &object).await?.metadata.labels.unwrap_or_default();
            ensure!(labels.get(labels::METADATA_NAME) == Some(&name), "{labels:?}");
            ensure!(case == "none" || labels.get("mine").is_some_and(|value| value == "stays"), "{labels:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
