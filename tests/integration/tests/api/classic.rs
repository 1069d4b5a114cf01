//! The kinds of OLM Classic: definitions that a real apiserver accepts and that lose no field, types that lose no field.
//!
//! Rule: classic-apis §1.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use olm_api::classic;
use olm_yaml::{Limits, yaml_to_json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster;

async fn with_kinds() -> Result<(&'static olm_kit::Cluster, Client)> {
    let (cluster, client) = cluster().await?;
    let applied = cluster.apply_dir(&olm_kit::repository().join("manifests/classic")).await?;
    assert_eq!(applied.len(), 8);
    Ok((cluster, client))
}

/// What a typed read and write makes of an object. The type is that of the stored version, which has the fields of the older ones.
fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value> {
    let mut written = serde_json::to_value(serde_json::from_value::<K>(object.clone())?)?;
    written["apiVersion"] = object["apiVersion"].clone();
    Ok(written)
}

/// The same, by kind; `None` for kinds of other groups.
fn rewritten(object: &Value) -> Option<Result<Value>> {
    object["apiVersion"].as_str()?.strip_prefix("operators.coreos.com/")?;
    Some(match object["kind"].as_str()? {
        "CatalogSource" => through::<classic::CatalogSource>(object),
        "ClusterServiceVersion" => through::<classic::ClusterServiceVersion>(object),
        "InstallPlan" => through::<classic::InstallPlan>(object),
        "OLMConfig" => through::<classic::OlmConfig>(object),
        "Operator" => through::<classic::Operator>(object),
        "OperatorCondition" => through::<classic::OperatorCondition>(object),
        "OperatorGroup" => through::<classic::OperatorGroup>(object),
        "Subscription" => through::<classic::Subscription>(object),
        kind => Err(anyhow::anyhow!("no type for {kind}")),
    })
}

/// Without what Go leaves out: empty text, lists and maps, null.
fn without_empty(value: &Value) -> Value {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), without_empty(value)))
            .filter(|(_, value)| !empty(value))
            .collect(),
        Value::Array(items) => items.iter().map(without_empty).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, extension, found)?;
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(())
}

/// The ClusterServiceVersions of the shared bundles; `None`, with a line that reports why, without them.
#[expect(clippy::print_stdout, reason = "what is skipped is printed")]
fn shared_versions() -> Result<Option<Vec<Value>>> {
    let Some(shared) = olm_kit::shared_material() else {
        println!("SKIPPED: the shared reference material (../shared or OLM_SHARED) is absent");
        return Ok(None);
    };
    let mut paths = Vec::new();
    files(&shared.join("data/bundles"), "yaml", &mut paths)?;
    let mut versions = Vec::new();
    for path in paths {
        let mut bytes = Vec::new();
        yaml_to_json(&std::fs::read(&path)?, &mut bytes, &Limits::default())
            .with_context(|| path.display().to_string())?;
        for document in serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>() {
            let document = document?;
            if document["kind"] == "ClusterServiceVersion" {
                versions.push(document);
            }
        }
    }
    ensure!(versions.len() >= 20, "{} ClusterServiceVersions", versions.len());
    Ok(Some(versions))
}

/// Every specification of the kinds here in a record, as an object. Records have no times, which a status and the conditions of an
/// OperatorCondition need, and only a summary of ClusterServiceVersions.
fn specifications(record: &Value, found: &mut Vec<Value>) {
    match record {
        Value::Object(members) => {
            let group = record["apiVersion"].as_str().unwrap_or_default();
            let is_whole = record["kind"] != "ClusterServiceVersion"
                && record["kind"] != "OperatorCondition"
                && members.contains_key("spec");
            if group.starts_with("operators.coreos.com/") && is_whole {
                found.push(
                    json!({"apiVersion": group, "kind": record["kind"], "metadata": {"name": record["name"]}, "spec": record["spec"]}),
                );
            }
            members.values().for_each(|value| specifications(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| specifications(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn classic_types_lose_nothing_of_shared_versions() -> Result<()> {
    for version in shared_versions()?.unwrap_or_default() {
        let name = version["metadata"]["name"].to_string();
        let written = through::<classic::ClusterServiceVersion>(&version).with_context(|| name.clone())?;
        assert_eq!(without_empty(&written), without_empty(&version), "{name}");
    }
    Ok(())
}

#[test]
fn classic_types_lose_nothing_of_recorded_specs() -> Result<()> {
    let Some(shared) = olm_kit::shared_material() else {
        println!("SKIPPED: the shared reference material (../shared or OLM_SHARED) is absent");
        return Ok(());
    };
    let mut paths = Vec::new();
    files(&shared.join("classic/recorded"), "json", &mut paths)?;
    let mut count = 0;
    for path in paths {
        let record: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let mut found = Vec::new();
        specifications(&record, &mut found);
        for object in found {
            let written = rewritten(&object).context("a kind of another group")?;
            let written = written.with_context(|| format!("{}: {object}", path.display()))?;
            assert_eq!(without_empty(&written), without_empty(&object), "{}", path.display());
            count += 1;
        }
    }
    println!("{count} recorded specifications");
    ensure!(count > 300, "{count} recorded specifications");
    Ok(())
}

#[test]
fn classic_types_keep_unknown_fields() -> Result<()> {
    let meta = json!({"name": "a", "namespace": "n"});
    for object in [
        json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "metadata": meta,
            "spec": {"displayName": "A", "new": 1, "install": {"strategy": "deployment", "new": 2, "spec": {"new": 3, "deployments": [
                {"name": "d", "new": 4, "spec": {"new": {"deep": 5}}}]}},
                "customresourcedefinitions": {"new": 6, "owned": [{"name": "x", "version": "v1", "kind": "X", "new": [7]}]}},
            "status": {"phase": "Paused", "new": 8}}),
        json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": meta,
            "spec": {"name": "p", "source": "s", "sourceNamespace": "n", "new": 1, "config": {"new": 2, "env": [{"name": "A", "new": 3}]}}}),
        json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan", "metadata": meta,
            "spec": {"approval": "Manual", "approved": false, "clusterServiceVersionNames": ["a"], "new": 1},
            "status": {"phase": "New", "catalogSources": ["c"], "plan": [{"resolving": "a", "status": "New", "new": 2, "resource": {
                "group": "g", "version": "v", "kind": "K", "name": "n", "sourceName": "c", "sourceNamespace": "m", "new": 3}}]}}),
        json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": meta,
            "spec": {"sourceType": "grpc", "new": 1, "grpcPodConfig": {"new": 2, "memoryTarget": 5, "priorityClassName": "p"}}}),
        json!({"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": meta, "spec": {"new": 1}}),
        json!({"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition", "metadata": meta, "spec": {"new": 1}}),
    ] {
        let written = rewritten(&object).context("a kind of another group")??;
        // required lists are written also when they are empty
        assert_eq!(without_empty(&written), object);
    }
    Ok(())
}

/// Each kind as kubectl knows it, its columns, and its other version.
#[tokio::test]
async fn classic_definitions_are_accepted() -> Result<()> {
    let (cluster, _) = with_kinds().await?;
    let flags = "api-resources --api-group=operators.coreos.com --no-headers -o wide --sort-by=kind";
    let output = cluster.kubectl()?.args(flags.split(' ')).output()?;
    let table = String::from_utf8(output.stdout)?;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    for (kind, version, short) in [
        ("CatalogSource", "v1alpha1", "catsrc"),
        ("ClusterServiceVersion", "v1alpha1", "csv,csvs"),
        ("InstallPlan", "v1alpha1", "ip"),
        ("OLMConfig", "v1", ""),
        ("Operator", "v1", ""),
        ("OperatorCondition", "v2", "condition"),
        ("OperatorGroup", "v1", "og"),
        ("Subscription", "v1alpha1", "sub,subs"),
    ] {
        let row = rows.iter().find(|row| row.contains(&kind)).with_context(|| format!("{kind}: {table}"))?;
        assert!(row.contains(&format!("operators.coreos.com/{version}").as_str()), "{row:?}");
        assert!(short.is_empty() || row[1] == short, "{row:?}");
        assert_eq!(row.last(), Some(&"olm"), "{row:?}");
    }
    Ok(())
}

/// What the apiserver stores of each ClusterServiceVersion is what was sent: the definition prunes no field.
#[tokio::test]
async fn classic_definitions_prune_nothing() -> Result<()> {
    let Some(versions) = shared_versions()? else { return Ok(()) };
    let (_, client) = with_kinds().await?;
    let kind = kube::core::GroupVersionKind::gvk("operators.coreos.com", "v1alpha1", "ClusterServiceVersion");
    let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &ApiResource::from_gvk(&kind));
    for mut version in versions {
        version["metadata"]["namespace"] = json!("default");
        version["metadata"].as_object_mut().context("no metadata")?.remove("creationTimestamp");
        // a field of one published version that the API does not have
        version["spec"].as_object_mut().context("no spec")?.remove("support");
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        let stored = api.create(&parameters, &serde_json::from_value(version.clone())?).await?;
        let name = version["metadata"]["name"].to_string();
        assert_eq!(without_empty(&stored.data["spec"]), without_empty(&version["spec"]), "{name}");
    }
    Ok(())
}
