//! Printer columns and explanations of the API, as kubectl prints them.

use std::time::Duration;

use anyhow::{Result, ensure};
use olm_kit::eventually;
use serde_json::json;

use crate::cluster;

fn kubectl(cluster: &olm_kit::Cluster, arguments: &[&str]) -> Result<String> {
    let output = cluster.kubectl()?.args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
#[rustfmt::skip]
async fn schema_prints_columns() -> Result<()> {
    let (cluster, client) = cluster().await?;
    // there must be one object, or kubectl prints no header
    for (plural, kind, spec, want) in [
        ("clusterextensions", "ClusterExtension", r#"{namespace: default, source: {sourceType: Catalog, catalog: {packageName: demo}}}"#,
            "NAME INSTALLED BUNDLE VERSION INSTALLED PROGRESSING AGE"),
        ("clustercatalogs", "ClusterCatalog", r#"{availabilityMode: Unavailable, source: {type: Image, image: {ref: "quay.io/a/b:c"}}}"#,
            "NAME LASTUNPACKED SERVING AGE"),
        ("clusterobjectsets", "ClusterObjectSet", "{lifecycleState: Archived, revision: 1, collisionProtection: Prevent}",
            "NAME AVAILABLE PROGRESSING AGE"),
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
#[rustfmt::skip]
async fn schema_prints_more_columns_when_wide() -> Result<()> {
    let (cluster, client) = cluster().await?;
    let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let digest = format!("quay.io/a/b@sha256:{}", "0".repeat(64));
    for (short, kind, meta, spec, status, want) in [
        (
            "ce",
            "ClusterExtension",
            "",
            "{namespace: default, source: {sourceType: Catalog, catalog: {packageName: demo, selector: {matchLabels: \
             {olm.operatorframework.io/metadata.name: main}}}}}",
            json!({"conditions": [condition("Ready", "False", "Paused"), condition("Deprecated", "True", "Deprecated")]}),
            "READY=False REASON=Paused PACKAGE=demo CATALOG=main DEPRECATED=True".to_owned(),
        ),
        ("cc", "ClusterCatalog", "",
            r#"{availabilityMode: Unavailable, priority: 7, source: {type: Image, image: {ref: "quay.io/a/b:c"}}}"#,
            json!({"conditions": [condition("Progressing", "True", "Retrying")],
                "resolvedSource": {"type": "Image", "image": {"ref": digest}}}),
            format!("REASON=Retrying PRIORITY=7 DIGEST={digest}")),
        ("cos", "ClusterObjectSet", ", annotations: {olm.operatorframework.io/bundle-version: 1.2.3}",
            "{lifecycleState: Archived, revision: 3, collisionProtection: Prevent}", json!({}),
            "STATE=Archived REVISION=3 VERSION=1.2.3".to_owned()),
    ] {
        let name = olm_kit::unique("wide");
        let text = format!(
            "apiVersion: olm.operatorframework.io/v1\nkind: {kind}\nmetadata: {{name: {name}{meta}}}\nspec: {spec}"
        );
        cluster.apply(&text).await?;
        let api = olm_integration::api(&client, kind, &format!("{}s", kind.to_lowercase()));
        let patch = kube::api::Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &kube::api::PatchParams::default(), &patch).await?;
        let table = kubectl(cluster, &["get", short, &name, "-o", "wide"])?;
        let mut lines = table.lines().map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        let (header, row) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        // the columns behind AGE, from the right: cells before it may be empty
        let wide = header.iter().rev().take_while(|column| *column != "AGE").count();
        let cells: Vec<String> = header[header.len() - wide..]
            .iter()
            .zip(&row[row.len().saturating_sub(wide)..])
            .map(|(column, cell)| format!("{column}={cell}"))
            .collect();
        assert_eq!(cells.join(" "), want, "{table}");
        let listed = kubectl(cluster, &["get", "olm", "-o", "name"])?;
        let want = format!("{}.olm.operatorframework.io/{name}", kind.to_lowercase());
        assert!(listed.lines().any(|line| line == want), "{want} in\n{listed}");
        api.delete(&name, &kube::api::DeleteParams::default()).await?;
    }
    Ok(())
}

/// Names that the apiserver and OLM Classic give their kinds.
#[tokio::test]
async fn schema_short_names_are_of_no_other_kind() -> Result<()> {
    const CLASSIC: [&str; 10] =
        ["catsrc", "condition", "csv", "csvs", "ip", "og", "olmconfig", "sub", "subs", "pkg"];
    let (cluster, _) = cluster().await?;
    let table = kubectl(cluster, &["api-resources", "--no-headers"])?;
    let own = ["clustercatalogs", "clusterextensions", "clusterobjectsets"];
    let (ours, others): (Vec<&str>, Vec<&str>) =
        table.lines().partition(|line| own.contains(&line.split_whitespace().next().unwrap_or_default()));
    let mut names: Vec<&str> = ours.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    names.sort_unstable();
    assert_eq!(names, ["cc", "ce", "cos"], "{table}");
    for name in names {
        assert!(!CLASSIC.contains(&name), "{name}");
        let taken = others.iter().find(|line| line.split([' ', ',']).any(|word| word == name));
        assert_eq!(taken, None, "{name}");
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
