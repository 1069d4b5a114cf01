//! The sample's bundles, second versions made of bundles that are alone, and stand-ins for kinds of others.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
pub(crate) use olm_integration::sample::{data, pushed};
use olm_kit::BundleImage;
use olm_kit::image::{Files, read_dir};
use olm_yaml::{Limits, yaml_to_json};
use serde_json::{Value, json};

/// Every bundle as `<package>/<version>` with its folder, sorted.
pub(crate) fn bundles(data: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for package in std::fs::read_dir(data.join("bundles"))? {
        let package = package?;
        for version in std::fs::read_dir(package.path())? {
            let version = version?;
            let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            found.push((format!("{}/{}", name(&package), name(&version)), version.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// A kind that some other operator would bring: no rules, so that it takes what real ones take.
pub(crate) fn stand_in(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

/// The next version after one: a patch release.
pub(crate) fn successor(version: &str) -> Result<String> {
    let (head, patch) = version.rsplit_once('.').with_context(|| format!("not a version: {version}"))?;
    Ok(format!("{head}.{}", patch.parse::<u64>()? + 1))
}

/// A bundle's next version, made of it: another name and version, and images that differ by their tag.
pub(crate) fn next_bundle(folder: &Path, old: &str, new: &str) -> Result<BundleImage> {
    let files = read_dir(folder, "")?;
    let (path, mut csv) = csv(&files)?;
    let name = csv["metadata"]["name"].as_str().context("the CSV has no name")?.to_owned();
    ensure!(name.ends_with(old), "{name} does not end with {old}");
    csv["metadata"]["name"] = next_name(&name, old, new).into();
    csv["spec"]["version"] = new.into();
    csv["spec"]["replaces"] = name.into();
    let deployments = csv.pointer_mut("/spec/install/spec/deployments").and_then(Value::as_array_mut);
    for deployment in deployments.context("no deployments")? {
        let containers =
            deployment.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
        for container in containers.context("no containers")? {
            let image = container["image"].as_str().context("a container without image")?;
            let image = image.split('@').next().unwrap_or_default();
            let repository = match image.rsplit_once(':') {
                Some((repository, tag)) if !tag.contains('/') => repository,
                _ => image,
            };
            container["image"] = format!("{repository}:next-{new}").into();
        }
    }
    Ok(BundleImage::from_files(files).file(&path, &csv.to_string()))
}

/// The catalog's blobs with that next version at the end of every channel that has the old one.
pub(crate) fn with_next(blobs: &mut Vec<Value>, old: &str, new: &str, image: &str) -> Result<()> {
    let mut made = Vec::new();
    for blob in blobs.iter().filter(|blob| blob["schema"] == "olm.bundle") {
        let mut next = blob.clone();
        let name = blob["name"].as_str().unwrap_or_default();
        next["name"] = next_name(name, old, new).into();
        next["image"] = image.into();
        for property in next["properties"].as_array_mut().into_iter().flatten() {
            if property["type"] == "olm.package" {
                property["value"]["version"] = new.into();
            }
        }
        made.push((name.to_owned(), next));
    }
    let [(name, next)] = <[_; 1]>::try_from(made).map_err(|_| anyhow::anyhow!("not one bundle"))?;
    for blob in blobs.iter_mut().filter(|blob| blob["schema"] == "olm.channel") {
        let entries = blob["entries"].as_array_mut().context("a channel without entries")?;
        entries.push(json!({"name": next["name"], "replaces": name}));
    }
    blobs.push(next);
    Ok(())
}

fn next_name(name: &str, old: &str, new: &str) -> String {
    format!("{}{new}", name.strip_suffix(old).unwrap_or(name))
}

/// The ClusterServiceVersion and the file that holds it.
fn csv(files: &Files) -> Result<(String, Value)> {
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
        let mut json = Vec::new();
        yaml_to_json(text, &mut json, &Limits::default())
            .map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
        let value: Value = serde_json::from_slice(&json)?;
        if value["kind"] == "ClusterServiceVersion" {
            return Ok((path.clone(), value));
        }
    }
    anyhow::bail!("no ClusterServiceVersion")
}
