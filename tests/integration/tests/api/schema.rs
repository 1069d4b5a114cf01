//! Printer columns and explanations of the API, as kubectl prints them.

use std::time::Duration;

use anyhow::{Result, ensure};
use olm_kit::eventually;

use crate::cluster;

fn kubectl(cluster: &olm_kit::Cluster, arguments: &[&str]) -> Result<String> {
    let output = cluster.kubectl()?.args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn schema_prints_columns() -> Result<()> {
    let (cluster, client) = cluster().await?;
    // there must be one object, or kubectl prints no header
    for (plural, kind, spec, want) in [
        (
            "clusterextensions",
            "ClusterExtension",
            r#"{namespace: default, source: {sourceType: Catalog, catalog: {packageName: demo}}}"#,
            "NAME INSTALLED BUNDLE VERSION INSTALLED PROGRESSING AGE",
        ),
        (
            "clustercatalogs",
            "ClusterCatalog",
            r#"{availabilityMode: Unavailable, source: {type: Image, image: {ref: "quay.io/a/b:c"}}}"#,
            "NAME LASTUNPACKED SERVING AGE",
        ),
        (
            "clusterobjectsets",
            "ClusterObjectSet",
            "{lifecycleState: Archived, revision: 1, collisionProtection: Prevent}",
            "NAME AVAILABLE PROGRESSING AGE",
        ),
    ] {
        let name = olm_kit::unique("columns");
        let text = format!(
            "apiVersion: olm.operatorframework.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}"
        );
        cluster.apply(&text).await?;
        let table = kubectl(cluster, &["get", plural, &name])?;
        let header: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(header.join(" "), want);
        let api = olm_integration::api(&client, kind, plural);
        api.delete(&name, &kube::api::DeleteParams::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn schema_explains_fields() -> Result<()> {
    let (cluster, _) = cluster().await?;
    for (path, want) in [
        ("clusterextension.spec.source.catalog.version", "1.2.3 - 2.3.4"),
        ("clustercatalog.spec.source.image.ref", "quay.io/operatorhubio/catalog:latest"),
        ("clusterobjectset.spec.phases.objects.ref.key", "1 to 253 characters"),
        ("clusterextension.status.conditions.reason", "CamelCase"),
    ] {
        // the apiserver publishes explanations a while after it serves a kind
        eventually(path, Duration::from_secs(60), || async {
            let text = kubectl(cluster, &["explain", path])?;
            ensure!(text.contains(want), "{path}:\n{text}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
